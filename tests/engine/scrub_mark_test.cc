// A scrub that was cut short goes on where it was.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "tests/engine/array_fixture.h"

namespace eplog {
namespace {

constexpr uint64_t kChunk = 4096;
constexpr uint64_t kStripes = 600;

class ScrubMarks : public ::testing::Test {
 protected:
  void SetUp() override {
    ArrayShape shape;
    shape.n = 4;
    shape.m = 1;
    shape.ssd_bytes = uint64_t{8} << 20;
    shape.log_bytes = uint64_t{4} << 20;
    test_ = std::make_unique<TestArray>(shape);
    volume_ = test_->CreateVolume("v", kStripes * 3 * kChunk);
    Random random(5);
    ASSERT_TRUE(test_->Write(volume_, 0, RandomBytes(random, kStripes * 3 * kChunk)).ok());
    ASSERT_TRUE(RunTask(test_->loop, test_->array->FlushAll()).ok());
    ASSERT_TRUE(test_->Close().ok());
    DeviceDelays slow;
    slow.read_us = 15'000'000;  // a mark after each batch of 256 rows
    for (uint32_t i = 0; i < shape.n; ++i) {
      test_->delayed(i).set_delays(slow);
    }
  }
  void Open() {
    OpenOptions options;
    options.entropy = ++lives_ + 100;
    options.scrub_mark.load = [this] { return mark_; };
    options.scrub_mark.save = [this](const std::optional<ScrubMark>& mark) {
      mark_ = mark;
      marks_ += mark ? 1 : 0;
    };
    options.on_event = [this](const ArrayEvent& event) {
      finished_ += event.kind == EventKind::kScrubFinished ? 1 : 0;
    };
    auto opened = RunTask(test_->loop, Array::Open(test_->loop, test_->Devices(), options));
    ASSERT_TRUE(opened.ok()) << opened.error().ToString();
    test_->array = std::move(*opened);
  }
  void BeginAndAwaitMark(bool heal) {
    marks_ = 0;
    ended_.reset();
    test_->loop.Spawn([](Array& array, bool with_repair, auto& ended) -> Task<void> {
      Task<Result<CheckReport>> scrubbing = array.Scrub(with_repair, Progress());
      const Result<CheckReport> report = co_await scrubbing;
      ended = report.ok() ? OkStatus() : Status(Fail(report.error()));
    }(*test_->array, heal, ended_));
    for (int i = 0; i < 100 && marks_ == 0; ++i) {
      test_->Sleep(1'000'000);
    }
    ASSERT_GT(marks_, 0U);
    ASSERT_FALSE(ended_);
  }
  // Until the process is killed, after the first mark.
  void ScrubUntilMarked(bool heal) {
    BeginAndAwaitMark(heal);
    test_->Kill();
  }
  CheckReport Scrub(bool heal) {
    const auto report = RunTask(test_->loop, test_->array->Scrub(heal, Progress()));
    EXPECT_TRUE(report.ok()) << report.error().ToString();
    return *report;
  }

  std::unique_ptr<TestArray> test_;
  VolumeId volume_;
  std::optional<ScrubMark> mark_;
  std::optional<Status> ended_;  // how the scrub did
  uint64_t marks_ = 0;
  uint64_t finished_ = 0;
  uint64_t lives_ = 0;
};

TEST_F(ScrubMarks, TheNextOneGoesOnThere) {
  Open();
  ScrubUntilMarked(false);
  ASSERT_TRUE(mark_);
  const uint64_t next = mark_->next_stripe;
  EXPECT_GT(next, 0U);
  mark_->problems_found = 3;  // as if the first part had had some
  Open();
  const CheckReport report = Scrub(false);
  EXPECT_EQ(report.first_stripe, next);
  EXPECT_EQ(report.rows_checked, kStripes - next);
  EXPECT_EQ(report.problems_found, 3U);
  EXPECT_FALSE(mark_) << "it has ended";
  EXPECT_EQ(Scrub(false).rows_checked, kStripes);
  test_->Kill();
}

// What was only listed is not healed yet.
TEST_F(ScrubMarks, NotOneThatHeals) {
  Open();
  ScrubUntilMarked(false);
  Open();
  const CheckReport report = Scrub(true);
  EXPECT_EQ(report.first_stripe, 0U);
  EXPECT_EQ(report.rows_checked, kStripes);
  EXPECT_FALSE(mark_);
  test_->Kill();
}

// More than parity replaces is lost half through: not everything was read.
TEST_F(ScrubMarks, OneThatEndsBecauseTheArrayStopsIsCutShort) {
  Open();
  BeginAndAwaitMark(false);
  const std::optional<ScrubMark> mark = mark_;
  ASSERT_TRUE(RunTask(test_->loop, test_->array->FailDevice(0, "by hand")).ok());
  ASSERT_FALSE(ended_);
  Fault fault;
  fault.kinds = MaskOf(RequestKind::kWrite) | MaskOf(RequestKind::kFlush);
  fault.from_then_on = true;
  test_->faulty(1).Add(fault);
  const std::vector<std::byte> data(8 * kChunk);
  ASSERT_FALSE(test_->Write(volume_, 0, data).ok());
  ASSERT_NE(test_->array->GetStatus().stopped_because, "");
  for (int i = 0; i < 1000 && !ended_; ++i) {
    test_->Sleep(1'000'000);
  }
  ASSERT_TRUE(ended_);
  ASSERT_FALSE(ended_->ok());
  EXPECT_EQ(ended_->error().code, ErrorCode::kTooManyFailures);
  EXPECT_NE(ended_->error().message.find("not complete"), std::string::npos)
      << ended_->error().message;
  EXPECT_EQ(finished_, 0U);
  ASSERT_TRUE(mark_) << "the next one goes on where this one came";
  EXPECT_GE(mark_->next_stripe, mark->next_stripe);
  test_->Kill();
}

}  // namespace
}  // namespace eplog
