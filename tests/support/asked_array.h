// AskedArray: an array that does nothing but take replacements in, and notes what it was asked,
// word for word, for tests of what passes requests on. Everything is done on one thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "eplog/array.h"

namespace eplog {

class AskedArray final : public Array {
 public:
  // ---- what it answers
  Status answer;  // to all that changes something
  ArrayStatus status;
  std::vector<VolumeInfo> volumes;
  ChangePlan plan;
  CheckReport report;
  LossReport loss;
  uint64_t discarded_bytes = 0;
  std::vector<const Device*> held;  // that are members

  // ---- what it was asked
  std::vector<std::string> asked;
  std::optional<Change> planned;

  Task<Status> Close() override { return Note("close"); }
  Task<Result<VolumeId>> CreateVolume(std::string name, uint64_t size_bytes) override {
    asked.push_back("create " + name + " " + std::to_string(size_bytes));
    co_return answer.ok() ? Result<VolumeId>(VolumeId(5)) : Fail(answer.error());
  }
  Task<Status> ResizeVolume(VolumeId volume, uint64_t size_bytes) override {
    return Note("resize " + std::to_string(volume.value) + " " + std::to_string(size_bytes));
  }
  Task<Status> RenameVolume(VolumeId /*volume*/, std::string new_name, bool /*replace*/) override {
    return Note("rename " + new_name);
  }
  Task<Result<VolumeId>> RenameVolumeOver(VolumeId /*volume*/, std::string new_name) override {
    asked.push_back("rename over " + new_name);
    co_return VolumeId(0);
  }
  Task<Status> HideVolume(VolumeId volume) override {
    return Note("hide " + std::to_string(volume.value));
  }
  Task<Status> DeleteVolume(VolumeId volume) override {
    return Note("delete " + std::to_string(volume.value));
  }
  Task<Status> DeleteVolumeNamed(VolumeId volume, std::string name) override {
    return Note("delete " + std::to_string(volume.value) + " " + name);
  }
  [[nodiscard]] std::vector<VolumeInfo> Volumes() const override { return volumes; }
  [[nodiscard]] std::optional<VolumeInfo> FindVolume(std::string_view name) const override {
    const auto found = std::find_if(volumes.begin(), volumes.end(),
                                    [&](const VolumeInfo& info) { return info.name == name; });
    return found == volumes.end() ? std::nullopt : std::optional(*found);
  }
  [[nodiscard]] std::optional<VolumeInfo> GetVolume(VolumeId volume) const override {
    const auto found = std::find_if(volumes.begin(), volumes.end(),
                                    [&](const VolumeInfo& info) { return info.id == volume; });
    return found == volumes.end() ? std::nullopt : std::optional(*found);
  }
  Task<Status> Read(VolumeId /*volume*/, uint64_t /*offset_bytes*/,
                    std::span<std::byte> /*into*/) override {
    return Note("read");
  }
  Task<Status> Write(VolumeId /*volume*/, uint64_t /*offset_bytes*/,
                     std::span<const std::byte> /*from*/) override {
    return Note("write");
  }
  Task<Status> Trim(VolumeId /*volume*/, uint64_t /*offset_bytes*/, uint64_t /*length_bytes*/,
                    TrimMode /*mode*/) override {
    return Note("trim");
  }
  Task<Status> Flush(VolumeId /*volume*/, uint64_t /*offset_bytes*/,
                     uint64_t /*length_bytes*/) override {
    return Note("flush");
  }
  Task<Status> FlushAll() override { return Note("flush all"); }
  Task<Status> Commit(Progress progress) override {
    Tell(progress);
    return Note("commit");
  }
  Task<Status> Checkpoint(CheckpointKind kind) override {
    return Note(kind == CheckpointKind::kAuto ? "checkpoint" : "checkpoint of some kind");
  }
  Task<Result<uint64_t>> DiscardFree(Progress progress) override {
    Tell(progress);
    asked.emplace_back("discard");
    co_return answer.ok() ? Result<uint64_t>(discarded_bytes) : Fail(answer.error());
  }
  Task<Result<CheckReport>> Check(Progress /*progress*/) override {
    asked.emplace_back("check");
    co_return report;
  }
  Task<Result<CheckReport>> Scrub(bool heal, Progress progress) override {
    Tell(progress);
    asked.emplace_back(heal ? "scrub and heal" : "scrub");
    co_return answer.ok() ? Result<CheckReport>(report) : Fail(answer.error());
  }
  Task<Result<LossReport>> FindLost() override {
    asked.emplace_back("find lost");
    co_return answer.ok() ? Result<LossReport>(loss) : Fail(answer.error());
  }
  Task<Status> FailDevice(uint32_t device, std::string reason) override {
    return Note("fail " + std::to_string(device) + ": " + reason);
  }
  Task<Status> CheckNotInUse(Device& device) override {
    return Note("may be taken " + device.name());
  }
  Task<Status> ReplaceDevice(uint32_t device, Device& replacement) override {
    if (answer.ok() && device < status.devices.size()) {
      status.devices[device].state = DeviceState::kRebuilding;
      status.devices[device].path = replacement.name();
    }
    return Note("replace " + std::to_string(device) + " " + replacement.name());
  }
  [[nodiscard]] bool Holds(const Device& device) const override {
    return std::find(held.begin(), held.end(), &device) != held.end();
  }
  Task<Result<ChangePlan>> Plan(Change change) override {
    asked.emplace_back("plan");
    planned = std::move(change);
    co_return answer.ok() ? Result<ChangePlan>(plan) : Fail(answer.error());
  }
  Status SetBuffers(const BufferSizes& sizes) override {
    asked.push_back("buffers " + std::to_string(sizes.device_chunks) + " " +
                    std::to_string(sizes.stripes));
    return answer;
  }
  void SetRebuildPace(const RebuildPace& pace) override {
    asked.push_back(std::string("pace ") + (pace.yields ? "yields " : "") +
                    std::to_string(pace.bytes_per_second));
  }
  [[nodiscard]] ArrayStatus GetStatus() const override { return status; }

 private:
  Task<Status> Note(std::string what) {
    asked.push_back(std::move(what));
    co_return answer;
  }
  static void Tell(const Progress& progress) {
    if (progress) {
      progress(3, 4);
    }
  }
};

}  // namespace eplog
