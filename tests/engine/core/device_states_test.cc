#include "engine/core/device_states.h"

#include <gtest/gtest.h>

#include "tests/engine/core/states_fixture.h"

namespace eplog {
namespace {

class States : public StatesTest {
 protected:
  States() : StatesTest(3) {}

  static constexpr DeviceIndex kSsd{1};
  static constexpr DeviceIndex kLog{4};
};

TEST_F(States, AllAreOkAtFirst) {
  EXPECT_EQ(states_.number(), 0U);
  EXPECT_FALSE(states_.changing());
  EXPECT_EQ(states_.log_mask(), 0b11000U);
  EXPECT_EQ(states_.live_ssds(), 3U);
  EXPECT_EQ(states_.lost(), 0U);
  EXPECT_EQ(states_.lost_logs(), 0U);
  EXPECT_EQ(states_.not_ok(), 0U);
  EXPECT_EQ(states_.logs_not_ok(), 0U);
  EXPECT_TRUE(states_.IsCurrent(kSsd, 0));
}

TEST_F(States, WhatWasChosenBeforeALossIsNotCurrentWithItsSuccessor) {
  const uint64_t before = states_.number();
  Lose(kSsd);
  EXPECT_FALSE(states_.IsCurrent(kSsd, states_.number()));
  EXPECT_EQ(states_.live_ssds(), 2U);
  Join(kSsd, 7);
  EXPECT_FALSE(states_.IsCurrent(kSsd, before));
  EXPECT_TRUE(states_.IsCurrent(kSsd, states_.number()));
  EXPECT_TRUE(states_.IsCurrent(DeviceIndex(0), before));
}

TEST_F(States, OneThatJoinsIsNotOkUntilThatIsWrittenDown) {
  Lose(kLog);
  EXPECT_EQ(states_.lost_logs(), 1U);
  Join(kLog, 42);
  EXPECT_TRUE(states_.IsJoining(kLog));
  EXPECT_EQ(states_.has_log_from(kLog), 42U);
  EXPECT_EQ(states_.lost(), 0U);
  EXPECT_EQ(states_.lost_logs(), 0U);
  EXPECT_EQ(states_.not_ok(), 1U);
  EXPECT_EQ(states_.logs_not_ok(), 1U);
  const uint64_t joined = states_.number();
  states_.BecomesOk(kLog);
  EXPECT_FALSE(states_.IsJoining(kLog));
  EXPECT_EQ(states_.becoming_ok(), 0b10000U);
  EXPECT_EQ(states_.not_ok(), 0U);
  EXPECT_EQ(states_.logs_not_ok(), 1U);
  EXPECT_GT(states_.number(), joined);
  EXPECT_TRUE(states_.IsCurrent(kLog, joined));
  states_.BeginChange();
  EXPECT_TRUE(states_.changing());
  states_.EndChange();
  EXPECT_FALSE(states_.changing());
  EXPECT_EQ(states_.logs_not_ok(), 0U);
}

TEST_F(States, OneThatReturnsIsUnverifiedUntilItIsLookedAtOrLost) {
  states_.FoundJoining(kSsd, true, 5);
  EXPECT_TRUE(states_.IsJoining(kSsd));
  EXPECT_TRUE(states_.IsUnverified(kSsd));
  EXPECT_EQ(states_.number(), 0U);
  states_.Verified(states_.unverified());
  EXPECT_FALSE(states_.IsUnverified(kSsd));
  EXPECT_TRUE(states_.IsJoining(kSsd));
  states_.FoundJoining(DeviceIndex(2), true, 5);
  Lose(DeviceIndex(2));
  EXPECT_FALSE(states_.IsUnverified(DeviceIndex(2)));
  EXPECT_EQ(states_.joining(), 0b10U);
  EXPECT_EQ(states_.not_ok(), 2U);
}

TEST_F(States, OneThatIsLentIsLost) {
  Lose(kSsd);
  members_.Lend(kSsd, memory_);
  states_.Lent(kSsd);
  EXPECT_EQ(states_.lent(), 0b10U);
  EXPECT_EQ(states_.lost(), 1U);
  EXPECT_EQ(states_.not_ok(), 1U);
}

}  // namespace
}  // namespace eplog
