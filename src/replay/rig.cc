#include "replay/rig.h"

#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/buffer.h"
#include "device/file_device.h"
#include "device/forwarding_device.h"
#include "device/request_check.h"
#include "runtime/run_task.h"
#include "runtime/task_group.h"
#include "sim/drive.h"
#include "sim/pattern_store.h"

namespace eplog {
namespace {

constexpr uint64_t kPieceBytes = uint64_t{1} << 20;
constexpr size_t kPiecesAtOnce = 8;
constexpr uint64_t kAgeingPercent = 200;  // of the flash, overwritten at random beforehand

// Keeps content in little memory and takes no time.
class TimelessDevice final : public Device {
 public:
  TimelessDevice(std::string name, uint64_t size_bytes)
      : name_(std::move(name)), content_(size_bytes) {}

  Task<Status> Read(uint64_t offset_bytes, std::span<const iovec> into) override {
    Status status = CheckRequest(*this, "read", offset_bytes, into);
    EPLOG_CO_TRY(status);
    for (const iovec& part : into) {
      content_.Read(offset_bytes, {static_cast<std::byte*>(part.iov_base), part.iov_len});
      offset_bytes += part.iov_len;
    }
    co_return OkStatus();
  }
  Task<Status> Write(uint64_t offset_bytes, std::span<const iovec> from) override {
    Status status = CheckRequest(*this, "write", offset_bytes, from);
    EPLOG_CO_TRY(status);
    for (const iovec& part : from) {
      content_.Write(offset_bytes, {static_cast<const std::byte*>(part.iov_base), part.iov_len});
      offset_bytes += part.iov_len;
    }
    co_return OkStatus();
  }
  Task<Status> Flush() override { co_return OkStatus(); }
  Task<Status> Discard(uint64_t offset_bytes, uint64_t length_bytes) override {
    Status status = CheckRange(*this, "discard", offset_bytes, length_bytes);
    EPLOG_CO_TRY(status);
    content_.Drop(offset_bytes, length_bytes);
    co_return OkStatus();
  }

  [[nodiscard]] uint64_t size_bytes() const override { return content_.size_bytes(); }
  [[nodiscard]] const DeviceCapabilities& capabilities() const override { return capabilities_; }
  [[nodiscard]] const std::string& name() const override { return name_; }

 private:
  std::string name_;
  DeviceCapabilities capabilities_;
  sim::PatternStore content_;
};

// The beginning of a device: a log lies in the outer zone of a whole disk, not on a small disk.
class FirstPart final : public ForwardingDevice {
 public:
  FirstPart(std::unique_ptr<Device> whole, uint64_t size_bytes)
      : ForwardingDevice(std::move(whole)), size_bytes_(size_bytes) {}
  [[nodiscard]] uint64_t size_bytes() const override { return size_bytes_; }

