// ArrayImpl: the parts of an open array put together, and the public API over them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/checkpoint/checkpointer.h"
#include "engine/checkpoint/superblocks.h"
#include "engine/commit/committer.h"
#include "engine/core/core.h"
#include "engine/core/findings.h"
#include "engine/log/admission.h"
#include "engine/log/appender.h"
#include "engine/log/flusher.h"
#include "engine/open/assembly.h"
#include "engine/open/recovery.h"
#include "engine/read/chunk_reader.h"
#include "engine/repair/healer.h"
#include "engine/repair/membership.h"
#include "engine/repair/rebuilder.h"
#include "engine/repair/scrubber.h"
#include "engine/upkeep/discarder.h"
#include "engine/upkeep/keeper.h"
#include "engine/upkeep/relogger.h"
#include "engine/upkeep/watch.h"
#include "engine/write/volumes.h"
#include "engine/write/writer.h"
#include "eplog/array.h"

namespace eplog {

class ArrayImpl final : public Array {
 public:
  ArrayImpl(EventLoop& loop, Assembly assembly, const OpenOptions& options, EngineHooks* hooks);
  ~ArrayImpl() override;

  // Recovers; unless read-only, writes what recovery must write and starts the background work.
  // After a failure nothing of it is on its way any more.
  Task<Status> Start();
  // Devices are here that were not taken back only because the epoch that calls them away had not
  // opened: it has now.
  [[nodiscard]] bool could_take_back() const { return could_take_back_; }
  // Of an opening that failed: whose writes or flushes did.
  [[nodiscard]] uint64_t failed_mask() const { return core_.members.failed_mask(); }

  Task<Status> Close() override;
  Task<Result<VolumeId>> CreateVolume(std::string name, uint64_t size_bytes) override;
  Task<Status> ResizeVolume(VolumeId volume, uint64_t size_bytes) override;
  Task<Status> RenameVolume(VolumeId volume, std::string new_name, bool replace) override;
  Task<Result<VolumeId>> RenameVolumeOver(VolumeId volume, std::string new_name) override;
  Task<Status> HideVolume(VolumeId volume) override;
  Task<Status> DeleteVolume(VolumeId volume) override;
  Task<Status> DeleteVolumeNamed(VolumeId volume, std::string name) override;
  [[nodiscard]] std::vector<VolumeInfo> Volumes() const override;
  [[nodiscard]] std::optional<VolumeInfo> FindVolume(std::string_view name) const override;
  [[nodiscard]] std::optional<VolumeInfo> GetVolume(VolumeId volume) const override;
  Task<Status> Read(VolumeId volume, uint64_t offset_bytes, std::span<std::byte> into) override;
  Task<Status> Write(VolumeId volume, uint64_t offset_bytes,
                     std::span<const std::byte> from) override;
  Task<Status> Trim(VolumeId volume, uint64_t offset_bytes, uint64_t length_bytes,
                    TrimMode mode) override;
  Task<Status> Flush(VolumeId volume, uint64_t offset_bytes, uint64_t length_bytes) override;
  Task<Status> FlushAll() override;
  Task<Status> Commit(Progress progress) override;
  Task<Status> Checkpoint(CheckpointKind kind) override;
  Task<Result<uint64_t>> DiscardFree(Progress progress) override;
  Task<Result<CheckReport>> Check(Progress progress) override;
  Task<Result<CheckReport>> Scrub(bool heal, Progress progress) override;
  Task<Result<LossReport>> FindLost() override;
  [[nodiscard]] ArrayStatus GetStatus() const override;
  Task<Status> FailDevice(uint32_t device, std::string reason) override;
  Task<Status> ReplaceDevice(uint32_t device, Device& replacement) override;
  Task<Status> CheckNotInUse(Device& device) override;
  [[nodiscard]] bool Holds(const Device& device) const override;
  Task<Result<ChangePlan>> Plan(Change change) override;
  Status SetBuffers(const BufferSizes& sizes) override {
    EPLOG_TRY(WriteBuffer::Check(core_, sizes));
    buffer_.SetSizes(sizes);
    return OkStatus();
  }
  void SetRebuildPace(const RebuildPace& pace) override { rebuilder_.SetPace(pace); }

 private:
  // One request in flight; Close waits for all.
  class Request {
   public:
    explicit Request(ArrayImpl& array) : array_(array) {
      array_.requests_.Add();
      array_.core_.last_request_us = array_.core_.loop.NowUs();
    }
    Request(const Request&) = delete;
    Request& operator=(const Request&) = delete;
    ~Request() { array_.requests_.Done(); }

