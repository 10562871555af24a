#include "engine/checkpoint/checkpoint_loader.h"

#include <algorithm>
#include <bit>
#include <deque>
#include <utility>
#include <vector>

#include "base/crc32c.h"
#include "engine/checkpoint/checkpoint_pages.h"
#include "metadata/state_loader.h"
#include "runtime/task_group.h"

namespace eplog {
namespace {

constexpr size_t kBatchesAhead = 8;  // read while earlier ones are decoded

// Reads pages in large pieces from one SSD, some ahead of who takes them.
class PageStream {
 public:
  PageStream(Core& core, const Pages& pages)
      : core_(core),
        pages_(pages),
        live_(pages.ssd_mask & core.members.live_mask()),
        turn_(static_cast<uint8_t>(live_ == 0 ? 0 : std::countr_zero(live_))),
        group_(core.loop) {}

  // Until no read is on its way. Before this object goes.
  Task<void> Drain() {
    Task<Status> all = group_.Wait();
    const Status status = co_await all;
    static_cast<void>(status);
  }

  // The payloads of the next pages, one after the other, into `out`. False at the end.
  Task<Result<bool>> Next(std::vector<std::byte>& out) {
    out.clear();
    if (taken_ == pages_.blocks) {
      co_return false;
    }
    if (live_ == 0 || !InArea(core_.geometry, pages_)) {
      co_return Fail(ErrorCode::kCorrupt, "no SSD that holds the newest checkpoint is there");
    }
    ReadAhead();
    while (!ahead_.front()->done) {
      Task<void> below = group_.WaitBelow(group_.running());
      co_await below;
    }
    const std::unique_ptr<Batch> batch = std::move(ahead_.front());
    ahead_.pop_front();
    ReadAhead();
    for (uint64_t i = 0; i < batch->count; ++i) {
      const auto page = batch->buffer.span().subspan(i * kBlockBytes, kBlockBytes);
      const PageHeader expected = HeaderOf(core_.geometry, pages_, batch->first + i);
      auto payload = batch->readable ? Payload(core_, page, expected) : std::nullopt;
      if (!payload) {
        Task<bool> reading = ReadAnywhere(expected, batch->ssd, page);
        const bool found = co_await reading;
        payload = found ? Payload(core_, page, expected) : std::nullopt;
      }
      if (!payload) {
        co_return Fail(ErrorCode::kCorrupt,
                       "a page of the newest checkpoint cannot be read from any SSD");
      }
      out.insert(out.end(), payload->begin(), payload->end());
    }
    taken_ += batch->count;
    co_return true;
  }

 private:
  struct Batch {
    uint64_t first = 0;  // index of its first page
    uint64_t count = 0;
    DeviceIndex ssd;  // who was asked
    Buffer buffer;
    bool readable = false;
    bool done = false;
  };

  void ReadAhead() {
    while (ahead_.size() < kBatchesAhead && asked_ < pages_.blocks) {
      auto batch = std::make_unique<Batch>();
      const uint64_t block = HeaderOf(core_.geometry, pages_, asked_).block;
      batch->first = asked_;
      batch->count =
          std::min({kBatchBlocks, pages_.blocks - asked_, core_.geometry.metadata_blocks - block});
      batch->buffer = core_.pool.Get(batch->count * kBlockBytes);
      asked_ += batch->count;
      ahead_.push_back(std::move(batch));
      group_.Start(Read(*ahead_.back(), block));
    }
  }

  // From all SSDs that have a copy in turn: they read at once.
  Task<Status> Read(Batch& batch, uint64_t block) {
    const DeviceIndex ssd = batch.ssd = turn_;
    const uint64_t behind = live_ >> (turn_.value + 1);
    turn_ = DeviceIndex(static_cast<uint8_t>(
        behind != 0 ? turn_.value + 1 + std::countr_zero(behind) : std::countr_zero(live_)));
    Task<Status> read =
        core_.members.ReadBytes(ssd, core_.geometry.MetadataOffset(block), batch.buffer.span());
    const Status status = co_await read;
    batch.readable = status.ok();
    batch.done = true;
    co_return OkStatus();
  }

