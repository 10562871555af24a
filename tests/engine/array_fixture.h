// An array on memory devices under the virtual clock, for tests that need neither faults nor
// crashes.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/random.h"
#include "device/memory_device.h"
#include "device/wrappers.h"
#include "engine/core/hooks.h"
#include "eplog/array.h"
#include "format/superblock.h"
#include "runtime/run_task.h"
#include "runtime/virtual_loop.h"

namespace eplog {

struct ArrayShape {
  uint32_t n = 8;
  uint32_t m = 2;
  uint32_t chunk_bytes = 4096;
  uint64_t ssd_bytes = uint64_t{64} << 20;
  uint64_t log_bytes = uint64_t{64} << 20;
  JournalMode journal = JournalMode::kFull;
  uint64_t ring_bytes = 0;
  bool auto_commit = true;
  uint32_t reserve_percent = 10;
  uint32_t headers_a_ring_block = 0;  // at most; 0 = as many as fit
  BufferSizes buffers;
  uint64_t max_buffer_bytes = 0;
  CommitTriggers commit;
  CheckpointTriggers checkpoint;
  uint32_t max_corrupt_chunks = OpenOptions().max_corrupt_chunks;
  EventSink on_event;
  // Latencies of an SSD and of a log device; none unless given.
  DeviceDelays ssd_delays;
  DeviceDelays log_delays;
};

// A fast SSD and a hard disk with a safe write cache, about.
inline constexpr DeviceDelays kSsdDelays = {.read_us = 80, .write_us = 30, .flush_us = 300};
inline constexpr DeviceDelays kLogDelays = {.read_us = 80, .write_us = 100, .flush_us = 2000};

class TestArray {
 public:
  explicit TestArray(const ArrayShape& shape) : shape_(shape) {
    for (uint32_t i = 0; i < shape.n + shape.m; ++i) {
      const bool log = i >= shape.n;
      memory_.push_back(std::make_unique<MemoryDevice>(
          (log ? "log" : "ssd") + std::to_string(log ? i - shape.n : i),
          log ? shape.log_bytes : shape.ssd_bytes));
      faulty_.push_back(std::make_unique<FaultDevice>(*memory_.back()));
      delayed_.push_back(std::make_unique<DelayDevice>(loop, *faulty_.back(),
                                                       log ? shape.log_delays : shape.ssd_delays));
      counting_.push_back(std::make_unique<CountingDevice>(*delayed_.back()));
    }
    CreateOptions options;
    options.parity = shape.m;
    options.chunk_bytes = shape.chunk_bytes;
    options.journal = shape.journal;
    options.ring_bytes = shape.ring_bytes;
    options.reserve_percent = shape.reserve_percent;
    options.entropy = 1;
    std::vector<Device*> all = Devices();
    const Status created =
        RunTask(loop, Array::Create(loop, {all.begin(), all.begin() + shape.n},
                                    {all.begin() + shape.n, all.end()}, options));
    EXPECT_TRUE(created.ok()) << created.error().ToString();
    Open();
  }
  ~TestArray() {
    if (array) {
      EXPECT_TRUE(Close().ok());
    }
  }

  std::vector<Device*> Devices() {
    std::vector<Device*> all;
    for (auto& device : counting_) {
      all.push_back(device.get());
    }
    return all;
  }
  void Open(bool read_only = false) {
    auto opened = TryOpen(read_only);
    ASSERT_TRUE(opened.ok()) << opened.error().ToString();
    array = std::move(*opened);
  }
  Result<std::unique_ptr<Array>> TryOpen(bool read_only = false) {
    OpenOptions options;
    options.entropy = ++lives_;
    options.auto_commit = shape_.auto_commit;
    options.buffers = shape_.buffers;
    options.max_buffer_bytes = shape_.max_buffer_bytes;
    options.commit = shape_.commit;
    options.checkpoint = shape_.checkpoint;
    options.read_only = read_only;
    options.max_corrupt_chunks = shape_.max_corrupt_chunks;
    options.on_event = shape_.on_event;
    hooks_.headers_a_ring_block = shape_.headers_a_ring_block;
    return RunTask(loop, OpenHooked(loop, Devices(), options, &hooks_));
  }
  Status Close() {
    Status status = RunTask(loop, array->Close());
    array.reset();
    return status;
  }
  // A process kill: what the devices have, they have.
  void Kill() {
    loop.Abort();
    array.reset();
  }
  // Time passes, and what happens in the background happens.
  void Sleep(uint64_t us) {
    const Status slept = RunTask(loop, [](EventLoop& on, uint64_t time) -> Task<Status> {
      co_await on.Sleep(time);
      co_return OkStatus();
    }(loop, us));
    EXPECT_TRUE(slept.ok());
  }
  // For the next opening.
  ArrayShape& shape() { return shape_; }
  EngineHooks& hooks() { return hooks_; }
  CountingDevice& counter(uint32_t index) { return *counting_[index]; }
  DelayDevice& delayed(uint32_t index) { return *delayed_[index]; }
  FaultDevice& faulty(uint32_t index) { return *faulty_[index]; }
  MemoryDevice& memory(uint32_t index) { return *memory_[index]; }
  // Where the slots of each SSD begin; what is before them is metadata.
  uint64_t SlotsOffsetBytes() {
    const auto superblock = DecodeSuperblock(memory(0).bytes().first(kSuperblockCopyBytes));
    EXPECT_TRUE(superblock.ok());
    return superblock.ok() ? superblock->geometry.slots_offset_bytes : 0;
  }

  VolumeId CreateVolume(const std::string& name, uint64_t size) {
    const auto id = RunTask(loop, array->CreateVolume(name, size));
    EXPECT_TRUE(id.ok()) << id.error().ToString();
    return id.ok() ? *id : VolumeId();
  }
  Status Write(VolumeId volume, uint64_t offset, std::span<const std::byte> data) {
    return RunTask(loop, array->Write(volume, offset, data));
  }
  std::vector<std::byte> Read(VolumeId volume, uint64_t offset, size_t size) {
    Buffer buffer = pool.Get(size);
    const Status status = RunTask(loop, array->Read(volume, offset, buffer.span()));
    EXPECT_TRUE(status.ok()) << status.error().ToString();
    return {buffer.data(), buffer.data() + size};
  }

  VirtualLoop loop;
  BufferPool pool;
  std::unique_ptr<Array> array;

 private:
  ArrayShape shape_;
  EngineHooks hooks_;
  std::vector<std::unique_ptr<MemoryDevice>> memory_;
  std::vector<std::unique_ptr<FaultDevice>> faulty_;
  std::vector<std::unique_ptr<DelayDevice>> delayed_;
  std::vector<std::unique_ptr<CountingDevice>> counting_;
  uint64_t lives_ = 0;
};

inline std::vector<std::byte> RandomBytes(Random& random, size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) {
    byte = static_cast<std::byte>(random.Next());
  }
  return bytes;
}

}  // namespace eplog
