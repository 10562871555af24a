#include "base/check.h"

#include <gtest/gtest.h>

namespace eplog {
namespace {

TEST(Check, PassesAndEvaluatesOnce) {
  int evaluated = 0;
  EPLOG_CHECK(++evaluated == 1, "once");
  EXPECT_EQ(evaluated, 1);
}

TEST(Check, IsOneStatement) {
  bool went_to_else = false;
  // NOLINTBEGIN(readability-braces-around-statements): without them, as somebody may write it
  if (false)
    EPLOG_CHECK(false, "never");
  else
    went_to_else = true;
  // NOLINTEND(readability-braces-around-statements)
  EXPECT_TRUE(went_to_else);
}

TEST(CheckDeathTest, NamesTheInvariantAndThePlace) {
  const int slots = 3;
  EXPECT_DEATH(EPLOG_CHECK(slots == 4, "I2: a slot is lost"),
               "broken invariant: I2: a slot is lost \\(slots == 4\\) at .*check_test\\.cc:");
}

TEST(CheckDeathTest, DcheckOnlyWithDebugChecks) {
#ifdef NDEBUG
  EPLOG_DCHECK(false, "not evaluated");
#else
  EXPECT_DEATH(EPLOG_DCHECK(false, "I1"), "broken invariant: I1");
#endif
}

}  // namespace
}  // namespace eplog