 private:
  uint64_t size_bytes_;
};

// A simulated drive of either kind; `flash` gets it if it is an SSD.
std::unique_ptr<Device> MakeSimulated(EventLoop& loop, const std::string& name,
                                      const sim::Drive& drive, uint64_t size_bytes,
                                      std::vector<sim::SimSsd*>* flash) {
  if (drive.hdd) {
    const uint64_t whole = std::max(size_bytes, RoundDown(drive.capacity_bytes, kBlockBytes));
    return std::make_unique<FirstPart>(std::make_unique<sim::SimHdd>(loop, name, *drive.hdd, whole),
                                       size_bytes);
  }
  auto ssd = std::make_unique<sim::SimSsd>(loop, name, *drive.ssd, size_bytes);
  if (flash != nullptr) {
    flash->push_back(ssd.get());
  }
  return ssd;
}

// What an array's status tells of its device, in the words of a counting device.
DeviceCounters Told(const DeviceStatus& status) {
  DeviceCounters counters;
  counters.reads = status.reads;
  counters.writes = status.writes;
  counters.flushes = status.flushes;
  counters.bytes_read = status.bytes_read;
  counters.bytes_written = status.bytes_written;
  return counters;
}

Task<Status> WritePiece(Device& device, uint64_t offset_bytes, std::span<std::byte> zeros) {
  const iovec part{zeros.data(), zeros.size()};
  Task<Status> write = device.Write(offset_bytes, {&part, 1});
  co_return co_await write;
}

// A log or a slot that is written for the first time would cost more in a hole.
Task<Status> WriteOut(EventLoop& loop, Device& device) {
  BufferPool pool;
  const Buffer zeros = pool.GetZeroed(kPieceBytes);
  TaskGroup group(loop);
  for (uint64_t at = 0; at < device.size_bytes() && !group.failed(); at += kPieceBytes) {
    Task<void> below = group.WaitBelow(kPiecesAtOnce);
    co_await below;
    const uint64_t length = std::min(kPieceBytes, device.size_bytes() - at);
    group.Start(WritePiece(device, at, zeros.span().first(length)));
  }
  EPLOG_CO_AWAIT(group.Wait());
  Task<Status> flush = device.Flush();
  co_return co_await flush;
}

std::string NameOf(const ReplaySettings& settings, uint32_t device) {
  const bool log = device >= settings.ssds;
  return (log ? "log" : "ssd") + std::to_string(log ? device - settings.ssds : device);
}

}  // namespace

Result<std::unique_ptr<Rig>> Rig::Make(EventLoop& loop, const ReplaySettings& settings,
                                       const RigSizes& sizes, const std::string& name) {
  std::unique_ptr<Rig> rig(new Rig());
  rig->ssd_count_ = settings.ssds;
  const Status made = settings.devices == DeviceKind::kFiles
                          ? rig->MakeFiles(dynamic_cast<IoUringLoop&>(loop), settings, sizes, name)
                          : rig->MakeOthers(loop, settings, sizes);
  EPLOG_TRY(made);
  if (settings.precondition) {
    for (size_t i = 0; i < rig->flash_.size(); ++i) {
      rig->flash_[i]->Precondition(settings.seed + i, kAgeingPercent);
    }
  }
  return rig;
}

std::unique_ptr<Rig> Rig::Of(const Array& array) {
  std::unique_ptr<Rig> rig(new Rig());
  const ArrayStatus status = array.GetStatus();
  rig->ssd_count_ = uint64_t{status.data_chunks} + status.parity_chunks;
  rig->array_ = &array;
  rig->base_.resize(rig->ssd_count_ + status.parity_chunks);
  return rig;
}

// Nobody but this process needs their names, and without them they go away with it, whatever
// happens while they are written out.
Status Rig::MakeFiles(IoUringLoop& loop, const ReplaySettings& settings, const RigSizes& sizes,
                      const std::string& name) {
  for (uint32_t i = 0; i < settings.ssds + settings.parity; ++i) {
    const std::string path =
        settings.directory + "/eplog-replay-" + name + "-" + NameOf(settings, i);
    const uint64_t bytes = i >= settings.ssds ? sizes.log_bytes : sizes.ssd_bytes;
    const auto made = RunTask(loop, CreateMemberFile(loop, path, bytes, {.sparse = true}));
    EPLOG_TRY(made);
    auto opened = FileDevice::Open(loop, path, {.looked_at = *made});
    ::unlink(path.c_str());
    if (!opened.ok()) {
      return Fail(std::move(opened).error());
    }
    const Status written = RunTask(loop, WriteOut(loop, **opened));
    if (!written.ok()) {
      Error error = written.error();
      error.message = path + ": cannot be written out: " + error.message;
      return Fail(std::move(error));
    }
    counting_.push_back(std::make_unique<CountingDevice>(std::move(*opened)));
  }
  return OkStatus();
}

Status Rig::MakeOthers(EventLoop& loop, const ReplaySettings& settings, const RigSizes& sizes) {
  sim::Drive drive;
  sim::Drive log_drive;
  if (settings.devices == DeviceKind::kSimulated) {
    auto loaded = sim::LoadDrive(settings.drive);
    EPLOG_TRY(loaded);
    auto loaded_log = sim::LoadDrive(settings.log_drive);
    EPLOG_TRY(loaded_log);
    drive = std::move(*loaded);
    log_drive = std::move(*loaded_log);
  }
  for (uint32_t i = 0; i < settings.ssds + settings.parity; ++i) {
    const bool log = i >= settings.ssds;
    const std::string name = NameOf(settings, i);
    const uint64_t bytes = log ? sizes.log_bytes : sizes.ssd_bytes;
    std::unique_ptr<Device> device;
    if (settings.devices == DeviceKind::kSimulated) {
      device = MakeSimulated(loop, name, log ? log_drive : drive, bytes, log ? nullptr : &flash_);
    } else {
      device = std::make_unique<TimelessDevice>(name, bytes);
    }
    counting_.push_back(std::make_unique<CountingDevice>(std::move(device)));
  }
  return OkStatus();
}

DeviceCounters Rig::CountersOf(size_t device) const {
  if (array_ == nullptr) {
    return counting_[device]->counters();
  }
  DeviceCounters now = Told(array_->GetStatus().devices[device]);
  const DeviceCounters& base = base_[device];
  now.reads -= base.reads;
  now.writes -= base.writes;
  now.flushes -= base.flushes;
  now.bytes_read -= base.bytes_read;
  now.bytes_written -= base.bytes_written;
  return now;
}

std::vector<Device*> Rig::DevicesFrom(size_t first, size_t end) const {
  std::vector<Device*> devices;
  for (size_t i = first; i < end; ++i) {
    devices.push_back(counting_[i].get());
  }
  return devices;
}

void Rig::ResetCounters() {
  for (size_t i = 0; i < base_.size(); ++i) {
    base_[i] = Told(array_->GetStatus().devices[i]);
  }
  for (const auto& device : counting_) {
    device->Reset();
  }
  for (sim::SimSsd* ssd : flash_) {
    ssd->ResetCounters();
  }
}

std::vector<sim::Wear> Rig::wear() const {
  std::vector<sim::Wear> all;
  for (const sim::SimSsd* ssd : flash_) {
    all.push_back(ssd->model().ftl().wear());
  }
  return all;
}

FlashTotals Rig::flash() const {
  FlashTotals totals;
  for (const sim::SimSsd* ssd : flash_) {
    const sim::FtlCounters& counters = ssd->model().ftl().counters();
    totals.host_pages += counters.host_pages;
    totals.programmed_pages += counters.programmed_pages();
    totals.erases += counters.erases;
    totals.gc_runs += counters.gc_runs;
  }
  return totals;
}

}  // namespace eplog
