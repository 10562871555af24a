// An array for measuring metadata: its devices keep superblocks, checkpoints and journal, and
// forget what goes to slots, so that it may be much larger than RAM and disk.
#pragma once

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/check.h"
#include "base/random.h"
#include "eplog/array.h"
#include "eplog/device.h"
#include "eplog/event_loop.h"
#include "layout/geometry.h"
#include "runtime/run_task.h"
#include "runtime/task_group.h"

namespace eplog::bench {

inline constexpr uint64_t kChunk = 4096;
inline constexpr uint32_t kSsds = 8;
inline constexpr uint32_t kParity = 2;

// Keeps what lies below `keep_bytes`, in RAM or on the device below; what is written beyond is gone
// and reads as zeros.
class HollowDevice final : public Device {
 public:
  HollowDevice(std::string name, uint64_t size_bytes, uint64_t keep_bytes,
               std::unique_ptr<Device> below)
      : name_(std::move(name)),
        size_bytes_(size_bytes),
        keep_bytes_(keep_bytes),
        below_(std::move(below)) {
    if (below_) {
      return;
    }
    void* memory = ::mmap(nullptr, keep_bytes_, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    EPLOG_CHECK(memory != MAP_FAILED, "address space for a device");
    bytes_ = static_cast<std::byte*>(memory);
  }
  ~HollowDevice() override {
    if (bytes_ != nullptr) {
      ::munmap(bytes_, keep_bytes_);
    }
  }
  HollowDevice(const HollowDevice&) = delete;
  HollowDevice& operator=(const HollowDevice&) = delete;

  Task<Status> Read(uint64_t offset_bytes, std::span<const iovec> into) override {
    if (below_ && offset_bytes + TotalBytes(into) <= keep_bytes_) {
      Task<Status> read = below_->Read(offset_bytes, into);
      co_return co_await read;
    }
    for (const iovec& part : into) {
      if (bytes_ != nullptr && offset_bytes + part.iov_len <= keep_bytes_) {
        std::memcpy(part.iov_base, bytes_ + offset_bytes, part.iov_len);
      } else {
        std::memset(part.iov_base, 0, part.iov_len);
      }
      offset_bytes += part.iov_len;
    }
    co_return OkStatus();
  }
  Task<Status> Write(uint64_t offset_bytes, std::span<const iovec> from) override {
    if (below_ && offset_bytes + TotalBytes(from) <= keep_bytes_) {
      Task<Status> write = below_->Write(offset_bytes, from);
      co_return co_await write;
    }
    for (const iovec& part : from) {
      if (bytes_ != nullptr && offset_bytes + part.iov_len <= keep_bytes_) {
        std::memcpy(bytes_ + offset_bytes, part.iov_base, part.iov_len);
      }
      offset_bytes += part.iov_len;
    }
    co_return OkStatus();
  }
  Task<Status> Flush() override {
    if (below_) {
      Task<Status> flush = below_->Flush();
      co_return co_await flush;
    }
    co_return OkStatus();
  }
  Task<Status> Discard(uint64_t /*offset_bytes*/, uint64_t /*length_bytes*/) override {
    co_return OkStatus();
  }
  [[nodiscard]] uint64_t size_bytes() const override { return size_bytes_; }
  [[nodiscard]] const DeviceCapabilities& capabilities() const override { return capabilities_; }
  [[nodiscard]] const std::string& name() const override { return name_; }

 private:
  std::string name_;
  uint64_t size_bytes_;
  uint64_t keep_bytes_;
  std::unique_ptr<Device> below_;
  std::byte* bytes_ = nullptr;
  DeviceCapabilities capabilities_;
};

inline void Require(const Status& status, const char* what) {
  if (!status.ok()) {
    fmt::print(stderr, "{}: {}\n", what, status.error().ToString());
    std::exit(1);
  }
}

struct RigShape {
  uint64_t data_bytes = 0;
  uint64_t log_bytes = 0;
  uint32_t reserve_percent = 10;
  bool hollow = true;     // slots and log are forgotten, so that an array may be larger than RAM
  bool keep_log = false;  // even so
  // Makes the device that keeps what is kept; empty: RAM.
  std::function<std::unique_ptr<Device>(const std::string& name, uint64_t bytes)> below = {};
};

class Rig {
 public:
  Rig(EventLoop& event_loop, const RigShape& shape, OpenOptions options)
      : loop(event_loop), options_(options) {
    GeometryRequest request;
    request.n = kSsds;
    request.m = kParity;
    request.chunk_bytes = kChunk;
    request.reserve_percent = shape.reserve_percent;
    request.log_bytes = shape.log_bytes;
    const auto stripes =
        static_cast<uint32_t>(DivideUp(shape.data_bytes, kChunk * (kSsds - kParity)));
    const auto ssd_bytes = SsdBytesForStripes(request, stripes + 2048);
    EPLOG_CHECK(ssd_bytes.ok(), "the array can be laid out");
    request.ssd_bytes = *ssd_bytes;
    const auto geometry = PlanGeometry(request);
    EPLOG_CHECK(geometry.ok(), "the array can be laid out");
    for (uint32_t i = 0; i < kSsds + kParity; ++i) {
      const bool log = i >= kSsds;
      const std::string name = (log ? "log" : "ssd") + std::to_string(log ? i - kSsds : i);
      const uint64_t size = log ? shape.log_bytes : *ssd_bytes;
      const uint64_t keep = !shape.hollow || (log && shape.keep_log) ? size
                            : log                                    ? kSuperblockAreaBytes
                                                                     : geometry->slots_offset_bytes;
      devices_.push_back(std::make_unique<HollowDevice>(
          name, size, keep, shape.below ? shape.below(name, keep) : nullptr));
    }
    CreateOptions create;
    create.parity = kParity;
    create.reserve_percent = shape.reserve_percent;
    create.entropy = 1;
    const auto all = Pointers();
    Require(RunTask(loop, Array::Create(loop, {all.begin(), all.begin() + kSsds},
                                        {all.begin() + kSsds, all.end()}, create)),
            "create");
    Open();
    const auto id = RunTask(loop, array->CreateVolume("v", shape.data_bytes));
    EPLOG_CHECK(id.ok(), "create a volume");
    volume = *id;
  }
  ~Rig() {
    if (array) {
      loop.Abort();
    }
  }
  Rig(const Rig&) = delete;
  Rig& operator=(const Rig&) = delete;

