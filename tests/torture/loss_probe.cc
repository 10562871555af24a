// More than m devices are lost: with a crash, or while the array runs.
//
// With a crash: what is there opens to nobody, and is not changed (P7). By force, to be read, every
// chunk reads right or is an error, and FindLost names exactly these; only where the array says
// that the end of its log is lost may something be older than a flush.
//
// While it runs: it stops, and acknowledges nothing more. The devices are back afterwards, as if
// their cable had been pulled: everything that was flushed is there, whatever the array was just
// writing down about them.

#include <algorithm>
#include <utility>
#include <vector>

#include "tests/torture/world.h"

namespace eplog::torture {

// -------------------------------------------------------------------------------- with a crash

void World::ProbeBeyond() {
  if (failed() || unknown_ || !factory_.survives_failures() || fates_.Any(&DeviceFate::rotten) ||
      !Forgetful().empty()) {
    return;
  }
  DeviceSet lost = away_;
  const uint64_t count = random_.Between(plan_.create.parity + 1, plan_.devices() - 1);
  while (lost.size() < count) {
    lost.insert(static_cast<uint8_t>(random_.Below(plan_.devices())));
  }
  ++coverage_.beyond;
  Machine refusing(*machine_, random_.Next());
  ExpectRefusal(refusing, lost);
  Machine forced(*machine_, random_.Next());
  OpenByForce(forced, lost);
}

void World::ExpectRefusal(Machine& copy, const DeviceSet& lost) {
  EngineHooks hooks;
  Inspection inspection;
  DeviceSet withheld = lost;
  // Where an opening that was struck may have begun to take it back, it is a part that is not
  // whole.
  const bool may_be_back = plan_.strikes_states && !plan_.takes_back;
  for (const uint8_t device : may_be_back ? fates_.Those(&DeviceFate::stale) : DeviceSet()) {
    if (random_.OneIn(2) && !fates_[device].blank && fates_[device].missed) {
      withheld.erase(device);  // that is there, and is no help
    }
  }
  inspection.devices = copy.Except(withheld);
  inspection.options = Options(hooks);
  inspection.hooks = &hooks;
  inspection.options.read_only = random_.OneIn(2);
  inspection.options.take_back = plan_.takes_back;
  inspection.may_refuse = true;
  const uint64_t writes = copy.WritesSubmitted();
  copy.loop().Spawn(Inspect(factory_, copy.loop(), oracle_, pool_, inspection));
  if (copy.Drive([&] { return inspection.done; }) == Driven::kStalled) {
    inspection.wrong = "stalled";
  } else if (inspection.opened) {
    inspection.wrong = "it opened";
  } else if (copy.WritesSubmitted() != writes) {
    inspection.wrong = "it was refused, and wrote";
  }
  if (!inspection.wrong.empty()) {
    Violate("more than m lost, " + Names(plan_, lost) + ": " + inspection.wrong);
  }
  copy.loop().Abort();
  inspection.array.reset();
}

void World::OpenByForce(Machine& copy, const DeviceSet& lost) {
  EngineHooks hooks;
  Harm harm;
  Inspection inspection;
  inspection.devices = copy.Except(lost);
  inspection.options = Options(hooks);
  inspection.hooks = &hooks;
  inspection.options.read_only = inspection.options.force = true;
  inspection.harm = &harm;
  inspection.find_lost = true;
  const uint64_t writes = copy.WritesSubmitted();
  copy.loop().Spawn(Inspect(factory_, copy.loop(), oracle_, pool_, inspection));
  if (copy.Drive([&] { return inspection.done; }) == Driven::kStalled) {
    inspection.wrong = "stalled";
  }
  // A page of a checkpoint has m + 1 copies.
  const auto ssds = std::ranges::count_if(lost, [&](uint8_t device) { return device < plan_.n; });
  if (ssds > plan_.create.parity && inspection.done && !inspection.opened) {
    inspection.wrong.clear();
  }
  if (copy.WritesSubmitted() != writes && inspection.wrong.empty()) {
    inspection.wrong = "a read-only opening wrote";
  }
  if (inspection.wrong.empty()) {
    inspection.wrong = harm.unnamed;
  }
  if (inspection.wrong.empty() && harm.old != 0 && !inspection.log_damaged) {
    inspection.wrong =
        std::to_string(harm.old) + " chunks are old, and nothing says so; first: " + harm.first;
  }
  coverage_.beyond_read += inspection.opened ? 1 : 0;
  coverage_.beyond_lost += harm.unreadable;
  coverage_.beyond_log_lost += inspection.log_damaged ? 1 : 0;
  if (!inspection.wrong.empty()) {
    Violate("more than m lost, " + Names(plan_, lost) + ", by force: " + inspection.wrong);
  }
  copy.loop().Abort();
  inspection.array.reset();
}

// One that failed in this life is back, and m others are lost: refused, unless nothing had been
// answered without it yet. What opens has all that was.
void World::ProbeBack() {
  const DeviceSet failed_well = fates_.Those(&DeviceFate::failed_well);
  if (failed() || unknown_ || failed_well.empty() || fates_.Any(&DeviceFate::rotten) ||
      !Forgetful().empty() || !plan_.loses_devices) {
    return;
  }
  const size_t which = random_.Below(failed_well.size());
  const uint8_t back = *std::next(failed_well.begin(), static_cast<std::ptrdiff_t>(which));
  if (fates_[back].missed) {
    return;
  }
  DeviceSet lost = away_;
  lost.erase(back);
  while (lost.size() < plan_.create.parity) {
    const auto device = static_cast<uint8_t>(random_.Below(plan_.devices()));
    if (device != back) {
      lost.insert(device);
    }
  }
  Machine copy(*machine_, random_.Next());
  ++coverage_.back;
  coverage_.back_opened +=
      RunProbe(copy, lost, false, Names(plan_, {back}) + " is back, and others are not", true) ? 1
                                                                                               : 0;
}

// ------------------------------------------------------------------------------ while it runs

DeviceSet World::Well() const {
  const ArrayStatus status = array_->GetStatus();
  DeviceSet well;
  for (size_t i = 0; i < status.devices.size(); ++i) {
    if (status.devices[i].state == DeviceState::kOk) {
      well.insert(static_cast<uint8_t>(i));
    }
  }
  return well;
}

// At about one moment, or one after the other; some may be missing, or not whole, before.
void World::ArmStop(const DeviceSet& well, bool opening) {
  std::vector<uint8_t> alive(well.begin(), well.end());
  // Just one too many, or more.
  const uint64_t least = plan_.create.parity + 1 - (plan_.devices() - alive.size());
  const uint64_t count = random_.Between(least, random_.OneIn(2) ? least : alive.size());
  if (opening && plan_.create.journal == JournalMode::kLog) {
    // What dies in recovery died with the crash: in mode log some log device stays (the named
    // exception), as in ArmDooms.
    const auto logs = std::ranges::partition(alive, [this](uint8_t i) { return i < plan_.n; });
    if (!logs.empty()) {
      alive.erase(logs.begin() + static_cast<std::ptrdiff_t>(random_.Below(logs.size())));
    }
  }
  const uint64_t first = random_.Between(1, random_.OneIn(2) ? 20 : 150);
  const uint64_t apart = random_.OneIn(2) ? 1 : random_.OneIn(2) ? 4 : 40;
  SimBus& bus = machine_->bus();
  bus.set_on_doom([this](const Doom& doom) { MeetStop(doom); });
  for (uint64_t i = 0; i < count && i < alive.size(); ++i) {
    std::swap(alive[i], alive[i + random_.Below(alive.size() - i)]);
    Doom doom;
    doom.style = random_.OneIn(4) ? Doom::Style::kHangs : Doom::Style::kDies;
    doom.device = alive[i];
    doom.countdown = first + random_.Below(apart);
    bus.AddDoom(doom);
  }
}

// Which of them the array has lost for good, only it knows: that is seen at the next opening.
void World::MeetStop(const Doom& doom) {
  Say("STOP: " + Names(plan_, {doom.device}) + " ceases to answer");
  fates_[doom.device].unplugged = true;
  unknown_ = true;
  if (work_ != nullptr) {
    work_->set_tolerant();
  }
  if (random_.OneIn(2)) {
    machine_->bus().Arm(
        {std::nullopt, static_cast<Moment>(random_.Below(3)), random_.Between(1, 60)});
  }
}

// Whichever device: it is not lost, and has all that was flushed when there is space again.
void World::ArmNoSpace() {
  if (plan_.lacks_space && factory_.survives_failures() && random_.OneIn(3)) {
    machine_->bus().AddDoom({.style = Doom::Style::kNoSpace,
                             .device = static_cast<uint8_t>(random_.Below(plan_.devices())),
                             .countdown = random_.Between(1, random_.OneIn(2) ? 20 : 150)});
  }
}

void World::MeetNoSpace(const Doom& doom) {
  Say("NO SPACE on " + Names(plan_, {doom.device}));
  ++coverage_.no_space_below;
  work_->set_tolerant();
  if (random_.OneIn(2)) {
    machine_->bus().Arm(
        {std::nullopt, static_cast<Moment>(random_.Below(3)), random_.Between(1, 60)});
  }
}

// What a device was to keep it does not have, and it is part of the array: nothing is acknowledged
// any more, once what was asked beside it has ended.
void World::ExpectStopped() {
  if (failed() || !machine_->bus().told_of_no_space()) {
    return;
  }
  constexpr uint64_t kMostUs = 20'000'000;
  const uint64_t until_us = machine_->loop().NowUs() + kMostUs;
  const auto stopped = [this] { return array_->GetStatus().state == ArrayState::kFailed; };
  const Driven driven =
      machine_->Drive([&] { return stopped() || machine_->loop().NowUs() >= until_us; });
  coverage_.no_space_stopped += stopped() ? 1 : 0;
  if (driven != Driven::kStricken && !stopped()) {
    Violate("I7: a device found no space, and the array has not stopped");
  }
}

// Of an array that has stopped FindLost names what cannot be read, and nothing else. What is in its
// buffers only is nowhere else: of those nothing is asked.
void World::ProbeStopped() {
  const bool buffers = plan_.buffers.device_chunks != 0 || plan_.buffers.stripes != 0;
  if (failed() || !unknown_ || buffers || plan_.resizes_buffers || machine_->bus().stricken() ||
      array_->GetStatus().state != ArrayState::kFailed) {
    return;
  }
  machine_->bus().Disarm();
  LossComparison comparison;
  machine_->loop().Spawn(CompareLosses(*array_, pool_, plan_.create.chunk_bytes, comparison));
  if (machine_->Drive([&] { return comparison.done; }) != Driven::kDone) {
    comparison.wrong = "a read, or FindLost, stalls";
  }
  // One that reads badly, and has not been written to since, is none that is lost.
  const std::vector<DeviceStatus> devices = array_->GetStatus().devices;
  for (size_t i = 0; i < devices.size(); ++i) {
    if (devices[i].state == DeviceState::kOk && machine_->bus().IsDead(static_cast<uint8_t>(i))) {
      return;
    }
  }
  coverage_.stopped_read += comparison.compared ? 1 : 0;
  coverage_.stopped_lost += comparison.lost_chunks;
  if (!comparison.wrong.empty()) {
    Violate("stopped, with more than m lost: " + comparison.wrong);
  }
}

// At the first opening since. Who is not ok is away, and is unreliable in another one's place.
void World::LearnWhoIsAway(const ArrayStatus& status) {
  unknown_ = false;
  fates_.ForEach([](DeviceFate& fate) { fate.older.reset(); });
  fates_.Clear(&DeviceFate::stale);
  for (size_t i = 0; i < status.devices.size(); ++i) {
    if (status.devices[i].state != DeviceState::kOk) {
      fates_[static_cast<uint8_t>(i)].stale = true;
    }
  }
  const DeviceSet stale = fates_.Those(&DeviceFate::stale);
  fates_.NoteOnly(&DeviceFate::seen_lost, stale);
  const size_t count = unreliable_.size();
  const DeviceSet before = std::exchange(unreliable_, stale);
  for (auto it = before.begin(); it != before.end() && unreliable_.size() < count; ++it) {
    unreliable_.insert(*it);
  }
  Say("may lose " + Names(plan_, unreliable_) + " from now on");
}

}  // namespace eplog::torture
