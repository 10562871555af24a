// PatternStore: the bytes of a device, kept without loss and, where they repeat, in little memory.
//
// A block of 4 KiB is kept
//   * not at all, if it was never written, was dropped, or holds zeros;
//   * as 16 bytes, if all of it repeats with period 16;
//   * as 8 x 16 bytes, if each of its sectors of 512 bytes does;
//   * as its first 256 bytes, if the rest are zeros: so are the headers in logs;
//   * whole otherwise.
// A replayed trace is written with content of period 16. Parity over GF(256) is computed byte by
// byte, so parity of such content has period 16 as well, and arrays of many gigabytes fit in RAM.
//
// Memory: 4 bytes a block of regions of 4 MiB that were ever written, and pools of each of the
// four sizes. A pool keeps what it once had, for later use; nothing else can fragment.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/types.h"
#include "sim/slot_pool.h"

namespace eplog::sim {

class PatternStore {
 public:
  explicit PatternStore(uint64_t size_bytes);

  // Any range within the size. Whole aligned blocks are fastest.
  void Write(uint64_t offset_bytes, std::span<const std::byte> from);
  void Read(uint64_t offset_bytes, std::span<std::byte> into) const;
  // Reads as zeros afterwards.
  void Drop(uint64_t offset_bytes, uint64_t length_bytes);

  struct Usage {
    uint64_t blocks_of_16 = 0;
    uint64_t blocks_of_128 = 0;
    uint64_t blocks_of_256 = 0;
    uint64_t whole_blocks = 0;
    uint64_t content_bytes = 0;  // what these take
    uint64_t memory_bytes = 0;   // with the index, and with what the pools keep for later
  };
  [[nodiscard]] Usage usage() const;
  [[nodiscard]] uint64_t size_bytes() const { return size_bytes_; }

 private:
  enum class Kind : uint8_t { kZeros, kPeriod16, kSectors, kHead, kWhole };
  using Block = std::span<std::byte, kBlockBytes>;
  using ConstBlock = std::span<const std::byte, kBlockBytes>;
  // Kind in the three upper bits, number in that kind's pool below. 0: zeros.
  using Word = uint32_t;
  static constexpr uint32_t kRegionBlocks = 1024;

  static Kind Classify(ConstBlock block);
  static size_t KeptBytes(Kind kind);
  [[nodiscard]] Word Find(uint64_t number) const;
  Word& Entry(uint64_t number);
  void Release(Word& word);
  void WriteBlock(uint64_t number, ConstBlock from);
  void ReadBlock(Word word, Block into) const;
  void Patch(uint64_t number, uint64_t begin, std::span<const std::byte> from);
  SlotPool& PoolOf(Kind kind) { return pools_[static_cast<size_t>(kind) - 1]; }

  uint64_t size_bytes_;
  uint64_t regions_in_use_ = 0;
  std::vector<std::unique_ptr<Word[]>> regions_;
  std::array<SlotPool, 4> pools_;
};

}  // namespace eplog::sim
