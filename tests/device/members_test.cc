#include "device/members.h"

#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "device/forwarding_device.h"
#include "device/memory_device.h"
#include "device/wrappers.h"
#include "runtime/sync.h"
#include "runtime/virtual_loop.h"
#include "tests/device/device_util.h"

namespace eplog {
namespace {

using test::Await;
using test::Filled;
using test::Pool;

constexpr uint64_t kSize = uint64_t{1} << 20;

TEST(LatencyHistogram, QuantilesAreUpperEdgesWithinAQuarter) {
  LatencyHistogram histogram;
  EXPECT_EQ(histogram.Quantile(0.5), 0U);
  for (uint64_t us = 1; us <= 1000; ++us) {
    histogram.Add(us);
  }
  for (const double q : {0.1, 0.5, 0.9, 0.99}) {
    const double exact = q * 1000;
    const auto told = static_cast<double>(histogram.Quantile(q));
    EXPECT_GE(told, exact - 1) << q;
    EXPECT_LE(told, exact * 1.25 + 1) << q;
  }
  histogram.Add(UINT64_MAX);  // beyond the last bucket: counted in it
  EXPECT_GT(histogram.Quantile(1.0), uint64_t{1} << 39);
}

class Members : public ::testing::Test {
 protected:
  static constexpr DeviceIndex kFirst{0};
  static constexpr DeviceIndex kMissing{1};
  static constexpr DeviceIndex kLast{2};

  VirtualLoop loop_;
  MemoryDevice first_{"first", kSize};
  MemoryDevice memory_{"last", kSize};
  CountingDevice counting_{memory_};
  FaultDevice last_{counting_};
  MemberSet members_{loop_, {&first_, nullptr, &last_}};
};

TEST_F(Members, ForwardsByIndexAndCounts) {
  const Buffer out = Filled(4096, 1);
  const Buffer in = Pool().GetZeroed(4096);
  ASSERT_TRUE(Await(loop_, members_.WriteBytes(kLast, 8192, out.span(), IoKind::kData)).ok());
  ASSERT_TRUE(Await(loop_, members_.ReadBytes(kLast, 8192, in.span())).ok());
  EXPECT_TRUE(test::Same(in, out));
  const MemberCounters& counters = members_.counters(kLast);
  EXPECT_EQ(counters.writes, 1U);
  EXPECT_EQ(counters.bytes_written, 4096U);
  EXPECT_EQ(counters.reads, 1U);
  EXPECT_EQ(counters.bytes_read, 4096U);
  EXPECT_EQ(members_.counters(kFirst).writes, 0U);
}

TEST_F(Members, OneThatIsNotLiveFailsAtOnce) {
  const Buffer buffer = Filled(4096, 1);
  EXPECT_FALSE(members_.live(kMissing));
  EXPECT_EQ(members_.live_mask(), 0b101U);
  const Status read = Await(loop_, members_.ReadBytes(kMissing, 0, buffer.span()));
  const Status written =
      Await(loop_, members_.WriteBytes(kMissing, 0, buffer.span(), IoKind::kData));
  const Status flushed = Await(loop_, members_.Flush(kMissing));
  for (const Status& status : {read, written, flushed}) {
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kDeviceFailed);
    EXPECT_EQ(status.error().device, 1);
  }
}

TEST_F(Members, ErrorsBearTheDeviceAndAreCounted) {
  last_.FailDevice();
  const Buffer buffer = Filled(4096, 1);
  const Status read = Await(loop_, members_.ReadBytes(kLast, 0, buffer.span()));
  const Status written = Await(loop_, members_.WriteBytes(kLast, 0, buffer.span(), IoKind::kRing));
  const Status flushed = Await(loop_, members_.Flush(kLast));
  for (const Status& status : {read, written, flushed}) {
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().device, 2);
  }
  EXPECT_EQ(members_.counters(kLast).read_errors, 1U);
  EXPECT_EQ(members_.counters(kLast).write_errors, 2U);
  EXPECT_EQ(members_.counters(kLast).bytes_written, 0U);
}

