// Who waits for a ring's blocks while others make them stable; who walks along the log in the steps
// of its entries; and what a device is given where the log wraps.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "device/forwarding_device.h"
#include "device/memory_device.h"
#include "device/wrappers.h"
#include "format/wire.h"
#include "rings/journal_rings.h"
#include "rings/log_ring.h"
#include "runtime/run_task.h"
#include "runtime/virtual_loop.h"

namespace eplog {
namespace {

constexpr Uuid kOwner = {std::byte{3}, std::byte{4}};

// Notes how long the parts of each write are.
class PartsDevice final : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;
  Task<Status> Write(uint64_t offset_bytes, std::span<const iovec> from) override {
    auto& parts = writes.emplace_back();
    for (const iovec& part : from) {
      parts.push_back(part.iov_len / kBlockBytes);
    }
    return ForwardingDevice::Write(offset_bytes, from);
  }

  std::vector<std::vector<size_t>> writes;  // in blocks
};

// Two SSDs, whose writes take a while, and a log device that answers at once.
class RingAndLog : public ::testing::Test {
 protected:
  static constexpr uint32_t kSsds = 2;

  void Make(uint64_t log_blocks) {
    g_.n = kSsds;
    g_.m = 1;
    g_.chunk_bytes = 4096;
    g_.slots = 16;
    g_.stripes = 8;
    g_.extent_stripes = 1;
    g_.ring_blocks = 8;
    g_.log_blocks = log_blocks;
    for (uint32_t i = 0; i < g_.devices(); ++i) {
      memory_.push_back(
          std::make_unique<MemoryDevice>(std::to_string(i), g_.log_blocks * kBlockBytes));
    }
    slow_.push_back(
        std::make_unique<DelayDevice>(loop_, *memory_[0], DeviceDelays{.write_us = 100}));
    slow_.push_back(
        std::make_unique<DelayDevice>(loop_, *memory_[1], DeviceDelays{.write_us = 100}));
    faulty_ = std::make_unique<FaultDevice>(*memory_[2]);
    parts_ = std::make_unique<PartsDevice>(*faulty_);
    counting_ = std::make_unique<CountingDevice>(*parts_);
    std::vector<Device*> all = {slow_[0].get(), slow_[1].get(), counting_.get()};
    members_ = std::make_unique<MemberSet>(loop_, all);
    rings_ = std::make_unique<JournalRings>(loop_, *members_, g_, kOwner, pool_);
    rings_->set_max_headers(1);
    reader_ = std::make_unique<LogReader>(loop_, *members_, g_, kOwner, pool_);
  }
  void TearDown() override {
    EXPECT_TRUE(RunTask(loop_, Drained(rings_.get(), reader_.get())).ok());
  }
  static Task<Status> Drained(JournalRings* rings, LogReader* reader) {
    Task<void> written = rings->Drain();
    co_await written;
    Task<void> read = reader->Drain();
    co_await read;
    co_return OkStatus();
  }
  static std::vector<std::byte> Encoded(uint64_t place) {
    EntryHeader header;
    header.epoch = {1, 2};
    header.sequence = place + 1;
    header.place = place;
    std::vector<std::byte> bytes(kMaxEntryHeaderBytes);
    bytes.resize(EncodeEntryHeader(header, kOwner, bytes));
    return bytes;
  }
  void Pack(uint64_t sequence) {
    rings_->Enqueue(sequence, Encoded(sequence - 1));
    ASSERT_EQ(rings_->Pack(sequence, false, 0), sequence);
  }
  [[nodiscard]] DeviceIndex Log() const { return g_.LogDevice(0); }
  [[nodiscard]] std::byte* BytesAt(uint64_t place) const {
    return memory_[kSsds]->bytes().data() + g_.LogOffset(place);
  }
  void PutHeader(uint64_t place) {
    const std::vector<std::byte> bytes = Encoded(place);
    std::memcpy(BytesAt(place), bytes.data(), bytes.size());
  }
  // With something in it that only a later version knows.
  void PutNewerHeader(uint64_t place) {
    PutHeader(place);
    const auto fixed = wire::Load<wire::EntryBytes>({BytesAt(place), kBlockBytes});
    *(BytesAt(place) + offsetof(wire::EntryBytes, flags)) |= std::byte{2};
    const uint32_t crc =
        wire::CrcAround({BytesAt(place), fixed.used_bytes}, offsetof(wire::EntryBytes, crc));
    std::memcpy(BytesAt(place) + offsetof(wire::EntryBytes, crc), &crc, sizeof(crc));
  }
  [[nodiscard]] std::optional<EntryHeader> HeaderAt(uint64_t place) {
    return RunTask(loop_, reader_->HeaderAt(0, place));
  }

