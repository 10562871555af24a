#include "host/session.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <chrono>
#include <span>
#include <utility>

#include "base/buffer.h"
#include "base/start_thread.h"
#include "control/control.h"
#include "device/file_lock.h"
#include "eplog/examine.h"
#include "host/bounded_call.h"
#include "host/candidate.h"
#include "host/device_content.h"
#include "host/limits.h"
#include "host/typed_path.h"
#include "terminal/console.h"

namespace eplog {

using std::chrono::milliseconds;
using std::chrono::seconds;

uint64_t Entropy() {
  uint64_t value = 0;
  const ssize_t got = ::getrandom(&value, sizeof(value), 0);
  EPLOG_CHECK(got == ssize_t{sizeof(value)}, "the kernel gives no random numbers");
  return value;
}

namespace {

// Told before the array is opened, since opening for writing leaves its mark on the devices.
Status CheckUuid(const ArrayFile& file, const Examination& found) {
  const bool any = std::any_of(found.arrays.begin(), found.arrays.end(),
                               [&](const ExaminedArray& array) { return array.uuid == file.uuid; });
  if (!any && !found.arrays.empty()) {
    return Fail(
        ErrorCode::kCorrupt,
        fmt::format(
            "{} names the array {}, but its members belong to {}; put the right members or the "
            "right uuid into it",
            file.file.string(), file.uuid, found.arrays.front().uuid));
  }
  return OkStatus();
}

std::string LeftOutLine(const Member& member, std::string_view what, const std::string& why) {
  return fmt::format("{} ({}) is {} and left out: {}", member.name, member.device->name(), what,
                     why);
}

// In words.
std::string VerdictText(MemberVerdict verdict) {
  return verdict == MemberVerdict::kNoMember ? "no member"
         : verdict == MemberVerdict::kSpare  ? "a spare"
                                             : MemberVerdictName(verdict);
}

// Which member is at a path. One that is listed may hang, and is not opened to ask what it bears.
// Should that be another name, no more is given up by it: all log devices that are left out or
// missing are to be named.
std::string NameAt(const ArrayFile& file, const std::filesystem::path& path) {
  std::string listed = file.MemberAt(path);
  if (!listed.empty()) {
    return listed;
  }
  const auto superblock = ReadSuperblock(path);
  const bool member = superblock.ok() && !superblock->is_spare() &&
                      UuidToString(superblock->array_uuid) == file.uuid;
  return member ? superblock->DeviceName() : "";
}

std::string NameTyped(const ArrayFile& file, const std::string& typed) {
  const auto path = ResolveDevice(file, typed);
  return path.ok() ? NameAt(file, *path) : "";
}

// The log devices of which a person said that the array is to go on without them, whether they are
// listed or not: OpenOptions::without_logs.
uint64_t LogsGivenUp(const ArrayFile& file, const std::vector<std::string>& without) {
  uint64_t logs = 0;
  for (const std::string& typed : without) {
    const std::string name = IsMemberName(typed) ? typed : NameTyped(file, typed);
    for (uint32_t j = 0; j < kMaxParity; ++j) {
      logs |= uint64_t{name == fmt::format("log{}", j) ? 1U : 0U} << j;
    }
  }
  return logs;
}

// Under the locks of the members that array.toml lists then: since it was read, whoever had the
// array open may have written down another place. Where it cannot be read any more, what was read
// counts.
Result<Members> OpenListed(IoUringLoop& loop, ArrayFile& file, const MemberOptions& options) {
  constexpr int kTries = 5;
  for (int i = 0; i < kTries; ++i) {
    auto members = OpenMembers(loop, file, options);
    if (!members.ok()) {
      return members;
    }
    BoundedCall<Result<ArrayFile>> reading([path = file.file] { return LoadArrayFile(path); });
    auto now = reading.Wait(BoundedCall<Result<ArrayFile>>::Clock::now() + kPatience);
    if (!now || !now->ok() || (*now)->uuid != file.uuid ||
        ((*now)->members == file.members && (*now)->spares == file.spares)) {
      return members;
    }
    file = std::move(**now);
  }
  return Fail(ErrorCode::kBusy, file.file.string() + " is just being changed, again and again");
}

// Nothing but room below the device, or doing without it, lets the array open then.
void AddRoomMend(Error& error, const ArrayFile& file, const Members& members) {
  if (error.code != ErrorCode::kNoSpace || error.errno_value == 0) {
    return;
  }
  const auto full =
      std::find_if(members.opened.begin(), members.opened.end(), [&error](const Member& member) {
        return error.message.starts_with(member.device->name() + ":");
      });
  if (full == members.opened.end() || full->name.empty()) {
    return;
  }
  const std::string argument = ShellWord(file.Argument().string());
  const std::string what = error.ToString();
  error = {.code = ErrorCode::kNoSpace,
           .message = fmt::format("{0}; make room where it lies, or, if only {1} has none, put "
                                  "another in its place: eplog mount {2} DIR --without {1}, then "
                                  "eplog replace {2} {1} NEW",
                                  what, full->name, argument)};
}

// All on the one line of an error.
void Append(Error& error, const std::vector<std::string>& left_out) {
  std::string all;
  for (const std::string& line : left_out) {
    all += (all.empty() ? "" : "; ") + line;
  }
  error.message += all.empty() ? "" : " (" + all + ")";
}

// With what it may be owed to, and the mend.
Error WhyNotOpened(Error error, const ArrayFile& file, const Members& members) {
  if (error.code == ErrorCode::kTooManyFailures && members.read_only_below) {
    std::vector<std::string> why = members.left_out;
    why.push_back(error.message);
    return FailReadOnlyBelow(file, why).value();
  }
  if (error.code == ErrorCode::kInvalidArgument) {
    error.code = ErrorCode::kCorrupt;  // the devices are wrong, not the command
  }
  AddRoomMend(error, file, members);
  Append(error, members.left_out);
  return error;
}

}  // namespace

std::string EventsPath(const ArrayFile& file) {
  return (file.file.parent_path() / "events.jsonl").string();
}

Result<std::unique_ptr<Session>> Session::Open(std::string_view verb, const ArrayFile& read_before,
                                               const MemberOptions& options, OpenOptions open) {
  EPLOG_TRY(options.read_only ? OkStatus() : CheckFileSizes(read_before));
  std::unique_ptr<Session> session(new Session());
  auto loop = IoUringLoop::Create();
  if (!loop.ok()) {
    return Fail(std::move(loop).error());
  }
  session->file_ = read_before;
  const ArrayFile& file = session->file_;
  session->loop_ = std::move(*loop);
  session->helper_ = std::make_unique<HelperThread>(*session->loop_, kMostOpenings);
  if (!options.read_only) {
    session->events_ =
        std::make_unique<EventLog>(EventsPath(file), options.event_hook, file.name,
                                   EventLog::Limits(), [file] { return !IsAnothersByNow(file); });
    if (!session->events_->CanCall()) {
      Warn(verb, "no process can be had that runs the command for events: it will not be run");
    }
  }
  auto members = OpenListed(*session->loop_, session->file_, options);
  if (!members.ok()) {
    return Fail(std::move(members).error());
  }
  session->options_ = options;
  session->members_ = std::move(*members);
  const Examination found = session->Run(ExamineDevices(session->members_.Pointers()));
  EPLOG_TRY(CheckUuid(file, found));
  if (!options.read_only) {
    auto writer = OneWriter::Take(file, /*despite_dead=*/!options.without.empty());
    EPLOG_TRY(writer);
    session->writer_ = std::move(*writer);
  } else {
    session->reader_ = OneWriter::TakeToRead(file);
  }
  if (!options.read_only) {
    static_cast<void>(session->loop_->KeepOpen(session->writer_.fd()));
  }
  const std::vector<Device*> trusted = session->Trusted(file, found);
  open.read_only = options.read_only;
  open.without_logs = LogsGivenUp(file, options.without);
  open.entropy = Entropy();
  if (!options.read_only) {
    session->scrub_mark_ = std::make_unique<ScrubMarkFile>(file);
    open.scrub_mark = session->scrub_mark_->Keeper();
    open.on_event = [raw = session.get(), who = std::string(verb)](const ArrayEvent& event) {
      raw->Hear(event, who);
    };
  }
  auto array = session->Run(Array::Open(*session->loop_, trusted, open));
  if (!array.ok()) {
    return Fail(WhyNotOpened(std::move(array).error(), file, session->members_));
  }
  session->array_ = std::move(*array);
  for (const ExaminedDevice& device : found.devices) {
    if (device.verdict == MemberVerdict::kStale && !session->array_->Holds(*device.device)) {
      const Member& member = *session->Find(device.device->identity());
      session->members_.left_out.push_back(
          LeftOutLine(member, VerdictText(device.verdict), device.why));
    }
  }
  session->Remember();
  for (const std::string& left_out : session->members_.left_out) {
    Warn(verb, left_out);
  }
  session->WriteDownPlaces(verb);
  session->LetGoSoon();
  return session;
}

void Session::Hear(const ArrayEvent& event, const std::string& verb) {
  Tell(event);
  if (event.kind == EventKind::kWritesDropped) {
    Warn(verb, event.text);  // not only in a file that nobody may look into
  }
  if (event.kind == EventKind::kDeviceFailed || event.kind == EventKind::kLogDeviceLost) {
    LetGoSoon();
  }
  if (listener_) {
    listener_(event);
  }
}

// Those that the array is opened from. The others cannot be what they should be, whatever the rest
// are, and are not even shown to it. What cannot be judged here, as a newer format, it refuses.
std::vector<Device*> Session::Trusted(const ArrayFile& file, const Examination& found) {
  std::vector<Device*> trusted;
  for (const ExaminedDevice& device : found.devices) {
    const Member& member = *Find(device.device->identity());
    const ExaminedArray* const array =
        device.array == kNoArray ? nullptr : &found.arrays[device.array];
    if (array != nullptr && array->uuid != file.uuid && device.verdict != MemberVerdict::kNewer) {
      members_.left_out.push_back(LeftOutLine(
          member, "foreign",
          fmt::format("it belongs to another array ('{}', {})", array->name, array->uuid)));
    } else if (device.verdict == MemberVerdict::kPart || device.verdict == MemberVerdict::kStale ||
               device.verdict == MemberVerdict::kNewer) {
      trusted.push_back(device.device);
    } else {
      members_.left_out.push_back(
          LeftOutLine(member, VerdictText(device.verdict),
                      device.verdict == MemberVerdict::kSpare ? "it is no member" : device.why));
    }
  }
  return trusted;
}

std::vector<HeldMember> Session::Held() const {
  std::vector<HeldMember> held;
  if (array_ == nullptr) {
    return held;
  }
  for (const DeviceStatus& device : array_->GetStatus().devices) {
    for (const Member& member : members_.opened) {
      if (member.device->name() == device.path && array_->Holds(*member.device)) {
        held.push_back({device.name, device.path, member.device->identity()});
      }
    }
  }
  return held;
}

void Session::Remember() {
  for (HeldMember& held : Held()) {
    std::erase_if(ever_held_,
                  [&](const HeldMember& other) { return other.identity == held.identity; });
    ever_held_.push_back(std::move(held));
  }
}

Json Session::Describe(const std::string& directory) {
  return DescribeServing(file_, directory, Held(), HeldBefore());
}

// Open read-only it has none.
void Session::ForgetScrubMark() {
  if (scrub_mark_ != nullptr) {
    scrub_mark_->Keep(std::nullopt);
  }
}

std::vector<HeldMember> Session::HeldBefore() {
  Remember();
  const std::vector<HeldMember> now = Held();
  std::vector<HeldMember> before = ever_held_;
  std::erase_if(before, [&](const HeldMember& member) {
    return std::any_of(now.begin(), now.end(),
                       [&](const HeldMember& held) { return held.identity == member.identity; });
  });
  return before;
}

// Who changes array.toml, or names a member by its path, goes by what stands there.
void Session::WriteDownPlaces(std::string_view verb) {
  std::vector<MemberPath> found;
  for (const HeldMember& held : Held()) {
    found.push_back({held.name, held.path});
  }
  const ArrayFile before = file_;
  if (!file_.PlaceMembers(found) || options_.read_only) {
    return;
  }
  const auto written = ChangeInTime(
      before, [found](ArrayFile& now) { now.PlaceMembers(found); }, change_turn_);
  if (written.ok()) {
    file_ = *written;
    Warn(verb, fmt::format("members are not where {} said; it says now where they are",
                           file_.file.string()));
  } else {
    Warn(verb, fmt::format("members are not where {} says, and it could not be changed: {}",
                           file_.file.string(), written.error().message));
  }
}

// ---------------------------------------------------------------------------------------- devices

Member* Session::Find(const DeviceIdentity& identity) {
  const auto found =
      std::find_if(members_.opened.begin(), members_.opened.end(),
                   [&](const Member& member) { return member.device->identity() == identity; });
  return found == members_.opened.end() ? nullptr : &*found;
}

Result<Device*> Session::OpenAgain(Member& open, const std::string& path) {
  if (array_ != nullptr && array_->Holds(*open.device)) {
    return Fail(ErrorCode::kInvalidArgument, path + " is part of this array and in use");
  }
  if (open.users == 0 && open.deadline->idle()) {
    return FailNoThread();  // to close it first: it has failed once, and remembers that
  }
  if (open.users == 0) {  // it was a member, and could not be let go yet
    return Fail(ErrorCode::kBusy,
                fmt::format("{} still has {} requests that it did not answer: unmount, and mount "
                            "again when it is well",
                            path, open.deadline->unanswered()));
  }
  ++open.users;
  return open.device.get();
}

// Its last owner may be this very process, which is just closing it.
Result<std::unique_ptr<FileDevice>> Session::OpenIdentified(const ArrayFile& file,
                                                            const std::string& path,
                                                            const DeviceIdentity& looked_at) {
  const auto until = DeviceCloser::Clock::now() + milliseconds(kDeadOwnerWaitMs);
  if (!closer_.Wait(looked_at, until)) {
    return Fail(ErrorCode::kBusy, path +
                                      " was a member and is still being closed: what it lies on "
                                      "does not answer");
  }
  EPLOG_TRY(CheckCandidate(file, path, looked_at));
  const auto probed = ProbeDevice(path, looked_at);
  EPLOG_TRY(probed);
  EPLOG_TRY(CheckNotServed(path, *probed, file.uuid));  // since it was looked at
  return OpenFile(*loop_, path, options_, looked_at);
}

Task<Result<Device*>> Session::OpenDevice(std::string path, DeviceIdentity looked_at) {
  Result<DeviceIdentity> identity = DeviceIdentity();
  Task<Status> looking = helper_->Run([&] { identity = IdentifyDevice(path); });
  Status ran = co_await looking;
  EPLOG_CO_TRY(ran);
  EPLOG_CO_TRY(identity);
  if (array_ == nullptr) {
    co_return Fail(ErrorCode::kShutdown, "the array is closing; " + path + " was not opened");
  }
  Status same = CheckIdentity(path, *identity, looked_at);
  EPLOG_CO_TRY(same);
  static_cast<void>(LetGo());
  if (Member* const open = Find(looked_at)) {
    co_return OpenAgain(*open, path);
  }
  Result<std::unique_ptr<FileDevice>> file = std::unique_ptr<FileDevice>();
  Task<Status> opening =
      helper_->Run([&, array = file_] { file = OpenIdentified(array, path, looked_at); });
  ran = co_await opening;
  EPLOG_CO_TRY(ran);
  EPLOG_CO_TRY(file);
  if (array_ == nullptr) {
    co_return Fail(ErrorCode::kShutdown, "the array is closing; " + path + " was not opened");
  }
  members_.opened.push_back(WrapFile(*loop_, std::move(*file), options_));
  members_.opened.back().users = 1;
  Device* const device = members_.opened.back().device.get();
  Task<Status> checking = CheckNoneHangs(*device);
  Status free = co_await checking;
  if (free.ok() && array_ == nullptr) {  // it took long, and nobody waited
    free = Fail(ErrorCode::kShutdown, "the array is closing; " + path + " is not taken");
  }
  if (!free.ok()) {
    CloseDevice(*device);
    co_return Fail(std::move(free).error());
  }
  co_return device;
}

void Session::CloseDevice(Device& device) {
  Remember();  // it may have joined
  for (Member& member : members_.opened) {
    if (member.device.get() == &device && member.users != 0) {
      --member.users;
    }
  }
  LetGoSoon();
}

// Whether that was all of them. Where no thread can be had for it they wait for one.
bool Session::LetGo() {
  if (array_ == nullptr) {
    return true;
  }
  bool all = true;
  for (auto member = members_.opened.begin(); member != members_.opened.end();) {
    if (member->users != 0 || array_->Holds(*member->device)) {
      ++member;
      continue;
    }
    member->inject->Abandon();
    member->deadline->Abandon();  // who still waits for it waits in vain, and others for him
    if (member->deadline->idle() && closer_.Close(member->device)) {
      member = members_.opened.erase(member);
    } else {
      all = false;
      ++member;
    }
  }
  // Killed, this process still writes what it has asked for. Whoever opens the array then waits for
  // the end of that, but not for a device that is lost and hangs: nobody trusts it any more.
  static_cast<void>(loop_->KeepOpen(all || HasStopped() ? writer_.fd() : -1));
  return all;
}

// Never at once: who tells of a loss is called by a request to the device that is lost.
void Session::LetGoSoon() {
  if (!letting_go_) {
    letting_go_ = true;
    loop_->Spawn(LetGoWhenIdle());
  }
}

Task<void> Session::LetGoWhenIdle() {
  constexpr uint64_t kLookUs = 100'000;
  co_await loop_->Yield();
  while (!LetGo()) {
    co_await loop_->Sleep(kLookUs);
  }
  letting_go_ = false;
}

Task<Result<Superblock>> Session::AnyMember() {
  for (size_t i = 0; i < members_.opened.size(); ++i) {
    Device* const device = members_.opened[i].device.get();
    if (!array_->Holds(*device)) {
      continue;
    }
    Task<Result<Superblock>> reading = SuperblockOf(*device);
    Result<Superblock> superblock = co_await reading;
    if (superblock.ok()) {
      co_return superblock;
    }
  }
  co_return Fail(ErrorCode::kNotFound, "no superblock can be read");
}

// The first copy that is whole.
Task<Result<Superblock>> Session::SuperblockOf(Device& device) {
  BufferPool pool;
  const Buffer buffer = pool.Get(kSuperblockCopyBytes);
  for (const uint64_t offset : kSuperblockCopyOffset) {
    const iovec part{buffer.data(), kSuperblockCopyBytes};
    Task<Status> reading = device.Read(offset, std::span(&part, 1));
    const Status read = co_await reading;
    Result<Superblock> superblock =
        read.ok() ? DecodeSuperblock(buffer.span()) : Fail(read.error());
    if (superblock.ok()) {
      co_return superblock;
    }
  }
  co_return Fail(ErrorCode::kNotFound, device.name() + " bears no superblock that can be read");
}

// What a member was asked before it hung, and was lost, may still be carried out. By the node that
// hangs it is refused (OpenAgain); this is for its others.
Task<Status> Session::CheckNoneHangs(Device& device) {
  std::vector<std::string> hang;
  for (const Member& member : members_.opened) {
    const bool lost = member.users == 0 && !array_->Holds(*member.device);
    for (const HeldMember& held : ever_held_) {
      if (lost && !member.deadline->idle() && held.identity == member.device->identity()) {
        hang.push_back(held.name);
      }
    }
  }
  if (hang.empty()) {
    co_return OkStatus();
  }
  Task<Result<Superblock>> reading = SuperblockOf(device);
  const Result<Superblock> superblock = co_await reading;
  if (superblock.ok() && UuidToString(superblock->array_uuid) == file_.uuid &&
      std::find(hang.begin(), hang.end(), superblock->DeviceName()) != hang.end()) {
    co_return Fail(ErrorCode::kBusy,
                   fmt::format("{} is {} by another path, and that still has requests which it did "
                               "not answer: unmount, and mount again when it is well",
                               device.name(), superblock->DeviceName()));
  }
  co_return OkStatus();
}

void Session::Tell(const ArrayEvent& event) {
  if (events_ != nullptr) {
    events_->Add(event);
  }
}

Status Session::Inject(const std::string& path, const Injection& injection) {
  bool found = false;
  for (const Member& member : members_.opened) {
    if (path.empty() || (member.device->name() == path && array_->Holds(*member.device))) {
      member.inject->Set(injection);
      found = true;
    }
  }
  return found ? OkStatus()
               : Status(Fail(ErrorCode::kNotFound, path + " is not open: is it missing?"));
}

Status Session::Close() {
  Status closed = Run(array_->Close());
  Release();
  return closed;
}

// What has not answered stays until the loop is gone. Who waits for this wants to open the devices,
// or to go on without them.
void Session::Release() {
  trusted_ = HasStopped();
  array_.reset();
  LetDevicesGo();
}

// An array that has stopped has written down nothing of why.
bool Session::HasStopped() const {
  return array_ == nullptr ? trusted_ : !array_->GetStatus().stopped_because.empty();
}

// Nobody may open the array before what is asked of those that are trusted has ended, by whatever
// node.
void Session::LetDevicesGo() {
  constexpr seconds kLetGo(5);
  for (Member& member : members_.opened) {
    if (member.deadline->idle() && !closer_.Close(member.device)) {
      member.device.reset();  // nothing is served any more
    }
  }
  std::erase_if(members_.opened, [](const Member& member) { return member.device == nullptr; });
  if (members_.opened.empty() || !trusted_) {
    writer_ = OneWriter();
  }
  static_cast<void>(closer_.WaitForAll(DeviceCloser::Clock::now() + kLetGo));
}

// Who ends with an error because of what hangs is to say so, however long it hangs.
Session::~Session() {
  constexpr uint64_t kAnswersUs = 5'000'000;
  helper_.reset();  // what it still does is for frames that end with the loop
  if (loop_ != nullptr && !loop_->EndRequests(loop_->NowUs() + kAnswersUs)) {
    LeaveBehind();
  } else if (array_ != nullptr) {
    loop_->Abort();
    array_.reset();
  }
}

// The loop does not run any more. Members that are well are let go, as others may want them.
void Session::LeaveBehind() {
  struct Remains {
    OneWriter writer;
    std::unique_ptr<Array> array;
    std::unique_ptr<IoUringLoop> loop;
    Members members;
  };
  static auto* const left = new std::vector<Remains>();  // never destroyed
  trusted_ = HasStopped();
  Remains remains{{}, std::move(array_), std::move(loop_), {}};
  LetDevicesGo();
  remains.writer = std::move(writer_);
  remains.members = std::move(members_);
  left->push_back(std::move(remains));
}

}  // namespace eplog