TEST_F(Members, TheHookSeesEachRequestBeforeItIsMade) {
  std::vector<IoKind> seen;
  uint64_t writes_at_hook = UINT64_MAX;
  members_.set_before_io([&](DeviceIndex device, IoKind kind) {
    EXPECT_EQ(device, kLast);
    seen.push_back(kind);
    writes_at_hook = std::min(writes_at_hook, counting_.counters().writes);
  });
  const Buffer buffer = Filled(4096, 1);
  ASSERT_TRUE(Await(loop_, members_.WriteBytes(kLast, 0, buffer.span(), IoKind::kEntry)).ok());
  ASSERT_TRUE(Await(loop_, members_.ReadBytes(kLast, 0, buffer.span())).ok());
  ASSERT_TRUE(Await(loop_, members_.Flush(kLast)).ok());
  EXPECT_EQ(seen, std::vector<IoKind>({IoKind::kEntry, IoKind::kRead, IoKind::kFlush}));
  EXPECT_EQ(writes_at_hook, 0U);
}

// A flush that is refused since an earlier one failed is not made.
TEST_F(Members, TheHookSeesNoFlushThatIsNotMade) {
  last_.Add({.kinds = MaskOf(RequestKind::kFlush)});
  EXPECT_FALSE(Await(loop_, members_.Flush(kLast)).ok());
  uint64_t seen = 0;
  members_.set_before_io([&seen](DeviceIndex /*device*/, IoKind /*kind*/) { ++seen; });
  EXPECT_FALSE(Await(loop_, members_.Flush(kLast)).ok());
  EXPECT_EQ(seen, 0U);
}

TEST_F(Members, FlushMaskTakesTheLiveOnesOfTheMask) {
  ASSERT_TRUE(Await(loop_, members_.FlushMask(0b111)).ok());
  EXPECT_EQ(members_.counters(kFirst).flushes, 1U);
  EXPECT_EQ(members_.counters(kMissing).flushes, 0U);
  EXPECT_EQ(counting_.counters().flushes, 1U);
  ASSERT_TRUE(Await(loop_, members_.FlushMask(0b001)).ok());
  EXPECT_EQ(counting_.counters().flushes, 1U);
  last_.FailDevice();
  const Status status = Await(loop_, members_.FlushMask(0b101));
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().device, 2);
  EXPECT_EQ(members_.counters(kFirst).flushes, 3U) << "the others are flushed all the same";
}

// The one that takes a place is not to blame for what was on its way to the one before it.
TEST_F(Members, WhatWasAskedOfTheOneBeforeIsNotCountedOfItsSuccessor) {
  DelayDevice slow(loop_, last_, {.read_us = 1000, .write_us = 1000, .flush_us = 1000});
  MemberSet members(loop_, {&slow});
  uint64_t losses = 0;
  members.TakeLosses([&losses](DeviceIndex, const Error&) { ++losses; });
  last_.FailDevice();
  const Buffer buffer = Filled(4096, 1);
  const iovec part{buffer.data(), buffer.size()};
  uint64_t ended = 0;
  const auto end = [&ended](Task<Status> request) -> Task<void> {
    const Status status = co_await request;
    EXPECT_EQ(status.ok() ? ErrorCode::kIo : status.error().code, ErrorCode::kDeviceFailed);
    ++ended;
  };
  loop_.Spawn(end(members.Read(kFirst, 0, std::span(&part, 1))));
  loop_.Spawn(end(members.Write(kFirst, 0, std::span(&part, 1), IoKind::kData)));
  loop_.Spawn(end(members.Flush(kFirst)));
  ASSERT_TRUE(Await(loop_,
                    [](EventLoop& loop) -> Task<Status> {
                      co_await loop.Sleep(10);
                      co_return OkStatus();
                    }(loop_))
                  .ok());
  members.Lose(kFirst, Error{});
  members.Join(kFirst, first_);
  ASSERT_TRUE(loop_.RunUntil([&ended] { return ended == 3; }));
  EXPECT_TRUE(members.live(kFirst));
  EXPECT_EQ(losses, 1U);
  const MemberCounters& counters = members.counters(kFirst);
  EXPECT_EQ(counters.reads + counters.writes + counters.flushes, 0U);
  EXPECT_EQ(counters.read_errors + counters.write_errors, 0U);
  EXPECT_TRUE(Await(loop_, members.Flush(kFirst)).ok());
}

