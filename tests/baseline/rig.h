// What the tests of this room share: a target over memory devices that count and may take their
// time, and a look at what lies on them.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "base/random.h"
#include "baseline/block_target.h"
#include "baseline/md_array.h"
#include "baseline/page_cache.h"
#include "baseline/pl_array.h"
#include "device/memory_device.h"
#include "device/wrappers.h"
#include "runtime/run_task.h"
#include "runtime/task_group.h"
#include "runtime/virtual_loop.h"

namespace eplog::test {

// Each request takes up to `most_us`, whatever others take: what is sent first need not be done
// first.
class RandomDelayDevice final : public ForwardingDevice {
 public:
  RandomDelayDevice(EventLoop& loop, Device& below, uint64_t seed, uint64_t most_us)
      : ForwardingDevice(below), loop_(loop), random_(seed), most_us_(most_us) {}

  Task<Status> Read(uint64_t offset_bytes, std::span<const iovec> into) override {
    co_await loop_.Sleep(random_.Below(most_us_));
    Task<Status> request = below().Read(offset_bytes, into);
    co_return co_await request;
  }
  Task<Status> Write(uint64_t offset_bytes, std::span<const iovec> from) override {
    co_await loop_.Sleep(random_.Below(most_us_));
    Task<Status> request = below().Write(offset_bytes, from);
    co_return co_await request;
  }

 private:
  EventLoop& loop_;
  Random random_;
  uint64_t most_us_;
};

enum class Kind : uint8_t { kMd, kPl };

struct RigShape {
  Kind kind = Kind::kMd;
  uint32_t n = 8;
  uint32_t m = 2;
  uint32_t chunk_bytes = 4096;
  uint64_t ssd_bytes = uint64_t{1} << 20;
  uint64_t log_bytes = uint64_t{1} << 20;
  uint32_t cached_lines = 256;
  ParityChoice choice = ParityChoice::kFewerReads;
  bool one_submitter = false;
  uint64_t commit_memory_bytes = uint64_t{64} << 20;
  uint64_t seed = 1;
  uint64_t most_delay_us = 0;     // 0: requests complete in the next turn
  uint64_t page_cache_bytes = 0;  // 0: none in front
  bool at_once = false;  // requests complete while they are made, and none waits for others
};

class TargetRig {
 public:
  explicit TargetRig(const RigShape& rig_shape) : shape(rig_shape), loop(rig_shape.seed) {
    for (uint32_t i = 0; i < devices(); ++i) {
      const bool log = i >= shape.n;
      memory_.push_back(std::make_unique<MemoryDevice>(
          (log ? "log" : "ssd") + std::to_string(log ? i - shape.n : i),
          log ? shape.log_bytes : shape.ssd_bytes, shape.at_once ? nullptr : &loop));
      Device* below = memory_.back().get();
      if (shape.most_delay_us != 0) {
        delayed_.push_back(
            std::make_unique<RandomDelayDevice>(loop, *below, shape.seed + i, shape.most_delay_us));
        below = delayed_.back().get();
      }
      faulty_.push_back(std::make_unique<FaultDevice>(*below));
      counting_.push_back(std::make_unique<CountingDevice>(*faulty_.back()));
    }
    Open(0);
  }
  ~TargetRig() { Close(); }
  TargetRig(const TargetRig&) = delete;
  TargetRig& operator=(const TargetRig&) = delete;

  [[nodiscard]] uint32_t devices() const {
    return shape.n + (shape.kind == Kind::kPl ? shape.m : 0);
  }
  // Anew over what the devices hold, without those of the mask (SSDs, then log devices).
  void Open(uint64_t failed) {
    Close();
    auto opened = TryOpen(failed);
    ASSERT_TRUE(opened.ok()) << opened.error().ToString();
    target = std::move(*opened);
    for (auto& device : counting_) {
      device->Reset();
    }
  }
  Result<std::unique_ptr<BlockTarget>> TryOpen(uint64_t failed) {
    std::vector<Device*> ssds;
    std::vector<Device*> logs;
    for (uint32_t i = 0; i < devices(); ++i) {
      (i < shape.n ? ssds : logs).push_back((failed >> i & 1) != 0 ? nullptr : counting_[i].get());
    }
    if (shape.kind == Kind::kPl) {
      PlOptions options;
      options.chunk_bytes = shape.chunk_bytes;
      options.commit_memory_bytes = shape.commit_memory_bytes;
      options.plug.requests = shape.at_once ? 1 : options.plug.requests;
      return Placed(PlArray::Make(loop, ssds, logs, options));
    }
    MdOptions options;
    options.parity = shape.m;
    options.chunk_bytes = shape.chunk_bytes;
    options.cached_lines = shape.cached_lines;
    options.choice = shape.choice;
    options.one_submitter = shape.one_submitter;
    options.plug.requests = shape.at_once ? 1 : options.plug.requests;
    return Placed(MdArray::Make(loop, ssds, options));
  }
  void Close() {
    if (target) {
      const Status closed = RunTask(loop, target->Close());
      EXPECT_TRUE(closed.ok()) << closed.error().ToString();
      ExpectCountsAgree();
      target.reset();
    }
  }

