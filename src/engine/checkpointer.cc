#include "engine/checkpointer.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/crc32c.h"
#include "engine/flusher.h"
#include "runtime/task_group.h"

namespace eplog {
namespace {

constexpr uint64_t kBatchBlocks = 256;  // pages written at once

// Traffic as a list, in the order of its declaration: how it lies in a checkpoint root.
template <typename T, typename Visit>
void ForEachCounter(T& traffic, Visit&& visit) {
  visit(traffic.user_writes);
  visit(traffic.user_bytes_written);
  visit(traffic.user_reads);
  visit(traffic.user_bytes_read);
  visit(traffic.user_flushes);
  visit(traffic.full_stripe_writes);
  visit(traffic.log_stripes);
  visit(traffic.log_stripe_members);
  visit(traffic.log_stripes_dead_early);
  visit(traffic.log_appends);
  visit(traffic.commits);
  visit(traffic.committed_stripes);
  visit(traffic.commit_read_bytes);
  visit(traffic.checkpoints);
  visit(traffic.buffer_hits);
  visit(traffic.ssd_data_bytes);
  visit(traffic.ssd_parity_bytes);
  visit(traffic.ssd_metadata_bytes);
  visit(traffic.ssd_repair_bytes);
  visit(traffic.log_chunk_bytes);
  visit(traffic.log_header_bytes);
  visit(traffic.md_equivalent_ssd_bytes);
  visit(traffic.user_trims);
  visit(traffic.user_bytes_trimmed);
}
static_assert(sizeof(Traffic) == 24 * sizeof(uint64_t), "every counter is kept in the checkpoint");

}  // namespace

std::vector<uint64_t> TrafficToCounters(const Traffic& traffic) {
  std::vector<uint64_t> counters;
  ForEachCounter(traffic, [&](uint64_t value) { counters.push_back(value); });
  return counters;
}

Traffic CountersToTraffic(const std::vector<uint64_t>& counters) {
  Traffic traffic;
  size_t i = 0;
  ForEachCounter(traffic, [&](uint64_t& value) {
    value = i < counters.size() ? counters[i] : 0;
    ++i;
  });
  return traffic;
}

Traffic AddTraffic(const Traffic& a, const Traffic& b) {
  const std::vector<uint64_t> other = TrafficToCounters(b);
  Traffic sum = a;
  size_t i = 0;
  ForEachCounter(sum, [&](uint64_t& value) { value += other[i++]; });
  return sum;
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

Task<Status> Checkpointer::WriteBatch(uint64_t block, std::span<const std::byte> pages,
                                      uint64_t ssd_mask, IoKind kind) {
  TaskGroup group(core_.loop);
  for (uint8_t i = 0; i < core_.geometry.n; ++i) {
    if ((ssd_mask >> i & 1) != 0) {
      group.Start(core_.members.WriteBytes(DeviceIndex(i), core_.geometry.MetadataOffset(block),
                                           pages, kind));
      core_.traffic.ssd_metadata_bytes += pages.size();
    }
  }
  Task<Status> all = group.Wait();
  co_return co_await all;
}

// Cuts a stream into pages from header.block on.
Task<Status> Checkpointer::WriteStream(std::span<const std::byte> stream, PageHeader header,
                                       uint64_t ssd_mask, IoKind kind) {
  while (!stream.empty()) {
    const uint64_t pages =
        std::min<uint64_t>(kBatchBlocks, DivideUp(stream.size(), kPagePayloadBytes));
    Buffer batch = core_.pool.Get(pages * kBlockBytes);
    const uint64_t first_block = header.block;
    for (uint64_t i = 0; i < pages; ++i) {
      const auto page = batch.span().subspan(i * kBlockBytes, kBlockBytes);
      const size_t bytes = std::min(stream.size(), kPagePayloadBytes);
      std::memcpy(page.data() + kPageHeaderBytes, stream.data(), bytes);
      header.payload_bytes = static_cast<uint32_t>(bytes);
      FinishPage(header, core_.identity.array_uuid, page);
      stream = stream.subspan(bytes);
      ++header.block;
      ++header.index;
    }
    Task<Status> write = WriteBatch(first_block, batch.span(), ssd_mask, kind);
    Status status = co_await write;
    EPLOG_CO_TRY(status);
  }
  co_return OkStatus();
}

CheckpointRoot Checkpointer::MakeRoot(const Appender::Position& position,
                                      const std::vector<std::byte>& stream,
                                      const CheckpointPointer& pointer, uint64_t run_block) const {
  CheckpointRoot root;
  root.epoch = position.epoch;
  root.sequence = position.sequence;
  root.place = position.place;
  root.next_volume_id = core_.state->volumes.next_id();
  RunDescriptor run;
  run.ssd_mask = pointer.ssd_mask;
  run.first_block = run_block;
  run.blocks = DivideUp(stream.size(), kPagePayloadBytes);
  run.stream_bytes = stream.size();
  run.stream_crc = Crc32c(stream);
  run.generation = pointer.generation;
  run.random = pointer.random;
  root.runs.push_back(run);
  root.lifetime_counters =
      TrafficToCounters(AddTraffic(core_.lifetime_before, core_.CurrentTraffic()));
  return root;
}

Task<Result<CheckpointPointer>> Checkpointer::WritePages(const Appender::Position& position,
                                                         std::vector<std::byte> stream) {
  CheckpointPointer pointer;
  pointer.generation = superblocks_.current().checkpoint.generation + 1;
  pointer.random = core_.random.Next();
  pointer.ssd_mask = ChooseSsds(pointer.generation);
  pointer.root_block = pointer.generation % 2 * (core_.geometry.metadata_blocks / 2);
  pointer.root_blocks = 1;
  const CheckpointRoot root = MakeRoot(position, stream, pointer, pointer.root_block + 1);
  const std::vector<std::byte> root_bytes = EncodeRoot(root);
  EPLOG_CHECK(root_bytes.size() <= kPagePayloadBytes, "a root fits one page");
  EPLOG_CHECK(1 + root.runs[0].blocks <= core_.geometry.metadata_blocks / 2,
              "a checkpoint fits its half");
  pointer.root_crc = Crc32c(root_bytes);
  written_blocks_ =
      (1 + root.runs[0].blocks) * static_cast<uint64_t>(std::popcount(pointer.ssd_mask));

  PageHeader header{
      PageKind::kRun, pointer.generation, pointer.random, pointer.root_block + 1, 0, 0};
  Task<Status> run = WriteStream(stream, header, pointer.ssd_mask, IoKind::kCheckpointPage);
  Status status = co_await run;
  EPLOG_CO_TRY(status);
  header = {PageKind::kRoot, pointer.generation, pointer.random, pointer.root_block, 0, 0};
  Task<Status> write_root =
      WriteStream(root_bytes, header, pointer.ssd_mask, IoKind::kCheckpointRoot);
  status = co_await write_root;
  EPLOG_CO_TRY(status);
  Task<Status> flush = core_.members.FlushMask(pointer.ssd_mask);
  status = co_await flush;
  EPLOG_CO_TRY(status);
  co_return pointer;
}

Task<Status> Checkpointer::Checkpoint(bool force) {
  Task<AsyncMutex::Guard> locking = turn_.Lock();
  const AsyncMutex::Guard guard = co_await locking;
  Status status = core_.Running();
  EPLOG_CO_TRY(status);
  // The state at this very moment; entries that complete from now on are not in it.
  const Appender::Position position = appender_.applied();
  if (position.sequence == covered_ && !force) {
    co_return OkStatus();
  }
  std::vector<std::byte> stream = EncodeState(*core_.state);
  if (!core_.canary(Canary::kCheckpointUnstable)) {
    Task<Status> flush = flusher_.FlushTo(position.sequence, true);
    status = co_await flush;
    EPLOG_CO_TRY(status);
  }
  Task<Result<CheckpointPointer>> writing = WritePages(position, std::move(stream));
  Result<CheckpointPointer> pointer = co_await writing;
  if (!pointer.ok()) {
    core_.Stop(pointer.error());
    co_return Fail(std::move(pointer).error());
  }
  if (core_.canary(Canary::kLogFreedEarly)) {
    Counts(position);
  }
  superblocks_.SetCheckpoint(*pointer);
  Task<Status> write = superblocks_.Write();
  status = co_await write;
  if (!status.ok()) {
    core_.Stop(status.error());
    co_return status;
  }
  Counts(position);
  ++core_.traffic.checkpoints;
  co_return OkStatus();
}

void Checkpointer::Counts(const Appender::Position& position) {
  EPLOG_CHECK(position.sequence <= flusher_.stable() || core_.canary(Canary::kCheckpointUnstable),
              "I9: a checkpoint holds only stable state");
  covered_ = position.sequence;
  core_.rings.CheckpointCounts(position.sequence);
  appender_.CheckpointCounts(position.place);
  core_.space_changed.NotifyAll();
}

// ----------------------------------------------------------------------------------------------
// loading
namespace {

struct StreamPlace {
  PageKind kind;
  uint64_t generation;
  uint64_t random;
  uint64_t first_block;
  uint64_t blocks;
};

bool InArea(const Geometry& g, uint64_t first, uint64_t blocks) {
  return blocks != 0 && first < g.metadata_blocks && blocks <= g.metadata_blocks - first;
}

bool IsPage(const Core& core, std::span<const std::byte> page, const StreamPlace& place,
            uint32_t index) {
  const Result<PageHeader> header = DecodePage(page, core.identity.array_uuid);
  return header.ok() && header->kind == place.kind && header->generation == place.generation &&
         header->random == place.random && header->block == place.first_block + index &&
         header->index == index;
}

// Page `index` into `page`, from whichever SSD of the mask has it whole.
Task<bool> ReadPage(Core& core, uint64_t ssd_mask, const StreamPlace& place, uint32_t index,
                    std::span<std::byte> page) {
  for (uint8_t i = 0; i < core.geometry.n; ++i) {
    if ((ssd_mask >> i & 1) == 0 || !core.members.live(DeviceIndex(i))) {
      continue;
    }
    const uint64_t offset = core.geometry.MetadataOffset(place.first_block + index);
    Task<Status> read = core.members.ReadBytes(DeviceIndex(i), offset, page);
    const Status status = co_await read;
    if (status.ok() && IsPage(core, page, place, index)) {
      co_return true;
    }
    core.members.CountCorrupt(DeviceIndex(i));
  }
  co_return false;
}

// The payloads of contiguous pages: in large reads from the first live SSD of the mask, and any
// page that is not whole there from another one.
Task<Result<std::vector<std::byte>>> ReadStream(Core& core, uint64_t ssd_mask, StreamPlace place,
                                                uint32_t crc) {
  std::vector<std::byte> stream;
  const uint64_t live = ssd_mask & core.members.live_mask();
  if (live == 0 || !InArea(core.geometry, place.first_block, place.blocks)) {
    co_return Fail(ErrorCode::kCorrupt, "no SSD that holds the newest checkpoint is there");
  }
  const DeviceIndex first_ssd(static_cast<uint8_t>(std::countr_zero(live)));
  uint32_t index = 0;
  while (index < place.blocks) {
    const uint64_t count = std::min<uint64_t>(kBatchBlocks, place.blocks - index);
    Buffer batch = core.pool.Get(count * kBlockBytes);
    const uint64_t offset = core.geometry.MetadataOffset(place.first_block + index);
    Task<Status> read = core.members.ReadBytes(first_ssd, offset, batch.span());
    const Status status = co_await read;
    for (uint64_t i = 0; i < count; ++i, ++index) {
      const auto page = batch.span().subspan(i * kBlockBytes, kBlockBytes);
      bool good = status.ok() && IsPage(core, page, place, index);
      if (!good) {
        Task<bool> reading = ReadPage(core, ssd_mask, place, index, page);
        good = co_await reading;
      }
      if (!good) {
        co_return Fail(ErrorCode::kCorrupt,
                       "a page of the newest checkpoint cannot be read from any SSD");
      }
      const Result<PageHeader> header = DecodePage(page, core.identity.array_uuid);
      const auto payload = page.subspan(kPageHeaderBytes, header->payload_bytes);
      stream.insert(stream.end(), payload.begin(), payload.end());
    }
  }
  if (Crc32c(stream) != crc) {
    co_return Fail(ErrorCode::kCorrupt, "the newest checkpoint is damaged: its checksum is wrong");
  }
  co_return stream;
}

}  // namespace

Task<Result<CheckpointRoot>> LoadCheckpoint(Core& core, const CheckpointPointer& pointer,
                                            State& state) {
  const StreamPlace root_place{PageKind::kRoot, pointer.generation, pointer.random,
                               pointer.root_block, pointer.root_blocks};
  Task<Result<std::vector<std::byte>>> read_root =
      ReadStream(core, pointer.ssd_mask, root_place, pointer.root_crc);
  Result<std::vector<std::byte>> root_bytes = co_await read_root;
  EPLOG_CO_TRY(root_bytes);
  Result<CheckpointRoot> root = DecodeRoot(*root_bytes);
  EPLOG_CO_TRY(root);
  if (root->runs.size() != 1 || !root->runs[0].full) {
    co_return Fail(ErrorCode::kUnsupported,
                   "the checkpoint is incremental: written by a newer version of eplog");
  }
  const RunDescriptor& run = root->runs[0];
  const StreamPlace run_place{PageKind::kRun, run.generation, run.random, run.first_block,
                              run.blocks};
  Task<Result<std::vector<std::byte>>> read_run =
      ReadStream(core, run.ssd_mask, run_place, run.stream_crc);
  Result<std::vector<std::byte>> stream = co_await read_run;
  EPLOG_CO_TRY(stream);
  Status decoded = DecodeState(*stream, state);
  EPLOG_CO_TRY(decoded);
  state.volumes.set_next_id(std::max(root->next_volume_id, state.volumes.next_id()));
  co_return root;
}

}  // namespace eplog