// A system tells once of what it could not write, and to whom asked first.
TEST_F(Members, AFlushThatFailsIsOfTheSameDeviceThoughItWasOutMeanwhile) {
  DelayDevice slow(loop_, last_, {.flush_us = 1000});
  MemberSet members(loop_, {&slow});
  uint64_t losses = 0;
  members.TakeLosses([&losses](DeviceIndex, const Error&) { ++losses; });
  last_.Add({.kinds = MaskOf(RequestKind::kFlush)});
  bool ended = false;
  loop_.Spawn([](Task<Status> flush, bool& end) -> Task<void> {
    const Status status = co_await flush;
    EXPECT_FALSE(status.ok());
    end = true;
  }(members.Flush(kFirst), ended));
  ASSERT_TRUE(loop_.RunUntil([&slow] { return slow.in_flight() == 1; }));
  members.Lose(kFirst, Error{});
  members.Join(kFirst, slow);
  ASSERT_EQ(losses, 1U);
  ASSERT_TRUE(loop_.RunUntil([&ended] { return ended; }));
  EXPECT_EQ(losses, 2U);
  EXPECT_FALSE(members.live(kFirst));
}

TEST_F(Members, DroppedFlushesAreNotSent) {
  members_.set_drop_flushes(true);
  ASSERT_TRUE(Await(loop_, members_.Flush(kLast)).ok());
  EXPECT_EQ(counting_.counters().flushes, 0U);
}

TEST_F(Members, ReadsSeeAnOverlayWithoutAnyWrite) {
  const Buffer below = Filled(16384, 1);
  ASSERT_TRUE(Await(loop_, members_.WriteBytes(kLast, 0, below.span(), IoKind::kData)).ok());
  const uint64_t writes = counting_.counters().writes;
  members_.Overlay(kLast, 4096, Filled(4096, 2));
  const Buffer in = Pool().GetZeroed(16384);
  // In parts that do not end where the overlay does.
  const std::array<iovec, 3> parts{iovec{in.data(), 4608}, iovec{in.data() + 4608, 512},
                                   iovec{in.data() + 5120, 16384 - 5120}};
  ASSERT_TRUE(Await(loop_, members_.Read(kLast, 0, parts)).ok());
  const Buffer over = Filled(4096, 2);
  EXPECT_EQ(std::memcmp(in.data(), below.data(), 4096), 0);
  EXPECT_EQ(std::memcmp(in.data() + 4096, over.data(), 4096), 0);
  EXPECT_EQ(std::memcmp(in.data() + 8192, below.data() + 8192, 8192), 0);
  EXPECT_EQ(counting_.counters().writes, writes);
  ASSERT_TRUE(Await(loop_, members_.ReadBytes(kFirst, 4096, over.span())).ok());
  EXPECT_TRUE(test::Same(over, Pool().GetZeroed(4096))) << "another device is not touched";
}

// No device is lost by that: who flushes it meanwhile, of whom the array does not know yet that it
// has to stop, must not be told that all is well.
TEST_F(Members, AFlushThatFoundNoSpaceFailsForAll) {
  members_.TakeLosses([](DeviceIndex, const Error&) { FAIL() << "it is no loss"; });
  last_.Add({.kinds = MaskOf(RequestKind::kFlush), .code = ErrorCode::kNoSpace});
  for (int i = 0; i < 2; ++i) {
    const Status flushed = Await(loop_, members_.FlushMask(members_.live_mask()));
    ASSERT_FALSE(flushed.ok()) << i;
    EXPECT_EQ(flushed.error().code, ErrorCode::kNoSpace);
  }
  EXPECT_EQ(counting_.counters().flushes, 0U) << "it is never repeated";
  EXPECT_TRUE(members_.live(kLast));
}

