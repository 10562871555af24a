// Some devices are away at one opening for writing, and back at the next; or that opening was
// struck before its epoch had opened, and so was the next.
//
// With those that are not whole they may be more than parity replaces: then it is refused, or has
// everything. What it does, is asked to do and leaves behind is its own business; when all are
// there again, everything that was flushed is.

#include <algorithm>
#include <iterator>
#include <vector>

#include "tests/torture/world.h"

namespace eplog::torture {

void World::ProbeAbsence() {
  if (failed() || unknown_ || !factory_.survives_failures() || fates_.Any(&DeviceFate::rotten) ||
      !Forgetful().empty()) {
    return;
  }
  const uint32_t m = plan_.create.parity;
  DeviceSet absent;
  DeviceSet not_whole = away_;
  for (uint64_t count = random_.Between(1, m); absent.size() < count;) {
    const auto device = static_cast<uint8_t>(random_.Below(plan_.devices()));
    if (!away_.contains(device)) {
      absent.insert(device);
      not_whole.insert(device);
    }
  }
  if (plan_.create.journal == JournalMode::kLog && AllLogsIn(not_whole)) {
    return;  // what was given up is not asked for
  }
  const bool too_many = not_whole.size() > m;
  // What an opening that was struck was putting back on one that failed meanwhile may be torn, and
  // nothing tells it from what was never written: without others it is beyond parity (I8).
  if (too_many && opening_ && fates_.Any(&DeviceFate::doomed)) {
    return;
  }
  Machine copy(*machine_, random_.Next());
  EngineHooks hooks;
  Inspection without;
  DeviceSet out = absent;
  out.merge(fates_.Those(&DeviceFate::blank));
  without.devices = copy.Except(out);
  without.options = Options(hooks);
  without.hooks = &hooks;
  without.options.take_back = random_.OneIn(2);
  without.may_refuse = too_many;
  without.rewrites = true;
  without.close = random_.OneIn(2);
  const std::string who = Names(plan_, absent);
  if (!LookAt(copy, without, "without " + who)) {
    return;
  }
  ++coverage_.absences;
  coverage_.absences_unwhole += too_many ? 1 : 0;
  coverage_.absences_refused += without.opened ? 0 : 1;
  copy.Crash(random_, random_.OneIn(2));
  EngineHooks later_hooks;
  Inspection later;
  later.devices = copy.Except(fates_.Those(&DeviceFate::blank));
  later.options = Options(later_hooks);
  later.hooks = &later_hooks;
  later.options.read_only = random_.OneIn(2);
  later.close = random_.OneIn(2);
  LookAt(copy, later, who + " are back");
}

// An opening without some is struck before its epoch opens, then one with all of them; what only
// some devices know of survives. Nothing was acknowledged meanwhile, so nobody has missed anything:
// who opens then, without any m, has everything, or is refused for want of those.
void World::ProbeStruckOpenings() {
  if (failed() || unknown_ || !factory_.survives_failures() || fates_.Any(&DeviceFate::rotten) ||
      !Forgetful().empty()) {
    return;
  }
  Machine copy(*machine_, random_.Next());
  const DeviceSet absent = SomeOfThoseThere();
  // Often just those know of these epochs that are then lost; all log devices, for example.
  DeviceSet knowing = random_.OneIn(2) ? SomeOfThoseThere() : DeviceSet();
  if (!knowing.empty() && random_.OneIn(2)) {
    knowing.clear();
    for (uint32_t i = plan_.n; i < plan_.devices(); ++i) {
      knowing.insert(static_cast<uint8_t>(i));
    }
  }
  if (!StrikeOpening(copy, absent, knowing) || !StrikeOpening(copy, {}, knowing)) {
    return;
  }
  DeviceSet out = knowing.empty() ? SomeOfThoseThere() : knowing;
  const std::string who = Names(plan_, out);
  out.merge(fates_.Those(&DeviceFate::blank));
  EngineHooks hooks;
  Inspection last;
  last.devices = copy.Except(out);
  last.options = Options(hooks);
  last.hooks = &hooks;
  last.options.read_only = random_.OneIn(2);
  last.options.without_logs = 0;  // those that were absent may be called lost
  last.may_refuse = true;
  LookAt(copy, last, "after two openings that were struck, without " + who);
  ++coverage_.struck_twice;
  coverage_.struck_twice_opened += last.opened ? 1 : 0;
}

// Up to m of the devices that this life has.
DeviceSet World::SomeOfThoseThere() {
  DeviceSet some;
  const DeviceSet there = AllBut(away_);
  const uint64_t count = std::min<uint64_t>(random_.Between(1, plan_.create.parity), there.size());
  while (some.size() < count) {
    some.insert(
        *std::next(there.begin(), static_cast<std::ptrdiff_t>(random_.Below(there.size()))));
  }
  return some;
}

// In the first round of superblocks: its epoch has not opened. False: it needed none.
bool World::StrikeOpening(Machine& copy, const DeviceSet& absent, const DeviceSet& knowing) {
  DeviceSet out = absent;
  out.merge(fates_.Those(&DeviceFate::blank));
  EngineHooks hooks;
  Inspection inspection;
  inspection.devices = copy.Except(out);
  inspection.options = Options(hooks);
  inspection.hooks = &hooks;
  inspection.options.without_logs = 0;  // who gives them up has said so, also if it is struck
  inspection.tolerant = true;
  Strike strike;
  strike.moment = static_cast<Moment>(random_.Below(3));
  const uint64_t there = plan_.devices() - out.size() - away_.size();
  strike.kind = IoKind::kSuperblock;
  strike.countdown = random_.OneIn(3) ? 1 : random_.Between(1, there);
  if (random_.OneIn(2)) {  // before these are flushed; each device was before
    strike.kind = IoKind::kFlush;
    strike.countdown += there;
  }
  copy.bus().Arm(strike);
  copy.loop().Spawn(Inspect(factory_, copy.loop(), oracle_, pool_, inspection));
  const Driven driven = copy.Drive([&] { return inspection.done || inspection.opened; });
  copy.bus().Disarm();
  copy.loop().Abort();
  inspection.array.reset();
  if (driven != Driven::kStricken) {
    return false;
  }
  Say("an opening without " + Names(plan_, out) + " was struck at " + IoKindName(*strike.kind) +
      " " + std::to_string(strike.countdown) + ", away " + Names(plan_, away_));
  DeviceSet keeping = knowing;
  for (uint32_t i = 0; i < plan_.devices(); ++i) {
    if (knowing.empty() && random_.OneIn(2)) {
      keeping.insert(static_cast<uint8_t>(i));
    }
  }
  if (knowing.empty() && random_.OneIn(3)) {
    copy.Crash(random_, random_.OneIn(2));
  } else {
    Say("only " + Names(plan_, keeping) + " keep what was not flushed");
    copy.CrashKeeping(random_, keeping);
  }
  return true;
}

// Drives it; false: something is wrong.
bool World::LookAt(Machine& copy, Inspection& inspection, const std::string& what) {
  copy.loop().Spawn(Inspect(factory_, copy.loop(), oracle_, pool_, inspection));
  if (copy.Drive([&] { return inspection.done; }) == Driven::kStalled) {
    inspection.wrong = "stalled";
  } else if (!copy.bus().complaint().empty()) {
    inspection.wrong = "device misused: " + copy.bus().complaint();
  }
  if (!inspection.wrong.empty()) {
    Violate(what + ": " + inspection.wrong);
  }
  copy.loop().Abort();
  inspection.array.reset();
  return inspection.wrong.empty();
}

}  // namespace eplog::torture
