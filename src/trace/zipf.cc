#include "trace/zipf.h"

#include <algorithm>
#include <array>
#include <bit>

namespace eplog {
namespace {

using Wide = unsigned __int128;
constexpr int kFractionBits = 24;

// floor(sqrt(x))
constexpr uint64_t Root(Wide x) {
  Wide low = 0;
  Wide high = Wide{1} << 64;
  while (high - low > 1) {
    const Wide middle = low + (high - low) / 2;
    (middle * middle <= x ? low : high) = middle;
  }
  return static_cast<uint64_t>(low);
}

// 2 ^ 63 * 2 ^ -(2 ^ -i), i = 1 ...: each the root of the one before.
constexpr std::array<uint64_t, kFractionBits> MakeRoots() {
  std::array<uint64_t, kFractionBits> roots{};
  uint64_t last = uint64_t{1} << 62;  // 2 ^ -1
  for (uint64_t& root : roots) {
    root = Root(static_cast<Wide>(last) << 63);
    last = root;
  }
  return roots;
}
constexpr std::array<uint64_t, kFractionBits> kRoots = MakeRoots();

}  // namespace

uint64_t Log2Q32(uint64_t x) {
  const auto whole = static_cast<uint64_t>(std::bit_width(x) - 1);
  uint64_t mantissa = x << (63 - whole);  // in [1, 2), times 2 ^ 63
  uint64_t out = whole << 32;
  for (int bit = 31; bit >= 32 - kFractionBits; --bit) {
    const Wide square = static_cast<Wide>(mantissa) * mantissa;  // in [1, 4), times 2 ^ 126
    const bool two = (square >> 127) != 0;
    mantissa = static_cast<uint64_t>(square >> (two ? 64 : 63));
    out |= static_cast<uint64_t>(two) << bit;
  }
  return out;
}

uint64_t Exp2Q62(uint64_t e) {
  uint64_t value = uint64_t{1} << 62;
  for (int i = 0; i < kFractionBits; ++i) {
    if ((e >> (31 - i) & 1) != 0) {
      value =
          static_cast<uint64_t>(static_cast<Wide>(value) * kRoots[static_cast<size_t>(i)] >> 63);
    }
  }
  const uint64_t down = e >> 32;
  return std::max<uint64_t>(down < 63 ? value >> down : 0, 1);
}

ZipfTable::ZipfTable(uint64_t ranks, uint64_t skew_milli) : cells_(ranks) {
  std::vector<uint64_t> parts(ranks);
  Wide sum = 0;
  for (uint64_t rank = 0; rank < ranks; ++rank) {
    const Wide exponent = static_cast<Wide>(Log2Q32(rank + 1)) * skew_milli / 1000;
    parts[rank] = Exp2Q62(static_cast<uint64_t>(std::min<Wide>(exponent, UINT64_MAX)));
    sum += parts[rank];
  }
  // Each rank's part in units of which a slot holds one: 2 ^ 32.
  constexpr uint64_t kOne = uint64_t{1} << 32;
  std::vector<uint32_t> poor;
  std::vector<uint32_t> rich;
  for (uint64_t rank = 0; rank < ranks; ++rank) {
    parts[rank] = static_cast<uint64_t>((static_cast<Wide>(parts[rank]) * ranks << 32) / sum);
    (parts[rank] < kOne ? poor : rich).push_back(static_cast<uint32_t>(rank));
  }
  // A poor slot is filled up by a rich rank; who is then poor waits for another.
  while (!poor.empty() && !rich.empty()) {
    const uint32_t low = poor.back();
    const uint32_t high = rich.back();
    poor.pop_back();
    cells_[low] = {static_cast<uint32_t>(std::max<uint64_t>(parts[low], 1) - 1), high};
    parts[high] -= kOne - parts[low];
    if (parts[high] < kOne) {
      rich.pop_back();
      poor.push_back(high);
    }
  }
  for (const uint32_t rank : poor) {  // what rounding left
    cells_[rank].alias = rank;
  }
  for (const uint32_t rank : rich) {
    cells_[rank].alias = rank;
  }
}

}  // namespace eplog
