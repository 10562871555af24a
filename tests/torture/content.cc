#include "tests/torture/content.h"

#include <algorithm>
#include <cstring>

#include "base/types.h"

namespace eplog::torture {
namespace {

constexpr uint64_t kTag = 0x7E57;  // in the high 16 bits of a sector's first word

uint64_t Word(uint64_t write_id, uint64_t address) {
  if (address % kSectorBytes == 0) {
    return (kTag << 48) | write_id;
  }
  uint64_t z = (write_id << 32) + address * 0x9E3779B97F4A7C15ULL;
  z = (z ^ (z >> 31)) * 0xBF58476D1CE4E5B9ULL;
  return z ^ (z >> 29);
}

}  // namespace

void FillPattern(uint64_t write_id, uint64_t offset_bytes, std::span<std::byte> into) {
  if (write_id == 0) {
    std::fill(into.begin(), into.end(), std::byte{0});
    return;
  }
  size_t at = 0;
  while (at < into.size()) {
    const uint64_t address = offset_bytes + at;
    const uint64_t word = Word(write_id, address / 8 * 8);
    const size_t skip = address % 8;
    const size_t length = std::min<size_t>(8 - skip, into.size() - at);
    std::memcpy(into.data() + at, reinterpret_cast<const std::byte*>(&word) + skip, length);
    at += length;
  }
}

std::string Describe(std::span<const std::byte> content) {
  std::string text;
  std::string last;
  size_t run = 0;
  const auto end_run = [&] {
    if (run != 0) {
      text += (text.empty() ? "" : ", ") + last + " x" + std::to_string(run);
    }
  };
  for (size_t at = 0; at < content.size(); at += kSectorBytes) {
    const auto sector = content.subspan(at, std::min<size_t>(kSectorBytes, content.size() - at));
    uint64_t word = 0;
    std::memcpy(&word, sector.data(), std::min<size_t>(8, sector.size()));
    const bool zero =
        std::all_of(sector.begin(), sector.end(), [](std::byte b) { return b == std::byte{0}; });
    std::string name = zero ? "zero" : "?";
    if (word >> 48 == kTag) {
      name = "w" + std::to_string(word & 0xFFFFFFFFFFFFULL);
    }
    if (name != last) {
      end_run();
      last = name;
      run = 0;
    }
    ++run;
  }
  end_run();
  return text;
}

}  // namespace eplog::torture
