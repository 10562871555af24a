// Opening an array: assembly, recovery, taking devices back, and what force makes of damage.
#include <algorithm>
#include <cstring>

#include "engine/array_impl.h"
#include "engine/open/recovery.h"
#include "runtime/task_group.h"

namespace eplog {

namespace {

Canary CanaryOf(const EngineHooks* hooks) {
  return hooks != nullptr ? hooks->canary : Canary::kNone;
}

// Whatever can be read is to be read: what cannot be opened as it should be is tried as it was
// before. If nothing helps, the first refusal is told. A newer format is not for this program.
Task<Result<std::unique_ptr<Array>>> OpenByForce(EventLoop& loop, std::vector<Device*> devices,
                                                 const OpenOptions& options, EngineHooks* hooks) {
  Task<Result<Assembly>> assembling = Assemble(std::move(devices), CanaryOf(hooks), true);
  Result<Assembly> assembly = co_await assembling;
  EPLOG_CO_TRY(assembly);
  std::vector<Assembly> tries = std::move(assembly->fallbacks);
  tries.insert(tries.begin(), std::move(*assembly));
  std::optional<Error> refused;
  for (Assembly& one : tries) {
    auto array = std::make_unique<ArrayImpl>(loop, std::move(one), options, hooks);
    Task<Status> starting = array->Start();
    const Status status = co_await starting;
    if (status.ok()) {
      co_return std::unique_ptr<Array>(std::move(array));
    }
    refused = refused ? refused : status.error();
    if (refused->code == ErrorCode::kUnsupported || refused->code == ErrorCode::kInvalidArgument) {
      break;
    }
  }
  co_return Fail(std::move(*refused));
}

// What flushes promised is given up by who owns it, not by an opening. `failed`: the device that
// failed recovery's writes just now, if one did.
Status CheckLogs(const Assembly& assembly, const OpenOptions& options, Canary canary,
                 const std::optional<Error>& failed) {
  const bool given_up = canary == Canary::kLogsGivenUp;
  const std::string why = given_up ? "" : WhyLogsAreNeeded(assembly, options.without_logs);
  if (why.empty()) {
    return OkStatus();
  }
  const Geometry& g = assembly.winner.geometry;
  if (failed && failed->device >= static_cast<int32_t>(g.n)) {
    return Fail(ErrorCode::kTooManyFailures,
                g.DeviceName(DeviceIndex(static_cast<uint8_t>(failed->device))) +
                    " cannot be written (" + failed->ToString() +
                    "), and in journal mode 'log' what was flushed last may be only there: mount "
                    "with --read-only to read it");
  }
  return Fail(ErrorCode::kTooManyFailures,
              why +
                  ", or give that up by mounting --without each of them, or mount with "
                  "--read-only --force to read what is left");
}

// What failed recovery's writes just now may only have been unplugged. Where the others are not
// enough, or not whole, it is not given up for that.
Error WhyNotWithout(const Error& failed) {
  Error error;
  error.code = ErrorCode::kTooManyFailures;
  error.message = failed.ToString() +
                  ", and without it more members are missing, or not rebuilt yet, than parity can "
                  "replace: mount with --read-only to read it";
  return error;
}

}  // namespace

Task<Result<std::unique_ptr<Array>>> Array::Open(EventLoop& loop, std::vector<Device*> devices,
                                                 OpenOptions options) {
  return OpenHooked(loop, std::move(devices), std::move(options), nullptr);
}

Task<Result<std::unique_ptr<Array>>> OpenHooked(EventLoop& loop, std::vector<Device*> devices,
                                                OpenOptions options, EngineHooks* hooks) {
  if (options.read_only && options.force) {
    Task<Result<std::unique_ptr<Array>>> opening =
        OpenByForce(loop, std::move(devices), options, hooks);
    co_return co_await opening;
  }
  uint64_t failed = 0;
  std::optional<Error> failed_last;
  bool again = false;
  while (true) {
    Task<Result<Assembly>> assembling = Assemble(devices, CanaryOf(hooks));
    Result<Assembly> assembly = co_await assembling;
    if (!assembly.ok() && failed_last && assembly.error().code == ErrorCode::kTooManyFailures) {
      co_return Fail(WhyNotWithout(*failed_last));
    }
    EPLOG_CO_TRY(assembly);
    const Status logs = CheckLogs(*assembly, options, CanaryOf(hooks), failed_last);
    EPLOG_CO_TRY(logs);
    assembly->failed = failed;
    std::vector<Device*> members = assembly->devices;
    for (size_t i = 0; i < members.size(); ++i) {
      members[i] = members[i] != nullptr ? members[i] : assembly->away[i].device;
    }
    auto array = std::make_unique<ArrayImpl>(loop, std::move(*assembly), options, hooks);
    Task<Status> starting = array->Start();
    Status status = co_await starting;
    if (status.ok() && array->could_take_back() && !again) {
      // Now that the epoch has opened it can: nobody need think that a member is missing.
      again = true;
      EPLOG_CO_AWAIT(array->Close());
      continue;
    }
    if (status.ok()) {
      co_return std::unique_ptr<Array>(std::move(array));
    }
    const Error& error = status.error();
    const bool device_failed =
        (error.code == ErrorCode::kIo || error.code == ErrorCode::kDeviceFailed) &&
        error.device != kNoDevice;
    if (options.read_only || !device_failed) {
      co_return Fail(std::move(status).error());
    }
    // It failed a write or flush of recovery, which begins anew without it, as after a crash; and
    // without any other that did.
    failed_last = error;
    const uint64_t out = array->failed_mask() | uint64_t{1} << error.device;
    failed |= out;
    for (size_t i = 0; i < members.size(); ++i) {
      if ((out >> i & 1) != 0) {
        std::erase(devices, members[i]);
      }
    }
  }
}

Task<Status> ArrayImpl::Start() {
  Task<Status> starting = RecoverAndRun();
  Status status = co_await starting;
  if (!status.ok()) {
    Task<void> draining = core_.rings.Drain();
    co_await draining;
  }
  co_return status;
}

Task<Status> ArrayImpl::RecoverAndRun() {
  const uint64_t start = core_.loop.NowUs();
  const bool writing = !core_.options.read_only;
  Status status = WriteBuffer::Check(core_, core_.options.buffers);
  EPLOG_CO_TRY(status);
  if (writing) {
    // I8: a killed process leaves unflushed writes that reads would take for durable.
    EPLOG_CO_AWAIT(core_.members.FlushMask(core_.members.live_mask()));
  }
  Recovery recovery(core_, assembly_);
  EPLOG_CO_AWAIT(recovery.Analyse());
  if (writing) {
    status = recovery.MayGoOn();
    EPLOG_CO_TRY(status);
    Task<void> taking = TakeBack();
    co_await taking;
    EPLOG_CO_AWAIT(recovery.Repair(superblocks_, checkpointer_));
  } else {
    recovery.MendInRam();
  }
  appender_.Open(recovery.epoch(), recovery.position(), recovery.checkpoint_place(), flusher_);
  flusher_.Open(recovery.position().sequence, recovery.position().place);
  checkpointer_.Open(recovery.checkpoint_sequence());
  entries_replayed_ = recovery.entries_replayed();
  recovery_us_ = core_.loop.NowUs() - start;
  core_.last_request_us = core_.loop.NowUs();  // idleness is counted from here
  if (writing) {
    membership_.Open(recovery.position().sequence);
    core_.loop.Spawn(appender_.Run());
    EPLOG_CHECK(superblocks_.current().base == recovery.epoch(),
                "I11: the epoch is marked as opened before the first foreground write");
    keeper_.Start();
    buffer_.Open();
    discarder_.Open();
    rebuilder_.Open();
    reader_.set_on_wrong([this](StripeIndex stripe) { healer_.Report(stripe); });
    healer_.Open();
    watch_.Open();
    const std::vector<Recovery::Salvaged> salvaged = recovery.TakeSalvaged();
    Task<uint64_t> again = WriteAgain(salvaged);
    const uint64_t written = co_await again;
    recovery.TellDropped(written);
    // Only now: what is written again may lie behind a volume's end, where this cleans up.
    volumes_.Open();
  } else {
    std::vector<Recovery::Salvaged> salvaged = recovery.TakeSalvaged();
    recovery.TellDropped(salvaged.size());
    for (Recovery::Salvaged& chunk : salvaged) {
      reader_.ReadInstead(chunk.chunk, std::move(chunk.content));
    }
    membership_.NoteJoining();
    OpenBeyond();
  }
  co_return OkStatus();
}

// Devices that were not there at an earlier opening are part of the epoch that is to begin (those
// that failed or were taken out while the array ran are not, I7): as joining ones, since they miss
// what was written meanwhile. Nothing of what they say of the log is believed: their rings are
// wiped before, and a log device has nothing that is needed once what is pending now is committed.
Task<void> ArrayImpl::TakeBack() {
  const Geometry& g = core_.geometry;
  // While some know nothing of the epoch that calls it away, the next opening may be theirs, with
  // this device as one of them: then what its ring holds may be what is needed. While that epoch
  // has not opened, its log or ring may have what no ring got yet.
  const Superblock& winner = assembly_.winner;
  const bool may =
      (assembly_.settled && winner.epoch == winner.base) || core_.canary(Canary::kReturnUnopened);
  for (uint8_t i = 0; i < g.devices() && core_.options.take_back; ++i) {
    const DeviceIndex index(i);
    const Assembly::Away& away = assembly_.away[i];
    if (away.device == nullptr || core_.members.live(index) ||
        superblocks_.current().members[i].state != MemberState::kLost) {
      continue;
    }
    if (!may) {
      could_take_back_ = true;
      continue;
    }
    // What it has in a cache must not pass for durable.
    Task<Status> flushing = away.device->Flush();
    Status status = co_await flushing;
    if (status.ok() && !g.IsLog(index)) {
      Task<Status> wiping =
          membership_.WipeArea(*away.device, g.ring_offset_bytes, g.ring_blocks * kBlockBytes);
      status = co_await wiping;
    }
    if (!status.ok()) {
      core_.Tell(EventKind::kDegraded, g.DeviceName(index),
                 g.DeviceName(index) + " is back and cannot be used: " + status.error().ToString());
      assembly_.failed |= uint64_t{1} << i;
      continue;
    }
    core_.members.Join(index, *away.device);
    core_.has_checkpoint_from[i] = Core::kNoneYet;
    NoteShown(index, *away.device);
    superblocks_.Return(index, away.generation, away.damaged);
    core_.Tell(EventKind::kRebuildStarted, g.DeviceName(index),
               g.DeviceName(index) + " is back: what it missed is being written to it");
  }
}

// By force: more than m devices are missing, or what is there is damaged beyond what they replace.
// The tables are known; of what they name, devices that missed something may have a part.
void ArrayImpl::OpenBeyond() {
  if (!assembly_.why_older.empty()) {
    core_.NoteLogDamage(assembly_.why_older);
  }
  if (!assembly_.beyond.empty() && (core_.devices().log_mask() & ~core_.devices().joining()) == 0) {
    core_.NoteLogDamage(
        "no log device is there that is whole: the newest entries of the log may have been on "
        "these alone; bring one of them back");
  }
  if (assembly_.beyond.empty() && core_.log_damage.empty()) {
    return;
  }
  // Who was out before did not go on with the others, unless they know nothing of that.
  const Superblock& winner = assembly_.winner;
  uint32_t nowhere = 0;
  for (uint8_t i = 0; i < core_.geometry.devices(); ++i) {
    const bool was_out = winner.epoch == winner.base && !winner.members[i].is_live();
    const bool is_here = assembly_.away[i].device != nullptr || core_.members.live(DeviceIndex(i));
    nowhere += is_here || was_out ? 0 : 1;
    // A log device lacks what was logged since, and its place may bear anything.
    if (assembly_.away[i].device != nullptr && i < core_.geometry.n &&
        !core_.members.live(DeviceIndex(i))) {
      membership_.Lend(DeviceIndex(i), *assembly_.away[i].device);
    }
  }
  core_.left_behind = nowhere >= core_.geometry.devices() - core_.geometry.m;
  Error error;
  error.code = assembly_.beyond.empty() ? ErrorCode::kCorrupt : ErrorCode::kTooManyFailures;
  error.message = assembly_.beyond.empty() ? core_.log_damage : assembly_.beyond;
  core_.Stop(error);
}

}  // namespace eplog
