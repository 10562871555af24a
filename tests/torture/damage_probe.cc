// What if, beside a crash and devices that are lost, something rots or cannot be read: anywhere, on
// any device, more than parity can replace?
//
// What is asked is the blast radius. A sector of a slot or a log chunk takes that chunk with it,
// and what of its log stripe and of its row was on devices that are lost. Metadata has m + 1
// copies: as long as no more than m devices are lost or have damaged metadata, the array opens, and
// that takes nothing. A device with a damaged superblock may count as lost. All else reads right.
// What does not is an error, or is older than a flush and the array has said so (writes_dropped).

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string_view>

#include "base/bytes.h"
#include "base/crc32c.h"

#include "tests/torture/world.h"

namespace eplog::torture {
namespace {

// Of an entry of the log (docs/format.md, section 6).
constexpr std::string_view kHeaderMagic = "EPLE";
constexpr size_t kUsedBytesAt = 8;
constexpr size_t kRingBlockHeaderBytes = 64;

bool IsHeader(std::span<const std::byte> bytes) {
  return bytes.size() >= kHeaderMagic.size() &&
         std::memcmp(bytes.data(), kHeaderMagic.data(), kHeaderMagic.size()) == 0;
}

constexpr size_t kCrcAt = 4;

// By the CRC of its bytes, in which the field of the CRC itself counts as zero.
bool IsWhole(std::span<const std::byte> bytes) {
  static constexpr std::array<std::byte, 4> kZero{};
  const uint32_t head = Crc32c(bytes.first(kCrcAt));
  return Crc32c(bytes.subspan(kCrcAt + kZero.size()), Crc32c(kZero, head)) ==
         LoadLe<uint32_t>(bytes.data() + kCrcAt);
}

// Of the headers that lie there one behind the other, each whole.
template <typename Mark>
void AddEntries(std::span<const std::byte> bytes, std::vector<Mark>& entries) {
  Mark mark;
  while (IsHeader(bytes) && bytes.size() >= mark.size()) {
    const size_t used = LoadLe<uint16_t>(bytes.data() + kUsedBytesAt);
    const auto header = bytes.first(std::clamp(used, mark.size(), bytes.size()));
    bytes = bytes.subspan(header.size());
    if (IsWhole(header)) {
      std::copy_n(header.begin(), mark.size(), mark.begin());
      entries.push_back(mark);
    }
  }
}

}  // namespace

void World::Damage(Machine& copy, DeviceSet& hit, Damaged& damaged) {
  std::vector<uint8_t> there;
  for (uint32_t i = 0; i < plan_.devices(); ++i) {
    if (!damaged.lost.contains(static_cast<uint8_t>(i))) {
      there.push_back(static_cast<uint8_t>(i));
    }
  }
  const auto any = [&] { return there[random_.Below(there.size())]; };
  while (random_.OneIn(4)) {
    const uint8_t device = any();
    if (DamageSuperblocks(copy, device)) {
      hit.insert(device);
      damaged.superblocks.insert(device);
    }
  }
  // Metadata of one SSD, mostly: then all has a copy elsewhere.
  const bool scattered = random_.OneIn(4);
  const uint8_t metadata_of = any();
  // Or what every device was given last: likely more than m chunks of one log stripe.
  const bool newest = random_.OneIn(3);
  const bool logs_too = random_.OneIn(4);
  const uint64_t units = newest ? there.size() : random_.Between(1, random_.OneIn(3) ? 8 : 3);
  for (uint64_t i = 0; i < units; ++i) {
    const uint8_t device = newest ? there[i] : any();
    const bool log = device >= plan_.n;
    const bool here = scattered || device == metadata_of;
    if (!newest || !log || logs_too) {
      DamageOne(copy, device, !log && !newest && here && random_.OneIn(2), newest, damaged, hit);
    }
  }
  JudgeDamage(copy, damaged);
}

void World::DamageOne(Machine& copy, uint8_t device, bool metadata, bool newest, Damaged& damaged,
                      DeviceSet& hit) {
  const Geometry& g = plan_.geometry;
  const bool log = device >= plan_.n;
  SimDevice::RotPlan plan;
  plan.from_bytes = log        ? g.log_offset_bytes
                    : metadata ? g.metadata_offset_bytes
                               : g.slots_offset_bytes;
  plan.to_bytes = log ? g.log_bytes() : metadata ? g.slots_offset_bytes : g.ssd_bytes();
  plan.newest = newest;
  plan.unreadable = random_.OneIn(3);
  const PageImage before = copy.device(device).content();
  const std::optional<uint64_t> at = copy.device(device).Rot(random_, plan);
  if (!at) {
    return;
  }
  std::array<std::byte, kBlockBytes> block{};
  before.Read(*at, block);
  const bool header = log && IsHeader(block);
  const bool ring = metadata && *at >= g.ring_offset_bytes;
  hit.insert(device);
  if (header) {
    damaged.headers.insert(device);
  } else if (metadata && !ring) {
    damaged.pages.insert(device);
  } else if (!ring) {
    damaged.most_harmed += 1 + 2 * (damaged.lost.size() + damaged.superblocks.size());
  }
  if (header || ring) {
    damaged.places.emplace(device, *at);
    AddEntries(std::span(block).subspan(ring ? kRingBlockHeaderBytes : 0),
               ring ? damaged.ring_entries : damaged.log_entries);
  }
  Say("DAMAGE of " + Names(plan_, {device}) + (metadata || header ? ", metadata" : "") +
      (plan.unreadable ? ", unreadable" : ""));
}

// In the log or the ring of a device, but for what was hit.
bool World::IsOn(const Machine& copy, uint8_t device, const EntryMark& entry,
                 const Damaged& damaged) const {
  const Geometry& g = plan_.geometry;
  const bool log = device >= plan_.n;
  const uint64_t begin = log ? g.log_offset_bytes : g.ring_offset_bytes;
  const uint64_t blocks = log ? g.log_blocks : g.ring_blocks;
  std::array<std::byte, kBlockBytes> block{};
  for (uint64_t at = begin; at < begin + blocks * kBlockBytes; at += kBlockBytes) {
    const PageImage& content = copy.device(device).content();
    if (!content.HasPage(at / kBlockBytes) || damaged.places.contains({device, at})) {
      continue;
    }
    content.Read(at, block);
    if (!log && !IsWhole(block)) {
      continue;
    }
    std::vector<EntryMark> there;
    AddEntries(std::span(block).subspan(log ? 0 : kRingBlockHeaderBytes), there);
    if (std::ranges::find(there, entry) != there.end()) {
      return true;
    }
  }
  return false;
}

// A page of a checkpoint is on m + 1 SSDs. The header of an entry that was flushed is on all log
// devices and on a ring: it may be nowhere now if it was on one that is gone or was hit.
void World::JudgeDamage(const Machine& copy, Damaged& damaged) const {
  DeviceSet gone = damaged.lost;
  gone.insert(damaged.superblocks.begin(), damaged.superblocks.end());
  DeviceSet no_pages = gone;
  no_pages.insert(damaged.pages.begin(), damaged.pages.end());
  DeviceSet no_headers = gone;
  no_headers.insert(damaged.headers.begin(), damaged.headers.end());
  const auto ssds = std::ranges::count_if(no_pages, [this](uint8_t i) { return i < plan_.n; });
  damaged.may_refuse = std::max<uint64_t>(gone.size(), ssds) > plan_.create.parity;
  damaged.beyond_metadata = gone.size() == plan_.devices();
  std::vector<EntryMark> hit = damaged.log_entries;
  hit.insert(hit.end(), damaged.ring_entries.begin(), damaged.ring_entries.end());
  for (const EntryMark& entry : hit) {
    bool there = false;
    // Or on one of a device that another has replaced, or that was lost before it had been flushed.
    bool was_on_a_ring = std::ranges::count(damaged.ring_entries, entry) != 0 ||
                         std::ranges::any_of(gone, [this](uint8_t i) {
                           return fates_[i].blank || fates_[i].joined || away_.contains(i);
                         });
    for (uint32_t i = 0; i < plan_.devices(); ++i) {
      const auto device = static_cast<uint8_t>(i);
      const bool on = IsOn(copy, device, entry, damaged);
      there = there || (on && !gone.contains(device));
      was_on_a_ring = was_on_a_ring || (on && device < plan_.n);
    }
    damaged.beyond_metadata = damaged.beyond_metadata || (!there && was_on_a_ring);
  }
  // In mode log what is flushed may have its only headers on the log devices.
  damaged.weak =
      plan_.create.journal == JournalMode::kLog && AllLogsIn(no_headers) && !logs_degraded_;
}

// One of its two copies, or both.
bool World::DamageSuperblocks(Machine& copy, uint8_t device) {
  bool any = false;
  const uint64_t which = random_.Below(3);
  SimDevice::RotPlan plan;
  plan.unreadable = random_.OneIn(3);
  for (uint64_t i = 0; i < std::size(kSuperblockCopyOffset); ++i) {
    plan.from_bytes = kSuperblockCopyOffset[i];
    plan.to_bytes = plan.from_bytes + kSuperblockCopyBytes;
    any = (which != i && copy.device(device).Rot(random_, plan).has_value()) || any;
  }
  if (any) {
    ++coverage_.damaged_superblocks;
    Say("DAMAGE of superblocks of " + Names(plan_, {device}));
  }
  return any;
}

// `told`: of how many chunks the array said that they may be old, so far.
bool World::OpenDamaged(Machine& copy, const Damaged& damaged, bool read_only, uint64_t& told) {
  EngineHooks hooks;
  Harm harm;
  Inspection inspection;
  inspection.devices = copy.Except(damaged.lost);
  inspection.options = Options(hooks);
  inspection.hooks = &hooks;
  inspection.options.read_only = read_only;
  inspection.options.max_read_errors = 0;  // a device more that is lost is another question
  inspection.options.on_event = [&told](const ArrayEvent& event) {
    told += event.kind == EventKind::kWritesDropped ? std::strtoull(event.text.c_str(), nullptr, 10)
                                                    : 0;
  };
  inspection.weak = damaged.weak;
  inspection.harm = &harm;
  inspection.close = true;
  const uint64_t writes = copy.WritesSubmitted();
  copy.loop().Spawn(Inspect(factory_, copy.loop(), oracle_, pool_, inspection));
  const Driven driven = copy.Drive([&] { return inspection.done; });
  if (!damaged.superblocks.empty() && inspection.wrong.starts_with("refused to open: not found")) {
    // What bears no superblock may be anybody's: who opens the array leaves it out.
    copy.loop().Abort();
    Damaged bare = damaged;
    bare.lost.merge(bare.superblocks);
    bare.superblocks.clear();
    return OpenDamaged(copy, bare, read_only, told);
  }
  coverage_.damaged_refused += inspection.done && !inspection.opened ? 1 : 0;
  if (driven == Driven::kStalled) {
    inspection.wrong = "stalled";
  } else if (driven == Driven::kStricken) {
    inspection.wrong.clear();  // what was being mended is looked at when it is opened again
    ++coverage_.damaged_struck;
  } else if (!copy.bus().complaint().empty()) {
    inspection.wrong = "device misused: " + copy.bus().complaint();
  } else if (copy.WritesSubmitted() != writes && (read_only || !inspection.opened)) {
    inspection.wrong = read_only ? "a read-only opening wrote" : "it was refused, and wrote";
  } else if (damaged.beyond_metadata) {
    inspection.wrong.clear();  // the newest entries may be nowhere, and nobody can know of them
    ++coverage_.damaged_unjudged;
  } else if (damaged.may_refuse && inspection.done && !inspection.opened) {
    inspection.wrong.clear();  // that something is nowhere is known: what opens has it all
  } else if (harm.unreadable + harm.old > damaged.most_harmed) {
    inspection.wrong = std::to_string(harm.unreadable) + " chunks unreadable and " +
                       std::to_string(harm.old) + " old, where " +
                       std::to_string(damaged.most_harmed) + " can be; first: " + harm.first;
  } else if (harm.old > told) {
    inspection.wrong = std::to_string(harm.old) + " chunks are old, and the array told of " +
                       std::to_string(told) + "; first: " + harm.first;
  }
  if (!inspection.wrong.empty()) {
    Violate(damaged.what + (read_only ? ", read-only" : ", for writing") + ": " + inspection.wrong);
  }
  copy.loop().Abort();
  inspection.array.reset();
  coverage_.damaged_chunks += harm.unreadable + harm.old;
  return inspection.wrong.empty();
}

void World::ProbeDamage() {
  if (failed() || unknown_ || !factory_.survives_failures() || fates_.Any(&DeviceFate::rotten) ||
      !Forgetful().empty() || away_.size() > plan_.create.parity) {
    return;
  }
  Damaged damaged;
  damaged.lost = plan_.loses_devices ? ChooseLost() : away_;
  Machine copy(*machine_, random_.Next());
  DeviceSet hit;
  Damage(copy, hit, damaged);
  const bool beyond = damaged.lost.size() + hit.size() > plan_.create.parity;
  damaged.most_harmed = beyond ? damaged.most_harmed : 0;
  damaged.what =
      "damage of " + Names(plan_, hit) + " after the crash, lost " + Names(plan_, damaged.lost);
  ++coverage_.damaged;
  coverage_.damaged_beyond += beyond ? 1 : 0;
  Machine writing(copy, random_.Next());
  uint64_t told = 0;
  uint64_t told_writing = 0;
  // What one opening for writing makes of it, the next one finds; also if it was cut short. (Beyond
  // parity that may take what was dropped and was to be written again.)
  if (!beyond && random_.OneIn(2)) {
    writing.bus().Arm(
        {std::nullopt, static_cast<Moment>(random_.Below(3)), random_.Between(1, 40)});
  }
  if (OpenDamaged(copy, damaged, true, told) &&
      OpenDamaged(writing, damaged, false, told_writing)) {
    writing.bus().Disarm();
    writing.Crash(random_, true);
    damaged.what += ", opened again";
    OpenDamaged(writing, damaged, true, told_writing);
  }
}

}  // namespace eplog::torture
