// The parts of an engine up to the log, put together by hand on memory devices under the virtual
// clock: for tests of one wing, which are linked with none above it. Nothing here flushes, commits
// or makes checkpoints by itself.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

// A name in there is one of metadata's, too; whether that is told depends on which comes first.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#include "device/wrappers.h"
#pragma GCC diagnostic pop

#include "base/buffer.h"
#include "base/bytes.h"
#include "base/crc32c.h"
#include "base/random.h"
#include "device/memory_device.h"
#include "engine/core/core.h"
#include "engine/log/admission.h"
#include "engine/log/appender.h"
#include "engine/log/flusher.h"
#include "format/superblock.h"
#include "runtime/run_task.h"
#include "runtime/virtual_loop.h"

namespace eplog {

struct PartsShape {
  uint32_t n = 5;
  uint32_t m = 2;
  uint64_t ssd_bytes = uint64_t{4} << 20;
  uint64_t log_bytes = uint64_t{1} << 20;
  uint64_t ring_bytes = 0;
  JournalMode journal = JournalMode::kFull;
  OpenOptions options = {};
  DeviceDelays delays = {};  // of every device
  // Whatever is written has one and the same checksum: that of format 1, of bytes that end in it.
  bool alike = false;
};

class EngineParts {
 public:
  explicit EngineParts(const PartsShape& shape = {})
      : core(loop, MakeDevices(shape), NewSuperblock(shape), shape.options, &hooks),
        appender(core),
        flusher(core, appender),
        admission(core, appender),
        alike_(shape.alike) {
    core.members.TakeLosses(
        [this](DeviceIndex device, const Error& /*why*/) { states().Lost(device); });
    appender.Open(core.identity.epoch, {core.identity.epoch, 0, 0}, 0, flusher);
    flusher.Open(0, 0);
    loop.Spawn(appender.Run());
    Settle();
  }
  ~EngineParts() { loop.Abort(); }  // while everything that frames refer to is there
  EngineParts(const EngineParts&) = delete;
  EngineParts& operator=(const EngineParts&) = delete;

  // As Membership changes them, which is in a wing above these.
  [[nodiscard]] DeviceStates& states() { return const_cast<DeviceStates&>(core.devices()); }
  [[nodiscard]] const Geometry& g() const { return core.geometry; }
  template <typename T>
  T Run(Task<T> task) {
    return RunTask(loop, std::move(task));
  }
  // Until nothing can happen any more.
  void Settle() {
    static_cast<void>(loop.RunUntil([] { return false; }));
  }
  // Beside what the test does; its outcome is in `into` when it has ended.
  void Start(Task<Status> task, std::optional<Status>& into) {
    loop.Spawn([](Task<Status> inner, std::optional<Status>* out) -> Task<void> {
      *out = co_await inner;
    }(std::move(task), &into));
    Settle();
  }

  [[nodiscard]] ChunkIndex Chunk(uint32_t stripe, uint32_t index) const {
    return g().Chunk(StripeIndex(stripe), index);
  }
  [[nodiscard]] MemoryDevice& memory(DeviceIndex device) { return *memory_[device.value]; }
  [[nodiscard]] FaultDevice& faulty(DeviceIndex device) { return *faulty_[device.value]; }
  [[nodiscard]] DelayDevice& delayed(DeviceIndex device) { return *delayed_[device.value]; }
  [[nodiscard]] const DeviceCounters& counted(DeviceIndex device) const {
    return counting_[device.value]->counters();
  }
  // Which devices have been flushed since the last call (mask).
  uint64_t Flushed() {
    uint64_t mask = 0;
    for (size_t i = 0; i < counting_.size(); ++i) {
      mask |= uint64_t{counting_[i]->counters().flushes != 0 ? 1U : 0U} << i;
      counting_[i]->Reset();
    }
    return mask;
  }
  void ResetCounters() { static_cast<void>(Flushed()); }
  [[nodiscard]] uint64_t ReadsOfSsds() const {
    uint64_t reads = 0;
    for (uint32_t i = 0; i < g().n; ++i) {
      reads += counting_[i]->counters().reads;
    }
    return reads;
  }
  static uint64_t MaskOf(DeviceIndex device) { return uint64_t{1} << device.value; }
  [[nodiscard]] uint64_t LogMask() const { return core.devices().log_mask(); }

