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

#include "tests/torture/world.h"

namespace eplog::torture {

void World::Damage(Machine& copy, DeviceSet& hit, Damaged& damaged) {
  const Geometry& g = plan_.geometry;
  std::vector<uint8_t> there;
  for (uint32_t i = 0; i < plan_.devices(); ++i) {
    if (!damaged.lost.contains(static_cast<uint8_t>(i))) {
      there.push_back(static_cast<uint8_t>(i));
    }
  }
  const uint64_t metadata_of = there[random_.Below(there.size())];
  DeviceSet without = damaged.lost;
  uint64_t lost = damaged.lost.size();
  if (random_.OneIn(4)) {
    const uint8_t device = there[random_.Below(there.size())];
    if (DamageSuperblocks(copy, device)) {
      hit.insert(device);
      without.insert(device);
      damaged.superblocks_of = device;
      ++lost;
    }
  }
  // Or what every SSD was given last: likely more than m chunks of one log stripe.
  const bool newest = random_.OneIn(3);
  const uint64_t units = newest ? there.size() : random_.Between(1, random_.OneIn(3) ? 8 : 3);
  for (uint64_t i = 0; i < units; ++i) {
    const uint8_t device = newest ? there[i] : there[random_.Below(there.size())];
    const bool log = device >= plan_.n;
    const bool metadata = !log && !newest && device == metadata_of && random_.OneIn(2);
    if (newest && log) {
      continue;
    }
    SimDevice::RotPlan plan;
    plan.from_bytes = log        ? g.log_offset_bytes
                      : metadata ? g.metadata_offset_bytes
                                 : g.slots_offset_bytes;
    plan.to_bytes = log ? g.log_bytes() : metadata ? g.slots_offset_bytes : g.ssd_bytes();
    plan.newest = newest;
    plan.unreadable = random_.OneIn(3);
    if (copy.device(device).Rot(random_, plan)) {
      hit.insert(device);
      if (metadata || log) {
        without.insert(device);
      }
      damaged.most_harmed += metadata ? 0 : 1 + 2 * lost;
      Say("DAMAGE of " + Names(plan_, {device}) + (metadata ? ", metadata" : "") +
          (plan.unreadable ? ", unreadable" : ""));
    }
  }
  damaged.beyond_metadata = without.size() > plan_.create.parity;
  // In mode log what is flushed may have its only headers on the log devices.
  damaged.weak = plan_.create.journal == JournalMode::kLog && AllLogsIn(without) && !logs_degraded_;
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
    any = (which != i && copy.device(device).Rot(random_, plan)) || any;
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
  copy.loop().Spawn(Inspect(factory_, copy.loop(), oracle_, pool_, inspection));
  const Driven driven = copy.Drive([&] { return inspection.done; });
  if (damaged.superblocks_of && inspection.wrong.starts_with("refused to open: not found")) {
    // What bears no superblock may be anybody's: who opens the array leaves it out.
    copy.loop().Abort();
    Damaged bare = damaged;
    bare.lost.insert(*damaged.superblocks_of);
    bare.superblocks_of.reset();
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
  } else if (damaged.beyond_metadata) {
    inspection.wrong.clear();  // the newest entries may be nowhere, and nobody can know of them
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