  Status Write(uint64_t offset, size_t length, uint64_t seed) {
    const Buffer data = Content(length, seed);
    return RunTask(loop, target->Write(offset, data.span()));
  }
  std::vector<std::byte> Read(uint64_t offset, size_t length) {
    const Buffer data = pool.Get(length);
    const Status status = RunTask(loop, target->Read(offset, data.span()));
    EXPECT_TRUE(status.ok()) << status.error().ToString();
    return {data.data(), data.data() + length};
  }
  Buffer Content(size_t length, uint64_t seed) {
    Buffer data = pool.Get(length);
    Random random(seed);
    for (size_t at = 0; at < length; at += sizeof(uint64_t)) {
      const uint64_t word = random.Next();
      std::memcpy(data.data() + at, &word, sizeof word);
    }
    return data;
  }
  // All at once.
  Status WriteAll(const std::vector<std::pair<uint64_t, size_t>>& ranges) {
    return RunTask(loop, WriteTogether(ranges));
  }

  // The target's counters say what the devices counted.
  void ExpectCountsAgree() const {
    const TargetTraffic& traffic = target->traffic();
    uint64_t ssd_and_log_read = 0;
    uint64_t written = 0;
    for (uint32_t i = 0; i < devices(); ++i) {
      const DeviceTraffic& ours = i < shape.n ? traffic.ssds[i] : traffic.logs[i - shape.n];
      const DeviceCounters& counted = counting_[i]->counters();
      EXPECT_EQ(ours.reads, counted.reads) << "device " << i;
      EXPECT_EQ(ours.writes, counted.writes) << "device " << i;
      EXPECT_EQ(ours.flushes, counted.flushes) << "device " << i;
      EXPECT_EQ(ours.bytes_read, counted.bytes_read) << "device " << i;
      EXPECT_EQ(ours.bytes_written, counted.bytes_written) << "device " << i;
      ssd_and_log_read += counted.bytes_read;
      written += counted.bytes_written;
    }
    uint64_t classes_read = 0;
    uint64_t classes_written = 0;
    for (size_t i = 0; i < kIoClasses; ++i) {
      (IsWrite(static_cast<IoClass>(i)) ? classes_written : classes_read) += traffic.class_bytes[i];
    }
    EXPECT_EQ(classes_read, ssd_and_log_read);
    EXPECT_EQ(classes_written, written);
    EXPECT_EQ(traffic.LogTotal().bytes_written, traffic.bytes(IoClass::kLogWrite));
  }

  [[nodiscard]] const Placement& placement() const { return *placement_; }
  [[nodiscard]] const TargetTraffic& traffic() const { return target->traffic(); }
  [[nodiscard]] FaultDevice& faulty(uint32_t i) { return *faulty_[i]; }
  // A page of a line as it lies on its SSD.
  [[nodiscard]] std::vector<std::byte> PageOf(uint64_t line, uint32_t position) const {
    const auto bytes = memory_[placement().SsdOf(line, position).value]->bytes();
    const auto page = bytes.subspan(Placement::SsdOffset(line), kPageBytes);
    return {page.begin(), page.end()};
  }

  const RigShape shape;
  VirtualLoop loop;
  BufferPool pool;
  std::unique_ptr<BlockTarget> target;

 private:
  template <typename Made>
  Result<std::unique_ptr<BlockTarget>> Placed(Result<std::unique_ptr<Made>> made) {
    if (!made.ok()) {
      return Fail(made.error());
    }
    placement_ = &(*made)->placement();
    std::unique_ptr<BlockTarget> whole = std::move(*made);
    if (shape.page_cache_bytes != 0) {
      whole = std::make_unique<PageCache>(loop, std::move(whole), shape.page_cache_bytes);
    }
    return whole;
  }

  Task<Status> WriteTogether(std::vector<std::pair<uint64_t, size_t>> ranges) {
    std::vector<Buffer> contents;
    TaskGroup group(loop);
    for (const auto& [offset, length] : ranges) {
      contents.push_back(Content(length, offset + 1));
      group.Start(target->Write(offset, contents.back().span()));
    }
    Task<Status> all = group.Wait();
    co_return co_await all;
  }

  const Placement* placement_ = nullptr;  // of the array behind `target`
  std::vector<std::unique_ptr<MemoryDevice>> memory_;
  std::vector<std::unique_ptr<RandomDelayDevice>> delayed_;
  std::vector<std::unique_ptr<FaultDevice>> faulty_;
  std::vector<std::unique_ptr<CountingDevice>> counting_;
};

}  // namespace eplog::test
