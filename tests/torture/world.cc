#include "tests/torture/world.h"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <utility>

#include "base/check.h"

namespace eplog::torture {
namespace {

struct CreateOutcome {
  Status status;
  bool done = false;
};

Task<void> CreateInto(ArrayFactory& factory, EventLoop& loop, std::vector<Device*> ssds,
                      std::vector<Device*> logs, CreateOptions options, CreateOutcome& outcome) {
  Task<Status> task = factory.Create(loop, std::move(ssds), std::move(logs), std::move(options));
  outcome.status = co_await task;
  outcome.done = true;
}

}  // namespace

World::World(ArrayFactory& factory, const WorldOptions& options)
    : factory_(factory),
      options_(options),
      plan_(MakePlan(options.seed, factory.min_ssd_bytes())),
      random_(options.seed ^ 0x70121),
      oracle_(plan_.create.chunk_bytes, plan_.create.journal == JournalMode::kLog),
      scene_{plan_, oracle_, random_, pool_, coverage_, "", 0, 0, 0, nullptr, nullptr, nullptr} {
  factory_.Reset();
  hooks_.before_io = [this](DeviceIndex device, IoKind kind) {
    machine_->bus().Expect(device.value, kind);
  };
  if (options.verbose) {
    scene_.trace = [this](const std::string& text) { Say(text); };
  }
}

World::~World() {
  DropArray();
}

uint64_t World::hash() const {
  return scene_.hash ^ (machine_ != nullptr ? machine_->bus().hash() : 0);
}

void World::Say(const std::string& text) {
  if (options_.verbose) {
    std::printf("  %s\n", text.c_str());
  }
}

void World::Violate(const std::string& what) {
  scene_.Violate(what);
}

void World::Stalled(const std::string& what) {
  Violate("stall: " + what + ": nothing answers at " + std::to_string(machine_->loop().NowUs()) +
          " us, " + std::to_string(machine_->InFlight()) + " requests in flight" +
          (array_ != nullptr ? "; " + StatusText(array_->GetStatus()) : ""));
}

void World::DropArray() {
  if (machine_ != nullptr) {
    machine_->loop().Abort();
  }
  work_.reset();
  array_.reset();
}

OpenOptions World::Options(EngineHooks& hooks) {
  OpenOptions options;
  options.engine_flush_us = plan_.engine_flush_us;
  options.buffers = plan_.buffers;
  options.auto_commit = plan_.auto_commit;
  options.commit = plan_.commit;
  options.checkpoint = plan_.checkpoint;
  options.entropy = random_.Next();
  options.max_read_errors = plan_.max_read_errors;
  options.without_logs = ~uint64_t{0};
  options.max_corrupt_chunks = 0;  // who lies may be any of them: tested elsewhere
  hooks.canary = options_.canary;
  hooks.lowest_slot_first = plan_.lowest_slot_first;
  hooks.rings_in_order = plan_.rings_in_order;
  hooks.headers_a_ring_block = plan_.headers_a_ring_block;
  hooks.checkpoint_step_bytes = plan_.checkpoint_step_bytes;
  hooks.incremental_checkpoints = plan_.incremental_checkpoints;
  hooks.moves_on = plan_.moves_on;
  return options;
}

std::string World::Run() {
  Say(plan_.ToString());
  Create();
  ChooseUnreliable();
  if (!failed()) {
    OpenAgain();
  }
  while (!failed() && (coverage_.operations < plan_.operations || crashes_ == 0)) {
    Live();
    if (!failed()) {
      OpenAgain();
    }
  }
  if (!failed()) {
    Finish();
  }
  const bool misuse = machine_ != nullptr && !machine_->bus().complaint().empty();
  if (misuse) {
    Violate("device misused: " + machine_->bus().complaint());
  }
  DropArray();
  coverage_.seeds = 1;
  coverage_.AddEngine(hooks_);
  return failed()
             ? plan_.ToString() + ": after " + std::to_string(coverage_.operations) +
                   " operations and " + std::to_string(crashes_) + " crashes: " + scene_.violation
             : "";
}

// ---------------------------------------------------------------------------------------------
// creation

void World::Create() {
  for (int attempt = 0; attempt < 6; ++attempt) {
    machine_ = std::make_unique<Machine>(plan_, random_.Next());
    if (CreateOnce(false) || failed()) {
      return;
    }
    Enlarge(plan_, factory_.min_ssd_bytes());  // refused as too small: areas may grow
  }
  Violate("every geometry was refused");
}

// True: the array exists. False: its geometry was refused.
bool World::CreateOnce(bool force) {
  std::vector<Device*> ssds = machine_->Except({});
  const std::vector<Device*> logs(ssds.begin() + plan_.n, ssds.end());
  ssds.resize(plan_.n);
  CreateOptions options = plan_.create;
  options.force = force;
  CreateOutcome outcome;
  if (!force && random_.OneIn(20)) {
    machine_->bus().Arm({std::nullopt, Moment::kSubmitted, random_.Between(1, 40)});
  }
  machine_->loop().Spawn(CreateInto(factory_, machine_->loop(), ssds, logs, options, outcome));
  const Driven driven = machine_->Drive([&] { return outcome.done; });
  if (driven == Driven::kStricken) {
    // Nothing was promised; whatever is there, creation by force goes over it.
    machine_->loop().Abort();
    machine_->Crash(random_, random_.Chance(plan_.power));
    return CreateOnce(true);
  }
  machine_->bus().Disarm();
  if (driven == Driven::kStalled) {
    Stalled("creation");
    return false;
  }
  if (!outcome.status.ok()) {
    const Error& error = outcome.status.error();
    Say("creation refused: " + error.ToString());
    if (error.code != ErrorCode::kInvalidArgument) {
      Violate("creation failed: " + error.ToString());
    }
    return false;
  }
  // Durable on return.
  machine_->Crash(random_, true);
  return true;
}

// ----------------------------------------------------------------------------------------------
// opening

void World::ChooseUnreliable() {
  if (!plan_.loses_devices) {
    return;
  }
  const uint64_t count = random_.Between(1, plan_.create.parity);
  const bool logs_first = random_.OneIn(3);
  while (unreliable_.size() < count) {
    const uint64_t low = logs_first ? plan_.n : 0;
    unreliable_.insert(static_cast<uint8_t>(random_.Between(low, plan_.devices() - 1)));
  }
  Say("may lose " + Names(plan_, unreliable_));
}

bool World::AllLogsIn(const DeviceSet& devices) const {
  for (uint32_t i = plan_.n; i < plan_.devices(); ++i) {
    if (!devices.contains(static_cast<uint8_t>(i))) {
      return false;
    }
  }
  return true;
}

// The devices that an opening for writing does without. One log device that missed nothing stays.
DeviceSet World::ChooseWithheld() {
  DeviceSet withheld = fates_.Those(&DeviceFate::blank);
  if (unknown_) {
    return withheld;
  }
  for (const uint8_t device : unreliable_) {
    const bool gone = alone_                 ? random_.Chance(0.9)
                      : fates_[device].stale ? random_.Chance(0.6)
                                             : plan_.degrades && random_.Chance(plan_.withhold);
    if (!gone) {
      continue;
    }
    DeviceSet missing = fates_.Those(&DeviceFate::stale);
    missing.insert(withheld.begin(), withheld.end());
    missing.insert(device);
    // In mode log one that failed in the last life comes back: whether the array had written that
    // down or not, nothing flushed is lost then.
    const bool last = AllLogsIn(missing) && device >= plan_.n &&
                      plan_.create.journal == JournalMode::kLog && !fates_[device].missed;
    if ((!AllLogsIn(missing) || fates_[device].stale) && !last) {
      withheld.insert(device);
    }
  }
  return withheld;
}

// Between two lives somebody puts an older copy of a device in its place. In mode log nobody looks
// at the rings before a flush is acknowledged: the log devices stay what they are.
void World::GoBack() {
  if (plan_.goes_back == 0 || alone_ || unknown_) {
    return;
  }
  for (const uint8_t device : unreliable_) {
    const bool trusted = device >= plan_.n && plan_.create.journal == JournalMode::kLog;
    DeviceFate& fate = fates_[device];
    if (fate.blank || trusted) {
      continue;
    }
    if (!fate.older || !random_.Chance(plan_.goes_back)) {
      if (!fate.older || random_.OneIn(3)) {
        fate.older = machine_->device(device).content();
      }
      continue;
    }
    Say(Names(plan_, {device}) + " goes back to an older copy");
    machine_->device(device).GoBackTo(*fate.older);
    ++coverage_.went_back;
    fate.stale = true;
    fate.rotten = true;
    fate.seen_lost = false;
  }
}

void World::OpenAgain() {
  GoBack();
  constexpr int kAttempts = 6;
  for (int attempt = 0; attempt < kAttempts && !failed(); ++attempt) {
    if (TryOpen(attempt + 1 < kAttempts && random_.Chance(plan_.recovery_crash))) {
      break;
    }
  }
  if (failed()) {
    return;
  }
  // What was found is stable, and survives what losses are left.
  const uint64_t probes = plan_.focus == Focus::kRecover ? 3 : random_.Below(2);
  for (uint64_t i = 0; i < probes; ++i) {
    Probe(true);
  }
}

// True: open, and judged. False: struck by a crash, or failed.
bool World::TryOpen(bool may_be_struck) {
  const DeviceSet withheld = ChooseWithheld();
  for (const uint8_t device : fates_.Those(&DeviceFate::stale)) {
    coverage_.stale_returns += withheld.contains(device) ? 0 : 1;
  }
  fates_.Note(&DeviceFate::stale, withheld);
  away_ = fates_.Those(&DeviceFate::stale);
  for (const uint8_t device : withheld) {
    fates_[device].joined = false;
  }
  fates_.ForEach([](DeviceFate& fate) { fate.accused_until_us = 0; });
  for (const uint8_t device : unreliable_) {
    fates_[device].accused_until_us = MayBeTrusted(device) ? 0 : DeviceFate::kStill;
  }
  Inspection inspection;
  inspection.devices = machine_->Except(withheld);
  for (size_t i = inspection.devices.size(); i > 1; --i) {
    std::swap(inspection.devices[i - 1], inspection.devices[random_.Below(i)]);
  }
  inspection.options = Options(hooks_);
  inspection.hooks = &hooks_;
  inspection.options.take_back = plan_.takes_back;
  inspection.adopt = true;
  inspection.whole = away_.empty() && !unknown_;
  inspection.full_check =
      !unknown_ && away_.empty() && !fates_.Any(&DeviceFate::rotten) && random_.OneIn(3);
  inspecting_ = &inspection;
  fates_.Clear(&DeviceFate::doomed);
  fates_.Clear(&DeviceFate::failed_well);
  fates_.Clear(&DeviceFate::lying);
  const bool stops = may_be_struck && plan_.stops && !unknown_ && factory_.survives_failures() &&
                     !fates_.Any(&DeviceFate::rotten) && Forgetful().empty() && random_.OneIn(3);
  if (stops) {
    ArmStop(AllBut(away_), true);
    inspection.tolerant = true;
  } else if (!unknown_) {
    ArmDooms(true);
  }
  coverage_.full_checks += inspection.full_check ? 1 : 0;
  Say("open without " + Names(plan_, withheld) + ", stale " +
      Names(plan_, fates_.Those(&DeviceFate::stale)));
  if (may_be_struck && alone_ && random_.OneIn(2)) {
    // A second one of that number, which only the others know of: a tie.
    machine_->bus().Arm({IoKind::kSuperblock, static_cast<Moment>(random_.Below(3)),
                         random_.Between(1, 2 * plan_.devices())});
  } else if (may_be_struck) {
    machine_->bus().Arm(RandomStrike(true));
  }
  opening_ = true;
  machine_->loop().Spawn(Inspect(factory_, machine_->loop(), oracle_, pool_, inspection));
  const Driven opening = machine_->Drive([&] { return inspection.opened || inspection.done; });
  machine_->bus().Disarm();
  Driven driven = opening;
  if (opening == Driven::kDone) {
    driven = machine_->Drive([&] { return inspection.done; });
  }
  inspecting_ = nullptr;
  machine_->bus().ClearDooms();
  const bool stopped = stops && unknown_ && driven != Driven::kStalled;
  coverage_.stopped_openings += stopped ? 1 : 0;
  if (driven == Driven::kStricken || stopped) {
    // The loop goes first: it runs in `inspection`.
    machine_->loop().Abort();
    inspection.array.reset();
    Crash(true);
    return false;
  }
  opening_ = false;
  ++coverage_.openings;
  coverage_.degraded_openings += away_.empty() ? 0 : 1;
  if (driven == Driven::kStalled) {
    array_ = std::move(inspection.array);
    Stalled("opening");
    machine_->loop().Abort();
    return false;
  }
  if (!machine_->bus().complaint().empty()) {
    machine_->loop().Abort();
    Violate("device misused: " + machine_->bus().complaint());
  }
  if (!inspection.wrong.empty()) {
    Violate("opening without " + Names(plan_, away_) + ": " + inspection.wrong);
  }
  array_ = std::move(inspection.array);
  fates_.Note(&DeviceFate::missed, withheld);
  if (array_ != nullptr && unknown_) {
    LearnWhoIsAway(array_->GetStatus());
  }
  if (array_ != nullptr) {
    Reconcile(array_->GetStatus(), withheld);
  }
  const DeviceSet missed = fates_.Those(&DeviceFate::missed);
  log_lost_us_.reset();
  log_joined_us_.reset();
  log_seen_joining_ = array_ != nullptr && SomeLogJoins(array_->GetStatus());
  logs_joining_ = log_seen_joining_;
  logs_degraded_ = std::ranges::any_of(missed, [&](uint8_t device) { return device >= plan_.n; });
  return !failed();
}

// A device that only missed openings that were struck may be good or stale: the array says which.
// One that missed an opening that succeeded lacks something (P6), until it was taken back and has
// all that it missed; whether it really has is seen when others are lost.
void World::Reconcile(const ArrayStatus& status, const DeviceSet& withheld) {
  for (size_t i = 0; i < status.devices.size(); ++i) {
    const auto device = static_cast<uint8_t>(i);
    const bool ok = status.devices[i].state == DeviceState::kOk;
    const bool back = ok || status.devices[i].state == DeviceState::kRebuilding;
    if (back && withheld.contains(device)) {
      Violate("P6: " + status.devices[i].name + " is not there and is called part of the array");
    }
    if (back && std::exchange(fates_[device].missed, false)) {
      ++coverage_.taken_back;
      fates_[device].seen_lost = true;
    }
    if (ok && !fates_[device].doomed) {
      fates_[device].stale = false;
    }
  }
  away_ = fates_.Those(&DeviceFate::stale);
}

// ---------------------------------------------------------------------------------- failing
// devices

void World::ArmDooms(bool opening) {
  SimBus& bus = machine_->bus();
  bus.set_on_doom([this](const Doom& doom) {
    doom.style == Doom::Style::kNoSpace ? MeetNoSpace(doom) : MeetDoom(doom);
  });
  bus.set_on_failed_flush([this](uint8_t device) {
    if (std::optional<uint64_t>& failed_us = fates_[device].failed_flush_us) {
      failed_us = std::min(*failed_us, machine_->loop().NowUs());
    }
  });
  if (!opening && plan_.focus == Focus::kHeal && random_.Chance(0.8)) {
    const size_t which = random_.Below(unreliable_.size());
    const uint8_t device = *std::next(unreliable_.begin(), static_cast<std::ptrdiff_t>(which));
    bus.AddDoom({.style = Doom::Style::kReadsBadly,
                 .device = device,
                 .countdown = random_.Between(1, 6),
                 .bad_of_four = 3});
  }
  for (const uint8_t device : unreliable_) {
    const double chance = opening ? plan_.doom / 3 : plan_.doom;
    // A last log device that dies while the array recovers from a crash died with it: the named
    // exception of mode log.
    const bool with_crash =
        opening && device >= plan_.n && plan_.create.journal == JournalMode::kLog;
    if (factory_.survives_failures() && random_.Chance(chance) && !with_crash) {
      Doom doom;
      // What reads badly does so for long, and meets everything.
      static constexpr Doom::Style kStyles[] = {
          Doom::Style::kLies,       Doom::Style::kLies,       Doom::Style::kLies,
          Doom::Style::kLies,       Doom::Style::kReadsBadly, Doom::Style::kFailsFlush,
          Doom::Style::kFailsFlush, Doom::Style::kFailsFlush, Doom::Style::kFailsWrite,
          Doom::Style::kFailsWrite, Doom::Style::kFailsWrite, Doom::Style::kDies,
          Doom::Style::kDies,       Doom::Style::kDies,       Doom::Style::kHangs,
          Doom::Style::kHangs,      Doom::Style::kHangs};
      doom.style = kStyles[random_.Below(std::size(kStyles))];
      if (unreliable_.size() > 1 && random_.OneIn(5)) {
        // Beside these others are rebuilt.
        doom.style = random_.Chance(0.6) ? Doom::Style::kReadsBadly : Doom::Style::kLies;
      }
      doom.device = device;
      // In mode log nobody looks at the rings before a flush is acknowledged: who loses the log by
      // lies loses what was flushed.
      const bool trusted = device >= plan_.n && plan_.create.journal == JournalMode::kLog;
      if (doom.style == Doom::Style::kLies && trusted) {
        continue;
      }
      doom.superblocks =
          plan_.strikes_states && doom.style == Doom::Style::kLies && random_.OneIn(2);
      const bool flush = doom.style == Doom::Style::kFailsFlush;
      doom.bad_of_four = random_.OneIn(3) ? 3 : 1;
      const uint64_t latest = random_.OneIn(2) ? 4 : 30;  // flushes are few
      doom.countdown = random_.Between(1, flush              ? latest
                                          : opening          ? 30
                                          : random_.OneIn(2) ? 20
                                                             : 150);
      bus.AddDoom(doom);
    }
  }
}

// From this moment on it may miss something.
void World::MeetDoom(const Doom& doom) {
  DeviceFate& fate = fates_[doom.device];
  ++coverage_.doomed[static_cast<size_t>(doom.style)];
  failures_[static_cast<size_t>(doom.style)] = true;
  const bool flush = doom.style == Doom::Style::kFailsFlush;
  // Until another is taken out and rebuilt.
  const bool waits = (doom.style == Doom::Style::kReadsBadly || doom.style == Doom::Style::kLies) &&
                     unreliable_.size() > 1;
  if (inspecting_ == nullptr && flush && random_.OneIn(3)) {
    // Soon, or what was not kept is written anew.
    machine_->bus().Arm(
        {std::nullopt, static_cast<Moment>(random_.Below(3)), random_.Between(1, 40)});
  } else if (inspecting_ == nullptr && (flush || !random_.OneIn(waits ? 3 : 8))) {
    // In what it may disturb: a commit, a checkpoint, a rebuild; or while it is written down.
    std::vector<IoKind> disturbed = {IoKind::kParity, IoKind::kCheckpointPage,
                                     IoKind::kCheckpointRoot, IoKind::kRepair};
    const bool lasts = doom.style == Doom::Style::kReadsBadly ||
                       doom.style == Doom::Style::kHangs || doom.style == Doom::Style::kLies;
    disturbed.push_back(lasts && plan_.repairs ? IoKind::kRepair : IoKind::kParity);
    disturbed.insert(disturbed.end(), waits ? 3 : 0, IoKind::kRepair);
    if (flush && random_.OneIn(2)) {
      disturbed.push_back(IoKind::kCheckpointPage);
    }
    disturbed.insert(disturbed.end(), plan_.strikes_states ? 2 : 0, IoKind::kSuperblock);
    const IoKind kind = disturbed[random_.Below(disturbed.size())];
    const auto moment = static_cast<Moment>(random_.Below(3));
    // A life has fewer of some than of others.
    const uint64_t most = kind == IoKind::kSuperblock       ? 4 * plan_.devices()
                          : kind == IoKind::kParity         ? 40
                          : kind == IoKind::kCheckpointRoot ? 4
                                                            : 12;
    const uint64_t latest = kind == IoKind::kSuperblock || random_.OneIn(2) ? most : 4;
    machine_->bus().Arm({kind, moment, random_.Between(1, latest)});
  }
  Say("DOOM of " + Names(plan_, {doom.device}) + ", style " +
      std::to_string(static_cast<int>(doom.style)));
  fate.accused_until_us = DeviceFate::kStill;
  fate.joined = false;
  if (inspecting_ != nullptr) {
    inspecting_->full_check = false;  // it would find what cannot be read
  }
  if (doom.superblocks) {  // as one that was put back from an older copy, if another opening comes
    ++coverage_.superblock_lies;
  } else if (doom.style == Doom::Style::kLies) {
    fate.rotten = true;
    fate.lying = true;
    ++scene_.lies;
    return;
  }
  if (doom.style == Doom::Style::kReadsBadly && inspecting_ == nullptr &&
      plan_.max_read_errors == 0) {
    return;  // an opening that cannot read its superblocks does without it
  }
  // A flush that is failed by what ends the device forgets as one that fails alone.
  if (flush || doom.style == Doom::Style::kDies || doom.style == Doom::Style::kHangs) {
    fate.failed_flush_us = DeviceFate::kStill;
  }
  fate.doomed = true;
  if (!fate.stale && !doom.superblocks) {
    fate.failed_well = true;
  }
  fate.stale = true;
  away_.insert(doom.device);
  fate.seen_lost = false;
  if (inspecting_ != nullptr) {
    inspecting_->whole = false;
  }
}

// Looks after the devices until the life ends: notes who is well again and, where the plan repairs,
// replaces what the array calls lost, at any time.
Task<void> World::RepairMan() {
  while (true) {
    co_await machine_->loop().Sleep(random_.Below(random_.OneIn(2)    ? 200
                                                  : !random_.OneIn(8) ? 5'000
                                                                      : 2'000'000) +
                                    1);
    NoteRepaired();
    const ArrayStatus status = array_->GetStatus();
    std::vector<uint8_t> lost;
    for (const uint8_t device : fates_.Those(&DeviceFate::stale)) {
      const DeviceState state = status.devices[device].state;
      if ((state == DeviceState::kFailed || state == DeviceState::kMissing) &&
          !HasTheOnlyHeaders(device)) {
        lost.push_back(device);
      }
    }
    if (plan_.repairs && !lost.empty() && random_.OneIn(2)) {
      Task<void> replacing = Replace(lost[random_.Below(lost.size())]);
      co_await replacing;
    } else if (plan_.repairs && !convalescing_ && random_.OneIn(2)) {
      Task<void> taking = TakeOut();
      co_await taking;
    }
  }
}

// In mode log what was flushed may be nowhere else until a flush after the loss of the last log
// device is answered. An array that finds no space for writing the loss down stops before that: then
// that log device comes back, as in ChooseWithheld.
bool World::HasTheOnlyHeaders(uint8_t device) const {
  return plan_.lacks_space && plan_.create.journal == JournalMode::kLog && device >= plan_.n &&
         AllLogsIn(fates_.Those(&DeviceFate::stale)) && !logs_degraded_;
}

// What is wrong on it is none of its doing: it holds what it was given, or has not been given it.
bool World::MayBeTrusted(uint8_t device) const {
  const DeviceFate& fate = fates_[device];
  return (!fate.stale || fate.joined) && !fate.rotten && !fate.lying && !fate.failed_flush_us &&
         !fate.unheard && !machine_->bus().ReadsBadly(device) && !machine_->bus().IsDead(device) &&
         !machine_->bus().LosesSuperblocks(device);
}

// Beside one that lies or reads badly the owner takes out another, which is then rebuilt from it.
Task<void> World::TakeOut() {
  std::vector<uint8_t> well;
  bool unwell = false;
  for (const uint8_t device : unreliable_) {
    const DeviceFate& fate = fates_[device];
    const bool bad = fate.rotten || machine_->bus().ReadsBadly(device);
    unwell = unwell || bad;
    if (!bad && !fate.stale && !fate.failed_flush_us) {
      well.push_back(device);
    }
  }
  if (!unwell || well.empty()) {
    co_return;
  }
  const uint8_t device = well[random_.Below(well.size())];
  Say("take out " + Names(plan_, {device}));
  fates_[device].stale = true;
  away_.insert(device);
  fates_[device].seen_lost = false;
  Task<Status> failing = array_->FailDevice(device, "taken out");
  const Status status = co_await failing;
  if (!status.ok() && status.error().code == ErrorCode::kInvalidArgument) {
    fates_[device].stale = false;
    away_.erase(device);
  }
}

Task<void> World::Replace(uint8_t device) {
  DeviceFate& fate = fates_[device];
  Say("replace " + Names(plan_, {device}));
  SimDevice& fresh = machine_->Renew(device, random_.OneIn(2));
  fate.missed = true;
  fate.blank = true;
  // Nothing of what it holds is believed. (Becoming ok heals nothing that it lied about since.)
  fate.rotten = false;
  fate.lying = false;
  fate.failed_flush_us.reset();
  fate.failed_well = false;
  fate.joined = true;
  // From when all are ok again, flushes do not wait for the rings.
  if (device >= plan_.n) {
    logs_degraded_ = false;
    log_lost_us_.reset();
  }
  Task<Status> replacing = array_->ReplaceDevice(device, fresh);
  const Status status = co_await replacing;
  Say("replaced " + Names(plan_, {device}) + ": " +
      (status.ok() ? "joined" : status.error().ToString()));
  if (status.ok()) {
    if (fate.joined) {
      fate.accused_until_us = machine_->loop().NowUs();
    }
    ++coverage_.replaced;
    fate.missed = false;
    fate.blank = false;
    if (!convalescing_ && !random_.OneIn(4)) {
      // While it is rebuilt, and the log still tells of the one before it.
      machine_->bus().Arm({std::nullopt, static_cast<Moment>(random_.Below(3)),
                           random_.Between(10, random_.OneIn(2) ? 200 : 70)});
    }
  } else if (status.error().code == ErrorCode::kInvalidArgument) {
    Violate("a replacement was refused: " + status.error().ToString());
  }
}

bool World::SomeLogJoins(const ArrayStatus& status) const {
  return std::any_of(status.devices.begin() + plan_.n, status.devices.end(),
                     [](const DeviceStatus& log) { return log.state == DeviceState::kRebuilding; });
}

// In mode log flushes wait for the rings while a log device is lost, and what was flushed before is
// put there, too, before the first of them is answered.
void World::NoteLostLogs(const ArrayStatus& status) {
  const bool lost =
      std::any_of(status.devices.begin() + plan_.n, status.devices.end(),
                  [](const DeviceStatus& log) { return log.state != DeviceState::kOk; });
  // One that was becoming ok when it was lost may be called that by an epoch that has opened, until
  // a flush that began after the loss is answered.
  const bool was_joining = std::exchange(log_seen_joining_, SomeLogJoins(status));
  if (was_joining || log_seen_joining_) {
    log_joined_us_ = machine_->loop().NowUs();
  }
  logs_joining_ = lost && log_joined_us_ && scene_.flush_begun_us <= *log_joined_us_;
  if (!lost) {
    log_lost_us_.reset();
    logs_degraded_ = false;
  } else if (!log_lost_us_) {
    log_lost_us_ = machine_->loop().NowUs();
  } else if (scene_.flush_begun_us > *log_lost_us_ && !logs_degraded_) {
    logs_degraded_ = true;
    ++coverage_.logs_lost_while_running;
  }
}

// Devices that the array calls ok again have all that they should.
void World::NoteRepaired() {
  const ArrayStatus status = array_->GetStatus();
  NoteLostLogs(status);
  for (const uint8_t device : fates_.Those(&DeviceFate::stale)) {
    const bool ok = status.devices[device].state == DeviceState::kOk;
    if (!ok) {
      fates_[device].seen_lost = true;
    }
    // With a threshold the array may fail it at any time.
    const bool shaky = plan_.max_read_errors != 0 && machine_->bus().ReadsBadly(device);
    // It may have ceased to answer, or to keep its superblocks, and the array not have met that
    // yet.
    const bool dead = machine_->bus().IsDead(device) || machine_->bus().LosesSuperblocks(device);
    if (ok && fates_[device].seen_lost && !fates_[device].missed && !shaky && !dead) {
      Say(Names(plan_, {device}) + " is ok again");
      ++coverage_.repaired;
      look_soon_ = true;  // what it has is looked at before it changes
      away_.erase(device);
      fates_[device].stale = false;
    }
  }
}

// --------------------------------------------------------------------------------- what-if crashes

// A flush of theirs failed, and a kill came before the array could write that down (no flush was
// answered since): to the next process they are well, and a power cut takes what they did not keep.
DeviceSet World::Forgetful() const {
  DeviceSet devices;
  for (uint32_t i = 0; i < plan_.devices(); ++i) {
    const auto device = static_cast<uint8_t>(i);
    const DeviceFate& fate = fates_[device];
    const bool unheard = fate.failed_flush_us && *fate.failed_flush_us >= scene_.flush_begun_us;
    if ((unheard || fate.unheard) && machine_->device(device).IsForgetful()) {
      devices.insert(device);
    }
  }
  return devices;
}

// Whose flush failed is lost from then on, and that is written down before a flush is answered that
// began later.
void World::CheckFailedFlushes() {
  const ArrayStatus status = array_->GetStatus();
  for (uint8_t device = 0; device < plan_.devices(); ++device) {
    const std::optional<uint64_t>& failed_us = fates_[device].failed_flush_us;
    if (failed_us && *failed_us < scene_.flush_begun_us &&
        status.devices[device].state == DeviceState::kOk) {
      Violate("I7: a flush of " + status.devices[device].name + " failed, and it is called ok");
    }
  }
}

// At a crash: a power cut takes what they forgot, which may be anything, superblocks too; to a kill
// they live on.
void World::LoseForgotten(bool power) {
  const DeviceSet forgetful = Forgetful();
  fates_.ForEach([](DeviceFate& fate) { fate.failed_flush_us.reset(); });
  fates_.NoteOnly(&DeviceFate::unheard, power ? DeviceSet() : forgetful);
  if (power) {
    fates_.Note(&DeviceFate::rotten, forgetful);
    fates_.Note(&DeviceFate::stale, forgetful);
    away_.insert(forgetful.begin(), forgetful.end());
  }
}

// Devices that are lost in a what-if: those that this life does without, and up to m in all;
// `ssds`: just m, and no more log devices.
DeviceSet World::ChooseLost(bool ssds) {
  DeviceSet lost = away_;
  // What lied counts, whether it is there or not.
  DeviceSet bad = away_;
  bad.merge(fates_.Those(&DeviceFate::rotten));
  const DeviceSet forgetful = Forgetful();
  bad.insert(forgetful.begin(), forgetful.end());
  const uint64_t least = ssds ? plan_.create.parity : std::min<uint64_t>(1, plan_.create.parity);
  const uint64_t count = random_.Between(least, plan_.create.parity);
  const bool logs_first = !ssds && random_.OneIn(3);
  const auto lose = [&](uint64_t device) {
    lost.insert(static_cast<uint8_t>(device));
    bad.insert(static_cast<uint8_t>(device));
  };
  for (uint32_t i = plan_.n; logs_first && i < plan_.devices() && bad.size() < count; ++i) {
    lose(i);
  }
  while (bad.size() < count) {
    lose(random_.Below(ssds ? plan_.n : plan_.devices()));
  }
  return lost;
}

bool World::RunProbe(Machine& copy, const DeviceSet& lost, bool full_check, const std::string& what,
                     bool may_refuse) {
  ++coverage_.probes;
  coverage_.lossy_probes += lost.size() > away_.size() ? 1 : 0;
  DeviceSet withheld = lost;
  for (const uint8_t device : fates_.Those(&DeviceFate::stale)) {
    if (random_.OneIn(2) && !fates_[device].blank && !may_refuse) {
      withheld.erase(device);  // it is there, and must not be trusted
    }
  }
  EngineHooks hooks;
  Inspection inspection;
  inspection.devices = copy.Except(withheld);
  inspection.options = Options(hooks);
  inspection.hooks = &hooks;
  inspection.options.read_only = true;
  // The one named exception of mode log; while a log device is away, flushes wait for the rings.
  const DeviceSet forgetful = Forgetful();
  DeviceSet without = lost;
  without.insert(forgetful.begin(), forgetful.end());
  inspection.weak =
      plan_.create.journal == JournalMode::kLog && AllLogsIn(without) && !logs_degraded_;
  if (plan_.create.journal == JournalMode::kLog && AllLogsIn(lost) &&
      factory_.survives_failures() && random_.OneIn(2)) {
    inspection.options.without_logs = 0;  // what opens all the same has lost nothing
    // Where the array knew that a log device was missing, the rings have all; unless an opening was
    // just writing that down, or the array that all are ok again.
    inspection.may_refuse = inspection.weak || opening_ || logs_joining_;
    inspection.weak = false;
    ++coverage_.unasked_probes;
  }
  inspection.may_refuse = inspection.may_refuse || may_refuse;
  inspection.full_check = full_check && forgetful.empty();
  inspection.whole = lost.empty() && !may_refuse;
  inspection.close = random_.OneIn(2);
  coverage_.weak_probes += inspection.weak ? 1 : 0;
  const uint64_t writes = copy.WritesSubmitted();
  copy.loop().Spawn(Inspect(factory_, copy.loop(), oracle_, pool_, inspection));
  const Driven driven = copy.Drive([&] { return inspection.done; });
  if (driven == Driven::kStalled) {
    inspection.wrong = "stalled";
  }
  if (!copy.bus().complaint().empty()) {
    inspection.wrong = "device misused: " + copy.bus().complaint();
  }
  if (copy.WritesSubmitted() != writes && inspection.wrong.empty()) {
    inspection.wrong = "a read-only opening wrote";
  }
  if (!inspection.wrong.empty()) {
    Violate(what + ", lost " + Names(plan_, lost) + ": " + inspection.wrong);
  }
  copy.loop().Abort();
  inspection.array.reset();
  Coverage engine;
  engine.AddEngine(hooks);
  coverage_.decoded_chunks += engine.decoded_chunks;
  return inspection.opened;
}

void World::Probe(bool with_losses) {
  if (failed() || unknown_) {
    return;
  }
  if (array_ != nullptr) {
    NoteLostLogs(array_->GetStatus());
  }
  Machine copy(*machine_, random_.Next());
  const bool power = random_.Chance(0.8);
  copy.Crash(random_, power);
  const bool lossy = with_losses && plan_.loses_devices && random_.Chance(0.7);
  RunProbe(copy, lossy ? ChooseLost() : away_, false,
           std::string("what if a ") + (power ? "power cut" : "kill") + " now");
}

// Bytes that rot while the array is closed are found by their CRCs and decoded (P5).
void World::ProbeCorruption() {
  if (failed() || fates_.Any(&DeviceFate::rotten) || !Forgetful().empty() ||
      away_.size() >= plan_.create.parity) {
    return;
  }
  Machine copy(*machine_, random_.Next());
  copy.Crash(random_, true);
  DeviceSet rotten;
  while (rotten.size() + away_.size() < plan_.create.parity && !random_.OneIn(3)) {
    const auto device = static_cast<uint8_t>(random_.Below(plan_.n));
    if (!away_.contains(device) && rotten.insert(device).second) {
      coverage_.corrupt_sectors += copy.device(device).Corrupt(
          random_, plan_.geometry.slots_offset_bytes, random_.Between(1, 20));
    }
  }
  RunProbe(copy, away_, false, "corrupt slots on " + Names(plan_, rotten));
}

}  // namespace eplog::torture
