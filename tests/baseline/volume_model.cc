#include "tests/baseline/volume_model.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "base/random.h"

namespace eplog::test {
namespace {

constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();

std::array<std::byte, kSectorBytes> ContentOf(uint64_t write, uint64_t sector) {
  std::array<std::byte, kSectorBytes> content{};
  if (write != 0) {
    Random random(write << 32 | sector);
    for (size_t at = 0; at < kSectorBytes; at += sizeof(uint64_t)) {
      const uint64_t word = random.Next();
      std::memcpy(content.data() + at, &word, sizeof word);
    }
  }
  return content;
}

}  // namespace

uint64_t VolumeModel::BeginWrite(uint64_t offset_bytes, std::span<std::byte> data) {
  const uint64_t write = ++writes_;
  const uint64_t now = Now();
  for (uint64_t at = 0; at < data.size(); at += kSectorBytes) {
    const uint64_t sector = (offset_bytes + at) / kSectorBytes;
    const auto content = ContentOf(write, sector);
    std::memcpy(data.data() + at, content.data(), kSectorBytes);
    sectors_[sector].versions.push_back({write, now, kNever});
  }
  return write;
}

void VolumeModel::EndWrite(uint64_t write, uint64_t offset_bytes, uint64_t length_bytes) {
  const uint64_t now = Now();
  for (uint64_t at = 0; at < length_bytes; at += kSectorBytes) {
    auto& versions = sectors_[(offset_bytes + at) / kSectorBytes].versions;
    const auto mine = std::find_if(versions.begin(), versions.end(),
                                   [write](const Version& v) { return v.write == write; });
    mine->end = now;
  }
}

std::optional<std::string> VolumeModel::Check(uint64_t begin, uint64_t offset_bytes,
                                              std::span<const std::byte> data) {
  for (uint64_t at = 0; at < data.size(); at += kSectorBytes) {
    const uint64_t sector = (offset_bytes + at) / kSectorBytes;
    const auto& versions = sectors_[sector].versions;
    const auto right = [&](const Version& version) {
      const bool superseded = std::any_of(
          versions.begin(), versions.end(),
          [&](const Version& other) { return other.begin > version.end && other.end < begin; });
      const auto content = ContentOf(version.write, sector);
      return !superseded && std::memcmp(content.data(), data.data() + at, kSectorBytes) == 0;
    };
    if (std::none_of(versions.begin(), versions.end(), right)) {
      return "sector " + std::to_string(sector) + " holds what it must not";
    }
  }
  return std::nullopt;
}

}  // namespace eplog::test
