// The real engine as a target of replay.
#include <algorithm>
#include <limits>
#include <utility>

#include "eplog/array.h"
#include "layout/geometry.h"
#include "replay/replay.h"
#include "replay/target.h"

namespace eplog {
namespace {

constexpr char kVolumeName[] = "eplog-replay";

class EplogTarget : public Target {
 public:
  EplogTarget(Array& array, VolumeId volume) : array_(&array), volume_(volume) {}

  Task<Status> Read(uint64_t offset_bytes, std::span<std::byte> into) override {
    return array_->Read(volume_, offset_bytes, into);
  }
  Task<Status> Write(uint64_t offset_bytes, std::span<const std::byte> from) override {
    return array_->Write(volume_, offset_bytes, from);
  }
  Task<Status> Trim(uint64_t offset_bytes, uint64_t length_bytes) override {
    return array_->Trim(volume_, offset_bytes, length_bytes, TrimMode::kZero);
  }
  Task<Status> Flush(uint64_t offset_bytes, uint64_t length_bytes) override {
    return array_->Flush(volume_, offset_bytes, length_bytes);
  }
  Task<Status> FlushAll() override { return array_->FlushAll(); }
  Task<Status> Commit() override { return array_->Commit({}); }
  Task<Status> Settle() override {
    EPLOG_CO_AWAIT(array_->Commit({}));
    Task<Status> checkpoint = array_->Checkpoint(CheckpointKind::kFull);
    co_return co_await checkpoint;
  }
  Task<Status> FailSsd(uint32_t ssd) override {
    return array_->FailDevice(ssd, "failed for a replay");
  }
  // A volume in an array of somebody else's.
  Task<Status> Close() override { return array_->DeleteVolume(volume_); }
  [[nodiscard]] uint64_t stripe_bytes() const override {
    const ArrayStatus status = array_->GetStatus();
    return uint64_t{status.data_chunks} * status.chunk_bytes;
  }
  [[nodiscard]] Traffic traffic() const override { return array_->GetStatus().traffic; }
  [[nodiscard]] TargetState state() const override {
    const ArrayStatus status = array_->GetStatus();
    return {.pending_bytes = status.pending_bytes,
            .used_slot_bytes = status.slots_used * status.chunk_bytes,
            .metadata_bytes = status.metadata_bytes};
  }

 protected:
  [[nodiscard]] Array& array() { return *array_; }

 private:
  Array* array_;
  VolumeId volume_;
};

// And its array, made for this.
class OwningTarget final : public EplogTarget {
 public:
  OwningTarget(std::unique_ptr<Array> array, VolumeId volume)
      : EplogTarget(*array, volume), owned_(std::move(array)) {}
  Task<Status> Close() override { return array().Close(); }

