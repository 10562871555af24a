#include "engine/checkpoint/checkpointer.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/crc32c.h"
#include "engine/checkpoint/checkpoint_pages.h"
#include "engine/core/traffic.h"
#include "engine/log/flusher.h"
#include "runtime/task_group.h"

namespace eplog {
namespace {

constexpr size_t kMaxRuns = 32;  // the root names all of them
constexpr size_t kBatchesInFlight = 2;
constexpr uint64_t kMaxPauseUs = 20'000;

}  // namespace

void Checkpointer::Adopt(const CheckpointRoot& root, uint64_t root_block) {
  const uint64_t area = core_.geometry.metadata_blocks;
  runs_ = root.runs;
  first_block_ = runs_.back().first_block;
  used_blocks_ = (root_block + area - first_block_) % area + 1;
  full_epoch_ = root.epoch.number;  // of its oldest run too, or WantFullSince says more
}

// m + 1 live SSDs, others each time, so that none wears for all.
uint64_t Checkpointer::ChooseSsds(uint64_t generation) const {
  const uint32_t n = core_.geometry.n;
  uint64_t mask = 0;
  uint32_t chosen = 0;
  for (uint32_t i = 0; i < n && chosen < core_.geometry.m + 1; ++i) {
    const DeviceIndex ssd(static_cast<uint8_t>((generation * (core_.geometry.m + 1) + i) % n));
    if (core_.members.live(ssd)) {
      mask |= uint64_t{1} << ssd.value;
      ++chosen;
    }
  }
  return mask;
}

// While those since the last full one are shorter than it, and where a full one of any size fits
// behind it.
bool Checkpointer::TakeIncremental(CheckpointKind kind) const {
  if (kind == CheckpointKind::kFull || runs_.empty() || runs_.size() >= kMaxRuns ||
      full_epoch_ < full_since_ || changes_taken_) {
    return false;
  }
  const uint64_t bytes = Snapshot::MaxBytes(*core_.state, false);
  const uint64_t blocks = DivideUp(bytes, kPagePayloadBytes) + 1;
  if (used_blocks_ + blocks + core_.geometry.max_checkpoint_blocks() >
      core_.geometry.metadata_blocks) {
    ++core_.hooks.metadata_full;
    return false;
  }
  uint64_t since = bytes;
  for (size_t i = 0; i + 1 < runs_.size(); ++i) {
    since += runs_[i].stream_bytes;
  }
  return kind == CheckpointKind::kIncremental || core_.hooks.incremental_checkpoints ||
         since < runs_.back().stream_bytes;
}

Task<Status> Checkpointer::WriteCopy(DeviceIndex ssd, uint64_t block,
                                     std::span<const std::byte> pages, IoKind kind) {
  Task<Status> write =
      core_.members.WriteBytes(ssd, core_.geometry.MetadataOffset(block), pages, kind);
  Status status = co_await write;
  core_.traffic.ssd_metadata_bytes += status.ok() ? pages.size() : 0;
  co_return core_.members.Absorb(std::move(status));
}

Task<Status> Checkpointer::WriteBatch(uint64_t block, Buffer pages, uint64_t ssd_mask,
                                      IoKind kind) {
  TaskGroup group(core_.loop);
  for (uint8_t i = 0; i < core_.geometry.n; ++i) {
    if ((ssd_mask >> i & 1) != 0) {
      group.Start(WriteCopy(DeviceIndex(i), block, pages.span(), kind));
    }
  }
  Task<Status> all = group.Wait();
  co_return co_await all;
}

// As long as the last piece took, somebody else may have the devices.
Task<void> Checkpointer::Pace(uint64_t since_us) {
  co_await core_.loop.Yield();
  const uint64_t now = core_.loop.NowUs();
  const bool wanted = in_haste_ != 0 || core_.space_changed.has_waiters() || appender_.blocked();
  if (!wanted && !core_.stop_error) {
    co_await core_.loop.Sleep(std::min(now - since_us, kMaxPauseUs));
  }
}

// Encodes a piece while the one before is being written. Sets the fields of `run` that follow from
// the stream.
Task<Status> Checkpointer::WriteRun(Snapshot& snapshot, RunDescriptor& run, bool background) {
  const uint64_t area = core_.geometry.metadata_blocks;
  PageHeader header{PageKind::kRun, run.generation, run.random, run.first_block, 0, 0};
  std::vector<std::byte> stream;
  TaskGroup group(core_.loop);
  bool more = true;
  while ((more || !stream.empty()) && !group.failed()) {
    const uint64_t began_us = core_.loop.NowUs();
    const uint64_t fit = std::min(kBatchBlocks, area - header.block);
    while (more && stream.size() < fit * kPagePayloadBytes) {
      const uint64_t step = core_.hooks.checkpoint_step_bytes;
      const uint64_t left = fit * kPagePayloadBytes - stream.size();
      more = snapshot.Next(stream, step == 0 ? left : std::min(step, left));
      if (step != 0) {
        co_await core_.loop.Sleep(core_.random.Below(200));
      }
    }
    const uint64_t pages = std::min(fit, DivideUp(stream.size(), kPagePayloadBytes));
    Buffer batch = core_.pool.Get(pages * kBlockBytes);
    const uint64_t block = header.block;
    std::span<const std::byte> rest(stream);
    for (uint64_t i = 0; i < pages; ++i) {
      const auto page = batch.span().subspan(i * kBlockBytes, kBlockBytes);
      const auto payload = rest.first(std::min(rest.size(), kPagePayloadBytes));
      std::memcpy(page.data() + kPageHeaderBytes, payload.data(), payload.size());
      header.payload_bytes = static_cast<uint32_t>(payload.size());
      FinishPage(header, core_.identity.array_uuid, page);
      rest = rest.subspan(payload.size());
      header.block = (header.block + 1) % area;
      ++header.index;
    }
    const size_t taken = stream.size() - rest.size();
    run.stream_crc = Crc32c(std::span(stream).first(taken), run.stream_crc);
    run.stream_bytes += taken;
    run.blocks += pages;
    stream.erase(stream.begin(), stream.begin() + static_cast<std::ptrdiff_t>(taken));
    Task<void> below = group.WaitBelow(kBatchesInFlight);
    co_await below;
    group.Start(WriteBatch(block, std::move(batch), run.ssd_mask, IoKind::kCheckpointPage));
    if (background) {
      Task<void> pace = Pace(began_us);
      co_await pace;
    } else {
      co_await core_.loop.Yield();
    }
  }
  Task<Status> all = group.Wait();
  co_return co_await all;
}

Task<Status> Checkpointer::WriteRoot(const Appender::Position& position, Written& written) {
  CheckpointRoot root;
  root.epoch = position.epoch;
  root.sequence = position.sequence;
  root.place = position.place;
  root.next_volume_id = core_.state->volumes.next_id();
  root.runs = written.runs;
  // As they will be when this checkpoint counts: with the root and the superblocks that name it.
  Traffic traffic = core_.CurrentTraffic();
  const uint64_t ssds = core_.members.live_mask() & ((uint64_t{1} << core_.geometry.n) - 1);
  traffic.ssd_metadata_bytes +=
      static_cast<uint64_t>(std::popcount(written.pointer.ssd_mask)) * kBlockBytes +
      static_cast<uint64_t>(std::popcount(ssds)) * kSuperblockCopyBytes;
  traffic.log_header_bytes +=
      static_cast<uint64_t>(std::popcount(core_.devices().log_mask())) * kSuperblockCopyBytes;
  ++traffic.checkpoints;
  root.lifetime_counters = TrafficToCounters(AddTraffic(core_.lifetime_before, traffic));
  const std::vector<std::byte> bytes = EncodeRoot(root);
  EPLOG_CHECK(bytes.size() <= kPagePayloadBytes, "a root fits one page");
  CheckpointPointer& pointer = written.pointer;
  pointer.root_crc = Crc32c(bytes);
  Buffer page = core_.pool.Get(kBlockBytes);
  std::memcpy(page.data() + kPageHeaderBytes, bytes.data(), bytes.size());
  FinishPage({PageKind::kRoot, pointer.generation, pointer.random, pointer.root_block, 0,
              static_cast<uint32_t>(bytes.size())},
             core_.identity.array_uuid, page.span());
  Task<Status> write =
      WriteBatch(pointer.root_block, std::move(page), pointer.ssd_mask, IoKind::kCheckpointRoot);
  co_return co_await write;
}

Task<Result<Checkpointer::Written>> Checkpointer::WritePages(const Appender::Position& position,
                                                             CheckpointKind kind, bool background) {
  const uint64_t area = core_.geometry.metadata_blocks;
  const bool full = !TakeIncremental(kind);
  written_us_ = core_.loop.NowUs();
  RunDescriptor run;
  run.full = full;
  run.generation = superblocks_.current().checkpoint.generation + 1;
  run.random = core_.random.Next();
  const StatesNumber states = core_.devices().number();
  run.ssd_mask = ChooseSsds(run.generation);
  for (uint8_t i = 0; i < core_.geometry.n; ++i) {
    uint64_t& from = core_.has_checkpoint_from[i];
    from = from == Core::kNoneYet && (run.ssd_mask >> i & 1) != 0 ? run.generation : from;
  }
  run.first_block = NextBlock();
  Status status;
  changes_taken_ = true;
  {
    Snapshot snapshot(*core_.state, full, position.sequence,
                      !full && core_.canary(Canary::kCheckpointWithoutPendings));
    Task<Status> write = WriteRun(snapshot, run, background);
    status = co_await write;
  }
  EPLOG_CO_TRY(status);
  EPLOG_CHECK(used_blocks_ + run.blocks + 1 <= area, "a checkpoint overwrites the one that counts");
  Written written;
  written.states = states;
  written.full = full;
  if (!full) {
    written.runs = runs_;
  }
  written.runs.insert(written.runs.begin(), run);
  written.pointer.generation = run.generation;
  written.pointer.random = run.random;
  written.pointer.ssd_mask = run.ssd_mask;
  written.pointer.root_block = (run.first_block + run.blocks) % area;
  written.pointer.root_blocks = 1;
  EPLOG_CO_AWAIT(WriteRoot(position, written));
  EPLOG_CO_AWAIT(core_.members.FlushMask(run.ssd_mask));
  written_blocks_ = (run.blocks + 1) * static_cast<uint64_t>(std::popcount(run.ssd_mask));
  ++(full ? core_.hooks.full_checkpoints_written : core_.hooks.incremental_checkpoints_written);
  co_return written;
}

// From now on what the older pointer named is void.
void Checkpointer::Supersede(const Written& written, const Appender::Position& position) {
  runs_ = written.runs;
  changes_taken_ = false;
  if (written.full) {
    full_epoch_ = position.epoch.number;
    full_covered_ = position.sequence;
  }
  const uint64_t area = core_.geometry.metadata_blocks;
  first_block_ = runs_.back().first_block;
  used_blocks_ = (written.pointer.root_block + area - first_block_) % area + 1;
}

Task<Status> Checkpointer::WriteAlone(const Appender::Position& position) {
  Task<Result<Written>> writing = WritePages(position, CheckpointKind::kAuto, false);
  Result<Written> written = co_await writing;
  EPLOG_CO_TRY(written);
  superblocks_.SetCheckpoint(written->pointer);
  Supersede(*written, position);
  co_return OkStatus();
}

// Of each run one SSD that has been there all the time: where each was lost and replaced meanwhile,
// a run is nowhere as a whole.
bool Checkpointer::IsSomewhere(const Written& written) const {
  return std::all_of(written.runs.begin(), written.runs.end(), [&](const RunDescriptor& run) {
    bool found = false;
    for (uint8_t i = 0; i < core_.geometry.n; ++i) {
      found = found || ((run.ssd_mask >> i & 1) != 0 &&
                        core_.devices().IsCurrent(DeviceIndex(i), written.states));
    }
    return found;
  });
}

// All that must be durable before superblocks name it.
Task<Result<Checkpointer::Written>> Checkpointer::WriteFlushed(const Appender::Position& position,
                                                               CheckpointKind kind,
                                                               bool background) {
  Task<Result<Written>> writing = WritePages(position, kind, background);
  Result<Written> written = co_await writing;
  if (!written.ok()) {
    core_.Stop(written.error());
    co_return written;
  }
  Status status;
  if (!core_.canary(Canary::kCheckpointUnstable)) {
    EPLOG_CO_AWAIT(flusher_.FlushForCheckpoint(position.sequence));
  }
  if (core_.canary(Canary::kLogFreedEarly)) {
    Counts(position);
  }
  // A device that was lost on the way lacks some of it: the others have that in writing before they
  // name this checkpoint, or it would be believed to have all. With more than m lost it may be
  // nowhere at all, and is not named.
  Task<void> known = core_.Settled();
  co_await known;
  status = core_.Running();
  EPLOG_CO_TRY(status);
  co_return written;
}

Task<Status> Checkpointer::Checkpoint(CheckpointKind kind, bool background) {
  in_haste_ += background ? 0 : 1;
  Task<AsyncMutex::Guard> locking = turn_.Lock();
  const AsyncMutex::Guard guard = co_await locking;
  in_haste_ -= background ? 0 : 1;
  Status status = core_.Running();
  EPLOG_CO_TRY(status);
  // The state at this very moment; entries that complete from now on are not in it.
  Appender::Position position = appender_.applied();
  if (position.sequence == covered_ && kind == CheckpointKind::kAuto) {
    co_return OkStatus();
  }
  Result<Written> written = Written();
  do {
    position = appender_.applied();
    Task<Result<Written>> writing = WriteFlushed(position, kind, background);
    written = co_await writing;
    EPLOG_CO_TRY(written);
    kind = CheckpointKind::kFull;  // another try builds on nothing
  } while (!IsSomewhere(*written));
  superblocks_.SetCheckpoint(written->pointer);
  Task<Status> write = superblocks_.Write();
  status = co_await write;
  if (!status.ok()) {
    core_.Stop(status.error());
    co_return status;
  }
  Task<void> settling = core_.Settled();
  co_await settling;
  status = core_.Running();
  EPLOG_CO_TRY(status);
  Supersede(*written, position);
  Counts(position);
  ++core_.traffic.checkpoints;
  co_return OkStatus();
}

void Checkpointer::Counts(const Appender::Position& position) {
  if (!core_.canary(Canary::kCheckpointUnstable)) {
    flusher_.CheckpointCounts(position.sequence);
  }
  covered_ = position.sequence;
  core_.rings.CheckpointCounts(position.sequence);
  appender_.CheckpointCounts(position.place);
  core_.space_changed.NotifyAll();
}

}  // namespace eplog