  // One page from whichever SSD has it. First the one of which it was wrong: it may have been so for
  // the moment, and is told if it was not.
  Task<bool> ReadAnywhere(PageHeader expected, DeviceIndex first, std::span<std::byte> page) {
    for (uint8_t i = 0; i < core_.geometry.n; ++i) {
      const DeviceIndex ssd(static_cast<uint8_t>((first.value + i) % core_.geometry.n));
      if ((live_ >> ssd.value & 1) == 0) {
        continue;
      }
      Task<Status> read =
          core_.members.ReadBytes(ssd, core_.geometry.MetadataOffset(expected.block), page);
      const Status status = co_await read;
      if (status.ok() && Payload(core_, page, expected)) {
        co_return true;
      }
      if (core_.MustHavePagesOf(expected.generation, ssd)) {
        core_.members.CountCorrupt(ssd);
      }
    }
    co_return false;
  }

  Core& core_;
  const Pages pages_;
  const uint64_t live_;
  DeviceIndex turn_;  // who reads next
  TaskGroup group_;
  std::deque<std::unique_ptr<Batch>> ahead_;
  uint64_t asked_ = 0;
  uint64_t taken_ = 0;
};

tl::unexpected<Error> WrongCrc() {
  return Fail(ErrorCode::kCorrupt, "the newest checkpoint is damaged: its checksum is wrong");
}

Task<Status> ReadRun(PageStream& stream, const RunDescriptor& run, RunDecoder& decoder) {
  std::vector<std::byte> piece;
  uint32_t crc = 0;
  while (true) {
    Task<Result<bool>> reading = stream.Next(piece);
    const Result<bool> more = co_await reading;
    EPLOG_CO_TRY(more);
    if (!*more) {
      break;
    }
    crc = Crc32c(piece, crc);
    Status fed = decoder.Feed(piece);
    EPLOG_CO_TRY(fed);
  }
  if (crc != run.stream_crc) {
    co_return WrongCrc();
  }
  co_return decoder.Finish();
}

Task<Status> LoadRun(Core& core, const RunDescriptor& run, StateLoader& loader) {
  PageStream stream(core, PagesOf(run));
  RunDecoder decoder(core.geometry, loader);
  Task<Status> reading = ReadRun(stream, run, decoder);
  const Status status = co_await reading;
  Task<void> draining = stream.Drain();
  co_await draining;
  co_return status;
}

// As every checkpoint leaves it (Checkpointer::TakeIncremental): what counts, from the full run to
// the root, and behind it room for a full one of the greatest length.
bool FullOneFitsBehind(const Geometry& geometry, const CheckpointRoot& root, uint64_t root_block) {
  const uint64_t area = geometry.metadata_blocks;
  const uint64_t first = root.runs.back().first_block;
  const uint64_t used = first < area ? (root_block + area - first) % area + 1 : area;
  return used + geometry.max_checkpoint_blocks() <= area;
}

}  // namespace

Task<Result<CheckpointRoot>> LoadRoot(Core& core, CheckpointPointer pointer) {
  PageStream stream(core, PagesOf(pointer));
  std::vector<std::byte> bytes;
  Task<Result<bool>> reading = stream.Next(bytes);
  const Result<bool> read = co_await reading;
  Task<void> draining = stream.Drain();
  co_await draining;
  EPLOG_CO_TRY(read);
  if (Crc32c(bytes) != pointer.root_crc) {
    co_return WrongCrc();
  }
  Result<CheckpointRoot> root = DecodeRoot(bytes);
  if (root.ok() && !FullOneFitsBehind(core.geometry, *root, pointer.root_block)) {
    co_return Fail(ErrorCode::kCorrupt,
                   "the newest checkpoint is damaged: its runs do not lie as they were written");
  }
  co_return root;
}

Task<Status> LoadRuns(Core& core, const CheckpointRoot& root, State& state) {
  StateLoader loader(state);
  const size_t count = root.runs.size();
  for (size_t i = 0; i < count; ++i) {
    // From the oldest on; the root names the newest first.
    const size_t at = core.canary(Canary::kRunsOutOfOrder) ? i : count - 1 - i;
    loader.BeginRun(at == 0);
    EPLOG_CO_AWAIT(LoadRun(core, root.runs[at], loader));
  }
  Status loaded = loader.Finish(root.sequence, root.place);
  EPLOG_CO_TRY(loaded);
  state.volumes.set_next_id(std::max(root.next_volume_id, state.volumes.next_id()));
  co_return OkStatus();
}

}  // namespace eplog
