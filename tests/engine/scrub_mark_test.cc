// A scrub that was cut short goes on where it was.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
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
    content_ = RandomBytes(random, kStripes * 3 * kChunk);
    ASSERT_TRUE(test_->Write(volume_, 0, content_).ok());
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
    // Beside requests: few rows at a time.
    for (int i = 0; i < 4000 && marks_ == 0; ++i) {
      test_->Sleep(50'000);
      ASSERT_TRUE(RunTask(test_->loop, test_->array->FlushAll()).ok());
    }
    ASSERT_GT(marks_, 0U);
    ASSERT_FALSE(ended_);
  }
  // Until the process is killed, after the first mark.
  void ScrubUntilMarked(bool heal) {
    BeginAndAwaitMark(heal);
    test_->Kill();
  }
  // As it was written first.
  void RotChunk(uint64_t chunk) {
    const auto content = std::span(content_).subspan(chunk * kChunk, kChunk);
    for (uint32_t ssd = 0; ssd < 4; ++ssd) {
      const auto bytes = test_->memory(ssd).bytes();
      for (uint64_t at = 0; at + kChunk <= bytes.size(); at += kChunk) {
        if (std::equal(content.begin(), content.end(),
                       bytes.begin() + static_cast<std::ptrdiff_t>(at))) {
          bytes[at] ^= std::byte{1};
          return;
        }
      }
    }
    FAIL() << "no SSD has it";
  }
  CheckReport Scrub(bool heal) {
    const auto report = RunTask(test_->loop, test_->array->Scrub(heal, Progress()));
    EXPECT_TRUE(report.ok()) << report.error().ToString();
    return *report;
  }

  std::unique_ptr<TestArray> test_;
  VolumeId volume_;
  std::vector<std::byte> content_;
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

// Log stripes are read by each part, rows by one: what is wrong is counted once.
TEST_F(ScrubMarks, WhatIsWrongIsCountedOnce) {
  Open();
  Random random(6);
  const std::vector<std::byte> update = RandomBytes(random, kChunk);
  ASSERT_TRUE(test_->Write(volume_, 0, update).ok());
  ASSERT_TRUE(RunTask(test_->loop, test_->array->FlushAll()).ok());
  const auto log = test_->memory(4).bytes();  // of one chunk its parity is itself
  const auto found = std::search(log.begin(), log.end(), update.begin(), update.end());
  ASSERT_NE(found, log.end());
  *found ^= std::byte{1};
  RotChunk(10);

  BeginAndAwaitMark(false);
  ASSERT_TRUE(test_->Close().ok());  // not a crash: what is wrong in the log is not written anew
  ASSERT_TRUE(ended_ && !ended_->ok());
  ASSERT_TRUE(mark_);
  EXPECT_EQ(mark_->problems_found, 1U) << "that of the row";
  Open();
  const CheckReport report = Scrub(false);
  ASSERT_GT(report.first_stripe, 0U);
  EXPECT_EQ(report.log_stripes_checked, 1U);
  EXPECT_EQ(report.problems_found, 2U);
  EXPECT_EQ(report.problems_found_before, 1U);
  ASSERT_EQ(report.findings.size(), 1U) << "those that were found now";
  EXPECT_EQ(report.findings[0].device, "log0");
  // The whole of it, by one.
  const CheckReport whole = Scrub(false);
  EXPECT_EQ(whole.problems_found, 2U);
  EXPECT_EQ(whole.problems_found_before, 0U);
  EXPECT_EQ(whole.findings.size(), 2U);
  test_->Kill();
}

// Data in a log stripe that cannot be read is met by each part, too.
TEST_F(ScrubMarks, WhatIsLostIsCountedOnce) {
  Open();
  Random random(6);
  const std::vector<std::byte> update = RandomBytes(random, kChunk);
  ASSERT_TRUE(test_->Write(volume_, 0, update).ok());
  ASSERT_TRUE(RunTask(test_->loop, test_->array->FlushAll()).ok());
  uint32_t copies = 0;
  for (uint32_t device = 0; device < 5; ++device) {
    const auto bytes = test_->memory(device).bytes();
    const auto found = std::search(bytes.begin(), bytes.end(), update.begin(), update.end());
    if (found != bytes.end()) {
      *found ^= std::byte{1};
      ++copies;
    }
  }
  ASSERT_EQ(copies, 2U) << "on an SSD, and as its own parity in the log";
  RotChunk(10);
  RotChunk(11);  // of the same row

  BeginAndAwaitMark(false);
  ASSERT_TRUE(test_->Close().ok());
  ASSERT_TRUE(mark_);
  EXPECT_EQ(mark_->lost, 2U) << "those of the row";
  Open();
  const CheckReport report = Scrub(false);
  ASSERT_GT(report.first_stripe, 0U);
  EXPECT_EQ(report.lost, 3U);
  const CheckReport whole = Scrub(false);
  EXPECT_EQ(whole.lost, 3U);
  test_->Kill();
}

// What was healed with a log stripe is not there any more, and stays counted.
TEST_F(ScrubMarks, WhatWasHealedIsCountedOnce) {
  Open();
  Random random(6);
  const std::vector<std::byte> update = RandomBytes(random, kChunk);
  ASSERT_TRUE(test_->Write(volume_, 0, update).ok());
  ASSERT_TRUE(RunTask(test_->loop, test_->array->FlushAll()).ok());
  const auto log = test_->memory(4).bytes();
  const auto found = std::search(log.begin(), log.end(), update.begin(), update.end());
  ASSERT_NE(found, log.end());
  *found ^= std::byte{1};

  ScrubUntilMarked(true);
  ASSERT_TRUE(mark_);
  EXPECT_EQ(mark_->problems_found, 1U);
  EXPECT_EQ(mark_->healed, 1U);
  Open();
  const CheckReport report = Scrub(true);
  EXPECT_EQ(report.problems_found, 1U);
  EXPECT_EQ(report.problems_found_before, 1U);
  EXPECT_EQ(report.healed, 1U);
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
