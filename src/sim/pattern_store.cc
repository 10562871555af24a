#include "sim/pattern_store.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace eplog::sim {
namespace {

constexpr size_t kPeriod = 16;
constexpr uint32_t kSectors = kBlockBytes / kSectorBytes;
constexpr uint32_t kHeadBytes = 256;
constexpr uint32_t kKindShift = 29;
constexpr uint32_t kSlotMask = (uint32_t{1} << kKindShift) - 1;

bool Repeats(const std::byte* bytes, size_t length) {
  return std::memcmp(bytes, bytes + kPeriod, length - kPeriod) == 0;
}

void Repeat(const std::byte* pattern, std::byte* to, size_t length) {
  std::array<uint64_t, 2> words{};
  std::memcpy(words.data(), pattern, kPeriod);
  for (size_t at = 0; at < length; at += kPeriod) {
    std::memcpy(to + at, words.data(), kPeriod);
  }
}

}  // namespace

PatternStore::PatternStore(uint64_t size_bytes)
    : size_bytes_(size_bytes),
      regions_(DivideUp(DivideUp(size_bytes, kBlockBytes), kRegionBlocks)),
      pools_{SlotPool(kPeriod), SlotPool(kSectors * kPeriod), SlotPool(kHeadBytes),
             SlotPool(kBlockBytes)} {}

PatternStore::Kind PatternStore::Classify(ConstBlock block) {
  const std::byte* bytes = block.data();
  const auto zeros_from = [bytes](size_t at) {
    constexpr std::array<std::byte, kPeriod> kNothing{};
    return std::memcmp(bytes + at, kNothing.data(), kPeriod) == 0 &&
           Repeats(bytes + at, kBlockBytes - at);
  };
  if (Repeats(bytes, kBlockBytes)) {
    return zeros_from(0) ? Kind::kZeros : Kind::kPeriod16;
  }
  if (zeros_from(kHeadBytes)) {
    return Kind::kHead;
  }
  for (uint32_t sector = 0; sector < kSectors; ++sector) {
    if (!Repeats(bytes + size_t{sector} * kSectorBytes, kSectorBytes)) {
      return Kind::kWhole;
    }
  }
  return Kind::kSectors;
}

size_t PatternStore::KeptBytes(Kind kind) {
  static constexpr std::array<size_t, 5> kBytes = {0, kPeriod, kSectors * kPeriod, kHeadBytes,
                                                   kBlockBytes};
  return kBytes[static_cast<size_t>(kind)];
}

PatternStore::Word PatternStore::Find(uint64_t number) const {
  const auto& region = regions_[number / kRegionBlocks];
  return region == nullptr ? 0 : region[number % kRegionBlocks];
}

PatternStore::Word& PatternStore::Entry(uint64_t number) {
  auto& region = regions_[number / kRegionBlocks];
  if (region == nullptr) {
    region = std::make_unique<Word[]>(kRegionBlocks);
    ++regions_in_use_;
  }
  return region[number % kRegionBlocks];
}

void PatternStore::Release(Word& word) {
  if (word != 0) {
    PoolOf(static_cast<Kind>(word >> kKindShift)).GiveBack(word & kSlotMask);
    word = 0;
  }
}

void PatternStore::WriteBlock(uint64_t number, ConstBlock from) {
  const Kind kind = Classify(from);
  if (kind == Kind::kZeros && Find(number) == 0) {
    return;
  }
  Word& word = Entry(number);
  if (static_cast<Kind>(word >> kKindShift) != kind) {
    Release(word);
    if (kind == Kind::kZeros) {
      return;
    }
    const uint32_t slot = PoolOf(kind).Take();
    EPLOG_CHECK(slot <= kSlotMask, "a device has fewer than 2^29 blocks of a kind");
    word = (static_cast<Word>(kind) << kKindShift) | slot;
  }
  std::byte* to = PoolOf(kind).At(word & kSlotMask);
  if (kind == Kind::kSectors) {
    for (size_t sector = 0; sector < kSectors; ++sector) {
      std::memcpy(to + sector * kPeriod, from.data() + sector * kSectorBytes, kPeriod);
    }
  } else {
    std::memcpy(to, from.data(), KeptBytes(kind));
  }
}

