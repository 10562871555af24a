// What an operator asks of an open array: commits, checkpoints, discards, devices.
#include <algorithm>

#include "engine/array_impl.h"
#include "engine/open/loss_finder.h"
#include "runtime/task_group.h"

namespace eplog {

Task<Status> ArrayImpl::Commit(Progress progress) {
  Status status = Writable();
  EPLOG_CO_TRY(status);
  const Request request(*this);
  EPLOG_CO_AWAIT(DrainAll());
  Task<Status> committing = CommitUpto(UINT64_MAX, std::move(progress));
  co_return co_await committing;
}

// What recovery found whole of records that were not, as writes like any other, flushed before the
// array is open; returns how many were. What cannot be written reads as before.
Task<uint64_t> ArrayImpl::WriteAgain(std::span<const Recovery::Salvaged> salvaged) {
  constexpr size_t kAtOnce = 32;
  uint64_t written = 0;
  TaskGroup writes(core_.loop);
  for (const Recovery::Salvaged& chunk : salvaged) {
    writes.Start(WriteAgain(chunk.chunk, chunk.content, written));
    Task<void> below = writes.WaitBelow(kAtOnce);
    co_await below;
  }
  Task<Status> all = writes.Wait();
  Status status = co_await all;  // each that fails is missing in the count
  if (written != 0) {
    Task<Status> flush = flusher_.FlushAll();
    status = co_await flush;
    written = status.ok() ? written : 0;
  }
  core_.hooks.recovery_salvaged += written;
  co_return written;
}

Task<Status> ArrayImpl::WriteAgain(ChunkIndex chunk, const Buffer& content, uint64_t& written) {
  const StripeIndex stripe = core_.geometry.StripeOf(chunk);
  Grant grant(admission_);
  EPLOG_CO_AWAIT(admission_.Admit(grant, writer_.NeedOfChunk(chunk)));
  // The row's lock keeps its extent from being freed meanwhile.
  Task<KeyedLocks::Guard> row_locking = writer_.rows.Lock(stripe.value);
  const KeyedLocks::Guard row = co_await row_locking;
  Task<KeyedLocks::Guard> locking = writer_.chunks.Lock(chunk.value);
  const KeyedLocks::Guard lock = co_await locking;
  const ExtentIndex extent(stripe.value / core_.geometry.extent_stripes);
  const Volume* volume = core_.state->volumes.Find(core_.state->volumes.OwnerOf(extent).volume);
  if (volume == nullptr || volume->deleting) {
    co_return Fail(ErrorCode::kNotFound, "its volume is gone");
  }
  Task<Status> write = writer_.WriteAdmitted(chunk, grant, content.span());
  Status status = co_await write;
  written += status.ok() ? 1 : 0;
  co_return status;
}

// With no log device left, what is flushed has redundancy only once it is committed. The flush
// itself stands without that.
Task<void> ArrayImpl::CommitFlushed(uint64_t upto) {
  if (core_.devices().log_mask() != 0) {
    co_return;
  }
  // Many flushes share a commit.
  Task<AsyncMutex::Guard> locking = flush_commits_.Lock();
  const AsyncMutex::Guard turn = co_await locking;
  const PendingTable& pending = core_.state->pending;
  const LogStripeId oldest = pending.FirstLive();
  if (oldest != kNone && pending.SequenceOf(oldest) <= upto) {
    Task<Status> committing = CommitUpto(upto, Progress());
    static_cast<void>(co_await committing);  // what cannot be committed stays pending
  }
}

Task<Status> ArrayImpl::CommitUpto(uint64_t upto, Progress progress) {
  EPLOG_CO_AWAIT(flusher_.FlushAll());
  // What failed may have been moved on in the log meanwhile: it looks newer than it is, and what
  // was moved is to be stable.
  std::vector<StripeIndex> stripes = committer_.TakeFailures();
  if (!stripes.empty()) {
    EPLOG_CO_AWAIT(flusher_.FlushAll());
  }
  upto = std::min(upto, flusher_.stable());
  const auto failed = static_cast<std::ptrdiff_t>(stripes.size());  // in order
  for (const StripeIndex stripe : committer_.OldestStripes(SIZE_MAX, upto)) {
    if (!std::binary_search(stripes.begin(), stripes.begin() + failed, stripe)) {
      stripes.push_back(stripe);
    }
  }
  Task<Status> all = CommitStripes(stripes, std::move(progress));
  Status status = co_await all;
  // A stripe that is written to, or whose devices change, while its parity is made stays pending.
  // Its turn comes again here, but not for ever: who writes to it may do so without end.
  constexpr int kRounds = 8;
  stripes = committer_.OldestStripes(SIZE_MAX, upto);
  for (int i = 0; i < kRounds && !stripes.empty(); ++i) {
    Task<Status> again = CommitStripes(stripes, Progress());
    Status rest = co_await again;
    Status running = core_.Running();
    EPLOG_CO_TRY(running);
    if (status.ok()) {
      status = std::move(rest);
    }
    stripes = committer_.OldestStripes(SIZE_MAX, upto);
  }
  EPLOG_CO_TRY(status);
  if (!stripes.empty()) {
    co_return eplog::Fail(ErrorCode::kBusy,
                          std::to_string(stripes.size()) +
                              " stripes were written to each time that their parity was made; the "
                              "others are committed");
  }
  Task<Status> last = flusher_.FlushAll();
  co_return co_await last;
}

// The first failure; the others are committed all the same.
Task<Status> ArrayImpl::CommitStripes(std::span<const StripeIndex> stripes, Progress progress) {
  std::span<const StripeIndex> rest(stripes);
  Status failure;
  while (!rest.empty()) {
    const size_t count = std::min<size_t>(rest.size(), core_.geometry.commit_width());
    // Room as for the foreground: what is closed to it belongs to the keeper's own commits.
    Grant grant(admission_);
    EPLOG_CO_AWAIT(admission_.Admit(
        grant, {.blocks = core_.commit_cost.Blocks(
                    core_.geometry.commit_width(),
                    uint64_t{core_.geometry.commit_width()} * core_.geometry.k())}));
    Task<Status> commit = committer_.Commit(rest.first(count));
    Status status = co_await commit;
    if (!status.ok() && status.error().code == ErrorCode::kBusy) {
      co_await core_.loop.Yield();
      continue;  // the log was short after all
    }
    Status running = core_.Running();
    EPLOG_CO_TRY(running);
    if (failure.ok()) {
      failure = std::move(status);
    }
    rest = rest.subspan(count);
    if (progress) {
      progress(stripes.size() - rest.size(), stripes.size());
    }
  }
  co_return failure;
}

Task<Status> ArrayImpl::CheckNotInUse(Device& device) {
  Status status = Readable();
  EPLOG_CO_TRY(status);
  const Request request(*this);
  Task<Status> checking = membership_.CheckNotInUse(device);
  co_return co_await checking;
}

Task<Status> ArrayImpl::FailDevice(uint32_t device, std::string reason) {
  Status status = Writable();
  EPLOG_CO_TRY(status);
  const Request request(*this);
  if (device >= core_.geometry.devices()) {
    co_return Fail(ErrorCode::kInvalidArgument, "no such device");
  }
  Task<Status> failing =
      membership_.Fail(DeviceIndex(static_cast<uint8_t>(device)), std::move(reason));
  co_return co_await failing;
}

Task<Status> ArrayImpl::ReplaceDevice(uint32_t device, Device& replacement) {
  Status status = Writable();
  EPLOG_CO_TRY(status);
  const Request request(*this);
  if (device >= core_.geometry.devices()) {
    co_return Fail(ErrorCode::kInvalidArgument, "no such device");
  }
  EPLOG_CO_AWAIT(membership_.Replace(DeviceIndex(static_cast<uint8_t>(device)), replacement));
  NoteShown(DeviceIndex(static_cast<uint8_t>(device)), replacement);
  rebuilder_.Wake();
  co_return OkStatus();
}

Task<Result<uint64_t>> ArrayImpl::DiscardFree(Progress progress) {
  Status status = Writable();
  EPLOG_CO_TRY(status);
  const Request request(*this);
  Task<Result<uint64_t>> discarding = discarder_.DiscardAll(std::move(progress));
  co_return co_await discarding;
}

Task<Status> ArrayImpl::Checkpoint(CheckpointKind kind) {
  Status status = Writable();
  EPLOG_CO_TRY(status);
  const Request request(*this);
  EPLOG_CO_AWAIT(DrainAll());
  Task<Status> checkpoint = checkpointer_.Checkpoint(kind);
  co_return co_await checkpoint;
}

Task<Result<LossReport>> ArrayImpl::FindLost() {
  Status status = Readable();
  EPLOG_CO_TRY(status);
  const Request request(*this);
  LossFinder finder(core_, reader_, closing_);
  Task<Result<LossReport>> finding = finder.Find();
  co_return co_await finding;
}

}  // namespace eplog
