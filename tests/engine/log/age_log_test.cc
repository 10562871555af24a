#include "engine/log/age_log.h"

#include <gtest/gtest.h>

namespace eplog {
namespace {

constexpr uint64_t kOpenUs = 1'000'000;
constexpr uint64_t kStep = AgeLog::kSampleUs;

class Ages : public ::testing::Test {
 protected:
  void SetUp() override { ages_.Open(10, kOpenUs); }
  // One sample each step, each ten entries after the one before.
  void NoteMany(size_t count, uint64_t oldest_needed) {
    for (size_t i = 0; i < count; ++i) {
      ages_.Note(sequence_ += 10, us_ += kStep, oldest_needed);
    }
  }

  AgeLog ages_;
  uint64_t sequence_ = 10;
  uint64_t us_ = kOpenUs;
};

TEST_F(Ages, WhatWasThereIsAsOldAsTheOpening) {
  EXPECT_EQ(ages_.AppendedUs(3), kOpenUs);
  EXPECT_EQ(ages_.AppendedUs(10), kOpenUs);
  EXPECT_EQ(ages_.AppendedUs(11), kOpenUs);
  EXPECT_EQ(ages_.SequenceAt(kOpenUs), 10U);
  EXPECT_EQ(ages_.SequenceAt(kOpenUs - 1), 0U);
}

TEST_F(Ages, AreNotedOnceAStep) {
  EXPECT_TRUE(AgeLog().Due(0));
  EXPECT_FALSE(ages_.Due(kOpenUs));
  EXPECT_FALSE(ages_.Due(kOpenUs + kStep - 1));
  EXPECT_TRUE(ages_.Due(kOpenUs + kStep));
  ages_.Note(20, kOpenUs + kStep, 0);
  EXPECT_FALSE(ages_.Due(kOpenUs + 2 * kStep - 1));
  EXPECT_TRUE(ages_.Due(kOpenUs + 2 * kStep));
}

TEST_F(Ages, AreThoseOfTheSampleBefore) {
  NoteMany(3, 0);  // 20, 30, 40
  EXPECT_EQ(ages_.AppendedUs(19), kOpenUs);
  EXPECT_EQ(ages_.AppendedUs(20), kOpenUs + kStep);
  EXPECT_EQ(ages_.AppendedUs(39), kOpenUs + 2 * kStep);
  EXPECT_EQ(ages_.AppendedUs(1000), kOpenUs + 3 * kStep);
  EXPECT_EQ(ages_.SequenceAt(kOpenUs + 2 * kStep - 1), 20U);
  EXPECT_EQ(ages_.SequenceAt(kOpenUs + 2 * kStep), 30U);
  EXPECT_EQ(ages_.SequenceAt(UINT64_MAX), 40U);
}

TEST_F(Ages, AreForgottenUpToTheOneBeforeTheOldestNeeded) {
  NoteMany(4, 0);  // 20, 30, 40, 50
  EXPECT_EQ(ages_.size(), 5U);
  ages_.Note(60, us_ += kStep, 35);
  EXPECT_EQ(ages_.size(), 4U);  // 30, of which 35 is; 40, 50, 60
  EXPECT_EQ(ages_.AppendedUs(35), kOpenUs + 2 * kStep);
  EXPECT_EQ(ages_.SequenceAt(kOpenUs + kStep), 0U);
  ages_.Note(70, us_ += kStep, 70);
  EXPECT_EQ(ages_.size(), 1U);
  EXPECT_EQ(ages_.AppendedUs(70), us_);
}

TEST_F(Ages, AreForgottenByNobodyWhoAsks) {
  NoteMany(4, 0);
  const AgeLog& asked = ages_;
  EXPECT_EQ(asked.AppendedUs(50), us_);
  EXPECT_EQ(asked.SequenceAt(kOpenUs), 10U);
  EXPECT_EQ(asked.size(), 5U);
}

// What has been pending for hours takes no more memory, and stays as old as it is.
TEST_F(Ages, OfALongTimeAreThinned) {
  NoteMany(AgeLog::kMaxSamples - 1, 0);
  EXPECT_EQ(ages_.size(), AgeLog::kMaxSamples);
  NoteMany(1, 0);
  EXPECT_EQ(ages_.size(), AgeLog::kMaxSamples / 2 + 1);
  EXPECT_EQ(ages_.AppendedUs(10), kOpenUs);
  EXPECT_EQ(ages_.AppendedUs(29), kOpenUs);  // that of 20 went
  EXPECT_EQ(ages_.AppendedUs(30), kOpenUs + 2 * kStep);
  EXPECT_EQ(ages_.AppendedUs(sequence_), us_);
}

TEST(AgesDeathTest, BeforeTheOpeningAreNotAskedFor) {
  EXPECT_DEATH(static_cast<void>(AgeLog().AppendedUs(1)), "before the log was opened");
}

}  // namespace
}  // namespace eplog
