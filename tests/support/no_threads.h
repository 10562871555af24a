// ThreadLimit: no thread can be started, as under `ulimit -u` or in a full control group. Root is
// above such limits, so this takes its rights away for good: for the body of a death test, which
// has a process of its own (EPLOG_IN_A_PROCESS).
#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>

namespace eplog {

class ThreadLimit {
 public:
  ThreadLimit() {
    constexpr uid_t kNobody = 65534;
    Set(0);
    if (::geteuid() == 0) {
      EXPECT_EQ(::setresuid(kNobody, kNobody, kNobody), 0);
    }
  }
  // Again as many as before.
  void Lift() { Set(RLIM_INFINITY); }

 private:
  static void Set(rlim_t most) {
    rlimit limit{};
    EXPECT_EQ(::getrlimit(RLIMIT_NPROC, &limit), 0);
    limit.rlim_cur = most < limit.rlim_max ? most : limit.rlim_max;
    EXPECT_EQ(::setrlimit(RLIMIT_NPROC, &limit), 0);
  }
};

// Runs `body`, a function, in a process of its own: passes if that ends by itself and every
// expectation in it was met.
#define EPLOG_IN_A_PROCESS(body)                        \
  do {                                                  \
    GTEST_FLAG_SET(death_test_style, "threadsafe");     \
    EXPECT_EXIT(                                        \
        {                                               \
          body();                                       \
          std::fflush(nullptr);                         \
          ::_exit(testing::Test::HasFailure() ? 1 : 0); \
        },                                              \
        testing::ExitedWithCode(0), "");                \
  } while (false)

}  // namespace eplog
