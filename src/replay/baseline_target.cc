// MD and parity logging as targets of replay.
#include <algorithm>
#include <utility>
#include <vector>

#include "baseline/md_array.h"
#include "baseline/page_cache.h"
#include "baseline/pl_array.h"
#include "replay/target.h"

namespace eplog {
namespace {

// The policies' own classes in the words of status.
Traffic InCommonWords(const TargetTraffic& traffic, uint64_t chunk_bytes) {
  Traffic common;
  common.user_writes = traffic.user_writes;
  common.user_bytes_written = traffic.user_bytes_written;
  common.user_reads = traffic.user_reads;
  common.user_bytes_read = traffic.user_bytes_read;
  common.user_flushes = traffic.user_flushes;
  common.user_trims = traffic.user_trims;
  // They count lines, which are a page of each chunk.
  common.full_stripe_writes = traffic.lines_full * kBlockBytes / chunk_bytes;
  common.log_appends = traffic.lines_logged;
  common.commits = traffic.commits;
  common.committed_stripes = traffic.lines_committed * kBlockBytes / chunk_bytes;
  common.commit_read_bytes = traffic.bytes(IoClass::kCommitRead);
  common.ssd_data_bytes = traffic.bytes(IoClass::kDataWrite);
  common.ssd_parity_bytes = traffic.bytes(IoClass::kParityWrite);
  common.log_chunk_bytes = traffic.bytes(IoClass::kLogWrite);
  return common;
}

// One after the other of the same kind, since these take their failed SSDs when they are made.
class BaselineTarget final : public Target {
 public:
  using Maker = std::function<Result<std::unique_ptr<BlockTarget>>(std::vector<Device*> ssds)>;

  // What lies beyond `trim_from_bytes` of each SSD is spare.
  BaselineTarget(std::vector<Device*> ssds, uint64_t trim_from_bytes, uint64_t stripe_bytes,
                 uint64_t chunk_bytes, Maker make, std::unique_ptr<BlockTarget> target)
      : ssds_(std::move(ssds)),
        trim_from_bytes_(trim_from_bytes),
        stripe_bytes_(stripe_bytes),
        chunk_bytes_(chunk_bytes),
        make_(std::move(make)),
        target_(std::move(target)) {}

  Task<Status> Read(uint64_t offset_bytes, std::span<std::byte> into) override {
    return target_->Read(offset_bytes, into);
  }
  Task<Status> Write(uint64_t offset_bytes, std::span<const std::byte> from) override {
    return target_->Write(offset_bytes, from);
  }
  Task<Status> Trim(uint64_t offset_bytes, uint64_t length_bytes) override {
    return target_->Trim(offset_bytes, length_bytes);
  }
  Task<Status> Flush(uint64_t /*offset_bytes*/, uint64_t /*length_bytes*/) override {
    return target_->Flush();
  }
  Task<Status> FlushAll() override { return target_->Flush(); }
  Task<Status> Commit() override { return target_->Commit(); }
  Task<Status> Settle() override {
    EPLOG_CO_AWAIT(target_->Commit());
    Task<Status> flush = target_->Flush();
    co_return co_await flush;
  }
  Task<Status> TrimSpare() override {
    Status status;
    for (Device* ssd : ssds_) {
      if (status.ok() && ssd != nullptr && trim_from_bytes_ < ssd->size_bytes()) {
        Task<Status> trim = ssd->Discard(trim_from_bytes_, ssd->size_bytes() - trim_from_bytes_);
        status = co_await trim;
      }
    }
    co_return status;
  }
  Task<Status> FailSsd(uint32_t ssd) override {
    ssds_[ssd] = nullptr;
    EPLOG_CO_AWAIT(target_->Close());
    auto next = make_(ssds_);
    if (!next.ok()) {
      co_return Fail(std::move(next).error());
    }
    target_ = std::move(*next);
    co_return OkStatus();
  }
  Task<Status> Close() override { return target_->Close(); }
  [[nodiscard]] uint64_t stripe_bytes() const override { return stripe_bytes_; }
  [[nodiscard]] Traffic traffic() const override {
    return InCommonWords(target_->traffic(), chunk_bytes_);
  }
  [[nodiscard]] TargetState state() const override {
    const uint64_t line_bytes = stripe_bytes_ / chunk_bytes_ * kBlockBytes;
    return {.pending_bytes = target_->pending_lines() * line_bytes,
            .used_slot_bytes = 0,
            .metadata_bytes = 0};
  }

