#include "engine/write/volumes.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "base/utf8.h"
#include "engine/core/volume_names.h"

namespace eplog {
namespace {

// Stripes whose rows are locked while one batch of extents is freed.
constexpr uint32_t kFreeBatchStripes = 1024;

tl::unexpected<Error> NoSuchVolume() {
  return Fail(ErrorCode::kNotFound, "no such volume");
}

}  // namespace

Status Volumes::CheckName(std::string_view name) {
  const bool bad = name.empty() || name.size() > kMaxVolumeNameBytes || name == "." ||
                   name == ".." || std::any_of(name.begin(), name.end(), [](char c) {
                     return c == '/' || static_cast<unsigned char>(c) < 0x20 || c == 0x7F;
                   });
  if (bad) {
    return Fail(ErrorCode::kInvalidArgument,
                "a volume name has 1 to " + std::to_string(kMaxVolumeNameBytes) +
                    " bytes, no '/' and no control characters, and is not '.' or '..'");
  }
  if (!IsUtf8(name)) {
    return Fail(ErrorCode::kInvalidArgument, "a volume name is UTF-8, and this one is not");
  }
  return OkStatus();
}

Status Volumes::MayTake(std::string_view name) const {
  EPLOG_TRY(CheckName(name));
  if (name.starts_with(kReservedVolumePrefix) && !core_.hooks.reserved_names) {
    return Fail(ErrorCode::kInvalidArgument, "names that begin with " +
                                                 std::string(kReservedVolumePrefix) +
                                                 " are reserved; take another");
  }
  return OkStatus();
}

Status Volumes::CheckSize(uint64_t size_bytes) const {
  // Extents of a volume are numbered with 32 bits.
  const uint64_t most = std::min(kMaxVolumeBytes, core_.geometry.extent_data_bytes() * UINT32_MAX);
  if (size_bytes > most) {
    Error error;
    error.code = ErrorCode::kInvalidArgument;
    error.errno_value = EFBIG;
    error.message = "a volume of this array has at most " + std::to_string(most) + " bytes";
    return Fail(std::move(error));
  }
  return OkStatus();
}

VolumeInfo Volumes::Info(const Volume& volume) const {
  return {volume.id, IsHidden(volume) ? "" : volume.name, volume.size_bytes,
          volume.extents.count() * core_.geometry.extent_data_bytes()};
}

std::shared_ptr<Volumes::GateState>& Volumes::GateOf(VolumeId id) {
  auto& state = gates_[id.value];
  if (!state) {
    state = std::make_shared<GateState>(core_.loop);
  }
  return state;
}

Task<std::shared_ptr<Volumes::Gate>> Volumes::Enter(VolumeId id, bool alone) {
  const std::shared_ptr<GateState> state = GateOf(id);
  state->alone_wanted += alone ? 1 : 0;
  while (state->alone || (alone ? state->shared != 0 : state->alone_wanted != 0)) {
    co_await state->changed.Wait();
  }
  state->alone_wanted -= alone ? 1 : 0;
  co_return std::make_shared<Gate>(state, alone);
}

Task<Status> Volumes::Append(std::vector<VolumeRecord> records, bool durable, bool frees) {
  Grant grant(admission_);
  EPLOG_CO_AWAIT(admission_.Admit(grant, {.blocks = 1, .frees = frees}));
  RecordWrite record;
  record.volumes = std::move(records);
  grant.TakeLog();
  appender_.Submit(record, false);
  co_await record.completion;
  Status status = record.completion.status();
  EPLOG_CO_TRY(status);
  if (durable) {
    Task<Status> flush =
        flusher_.FlushTo(record.completion.sequence(), Flusher::Upto::kAcknowledgeable);
    status = co_await flush;
  }
  co_return status;
}

Task<Result<VolumeId>> Volumes::Create(std::string name, uint64_t size_bytes) {
  Status valid = MayTake(name);
  EPLOG_CO_TRY(valid);
  Status sane = CheckSize(size_bytes);
  EPLOG_CO_TRY(sane);
  Task<AsyncMutex::Guard> locking = changes_.Lock();
  const AsyncMutex::Guard guard = co_await locking;
  VolumeTable& table = core_.state->volumes;
  if (table.FindByName(name) != nullptr) {
    co_return Fail(ErrorCode::kExists, "a volume named '" + name + "' exists already");
  }
  if (table.all().size() >= core_.geometry.max_volumes()) {
    co_return Fail(ErrorCode::kNoSpace, "the array holds at most " +
                                            std::to_string(core_.geometry.max_volumes()) +
                                            " volumes; delete one first");
  }
  const VolumeId id(table.next_id());
  if (id.value == kNoMoreVolumeIds) {
    co_return Fail(ErrorCode::kNoSpace,
                   "all " + std::to_string(kNoMoreVolumeIds - 1) +
                       " numbers of volumes of this array have been used, and none is given twice");
  }
  std::vector<VolumeRecord> records = {VolumeCreated{id, size_bytes, std::move(name)}};
  EPLOG_CO_AWAIT(Append(std::move(records), true));
  clean_.insert(id.value);
  co_return id;
}

Task<Status> Volumes::Rename(VolumeId id, std::string new_name, bool replace) {
  Status valid = MayTake(new_name);
  EPLOG_CO_TRY(valid);
  Task<AsyncMutex::Guard> locking = changes_.Lock();
  const AsyncMutex::Guard guard = co_await locking;
  Result<VolumeId> other = FindOther(id, new_name);
  EPLOG_CO_TRY(other);
  const VolumeId victim = *other;
  if (victim == id) {
    co_return OkStatus();
  }
  if (victim.value != 0 && !replace) {
    co_return Fail(ErrorCode::kExists, "a volume named '" + new_name + "' exists already");
  }
  std::vector<VolumeRecord> records;
  std::shared_ptr<Gate> gate;
  if (victim.value != 0) {
    Task<std::shared_ptr<Gate>> entering = Enter(victim, true);
    gate = co_await entering;
    records.emplace_back(VolumeDeleted{victim});
  }
  records.emplace_back(VolumeRenamed{id, std::move(new_name)});
  Task<Status> append =
      victim.value != 0 ? AppendFreeing(std::move(records)) : Append(std::move(records), true);
  Status status = co_await append;
  if (status.ok() && victim.value != 0) {
    core_.loop.Spawn(FreeDeleted(victim));
  }
  co_return status;
}

// As soon as the record is applied the extents count as free: whoever finds none waits for them,
// and not in vain, for `background_` is to be Done once they are.
Task<Status> Volumes::AppendFreeing(std::vector<VolumeRecord> records) {
  background_.Add();
  Task<Status> append = Append(std::move(records), true, true);
  Status status = co_await append;
  if (!status.ok()) {
    background_.Done();
    assigned_.NotifyAll();
  }
  co_return status;
}

// Who has the name now: `id` itself, 0 for nobody. kNotFound: there is no volume `id`.
Result<VolumeId> Volumes::FindOther(VolumeId id, std::string_view name) const {
  const Volume* volume = core_.state->volumes.Find(id);
  if (volume == nullptr || volume->deleting) {
    return NoSuchVolume();
  }
  const Volume* other = core_.state->volumes.FindByName(name);
  return other == nullptr ? VolumeId(0) : other->id;
}

// One entry takes the name from the one and gives it to the other.
Task<Result<VolumeId>> Volumes::RenameOver(VolumeId id, std::string new_name) {
  Status valid = MayTake(new_name);
  EPLOG_CO_TRY(valid);
  Task<AsyncMutex::Guard> locking = changes_.Lock();
  const AsyncMutex::Guard guard = co_await locking;
  Result<VolumeId> other = FindOther(id, new_name);
  EPLOG_CO_TRY(other);
  if (*other == id) {
    co_return VolumeId(0);
  }
  std::vector<VolumeRecord> records;
  if (other->value != 0) {
    records.emplace_back(VolumeRenamed{*other, HiddenName(*other)});
  }
  records.emplace_back(VolumeRenamed{id, std::move(new_name)});
  EPLOG_CO_AWAIT(Append(std::move(records), true));
  co_return *other;
}

Task<Status> Volumes::Hide(VolumeId id) {
  Task<AsyncMutex::Guard> locking = changes_.Lock();
  const AsyncMutex::Guard guard = co_await locking;
  const Volume* volume = core_.state->volumes.Find(id);
  if (volume == nullptr || volume->deleting) {
    co_return NoSuchVolume();
  }
  if (IsHidden(*volume)) {
    co_return OkStatus();
  }
  std::vector<VolumeRecord> records = {VolumeRenamed{id, HiddenName(id)}};
  Task<Status> append = Append(std::move(records), true);
  co_return co_await append;
}

Task<Status> Volumes::Delete(VolumeId id, std::optional<std::string> only_if_named) {
  Task<AsyncMutex::Guard> locking = changes_.Lock();
  const AsyncMutex::Guard guard = co_await locking;
  Task<std::shared_ptr<Gate>> entering = Enter(id, true);
  const std::shared_ptr<Gate> gate = co_await entering;
  const Volume* volume = core_.state->volumes.Find(id);
  if (volume == nullptr || volume->deleting) {
    co_return NoSuchVolume();
  }
  if (only_if_named && volume->name != *only_if_named) {
    co_return Fail(ErrorCode::kNotFound, "no volume is called " + *only_if_named +
                                             " any more: it was renamed or replaced meanwhile");
  }
  std::vector<VolumeRecord> records = {VolumeDeleted{id}};
  EPLOG_CO_AWAIT(AppendFreeing(std::move(records)));
  core_.loop.Spawn(FreeDeleted(id));
  FreeGivenUp();
  co_return OkStatus();
}

// What was deleted, or cut off, and could not be freed, for want of log say. Whoever lets go of more,
// or needs room, asks for it.
void Volumes::FreeGivenUp() {
  for (const uint32_t id : std::exchange(given_up_, {})) {
    background_.Add();
    core_.loop.Spawn(FreeDeleted(VolumeId(id)));
  }
  const std::set<uint32_t> unclean = unclean_;
  for (const uint32_t id : unclean) {
    const std::shared_ptr<GateState> gate = GateOf(VolumeId(id));
    if (gate->shared == 0 && gate->alone_wanted == 0 && !gate->alone) {  // as when it was opened
      background_.Add();
      core_.loop.Spawn(FinishShrinking(VolumeId(id), std::make_shared<Gate>(gate, true)));
    }
  }
}

void Volumes::Open() {
  for (const auto& [id, volume] : core_.state->volumes.all()) {
    if (volume.deleting) {
      background_.Add();
      core_.loop.Spawn(FreeDeleted(VolumeId(id)));
    } else if (IsHidden(volume)) {
      background_.Add();
      core_.loop.Spawn(DeleteHidden(VolumeId(id)));
    } else if (!ExtentsBeyond(volume).empty()) {
      // Alone from the beginning: a write that waits inside for the extents that this frees would
      // keep it out for ever.
      background_.Add();
      core_.loop.Spawn(
          FinishShrinking(VolumeId(id), std::make_shared<Gate>(GateOf(VolumeId(id)), true)));
    }
  }
}

// Whoever used it is gone.
Task<void> Volumes::DeleteHidden(VolumeId id) {
  Task<Status> deleting = Delete(id, std::nullopt);
  const Status status = co_await deleting;
  static_cast<void>(status);  // the array is full or has stopped: the next opening tries again
  background_.Done();
  assigned_.NotifyAll();
}

Task<void> Volumes::Close() {
  closing_ = true;
  Task<void> wait = background_.Wait();
  co_await wait;
}

Task<void> Volumes::FreeDeleted(VolumeId id) {
  std::vector<ExtentIndex> extents;
  for (uint32_t i = 0; i < core_.geometry.extents(); ++i) {
    if (core_.state->volumes.OwnerOf(ExtentIndex(i)).volume == id) {
      extents.push_back(ExtentIndex(i));
    }
  }
  Task<Status> freeing = FreeExtents(id, std::move(extents));
  const Status status = co_await freeing;
  if (!status.ok()) {
    given_up_.insert(id.value);  // it was refused, or the array closes: the next opening goes on
  }
  clean_.erase(id.value);
  unclean_.erase(id.value);
  last_freed_.erase(id.value);
  gates_.erase(id.value);
  background_.Done();
  assigned_.NotifyAll();
}

Task<void> Volumes::FinishShrinking(VolumeId id, std::shared_ptr<Gate> gate) {
  const Volume* volume = core_.state->volumes.Find(id);
  if (volume != nullptr && !volume->deleting) {
    Task<Status> clean = CleanBeyond(id, volume->size_bytes);
    const Status status = co_await clean;
    if (status.ok()) {
      clean_.insert(id.value);
      unclean_.erase(id.value);
    } else {
      unclean_.insert(id.value);
    }
  }
  background_.Done();
  assigned_.NotifyAll();
  gate.reset();
}

std::vector<ExtentIndex> Volumes::ExtentsBeyond(const Volume& volume) const {
  std::vector<ExtentIndex> extents;
  volume.extents.ForEach(DivideUp(volume.size_bytes, core_.geometry.extent_data_bytes()),
                         UINT64_MAX, [&](ExtentIndex extent) { extents.push_back(extent); });
  return extents;
}

uint64_t Volumes::ExtentsComingBack() const {
  uint64_t count = 0;
  for (const auto& [id, volume] : core_.state->volumes.all()) {
    count += volume.deleting ? volume.extents.count() : ExtentsBeyond(volume).size();
  }
  return count;
}

// In batches, each one entry.
Task<Status> Volumes::FreeExtents(VolumeId owner, std::vector<ExtentIndex> extents) {
  const uint32_t limit = std::max(1U, kFreeBatchStripes / core_.geometry.extent_stripes);
  std::sort(extents.begin(), extents.end());
  for (size_t first = 0; first < extents.size();) {
    if (closing_) {
      co_return Fail(ErrorCode::kShutdown, "the array is closing");
    }
    uint32_t count = 1;
    while (first + count < extents.size() && count < limit &&
           extents[first + count].value == extents[first].value + count) {
      ++count;
    }
    Task<Status> run = FreeRun(owner, extents[first], count);
    Status status = co_await run;
    assigned_.NotifyAll();
    EPLOG_CO_TRY(status);
    first += count;
  }
  co_return OkStatus();
}

Task<Status> Volumes::FreeRun(VolumeId owner, ExtentIndex first, uint32_t count) {
  Grant grant(admission_);
  EPLOG_CO_AWAIT(admission_.Admit(grant, {.blocks = 1, .frees = true}));
  const uint32_t stripes = core_.geometry.extent_stripes;
  // Nobody writes there any more. What lies in buffers goes with the extents; what was submitted
  // from there must come before them in the log.
  BufferedChunks::Leaving leaving(buffered_);
  const ChunkIndex first_chunk = core_.geometry.Chunk(StripeIndex(first.value * stripes), 0);
  const uint64_t chunks = uint64_t{count} * stripes * core_.geometry.k();
  Task<void> left = buffered_.WaitLeft(first_chunk, chunks);
  co_await left;
  Status status = core_.Running();
  EPLOG_CO_TRY(status);
  buffered_.Supersede(first_chunk, chunks, leaving);
  std::vector<KeyedLocks::Guard> locks;
  for (uint32_t s = first.value * stripes; s < (first.value + count) * stripes; ++s) {
    Task<KeyedLocks::Guard> locking = writer_.rows.Lock(s);
    locks.push_back(co_await locking);
  }
  RecordWrite record;
  for (uint32_t i = 0; i < count; ++i) {
    const ExtentIndex extent(first.value + i);
    EPLOG_CHECK(core_.state->volumes.OwnerOf(extent).volume == owner,
                "an extent is freed once, before it has another owner");
  }
  record.volumes.emplace_back(ExtentsFreed{first, count});
  grant.TakeLog();
  const auto freeing = freeing_.insert(owner.value);
  appender_.Submit(record, false);
  co_await record.completion;
  freeing_.erase(freeing);
  if (record.completion.status().ok()) {  // else nothing was freed
    last_freed_[owner.value] = record.completion.sequence();
    leaving.Overwritten();
  }
  co_return record.completion.status();
}

Task<Status> Volumes::Resize(VolumeId id, uint64_t size_bytes) {
  Status sane = CheckSize(size_bytes);
  EPLOG_CO_TRY(sane);
  Task<std::shared_ptr<Gate>> entering = Enter(id, true);
  const std::shared_ptr<Gate> gate = co_await entering;
  const Volume* volume = core_.state->volumes.Find(id);
  if (volume == nullptr || volume->deleting) {
    co_return NoSuchVolume();
  }
  const uint64_t old_size = volume->size_bytes;
  if (size_bytes == old_size && !unclean_.contains(id.value)) {
    co_return OkStatus();
  }
  if (size_bytes == old_size) {  // it was shrunk, and then refused
    EPLOG_CO_AWAIT(CleanBeyond(id, old_size));
    clean_.insert(id.value);
    unclean_.erase(id.value);
    co_return OkStatus();
  }
  if (size_bytes > old_size && !clean_.contains(id.value)) {
    // What an earlier shrinking left behind must not come back.
    EPLOG_CO_AWAIT(CleanBeyond(id, old_size));
    clean_.insert(id.value);
    unclean_.erase(id.value);
  }
  if (size_bytes > old_size && old_size % core_.geometry.chunk_bytes != 0) {
    // The zeros behind the old end are content, which a crash may take although it leaves the
    // record of the new size (I8).
    EPLOG_CO_AWAIT(flusher_.FlushAll());
  }
  std::vector<VolumeRecord> records = {VolumeResized{id, size_bytes}};
  EPLOG_CO_AWAIT(size_bytes < old_size ? AppendFreeing(std::move(records))
                                       : Append(std::move(records), true));
  if (size_bytes < old_size) {
    clean_.erase(id.value);
    unclean_.insert(id.value);
    Task<Status> clean = CleanBeyond(id, size_bytes);
    Status status = co_await clean;
    background_.Done();
    assigned_.NotifyAll();
    EPLOG_CO_TRY(status);
    clean_.insert(id.value);
    unclean_.erase(id.value);
  }
  co_return OkStatus();
}

// Frees the extents that lie wholly beyond `size_bytes` and zeroes the rest of the one it ends in.
Task<Status> Volumes::CleanBeyond(VolumeId id, uint64_t size_bytes) {
  const Volume* volume = core_.state->volumes.Find(id);
  const uint64_t extent_bytes = core_.geometry.extent_data_bytes();
  const auto tail = size_bytes % extent_bytes == 0
                        ? std::nullopt
                        : volume->extents.Get(static_cast<uint32_t>(size_bytes / extent_bytes));
  EPLOG_CO_AWAIT(FreeExtents(id, ExtentsBeyond(*volume)));
  if (tail) {
    EPLOG_CO_AWAIT(trimmer_.TrimInExtent(*tail, size_bytes % extent_bytes, extent_bytes));
    // In the log before the volume can grow again.
    EPLOG_CO_AWAIT(trimmer_.Settle(*tail));
  }
  co_return OkStatus();
}

bool Volumes::ExtentIsZero(ExtentIndex extent) const {
  const uint32_t first = extent.value * core_.geometry.extent_stripes;
  if (buffered_.AnyIn(core_.geometry.Chunk(StripeIndex(first), 0),
                      uint64_t{core_.geometry.extent_stripes} * core_.geometry.k())) {
    return false;
  }
  for (uint32_t s = first; s < first + core_.geometry.extent_stripes; ++s) {
    if (!core_.state->LatestIsZero(StripeIndex(s))) {
      return false;
    }
  }
  return true;
}

Task<Status> Volumes::Trim(const Volume& volume, uint64_t from_bytes, uint64_t to_bytes,
                           TrimMode mode, std::vector<ExtentIndex>& empty) {
  const uint64_t extent_bytes = core_.geometry.extent_data_bytes();
  std::vector<ExtentIndex> touched;
  volume.extents.ForEach(from_bytes / extent_bytes, DivideUp(to_bytes, extent_bytes),
                         [&](ExtentIndex extent) { touched.push_back(extent); });
  for (const ExtentIndex extent : touched) {
    const uint64_t base = core_.state->volumes.OwnerOf(extent).logical * extent_bytes;
    const uint64_t from = std::max(from_bytes, base) - base;
    const uint64_t to = std::min(to_bytes - base, extent_bytes);
    const bool whole = from == 0 && to == extent_bytes;
    if (!whole || mode == TrimMode::kZero) {
      EPLOG_CO_AWAIT(trimmer_.TrimInExtent(extent, from, to));
    }
    if (mode == TrimMode::kPunch && (whole || ExtentIsZero(extent))) {
      empty.push_back(extent);
    }
  }
  co_return OkStatus();
}

// Alone, so that nobody writes to an extent while it goes; in batches, so that nobody waits long.
Task<Status> Volumes::FreeTrimmed(VolumeId id, uint64_t from_bytes, uint64_t to_bytes,
                                  std::vector<ExtentIndex> empty) {
  const uint64_t extent_bytes = core_.geometry.extent_data_bytes();
  const size_t limit = std::max(1U, kFreeBatchStripes / core_.geometry.extent_stripes);
  for (size_t done = 0; done < empty.size(); done += limit) {
    if (done != 0) {
      co_await core_.loop.Yield();  // who waited for the batch before this one comes first
    }
    Task<std::shared_ptr<Gate>> entering = Enter(id, true);
    const std::shared_ptr<Gate> gate = co_await entering;
    const Volume* volume = core_.state->volumes.Find(id);
    if (volume == nullptr || volume->deleting) {
      co_return OkStatus();  // they go with the volume, and perhaps belong to another by now
    }
    std::vector<ExtentIndex> batch;
    for (size_t i = done; i < std::min(done + limit, empty.size()); ++i) {
      const VolumeTable::Owner owner = core_.state->volumes.OwnerOf(empty[i]);
      const uint64_t base = owner.logical * extent_bytes;
      const bool whole = from_bytes <= base && base + extent_bytes <= to_bytes;
      // It may have been written, or have changed hands, while nobody held the gate.
      if (owner.volume == id && (whole || ExtentIsZero(empty[i]))) {
        batch.push_back(empty[i]);
      }
    }
    EPLOG_CO_AWAIT(FreeExtents(id, std::move(batch)));
  }
  co_return OkStatus();
}

Task<Result<ExtentIndex>> Volumes::EnsureExtent(VolumeId id, uint32_t logical) {
  const std::pair<uint32_t, uint32_t> key{id.value, logical};
  while (true) {
    const Volume* volume = core_.state->volumes.Find(id);
    if (const auto extent = volume->extents.Get(logical)) {
      co_return *extent;
    }
    if (!assigning_.contains(key)) {
      break;
    }
    co_await assigned_.Wait();
  }
  assigning_.insert(key);
  Task<Result<ExtentIndex>> assign = AssignExtent(id, logical);
  Result<ExtentIndex> extent = co_await assign;
  assigning_.erase(key);
  assigned_.NotifyAll();
  co_return extent;
}

Task<Result<ExtentIndex>> Volumes::AssignExtent(VolumeId id, uint32_t logical) {
  auto extent = core_.state->volumes.LowestFree();
  if (!extent && !closing_) {
    FreeGivenUp();
  }
  while (!extent && background_.count() != 0 && !core_.stop_error && !closing_) {
    co_await assigned_
        .Wait();  // a deleted volume's extents are on their way back: they count as free
    extent = core_.state->volumes.LowestFree();
  }
  if (!extent && closing_) {
    // Extents of deleted volumes may have been on their way back.
    co_return Fail(ErrorCode::kShutdown, "the array is closing");
  }
  if (!extent) {
    co_return Fail(ErrorCode::kNoSpace, "the array is full: delete or shrink a volume");
  }
  core_.state->volumes.Reserve(*extent);
  std::vector<VolumeRecord> records = {ExtentAssigned{id, logical, *extent}};
  Task<Status> append = Append(std::move(records), false);
  Status status = co_await append;
  if (!status.ok()) {
    core_.state->volumes.Unreserve(*extent);
    co_return Fail(std::move(status).error());
  }
  co_return *extent;
}

}  // namespace eplog
