// FakeArray: an Array in memory, for tests of what sits on the public API. It keeps the contract to
// the letter (ranges, names, errors), answers late and fails on demand, and watches its callers:
// the memory of a write must not change until the write has been answered.
//
// One thread, like every Array; the public members may be set before it is served, or on that
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "eplog/array.h"
#include "eplog/event_loop.h"
#include "runtime/sync.h"

namespace eplog {

class FakeArray final : public Array {
 public:
  enum class Op : uint8_t {
    kRead,
    kWrite,
    kFlush,
    kTrim,
    kCreate,
    kResize,
    kRename,
    kDelete,
    kCommit,
    kCheckpoint,
    kClose,
  };
  struct Call {
    Op op;
    VolumeId volume;
    uint64_t offset_bytes;
    uint64_t length_bytes;             // kResize: the new size
    TrimMode mode = TrimMode::kPunch;  // kTrim
  };

  explicit FakeArray(EventLoop& loop, uint64_t capacity_bytes = uint64_t{1} << 30);
  ~FakeArray() override = default;

  // ---- behaviour
  uint64_t max_delay_us = 0;  // each answer comes after a random time up to this
  bool keep_data = true;      // false: writes go nowhere and reads are zeros, for measuring
  std::function<Status(const Call&)> before;        // an error here is the answer
  std::function<bool(const Call&)> hold;            // true: not answered yet; asked again and again
  std::function<void(std::string_view)> looked_up;  // once it is known who has the name
  std::vector<DeviceStatus> devices;
  std::set<const Device*> held;  // that are members
  // What becomes of a replacement; empty: there is no replacing.
  std::function<Task<Status>(uint32_t device, Device& replacement)> on_replace;

  // ---- observations
  std::vector<Call> calls;  // all but reads and writes
  uint64_t reads = 0;
  uint64_t writes = 0;
  uint64_t overlapping_writes = 0;  // began while another was in flight
  uint64_t changed_buffers = 0;     // memory of a write changed before its answer
  uint64_t unaligned_buffers = 0;   // of reads and writes
  bool closed = false;

  // A volume that was there before.
  void AddVolume(std::string name, std::span<const std::byte> content);
  // What another front end did, of which nobody was told.
  void SetSize(std::string_view name, uint64_t size_bytes);
  void Drop(std::string_view name);
  [[nodiscard]] std::vector<std::byte> Content(std::string_view name) const;
  [[nodiscard]] uint64_t Count(Op op) const;
  [[nodiscard]] size_t volume_count() const { return volumes_.size(); }  // hidden ones too

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
  Task<Result<uint64_t>> DiscardFree(Progress /*progress*/) override { co_return uint64_t{0}; }
  Task<Result<CheckReport>> Check(Progress progress) override;
  Task<Result<LossReport>> FindLost() override { co_return LossReport(); }
  Task<Result<CheckReport>> Scrub(bool /*heal*/, Progress progress) override {
    return Check(std::move(progress));
  }
  [[nodiscard]] ArrayStatus GetStatus() const override;
  Task<Status> FailDevice(uint32_t /*device*/, std::string /*reason*/) override {
    co_return Fail(ErrorCode::kUnsupported, "no failing of devices");
  }
  Task<Status> CheckNotInUse(Device& /*device*/) override { co_return OkStatus(); }
  Task<Status> ReplaceDevice(uint32_t device, Device& replacement) override {
    if (on_replace == nullptr) {
      co_return Fail(ErrorCode::kUnsupported, "no replacing of devices");
    }
    Task<Status> replacing = on_replace(device, replacement);
    co_return co_await replacing;
  }
  [[nodiscard]] bool Holds(const Device& device) const override { return held.contains(&device); }
  // Tells what it was asked, in figures: the device, the replacement's size, the volume.
  Task<Result<ChangePlan>> Plan(Change change) override {
    ChangePlan plan;
    plan.chunks_losing_copy = change.device;
    plan.rebuild_bytes = change.replacement_bytes;
    plan.freed_bytes = change.volume.value;
    co_return plan;
  }
  Status SetBuffers(const BufferSizes& /*sizes*/) override { return OkStatus(); }
  void SetRebuildPace(const RebuildPace& /*pace*/) override {}

 private:
  static constexpr uint64_t kPage = 4096;
  using Page = std::vector<std::byte>;
  struct Volume {
    std::string name;
    uint64_t size_bytes = 0;
    std::map<uint64_t, Page> pages;  // what was written
    bool hidden = false;             // it has no name
  };

  // In flight until the scope ends, however it ends.
  class Running {
   public:
    explicit Running(WaitGroup& group) : group_(group) { group_.Add(); }
    ~Running() { group_.Done(); }
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;

   private:
    WaitGroup& group_;
  };

  // What every call goes through first: shutdown, `before`, the delay.
  Task<Status> Begin(Call call);
  Task<Status> Settle();
  Volume* Find(VolumeId id);
  [[nodiscard]] std::optional<VolumeInfo> InfoOf(std::string_view name) const;
  void Resize(Volume& volume, uint64_t size_bytes);
  static void Hide(Volume& volume);
  [[nodiscard]] VolumeInfo InfoOf(uint32_t id, const Volume& volume) const;
  [[nodiscard]] uint64_t AllocatedBytes() const;
  Status Store(Volume& volume, uint64_t offset_bytes, std::span<const std::byte> from);
  static void Load(const Volume& volume, uint64_t offset_bytes, std::span<std::byte> into);

  EventLoop& loop_;
  Random random_{42};
  uint64_t capacity_bytes_;
  uint32_t next_id_ = 1;
  std::map<uint32_t, Volume> volumes_;
  uint64_t writes_in_flight_ = 0;
  WaitGroup in_flight_;
};

}  // namespace eplog
