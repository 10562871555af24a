// Where no thread can be had: the one who asks is told, and the next one gets one if there is.
#include "frontend/helper_thread.h"

#include <gtest/gtest.h>

#include "runtime/io_uring_loop.h"
#include "runtime/run_task.h"
#include "tests/support/no_threads.h"

namespace eplog {
namespace {

void JobsFailUntilThereIsAThread() {
  auto loop = IoUringLoop::Create();
  ASSERT_TRUE(loop.ok());
  HelperThread helper(**loop);
  ThreadLimit limit;
  bool ran = false;
  for (int i = 0; i < 2; ++i) {
    const Status refused = RunTask(**loop, helper.Run([&] { ran = true; }));
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
    EXPECT_FALSE(ran);
  }
  EXPECT_FALSE(helper.Start().ok());
  limit.Lift();
  EXPECT_TRUE(RunTask(**loop, helper.Run([&] { ran = true; })).ok());
  EXPECT_TRUE(ran);
}

TEST(HelperThreadDeathTest, JobsFailUntilThereIsAThread) {
  EPLOG_IN_A_PROCESS(JobsFailUntilThereIsAThread);
}

// What would have to be refused later, such as unmounting, is not begun.
void NothingIsRefusedOnceItHasStarted() {
  auto loop = IoUringLoop::Create();
  ASSERT_TRUE(loop.ok());
  HelperThread helper(**loop);
  EXPECT_TRUE(helper.Start().ok());
  const ThreadLimit limit;
  bool ran = false;
  EXPECT_TRUE(RunTask(**loop, helper.Run([&] { ran = true; })).ok());
  EXPECT_TRUE(ran);
}

TEST(HelperThreadDeathTest, NothingIsRefusedOnceItHasStarted) {
  EPLOG_IN_A_PROCESS(NothingIsRefusedOnceItHasStarted);
}

}  // namespace
}  // namespace eplog
