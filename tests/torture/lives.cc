// The lives of a World: work until a crash or a clean end, and what is judged then.

#include <algorithm>
#include <iterator>
#include <span>

#include "tests/torture/world.h"

namespace eplog::torture {

namespace {

struct Choice {
  IoKind kind;
  uint64_t most;  // about as many as a life has of it
};
constexpr Choice kRunning[] = {
    {IoKind::kData, 150},      {IoKind::kParity, 60},         {IoKind::kEntry, 100},
    {IoKind::kRing, 40},       {IoKind::kCheckpointPage, 12}, {IoKind::kCheckpointRoot, 6},
    {IoKind::kSuperblock, 20}, {IoKind::kFlush, 100},         {IoKind::kRepair, 12}};
constexpr Choice kRecovering[] = {{IoKind::kSuperblock, 24},   {IoKind::kRepair, 8},
                                  {IoKind::kEntry, 4},         {IoKind::kRing, 3},
                                  {IoKind::kFlush, 40},        {IoKind::kCheckpointPage, 4},
                                  {IoKind::kCheckpointRoot, 2}};
// What something else may wrongly overtake.
constexpr IoKind kOvertaken[] = {IoKind::kSuperblock, IoKind::kCheckpointRoot, IoKind::kRing,
                                 IoKind::kEntry,      IoKind::kParity,         IoKind::kFlush};

}  // namespace

// A crash point. The kind first, so that rare ones are struck as often as common ones.
Strike World::RandomStrike(bool recovering) {
  Strike strike;
  strike.moment = static_cast<Moment>(random_.Below(3));
  const std::span<const Choice> choices =
      recovering ? std::span<const Choice>(kRecovering) : std::span<const Choice>(kRunning);
  const uint64_t draw = random_.Below(choices.size() + 2);
  const bool any = draw >= choices.size();
  const uint64_t most = any ? recovering ? 60 : 400 : choices[draw].most;
  if (!any) {
    strike.kind = choices[draw].kind;
  }
  // The first ones of their kind are worth more.
  strike.countdown = random_.Between(1, random_.OneIn(2) ? most : std::min<uint64_t>(most, 3));
  if (!recovering && random_.OneIn(3)) {
    // Soon after something else began: at once, not at last.
    strike.after = plan_.slow_kind && random_.OneIn(2)
                       ? *plan_.slow_kind
                       : kOvertaken[random_.Below(std::size(kOvertaken))];
    strike.laps = random_.Between(1, random_.OneIn(2) ? 40 : 8);
    strike.countdown = random_.Between(1, random_.OneIn(3) ? 30 : 4);
  } else if (!recovering) {
    strike.countdown = random_.Between(1, most);
  }
  return strike;
}

DeviceSet World::AllBut(const DeviceSet& devices) const {
  DeviceSet others;
  for (uint32_t i = 0; i < plan_.devices(); ++i) {
    if (!devices.contains(static_cast<uint8_t>(i))) {
      others.insert(static_cast<uint8_t>(i));
    }
  }
  return others;
}

void World::CountPairs(bool recovering) {
  const SimBus& bus = machine_->bus();
  const auto struck = [&](IoKind kind) { return bus.stricken() && bus.struck_kind() == kind; };
  std::array<bool, kPhases> at{};
  at[static_cast<size_t>(Phase::kRecovery)] = recovering;
  if (!recovering) {
    at[static_cast<size_t>(Phase::kCommit)] = struck(IoKind::kParity);
    at[static_cast<size_t>(Phase::kCheckpoint)] =
        struck(IoKind::kCheckpointPage) || struck(IoKind::kCheckpointRoot);
    const ArrayStatus status = array_->GetStatus();
    at[static_cast<size_t>(Phase::kRebuild)] = std::any_of(
        status.devices.begin(), status.devices.end(),
        [](const DeviceStatus& device) { return device.state == DeviceState::kRebuilding; });
  }
  for (size_t failure = 0; failure < kFailures; ++failure) {
    for (size_t phase = 0; phase < kPhases; ++phase) {
      coverage_.pairs[failure][phase] += failures_[failure] && at[phase] ? 1 : 0;
    }
  }
}

// The machine stops here; `recovering`: in the middle of an opening.
void World::Crash(bool recovering) {
  if (!recovering) {
    NoteLostLogs(array_->GetStatus());
    CheckFailedFlushes();
    coverage_.stopped += unknown_ && array_->GetStatus().state == ArrayState::kFailed ? 1 : 0;
  }
  const bool power = random_.Chance(plan_.power);
  SimBus& bus = machine_->bus();
  if (bus.stricken()) {
    ++coverage_.struck[static_cast<size_t>(bus.struck_kind())][recovering ? 1 : 0];
  } else {
    ++coverage_.quiet_crashes;
  }
  Say(std::string(power ? "POWER CUT" : "KILL") + (recovering ? " in recovery" : "") +
      (bus.stricken() ? std::string(" at ") + IoKindName(bus.struck_kind()) : ", quiet"));
  CountPairs(recovering);
  DropArray();
  oracle_.Crashed();
  // The same moment ends in other ways on copies.
  const uint64_t probes = recovering ? random_.Below(2) : random_.Between(1, 2);
  for (uint64_t i = 0; i < probes; ++i) {
    Probe(true);
  }
  // An opening that only devices know of which the next one may have to do without: its epoch comes
  // twice (I11). Or the other way round: all others know, and those that were away do not yet.
  const bool superblock = machine_->bus().struck_kind() == IoKind::kSuperblock;
  const bool opening = recovering && power && superblock && !unreliable_.empty() && !unknown_;
  const uint64_t draw = random_.Below(3);
  alone_ = opening && draw == 0;
  LoseForgotten(power);
  const bool torn = power && bus.stricken() && bus.struck_kind() == IoKind::kRepair;
  if (opening && draw != 2) {
    DeviceSet keeping = unreliable_;
    if (draw == 1) {
      keeping = AllBut(unreliable_);
    }
    machine_->CrashKeeping(random_, keeping);
  } else if (torn) {
    // What was good before something else of its stripe was mended may not be torn by that.
    machine_->CrashTearing(random_);
  } else {
    machine_->Crash(random_, power, fates_.Those(&DeviceFate::unplugged));
  }
  fates_.Clear(&DeviceFate::unplugged);
  if (plan_.loses_devices && !failed() && !unknown_) {
    // Up to m devices are lost at this very crash. Those that come back for writing missed nothing.
    for (int i = torn ? 3 : 1; i > 0 && !failed(); --i) {
      Machine copy(*machine_, random_.Next());
      RunProbe(copy, ChooseLost(torn), false, "after the crash");
    }
  }
  if (!recovering && plan_.strikes_states) {
    ProbeBack();
  }
  if (plan_.misses_openings) {
    ProbeAbsence();
  }
  if (plan_.strikes_openings) {
    ProbeStruckOpenings();
  }
  if (random_.OneIn(4)) {
    ProbeDamage();
  }
  if (random_.OneIn(6)) {
    ProbeBeyond();
  }
  ++crashes_;
  ++coverage_.crashes;
  ++(power ? coverage_.power_cuts : coverage_.kills);
}

// One that has lost its superblocks unseen. No array is stopped beside it: what it writes down of
// the first that cease to answer counts on that one.
bool World::TrustsAStaleDevice() const {
  const ArrayStatus status = array_->GetStatus();
  return std::ranges::any_of(fates_.Those(&DeviceFate::stale), [&status](uint8_t device) {
    return status.devices[device].state == DeviceState::kOk;
  });
}

void World::Live() {
  work_ = std::make_unique<Workload>(scene_, *array_, machine_->loop(), false);
  const bool stops = plan_.stops && factory_.survives_failures() &&
                     !fates_.Any(&DeviceFate::rotten) && Forgetful().empty() &&
                     !TrustsAStaleDevice() && random_.OneIn(2);
  const Ending ending = !stops && random_.OneIn(5) ? Ending::kClose : Ending::kCrash;
  const uint64_t short_one_in = plan_.focus == Focus::kRecover ? 2 : 6;
  const uint64_t budget =
      random_.OneIn(short_one_in) ? random_.Below(12) : random_.Between(60, plan_.life_operations);
  work_->set_operations(budget);
  fates_.Clear(&DeviceFate::lying);
  failures_.fill(false);
  scene_.suspect = [this](size_t device, uint64_t since_us) {
    const auto index = static_cast<uint8_t>(device);
    return unreliable_.contains(index) &&
           (!MayBeTrusted(index) || fates_[index].accused_until_us > since_us);
  };
  scene_.whole = [this] {
    fates_.ForEach([this](DeviceFate& fate) {
      coverage_.made_whole += fate.rotten && !fate.lying ? 1 : 0;
      fate.rotten = fate.rotten && fate.lying;
    });
  };
  if (factory_.survives_failures() && !stops) {
    machine_->loop().Spawn(RepairMan());
    Convalesce();
  }
  if (stops) {
    ArmStop(Well(), false);
  } else {
    ArmDooms(false);
    ArmNoSpace();
  }
  work_->Spawn(plan_.width);
  if (ending == Ending::kCrash || random_.OneIn(4)) {
    Strike strike = RandomStrike(false);
    if (machine_->bus().SomeReadBadly() && random_.OneIn(2)) {
      strike = {IoKind::kRepair, Moment::kSubmitted, random_.Between(1, 6)};  // while healing
    }
    machine_->bus().Arm(strike);
  }
  bool probe = false;
  uint64_t overtaken = 0;
  constexpr uint64_t kMostOvertaken = 6;  // what-if crashes are dear
  while (!failed()) {
    const Driven driven = machine_->Drive(
        [&] {
          probe = work_->TakeProbe() || look_soon_;
          if (machine_->bus().TakeOvertaken() && overtaken < kMostOvertaken) {
            ++overtaken;
            probe = true;
          }
          const bool last = ending == Ending::kClose && work_->operations_left() == 0;
          return probe || work_->idle() || last || failed();
        },
        &work_->progress_us());
    if (driven == Driven::kStricken) {
      Crash(false);
      return;
    }
    if (driven == Driven::kStalled) {
      Stalled("running");
      return;
    }
    if (!probe) {
      break;
    }
    if (look_soon_) {
      look_soon_ = false;
      Machine copy(*machine_, random_.Next());
      copy.Crash(random_, false);
      RunProbe(copy, away_, away_.empty() && !fates_.Any(&DeviceFate::rotten),
               "when a device was ok again");
    } else {
      Probe(true);
    }
  }
  if (failed() || !machine_->bus().complaint().empty()) {
    Violate("device misused: " + machine_->bus().complaint());
    return;
  }
  if (ending == Ending::kClose) {
    EndByClose();
  } else {
    EndByCrash();
  }
}

// Only who is well can fail: in some lives what is lost is replaced and rebuilt first.
void World::Convalesce() {
  if (!plan_.repairs || !fates_.Any(&DeviceFate::stale) || random_.OneIn(3)) {
    return;
  }
  constexpr uint64_t kMostUs = 3'000'000;  // a device that lies may never be well
  const uint64_t until_us = machine_->loop().NowUs() + kMostUs;
  convalescing_ = true;
  const Driven driven = machine_->Drive([&] {
    return !fates_.Any(&DeviceFate::stale) || machine_->loop().NowUs() >= until_us || failed();
  });
  convalescing_ = false;
  if (driven == Driven::kStalled) {
    Stalled("rebuilding");
  }
}

// The crash point was not reached: do what makes rare I/O, then strike at the next I/O of any kind.
void World::EndByCrash() {
  machine_->loop().Spawn(work_->Commit());
  machine_->loop().Spawn(work_->Checkpoint(CheckpointKind::kAuto));
  work_->set_operations(40);
  work_->Spawn(plan_.width);
  const Driven first =
      machine_->Drive([&] { return work_->idle() || failed(); }, &work_->progress_us());
  if (first == Driven::kStalled) {
    Stalled("running");
    return;
  }
  if (first == Driven::kDone && !failed()) {
    machine_->bus().Arm(
        {std::nullopt, static_cast<Moment>(random_.Below(3)), random_.Between(1, 8)});
    work_->set_operations(60);
    work_->Spawn(plan_.width);
    const Driven second =
        machine_->Drive([&] { return work_->idle() || failed(); }, &work_->progress_us());
    if (second == Driven::kStalled) {
      Stalled("running");
      return;
    }
  }
  ProbeStopped();
  ExpectStopped();
  if (!failed()) {
    Crash(false);
  }
}

void World::EndByClose() {
  machine_->loop().Spawn(work_->Close());
  const Driven driven = machine_->Drive(
      [&] { return (work_->closed() && work_->idle()) || failed(); }, &work_->progress_us());
  if (driven == Driven::kStricken) {
    Crash(false);
    return;
  }
  if (driven == Driven::kStalled) {
    Stalled("closing");
    return;
  }
  machine_->bus().Disarm();
  if (failed()) {
    return;
  }
  if (machine_->InFlight() != 0) {
    Violate("requests are in flight after a close");
    return;
  }
  ++coverage_.clean_restarts;
  machine_->bus().ClearDooms();
  DropArray();
  oracle_.Crashed();
  // What a close left is durable.
  const bool crash = random_.OneIn(2);
  const bool power = crash && random_.OneIn(2);
  LoseForgotten(power);
  if (crash) {
    machine_->Crash(random_, power);
  }
  if (random_.OneIn(3)) {
    Probe(true);
  }
}

// The end of a seed: a clean close, everything read and checked, rot survived.
void World::Finish() {
  work_ = std::make_unique<Workload>(scene_, *array_, machine_->loop(), false);
  EndByClose();
  if (failed()) {
    return;
  }
  Machine copy(*machine_, random_.Next());
  copy.Crash(random_, true);
  ++coverage_.full_checks;
  RunProbe(copy, away_, away_.empty() && !fates_.Any(&DeviceFate::rotten), "after the last close");
  ProbeCorruption();
}

}  // namespace eplog::torture
