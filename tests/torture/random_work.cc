// The random half of Workload: which request comes next, and where.

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "tests/torture/workload.h"

namespace eplog::torture {

void Workload::Spawn(uint32_t workers) {
  workers_ += workers;
  for (uint32_t i = 0; i < workers; ++i) {
    loop_.Spawn(Worker());
  }
}

Task<void> Workload::Worker() {
  while (operations_left_ > 0 && !closing_ && scene_.violation.empty()) {
    --operations_left_;
    const Op op = PickOp();
    Task<void> task = RunOp(op);
    co_await task;
    if (scene_.plan.resizes_buffers && scene_.random.OneIn(60)) {
      const auto device = static_cast<uint32_t>(scene_.random.Below(4));
      const Status set =
          array_.SetBuffers({.device_chunks = scene_.random.OneIn(2) ? 0 : device,
                             .stripes = static_cast<uint32_t>(scene_.random.Below(3))});
      EPLOG_CHECK(set.ok(), "buffers of a few chunks fit");
    }
    probe_wanted_ = probe_wanted_ || scene_.random.OneIn(scene_.plan.probe_one_in);
    if (scene_.random.OneIn(8)) {
      co_await loop_.Sleep(scene_.random.Below(2000));
    }
  }
  --workers_;
  progress_us_ = loop_.NowUs();
}

Op Workload::PickOp() {
  uint64_t sum = 0;
  for (const uint32_t weight : scene_.plan.weights) {
    sum += weight;
  }
  uint64_t draw = scene_.random.Below(sum);
  size_t op = 0;
  while (draw >= scene_.plan.weights[op]) {
    draw -= scene_.plan.weights[op++];
  }
  return static_cast<Op>(op);
}

// A volume that may be used; `unused`: and that nobody uses now. 0: none.
VolumeKey Workload::PickVolume(bool unused) {
  std::vector<VolumeKey> fit;
  for (const auto& [key, volume] : oracle_.volumes()) {
    if (!volume->changing && volume->id && (!unused || volume->users == 0)) {
      fit.push_back(key);
    }
  }
  return fit.empty() ? 0 : fit[scene_.random.Below(fit.size())];
}

Workload::Range Workload::Inside(const VolumeModel& volume, uint64_t offset_bytes,
                                 uint64_t length_bytes) const {
  const uint64_t begin = std::min(offset_bytes, volume.size_bytes - 1);
  return {volume.key, begin, std::min(length_bytes, volume.size_bytes - begin)};
}

Workload::Range Workload::PickRange(Op op) {
  Random& random = scene_.random;
  const VolumeKey key = PickVolume(false);
  if (key == 0) {
    return {};
  }
  const VolumeModel& volume = *oracle_.Find(key);
  const uint64_t chunk = scene_.plan.create.chunk_bytes;
  const uint64_t chunks = DivideUp(volume.size_bytes, chunk);
  const bool hot = random.Chance(scene_.plan.hot);
  // Hot chunks are spread over the volume so that they fall into different stripes.
  const uint64_t spot =
      hot ? random.Below(scene_.plan.hot_chunks) * 7 % chunks : random.Below(chunks);
  switch (op) {
    case Op::kWriteInChunk: {
      const uint64_t unit = random.OneIn(2) ? 512 : 1;
      const uint64_t begin = random.Below(chunk / unit) * unit;
      const uint64_t length = (1 + random.Below((chunk - begin) / unit)) * unit;
      return Inside(volume, spot * chunk + begin, length);
    }
    case Op::kWriteRun:
      return Inside(volume, spot * chunk, random.Between(2, 6) * chunk);
    case Op::kWriteStripe: {
      const uint64_t stripe = scene_.plan.geometry.stripe_data_bytes();
      const uint64_t first = random.Below(DivideUp(volume.size_bytes, stripe)) * stripe;
      return Inside(volume, first, (random.OneIn(3) ? random.Between(2, 3) : 1) * stripe);
    }
    case Op::kWriteBytes:
    case Op::kRead:
      return Inside(volume, random.Below(volume.size_bytes), 1 + random.Below(5 * chunk));
    case Op::kFlushRange: {
      const bool recent = random.OneIn(2) && last_written_.key == key;
      if (recent && last_written_.offset_bytes < volume.size_bytes) {
        return Inside(volume, last_written_.offset_bytes, last_written_.length_bytes);
      }
      return Inside(volume, spot * chunk, random.Between(1, 4) * chunk);
    }
    case Op::kFlushVolume:
      return {key, 0, volume.size_bytes};
    case Op::kTrim:
      if (random.OneIn(8)) {
        const uint64_t begin = random.OneIn(2) ? 0 : random.Below(volume.size_bytes);
        return Inside(volume, begin, 1 + random.Below(volume.size_bytes));
      }
      return PickRange(random.OneIn(3)   ? Op::kWriteStripe
                       : random.OneIn(2) ? Op::kWriteRun
                                         : Op::kWriteBytes);
    default:
      return Inside(volume, spot * chunk, chunk);
  }
}

Task<void> Workload::RandomWrite(Op op) {
  const Range range = PickRange(op);
  if (range.key == 0 || range.length_bytes == 0) {
    co_await loop_.Sleep(100);
    co_return;
  }
  if (!oracle_.CanWrite(range.key, range.offset_bytes, range.length_bytes)) {
    // Too many contents are possible for the oracle to follow: let it see.
    Task<void> read = Read(range.key, range.offset_bytes, range.length_bytes);
    co_await read;
    co_return;
  }
  last_written_ = range;
  // Zeros and bytes that were there before are contents like any other.
  uint64_t write = FreshWrite();
  if (op == Op::kRewrite || scene_.random.OneIn(50)) {
    write =
        scene_.random.Below(4) == 0 ? 0 : write - scene_.random.Below(std::min<uint64_t>(write, 6));
  }
  Task<void> task = Write(range.key, range.offset_bytes, range.length_bytes, write);
  co_await task;
}

Task<void> Workload::RandomTrim() {
  const Range range = PickRange(Op::kTrim);
  if (range.key == 0 || range.length_bytes == 0 ||
      !oracle_.CanWrite(range.key, range.offset_bytes, range.length_bytes)) {
    co_await loop_.Sleep(100);
    co_return;
  }
  last_written_ = range;
  const TrimMode mode = scene_.random.OneIn(4) ? TrimMode::kZero : TrimMode::kPunch;
  Task<void> task = Trim(range.key, range.offset_bytes, range.length_bytes, mode);
  co_await task;
}

std::string Workload::FreeName() {
  for (uint64_t i = scene_.random.Below(100);; ++i) {
    std::string name = "vol" + std::to_string(i);
    const bool taken = std::any_of(oracle_.volumes().begin(), oracle_.volumes().end(),
                                   [&](const auto& entry) { return entry.second->name == name; });
    if (!taken) {
      return name;
    }
  }
}

// A size for a volume, of the space that is not promised yet.
uint64_t Workload::RandomSize() {
  Random& random = scene_.random;
  const uint64_t capacity = scene_.plan.geometry.capacity_bytes();
  const uint64_t promised = Promised();
  const uint64_t extent = scene_.plan.geometry.extent_data_bytes();
  uint64_t most = promised + extent > capacity ? 0 : capacity - promised;
  if (scene_.plan.overcommit) {
    most = std::max(most, capacity / 2);
  }
  if (most == 0 || scene_.plan.volume_bytes != 0) {
    return std::min(most, scene_.plan.volume_bytes);
  }
  const uint64_t size = random.OneIn(3) ? most : 1 + random.Below(most);
  if (size == most || random.OneIn(3)) {
    return size;
  }
  const uint64_t unit = random.OneIn(2) ? scene_.plan.create.chunk_bytes : extent;
  return std::min(RoundUp(size, unit), most);
}

Task<void> Workload::RandomVolumeChange(Op op) {
  Random& random = scene_.random;
  const bool none = oracle_.volumes().empty();
  if (change_running_ || oracle_.unresolved() == Oracle::kMostUnresolved) {
    co_return;
  }
  if (op == Op::kCreateVolume || none) {
    const uint64_t size = RandomSize();
    if (oracle_.volumes().size() >= scene_.plan.max_volumes || size == 0) {
      co_return;
    }
    Task<void> task = CreateVolume(FreeName(), size);
    co_await task;
    co_return;
  }
  const bool grows = random.OneIn(2);
  const bool under_users = op == Op::kDeleteVolume && random.OneIn(4);
  const bool shared = under_users || op == Op::kRenameVolume || (op == Op::kResizeVolume && grows);
  const VolumeKey key = PickVolume(!shared);
  if (key == 0) {
    co_return;
  }
  const VolumeModel& volume = *oracle_.Find(key);
  if (op == Op::kDeleteVolume) {
    Task<void> task = DeleteVolume(key, under_users);
    co_await task;
  } else if (op == Op::kResizeVolume) {
    const uint64_t size =
        grows ? volume.size_bytes + RandomSize() : 1 + random.Below(volume.size_bytes);
    if (size == volume.size_bytes) {
      co_return;
    }
    Task<void> task = ResizeVolume(key, size);
    co_await task;
  } else {
    const VolumeKey victim =
        random.OneIn(3) ? PickVolume(!(scene_.plan.strikes_states && random.OneIn(4))) : 0;
    const bool replaces = victim != 0 && victim != key;
    const std::string name = replaces ? oracle_.Find(victim)->name : FreeName();
    Task<void> task = RenameVolume(key, name, replaces ? victim : 0);
    co_await task;
  }
}

Task<void> Workload::RunOp(Op op) {
  Task<void> task;
  const Range range = PickRange(op);
  const bool ranged = range.key != 0 && range.length_bytes != 0;
  switch (op) {
    case Op::kRead:
      if (ranged) {
        task = Read(range.key, range.offset_bytes, range.length_bytes);
        break;
      }
      co_return;
    case Op::kFlushRange:
    case Op::kFlushVolume:
      if (ranged) {
        task = Flush(range.key, range.offset_bytes, range.length_bytes);
        break;
      }
      co_return;
    case Op::kFlushAll:
      task = FlushAll();
      break;
    case Op::kCommit:
      task = Commit();
      break;
    case Op::kCheckpoint:
      task = Checkpoint(scene_.random.OneIn(3)   ? CheckpointKind::kFull
                        : scene_.random.OneIn(2) ? CheckpointKind::kIncremental
                                                 : CheckpointKind::kAuto);
      break;
    case Op::kScrub:
      task = Scrub();
      break;
    case Op::kCreateVolume:
    case Op::kDeleteVolume:
    case Op::kResizeVolume:
    case Op::kRenameVolume:
      task = RandomVolumeChange(op);
      break;
    case Op::kIdle:
      if (scene_.plan.discard && scene_.random.OneIn(4)) {
        Task<Result<uint64_t>> discard = array_.DiscardFree(Progress());
        const Result<uint64_t> bytes = co_await discard;
        if (!bytes.ok()) {
          Answer("a discard", Fail(bytes.error()), false);
        }
      }
      co_await loop_.Sleep(scene_.random.Below(scene_.random.OneIn(4) ? 8'000'000 : 20'000));
      progress_us_ = loop_.NowUs();
      co_return;
    case Op::kTrim:
      task = RandomTrim();
      break;
    default:
      task = RandomWrite(op);
      break;
  }
  if (oracle_.volumes().empty() && op != Op::kCreateVolume) {
    task = RandomVolumeChange(Op::kCreateVolume);
  }
  co_await task;
}

}  // namespace eplog::torture
