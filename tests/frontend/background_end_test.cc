// Whom the process in front waits for, and whose exit status it has.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <thread>

#include "control/peer.h"
#include "frontend/daemon.h"
#include "tests/support/files.h"

namespace eplog {
namespace {

// Runs it as a program would: `at_end` is the exit status of the one in the background, from that
// of its body.
int ExitInFront(const std::function<int(pid_t front, const ReadyFn& ready)>& body,
                const std::function<int(int status)>& at_end) {
  pid_t program = ::fork();
  if (program == 0) {
    const pid_t front = ::getpid();
    const int status =
        RunDaemonised(false, "", [&](const ReadyFn& ready) { return body(front, ready); });
    ::_exit(::getpid() == front ? status : at_end(status));
  }
  return AwaitExit(program);
}

// What it said when it failed is only for one that does not end: what came after that counts.
TEST(BackgroundEnd, OfOneThatFailsAndEndsIsThatOfTheProgram) {
  EXPECT_EQ(
      ExitInFront([](pid_t, const ReadyFn&) { return 2; }, [](int status) { return status + 7; }),
      9);
}

// Whatever else the one in front is told: it waits until the other can be used.
TEST(BackgroundEnd, IsNotBroughtAboutByASignal) {
  struct sigaction noted {};
  struct sigaction before {};
  noted.sa_handler = [](int) {};
  ASSERT_EQ(::sigaction(SIGUSR1, &noted, &before), 0);
  EXPECT_EQ(ExitInFront(
                [](pid_t front, const ReadyFn& ready) {
                  for (int signals = 0; signals < 3; ++signals) {
                    for (int i = 0; i < 12000 && ProcessState(front) != 'S'; ++i) {
                      std::this_thread::sleep_for(std::chrono::milliseconds(10));
                    }
                    ::kill(front, SIGUSR1);
                  }
                  ready();
                  return 5;
                },
                [](int status) { return status; }),
            0);
  EXPECT_EQ(::sigaction(SIGUSR1, &before, nullptr), 0);
}

}  // namespace
}  // namespace eplog
