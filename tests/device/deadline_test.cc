// Devices that hang, and faults on demand.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "device/deadline_device.h"
#include "device/forwarding_device.h"
#include "device/inject_device.h"
#include "device/memory_device.h"
#include "runtime/run_task.h"
#include "runtime/virtual_loop.h"

namespace eplog {
namespace {

constexpr uint64_t kDeadlineUs = 2'000'000;
constexpr size_t kBytes = 8192;

class Deadline : public ::testing::Test {
 protected:
  Buffer Filled(std::byte value) {
    Buffer buffer = pool_.Get(kBytes);
    std::memset(buffer.data(), static_cast<int>(value), buffer.size());
    return buffer;
  }
  Status Read(Device& device, const Buffer& into) {
    const iovec part{into.data(), into.size()};
    return RunTask(loop_, device.Read(0, std::span(&part, 1)));
  }
  Status Write(Device& device, const Buffer& from, uint64_t offset = 0) {
    const iovec part{from.data(), from.size()};
    return RunTask(loop_, device.Write(offset, std::span(&part, 1)));
  }

  Task<Status> Sleeping(uint64_t us) {
    co_await loop_.Sleep(us);
    co_return OkStatus();
  }

  BufferPool pool_;
  VirtualLoop loop_;
  MemoryDevice memory_{"disk", uint64_t{4} << 20};
  InjectDevice inject_{loop_, memory_, 1};
  DeadlineDevice device_{loop_, inject_, kDeadlineUs};
};

TEST_F(Deadline, NothingChangesWhileTheDeviceAnswers) {
  ASSERT_TRUE(Write(device_, Filled(std::byte{7})).ok());
  const Buffer got = Filled(std::byte{0});
  ASSERT_TRUE(Read(device_, got).ok());
  EXPECT_EQ(got.data()[kBytes - 1], std::byte{7});
  EXPECT_TRUE(RunTask(loop_, device_.Flush()).ok());
  EXPECT_FALSE(device_.hung());
  EXPECT_EQ(device_.unanswered(), 0U);
}

TEST_F(Deadline, LateRequestFailsTheDeviceForGood) {
  ASSERT_TRUE(Write(device_, Filled(std::byte{7})).ok());
  Injection hang;
  hang.hang = true;
  inject_.Set(hang);
  const Buffer got = Filled(std::byte{1});
  const uint64_t since = loop_.NowUs();
  const Status read = Read(device_, got);
  const uint64_t took_us = loop_.NowUs() - since;
  EXPECT_GE(took_us, kDeadlineUs);
  EXPECT_LE(took_us, kDeadlineUs + 2000);
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().code, ErrorCode::kDeviceFailed);
  EXPECT_EQ(read.error().errno_value, ETIMEDOUT);
  EXPECT_TRUE(device_.hung());
  EXPECT_EQ(device_.unanswered(), 1U);
  // At once from now on.
  EXPECT_FALSE(Write(device_, Filled(std::byte{9})).ok());
  EXPECT_FALSE(RunTask(loop_, device_.Flush()).ok());
  EXPECT_EQ(loop_.NowUs() - since, took_us);
  // It comes to itself: what hung is answered, to nobody, and nobody's memory is written.
  inject_.Set({});
  const Status slept = RunTask(loop_, [](EventLoop& loop) -> Task<Status> {
    co_await loop.Sleep(1000);
    co_return OkStatus();
  }(loop_));
  ASSERT_TRUE(slept.ok());
  EXPECT_EQ(device_.unanswered(), 0U);
  EXPECT_EQ(got.data()[0], std::byte{1});
  EXPECT_FALSE(Read(device_, got).ok()) << "a device that hung is not trusted again";
  EXPECT_TRUE(device_.idle());
}

// Until everything has been answered, to whoever asked and from below, it may not be destroyed.
TEST_F(Deadline, IdleOnlyWhenEverythingIsAnswered) {
  EXPECT_TRUE(device_.idle());
  Injection slow;
  slow.slow_us = kDeadlineUs / 2;
  inject_.Set(slow);
  bool ended = false;
  loop_.Spawn([](Device& device, bool& done) -> Task<void> {
    Task<Status> flush = device.Flush();
    EXPECT_TRUE((co_await flush).ok());
    done = true;
  }(device_, ended));
  bool was_busy = false;
  ASSERT_TRUE(loop_.RunUntil([&] {
    was_busy = was_busy || !device_.idle();
    return ended;
  }));
  EXPECT_TRUE(was_busy);
  EXPECT_TRUE(device_.idle());
}

TEST_F(Deadline, WithoutOneARequestMayTakeForEver) {
  DeadlineDevice patient(loop_, inject_, 0);
  Injection slow;
  slow.slow_us = 1000 * kDeadlineUs;
  inject_.Set(slow);
  EXPECT_TRUE(Write(patient, Filled(std::byte{3})).ok());
  EXPECT_FALSE(patient.hung());
  EXPECT_TRUE(patient.idle());
}

// Virtual time, and once, at `stop_at_us`, this process is stopped for a while.
class StoppedLoop final : public EventLoop {
 public:
  StoppedLoop(uint64_t stop_at_us, uint64_t stop_us) : stop_at_us_(stop_at_us), stop_us_(stop_us) {}
  ~StoppedLoop() override { Abort(); }
  [[nodiscard]] uint64_t NowUs() const override { return now_us_; }