  std::vector<Device*> Pointers() {
    std::vector<Device*> all;
    for (auto& device : devices_) {
      all.push_back(device.get());
    }
    return all;
  }
  Traffic Now() { return array->GetStatus().traffic; }
  void Open() {
    auto opened = RunTask(loop, Array::Open(loop, Pointers(), options_));
    Require(opened.ok() ? OkStatus() : Status(Fail(opened.error())), "open");
    array = std::move(*opened);
  }
  void Close() {
    Require(RunTask(loop, array->Close()), "close");
    array.reset();
  }
  void Kill() {
    loop.Abort();
    array.reset();
  }
  // Whole stripes from the beginning on.
  void Fill(uint64_t bytes) {
    const uint64_t request = 64 * (kSsds - kParity) * kChunk;
    const Buffer data = pool.GetZeroed(request);
    std::memset(data.data(), 7, data.size());
    for (uint64_t at = 0; at < bytes; at += request) {
      const auto piece = data.span().first(std::min(request, bytes - at));
      Require(RunTask(loop, array->Write(volume, at, piece)), "write");
    }
  }
  // These chunks in this order, `depth` at once.
  Task<Status> Update(const std::vector<uint64_t>& chunks, size_t depth) {
    TaskGroup group(loop);
    for (size_t i = 0; i < depth; ++i) {
      group.Start(Updates(chunks, i, depth));
    }
    Task<Status> all = group.Wait();
    co_return co_await all;
  }
  // Metadata bytes on all SSDs that a checkpoint writes.
  uint64_t Checkpoint(CheckpointKind kind) {
    Require(RunTask(loop, array->FlushAll()), "flush");
    const uint64_t before = Now().ssd_metadata_bytes;
    Require(RunTask(loop, array->Checkpoint(kind)), "checkpoint");
    return Now().ssd_metadata_bytes - before;
  }

  EventLoop& loop;
  std::unique_ptr<Array> array;
  VolumeId volume;
  BufferPool pool;

 private:
  Task<Status> Updates(const std::vector<uint64_t>& chunks, size_t first, size_t step) {
    const Buffer data = pool.GetZeroed(kChunk);
    for (size_t i = first; i < chunks.size(); i += step) {
      std::memcpy(data.data(), &i, sizeof i);
      Task<Status> write = array->Write(volume, chunks[i] * kChunk, data.span());
      Status status = co_await write;
      EPLOG_CO_TRY(status);
    }
    co_return OkStatus();
  }

  OpenOptions options_;
  std::vector<std::unique_ptr<HollowDevice>> devices_;
};

}  // namespace eplog::bench
