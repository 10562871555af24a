#include "terminal/console.h"

#include <gtest/gtest.h>

namespace eplog {
namespace {

TEST(ProgressEstimate, NothingIsKnownAtFirst) {
  ProgressEstimate estimate;
  EXPECT_LT(estimate.seconds_left(), 0);
  estimate.Add(0, 0, 100);
  EXPECT_EQ(estimate.fraction(), 0);
  EXPECT_LT(estimate.seconds_left(), 0);
}

TEST(ProgressEstimate, RecentRateCounts) {
  ProgressEstimate estimate;
  uint64_t done = 0;
  double now = 0;
  for (int i = 0; i < 100; ++i) {  // fast for 100 s
    estimate.Add(now, done, 10'000);
    now += 1;
    done += 50;
  }
  for (int i = 0; i < 30; ++i) {  // slow for 30 s
    estimate.Add(now, done, 10'000);
    now += 1;
    done += 5;
  }
  EXPECT_NEAR(estimate.rate(), 5, 0.01);
  EXPECT_NEAR(estimate.seconds_left(), (10'000.0 - static_cast<double>(estimate.done())) / 5, 1);
}

TEST(ProgressEstimate, StallSaysUnknownInsteadOfNonsense) {
  ProgressEstimate estimate;
  for (int i = 0; i < 40; ++i) {
    estimate.Add(i, 10, 100);
  }
  EXPECT_EQ(estimate.rate(), 0);
  EXPECT_LT(estimate.seconds_left(), 0);
}

TEST(ProgressEstimate, MoreDoneThanAnnouncedIsAllDone) {
  ProgressEstimate estimate;
  estimate.Add(0, 0, 10);
  estimate.Add(1, 20, 10);
  EXPECT_EQ(estimate.fraction(), 1);
  EXPECT_EQ(estimate.seconds_left(), 0);
}

TEST(ShellWord, QuotesOnlyWhatNeedsIt) {
  EXPECT_EQ(ShellWord("./array"), "./array");
  EXPECT_EQ(ShellWord("my array"), "'my array'");
  EXPECT_EQ(ShellWord("it's"), "'it'\\''s'");
  EXPECT_EQ(ShellWord(""), "''");
}

TEST(ReportError, OneLineAndTheStatusOfTheCode) {
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(ReportError("mount", Error{ErrorCode::kBusy, "held by\nprocess 7"}), kFailed);
  EXPECT_EQ(ReportError("create", Error{ErrorCode::kInvalidArgument, "no"}), kWrongUsage);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "eplog mount: held by process 7\neplog create: no\n");
}

}  // namespace
}  // namespace eplog