  VirtualLoop loop_;
  BufferPool pool_;
  Geometry g_;
  std::vector<std::unique_ptr<MemoryDevice>> memory_;
  std::vector<std::unique_ptr<DelayDevice>> slow_;
  std::unique_ptr<FaultDevice> faulty_;
  std::unique_ptr<PartsDevice> parts_;
  std::unique_ptr<CountingDevice> counting_;
  std::unique_ptr<MemberSet> members_;
  std::unique_ptr<JournalRings> rings_;
  std::unique_ptr<LogReader> reader_;
  std::optional<Result<uint64_t>> answer_;
};

Task<void> Ask(JournalRings* rings, uint64_t upto, std::optional<Result<uint64_t>>* answer) {
  Task<Result<uint64_t>> written = rings->Written(upto);
  Result<uint64_t> mask = co_await written;
  answer->emplace(std::move(mask));
}

// A flush costs an SSD its cache: only those are asked for one whose blocks need it still.
TEST_F(RingAndLog, WhatOthersHaveFlushedMeanwhileIsNotFlushedAgain) {
  Make(64);
  Pack(1);
  ASSERT_EQ(RunTask(loop_, rings_->Written(1)).value_or(0), 1U);
  Pack(2);
  loop_.Start(Ask(rings_.get(), 2, &answer_));
  ASSERT_FALSE(answer_.has_value()) << "the second block is on its way";
  rings_->Stable(1);
  ASSERT_TRUE(loop_.RunUntil([this] { return answer_.has_value(); }));
  ASSERT_TRUE(answer_->ok());
  EXPECT_EQ(**answer_, 2U) << "of the second SSD";
}

// Entries are several blocks long, and seldom is one where a window of the reader ends.
TEST_F(RingAndLog, WhoGoesOnInStepsHasItReadAheadToo) {
  Make(8192);
  constexpr uint64_t kWindow = 256;  // blocks
  const auto last_of = [](uint64_t step) { return 10 * step + 20 * kWindow; };
  for (const uint64_t step : {7U, 100U}) {
    for (uint64_t place = 10 * step; place < last_of(step); place += step) {
      PutHeader(place);
    }
  }
  for (const uint64_t step : {7U, 100U}) {
    const uint64_t before = counting_->counters().bytes_read / kBlockBytes;
    const uint64_t first = 10 * step;
    for (uint64_t place = first; place < last_of(step); place += step) {
      ASSERT_TRUE(HeaderAt(place).has_value()) << place;
      const uint64_t gone = place - first;
      const uint64_t read = counting_->counters().bytes_read / kBlockBytes - before;
      // The window that is left, and no more than four ahead of it, each block once.
      ASSERT_LE(read, gone + 5 * kWindow) << place;
      if (gone > 6 * kWindow) {
        ASSERT_GE(read + step, gone + 4 * kWindow) << place;
      }
    }
  }
}

// What the last question met, not one before it.
TEST_F(RingAndLog, WhatAHeaderWasLikeIsSaidOfTheLastOneOnly) {
  Make(512);
  PutNewerHeader(5);
  PutHeader(9);
  faulty_->Add({.kinds = MaskOf(RequestKind::kRead),
                .from_then_on = true,
                .range_offset_bytes = g_.LogOffset(7),
                .range_length_bytes = kBlockBytes});
  const auto expect = [this](uint64_t place, bool there, bool unknown, bool unreadable) {
    EXPECT_EQ(HeaderAt(place).has_value(), there) << place;
    EXPECT_EQ(reader_->met_unknown().has_value(), unknown) << place;
    EXPECT_EQ(reader_->met_unreadable(), unreadable) << place;
  };
  expect(5, false, true, false);
  expect(7, false, false, true);
  expect(5, false, true, false);
  expect(9, true, false, false);
  expect(5, false, true, false);
  Error why;
  why.code = ErrorCode::kDeviceFailed;
  members_->Lose(Log(), why);
  expect(5, false, false, false);
  expect(7, false, false, false);
}

// Whole blocks, and nothing that is empty, wherever among its parts a write goes round the end.
TEST_F(RingAndLog, PartsAreCutWhereTheLogWrapsAndNowhereElse) {
  Make(64);
  using Writes = std::vector<std::vector<size_t>>;
  const Buffer bytes = pool_.GetZeroed(6 * kBlockBytes);
  const auto write = [&](uint64_t place) {
    std::vector<iovec> parts;
    std::byte* at = bytes.span().data();
    for (const size_t blocks : {1U, 3U, 2U}) {
      parts.push_back({at, blocks * kBlockBytes});
      at += blocks * kBlockBytes;
    }
    parts_->writes.clear();
    EXPECT_TRUE(
        RunTask(loop_, WriteLog(*members_, g_, {Log(), place, parts, IoKind::kEntry, nullptr}))
            .ok());
    return parts_->writes;
  };
  EXPECT_EQ(write(64 - 6), (Writes{{1, 3, 2}}));
  EXPECT_EQ(write(64 - 5), (Writes{{1, 3, 1}, {1}}));
  EXPECT_EQ(write(64 - 4), (Writes{{1, 3}, {2}}));
  EXPECT_EQ(write(64 - 3), (Writes{{1, 2}, {1, 2}}));
  EXPECT_EQ(write(64 - 2), (Writes{{1, 1}, {2, 2}}));
  EXPECT_EQ(write(64 - 1), (Writes{{1}, {3, 2}}));
  EXPECT_EQ(write(64), (Writes{{1, 3, 2}}));
}

}  // namespace
}  // namespace eplog
