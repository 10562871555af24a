#include "frontend/spare_keeper.h"

#include <algorithm>
#include <utility>

namespace eplog {
namespace {

bool IsLost(const DeviceStatus& device) {
  return device.state == DeviceState::kFailed || device.state == DeviceState::kMissing;
}

bool Fits(const SpareDevice& spare, DeviceRole role) {
  return spare.device != nullptr && (role == DeviceRole::kLog ? spare.fits_log : spare.fits_ssd);
}

}  // namespace

// -------------------------------------------------------------------------------------- the life

Task<void> SpareKeeper::Run() {
  running_ = true;
  for (std::string& path : shelf_.Listed()) {
    spares_.push_back({std::move(path), {}, false, "not looked at yet"});
  }
  while (!stopping_) {
    woken_ = false;
    Task<void> looking = LookAround();
    co_await looking;
    while (!woken_ && !stopping_) {
      co_await wake_.Wait();
    }
  }
  running_ = false;
  wake_.NotifyAll();
}

Task<void> SpareKeeper::Looked(uint64_t deadline_us) {
  while (!looked_ && loop_.NowUs() < deadline_us) {
    co_await wake_.WaitUntil(deadline_us);
  }
}

Task<void> SpareKeeper::Stop() {
  stopping_ = true;
  Wake();
  while (running_) {
    co_await wake_.Wait();
  }
  Task<void> opened = openings_.Wait();
  co_await opened;
  // Verbs that were on their way.
  Task<AsyncMutex::Guard> locking = turn_.Lock();
  const AsyncMutex::Guard guard = co_await locking;
}

void SpareKeeper::Wake() {
  woken_ = true;
  wake_.NotifyAll();
}

void SpareKeeper::Notice(const ArrayEvent& event) {
  switch (event.kind) {
    case EventKind::kDeviceFailed:
    case EventKind::kLogDeviceLost:
    case EventKind::kRebuildStarted:  // another may be taken in now
      look_again_ = true;
      Wake();
      break;
    default:
      break;
  }
}

Task<void> SpareKeeper::LookAround() {
  Task<AsyncMutex::Guard> locking = turn_.Lock();
  const AsyncMutex::Guard guard = co_await locking;
  Task<void> settling = Settle();
  co_await settling;
  if (std::exchange(look_again_, false)) {
    OpenMissing();
  }
  had_any_ = had_any_ || !spares_.empty();
  looked_ = looked_ || opening_.empty();
  wake_.NotifyAll();
  const size_t devices = array_.GetStatus().devices.size();
  for (uint32_t i = 0; i < devices && !stopping_; ++i) {
    Task<void> filling = Fill(i);
    co_await filling;
  }
}

// A spare that stepped in before this process was killed, or the one before it.
Task<void> SpareKeeper::Settle() {
  const ArrayStatus status = array_.GetStatus();
  for (const DeviceStatus& device : status.devices) {
    if (IsLost(device) || Find(device.path) == nullptr) {
      continue;
    }
    Task<Status> writing = shelf_.Joined(device.name, device.path);
    Status written = co_await writing;
    std::erase_if(spares_, [&](const Spare& spare) { return spare.path == device.path; });
    Tell(EventKind::kSpareJoined, device.name,
         "the spare " + device.path + " had stepped in for " + device.name + " already" +
             (written.ok() ? "" : "; " + written.error().ToString()));
  }
}

// Beside all else: one that hangs delays none that is well.
void SpareKeeper::OpenMissing() {
  for (const Spare& spare : spares_) {
    if (spare.open.device == nullptr && !spare.failed && opening_.insert(spare.path).second) {
      openings_.Add();
      loop_.Spawn(Open(spare.path));
    }
  }
}

Task<void> SpareKeeper::Open(std::string path) {
  Task<Result<SpareDevice>> opening = shelf_.Open(path);
  Result<SpareDevice> opened = co_await opening;
  Task<AsyncMutex::Guard> locking = turn_.Lock();
  const AsyncMutex::Guard guard = co_await locking;
  // It may have become a member meanwhile, by hand.
  const bool member = opened.ok() && array_.Holds(*opened->device);
  if (stopping_ || member || Find(path) == nullptr) {
    shelf_.Close(path);
  } else {
    Task<Status> accepting = Accept(path, std::move(opened));
    const Status accepted = co_await accepting;
    static_cast<void>(accepted);  // it is missing, and says why
  }
  opening_.erase(path);
  Wake();
  openings_.Done();
}

// When nothing else happens to spares, and this one is not being opened.
Task<AsyncMutex::Guard> SpareKeeper::TurnOf(std::string path) {
  while (true) {
    Task<AsyncMutex::Guard> locking = turn_.Lock();
    AsyncMutex::Guard guard = co_await locking;
    if (!opening_.contains(path)) {
      co_return guard;
    }
    guard.Release();
    co_await wake_.Wait();
  }
}

// What was found at the path, for use from now on.
Task<Status> SpareKeeper::Accept(std::string path, Result<SpareDevice> opened) {
  Status usable = opened.ok() ? OkStatus() : Status(Fail(opened.error()));
  if (opened.ok() && opened->wiped) {
    Task<Status> marking = shelf_.PutBack(path);
    usable = co_await marking;
    if (!usable.ok()) {
      shelf_.Close(path);
    }
  }
  Spare& spare = *Find(path);
  spare.open = usable.ok() ? *opened : SpareDevice{};
  spare.why = usable.ok() ? "" : usable.error().ToString();
  co_return usable;
}

// ----------------------------------------------------------------------------------- stepping in

bool SpareKeeper::MayFill(uint32_t device) const {
  const ArrayStatus status = array_.GetStatus();
  const auto lost = std::count_if(status.devices.begin(), status.devices.end(), IsLost);
  return !stopping_ && !status.read_only && status.stopped_because.empty() &&
         lost <= static_cast<std::ptrdiff_t>(status.parity_chunks) &&
         IsLost(status.devices[device]);
}

// The smallest that fits; empty if there is none.
std::string SpareKeeper::PickFor(DeviceRole role) const {
  const Spare* best = nullptr;
  for (const Spare& spare : spares_) {
    if (!spare.failed && Fits(spare.open, role) &&
        (best == nullptr || spare.open.device->size_bytes() < best->open.device->size_bytes())) {
      best = &spare;
    }
  }
  return best == nullptr ? std::string() : best->path;
}

Task<void> SpareKeeper::Fill(uint32_t device) {
  const DeviceStatus lost = array_.GetStatus().devices[device];
  if (!IsLost(lost)) {
    unfilled_.erase(lost.name);
    co_return;
  }
  while (MayFill(device)) {
    const std::string path = PickFor(lost.role);
    if (path.empty()) {
      if (had_any_ && opening_.empty() && unfilled_.insert(lost.name).second) {
        Tell(EventKind::kNoSpare, lost.name,
             "no spare is left that fits " + lost.name + ": replace it, or add one");
      }
      co_return;
    }
    Error why;
    Task<Outcome> stepping = StepIn(device, path, nullptr, why);
    if (co_await stepping != Outcome::kTryAnother) {
      co_return;
    }
  }
}

// Another device may be at its path since it was opened, or none: what went to the one that is open
// would not be found there at the next opening. `only`: no other is to be used; may be null.
Task<Status> SpareKeeper::LookAgain(std::string path, const Device* only) {
  Find(path)->open = {};  // it is closed as soon as there is another
  Task<Result<SpareDevice>> opening = shelf_.Open(path);
  Result<SpareDevice> opened = co_await opening;
  const bool another = opened.ok() && only != nullptr && opened->device != only;
  EPLOG_CO_AWAIT(Accept(path, std::move(opened)));
  if (another) {
    co_return Fail(ErrorCode::kBusy, path +
                                         " is not the device that was looked at: another spare "
                                         "has taken its place");
  }
  co_return OkStatus();
}

Task<SpareKeeper::Outcome> SpareKeeper::StepIn(uint32_t device, std::string path,
                                               const Device* only, Error& why) {
  const std::string name = array_.GetStatus().devices[device].name;
  Task<Status> looking = LookAgain(path, only);
  const Status there = co_await looking;
  if (!there.ok()) {
    why = there.error();
    Tell(EventKind::kSpareFailed, name,
         "the spare " + path + " cannot step in for " + name + ": " + why.ToString());
    co_return Outcome::kTryAnother;
  }
  Task<Status> replacing = array_.ReplaceDevice(device, *Find(path)->open.device);
  const Status replaced = co_await replacing;
  if (replaced.ok()) {
    Task<Status> writing = shelf_.Joined(name, path);
    const Status written = co_await writing;
    std::erase_if(spares_, [&](const Spare& spare) { return spare.path == path; });
    unfilled_.erase(name);
    // What could not be written down now is at the next opening, from the superblocks.
    Tell(EventKind::kSpareJoined, name,
         "the spare " + path + " has stepped in for " + name + " and is being rebuilt" +
             (written.ok() ? "" : "; " + written.error().ToString()));
    if (!written.ok()) {
      why = written.error();
    }
    co_return Outcome::kSteppedIn;
  }
  why = replaced.error();
  if (why.code == ErrorCode::kInvalidArgument) {
    co_return Outcome::kLater;  // refused, the spare untouched; who is before us wakes us
  }
  if (why.code == ErrorCode::kBusy) {  // somebody else was quicker
    Task<Status> back = shelf_.PutBack(path);
    const Status status = co_await back;
    if (!status.ok()) {
      GiveUp(path, status.error());
    }
    co_return Outcome::kLater;
  }
  if (!MayFill(device)) {
    // The array stops or closes, or the spare joined and something else went wrong: what it is now
    // is for the next opening to see.
    GiveUp(path, why);
    co_return Outcome::kLater;
  }
  GiveUp(path, why);
  Tell(EventKind::kSpareFailed, name,
       "the spare " + path + " failed when it was to step in for " + name + ": " + why.ToString());
  co_return Outcome::kTryAnother;
}

void SpareKeeper::GiveUp(const std::string& path, const Error& why) {
  Spare& spare = *Find(path);
  spare.failed = true;
  spare.why = why.ToString();
  spare.open = {};
  shelf_.Close(path);
}

// ------------------------------------------------------------------------------------------ verbs

// Members are no spares, also where array.toml could not be told yet.
Status SpareKeeper::CheckNoMember(const std::string& path) const {
  if (stopping_) {
    return Fail(ErrorCode::kShutdown, "the array is being unmounted");
  }
  const ArrayStatus status = array_.GetStatus();
  for (const DeviceStatus& device : status.devices) {
    if (device.path == path && !IsLost(device)) {
      return Fail(ErrorCode::kExists, path + " is " + device.name + " of this array");
    }
  }
  return OkStatus();
}

Task<Status> SpareKeeper::Add(std::string path, DeviceIdentity looked_at) {
  Task<AsyncMutex::Guard> locking = TurnOf(path);
  const AsyncMutex::Guard guard = co_await locking;
  Status refused = CheckNoMember(path);
  EPLOG_CO_TRY(refused);
  if (const Spare* known = Find(path); known != nullptr && known->open.device != nullptr) {
    co_return Fail(ErrorCode::kExists, path + " is a spare already");
  }
  Task<Result<SpareDevice>> adding = shelf_.Add(path, looked_at);
  const Result<SpareDevice> added = co_await adding;
  EPLOG_CO_TRY(added);
  std::erase_if(spares_, [&](const Spare& spare) { return spare.path == path; });
  spares_.push_back({path, *added, false, ""});
  had_any_ = true;
  look_again_ = true;
  Wake();
  co_return OkStatus();
}

Task<Status> SpareKeeper::Remove(std::string path) {
  Task<AsyncMutex::Guard> locking = TurnOf(path);
  const AsyncMutex::Guard guard = co_await locking;
  Status refused = CheckNoMember(path);
  EPLOG_CO_TRY(refused);
  Task<Status> removing = shelf_.Remove(path);
  Status removed = co_await removing;
  const std::vector<std::string> listed = shelf_.Listed();
  if (std::find(listed.begin(), listed.end(), path) == listed.end()) {  // also if it was not wiped
    std::erase_if(spares_, [&](const Spare& spare) { return spare.path == path; });
  }
  co_return removed;
}

std::string SpareKeeper::PathOf(const Device& device) const {
  const auto spare = std::find_if(spares_.begin(), spares_.end(), [&](const Spare& candidate) {
    return candidate.open.device == &device;
  });
  return spare == spares_.end() ? std::string() : spare->path;
}

// No spare, as far as is known: one that is missing may have been listed at its path.
Task<Result<std::string>> SpareKeeper::TakeIn(uint32_t device, Device& replacement) {
  EPLOG_CO_AWAIT(array_.ReplaceDevice(device, replacement));
  const std::string name = array_.GetStatus().devices[device].name;
  Task<Status> writing = shelf_.Joined(name, replacement.name());
  const Status written = co_await writing;
  std::erase_if(spares_, [&](const Spare& spare) { return spare.path == replacement.name(); });
  co_return written.ok() ? std::string() : written.error().ToString();
}

Task<Result<std::string>> SpareKeeper::Replace(uint32_t device, Device& replacement) {
  Task<AsyncMutex::Guard> locking = turn_.Lock();
  const AsyncMutex::Guard guard = co_await locking;
  const std::string path = PathOf(replacement);
  Status refused = CheckNoMember(path);
  EPLOG_CO_TRY(refused);
  if (path.empty()) {
    Task<Result<std::string>> taking = TakeIn(device, replacement);
    co_return co_await taking;
  }
  if (device >= array_.GetStatus().devices.size()) {
    co_return Fail(ErrorCode::kInvalidArgument, "no such device");
  }
  Error why;
  Task<Outcome> stepping = StepIn(device, path, &replacement, why);
  if (co_await stepping != Outcome::kSteppedIn) {
    co_return Fail(std::move(why));
  }
  co_return why.message.empty() ? std::string() : why.ToString();
}

// ----------------------------------------------------------------------------------------- status

std::vector<DeviceStatus> SpareKeeper::List() const {
  std::vector<DeviceStatus> list;
  for (const Spare& spare : spares_) {
    DeviceStatus status;
    status.name = "spare" + std::to_string(list.size());
    status.path = spare.path;
    status.role = DeviceRole::kSpare;
    status.state = spare.failed                   ? DeviceState::kFailed
                   : spare.open.device == nullptr ? DeviceState::kMissing
                                                  : DeviceState::kOk;
    if (spare.open.device != nullptr) {
      status.size_bytes = spare.open.device->size_bytes();
      status.direct = spare.open.device->capabilities().direct;
    }
    status.failed_because = spare.why;
    list.push_back(std::move(status));
  }
  return list;
}

SpareKeeper::Spare* SpareKeeper::Find(const std::string& path) {
  const auto found = std::find_if(spares_.begin(), spares_.end(),
                                  [&](const Spare& spare) { return spare.path == path; });
  return found == spares_.end() ? nullptr : &*found;
}

void SpareKeeper::Tell(EventKind kind, const std::string& device, const std::string& text) const {
  if (tell_) {
    ArrayEvent event;
    event.kind = kind;
    event.device = device;
    event.text = text;
    tell_(event);
  }
}

}  // namespace eplog