 private:
  std::vector<Device*> ssds_;
  uint64_t trim_from_bytes_;
  uint64_t stripe_bytes_;
  uint64_t chunk_bytes_;
  Maker make_;
  std::unique_ptr<BlockTarget> target_;
};

// In front of it a page cache, if there is to be one.
template <typename Made>
Result<std::unique_ptr<BlockTarget>> Behind(EventLoop& loop, uint64_t page_cache_bytes,
                                            Result<std::unique_ptr<Made>> made) {
  if (!made.ok()) {
    return Fail(std::move(made).error());
  }
  std::unique_ptr<BlockTarget> target = std::move(*made);
  if (page_cache_bytes != 0) {
    target = std::make_unique<PageCache>(loop, std::move(target), page_cache_bytes);
  }
  return target;
}

uint32_t ChunkBytes(const ReplaySettings& settings) {
  return settings.baseline_chunk_bytes != 0 ? settings.baseline_chunk_bytes : settings.chunk_bytes;
}

Result<std::unique_ptr<Target>> MakeTarget(Rig& rig, const ReplaySettings& settings,
                                           uint64_t volume_bytes, BaselineTarget::Maker make) {
  auto first = make(rig.ssds());
  if (!first.ok()) {
    return Fail(std::move(first).error());
  }
  if ((*first)->size_bytes() < volume_bytes) {
    return Fail(ErrorCode::kNoSpace, "the SSDs hold " + std::to_string((*first)->size_bytes()) +
                                         " bytes of data and the trace touches " +
                                         std::to_string(volume_bytes) +
                                         ": give a larger --ssd-size");
  }
  const uint64_t stripe_bytes = uint64_t{settings.ssds - settings.parity} * ChunkBytes(settings);
  const uint64_t trim_from_bytes = DivideUp(volume_bytes, stripe_bytes) * ChunkBytes(settings);
  std::unique_ptr<Target> target =
      std::make_unique<BaselineTarget>(rig.ssds(), trim_from_bytes, stripe_bytes,
                                       ChunkBytes(settings), std::move(make), std::move(*first));
  return target;
}

}  // namespace

Result<std::unique_ptr<Target>> MakeMdTarget(EventLoop& loop, Rig& rig,
                                             const ReplaySettings& settings,
                                             uint64_t volume_bytes) {
  MdOptions options;
  options.parity = settings.parity;
  options.chunk_bytes = ChunkBytes(settings);
  return MakeTarget(rig, settings, volume_bytes,
                    [&loop, options, cache = settings.page_cache_bytes](std::vector<Device*> ssds) {
                      return Behind(loop, cache, MdArray::Make(loop, std::move(ssds), options));
                    });
}

Result<std::unique_ptr<Target>> MakePlTarget(EventLoop& loop, Rig& rig,
                                             const ReplaySettings& settings,
                                             uint64_t volume_bytes) {
  PlOptions options;
  options.chunk_bytes = ChunkBytes(settings);
  return MakeTarget(rig, settings, volume_bytes,
                    [&loop, options, cache = settings.page_cache_bytes,
                     logs = rig.logs()](std::vector<Device*> ssds) {
                      return Behind(loop, cache,
                                    PlArray::Make(loop, std::move(ssds), logs, options));
                    });
}

}  // namespace eplog
