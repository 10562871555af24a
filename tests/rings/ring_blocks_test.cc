// JournalRings, one promise at a time: which blocks a checkpoint needs, which numbers come next
// after an opening, what a write that failed means, who is waited for. At random: see
// journal_rings_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "device/memory_device.h"
#include "device/wrappers.h"
#include "rings/journal_rings.h"
#include "runtime/run_task.h"
#include "runtime/virtual_loop.h"

namespace eplog {
namespace {

constexpr Uuid kArray = {std::byte{1}, std::byte{2}};
constexpr uint64_t kBlocks = 4;  // of each ring
constexpr uint32_t kSsds = 3;

class RingBlocks : public ::testing::Test {
 protected:
  RingBlocks() {
    g_.n = kSsds;
    g_.m = 1;
    g_.chunk_bytes = 4096;
    g_.slots = 16;
    g_.stripes = 8;
    g_.extent_stripes = 1;
    g_.ring_blocks = kBlocks;
    g_.log_blocks = 1000;
    std::vector<Device*> all;
    for (uint32_t i = 0; i < g_.devices(); ++i) {
      memory_.push_back(std::make_unique<MemoryDevice>(std::to_string(i), kBlocks * kBlockBytes));
      faulty_.push_back(std::make_unique<FaultDevice>(*memory_.back()));
      delayed_.push_back(
          std::make_unique<DelayDevice>(loop_, *faulty_.back(), DeviceDelays{.write_us = 100}));
      all.push_back(delayed_.back().get());
    }
    members_ = std::make_unique<MemberSet>(loop_, all);
    rings_ = std::make_unique<JournalRings>(loop_, *members_, g_, kArray, pool_);
    rings_->set_max_headers(1);
  }
  ~RingBlocks() override { EXPECT_TRUE(RunTask(loop_, Drained(rings_.get())).ok()); }
  void Enqueue(uint64_t sequence) {
    EntryHeader header;
    header.epoch = {1, 2};
    header.sequence = header.place = sequence;
    std::vector<std::byte> bytes(kMaxEntryHeaderBytes);
    bytes.resize(EncodeEntryHeader(header, kArray, bytes));
    rings_->Enqueue(sequence, bytes);
  }
  // Entries first ... last, each in a block of its own, written.
  void Write(uint64_t first, uint64_t last) {
    for (uint64_t sequence = first; sequence <= last; ++sequence) {
      Enqueue(sequence);
    }
    ASSERT_EQ(rings_->Pack(last, false, 0), last);
    ASSERT_TRUE(RunTask(loop_, rings_->Written(last)).ok());
  }
  // Number and sequence of what lies on an SSD.
  [[nodiscard]] std::vector<std::pair<uint64_t, uint64_t>> Found(uint8_t ssd) const {
    std::vector<std::pair<uint64_t, uint64_t>> found;
    for (uint64_t at = 0; at < kBlocks; ++at) {
      const auto bytes = memory_[ssd]->bytes().subspan(at * kBlockBytes, kBlockBytes);
      const auto block = DecodeRingBlock(bytes, kArray, g_, DeviceIndex(ssd));
      if (block.ok()) {
        found.emplace_back(block->number, block->headers.back().sequence);
      }
    }
    std::sort(found.begin(), found.end());
    return found;
  }
  void LoseDevice(DeviceIndex device) {
    Error why;
    why.code = ErrorCode::kDeviceFailed;
    members_->TakeLosses([](DeviceIndex, const Error&) {});
    members_->Lose(device, why);
  }
  static Task<Status> Drained(JournalRings* rings) {
    Task<void> draining = rings->Drain();
    co_await draining;
    co_return OkStatus();
  }
  [[nodiscard]] uint64_t InFlight() const {
    uint64_t count = 0;
    for (const auto& device : delayed_) {
      count += device->in_flight();
    }
    return count;
  }
  using Blocks = std::vector<std::pair<uint64_t, uint64_t>>;

