#include "tests/torture/content.h"

#include <algorithm>
#include <cstring>

#include "base/bytes.h"
#include "base/crc32c.h"
#include "base/types.h"

namespace eplog::torture {
namespace {

constexpr uint64_t kTag = 0x7E57;       // in the high 16 bits of a sector's first word
constexpr uint64_t kEqualTag = 0xE0A1;  // named by the tags of equal blocks

enum class Kind : uint8_t { kBytes, kOwnCrc, kEqual, kZeros };

Kind KindOf(uint64_t write_id) {
  if (write_id == 0) {
    return Kind::kZeros;
  }
  const uint64_t draw = write_id * 0x9E3779B97F4A7C15ULL >> 60;  // 0 ... 15
  return draw < 6    ? Kind::kOwnCrc
         : draw < 8  ? Kind::kEqual
         : draw == 8 ? Kind::kZeros
                     : Kind::kBytes;
}

// The blocks of the volume that the write covers whole end in the CRC32C of what is before it.
void AddOwnCrcs(uint64_t offset_bytes, std::span<std::byte> into) {
  const uint64_t first = (offset_bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
  for (uint64_t at = first; at + kBlockBytes <= offset_bytes + into.size(); at += kBlockBytes) {
    const auto block = into.subspan(at - offset_bytes, kBlockBytes);
    constexpr size_t kEnd = kBlockBytes - sizeof(uint32_t);
    StoreLe(block.data() + kEnd, Crc32c(block.first(kEnd)));
  }
}

uint64_t Word(uint64_t write_id, uint64_t address) {
  if (address % kSectorBytes == 0) {
    return (kTag << 48) | write_id;
  }
  uint64_t z = (write_id << 32) + address * 0x9E3779B97F4A7C15ULL;
  z = (z ^ (z >> 31)) * 0xBF58476D1CE4E5B9ULL;
  return z ^ (z >> 29);
}

}  // namespace

void FillPattern(uint64_t write_id, uint64_t offset_bytes, bool own_crcs,
                 std::span<std::byte> into) {
  const Kind kind = KindOf(write_id);
  if (kind == Kind::kZeros) {
    std::fill(into.begin(), into.end(), std::byte{0});
    return;
  }
  size_t at = 0;
  while (at < into.size()) {
    const uint64_t address = offset_bytes + at;
    const uint64_t word = kind == Kind::kEqual ? Word(kEqualTag, address % kBlockBytes / 8 * 8)
                                               : Word(write_id, address / 8 * 8);
    const size_t skip = address % 8;
    const size_t length = std::min<size_t>(8 - skip, into.size() - at);
    std::memcpy(into.data() + at, reinterpret_cast<const std::byte*>(&word) + skip, length);
    at += length;
  }
  if (kind == Kind::kOwnCrc && own_crcs) {
    AddOwnCrcs(offset_bytes, into);
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
