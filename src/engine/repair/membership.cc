#include "engine/repair/membership.h"

#include <algorithm>
#include <utility>

#include "engine/checkpoint/checkpointer.h"
#include "engine/checkpoint/superblock_copies.h"
#include "engine/log/appender.h"
#include "engine/log/flusher.h"
#include "engine/upkeep/keeper.h"

namespace eplog {
namespace {

constexpr uint64_t kWipeAtOnceBytes = uint64_t{1} << 20;

uint64_t Bit(DeviceIndex device) {
  return uint64_t{1} << device.value;
}

// A copy that is just being written, by another node, reads as none: they are written one after the
// other, so that one of them is whole the next time.
Task<Result<SuperblockCopies>> ReadWhole(Device& device) {
  constexpr int kTries = 3;
  Result<SuperblockCopies> copies = Fail(ErrorCode::kIo, "");
  for (int i = 0; i < kTries; ++i) {
    Task<Result<SuperblockCopies>> reading = ReadCopies(device);
    copies = co_await reading;
    if (!copies.ok() || copies->whole() != 0 || !copies->doubtful()) {
      break;
    }
  }
  co_return copies;
}

}  // namespace

void Membership::Open(uint64_t sequence) {
  std::fill(joined_sequence_.begin(), joined_sequence_.end(), sequence);
  NoteJoining();
  core_.members.TakeLosses([this](DeviceIndex device, const Error& why) { Lost(device, why); });
}

void Membership::Lend(DeviceIndex index, Device& device) {
  core_.members.Lend(index, device);
  core_.devices_.Lent(index);
}

void Membership::Verified(uint64_t ssds) {
  core_.devices_.Verified(ssds);
}

void Membership::NoteJoining() {
  const std::vector<MemberEntry>& members = superblocks_.current().members;
  for (uint8_t i = 0; i < members.size(); ++i) {
    const bool returning = members[i].state == MemberState::kReturning;
    if (returning || members[i].state == MemberState::kJoining) {
      core_.devices_.FoundJoining(DeviceIndex(i), returning, appender_.next_place());
    }
    // Runs from while it was away have too few copies.
    full_since_[i] = returning ? superblocks_.current().epoch.number : members[i].joined;
  }
}

// ----------------------------------------------------------------------------------------- losses

void Membership::StopForTooMany() {
  std::string names;
  for (uint8_t i = 0; i < core_.geometry.devices(); ++i) {
    const bool live = core_.members.live(DeviceIndex(i));
    if (!live || core_.devices().IsJoining(DeviceIndex(i))) {
      const std::string& reason = reasons_[i];
      names += (names.empty() ? "" : "; ") + core_.geometry.DeviceName(DeviceIndex(i)) +
               (live             ? " is not whole yet"
                : reason.empty() ? " was missing"
                                 : ": " + reason);
    }
  }
  Error error;
  error.code = ErrorCode::kTooManyFailures;
  error.message = "more than " + std::to_string(core_.geometry.m) +
                  " devices are lost, or not whole (" + names +
                  "); what can be read is served, nothing is written";
  core_.Stop(error);
}

void Membership::Lost(DeviceIndex device, const Error& why) {
  reasons_[device.value] = why.ToString();
  failed_ |= Bit(device);
  core_.devices_.Lost(device);
  const bool log = device.value >= core_.geometry.n;
  const std::string name = core_.geometry.DeviceName(device);
  core_.Tell(log ? EventKind::kLogDeviceLost : EventKind::kDeviceFailed, name,
             name + " is lost: " + reasons_[device.value]);
  // What was not rebuilt yet is lost with it, unless it may come back: nothing is written down.
  if (core_.devices().not_ok() > core_.geometry.m && !core_.canary(Canary::kStopWrittenDown)) {
    StopForTooMany();
    return;
  }
  const uint32_t further = core_.geometry.m - std::min(core_.geometry.m, core_.devices().not_ok());
  core_.Tell(EventKind::kDegraded, "",
             "the array goes on and survives " + std::to_string(further) +
                 " further losses; replace " + name);
  Begin();
}

Status Membership::MayFail(DeviceIndex device) const {
  if (!core_.members.live(device)) {
    return eplog::Fail(ErrorCode::kInvalidArgument,
                       core_.geometry.DeviceName(device) + " is lost already");
  }
  // What else is not there, or not whole.
  const uint32_t others = core_.devices().not_ok() - (core_.devices().IsJoining(device) ? 1 : 0);
  if (others >= core_.geometry.m) {
    return eplog::Fail(ErrorCode::kInvalidArgument,
                       "losing " + core_.geometry.DeviceName(device) + " would be more than " +
                           std::to_string(core_.geometry.m) +
                           " devices that are not ok: replace and rebuild first");
  }
  return OkStatus();
}

Task<Status> Membership::Fail(DeviceIndex device, std::string reason) {
  Status may = MayFail(device);
  EPLOG_CO_TRY(may);
  Error error;
  error.code = ErrorCode::kDeviceFailed;
  error.message = std::move(reason);
  core_.members.Lose(device, error);
  Task<void> idle = Idle();
  co_await idle;
  co_return core_.Running();
}

// ------------------------------------------------------------------------------------- the change

void Membership::Begin() {
  if (!core_.devices().changing() && !core_.stop_error) {
    core_.devices_.BeginChange();
    changes_.Add();
    core_.loop.Spawn(Change());
  }
}

Task<void> Membership::Change() {
  uint64_t handled = 0;
  do {
    handled = core_.devices().number();
    Task<void> ending = appender_.InFlightWritten();
    co_await ending;
    if (core_.stop_error) {
      break;  // too many at once: nothing is written down, so that those that are well may come
              // back
    }
    if (handled != core_.devices().number()) {
      continue;
    }
    if (join_) {
      TakeIn(*join_);
      join_.reset();
      handled = core_.devices().number();
    }
    Task<Status> filling = FillRings();
    Status status = co_await filling;
    if (status.ok() && !core_.stop_error) {
      Task<Status> writing = WriteDown();
      status = co_await writing;
    }
    if (!status.ok()) {
      core_.Stop(status.error());
    }
  } while (handled != core_.devices().number() && !core_.stop_error);
  join_.reset();
  if (core_.stop_error) {
    core_.devices_.BreakOffChange();
  } else {
    core_.devices_.EndChange();
    appender_.BeginEpoch(superblocks_.current().epoch);
    keeper_.DevicesChanged();
  }
  core_.settled.NotifyAll();
  appender_.Resume();
  core_.space_changed.NotifyAll();
  changes_.Done();
}

// In mode `log` flushes were acknowledged without the rings. Once a log device is called lost, what
// it has of them does not count any more: the rings have it before. Its successor has none of it.
Task<Status> Membership::FillRings() {
  rings_filled_ = true;
  if (core_.identity.journal_mode == static_cast<uint8_t>(JournalMode::kFull) ||
      core_.devices().logs_not_ok() == 0) {
    co_return OkStatus();
  }
  // Where they have no room, what is left out is what the loss of *all* log devices at once may
  // lose in this mode: they stay needed.
  const uint64_t upto = core_.rings.Pack(appender_.applied().sequence, false, 0);
  rings_filled_ = core_.rings.queued() == 0;
  Task<Result<uint64_t>> writing = core_.rings.Written(upto);
  const Result<uint64_t> written = co_await writing;
  EPLOG_CO_TRY(written);
  Task<Status> flush = core_.members.FlushMask(core_.members.live_mask());
  co_return co_await flush;
}

MemberState Membership::StateOf(DeviceIndex device) const {
  if (core_.members.live(device)) {
    return core_.devices().IsUnverified(device) ? MemberState::kReturning
           : core_.devices().IsJoining(device)  ? MemberState::kJoining
                                                : MemberState::kOk;
  }
  const MemberState before = superblocks_.current().members[device.value].state;
  return (failed_ & Bit(device)) != 0 || before == MemberState::kFailed ? MemberState::kFailed
                                                                        : MemberState::kLost;
}

// The new epoch first, then that it has opened: only when every device that it calls live bears it,
// or one that missed it could come back and make it invalid.
Task<Status> Membership::WriteDown() {
  const StatesNumber states = core_.devices().number();
  const Epoch epoch{NextEpoch(), core_.random.Next()};
  std::vector<MemberEntry> members = superblocks_.current().members;
  for (uint8_t i = 0; i < members.size(); ++i) {
    members[i].state = StateOf(DeviceIndex(i));
  }
  superblocks_.SetEpoch(epoch, std::move(members));
  EPLOG_CO_AWAIT(superblocks_.Write());
  if (states != core_.devices().number() || core_.stop_error) {
    co_return OkStatus();  // it is done anew, or never
  }
  superblocks_.SetBase(epoch, rings_filled_);
  Task<Status> opened = superblocks_.Write();
  co_return co_await opened;
}

// ----------------------------------------------------------------------------------- replacements

Task<Status> Membership::WipeArea(Device& device, uint64_t offset_bytes, uint64_t length_bytes) {
  const Buffer zeros = core_.pool.GetZeroed(kWipeAtOnceBytes);
  for (uint64_t at = 0; at < length_bytes; at += kWipeAtOnceBytes) {
    const iovec part{const_cast<std::byte*>(zeros.data()),
                     std::min(kWipeAtOnceBytes, length_bytes - at)};
    EPLOG_CO_AWAIT(device.Write(offset_bytes + at, std::span(&part, 1)));
  }
  Task<Status> flush = device.Flush();
  co_return co_await flush;
}

// A log is not wiped, which would take as long as it is large: what it holds of this array from
// before is told by its epochs, which are older than the one in which it joins.
uint64_t Membership::NextEpoch() const {
  return std::max(superblocks_.current().epoch.number, older_epoch_) + 1;
}

Task<Status> Membership::CheckNotInUse(Device& device) const {
  Task<Result<uint64_t>> looking = LookAt(device);
  const Result<uint64_t> newest = co_await looking;
  co_return newest.ok() ? OkStatus() : Status(eplog::Fail(newest.error()));
}

// The newest epoch of this array that it bears.
Task<Result<uint64_t>> Membership::LookAt(Device& device) const {
  const uint64_t opened = superblocks_.current().base.number;  // what is read may be older
  Task<Result<SuperblockCopies>> reading = ReadWhole(device);
  const Result<SuperblockCopies> copies = co_await reading;
  uint64_t newest = 0;
  for (size_t i = 0; copies.ok() && i < copies->of.size(); ++i) {
    const Result<Superblock>& copy = copies->of[i];
    if (!copy.ok() || copy->array_uuid != core_.identity.array_uuid) {
      continue;
    }
    newest = std::max(newest, copy->epoch.number);
    if (newest >= kLastToGoOnFrom) {
      co_return eplog::Fail(ErrorCode::kCorrupt,
                            device.name() + " bears a superblock of this array with epoch " +
                                std::to_string(newest) +
                                ", a number that nothing is counted up to: wipe it first");
    }
    if (copy->epoch.number >= opened && IsInUse(*copy)) {
      co_return eplog::Fail(ErrorCode::kExists,
                            device.name() + " is " + copy->DeviceName() +
                                " by another path, and in use; if it is a copy of it, wipe that "
                                "first. Nothing was written to it");
    }
  }
  co_return newest;
}

// Two device nodes may lead to one storage (multipath, a loop device over a member's file), which no
// identity tells, but what is written there: who bears the uuid of a device in use, of an epoch that
// all in use bear, is that, or was copied from it a moment ago. An older copy is none of it.
bool Membership::IsInUse(const Superblock& copy) const {
  return !copy.is_spare() && core_.members.live(copy.index) &&
         superblocks_.current().members[copy.index.value].uuid == copy.device_uuid;
}

// Its superblocks and its ring: nothing of an earlier membership is to be found there.
Task<Status> Membership::Wipe(Device& device, DeviceIndex index) {
  const Geometry& g = core_.geometry;
  for (const uint64_t copy : kSuperblockCopyOffset) {
    EPLOG_CO_AWAIT(WipeArea(device, copy, kSuperblockCopyBytes));
  }
  if (g.IsLog(index)) {
    co_return OkStatus();
  }
  Task<Status> wiping = WipeArea(device, g.ring_offset_bytes, g.ring_blocks * kBlockBytes);
  co_return co_await wiping;
}

Status Membership::MayReplace(DeviceIndex device, const std::string& replacement,
                              const DeviceIdentity& identity, uint64_t replacement_bytes) const {
  const Geometry& g = core_.geometry;
  const std::string name = g.DeviceName(device);
  if (core_.members.live(device) || join_) {
    return eplog::Fail(ErrorCode::kInvalidArgument,
                       core_.members.live(device) ? name + " is part of the array: fail it first"
                                                  : "another replacement is just being taken in");
  }
  for (uint8_t i = 0; i < g.devices(); ++i) {
    const Device* member = core_.members.device(DeviceIndex(i));
    if (member != nullptr && member->identity() == identity) {
      return eplog::Fail(ErrorCode::kInvalidArgument,
                         replacement + " is " + g.DeviceName(DeviceIndex(i)) + " and in use");
    }
  }
  for (const Device* other : being_taken_in_) {
    if (other->identity() == identity) {
      return eplog::Fail(ErrorCode::kBusy, replacement + " is just being taken in");
    }
  }
  const uint64_t need = g.IsLog(device) ? g.log_bytes() : g.ssd_bytes();
  if (replacement_bytes < need) {
    return eplog::Fail(ErrorCode::kInvalidArgument,
                       replacement + " is too small for " + name + ": it has " +
                           std::to_string(replacement_bytes) + " bytes and " +
                           std::to_string(need) + " are needed");
  }
  return OkStatus();
}

Task<Status> Membership::Replace(DeviceIndex device, Device& replacement) {
  const Geometry& g = core_.geometry;
  const std::string name = g.DeviceName(device);
  Status may =
      MayReplace(device, replacement.name(), replacement.identity(), replacement.size_bytes());
  EPLOG_CO_TRY(may);
  const TakingIn taking_in(being_taken_in_, replacement);
  Task<Result<uint64_t>> looking = LookAt(replacement);
  const Result<uint64_t> older_epoch = co_await looking;
  EPLOG_CO_TRY(older_epoch);
  EPLOG_CO_AWAIT(Wipe(replacement, device));
  while (core_.devices().changing()) {
    Task<void> idle = Idle();
    co_await idle;
  }
  Status status = core_.Running();
  EPLOG_CO_TRY(status);
  if (core_.members.live(device) || join_) {
    co_return eplog::Fail(ErrorCode::kBusy, name + " has been replaced by somebody else");
  }
  join_ = Join{device, &replacement, RandomUuid(core_.random), *older_epoch};
  Begin();
  Task<void> idle = Idle();
  co_await idle;
  status = core_.Running();
  EPLOG_CO_TRY(status);
  if (!core_.members.live(device)) {
    co_return eplog::Fail(ErrorCode::kDeviceFailed,
                          replacement.name() + " failed at once: " + Reason(device));
  }
  // The first entry of the new epoch, so that a checkpoint may be of it.
  Task<Status> mark = appender_.AppendMark();
  co_return co_await mark;
}

// What is in flight has ended and does not mention it, since it was lost before.
void Membership::TakeIn(const Join& join) {
  const DeviceIndex index = join.index;
  core_.members.Join(index, *join.device);
  core_.devices_.Joined(index, appender_.next_place());
  const std::string name = core_.geometry.DeviceName(index);
  core_.Tell(EventKind::kRebuildStarted, name, name + " has been replaced and is being rebuilt");
  reasons_[index.value].clear();
  failed_ &= ~Bit(index);
  superblocks_.Join(index);
  std::vector<MemberEntry> members = superblocks_.current().members;
  older_epoch_ = std::max(older_epoch_, join.older_epoch);
  const uint64_t joined = NextEpoch();
  members[index.value] = {join.uuid, MemberState::kJoining, joined};
  superblocks_.SetEpoch(superblocks_.current().epoch, std::move(members));
  checkpointer_.WantFullSince(joined);
  full_since_[index.value] = joined;
  joined_sequence_[index.value] = appender_.newest_sequence();
  joined_states_[index.value] = core_.devices().number();
  core_.has_checkpoint_from[index.value] = Core::kNoneYet;
  if (!core_.geometry.IsLog(index)) {
    core_.state->SetJoined(index, joined);
    core_.state->ForgetSsd(index);
    core_.space.Reset(index);
    core_.rings.Reset(index);
  }
}

uint64_t Membership::CommitUpto() const {
  uint64_t upto = 0;
  for (uint8_t i = 0; i < core_.geometry.devices(); ++i) {
    if (!core_.devices().IsJoining(DeviceIndex(i))) {
      continue;
    }
    upto = std::max(upto, joined_sequence_[i]);
    if (i < core_.geometry.n) {
      upto = std::max(upto, core_.state->newest_absent_member(DeviceIndex(i)));
    }
  }
  return upto;
}

bool Membership::NothingMissing(DeviceIndex device) const {
  const PendingTable& pending = core_.state->pending;
  const LogStripeId oldest = pending.FirstLive();
  const bool ssd = !core_.geometry.IsLog(device);
  return (oldest == kNone || pending.SequenceOf(oldest) > CommitUpto() ||
          core_.canary(Canary::kRebuildForgetsLog)) &&
         (!ssd || core_.state->absent(device) == 0) && !core_.devices().IsUnverified(device) &&
         admission_.NoneBefore(joined_states_[device.value]);
}

bool Membership::FullCounts(DeviceIndex device, uint64_t upto) const {
  return checkpointer_.FullCounts(full_since_[device.value], upto);
}

Task<bool> Membership::TryOk(DeviceIndex device, uint64_t upto) {
  Task<void> quiet = appender_.Pause();
  co_await quiet;
  // What a crash could still undo decides nothing.
  Task<Status> flush = flusher_.FlushAll();
  static_cast<void>(co_await flush);  // a failed one has stopped the array
  const bool ok = !core_.devices().changing() && !core_.stop_error &&
                  core_.devices().IsJoining(device) && NothingMissing(device) &&
                  (core_.canary(Canary::kJoinedOkEarly) || FullCounts(device, upto));
  if (ok) {
    core_.devices_.BecomesOk(device);  // row changes that were taken before may carry `absent`
    Begin();
  }
  appender_.Unpause();
  Task<void> idle = Idle();
  co_await idle;
  if (ok && core_.members.live(device) && core_.Running().ok()) {  // not lost in that very change
    ++core_.hooks.devices_joined;
    const std::string name = core_.geometry.DeviceName(device);
    core_.Tell(EventKind::kRebuildFinished, name, name + " has been rebuilt and counts again");
  }
  co_return ok;
}

}  // namespace eplog