 private:
  std::unique_ptr<Array> owned_;
};

Task<Result<VolumeId>> MakeVolume(Array& array, uint64_t volume_bytes) {
  return array.CreateVolume(kVolumeName, volume_bytes);
}

}  // namespace

OpenOptions OptionsFor(const ReplaySettings& settings, bool paper) {
  OpenOptions options;
  options.buffers = settings.buffers;
  options.log_whole_stripes = paper;
  options.auto_commit = settings.commit_every != 0U;
  options.entropy = settings.seed;
  if (paper) {
    // Which has none while it runs.
    options.checkpoint = {.log_bytes = std::numeric_limits<uint64_t>::max(), .interval_us = 0};
  } else if (settings.speed > 0 && !settings.commit_every) {
    options.commit.idle_us = 60'000'000;  // as a mount does
  }
  return options;
}

namespace {

// All that is ever pending at once: without commits every chunk once more, otherwise what a trace
// of usual locality has pending.
uint32_t SpareSlotPercent(const ReplaySettings& settings) {
  return settings.commit_every == 0U ? 110 : 40;
}

}  // namespace

Result<RigSizes> SizesFor(const ReplaySettings& settings, uint64_t volume_bytes) {
  constexpr uint32_t kReservePercent = 10;
  // Slots become free when the log is flushed, at the latest after so much of it, in which a log
  // stripe takes a block and a chunk and frees at most a slot of an SSD; and a few besides.
  constexpr uint64_t kUnflushedBytes = uint64_t{64} << 20;
  const uint64_t spare_stripes = kUnflushedBytes / (kBlockBytes + settings.chunk_bytes) + 4096;
  GeometryRequest request;
  request.n = settings.ssds;
  request.m = settings.parity;
  request.chunk_bytes = settings.chunk_bytes;
  request.reserve_percent = kReservePercent;
  RigSizes sizes;
  const uint64_t stripe_bytes = uint64_t{settings.ssds - settings.parity} * settings.chunk_bytes;
  sizes.log_bytes = settings.log_bytes;
  if (sizes.log_bytes == 0) {
    // What is never written takes no memory.
    const bool never = settings.commit_every == 0U;
    const bool written_out = settings.devices == DeviceKind::kFiles;
    sizes.log_bytes = std::max(RoundUp(volume_bytes * 2, kBlockBytes),
                               (never && !written_out ? uint64_t{512} : uint64_t{1}) << 30);
  }
  request.log_bytes = sizes.log_bytes;
  sizes.ssd_bytes = settings.ssd_bytes;
  if (sizes.ssd_bytes == 0) {
    const uint64_t stripes =
        DivideUp(volume_bytes, stripe_bytes) * (100 + SpareSlotPercent(settings)) / 100 +
        spare_stripes;
    if (stripes > std::numeric_limits<uint32_t>::max()) {
      return Fail(ErrorCode::kNoSpace,
                  "the trace touches " + std::to_string(volume_bytes >> 30) +
                      " GiB, more than an array can hold: take a part of it by --limit");
    }
    const Result<uint64_t> bytes = SsdBytesForStripes(request, static_cast<uint32_t>(stripes));
    EPLOG_TRY(bytes);
    sizes.ssd_bytes = RoundUp(*bytes, uint64_t{1} << 20);
  }
  return sizes;
}

Task<Result<std::unique_ptr<Target>>> MakeEplogTarget(EventLoop& loop, Rig& rig,
                                                      const ReplaySettings& settings, bool paper,
                                                      uint64_t volume_bytes) {
  CreateOptions create;
  create.name = "replay";
  create.parity = settings.parity;
  create.chunk_bytes = settings.chunk_bytes;
  create.entropy = settings.seed;
  create.discard = true;  // as eplog create does
  EPLOG_CO_AWAIT(Array::Create(loop, rig.ssds(), rig.logs(), create));
  std::vector<Device*> all = rig.ssds();
  const std::vector<Device*> logs = rig.logs();
  all.insert(all.end(), logs.begin(), logs.end());
  Task<Result<std::unique_ptr<Array>>> opening =
      Array::Open(loop, std::move(all), OptionsFor(settings, paper));
  Result<std::unique_ptr<Array>> array = co_await opening;
  if (!array.ok()) {
    co_return Fail(std::move(array).error());
  }
  Task<Result<VolumeId>> making = MakeVolume(**array, volume_bytes);
  const Result<VolumeId> volume = co_await making;
  if (!volume.ok()) {
    Error error = volume.error();
    Task<Status> close = (*array)->Close();
    static_cast<void>(co_await close);
    co_return Fail(std::move(error));
  }
  std::unique_ptr<Target> target = std::make_unique<OwningTarget>(std::move(*array), *volume);
  co_return target;
}

Task<Result<std::unique_ptr<Target>>> MakeVolumeTarget(Array& array, uint64_t volume_bytes) {
  Task<Result<VolumeId>> making = MakeVolume(array, volume_bytes);
  const Result<VolumeId> volume = co_await making;
  if (!volume.ok()) {
    Error error = volume.error();
    if (error.code == ErrorCode::kExists) {
      error.message += "; an earlier replay did not come to its end: delete that volume";
    }
    co_return Fail(std::move(error));
  }
  std::unique_ptr<Target> target = std::make_unique<EplogTarget>(array, *volume);
  co_return target;
}

}  // namespace eplog
