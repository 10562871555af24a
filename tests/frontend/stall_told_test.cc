// A wait is told once, however long it lasts, and the next one again.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <fstream>
#include <string>
#include <thread>

#include "frontend/stall_watch.h"

namespace eplog {
namespace {

bool KernelTells() {
  std::string call;
  std::getline(std::ifstream("/proc/self/task/" + std::to_string(::gettid()) + "/syscall"), call);
  return !call.empty();
}

TEST(StallTold, EachWaitOnce) {
  if (!KernelTells()) {
    GTEST_SKIP() << "the kernel does not tell in which call a thread is";
  }
  std::array<std::array<int, 2>, 2> pipes{};
  std::atomic<int> told = 0;
  std::atomic<bool> over = false;
  for (auto& pipe : pipes) {
    ASSERT_EQ(::pipe(pipe.data()), 0);
  }
  std::thread freer([&] {
    for (int wait = 0; wait < 2; ++wait) {
      while (told <= wait && !over) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(500));  // much longer than is borne
      EXPECT_EQ(::write(pipes[static_cast<size_t>(wait)][1], "x", 1), 1);
    }
  });
  {
    const StallWatch watch(std::chrono::milliseconds(100), [&](const std::string&) { ++told; });
    char byte = 0;
    EXPECT_EQ(::read(pipes[0][0], &byte, 1), 1);
    EXPECT_EQ(told, 1);
    EXPECT_EQ(::read(pipes[1][0], &byte, 1), 1);
    EXPECT_EQ(told, 2);
    over = true;
    freer.join();
  }
  for (const auto& pipe : pipes) {
    ::close(pipe[0]);
    ::close(pipe[1]);
  }
}

TEST(StallToldDeathTest, TheProgramEndsWithTheLine) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(StallWatch::Die("it waits"), testing::KilledBySignal(SIGABRT), "eplog: it waits\n");
}

}  // namespace
}  // namespace eplog
