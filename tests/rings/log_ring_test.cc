// The log ring of a log device: what is written at a place is read there, also over the end of the
// ring, and is counted; and headers are found by their places on each copy, whatever of it cannot
// be read, with few requests for who goes on and on.

#include "rings/log_ring.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "device/memory_device.h"
#include "device/wrappers.h"
#include "format/wire.h"
#include "runtime/run_task.h"
#include "runtime/virtual_loop.h"

namespace eplog {
namespace {

constexpr Uuid kArray = {std::byte{1}, std::byte{2}};
constexpr uint32_t kSsds = 3;
constexpr uint32_t kLogs = 2;

class LogRing : public ::testing::Test {
 protected:
  void Make(uint64_t log_blocks) {
    g_.n = kSsds;
    g_.m = kLogs;
    g_.chunk_bytes = 4096;
    g_.slots = 32;
    g_.stripes = 8;
    g_.extent_stripes = 1;
    g_.ring_blocks = 16;
    g_.log_offset_bytes = kSuperblockAreaBytes;
    g_.log_blocks = log_blocks;
    std::vector<Device*> all;
    for (uint32_t i = 0; i < kSsds + kLogs; ++i) {
      memory_.push_back(std::make_unique<MemoryDevice>(std::to_string(i), g_.log_bytes()));
      faulty_.push_back(std::make_unique<FaultDevice>(*memory_.back()));
      delayed_.push_back(
          std::make_unique<DelayDevice>(loop_, *faulty_.back(), DeviceDelays{.read_us = 1000}));
      counting_.push_back(std::make_unique<CountingDevice>(*delayed_.back()));
      all.push_back(counting_.back().get());
    }
    members_ = std::make_unique<MemberSet>(loop_, all);
    reader_ = std::make_unique<LogReader>(loop_, *members_, g_, kArray, pool_);
  }
  void TearDown() override {
    EXPECT_TRUE(Run([](LogReader* reader) -> Task<Status> {
                  Task<void> draining = reader->Drain();
                  co_await draining;
                  co_return OkStatus();
                }(reader_.get()))
                    .ok());
  }
  template <typename T>
  T Run(Task<T> task) {
    return RunTask(loop_, std::move(task));
  }
  [[nodiscard]] DeviceIndex Log(uint32_t j) const { return g_.LogDevice(j); }
  DeviceCounters Counted(uint32_t j) { return counting_[kSsds + j]->counters(); }
  std::byte* BytesAt(uint32_t j, uint64_t place) {
    return memory_[kSsds + j]->bytes().data() + g_.log_offset_bytes +
           place % g_.log_blocks * kBlockBytes;
  }
  // Of copy j, and nothing else changes.
  void PutHeader(uint32_t j, uint64_t place) {
    EntryHeader header;
    header.epoch = {1, 2};
    header.sequence = place + 1;
    header.place = place;
    std::vector<std::byte> bytes(kBlockBytes);
    EncodeEntryHeader(header, kArray, bytes);
    std::memcpy(BytesAt(j, place), bytes.data(), bytes.size());
    std::erase_if(headers_, [&](const auto& at) {
      return at.first == j && at.second % g_.log_blocks == place % g_.log_blocks;
    });
    headers_.emplace(j, place);
  }
  void PutGarbage(uint32_t j, uint64_t place) {
    std::memset(BytesAt(j, place), 0x5A, kBlockBytes);
    std::erase_if(headers_, [&](const auto& at) {
      return at.first == j && at.second % g_.log_blocks == place % g_.log_blocks;
    });
  }
  void MakeUnreadable(uint32_t j, uint64_t place) {
    faulty_[kSsds + j]->Add(
        {.kinds = MaskOf(RequestKind::kRead),
         .from_then_on = true,
         .range_offset_bytes = g_.log_offset_bytes + place % g_.log_blocks * kBlockBytes,
         .range_length_bytes = kBlockBytes});
    unreadable_.emplace(j, place % g_.log_blocks);
  }
  void Expect(uint32_t j, uint64_t place) {
    const auto header = Run(reader_->HeaderAt(j, place));
    const bool unreadable = unreadable_.contains({j, place % g_.log_blocks});
    ASSERT_EQ(reader_->met_unreadable(), unreadable) << "copy " << j << ", place " << place;
    ASSERT_FALSE(reader_->met_unknown().has_value());
    ASSERT_EQ(header.has_value(), !unreadable && headers_.contains({j, place}))
        << "copy " << j << ", place " << place;
    if (header) {
      ASSERT_EQ(header->place, place);
      ASSERT_EQ(header->sequence, place + 1);
    }
  }