  // What a slot holds.
  std::span<std::byte> SlotBytes(DeviceIndex ssd, SlotWord word) {
    return memory(ssd).bytes().subspan(g().SlotOffset(word.slot()), g().chunk_bytes);
  }
  void Rot(DeviceIndex ssd, SlotWord word) { SlotBytes(ssd, word)[100] ^= std::byte{1}; }
  void RotRow(StripeIndex stripe, uint32_t index) {
    Rot(g().SsdOf(stripe, index), core.state->rows.Get(stripe, index).word);
  }
  // Nothing of that is written down.
  void Lose(DeviceIndex device) {
    Error why;
    why.code = ErrorCode::kDeviceFailed;
    core.members.Lose(device, why);
  }
  // Another one in the place of one that is lost, empty.
  void Join(DeviceIndex device) {
    fresh_.push_back(std::make_unique<MemoryDevice>("fresh", memory(device).size_bytes()));
    core.members.Join(device, *fresh_.back());
    states().Joined(device, appender.next_place());
    if (device.value < g().n) {
      core.state->ForgetSsd(device);
      core.space.Reset(device);
      core.rings.Reset(device);
    }
  }

  using Bytes = std::vector<std::byte>;
  Bytes NewContent() {
    Bytes bytes(g().chunk_bytes);
    for (std::byte& byte : bytes) {
      byte = static_cast<std::byte>(random_.Next());
    }
    if (alike_) {
      const size_t at = bytes.size() - sizeof(uint32_t);
      StoreLe(bytes.data() + at, Crc32c(std::span(bytes).first(at)));
    }
    return bytes;
  }
  // New versions of these chunks in one entry, of as few log stripes as their SSDs permit; what
  // they hold is `latest` then.
  uint64_t Log(const std::vector<ChunkIndex>& chunks) {
    std::vector<Buffer> buffers;
    std::vector<std::unique_ptr<ChunkWrite>> writes;
    for (const ChunkIndex chunk : chunks) {
      const Bytes content = NewContent();
      buffers.push_back(core.pool.Get(content.size()));
      std::memcpy(buffers.back().data(), content.data(), content.size());
      latest[chunk.value] = content;
      auto& write = writes.emplace_back(std::make_unique<ChunkWrite>());
      const DeviceIndex ssd = g().SsdOf(chunk);
      write->chunk = chunk;
      write->word =
          core.members.live(ssd) ? SlotWord::At(core.space.Claim(ssd)) : SlotWord::Absent();
      write->crc = core.checksum(content);
      write->data = buffers.back().data();
      appender.Promise(appender.BlocksForChunk());
    }
    for (auto& write : writes) {
      appender.Submit(*write);
    }
    for (auto& write : writes) {
      const Status status = Run(Ended(&write->completion));
      EXPECT_TRUE(status.ok()) << status.error().ToString();
    }
    return writes.back()->completion.sequence();
  }
  // All of a stripe, with its parity.
  uint64_t WriteStripe(StripeIndex stripe) {
    std::vector<Buffer> buffers;
    std::array<const std::byte*, kMaxSsds> data{};
    std::array<std::byte*, kMaxParity> parity{};
    RecordWrite record;
    record.row.emplace();
    record.row->stripe = stripe;
    record.own_version = true;
    for (uint32_t i = 0; i < g().n; ++i) {
      buffers.push_back(core.pool.Get(g().chunk_bytes));
      if (i < g().k()) {
        const Bytes content = NewContent();
        std::memcpy(buffers.back().data(), content.data(), content.size());
        latest[g().Chunk(stripe, i).value] = content;
        data[i] = buffers.back().data();
      } else {
        parity[i - g().k()] = buffers.back().data();
      }
    }
    core.code.Encode(std::span(data).first(g().k()), std::span(parity).first(g().m),
                     g().chunk_bytes);
    for (uint32_t i = 0; i < g().n; ++i) {
      const DeviceIndex ssd = g().SsdOf(stripe, i);
      const bool live = core.members.live(ssd);
      const SlotWord word = live ? SlotWord::At(core.space.Claim(ssd)) : SlotWord::Absent();
      record.row->changes.push_back(
          {static_cast<uint8_t>(i), word, core.checksum(buffers[i].span()), 0});
      if (live) {
        record.writes.push_back({ssd, word.slot(), buffers[i].data(), i >= g().k()});
      }
    }
    appender.Promise(1);
    appender.Submit(record, false);
    const Status status = Run(Ended(&record.completion));
    EXPECT_TRUE(status.ok()) << status.error().ToString();
    return record.completion.sequence();
  }
  // These chunks of a stripe read as zeros.
  uint64_t Trim(ChunkIndex first, uint32_t count) {
    RecordWrite record;
    record.trim = ChunksTrimmed{first, count};
    appender.Promise(1);
    appender.Submit(record, false);
    EXPECT_TRUE(Run(Ended(&record.completion)).ok());
    for (uint32_t i = 0; i < count; ++i) {
      latest[first.value + i] = Bytes(g().chunk_bytes);
    }
    return record.completion.sequence();
  }
  // All that was applied is stable, and a mark that says so.
  void MakeStable() {
    const Status status = Run(flusher.FlushAndMark());
    EXPECT_TRUE(status.ok()) << status.error().ToString();
  }
  // What the parity of a row should be, of what its data is to be.
  [[nodiscard]] std::vector<Bytes> ParityOf(const std::vector<Bytes>& data) const {
    std::vector<const std::byte*> from;
    for (const Bytes& chunk : data) {
      from.push_back(chunk.data());
    }
    std::vector<Bytes> parity(g().m, Bytes(g().chunk_bytes));
    std::vector<std::byte*> into;
    for (Bytes& chunk : parity) {
      into.push_back(chunk.data());
    }
    core.code.Encode(from, into, g().chunk_bytes);
    return parity;
  }
  // The same of what was written last.
  [[nodiscard]] std::vector<Bytes> ParityOfLatest(StripeIndex stripe) const {
    std::vector<Bytes> data;
    for (uint32_t i = 0; i < g().k(); ++i) {
      const auto found = latest.find(g().Chunk(stripe, i).value);
      data.push_back(found == latest.end() ? Bytes(g().chunk_bytes) : found->second);
    }
    return ParityOf(data);
  }

