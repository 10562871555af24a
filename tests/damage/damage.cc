#include "tests/damage/damage.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace eplog::damage {

const char* AreaName(Area area) {
  constexpr std::array<const char*, kAreas> kNames = {"superblock", "metadata", "ring", "log",
                                                      "slots"};
  return kNames[static_cast<size_t>(area)];
}

const char* KindName(Kind kind) {
  constexpr std::array<const char*, kKinds> kNames = {
      "bit", "zeros", "older", "same device", "other device", "same place", "same area", "swapped"};
  return kNames[static_cast<size_t>(kind)];
}

Picker::Picker(const Base& base) : base_(base), written_(base.devices.size()) {
  for (size_t device = 0; device < base.devices.size(); ++device) {
    for (int a = 0; a < kAreas; ++a) {
      const Span span = BlocksOf(device, static_cast<Area>(a));
      for (uint64_t block = span.first; block < span.end; ++block) {
        const auto bytes = base.Block(device, block);
        if (std::any_of(bytes.begin(), bytes.end(),
                        [](std::byte b) { return b != std::byte{0}; })) {
          written_[device][static_cast<size_t>(a)].push_back(block);
          areas_ |= AreaBit(static_cast<Area>(a));
        }
      }
    }
  }
}

Picker::Span Picker::BlocksOf(size_t device, Area area) const {
  const Geometry& g = base_.geometry;
  const bool log = device >= g.n;
  const auto blocks = [](uint64_t offset, uint64_t count) {
    return Span{offset / kBlockBytes, offset / kBlockBytes + count};
  };
  switch (area) {
    case Area::kSuperblock:
      return blocks(0, kSuperblockAreaBytes / kBlockBytes);
    case Area::kMetadata:
      return log ? Span() : blocks(g.metadata_offset_bytes, g.metadata_blocks);
    case Area::kRing:
      return log ? Span() : blocks(g.ring_offset_bytes, g.ring_blocks);
    case Area::kLog:
      return log ? blocks(g.log_offset_bytes, g.log_blocks) : Span();
    case Area::kSlots:
      return log ? Span() : blocks(g.slots_offset_bytes, uint64_t{g.slots} * g.chunk_blocks());
  }
  return {};
}

uint64_t Picker::AnyBlock(Random& random, size_t device) const {
  // Each area its share, or slots would be nearly all.
  while (true) {
    const auto& blocks = written_[device][random.Below(kAreas)];
    if (!blocks.empty()) {
      return blocks[random.Below(blocks.size())];
    }
  }
}

// False if there is nothing of that kind for this block.
bool Picker::Source(Random& random, Damage& damage) const {
  damage.from_device = damage.device;
  damage.from_block = damage.block;
  const auto& alike = written_[damage.device][static_cast<size_t>(damage.area)];
  const size_t other =
      (damage.device + 1 + random.Below(base_.devices.size() - 1)) % base_.devices.size();
  switch (damage.kind) {
    case Kind::kBit:
      damage.bit = random.Below(kBlockBytes * 8);
      return true;
    case Kind::kZeros:
      return true;
    case Kind::kOlder: {
      const auto known = base_.older[damage.device].find(damage.block);
      if (known == base_.older[damage.device].end()) {
        return false;
      }
      damage.older = random.Below(known->second.size());
      return true;
    }
    case Kind::kSameDevice:
      damage.from_block = AnyBlock(random, damage.device);
      break;
    case Kind::kOtherDevice:
      damage.from_device = other;
      damage.from_block = AnyBlock(random, other);
      break;
    case Kind::kSamePlace:
      damage.from_device = other;
      break;
    case Kind::kSameArea: {
      const bool here = random.OneIn(2);
      const auto& theirs = written_[other][static_cast<size_t>(damage.area)];
      const auto& from = here || theirs.empty() ? alike : theirs;
      damage.from_device = &from == &alike ? damage.device : other;
      damage.from_block = from[random.Below(from.size())];
      break;
    }
    case Kind::kSwapped:
      damage.from_block = alike[random.Below(alike.size())];
      break;
  }
  if (damage.from_block >= base_.devices[damage.from_device].size() / kBlockBytes) {
    return false;
  }
  const auto from = base_.Block(damage.from_device, damage.from_block);
  return std::memcmp(from.data(), base_.Block(damage.device, damage.block).data(), kBlockBytes) !=
         0;
}

std::optional<Damage> Picker::Pick(Random& random, unsigned areas, uint64_t spared) const {
  constexpr int kTries = 10'000;
  Damage damage;
  for (int i = 0; i < kTries; ++i) {
    damage.area = static_cast<Area>(random.Below(kAreas));
    if ((areas & areas_ & AreaBit(damage.area)) == 0) {
      continue;
    }
    // On any device that has such an area.
    const std::vector<uint64_t>* blocks = nullptr;
    do {
      damage.device = random.Below(base_.devices.size());
      blocks = &written_[damage.device][static_cast<size_t>(damage.area)];
    } while (blocks->empty());
    damage.block = (*blocks)[random.Below(blocks->size())];
    damage.kind = static_cast<Kind>(random.Below(kKinds));
    if ((spared >> damage.device & 1) == 0 && Source(random, damage)) {
      return damage;
    }
  }
  return std::nullopt;
}

void Picker::Apply(const Damage& damage, std::vector<ImageDevice>& devices) const {
  const auto there = devices[damage.device].Change(damage.block);
  const auto copy = [](std::span<const std::byte> from, std::span<std::byte> to) {
    std::memcpy(to.data(), from.data(), kBlockBytes);
  };
  switch (damage.kind) {
    case Kind::kBit:
      there[damage.bit / 8] ^= static_cast<std::byte>(1U << damage.bit % 8);
      return;
    case Kind::kZeros:
      std::memset(there.data(), 0, kBlockBytes);
      return;
    case Kind::kOlder:
      copy(base_.older[damage.device].at(damage.block)[damage.older], there);
      return;
    case Kind::kSwapped:
      copy(base_.Block(damage.device, damage.block),
           devices[damage.device].Change(damage.from_block));
      break;
    default:
      break;
  }
  copy(base_.Block(damage.from_device, damage.from_block), there);
}

std::string Picker::Place(size_t device, uint64_t block) const {
  for (int a = 0; a < kAreas; ++a) {
    const Span span = BlocksOf(device, static_cast<Area>(a));
    if (block >= span.first && block < span.end) {
      return base_.names[device] + " " + AreaName(static_cast<Area>(a)) + " block " +
             std::to_string(block - span.first);
    }
  }
  return base_.names[device] + " block " + std::to_string(block);
}

std::string Picker::Describe(const Damage& damage) const {
  const std::string where = Place(damage.device, damage.block);
  const std::string other = Place(damage.from_device, damage.from_block);
  switch (damage.kind) {
    case Kind::kBit:
      return where + ": bit " + std::to_string(damage.bit % 8) + " of byte " +
             std::to_string(damage.bit / 8) + " flipped";
    case Kind::kZeros:
      return where + ": all zeros";
    case Kind::kOlder:
      return where + ": as it was earlier (" + std::to_string(damage.older) + ")";
    case Kind::kSwapped:
      return where + " and " + other + " swapped";
    default:
      return where + ": replaced by " + other;
  }
}

}  // namespace eplog::damage
