// When the background work begins that makes room, how much it takes at once, and that it leaves
// the devices to others meanwhile (section 8). Judged by what the devices and the status show.

#include <algorithm>
#include <vector>

#include "runtime/task_group.h"
#include "tests/engine/array_fixture.h"

namespace eplog {
namespace {

constexpr uint64_t kChunk = 4096;
constexpr uint64_t kSecond = 1'000'000;

class Keeping : public ::testing::Test {
 protected:
  void Make(ArrayShape shape) {
    shape.ssd_delays = kSsdDelays;
    shape.log_delays = kLogDelays;
    test_ = std::make_unique<TestArray>(shape);
    g_ = DecodeSuperblock(test_->memory(0).bytes().first(kSuperblockCopyBytes))->geometry;
    volume_ = test_->CreateVolume("v", g_.capacity_bytes());
  }
  void FillStripes(uint64_t count) {
    const std::vector<std::byte> data(g_.stripe_data_bytes(), std::byte{1});
    for (uint64_t stripe = 0; stripe < count; ++stripe) {
      ASSERT_TRUE(test_->Write(volume_, stripe * data.size(), data).ok());
    }
    ASSERT_TRUE(RunTask(test_->loop, test_->array->Checkpoint(CheckpointKind::kFull)).ok());
    test_->Sleep(20 * kSecond);
    committed_ = Now().traffic.committed_stripes;
  }
  void Update(uint64_t chunk) {
    ASSERT_TRUE(test_->Write(volume_, chunk * kChunk, block_.span()).ok());
  }
  ArrayStatus Now() { return test_->array->GetStatus(); }
  bool HasCommitted() { return Now().traffic.committed_stripes != committed_; }