  VirtualLoop loop;

 private:
  static Task<Status> Ended(Completion* completion) {
    co_await *completion;
    co_return completion->status();
  }
  std::vector<Device*> MakeDevices(const PartsShape& shape) {
    std::vector<Device*> all;
    for (uint32_t i = 0; i < shape.n + shape.m; ++i) {
      memory_.push_back(std::make_unique<MemoryDevice>(
          std::to_string(i), i < shape.n ? shape.ssd_bytes : shape.log_bytes));
      faulty_.push_back(std::make_unique<FaultDevice>(*memory_.back()));
      delayed_.push_back(std::make_unique<DelayDevice>(loop, *faulty_.back(), shape.delays));
      counting_.push_back(std::make_unique<CountingDevice>(*delayed_.back()));
      all.push_back(counting_.back().get());
    }
    return all;
  }
  static Superblock NewSuperblock(const PartsShape& shape) {
    GeometryRequest request;
    request.n = shape.n;
    request.m = shape.m;
    request.chunk_bytes = kMinChunkBytes;
    request.ssd_bytes = shape.ssd_bytes;
    request.log_bytes = shape.log_bytes;
    request.ring_bytes = shape.ring_bytes;
    const auto geometry = PlanGeometry(request);
    EXPECT_TRUE(geometry.ok()) << geometry.error().ToString();
    Superblock superblock;
    superblock.version = shape.alike ? 1 : kFormatVersion;
    superblock.array_uuid = {std::byte{7}};
    superblock.geometry = *geometry;
    superblock.journal_mode = static_cast<uint8_t>(shape.journal);
    superblock.epoch = superblock.base = {1, 99};
    for (uint32_t i = 0; i < geometry->devices(); ++i) {
      superblock.members.push_back(
          {{std::byte{1}, static_cast<std::byte>(i)}, MemberState::kOk, 1});
    }
    return superblock;
  }

  Random random_{1};
  std::vector<std::unique_ptr<MemoryDevice>> memory_;
  std::vector<std::unique_ptr<FaultDevice>> faulty_;
  std::vector<std::unique_ptr<DelayDevice>> delayed_;
  std::vector<std::unique_ptr<CountingDevice>> counting_;
  std::vector<std::unique_ptr<MemoryDevice>> fresh_;

 public:
  EngineHooks hooks;
  Core core;
  Appender appender;
  Flusher flusher;
  Admission admission;
  std::map<uint64_t, Bytes> latest;  // by chunk: what was written last

 private:
  const bool alike_;
};

}  // namespace eplog
