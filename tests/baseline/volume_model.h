// VolumeModel: what a volume may hold while writes overlap, sector by sector. A write is a version
// of each of its sectors from its beginning on; a read may return a version unless another one
// began after that had ended and ended before the read began.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/types.h"

namespace eplog::test {

class VolumeModel {
 public:
  explicit VolumeModel(uint64_t size_bytes) : sectors_(size_bytes / kSectorBytes) {}

  // The number of a new write, and its content.
  uint64_t BeginWrite(uint64_t offset_bytes, std::span<std::byte> data);
  void EndWrite(uint64_t write, uint64_t offset_bytes, uint64_t length_bytes);
  [[nodiscard]] uint64_t Now() { return ++clock_; }
  // What is wrong with the result of a read that began at `begin`, or nothing.
  [[nodiscard]] std::optional<std::string> Check(uint64_t begin, uint64_t offset_bytes,
                                                 std::span<const std::byte> data);

 private:
  struct Version {
    uint64_t write = 0;  // 0: zeros
    uint64_t begin = 0;
    uint64_t end = 0;
  };
  struct Sector {
    std::vector<Version> versions{{}};
  };

  std::vector<Sector> sectors_;
  uint64_t clock_ = 0;
  uint64_t writes_ = 0;
};

}  // namespace eplog::test