  VirtualLoop loop_;
  BufferPool pool_;
  Geometry g_;
  std::vector<std::unique_ptr<MemoryDevice>> memory_;
  std::vector<std::unique_ptr<FaultDevice>> faulty_;
  std::vector<std::unique_ptr<DelayDevice>> delayed_;
  std::vector<std::unique_ptr<CountingDevice>> counting_;
  std::unique_ptr<MemberSet> members_;
  std::unique_ptr<LogReader> reader_;
  std::set<std::pair<uint32_t, uint64_t>> headers_;     // copy, place
  std::set<std::pair<uint32_t, uint64_t>> unreadable_;  // copy, block of the ring
};

// ---- reading and writing by place

TEST_F(LogRing, WhatIsWrittenOverTheEndIsReadOverTheEnd) {
  Make(64);
  Random random(3);
  for (int round = 0; round < 300; ++round) {
    const uint64_t place = random.Below(1000);
    // A header and chunks, in parts of one to four blocks.
    std::vector<Buffer> parts;
    parts.push_back(pool_.Get(kBlockBytes));
    for (uint64_t i = random.Below(5); i != 0; --i) {
      parts.push_back(pool_.Get(random.Between(1, 4) * kBlockBytes));
    }
    std::vector<iovec> iov;
    std::vector<std::byte> all;
    for (Buffer& part : parts) {
      for (size_t i = 0; i < part.size(); i += 8) {
        const uint64_t word = random.Next();
        std::memcpy(part.data() + i, &word, 8);
      }
      iov.push_back({part.data(), part.size()});
      all.insert(all.end(), part.data(), part.data() + part.size());
    }
    const std::vector<std::byte> before(memory_[kSsds]->bytes().begin(),
                                        memory_[kSsds]->bytes().end());
    const uint64_t writes = Counted(0).writes;
    LogBytes counted;
    ASSERT_TRUE(Run(WriteLog(*members_, g_, {Log(0), place, iov, IoKind::kEntry, &counted})).ok());
    EXPECT_EQ(counted.headers, kBlockBytes);
    EXPECT_EQ(counted.chunks, all.size() - kBlockBytes);
    const uint64_t blocks = all.size() / kBlockBytes;
    const uint64_t to_end = 64 - place % 64;
    EXPECT_EQ(Counted(0).writes - writes, blocks > to_end ? 2U : 1U) << place << ", " << blocks;
    for (uint64_t i = 0; i < 64; ++i) {
      const uint64_t behind = (i + 64 - place % 64) % 64;
      const std::byte* wanted = behind < blocks
                                    ? all.data() + behind * kBlockBytes
                                    : before.data() + g_.log_offset_bytes + i * kBlockBytes;
      ASSERT_EQ(std::memcmp(BytesAt(0, i), wanted, kBlockBytes), 0) << "block " << i;
    }
    const uint64_t reads = Counted(0).reads;
    Buffer got = pool_.Get(all.size());
    ASSERT_TRUE(Run(ReadLog(*members_, g_, Log(0), place, got.span())).ok());
    EXPECT_EQ(std::memcmp(got.data(), all.data(), all.size()), 0);
    EXPECT_EQ(Counted(0).reads - reads, blocks > to_end ? 2U : 1U);
  }
}

// What failed has not reached the device and is not counted: of an entry over the end, either part.
TEST_F(LogRing, CountsWhatReachedTheDevice) {
  Make(64);
  const Buffer bytes = pool_.GetZeroed(8 * kBlockBytes);
  for (const auto& [place, nth, headers, chunks] :
       std::vector<std::tuple<uint64_t, uint64_t, uint64_t, uint64_t>>{
           {3, 1, 0, 0}, {61, 1, 0, 0}, {61, 2, 1, 2}, {63, 2, 1, 0}, {61, 3, 1, 7}}) {
    faulty_[kSsds]->Clear();
    faulty_[kSsds]->Add({.kinds = MaskOf(RequestKind::kWrite), .nth = nth});
    LogBytes counted;
    const Status status = Run(
        WriteLog(*members_, g_,
                 {Log(0), place, {{bytes.span().data(), bytes.size()}}, IoKind::kEntry, &counted}));
    EXPECT_EQ(status.ok(), nth == 3);
    EXPECT_EQ(counted.headers, headers * kBlockBytes) << place << ", " << nth;
    EXPECT_EQ(counted.chunks, chunks * kBlockBytes) << place << ", " << nth;
  }
  faulty_[kSsds]->Clear();
  for (const uint64_t nth : {1U, 2U}) {
    faulty_[kSsds]->Add({.kinds = MaskOf(RequestKind::kRead), .nth = nth});
    EXPECT_FALSE(Run(ReadLog(*members_, g_, Log(0), 61, bytes.span())).ok());
    faulty_[kSsds]->Clear();
  }
}

// ---- headers by place

class LogReaderOf : public LogRing, public ::testing::WithParamInterface<uint64_t> {};

TEST_P(LogReaderOf, FindsWhatEachCopyHasWhoeverAsksInWhateverOrder) {
  Random random(GetParam());
  Make(random.Between(64, 3000));
  const uint64_t first = random.Below(3 * g_.log_blocks);
  for (uint64_t place = first; place < first + g_.log_blocks; place += random.Between(1, 9)) {
    for (uint32_t j = 0; j < kLogs; ++j) {
      if (!random.OneIn(8)) {
        PutHeader(j, place);
      }
    }
  }
  for (uint64_t i = random.Below(6); i != 0; --i) {
    MakeUnreadable(static_cast<uint32_t>(random.Below(kLogs)), random.Below(g_.log_blocks));
  }
  uint64_t place = first;
  for (int step = 0; step < 3000 && !HasFatalFailure(); ++step) {
    for (uint32_t j = 0; j < kLogs; ++j) {
      if (!random.OneIn(5)) {
        Expect(j, place);
      }
    }
    place = random.OneIn(100)  ? first + random.Below(g_.log_blocks)
            : random.OneIn(50) ? first + random.Below(2 * g_.log_blocks)
            : random.OneIn(20) ? place - std::min<uint64_t>(place, random.Below(600))
                               : place + random.Between(1, 9);
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, LogReaderOf, ::testing::Range(uint64_t{1}, uint64_t{31}));

TEST_F(LogRing, HeaderOfAnotherPlaceIsNone) {
  Make(512);
  PutHeader(0, 700);
  Expect(0, 700);
  Expect(0, 700 - 512);
  Expect(0, 700 + 512);
  // Another array's, and a copy of one that belongs elsewhere.
  std::memcpy(BytesAt(0, 701), BytesAt(0, 700), kBlockBytes);
  Expect(0, 701);
  PutGarbage(0, 702);
  Expect(0, 702);
}

// By a newer version: whoever recovers must not take the log to end there.
TEST_F(LogRing, HeaderOfANewerVersionIsToldFromNone) {
  Make(512);
  PutHeader(0, 3);
  PutHeader(0, 5);
  auto fixed = wire::Load<wire::EntryBytes>({BytesAt(0, 5), kBlockBytes});
  std::byte* const flags = BytesAt(0, 5) + offsetof(wire::EntryBytes, flags);
  *flags |= std::byte{2};
  const uint32_t crc =
      wire::CrcAround({BytesAt(0, 5), fixed.used_bytes}, offsetof(wire::EntryBytes, crc));
  std::memcpy(BytesAt(0, 5) + offsetof(wire::EntryBytes, crc), &crc, sizeof(crc));
  EXPECT_FALSE(Run(reader_->HeaderAt(0, 5)).has_value());
  EXPECT_TRUE(reader_->met_unknown().has_value());
  EXPECT_FALSE(reader_->met_unreadable());
  Expect(0, 3);
  EXPECT_FALSE(Run(reader_->HeaderAt(0, 5)).has_value());
  EXPECT_TRUE(reader_->met_unknown().has_value());
  Expect(0, 4);
}

TEST_F(LogRing, NobodyNeedCount) {
  Make(64);
  const Buffer bytes = pool_.GetZeroed(4 * kBlockBytes);
  for (const uint64_t place : {5U, 62U}) {
    EXPECT_TRUE(
        Run(WriteLog(
                *members_, g_,
                {Log(0), place, {{bytes.span().data(), bytes.size()}}, IoKind::kEntry, nullptr}))
            .ok());
  }
}

TEST_F(LogRing, DeviceThatIsLostIsACopyLess) {
  Make(512);
  PutHeader(0, 5);
  PutHeader(1, 5);
  Error why;
  why.code = ErrorCode::kDeviceFailed;
  members_->Lose(Log(0), why);
  EXPECT_FALSE(Run(reader_->HeaderAt(0, 5)).has_value());
  EXPECT_FALSE(reader_->met_unreadable()) << "it is not there";
  Expect(1, 5);
}

class UnreadableBlock : public LogRing, public ::testing::WithParamInterface<uint64_t> {};

// Wherever in a request it lies.
TEST_P(UnreadableBlock, HidesNoNeighbour) {
  Make(512);
  for (uint64_t place = 0; place < 512; ++place) {
    PutHeader(0, place);
  }
  MakeUnreadable(0, GetParam());
  for (uint64_t place = 0; place < 512 && !HasFatalFailure(); ++place) {
    Expect(0, place);
  }
}

INSTANTIATE_TEST_SUITE_P(Blocks, UnreadableBlock,
                         ::testing::Values(0U, 1U, 100U, 255U, 256U, 300U, 511U));

TEST_F(LogRing, WhoGoesOnReadsEachBlockOnceAndAheadOfHisNeed) {
  Make(16'384);
  constexpr uint64_t kWindow = uint64_t{1} << 20;
  for (uint64_t place = 0; place < 40 * 256; ++place) {
    PutHeader(0, place);
  }
  Expect(0, 0);
  EXPECT_EQ(Counted(0).bytes_read, kWindow) << "nobody has gone on yet";
  const uint64_t begin_us = loop_.NowUs();
  for (uint64_t place = 1; place < 40 * 256 && !HasFatalFailure(); ++place) {
    Expect(0, place);
  }
  // Forty windows of a millisecond each, several of them at once.
  EXPECT_LE(loop_.NowUs() - begin_us, 15'000U);
  EXPECT_LE(Counted(0).bytes_read, (40 + 4) * kWindow);
  EXPECT_GE(Counted(0).bytes_read, 40 * kWindow);
  EXPECT_EQ(Counted(0).bytes_read / Counted(0).reads, kWindow);
  // A jump, back or far ahead, reads what it needs and no more.
  for (const uint64_t place : {5000U, 100U, 9000U, 8990U}) {
    const uint64_t before = Counted(0).bytes_read;
    Expect(0, place);
    EXPECT_EQ(Counted(0).bytes_read - before, kWindow) << place;
  }
  // Within what is there nothing is read.
  const uint64_t before = Counted(0).bytes_read;
  Expect(0, 8999);
  EXPECT_EQ(Counted(0).bytes_read, before);
  EXPECT_EQ(Counted(1).reads, 0U) << "nobody asked for that copy";
}

}  // namespace
}  // namespace eplog
