// What each change of a device's state leaves behind: a number of its own, and what was chosen
// before.
#include <gtest/gtest.h>

#include "tests/engine/core/states_fixture.h"

namespace eplog {
namespace {

class StateChanges : public StatesTest {
 protected:
  StateChanges() : StatesTest(4) {}

  static constexpr DeviceIndex kSsd{2};
  static constexpr DeviceIndex kLog{5};
};

// Who has chosen something under one number finds out by it that anything has changed since.
TEST_F(StateChanges, EachOfThemHasAHigherNumber) {
  for (const DeviceIndex device : {kSsd, kLog}) {
    const uint64_t before = states_.number();
    Lose(device);
    const uint64_t lost = states_.number();
    EXPECT_EQ(lost, before + 1);
    Join(device, 7);
    const uint64_t joined = states_.number();
    EXPECT_EQ(joined, lost + 1);
    states_.BecomesOk(device);
    EXPECT_EQ(states_.number(), joined + 1);
    states_.EndChange();
    EXPECT_EQ(states_.number(), joined + 1) << "that it is written down changes nothing more";
    EXPECT_FALSE(states_.IsCurrent(device, before));
    EXPECT_FALSE(states_.IsCurrent(device, lost)) << "there was none in its place then";
    EXPECT_TRUE(states_.IsCurrent(device, joined));
    EXPECT_TRUE(states_.IsCurrent(DeviceIndex(0), before)) << "that was there all the time";
  }
}

// A replacement that was not whole when the array was last open was given all that it holds: there
// is nothing to be looked at.
TEST_F(StateChanges, OneThatWasJoiningBeforeIsNotOneThatWasAway) {
  states_.FoundJoining(kSsd, false, 9);
  states_.FoundJoining(kLog, false, 11);
  EXPECT_EQ(states_.unverified(), 0U);
  EXPECT_TRUE(states_.IsJoining(kSsd) && states_.IsJoining(kLog));
  EXPECT_EQ(states_.has_log_from(kSsd), 9U);
  EXPECT_EQ(states_.has_log_from(kLog), 11U);
  EXPECT_EQ(states_.has_log_from(DeviceIndex(4)), 0U) << "that has all";
  states_.FoundJoining(DeviceIndex(1), true, 9);
  EXPECT_EQ(states_.unverified(), 0b10U) << "and no other";
  EXPECT_EQ(states_.not_ok(), 3U);
  EXPECT_EQ(states_.logs_not_ok(), 1U);
}

}  // namespace
}  // namespace eplog
