// The arrays that are damaged: small, with everything in them that an array may hold (whole
// stripes, pending chunks, committed and trimmed ones, several checkpoints, several epochs), closed
// or crashed, and what their volumes must read as.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "eplog/options.h"
#include "layout/geometry.h"
#include "tests/damage/image.h"

namespace eplog::damage {

enum class End : uint8_t {
  kClosed,
  kKilled,    // what was written is there, flushed or not
  kPowerCut,  // what was not flushed is gone, on some devices
};

// What has become of one of its SSDs.
enum class Past : uint8_t { kWhole, kLost, kReplaced };

struct BaseShape {
  const char* name;
  uint32_t n;
  uint32_t m;
  End end;
  Past past = Past::kWhole;
  JournalMode journal = JournalMode::kFull;
};

// What a chunk of a volume may hold: one content, or more where what was written was not flushed.
using Contents = std::vector<Bytes>;

struct BaseVolume {
  uint64_t size_bytes = 0;
  std::vector<Contents> chunks;
};

struct Base {
  BaseShape shape{};
  Geometry geometry;
  std::vector<std::string> names;  // of the devices
  std::vector<Bytes> devices;      // SSDs first; one that was lost as it was then
  // By device and block: what was there before, newest last, and differs.
  std::vector<std::map<uint64_t, std::vector<Bytes>>> older;
  std::map<std::string, BaseVolume> volumes;

  [[nodiscard]] std::span<const std::byte> Block(size_t device, uint64_t block) const {
    return std::span(devices[device]).subspan(block * kBlockBytes, kBlockBytes);
  }
};

inline constexpr uint32_t kChunkBytes = 4096;

// The same for the same seed.
Base MakeBase(const BaseShape& shape, uint64_t seed);

}  // namespace eplog::damage