void PatternStore::ReadBlock(Word word, Block into) const {
  const auto kind = static_cast<Kind>(word >> kKindShift);
  if (kind == Kind::kZeros) {
    std::memset(into.data(), 0, kBlockBytes);
    return;
  }
  const std::byte* from = pools_[static_cast<size_t>(kind) - 1].At(word & kSlotMask);
  if (kind == Kind::kPeriod16) {
    Repeat(from, into.data(), kBlockBytes);
  } else if (kind == Kind::kWhole || kind == Kind::kHead) {
    std::memcpy(into.data(), from, KeptBytes(kind));
    std::memset(into.data() + KeptBytes(kind), 0, kBlockBytes - KeptBytes(kind));
  } else {
    for (size_t sector = 0; sector < kSectors; ++sector) {
      Repeat(from + sector * kPeriod, into.data() + sector * kSectorBytes, kSectorBytes);
    }
  }
}

void PatternStore::Patch(uint64_t number, uint64_t begin, std::span<const std::byte> from) {
  std::array<std::byte, kBlockBytes> block;  // NOLINT(cppcoreguidelines-pro-type-member-init)
  ReadBlock(Find(number), block);
  std::memcpy(block.data() + begin, from.data(), from.size());
  WriteBlock(number, block);
}

void PatternStore::Write(uint64_t offset_bytes, std::span<const std::byte> from) {
  EPLOG_CHECK(offset_bytes + from.size() <= size_bytes_, "the range is within the store");
  while (!from.empty()) {
    const uint64_t number = offset_bytes / kBlockBytes;
    const uint64_t begin = offset_bytes % kBlockBytes;
    const size_t take = std::min<size_t>(from.size(), kBlockBytes - begin);
    if (take == kBlockBytes) {
      WriteBlock(number, from.first<kBlockBytes>());
    } else {
      Patch(number, begin, from.first(take));
    }
    from = from.subspan(take);
    offset_bytes += take;
  }
}

void PatternStore::Read(uint64_t offset_bytes, std::span<std::byte> into) const {
  EPLOG_CHECK(offset_bytes + into.size() <= size_bytes_, "the range is within the store");
  while (!into.empty()) {
    const Word word = Find(offset_bytes / kBlockBytes);
    const uint64_t begin = offset_bytes % kBlockBytes;
    const size_t take = std::min<size_t>(into.size(), kBlockBytes - begin);
    if (take == kBlockBytes) {
      ReadBlock(word, into.first<kBlockBytes>());
    } else {
      std::array<std::byte, kBlockBytes> block;  // NOLINT(cppcoreguidelines-pro-type-member-init)
      ReadBlock(word, block);
      std::memcpy(into.data(), block.data() + begin, take);
    }
    into = into.subspan(take);
    offset_bytes += take;
  }
}

void PatternStore::Drop(uint64_t offset_bytes, uint64_t length_bytes) {
  EPLOG_CHECK(offset_bytes + length_bytes <= size_bytes_, "the range is within the store");
  constexpr std::array<std::byte, kBlockBytes> kNothing{};
  while (length_bytes != 0) {
    const uint64_t number = offset_bytes / kBlockBytes;
    const uint64_t begin = offset_bytes % kBlockBytes;
    const uint64_t take = std::min<uint64_t>(length_bytes, kBlockBytes - begin);
    if (Find(number) != 0) {
      if (take == kBlockBytes) {
        Release(Entry(number));
      } else {
        Patch(number, begin, std::span(kNothing).first(take));
      }
    }
    offset_bytes += take;
    length_bytes -= take;
  }
}

PatternStore::Usage PatternStore::usage() const {
  Usage usage;
  usage.blocks_of_16 = pools_[0].in_use();
  usage.blocks_of_128 = pools_[1].in_use();
  usage.blocks_of_256 = pools_[2].in_use();
  usage.whole_blocks = pools_[3].in_use();
  for (const Kind kind : {Kind::kPeriod16, Kind::kSectors, Kind::kHead, Kind::kWhole}) {
    usage.content_bytes += pools_[static_cast<size_t>(kind) - 1].in_use() * KeptBytes(kind);
  }
  usage.memory_bytes =
      regions_in_use_ * kRegionBlocks * sizeof(Word) + regions_.capacity() * sizeof(regions_[0]);
  for (const SlotPool& pool : pools_) {
    usage.memory_bytes += pool.memory_bytes();
  }
  return usage;
}

}  // namespace eplog::sim
