// Going to the background: what was said before stays where it was said, nothing is kept open that
// has no use, and what cannot be is told in front.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <sstream>
#include <string>
#include <thread>

#include "base/read_text.h"
#include "frontend/daemon.h"
#include "tests/support/files.h"
#include "tests/support/no_threads.h"

namespace eplog {
namespace {

size_t OpenDescriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

bool MemoryIsLocked() {
  std::istringstream lines(ReadText("/proc/self/status"));
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("VmLck:")) {
      return line.find_first_of("123456789") != std::string::npos;
    }
  }
  return false;
}

class Kept : public testing::Test {
 protected:
  // `program` in a process of its own, with files for what it says; its exit status.
  int Run(const std::function<int()>& program) {
    pid_t child = ::fork();
    if (child == 0) {
      for (const auto& [path, as] : {std::pair(&stdout_, 1), std::pair(&stderr_, 2)}) {
        const int fd = ::open(path->c_str(), O_CREAT | O_APPEND | O_WRONLY, 0600);
        ::dup2(fd, as);
        ::close(fd);
      }
      const int status = program();
      std::fflush(nullptr);
      ::_exit(status);
    }
    return AwaitExit(child);
  }
  // Until the one in the background has said so.
  [[nodiscard]] std::string Facts() const {
    for (int i = 0; i < 12000 && !std::filesystem::exists(facts_); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return ReadText(facts_);
  }
  void Tell(const std::string& fact) const {
    std::ofstream(facts_ + ".part") << fact;
    std::filesystem::rename(facts_ + ".part", facts_);
  }

  TemporaryDirectory directory_;
  const std::string stdout_ = directory_ / "stdout";
  const std::string stderr_ = directory_ / "stderr";
  const std::string log_ = directory_ / "log";
  const std::string facts_ = directory_ / "facts";
};

// Once, and in its place: also what waited in a buffer when it left.
TEST_F(Kept, WhatWasSaidBeforeItLeft) {
  EXPECT_EQ(Run([this] {
              const pid_t front = ::getpid();
              std::printf("in front, ");
              const int status = RunDaemonised(false, log_, [](const ReadyFn& ready) {
                std::printf("and not yet away");
                ready();
                ready();
                std::printf("away, ");
                return 3;
              });
              if (::getpid() != front) {
                std::printf("and at the end");
                std::fflush(nullptr);
                Tell("ended");
              }
              return status;
            }),
            0);
  EXPECT_EQ(Facts(), "ended");
  EXPECT_EQ(ReadText(stdout_), "in front, and not yet away");
  EXPECT_EQ(ReadText(log_), "away, and at the end");
  EXPECT_EQ(ReadText(stderr_), "");
}

TEST_F(Kept, NothingIsOpenThatWasNotBefore) {
  for (const std::string& log : {log_, std::string()}) {
    std::filesystem::remove(facts_);
    EXPECT_EQ(Run([&] {
                const size_t before = OpenDescriptors();
                return RunDaemonised(false, log, [&](const ReadyFn& ready) {
                  ready();
                  Tell(OpenDescriptors() == before ? "as many" : "more");
                  return 0;
                });
              }),
              0);
    EXPECT_EQ(Facts(), "as many");
  }
}

// A process that serves in front is as well prepared as one in the background.
TEST_F(Kept, MemoryIsLockedInFrontToo) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer lets nothing be locked";
#endif
  if (::geteuid() != 0) {
    GTEST_SKIP() << "needs the right to lock memory";
  }
  EXPECT_EQ(Run([] {
              return RunDaemonised(true, "",
                                   [](const ReadyFn&) { return MemoryIsLocked() ? 5 : 6; });
            }),
            5);
}

// By the limit alone, for who has no right to pass it: only one that nothing meets.
TEST_F(Kept, MemoryIsLockedWhereThereIsNoLimit) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer lets nothing be locked";
#endif
  if (::geteuid() != 0) {
    GTEST_SKIP() << "needs root to become somebody else";
  }
  constexpr uid_t kNobody = 65534;
  const auto locked = [&](rlim_t most) {
    return Run([most] {
      const rlimit limit{most, most};
      if (::setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || ::setresuid(kNobody, kNobody, kNobody) != 0) {
        return 7;
      }
      PrepareServingProcess();
      return MemoryIsLocked() ? 5 : 6;
    });
  };
  const int unlimited = locked(RLIM_INFINITY);
  if (unlimited == 7) {
    GTEST_SKIP() << "the limit cannot be raised here";
  }
  EXPECT_EQ(unlimited, 5);
  EXPECT_EQ(locked(rlim_t{1} << 40), 6) << "a later allocation could fail";
}

// ---- what cannot be

TEST_F(Kept, WithoutDescriptorsItSaysThatItStays) {
  EXPECT_EQ(Run([] {
              const rlimit limit{3, 3};
              EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
              return RunDaemonised(false, "", [](const ReadyFn&) { return 5; });
            }),
            1);
  EXPECT_EQ(ReadText(stderr_), "eplog: cannot go to the background: Too many open files\n");
}

TEST_F(Kept, WithoutProcessesItSaysThatItStays) {
  EXPECT_EQ(Run([] {
              const ThreadLimit limit;
              return RunDaemonised(false, "", [](const ReadyFn&) { return 5; });
            }),
            1);
  EXPECT_EQ(ReadText(stderr_),
            "eplog: cannot go to the background: Resource temporarily unavailable\n");
}

TEST_F(Kept, OneThatDiedIsNamedWithItsSignal) {
  EXPECT_EQ(Run([] {
              return RunDaemonised(false, "", [](const ReadyFn&) {
                ::raise(SIGKILL);
                return 0;
              });
            }),
            1);
  EXPECT_EQ(ReadText(stderr_), "eplog: the serving process died of signal 9 before it was ready\n");
}

}  // namespace
}  // namespace eplog
