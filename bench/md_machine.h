// A machine for md_counts, in virtual time: one processor and one server of all disk I/O, as in the
// user-mode Linux in which real MD is counted. The server takes whatever requests have come,
// carries them out one after the other and answers them together; that lines whose reads were asked
// for together are written together follows from it, and with it how requests merge.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "baseline/block_target.h"
#include "eplog/device.h"
#include "eplog/event_loop.h"
#include "runtime/sync.h"
#include "runtime/task_group.h"
#include "trace/request.h"

namespace eplog::bench {

struct MachineTimes {
  uint64_t submit_us = 40;  // of the processor, to submit a request
  uint64_t io_us = 10;      // of the server, a member request
  uint64_t answer_us = 10;  // of the processor, an answer
};

class Machine {
 public:
  Machine(EventLoop& loop, const MachineTimes& times)
      : loop_(loop), times_(times), answers_(loop) {}

  // One member request.
  Task<Status> Serve() {
    const uint64_t batch = collecting_;
    ++queued_;
    if (!serving_) {
      serving_ = true;
      loop_.Spawn(Run());
    }
    while (answered_ <= batch) {
      co_await answers_.Wait();
    }
    co_return OkStatus();
  }
  // One request is submitted.
  Task<void> Submit() { return Work(times_.submit_us); }

 private:
  Task<void> Work(uint64_t us) {
    busy_until_us_ = std::max(busy_until_us_, loop_.NowUs()) + us;
    co_await loop_.Sleep(busy_until_us_ - loop_.NowUs());
  }
  Task<void> Run() {
    while (queued_ != 0) {
      const uint64_t count = std::exchange(queued_, 0);
      ++collecting_;
      co_await loop_.Sleep(count * times_.io_us);
      Task<void> work = Work(count * times_.answer_us);
      co_await work;
      ++answered_;
      answers_.NotifyAll();
      co_await loop_.Yield();
    }
    serving_ = false;
  }

  EventLoop& loop_;
  MachineTimes times_;
  Event answers_;
  uint64_t queued_ = 0;
  uint64_t collecting_ = 0;  // number of the batch that takes what comes now
  uint64_t answered_ = 0;    // batches
  bool serving_ = false;
  uint64_t busy_until_us_ = 0;  // the processor
};

// Takes its time and keeps nothing: which requests come does not depend on what the bytes are.
class HollowSsd final : public Device {
 public:
  HollowSsd(Machine& machine, std::string name, uint64_t size_bytes)
      : machine_(machine), name_(std::move(name)), size_bytes_(size_bytes) {}
  Task<Status> Read(uint64_t /*offset_bytes*/, std::span<const iovec> /*into*/) override {
    return machine_.Serve();
  }
  Task<Status> Write(uint64_t /*offset_bytes*/, std::span<const iovec> /*from*/) override {
    return machine_.Serve();
  }
  Task<Status> Flush() override { return machine_.Serve(); }
  Task<Status> Discard(uint64_t /*offset_bytes*/, uint64_t /*length_bytes*/) override {
    return machine_.Serve();
  }
  [[nodiscard]] uint64_t size_bytes() const override { return size_bytes_; }
  [[nodiscard]] const DeviceCapabilities& capabilities() const override { return capabilities_; }
  [[nodiscard]] const std::string& name() const override { return name_; }

 private:
  Machine& machine_;
  std::string name_;
  uint64_t size_bytes_;
  DeviceCapabilities capabilities_;
};

struct ReplayShape {
  uint32_t depth = 1;
  bool batch = false;  // `depth` requests at once, and no more until all are done
  uint32_t burst = 1;  // so many at once as soon as so many are done
};

// One submitter, as fio is.
class Replay {
 public:
  Replay(EventLoop& loop, Machine& machine, BlockTarget& target, const ReplayShape& shape)
      : machine_(machine), target_(target), shape_(shape), group_(loop) {
    shape_.burst = shape.batch ? shape.depth : std::min(shape.burst, shape.depth);
  }

  Task<Status> Run(const std::vector<TraceRequest>& requests) {
    for (size_t i = 0; i < requests.size(); ++i) {
      if (i % shape_.burst == 0) {
        Task<void> below = group_.WaitBelow(shape_.depth - shape_.burst + 1);
        co_await below;
        Task<void> submitting = machine_.Submit();
        co_await submitting;
      }
      group_.Start(One(requests[i]));
    }
    Task<Status> all = group_.Wait();
    co_return co_await all;
  }

 private:
  Task<Status> One(TraceRequest request) {
    const Buffer data = pool_.GetZeroed(request.length_bytes);
    Task<Status> running = request.op == TraceOp::kRead
                               ? target_.Read(request.offset_bytes, data.span())
                               : target_.Write(request.offset_bytes, data.span());
    co_return co_await running;
  }

  Machine& machine_;
  BlockTarget& target_;
  ReplayShape shape_;
  BufferPool pool_;
  TaskGroup group_;
};

}  // namespace eplog::bench