 protected:
  bool Poll(bool may_block, uint64_t deadline_us) override {
    if (!may_block) {
      return true;
    }
    if (deadline_us == UINT64_MAX) {
      return false;
    }
    now_us_ = std::max(now_us_, deadline_us);
    if (now_us_ >= stop_at_us_) {
      now_us_ += std::exchange(stop_us_, 0);
    }
    return true;
  }

 private:
  uint64_t now_us_ = 1;
  uint64_t stop_at_us_;
  uint64_t stop_us_;
};

// Needs the loop for what it does: many short steps one after the other.
class StepDevice final : public ForwardingDevice {
 public:
  StepDevice(EventLoop& loop, Device& below, int steps)
      : ForwardingDevice(below), loop_(loop), steps_(steps) {}
  Task<Status> Flush() override {
    for (int i = 0; i < steps_; ++i) {
      co_await loop_.Sleep(10'000);
    }
    co_return OkStatus();
  }

 private:
  EventLoop& loop_;
  int steps_;
};

// Many times the deadline; what was sent shortly before comes to the device only afterwards.
TEST_F(Deadline, WhileThisProcessWasStoppedNoDeviceWasLate) {
  StoppedLoop loop(50'000, 10 * kDeadlineUs);
  StepDevice steps(loop, memory_, 20);
  DeadlineDevice device(loop, steps, kDeadlineUs);
  const Status flushed = RunTask(loop, device.Flush());
  EXPECT_TRUE(flushed.ok()) << flushed.error().ToString();
  EXPECT_FALSE(device.hung());
}

TEST_F(Deadline, ADeviceThatHangsBesideThatIsLateByWhatWasLeft) {
  StoppedLoop loop(50'000, 10 * kDeadlineUs);
  StepDevice steps(loop, memory_, 1'000'000);
  DeadlineDevice device(loop, steps, kDeadlineUs);
  EXPECT_FALSE(RunTask(loop, device.Flush()).ok());
  EXPECT_TRUE(device.hung());
  EXPECT_LE(loop.NowUs(), 11 * kDeadlineUs + kDeadlineUs / 2);
}

// Its owner knows better, and earlier.
TEST_F(Deadline, NobodyWaitsForADeviceThatIsAbandoned) {
  for (const uint64_t deadline_us : {uint64_t{0}, kDeadlineUs}) {
    DeadlineDevice device(loop_, inject_, deadline_us);
    Injection hang;
    hang.hang = true;
    inject_.Set(hang);
    const Buffer data = Filled(std::byte{4});
    const iovec part{data.data(), data.size()};
    std::vector<Status> answers;
    const auto keep = [](std::vector<Status>& into, Task<Status> task) -> Task<void> {
      into.push_back(co_await task);
    };
    loop_.Spawn(keep(answers, device.Write(0, std::span(&part, 1))));
    loop_.Spawn(keep(answers, device.Flush()));
    EXPECT_TRUE(RunTask(loop_, Sleeping(kDeadlineUs / 2)).ok());
    EXPECT_TRUE(answers.empty());
    device.Abandon();
    const uint64_t since = loop_.NowUs();
    ASSERT_TRUE(loop_.RunUntil([&] { return answers.size() == 2; }));
    EXPECT_EQ(loop_.NowUs(), since) << "on the virtual clock: at once";
    answers.push_back(Read(device, data));
    for (const Status& answer : answers) {
      ASSERT_FALSE(answer.ok());
      EXPECT_EQ(answer.error().code, ErrorCode::kDeviceFailed);
      EXPECT_EQ(answer.error().message, "disk is lost: nobody waits for its answers any more");
    }
    EXPECT_EQ(device.unanswered(), 2U);
    EXPECT_FALSE(device.idle());
    inject_.Set({});
    ASSERT_TRUE(loop_.RunUntil([&] { return device.idle(); }));
  }
}

// Its memory may be in other use when the device is done with being slow.
TEST_F(Deadline, WhatWasSlowAndGivenUpIsNotWritten) {
  Injection slow;
  slow.slow_us = kDeadlineUs / 2;
  inject_.Set(slow);
  const Buffer data = Filled(std::byte{4});
  const iovec part{data.data(), data.size()};
  std::optional<Status> answer;
  const auto keep = [](std::optional<Status>& into, Task<Status> task) -> Task<void> {
    into = co_await task;
  };
  loop_.Spawn(keep(answer, device_.Write(0, std::span(&part, 1))));
  EXPECT_TRUE(RunTask(loop_, Sleeping(kDeadlineUs / 4)).ok());
  inject_.Abandon();
  device_.Abandon();
  ASSERT_TRUE(loop_.RunUntil([&] { return answer && device_.idle(); }));
  EXPECT_FALSE(answer->ok());
  EXPECT_EQ(memory_.bytes()[0], std::byte{0});
}

// Of one that hangs already it is said that it did.
TEST_F(Deadline, WhatHungDidNotEndByBeingAbandoned) {
  Injection hang;
  hang.hang = true;
  inject_.Set(hang);
  EXPECT_EQ(Write(device_, Filled(std::byte{4})).error().errno_value, ETIMEDOUT);
  device_.Abandon();
  EXPECT_EQ(Write(device_, Filled(std::byte{4})).error().errno_value, ETIMEDOUT);
  inject_.Set({});
  ASSERT_TRUE(loop_.RunUntil([&] { return device_.idle(); }));
}

TEST_F(Deadline, WhatIsOnItsWayToAHungDeviceIsAnsweredWithTheFirst) {
  Injection hang;
  hang.hang = true;
  inject_.Set(hang);
  const Buffer first = Filled(std::byte{1});
  const Buffer second = Filled(std::byte{2});
  const Buffer third = Filled(std::byte{3});
  std::vector<std::pair<uint64_t, Status>> answers;
  const auto keep = [](std::vector<std::pair<uint64_t, Status>>& into, EventLoop& loop,
                       Task<Status> task) -> Task<void> {
    Status status = co_await task;
    into.emplace_back(loop.NowUs(), std::move(status));
  };
  const uint64_t since = loop_.NowUs();
  const iovec reading{first.data(), first.size()};
  const iovec writing{second.data(), second.size()};
  const iovec late{third.data(), third.size()};
  loop_.Spawn(keep(answers, loop_, device_.Read(0, std::span(&reading, 1))));
  const auto later = [&](uint64_t after_us, Task<Status> task) -> Task<void> {
    co_await loop_.Sleep(after_us);
    Task<void> keeping = keep(answers, loop_, std::move(task));
    co_await keeping;
  };
  loop_.Spawn(later(kDeadlineUs / 2, device_.Write(0, std::span(&writing, 1))));
  loop_.Spawn(later(kDeadlineUs - 1, device_.Read(kBytes, std::span(&late, 1))));
  loop_.Spawn(later(kDeadlineUs - 1, device_.Flush()));
  ASSERT_TRUE(loop_.RunUntil([&] { return answers.size() == 4; }));
  for (const auto& [when_us, status] : answers) {
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kDeviceFailed);
    EXPECT_EQ(status.error().errno_value, ETIMEDOUT);
    EXPECT_LE(when_us - since, kDeadlineUs + 2000) << "on the virtual clock: one deadline, not two";
  }
  EXPECT_EQ(device_.unanswered(), 4U);
  // They come after all, when their memory may be others' already.
  std::memset(first.data(), 9, first.size());
  std::memset(third.data(), 9, third.size());
  inject_.Set({});
  ASSERT_TRUE(loop_.RunUntil([&] { return device_.unanswered() == 0; }));
  EXPECT_EQ(first.data()[0], std::byte{9});
  EXPECT_EQ(third.data()[0], std::byte{9});
}

TEST_F(Deadline, SlowIsNotHung) {
  Injection slow;
  slow.slow_us = kDeadlineUs / 2;
  inject_.Set(slow);
  const uint64_t since = loop_.NowUs();
  EXPECT_TRUE(Write(device_, Filled(std::byte{3})).ok());
  EXPECT_EQ(loop_.NowUs() - since, kDeadlineUs / 2);
  EXPECT_FALSE(device_.hung());
}

TEST_F(Deadline, RatesStrikeAboutAsOftenAsTold) {
  Injection rates;
  rates.read_error_rate = 0.25;
  inject_.Set(rates);
  const Buffer got = Filled(std::byte{0});
  int failed = 0;
  for (int i = 0; i < 1000; ++i) {
    failed += Read(device_, got).ok() ? 0 : 1;
    EXPECT_TRUE(Write(device_, got).ok());
  }
  EXPECT_GT(failed, 180);
  EXPECT_LT(failed, 320);
  EXPECT_EQ(inject_.struck(), static_cast<uint64_t>(failed));
}

TEST_F(Deadline, CorruptStoresOneBitWrongAndMisdirectAnotherPlace) {
  Injection corrupt;
  corrupt.corrupt = 1;
  inject_.Set(corrupt);
  ASSERT_TRUE(Write(device_, Filled(std::byte{0})).ok());
  const Buffer got = Filled(std::byte{1});
  ASSERT_TRUE(Read(device_, got).ok());
  int bits = 0;
  for (const std::byte byte : got.span()) {
    bits += std::popcount(static_cast<unsigned>(byte));
  }
  EXPECT_EQ(bits, 1);
  ASSERT_TRUE(Write(device_, Filled(std::byte{0})).ok());
  Injection misdirect;
  misdirect.misdirect = 1;
  inject_.Set(misdirect);
  ASSERT_TRUE(Write(device_, Filled(std::byte{5})).ok());
  ASSERT_TRUE(Read(device_, got).ok());
  EXPECT_EQ(got.data()[0], std::byte{0});
  ASSERT_TRUE(Write(device_, Filled(std::byte{6})).ok());
  ASSERT_TRUE(Read(device_, got).ok());
  EXPECT_EQ(got.data()[0], std::byte{6});
}

TEST_F(Deadline, DroppedDeviceIsGone) {
  Injection drop;
  drop.drop = true;
  inject_.Set(drop);
  const Status written = Write(device_, Filled(std::byte{0}));
  ASSERT_FALSE(written.ok());
  EXPECT_EQ(written.error().code, ErrorCode::kDeviceFailed);
  inject_.Set({});
  EXPECT_TRUE(Write(device_, Filled(std::byte{0})).ok());
}

}  // namespace
}  // namespace eplog
