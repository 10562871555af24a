// Content: what a replayed trace writes, and whether it is read back.
//
// Each write has a number. A page of 4 KiB (or the sectors of 512 bytes of it that are written)
// gets 16 bytes that follow from the page's place and the write's number, again and again. So any
// byte that is wrong, old or in the wrong place is noticed, and simulated devices, which keep what
// repeats in little memory, can hold arrays of any size (sim/pattern_store.h).
//
// Requests that overlap must not be in flight together unless they only read.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace eplog {

class Content {
 public:
  // All zeros. Memory: 4 bytes a page, and some more for pages that are written in parts.
  explicit Content(uint64_t size_bytes);

  // Ranges are whole sectors.
  // The next write goes there; `into` gets what it writes.
  void Write(uint64_t offset_bytes, std::span<std::byte> into);
  // From now on it may hold anything.
  void Forget(uint64_t offset_bytes, uint64_t length_bytes);
  // Empty if `from` is what must be there; else what is wrong where.
  [[nodiscard]] std::string Check(uint64_t offset_bytes, std::span<const std::byte> from) const;

  [[nodiscard]] uint64_t size_bytes() const { return size_bytes_; }
  [[nodiscard]] uint64_t writes() const { return writes_; }

 private:
  using Version = uint32_t;  // number of a write; 0: never written
  static constexpr Version kMixed = UINT32_MAX;
  static constexpr Version kUnknown = UINT32_MAX - 1;
  static constexpr uint64_t kSectors = 8;  // of a page
  using Sectors = std::array<Version, kSectors>;

  void Mark(uint64_t offset_bytes, uint64_t length_bytes, Version version);
  [[nodiscard]] Version VersionAt(uint64_t sector) const;

  uint64_t size_bytes_;
  uint64_t writes_ = 0;
  std::vector<Version> pages_;
  std::unordered_map<uint64_t, Sectors> mixed_;
};

}  // namespace eplog
