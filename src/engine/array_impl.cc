#include "engine/array_impl.h"

#include <algorithm>
#include <cstring>

#include "engine/core/volume_names.h"
#include "engine/open/recovery.h"
#include "runtime/task_group.h"

namespace eplog {

ArrayImpl::ArrayImpl(EventLoop& loop, Assembly assembly, const OpenOptions& options,
                     EngineHooks* hooks)
    : assembly_(std::move(assembly)),
      shown_(assembly_.devices.size()),
      core_(loop, assembly_.devices, assembly_.winner, options, hooks),
      appender_(core_),
      flusher_(core_, appender_),
      admission_(core_, appender_),
      reader_(core_, &appender_),
      buffered_(core_),
      writer_(core_, appender_, admission_, reader_, buffered_),
      buffer_(core_, admission_, reader_, writer_, buffered_),
      trimmer_(core_, appender_, admission_, writer_, buffer_, buffered_),
      committer_(core_, appender_, flusher_, reader_, writer_),
      superblocks_(core_, assembly_.winner, assembly_.generations, assembly_.damaged),
      checkpointer_(core_, appender_, flusher_, superblocks_),
      relogger_(core_, appender_, admission_, reader_, writer_, buffered_),
      keeper_(core_, appender_, flusher_, committer_, checkpointer_, admission_, buffer_,
              relogger_),
      membership_(core_, {appender_, flusher_, superblocks_, checkpointer_, keeper_, admission_}),
      rebuilder_(core_, appender_, flusher_, admission_, reader_, writer_, committer_,
                 checkpointer_, membership_),
      healer_(core_, appender_, flusher_, admission_, reader_, writer_, committer_, buffered_,
              membership_),
      watch_(core_),
      discarder_(core_, admission_),
      volumes_(core_, appender_, flusher_, admission_, writer_, trimmer_, buffered_),
      flush_commits_(loop),
      requests_(loop) {
  for (uint8_t i = 0; i < assembly_.devices.size(); ++i) {
    if (assembly_.devices[i] != nullptr) {
      NoteShown(DeviceIndex(i), *assembly_.devices[i]);
    }
  }
}

ArrayImpl::~ArrayImpl() {
  core_.hooks.ring_wraps += core_.rings.wraps();
  core_.hooks.slot_reuses += core_.space.reuses();
  core_.hooks.buffer_hits += core_.traffic.buffer_hits;
  core_.hooks.early_deaths += core_.state->pending.early_deaths();
}

Task<Status> ArrayImpl::Close() {
  closing_ = true;
  Task<void> volumes_closing = volumes_.Close();
  co_await volumes_closing;
  Task<void> idle = requests_.Wait();
  co_await idle;
  if (core_.options.read_only) {
    co_return OkStatus();
  }
  Task<void> watch_closing = watch_.Close();
  co_await watch_closing;
  Task<void> healer_closing = healer_.Close();
  co_await healer_closing;
  Task<void> rebuilder_closing = rebuilder_.Close();
  co_await rebuilder_closing;
  Task<void> discarder_closing = discarder_.Close();
  co_await discarder_closing;
  Task<void> draining_buffers = buffer_.Close();
  co_await draining_buffers;
  if (core_.options.commit.on_close) {
    Task<Status> commit = CommitUpto(UINT64_MAX, Progress());
    const Status committed = co_await commit;
    static_cast<void>(committed);  // what cannot be committed stays pending
  }
  Task<void> stopping = keeper_.Stop();
  co_await stopping;
  Task<Status> flush = flusher_.TryFlushAll();
  Status status = co_await flush;
  if (status.ok() || status.error().code == ErrorCode::kBusy) {
    Task<Status> checkpoint = checkpointer_.Checkpoint(CheckpointKind::kAuto);
    status = co_await checkpoint;
  }
  Task<void> ending = appender_.End();
  co_await ending;
  Task<void> draining = core_.rings.Drain();
  co_await draining;
  Task<void> settling = membership_.Idle();
  co_await settling;
  co_return status;
}

Status ArrayImpl::Readable() const {
  return closing_ ? Fail(ErrorCode::kShutdown, "the array is closing") : OkStatus();
}

Status ArrayImpl::Writable() const {
  if (core_.options.read_only) {
    return Fail(ErrorCode::kReadOnly, "the array is open read-only");
  }
  EPLOG_TRY(Readable());
  return core_.Running();
}

Result<const Volume*> ArrayImpl::Locate(VolumeId volume, uint64_t offset_bytes,
                                        uint64_t length) const {
  const Volume* found = core_.state->volumes.Find(volume);
  if (found == nullptr || found->deleting) {
    return Fail(ErrorCode::kNotFound, "no such volume");
  }
  if (offset_bytes > found->size_bytes || length > found->size_bytes - offset_bytes) {
    return Fail(ErrorCode::kInvalidArgument, "beyond the end of volume '" + found->name + "'");
  }
  return found;
}

// ----------------------------------------------------------------------------------------------
// volumes
Task<Result<VolumeId>> ArrayImpl::CreateVolume(std::string name, uint64_t size_bytes) {
  Status status = Writable();
  EPLOG_CO_TRY(status);
  const Request request(*this);
  Task<Result<VolumeId>> creating = volumes_.Create(std::move(name), size_bytes);
  co_return co_await creating;
}

Task<Status> ArrayImpl::ResizeVolume(VolumeId volume, uint64_t size_bytes) {
  Status status = Writable();
  EPLOG_CO_TRY(status);
  const Request request(*this);
  Task<Status> resizing = volumes_.Resize(volume, size_bytes);
  co_return co_await resizing;
}

Task<Status> ArrayImpl::RenameVolume(VolumeId volume, std::string new_name, bool replace) {
  Status status = Writable();
  EPLOG_CO_TRY(status);
  const Request request(*this);
  if (replace) {
    EPLOG_CO_AWAIT(FlushWhole(volume));
  }
  Task<Status> renaming = volumes_.Rename(volume, std::move(new_name), replace);
  co_return co_await renaming;
}

Task<Result<VolumeId>> ArrayImpl::RenameVolumeOver(VolumeId volume, std::string new_name) {
  Status status = Writable();
  EPLOG_CO_TRY(status);
  const Request request(*this);
  EPLOG_CO_AWAIT(FlushWhole(volume));
  Task<Result<VolumeId>> renaming = volumes_.RenameOver(volume, std::move(new_name));
  co_return co_await renaming;
}

Task<Status> ArrayImpl::HideVolume(VolumeId volume) {
  Status status = Writable();
  EPLOG_CO_TRY(status);
  const Request request(*this);
  Task<Status> hiding = volumes_.Hide(volume);
  co_return co_await hiding;
}

Task<Status> ArrayImpl::DeleteVolume(VolumeId volume) {
  Status status = Writable();
  EPLOG_CO_TRY(status);
  const Request request(*this);
  Task<Status> deleting = volumes_.Delete(volume, std::nullopt);
  co_return co_await deleting;
}

Task<Status> ArrayImpl::DeleteVolumeNamed(VolumeId volume, std::string name) {
  Status status = Writable();
  EPLOG_CO_TRY(status);
  const Request request(*this);
  Task<Status> deleting = volumes_.Delete(volume, std::move(name));
  co_return co_await deleting;
}

std::vector<VolumeInfo> ArrayImpl::Volumes() const {
  std::vector<VolumeInfo> list;
  for (const auto& [id, volume] : core_.state->volumes.all()) {
    if (!volume.deleting && !IsHidden(volume)) {
      list.push_back(volumes_.Info(volume));
    }
  }
  std::sort(list.begin(), list.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return list;
}

std::optional<VolumeInfo> ArrayImpl::FindVolume(std::string_view name) const {
  const Volume* volume = core_.state->volumes.FindByName(name);
  return volume == nullptr || IsHidden(*volume) ? std::nullopt
                                                : std::optional(volumes_.Info(*volume));
}

std::optional<VolumeInfo> ArrayImpl::GetVolume(VolumeId id) const {
  const Volume* volume = core_.state->volumes.Find(id);
  return volume == nullptr || volume->deleting ? std::nullopt
                                               : std::optional(volumes_.Info(*volume));
}

// ----------------------------------------------------------------------------------------------
// data
void ArrayImpl::CountMdEquivalent(uint64_t offset_bytes, uint64_t length_bytes) {
  const Geometry& g = core_.geometry;
  const uint64_t end = offset_bytes + length_bytes;
  const uint64_t chunks = DivideUp(end, g.chunk_bytes) - offset_bytes / g.chunk_bytes;
  const uint64_t stripes =
      DivideUp(end, g.stripe_data_bytes()) - offset_bytes / g.stripe_data_bytes();
  core_.traffic.md_equivalent_ssd_bytes += (chunks + stripes * g.m) * g.chunk_bytes;
}

Task<Status> ArrayImpl::Write(VolumeId volume, uint64_t offset_bytes,
                              std::span<const std::byte> from) {
  Status status = Writable();
  EPLOG_CO_TRY(status);
  const Request request(*this);
  Task<std::shared_ptr<eplog::Volumes::Gate>> entering = volumes_.Enter(volume, false);
  const std::shared_ptr<eplog::Volumes::Gate> gate = co_await entering;
  const Result<const Volume*> located = Locate(volume, offset_bytes, from.size());
  EPLOG_CO_TRY(located);
  if (from.empty()) {
    co_return OkStatus();
  }
  Task<Status> writing = WriteRange(volume, offset_bytes, from);
  status = co_await writing;
  if (status.ok()) {
    ++core_.traffic.user_writes;
    core_.traffic.user_bytes_written += from.size();
    CountMdEquivalent(offset_bytes, from.size());
    keeper_.WriteDone();
  }
  co_return status;
}

Task<Status> ArrayImpl::WriteRange(VolumeId volume, uint64_t offset_bytes,
                                   std::span<const std::byte> from) {
  const Geometry& g = core_.geometry;
  TaskGroup group(core_.loop);
  Status status;
  while (!from.empty() && status.ok()) {
    const uint64_t stripe_bytes = g.stripe_data_bytes();
    const auto logical = static_cast<uint32_t>(offset_bytes / g.extent_data_bytes());
    Task<Result<ExtentIndex>> ensuring = volumes_.EnsureExtent(volume, logical);
    const Result<ExtentIndex> extent = co_await ensuring;
    if (!extent.ok()) {
      Error error = extent.error();
      status = Fail(std::move(error));
      break;
    }
    const uint64_t in_extent = offset_bytes % g.extent_data_bytes();
    const StripeIndex stripe(extent->value * g.extent_stripes +
                             static_cast<uint32_t>(in_extent / stripe_bytes));
    const uint64_t in_stripe = in_extent % stripe_bytes;
    const uint64_t length = std::min<uint64_t>(stripe_bytes - in_stripe, from.size());
    if (length == from.size() && group.running() == 0) {
      Task<Status> only = buffer_.WriteInStripe(stripe, in_stripe, from);
      status = co_await only;
      break;
    }
    group.Start(buffer_.WriteInStripe(stripe, in_stripe, from.first(length)));
    from = from.subspan(length);
    offset_bytes += length;
  }
  Task<Status> all = group.Wait();
  Status others = co_await all;
  co_return status.ok() ? others : status;
}

Task<Status> ArrayImpl::Read(VolumeId volume, uint64_t offset_bytes, std::span<std::byte> into) {
  Status status = Readable();
  EPLOG_CO_TRY(status);
  const Request request(*this);
  Task<std::shared_ptr<eplog::Volumes::Gate>> entering = volumes_.Enter(volume, false);
  const std::shared_ptr<eplog::Volumes::Gate> gate = co_await entering;
  const Result<const Volume*> located = Locate(volume, offset_bytes, into.size());
  EPLOG_CO_TRY(located);
  Task<Status> reading = ReadRange(**located, offset_bytes, into);
  status = co_await reading;
  if (status.ok()) {
    ++core_.traffic.user_reads;
    core_.traffic.user_bytes_read += into.size();
  }
  co_return status;
}

Task<Status> ArrayImpl::ReadRange(const Volume& volume, uint64_t offset_bytes,
                                  std::span<std::byte> into) {
  const Geometry& g = core_.geometry;
  TaskGroup group(core_.loop);
  while (!into.empty()) {
    const uint64_t in_extent = offset_bytes % g.extent_data_bytes();
    const uint64_t in_chunk = offset_bytes % g.chunk_bytes;
    const uint64_t length = std::min<uint64_t>(g.chunk_bytes - in_chunk, into.size());
    const auto extent =
        volume.extents.Get(static_cast<uint32_t>(offset_bytes / g.extent_data_bytes()));
    if (!extent) {
      std::memset(into.data(), 0, length);
    } else {
      const uint64_t first = uint64_t{extent->value} * g.extent_stripes * g.k();
      group.Start(ReadChunkPart(ChunkIndex(first + in_extent / g.chunk_bytes), in_chunk,
                                into.first(length)));
    }
    into = into.subspan(length);
    offset_bytes += length;
  }
  Task<Status> all = group.Wait();
  co_return co_await all;
}

Task<Status> ArrayImpl::ReadChunkPart(ChunkIndex chunk, uint64_t offset_bytes,
                                      std::span<std::byte> into) {
  const bool direct = into.size() == core_.geometry.chunk_bytes &&
                      reinterpret_cast<uintptr_t>(into.data()) % kBlockBytes == 0;
  if (direct && buffered_.Latest(chunk) == nullptr) {
    return reader_.ReadLatest(chunk, into);
  }
  return CopyChunkPart(chunk, offset_bytes, into);
}

Task<Status> ArrayImpl::CopyChunkPart(ChunkIndex chunk, uint64_t offset_bytes,
                                      std::span<std::byte> into) {
  if (const std::byte* buffered = buffered_.Latest(chunk)) {
    std::memcpy(into.data(), buffered + offset_bytes, into.size());
    co_return OkStatus();
  }
  const Buffer whole = core_.pool.Get(core_.geometry.chunk_bytes);
  EPLOG_CO_AWAIT(reader_.ReadLatest(chunk, whole.span()));
  std::memcpy(into.data(), whole.data() + offset_bytes, into.size());
  co_return OkStatus();
}

Task<Status> ArrayImpl::Trim(VolumeId volume, uint64_t offset_bytes, uint64_t length_bytes,
                             TrimMode mode) {
  Status status = Writable();
  EPLOG_CO_TRY(status);
  const Request request(*this);
  std::vector<ExtentIndex> empty;
  {
    Task<std::shared_ptr<eplog::Volumes::Gate>> entering = volumes_.Enter(volume, false);
    const std::shared_ptr<eplog::Volumes::Gate> gate = co_await entering;
    const Result<const Volume*> located = Locate(volume, offset_bytes, length_bytes);
    EPLOG_CO_TRY(located);
    EPLOG_CO_AWAIT(
        volumes_.Trim(**located, offset_bytes, offset_bytes + length_bytes, mode, empty));
  }
  Task<Status> freeing =
      volumes_.FreeTrimmed(volume, offset_bytes, offset_bytes + length_bytes, std::move(empty));
  status = co_await freeing;
  if (status.ok()) {
    ++core_.traffic.user_trims;
    core_.traffic.user_bytes_trimmed += length_bytes;
  }
  co_return status;
}

// A flush of a range drains only what lies in it; the others go on absorbing.
Task<Status> ArrayImpl::DrainVolume(VolumeId volume, uint64_t offset_bytes, uint64_t length_bytes) {
  return buffer_.Drain([this, volume, offset_bytes, length_bytes](ChunkIndex chunk) {
    const Geometry& g = core_.geometry;
    const StripeIndex stripe = g.StripeOf(chunk);
    const auto owner = core_.state->volumes.OwnerOf(ExtentIndex(stripe.value / g.extent_stripes));
    const uint64_t in_extent =
        (uint64_t{stripe.value % g.extent_stripes} * g.k() + g.IndexInStripe(chunk)) *
        g.chunk_bytes;
    const uint64_t at = owner.logical * g.extent_data_bytes() + in_extent;
    return owner.volume == volume && at + g.chunk_bytes > offset_bytes &&
           (at < offset_bytes || at - offset_bytes < length_bytes);
  });
}

Task<Status> ArrayImpl::Flush(VolumeId volume, uint64_t offset_bytes, uint64_t length_bytes) {
  Status status = Writable();
  EPLOG_CO_TRY(status);
  const Request request(*this);
  const Volume* found = core_.state->volumes.Find(volume);
  if (found == nullptr || found->deleting) {
    co_return Fail(ErrorCode::kNotFound, "no such volume");
  }
  ++core_.traffic.user_flushes;
  Task<Status> flushing = FlushRange(volume, offset_bytes, length_bytes);
  co_return co_await flushing;
}

// What takes another volume's place is durable before that goes: a crash may take what no flush
// covered, and leaves the record of the name (I8).
Task<Status> ArrayImpl::FlushWhole(VolumeId volume) {
  if (core_.canary(Canary::kRenameUnflushed)) {
    co_return OkStatus();
  }
  const Volume* found = core_.state->volumes.Find(volume);
  if (found == nullptr || found->deleting) {
    co_return Fail(ErrorCode::kNotFound, "no such volume");
  }
  Task<Status> flushing = FlushRange(volume, 0, found->size_bytes);
  co_return co_await flushing;
}

Task<Status> ArrayImpl::FlushRange(VolumeId volume, uint64_t offset_bytes, uint64_t length_bytes) {
  EPLOG_CO_AWAIT(DrainVolume(volume, offset_bytes, length_bytes));
  const Volume* found = core_.state->volumes.Find(volume);
  if (found == nullptr || found->deleting) {
    co_return Fail(ErrorCode::kNotFound, "no such volume");
  }
  const Geometry& g = core_.geometry;
  uint64_t target = volumes_.LastFreed(volume);
  uint64_t ssds = 0;
  length_bytes =
      std::min(length_bytes, found->size_bytes - std::min(offset_bytes, found->size_bytes));
  if (length_bytes != 0) {
    const uint64_t first = offset_bytes / g.extent_data_bytes();
    const uint64_t last = (offset_bytes + length_bytes - 1) / g.extent_data_bytes() + 1;
    found->extents.ForEach(first, last, [&](ExtentIndex extent) {
      target = std::max(target, appender_.LastWrite(extent));
      ssds |= uint64_t{1} << g.SsdOf(StripeIndex(extent.value * g.extent_stripes), 0).value;
    });
  }
  EPLOG_CO_AWAIT(flusher_.FlushTo(target, Flusher::Upto::kAcknowledgeable, ssds));
  Task<void> committing = CommitFlushed(target);
  co_await committing;
  co_return OkStatus();
}

Task<Status> ArrayImpl::FlushAll() {
  Status status = Writable();
  EPLOG_CO_TRY(status);
  const Request request(*this);
  ++core_.traffic.user_flushes;
  EPLOG_CO_AWAIT(DrainAll());
  const uint64_t target = appender_.applied().sequence;
  EPLOG_CO_AWAIT(flusher_.FlushTo(target, Flusher::Upto::kAcknowledgeable));
  Task<void> committing = CommitFlushed(target);
  co_await committing;
  co_return OkStatus();
}

}  // namespace eplog
