// Some devices are away at one opening for writing, and back at the next.
//
// With those that are not whole they may be more than parity replaces: then it is refused, or has
// everything. What it does, is asked to do and leaves behind is its own business; when all are
// there again, everything that was flushed is.

#include <algorithm>
#include <vector>

#include "tests/torture/world.h"

namespace eplog::torture {

void World::ProbeAbsence() {
  if (failed() || unknown_ || !factory_.survives_failures() || !rotten_.empty() ||
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
  Machine copy(*machine_, random_.Next());
  EngineHooks hooks;
  Inspection without;
  DeviceSet out = absent;
  out.insert(blank_.begin(), blank_.end());
  without.devices = copy.Except(out);
  without.options = Options(hooks);
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
  later.devices = copy.Except(blank_);
  later.options = Options(later_hooks);
  later.options.read_only = random_.OneIn(2);
  later.close = random_.OneIn(2);
  LookAt(copy, later, who + " are back");
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
