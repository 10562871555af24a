#include "base/process_life.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace eplog {
namespace {

TEST(ProcessLife, ActsUntilItIsKilled) {
  EXPECT_TRUE(ProcessActs(::getpid()));
  const pid_t child = ::fork();
  if (child == 0) {
    while (true) {
      ::pause();
    }
  }
  ASSERT_GT(child, 0);
  EXPECT_TRUE(ProcessActs(child));
  ASSERT_EQ(::kill(child, SIGSTOP), 0);
  EXPECT_TRUE(ProcessActs(child)) << "it may go on";
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  EXPECT_FALSE(ProcessActs(child)) << "whatever of it is still there";
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_FALSE(ProcessActs(child));
}

TEST(ProcessLife, NobodyDoesNothing) {
  EXPECT_FALSE(ProcessActs(0x7FFFFFFF));
}

}  // namespace
}  // namespace eplog