// Answers flushes when it is told to.
class Answering final : public ForwardingDevice {
 public:
  Answering(EventLoop& loop, Device& below) : ForwardingDevice(below), changed_(loop) {}
  Task<Status> Flush() override {
    const size_t number = asked_++;
    while (answers_.size() <= number) {
      co_await changed_.Wait();
    }
    co_return answers_[number] ? Status(Fail(*answers_[number], "as told")) : OkStatus();
  }
  void Answer(std::optional<ErrorCode> failure = std::nullopt) {
    answers_.push_back(failure);
    changed_.NotifyAll();
  }
  [[nodiscard]] size_t asked() const { return asked_; }

 private:
  Event changed_;
  size_t asked_ = 0;
  std::vector<std::optional<ErrorCode>> answers_;  // nothing: it is well
};

class FlushesBeside : public Members {
 protected:
  std::optional<Status>& Begin() {
    std::optional<Status>& ended = ended_.emplace_back();
    loop_.Spawn([](Task<Status> flush, std::optional<Status>* out) -> Task<void> {
      *out = co_await flush;
    }(beside_.Flush(kLast), &ended));
    Settle();
    return ended;
  }
  void Settle() {
    static_cast<void>(loop_.RunUntil([] { return false; }));
  }

  Answering answering_{loop_, memory_};
  MemberSet beside_{loop_, {&first_, nullptr, &answering_}};
  std::deque<std::optional<Status>> ended_;
};

// The kernel tells of what it lost once, whoever asked first: no other is to ask meanwhile and be
// told that all is well.
TEST_F(FlushesBeside, OfOneDeviceGoOneAfterTheOther) {
  const std::optional<Status>& one = Begin();
  const std::optional<Status>& two = Begin();
  const std::optional<Status>& three = Begin();
  EXPECT_EQ(answering_.asked(), 1U);
  answering_.Answer();
  Settle();
  EXPECT_TRUE(one && one->ok());
  EXPECT_FALSE(two);
  EXPECT_EQ(answering_.asked(), 2U);
  answering_.Answer(ErrorCode::kNoSpace);
  Settle();
  ASSERT_TRUE(two && three);
  EXPECT_FALSE(two->ok());
  ASSERT_FALSE(three->ok());
  EXPECT_EQ(three->error().code, ErrorCode::kNoSpace);
  EXPECT_EQ(answering_.asked(), 2U) << "it is never repeated";
}

TEST_F(FlushesBeside, OfADeviceThatIsLostMeanwhileAskNobody) {
  beside_.TakeLosses([](DeviceIndex, const Error&) {});
  Begin();
  const std::optional<Status>& two = Begin();
  Error lost;
  lost.code = ErrorCode::kDeviceFailed;
  beside_.Lose(kLast, lost);
  answering_.Answer();
  Settle();
  ASSERT_TRUE(two);
  EXPECT_FALSE(two->ok());
  EXPECT_EQ(answering_.asked(), 1U);
}

// Its predecessor may not answer for a long time.
TEST_F(FlushesBeside, OfASuccessorDoNotWaitForItsPredecessor) {
  beside_.TakeLosses([](DeviceIndex, const Error&) {});
  const std::optional<Status>& hangs = Begin();
  Error lost;
  lost.code = ErrorCode::kDeviceFailed;
  beside_.Lose(kLast, lost);
  beside_.Join(kLast, first_);
  const std::optional<Status>& two = Begin();
  EXPECT_TRUE(two && two->ok());
  EXPECT_FALSE(hangs);
  answering_.Answer();
  Settle();
  EXPECT_TRUE(hangs);
}

}  // namespace
}  // namespace eplog