  VirtualLoop loop_;
  BufferPool pool_;
  Geometry g_;
  std::vector<std::unique_ptr<MemoryDevice>> memory_;
  std::vector<std::unique_ptr<FaultDevice>> faulty_;
  std::vector<std::unique_ptr<DelayDevice>> delayed_;
  std::unique_ptr<MemberSet> members_;
  std::unique_ptr<JournalRings> rings_;
};

TEST_F(RingBlocks, OfNothingNothingIsPackedAndNothingWaitedFor) {
  EXPECT_EQ(rings_->Pack(UINT64_MAX, false, 0), 0U);
  EXPECT_EQ(rings_->packed(), 0U);
  const auto written = RunTask(loop_, rings_->Written(UINT64_MAX));
  ASSERT_TRUE(written.ok());
  EXPECT_EQ(*written, 0U) << "there is no SSD to flush";
  EXPECT_EQ(rings_->bytes_written(), 0U);
}

TEST_F(RingBlocks, AnotherSsdEachBlock) {
  Write(1, 5);
  EXPECT_EQ(Found(0), (Blocks{{0, 1}, {1, 4}}));
  EXPECT_EQ(Found(1), (Blocks{{0, 2}, {1, 5}}));
  EXPECT_EQ(Found(2), (Blocks{{0, 3}}));
  EXPECT_EQ(rings_->bytes_written(), 5 * kBlockBytes);
}

TEST_F(RingBlocks, NoFurtherThanIsAskedFor) {
  for (uint64_t sequence = 1; sequence <= 4; ++sequence) {
    Enqueue(sequence);
  }
  EXPECT_EQ(rings_->Pack(0, false, 0), 0U);
  EXPECT_EQ(rings_->Pack(2, false, 0), 2U);
  EXPECT_EQ(rings_->queued(), 2U);
  EXPECT_EQ(rings_->Pack(1, false, 0), 2U) << "what was packed stays so";
}

// One that has waited for a full block is not packed with fewer.
TEST_F(RingBlocks, OnlyWholeOnesWhereThatIsAskedFor) {
  rings_->set_max_headers(3);
  Enqueue(1);
  Enqueue(2);
  EXPECT_FALSE(rings_->HasFullBlock());
  EXPECT_EQ(rings_->Pack(2, true, 0), 0U);
  Enqueue(3);
  EXPECT_TRUE(rings_->HasFullBlock());
  Enqueue(4);
  EXPECT_EQ(rings_->Pack(4, true, 0), 3U);
  EXPECT_EQ(rings_->queued(), 1U);
  rings_->set_max_headers(0);
  for (uint64_t sequence = 5; !rings_->HasFullBlock(); ++sequence) {
    Enqueue(sequence);
    ASSERT_LT(rings_->queued(), kBlockBytes);
  }
  const size_t queued = rings_->queued();
  rings_->Pack(UINT64_MAX, true, 0);
  EXPECT_GT(rings_->queued(), 0U) << "what did not fit waits for the next one";
  EXPECT_LT(rings_->queued(), queued);
  EXPECT_FALSE(rings_->HasFullBlock()) << "of what waits now";
  while (!rings_->HasFullBlock()) {
    Enqueue(1000 + rings_->queued());
  }
  rings_->Forget(UINT64_MAX);
  EXPECT_FALSE(rings_->HasFullBlock());
}

TEST_F(RingBlocks, AHeaderAsLargeAsOneCanBeHasABlockOfItsOwn) {
  rings_->set_max_headers(0);
  const std::vector<std::byte> largest(kMaxEntryHeaderBytes);
  rings_->Enqueue(1, largest);
  rings_->Enqueue(2, largest);
  ASSERT_EQ(rings_->Pack(2, false, 0), 2U);
  EXPECT_EQ(rings_->Room(0), kSsds * kBlocks - 2);
}

// In turn, wherever there is most room: only several copies need more than that.
TEST_F(RingBlocks, ASingleCopyGoesToTheNextInTurn) {
  Write(1, 6);
  rings_->Reset(DeviceIndex(1));
  Write(7, 9);
  EXPECT_EQ(Found(0), (Blocks{{0, 1}, {1, 4}, {2, 7}}));
  EXPECT_EQ(Found(2), (Blocks{{0, 3}, {1, 6}, {2, 9}}));
  // One that is full is left out.
  Write(10, 10);
  EXPECT_EQ(Found(0).back().second, 10U);
  Write(11, 13);
  EXPECT_EQ(Found(1).back().second, 13U);
}

TEST_F(RingBlocks, RoundsOfARingAreCounted) {
  Write(1, kSsds * kBlocks);
  EXPECT_EQ(rings_->wraps(), 0U) << "each is full for the first time";
  rings_->CheckpointCounts(kSsds * kBlocks);
  Write(13, 13);
  EXPECT_EQ(rings_->wraps(), 1U);
  Write(14, 13 + kSsds * (kBlocks - 1));
  EXPECT_EQ(rings_->wraps(), kSsds);
}

TEST_F(RingBlocks, NeededAreThoseNewerThanTheCheckpointAndNoNewerThanAsked) {
  Write(1, 9);  // on ssd0: 1, 4 and 7
  EXPECT_EQ(rings_->NeededBlocks(DeviceIndex(0), 0, 9), (std::vector<uint64_t>{0, 1, 2}));
  EXPECT_EQ(rings_->NeededBlocks(DeviceIndex(0), 1, 9), (std::vector<uint64_t>{1, 2}));
  EXPECT_EQ(rings_->NeededBlocks(DeviceIndex(0), 0, 6), (std::vector<uint64_t>{0, 1}));
  EXPECT_EQ(rings_->NeededBlocks(DeviceIndex(0), 7, 9), std::vector<uint64_t>());
  rings_->CheckpointCounts(4);
  EXPECT_EQ(rings_->NeededBlocks(DeviceIndex(0), 0, 9), std::vector<uint64_t>{2});
}

// A block is freed from the tail: where only the newest is covered all stay.
TEST_F(RingBlocks, ACheckpointFreesBlocksThatHoldNothingNewer) {
  rings_->set_max_headers(2);
  Write(1, 4);  // two headers a block
  const uint64_t room = rings_->Room(0);
  rings_->CheckpointCounts(1);
  EXPECT_EQ(rings_->Room(0), room) << "entry 2 is in the same block";
  rings_->CheckpointCounts(2);
  EXPECT_EQ(rings_->Room(0), room + 1);
  rings_->CheckpointCounts(UINT64_MAX);
  EXPECT_EQ(rings_->Room(0), kSsds * kBlocks);
}

// A checkpoint made them stable: their headers need no place.
TEST_F(RingBlocks, WhatIsForgottenCountsAsPacked) {
  Enqueue(1);
  Enqueue(2);
  Enqueue(3);
  rings_->Forget(2);
  EXPECT_EQ(rings_->queued(), 1U);
  EXPECT_EQ(rings_->packed(), 2U);
  EXPECT_EQ(rings_->Pack(3, false, 0), 3U);
  ASSERT_TRUE(RunTask(loop_, rings_->Written(3)).ok());
  EXPECT_EQ(Found(0), (Blocks{{0, 3}}));
}

TEST_F(RingBlocks, TheRingOfAReplacedSsdIsEmpty) {
  Write(1, 12);
  ASSERT_EQ(rings_->Room(0), 0U);
  rings_->Reset(DeviceIndex(1));
  EXPECT_EQ(rings_->Room(0), kBlocks);
  EXPECT_TRUE(rings_->NeededBlocks(DeviceIndex(1), 0, UINT64_MAX).empty());
  std::ranges::fill(memory_[1]->bytes(), std::byte{0});
  Write(13, 13);
  EXPECT_EQ(Found(1), (Blocks{{0, 13}})) << "its numbers begin anew";
}

// ---- after an opening

TEST_F(RingBlocks, NumbersGoOnBehindTheLastThatIsNeeded) {
  // In any order; 8 and 9 hold what recovery cut off.
  for (const uint64_t number : {9U, 6U, 8U, 7U}) {
    rings_->NoteBlock(DeviceIndex(0), number, 10 + number, number <= 7);
  }
  EXPECT_EQ(rings_->NeededBlocks(DeviceIndex(0), 0, UINT64_MAX), (std::vector<uint64_t>{6, 7}));
  rings_->NoteBlock(DeviceIndex(1), 3, 5, false);  // nothing of it is needed
  Write(18, 19);
  EXPECT_EQ(Found(0), (Blocks{{8, 18}}));
  EXPECT_EQ(Found(1), (Blocks{{4, 19}})) << "not the number of a block that is there";
}

// ---- writes that take their time, and fail

TEST_F(RingBlocks, OnlyBlocksOfWhatIsAskedForAreWaitedFor) {
  Write(1, 1);
  Enqueue(2);
  rings_->Pack(2, false, 0);
  EXPECT_EQ(RunTask(loop_, rings_->Written(1)).value_or(0), 1U);
  EXPECT_EQ(delayed_[1]->in_flight(), 1U) << "the second one is on its way still";
  EXPECT_EQ(RunTask(loop_, rings_->Written(2)).value_or(0), 3U);
  EXPECT_EQ(delayed_[1]->in_flight(), 0U);
  rings_->Stable(1);
  EXPECT_EQ(RunTask(loop_, rings_->Written(2)).value_or(0), 2U) << "ssd0 is flushed already";
}

TEST_F(RingBlocks, AWriteThatFailsFailsWhoWaitsForIt) {
  faulty_[1]->Add({.kinds = MaskOf(RequestKind::kWrite), .code = ErrorCode::kNoSpace});
  Enqueue(1);
  Enqueue(2);
  Enqueue(3);
  rings_->Pack(3, false, 0);
  EXPECT_TRUE(RunTask(loop_, rings_->Written(1)).ok());
  const auto failed = RunTask(loop_, rings_->Written(2));
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, ErrorCode::kNoSpace);
  EXPECT_FALSE(RunTask(loop_, rings_->Written(3)).ok()) << "and who waits for what is behind it";
  EXPECT_EQ(rings_->bytes_written(), 2 * kBlockBytes);
}

// The others have a copy, or recovery does without (I7, I11): the loss is no error.
TEST_F(RingBlocks, ADeviceThatIsLostFailsNobody) {
  std::optional<DeviceIndex> lost;
  members_->TakeLosses([&](DeviceIndex device, const Error&) { lost = device; });
  faulty_[0]->Add({.kinds = MaskOf(RequestKind::kWrite)});
  Enqueue(1);
  rings_->Pack(1, false, 0);
  EXPECT_TRUE(RunTask(loop_, rings_->Written(1)).ok());
  EXPECT_EQ(lost, DeviceIndex(0));
  EXPECT_EQ(rings_->Room(0), (kSsds - 1) * kBlocks);
}

// Before they are gone with the object.
TEST_F(RingBlocks, AllThatIsOnItsWayIsWaitedForAtTheEnd) {
  faulty_[1]->Add({.kinds = MaskOf(RequestKind::kWrite), .code = ErrorCode::kNoSpace});
  for (uint64_t sequence = 1; sequence <= 5; ++sequence) {
    Enqueue(sequence);
  }
  rings_->Pack(5, false, 0);
  EXPECT_EQ(InFlight(), 5U);
  EXPECT_TRUE(RunTask(loop_, Drained(rings_.get())).ok());
  EXPECT_EQ(InFlight(), 0U);
}

// Who is told that headers are stable by other means must not lose sight of their blocks.
TEST_F(RingBlocks, WhatIsOnItsWayIsNotLostSightOf) {
  Enqueue(1);
  rings_->Pack(1, false, 0);
  rings_->Stable(1);
  EXPECT_EQ(RunTask(loop_, rings_->Written(1)).value_or(0), 1U);
  EXPECT_EQ(InFlight(), 0U);
  rings_->Stable(1);
  EXPECT_EQ(RunTask(loop_, rings_->Written(1)).value_or(7), 0U);
}

// A copy that was written does not make up for one that was not.
TEST_F(RingBlocks, EachOfSeveralCopiesMustBeWritten) {
  LoseDevice(g_.LogDevice(0));
  for (const size_t bad : {0U, 1U}) {
    faulty_[bad]->Add(
        {.kinds = MaskOf(RequestKind::kWrite), .from_then_on = true, .code = ErrorCode::kNoSpace});
    rings_->CheckpointCounts(UINT64_MAX);
    const uint64_t first = rings_->packed() + 1;
    for (uint64_t sequence = first; sequence < first + kSsds; ++sequence) {
      Enqueue(sequence);
    }
    rings_->Pack(UINT64_MAX, false, 0);  // one block on each two
    EXPECT_FALSE(RunTask(loop_, rings_->Written(UINT64_MAX)).ok()) << bad;
    EXPECT_TRUE(RunTask(loop_, Drained(rings_.get())).ok());
    faulty_[bad]->Clear();
    rings_->Stable(UINT64_MAX);
  }
}

// Those with most room first, or two copies would find no two SSDs in the end.
TEST_F(RingBlocks, SeveralCopiesUseAllTheRoomThereIs) {
  Write(1, 9);
  rings_->Reset(DeviceIndex(2));
  LoseDevice(g_.LogDevice(0));
  ASSERT_EQ(rings_->Room(0), 2U) << "one block each on ssd0 and ssd1, both on ssd2";
  Enqueue(10);
  Enqueue(11);
  EXPECT_EQ(rings_->Pack(11, false, 0), 11U);
  EXPECT_EQ(rings_->Room(0), 0U);
}

// As many as there can be.
TEST_F(RingBlocks, OneSsdThatIsLeftHasAllThereIs) {
  LoseDevice(g_.LogDevice(0));
  LoseDevice(DeviceIndex(0));
  LoseDevice(DeviceIndex(2));
  EXPECT_EQ(rings_->Room(0), kBlocks);
  Write(1, 2);
  EXPECT_EQ(Found(1), (Blocks{{0, 1}, {1, 2}}));
  EXPECT_EQ(rings_->Room(0), kBlocks - 2);
}

// As when a controller dies: headers of what was applied before wait for an end that comes soon.
TEST_F(RingBlocks, WithoutAnySsdThereIsNoPlace) {
  Enqueue(1);
  for (uint8_t ssd = 0; ssd < kSsds; ++ssd) {
    LoseDevice(DeviceIndex(ssd));
  }
  EXPECT_EQ(rings_->Room(0), 0U);
  EXPECT_EQ(rings_->Pack(1, false, 0), 0U);
  EXPECT_EQ(rings_->queued(), 1U);
}

// m + 1 devices have each header: for a log device that is lost one SSD more takes a copy.
TEST_F(RingBlocks, WithoutTheLogDeviceTwoSsdsHaveEachBlock) {
  Error why;
  why.code = ErrorCode::kDeviceFailed;
  members_->TakeLosses([](DeviceIndex, const Error&) {});
  members_->Lose(g_.LogDevice(0), why);
  Write(1, 3);
  size_t copies = 0;
  for (uint8_t ssd = 0; ssd < kSsds; ++ssd) {
    copies += Found(ssd).size();
  }
  EXPECT_EQ(copies, 6U);
  EXPECT_EQ(rings_->Room(0), (kSsds * kBlocks - 6) / 2);
}

}  // namespace
}  // namespace eplog