  std::unique_ptr<TestArray> test_;
  Geometry g_;
  VolumeId volume_;
  BufferPool pool_;
  Buffer block_ = pool_.GetZeroed(kChunk);
  uint64_t committed_ = 0;
};

// Five sevenths of what the foreground may have; the rest, an eighth, is closed to it.
TEST_F(Keeping, CommitsBeginWhenFiveSeventhsOfTheOpenLogAreUsed) {
  ArrayShape shape;
  shape.log_bytes = uint64_t{16} << 20;
  shape.ssd_bytes = uint64_t{96} << 20;
  Make(shape);
  FillStripes(2000);
  const uint64_t used_before = Now().log_used_bytes;
  EXPECT_LT(used_before, 10 * kChunk);
  const uint64_t open = g_.log_blocks - g_.log_blocks / 8;
  const uint64_t begin = open * 5 / 7 * kChunk;
  uint64_t used = 0;
  for (uint64_t stripe = 0; stripe < 2000 && !HasCommitted(); ++stripe) {
    used = Now().log_used_bytes;
    Update(stripe * 6);
    test_->Sleep(20'000);
  }
  EXPECT_GE(used + 4 * kChunk, begin);
  EXPECT_LE(used, begin + 4 * kChunk);
  // It goes on until less is used, and a checkpoint frees what was committed.
  test_->Sleep(10 * kSecond);
  EXPECT_LE(Now().log_used_bytes, begin);
  EXPECT_GE(Now().traffic.checkpoints, 1U);
}

// Half way to the limit at which writers wait for a flush (I4), and not when somebody else wakes
// it.
TEST_F(Keeping, FlushesByItselfWhenHalfOfWhatMayBeUnstableIs) {
  ArrayShape shape;
  shape.n = 3;
  shape.m = 1;
  shape.chunk_bytes = 1 << 20;
  shape.ssd_bytes = shape.log_bytes = uint64_t{512} << 20;
  Make(shape);
  const std::vector<std::byte> data(shape.chunk_bytes, std::byte{1});
  const CountingDevice& log = test_->counter(shape.n);
  ASSERT_TRUE(RunTask(test_->loop, test_->array->FlushAll()).ok());
  test_->Sleep(10 * kSecond);
  const uint64_t flushes = log.counters().flushes;
  const uint64_t before = log.counters().bytes_written;
  uint64_t logged = 0;
  for (uint64_t i = 0; i < 60 && log.counters().flushes == flushes; ++i) {
    logged = log.counters().bytes_written - before;
    ASSERT_TRUE(test_->Write(volume_, i % 8 * 2 * data.size(), data).ok());
    test_->Sleep(10);
  }
  EXPECT_GE(logged, uint64_t{31} << 20);
  EXPECT_LE(logged, uint64_t{35} << 20);
}

class KeepingSlots : public Keeping, public ::testing::WithParamInterface<uint32_t> {};

// On any SSD: fewer are free than those that are closed and half of the rest of the reserve.
TEST_P(KeepingSlots, CommitsBeginWhenHalfOfTheReserveOfAnSsdIsUsed) {
  ArrayShape shape;
  shape.n = 6;
  shape.m = 2;
  shape.log_bytes = uint64_t{64} << 20;
  shape.ssd_bytes = uint64_t{24} << 20;
  Make(shape);
  FillStripes(g_.stripes);
  const uint64_t least = g_.commit_width() + (g_.reserve_slots() - g_.commit_width()) / 2;
  ASSERT_EQ(Now().slots_free_min, g_.reserve_slots());
  uint64_t free = 0;
  for (uint64_t chunk = 0; chunk < g_.data_chunks() && !HasCommitted(); ++chunk) {
    if (g_.SsdOf(ChunkIndex(chunk)).value == GetParam()) {
      free = Now().slots_free_min;
      Update(chunk);
      test_->Sleep(20'000);
    }
  }
  EXPECT_LE(free, least + 1);
  EXPECT_GE(free + 1, least);
  test_->Sleep(10 * kSecond);
  EXPECT_GE(Now().slots_free_min, least);
}

INSTANTIATE_TEST_SUITE_P(Ssds, KeepingSlots, ::testing::Values(0U, 3U, 5U));

// A lone writer who writes as fast as he can: commits take the more of the devices the less space
// is left, and so he is neither kept waiting nor comes near to it.
TEST_F(Keeping, CommitsGoFasterTheFewerSlotsAreLeft) {
  ArrayShape shape;
  shape.log_bytes = uint64_t{512} << 20;
  shape.ssd_bytes = uint64_t{32} << 20;
  Make(shape);
  FillStripes(g_.stripes);
  Random random(3);
  uint64_t fewest = UINT64_MAX;
  for (int i = 0; i < 15'000; ++i) {
    Update(random.Below(g_.data_chunks()));
    fewest = std::min(fewest, Now().slots_free_min);
  }
  const uint64_t closed = g_.commit_width();
  const uint64_t begin = closed + (g_.reserve_slots() - closed) / 2;
  EXPECT_LT(fewest, begin);
  EXPECT_GT(fewest, closed + (begin - closed) / 3);
  EXPECT_GT(Now().traffic.committed_stripes, 5'000U);
  EXPECT_EQ(test_->hooks().space_waits, 0U);
}

// While nobody waits for space, two stripes are read and written at once, and after each batch the
// devices are left alone as long as it took.
TEST_F(Keeping, CommitsThatNobodyWaitsForLeaveTheDevicesToOthers) {
  ArrayShape shape;
  shape.commit = {.idle_us = 2 * kSecond};
  shape.log_bytes = uint64_t{16} << 20;
  Make(shape);
  FillStripes(800);
  for (uint64_t stripe = 0; stripe < 640; ++stripe) {
    Update(stripe * 6);
  }
  const uint64_t last_us = test_->loop.NowUs();
  uint64_t begin_us = 0;
  uint64_t seen_us = 0;
  uint64_t busy_us = 0;
  uint64_t most = 0;
  bool was_busy = false;
  static_cast<void>(test_->loop.RunUntil([&] {
    uint64_t at_work = 0;
    for (uint32_t i = 0; i < g_.n; ++i) {
      at_work += test_->delayed(i).in_flight();
    }
    const uint64_t now = test_->loop.NowUs();
    if (HasCommitted() || at_work != 0) {
      begin_us = begin_us == 0 && now > last_us + kSecond ? now : begin_us;
    }
    if (begin_us != 0) {
      busy_us += was_busy ? now - seen_us : 0;
      most = std::max(most, at_work);
    }
    seen_us = now;
    was_busy = at_work != 0;
    return Now().pending_chunks == 0 || now > last_us + 60 * kSecond;
  }));
  EXPECT_EQ(Now().pending_chunks, 0U);
  EXPECT_GE(begin_us + 1000, last_us + 2 * kSecond);
  EXPECT_LE(begin_us, last_us + 2 * kSecond + 100'000);
  // Of each the fewest reads: its old parity and the chunk as it was and is; or its flushes.
  EXPECT_LE(most, std::max<uint64_t>(2 * 4, g_.n));
  EXPECT_GE(most, 2 * 4U);
  const uint64_t took_us = seen_us - begin_us;
  std::printf("%llu us of %llu us\n", static_cast<unsigned long long>(busy_us),
              static_cast<unsigned long long>(took_us));
  EXPECT_LE(busy_us, took_us * 55 / 100);
  EXPECT_GE(busy_us, took_us * 30 / 100);
}

// Any request is one, not only a write.
TEST_F(Keeping, NobodyIsIdleWhoReadsOrFlushes) {
  ArrayShape shape;
  shape.commit = {.idle_us = 2 * kSecond};
  Make(shape);
  FillStripes(10);
  Update(7);
  for (int i = 0; i < 10; ++i) {
    test_->Sleep(kSecond * 3 / 2);
    if (i % 2 == 0) {
      static_cast<void>(test_->Read(volume_, 0, kChunk));
    } else {
      ASSERT_TRUE(RunTask(test_->loop, test_->array->Flush(volume_, 0, kChunk)).ok());
    }
  }
  EXPECT_FALSE(HasCommitted());
  test_->Sleep(kSecond * 19 / 10);
  EXPECT_FALSE(HasCommitted());
  test_->Sleep(kSecond * 2 / 10);
  EXPECT_TRUE(HasCommitted());
  EXPECT_EQ(Now().pending_chunks, 0U);
}

// What becomes of age meanwhile comes when it is due, and what is younger stays.
TEST_F(Keeping, EachIsCommittedAtItsAge) {
  ArrayShape shape;
  shape.commit = {.age_us = 10 * kSecond};
  Make(shape);
  FillStripes(100);
  for (uint64_t stripe = 0; stripe < 30; ++stripe) {
    Update(stripe * 6);
    test_->Sleep(kSecond);
    // Ages are known to a tenth of a second.
    const uint64_t young = std::min<uint64_t>(stripe + 1, 10);
    ASSERT_GE(Now().pending_chunks, young - 1) << stripe;
    ASSERT_LE(Now().pending_chunks, young + 1) << stripe;
    ASSERT_LE(Now().oldest_pending_seconds, 11) << stripe;
  }
}

// What the log of a lost device protected is committed at once, whatever the triggers say; what is
// written afterwards is not.
TEST_F(Keeping, WhatALostLogProtectedIsCommitted) {
  for (const uint32_t log : {0U, 1U}) {
    Make({});
    FillStripes(100);
    for (uint64_t stripe = 0; stripe < 50; ++stripe) {
      Update(stripe * 6);
    }
    test_->Sleep(100 * kSecond);
    EXPECT_EQ(Now().pending_chunks, 50U);
    ASSERT_TRUE(
        RunTask(test_->loop, test_->array->FailDevice(g_.n + log, "to see what follows")).ok());
    test_->Sleep(kSecond);
    EXPECT_EQ(Now().pending_chunks, 0U);
    Update(1);
    test_->Sleep(100 * kSecond);
    EXPECT_EQ(Now().pending_chunks, 1U);
    // An SSD that is lost is no reason.
    ASSERT_TRUE(RunTask(test_->loop, test_->array->FailDevice(1, "the same")).ok());
    test_->Sleep(10 * kSecond);
    EXPECT_EQ(Now().pending_chunks, 1U);
  }
}

// Who waits for log while nothing can be read for a moment is not refused: it is tried again first,
// and longer than the moment lasts.
TEST_F(Keeping, NobodyIsRefusedForReadErrorsOfAMoment) {
  ArrayShape shape;
  shape.n = 5;
  shape.m = 1;
  shape.ssd_bytes = uint64_t{6} << 20;
  shape.log_bytes = uint64_t{1} << 20;
  shape.auto_commit = false;  // only when somebody waits
  Make(shape);
  FillStripes(g_.stripes);
  for (uint32_t device = 0; device < g_.devices(); ++device) {
    test_->faulty(device).Add({.kinds = MaskOf(RequestKind::kRead), .from_then_on = true});
  }
  const auto failed = [&] {
    uint64_t fired = 0;
    for (uint32_t device = 0; device < g_.devices(); ++device) {
      fired += test_->faulty(device).fired();
    }
    return fired;
  };
  TaskGroup group(test_->loop);
  const uint64_t waits = test_->hooks().space_waits;
  for (uint64_t chunk = 0; test_->hooks().space_waits == waits; ++chunk) {
    ASSERT_LT(chunk, g_.log_blocks);
    group.Start(test_->array->Write(volume_, chunk * kChunk, block_.span()));
    test_->Sleep(500);
  }
  ASSERT_TRUE(test_->loop.RunUntil([&] { return failed() != 0; }));
  test_->Sleep(2000);
  for (uint32_t device = 0; device < g_.devices(); ++device) {
    test_->faulty(device).Clear();
  }
  const Status written = RunTask(test_->loop, group.Wait());
  EXPECT_TRUE(written.ok()) << written.error().ToString();
  EXPECT_TRUE(HasCommitted());
}

}  // namespace
}  // namespace eplog