   private:
    ArrayImpl& array_;
  };

  Task<Status> RecoverAndRun();
  void OpenBeyond();
  Task<void> TakeBack();
  Task<Status> FlushWhole(VolumeId volume);
  Task<Status> FlushRange(VolumeId volume, uint64_t offset_bytes, uint64_t length_bytes);
  Task<uint64_t> WriteAgain(std::span<const Recovery::Salvaged> salvaged);
  Task<Status> WriteAgain(ChunkIndex chunk, const Buffer& content, uint64_t& written);
  [[nodiscard]] Status Writable() const;
  [[nodiscard]] Status Readable() const;
  [[nodiscard]] Result<const Volume*> Locate(VolumeId volume, uint64_t offset_bytes,
                                             uint64_t length) const;
  Task<Status> WriteRange(VolumeId volume, uint64_t offset_bytes, std::span<const std::byte> from);
  Task<Status> ReadRange(const Volume& volume, uint64_t offset_bytes, std::span<std::byte> into);
  Task<Status> ReadChunkPart(ChunkIndex chunk, uint64_t offset_bytes, std::span<std::byte> into);
  Task<Status> CopyChunkPart(ChunkIndex chunk, uint64_t offset_bytes, std::span<std::byte> into);
  // What is pending and applied up to `upto`.
  Task<Status> CommitUpto(uint64_t upto, Progress progress);
  Task<Status> CommitStripes(std::span<const StripeIndex> stripes, Progress progress);
  Task<void> CommitFlushed(uint64_t upto);
  Task<Status> ScrubAll(Findings& findings, bool heal, const Progress& progress);
  Task<Status> ScrubParts(Findings& findings, Scrubber::Options options, const Progress& progress,
                          bool& left_something);
  // False if it was changed too often to be read as a whole.
  Task<Result<bool>> ScrubMetadata(Findings& findings, bool heal);
  Task<Status> DrainVolume(VolumeId volume, uint64_t offset_bytes, uint64_t length_bytes);
  // Until all that is acknowledged is in the log.
  Task<Status> DrainAll() {
    return buffer_.Drain([](ChunkIndex) { return true; });
  }
  void CountMdEquivalent(uint64_t offset_bytes, uint64_t length_bytes);
  void NoteShown(DeviceIndex index, const Device& device);
  void FillDevices(ArrayStatus& status) const;
  void FillExposure(ArrayStatus& status) const;
  struct RowCounts;
  struct LogStripeCounts;
  Task<void> CountRows(RowCounts& counts);
  Task<void> CountInLogStripes(LogStripeCounts& counts);
  [[nodiscard]] Standing StandingNow() const;
  void Conclude(Standing& standing, bool lost) const;
  // Devices, SSDs and log devices alike, that may be lost beside so many that are not ok: with one
  // more the array stops, also where nothing is pending.
  [[nodiscard]] uint32_t FurtherLosses(uint32_t not_ok) const {
    return core_.geometry.m - std::min(not_ok, core_.geometry.m);
  }
  Task<Status> PlanFail(DeviceIndex device, ChangePlan& plan);
  Task<Status> PlanReplace(const Change& change, ChangePlan& plan);
  Task<Status> PlanDelete(VolumeId id, ChangePlan& plan);
  Task<Status> PlanScrub(ChangePlan& plan);

  // What is told of a device, also when it is lost and may be gone.
  struct Shown {
    std::string path;
    bool direct = false;
    uint64_t size_bytes = 0;
  };

  Assembly assembly_;  // its devices are only there while the array is being opened
  std::vector<std::optional<Shown>> shown_;
  Core core_;
  Appender appender_;
  Flusher flusher_;
  Admission admission_;
  ChunkReader reader_;
  BufferedChunks buffered_;
  Writer writer_;
  WriteBuffer buffer_;
  Trimmer trimmer_;
  Committer committer_;
  Superblocks superblocks_;
  Checkpointer checkpointer_;
  Relogger relogger_;
  Keeper keeper_;
  Membership membership_;
  Rebuilder rebuilder_;
  Healer healer_;
  Watch watch_;
  Discarder discarder_;
  eplog::Volumes volumes_;
  AsyncMutex flush_commits_;
  WaitGroup requests_;
  bool closing_ = false;
  bool scrubbing_ = false;
  uint64_t recovery_us_ = 0;
  uint64_t entries_replayed_ = 0;
  bool could_take_back_ = false;
};

}  // namespace eplog
