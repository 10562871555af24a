// The process that runs the owner's command: it has nothing of ours, keeps nothing that was handed
// over or told for one command, and whatever ends us by our terminal does not reach it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>

#include "base/read_text.h"
#include "report/event_hook.h"
#include "tests/support/files.h"

namespace eplog {
namespace {

constexpr std::chrono::minutes kForALongTime(2);

// Standard input, output and error as they were, at the end of the scope.
class StandardFiles {
 public:
  StandardFiles() {
    std::fflush(nullptr);
    for (int i = 0; i < 3; ++i) {
      before_.at(static_cast<size_t>(i)) = ::fcntl(i, F_DUPFD_CLOEXEC, 10);
    }
  }
  ~StandardFiles() {
    for (int i = 0; i < 3; ++i) {
      ::dup2(before_.at(static_cast<size_t>(i)), i);
      ::close(before_.at(static_cast<size_t>(i)));
    }
  }
  StandardFiles(const StandardFiles&) = delete;
  StandardFiles& operator=(const StandardFiles&) = delete;

 private:
  std::array<int, 3> before_{};
};

TEST(EventHookWords, AreThoseOfThisEventAlone) {
  const TemporaryDirectory directory;
  const std::string out = directory / "out";
  EventHook hook("echo \"${EPLOG_ONE-none},${EPLOG_TWO-none},${EPLOG_THREE-none}\" >> " + out,
                 kForALongTime);
  hook.Run({"EPLOG_ONE=1", "EPLOG_TWO=2", "EPLOG_THREE=3"});
  hook.Run({"EPLOG_ONE=4"});
  hook.Run({});
  EXPECT_EQ(ReadText(out), "1,2,3\n4,none,none\nnone,none,none\n");
}

// A packet is as large as its socket lets it be.
TEST(EventHookWords, AreAsManyAsCanBeSent) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()), 0);
  int room = 0;
  socklen_t size = sizeof(room);
  EXPECT_EQ(::getsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &room, &size), 0);
  ::close(ends[0]);
  ::close(ends[1]);
  // A word of a program is shorter than 128 KiB.
  const size_t each = std::min<size_t>(75'000, static_cast<size_t>(room) / 2 - 1000);
  const TemporaryDirectory directory;
  const std::string out = directory / "out";
  EventHook hook("echo ${#EPLOG_ONE} ${#EPLOG_TWO} > " + out, kForALongTime);
  hook.Run({"EPLOG_ONE=" + std::string(each, 'x'), "EPLOG_TWO=" + std::string(each, 'y')});
  EXPECT_EQ(ReadText(out), std::to_string(each) + " " + std::to_string(each) + "\n");
}

// What it says then is lost, and no error.
TEST(EventHookFiles, AreNowhereWhereWeHaveNone) {
  const TemporaryDirectory directory;
  const std::string out = directory / "out";
  EventHook hook("echo said && echo said >&2 && echo told > " + out, kForALongTime);
  {
    const StandardFiles kept;
    for (int i = 0; i < 3; ++i) {
      ::close(i);
    }
    hook.Run({});
  }
  EXPECT_EQ(ReadText(out), "told\n");
}

// Each by itself: the other two are ours.
TEST(EventHookFiles, AreNowhereWhereWeLackOne) {
  for (int missing = 0; missing < 3; ++missing) {
    const TemporaryDirectory directory;
    const std::string out = directory / "out";
    // By another number, so that it is not the answer's own file that is told.
    EventHook hook("exec 9<&" + std::to_string(missing) + "; readlink /proc/self/fd/9 > " + out,
                   kForALongTime);
    {
      const StandardFiles kept;
      ::close(missing);
      hook.Run({});
    }
    EXPECT_EQ(ReadText(out), "/dev/null\n") << missing;
  }
}

// Whoever reads a pipe of ours reads its end when we and the command have gone.
TEST(EventHookFiles, AreGivenBackWithTheCommand) {
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe2(pipe.data(), O_CLOEXEC | O_NONBLOCK), 0);
  const File reading(pipe[0]);
  EventHook hook("echo said", kForALongTime);
  {
    const StandardFiles kept;
    ::dup2(pipe[1], STDOUT_FILENO);
    ::close(pipe[1]);
    hook.Run({});
  }
  std::string said(100, '\0');
  const ssize_t n = ::read(reading.fd(), said.data(), said.size());
  said.resize(n < 0 ? 0 : static_cast<size_t>(n));
  EXPECT_EQ(said, "said\n");
  char byte = 0;
  EXPECT_EQ(::read(reading.fd(), &byte, 1), 0) << "nobody can write there any more";
}

class EventHookRunner : public testing::Test {
 protected:
  // Begun in the directory, which it is not to stay in.
  void SetUp() override {
    const File here(".", O_PATH | O_DIRECTORY);
    ASSERT_EQ(::chdir(directory_.path().c_str()), 0);
    hook_ = std::make_unique<EventHook>("echo $PPID >> " + out_, kForALongTime);
    ASSERT_EQ(::fchdir(here.fd()), 0);
    hook_->Run({});
    std::ifstream(out_) >> pid_;
    ASSERT_GT(pid_, 1);
  }

  const TemporaryDirectory directory_;
  const std::string out_ = directory_ / "out";
  std::unique_ptr<EventHook> hook_;
  pid_t pid_ = 0;
};

TEST_F(EventHookRunner, IsNotEndedWithOurTerminalOrGroup) {
  EXPECT_NE(::getsid(pid_), ::getsid(0));
  EXPECT_NE(::getpgid(pid_), ::getpgrp());
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1}) {
    ASSERT_EQ(::kill(pid_, signal), 0);
  }
  hook_->Run({});
  const std::string line = std::to_string(pid_) + "\n";
  EXPECT_EQ(ReadText(out_), line + line) << "the same runs the next";
}

TEST_F(EventHookRunner, HasNothingOfOurs) {
  const std::filesystem::path process = "/proc/" + std::to_string(pid_);
  EXPECT_EQ(std::filesystem::read_symlink(process / "cwd").string(), "/");
  std::map<std::string, std::string> open;
  for (const auto& entry : std::filesystem::directory_iterator(process / "fd")) {
    open[entry.path().filename().string()] = std::filesystem::read_symlink(entry.path()).string();
  }
  ASSERT_EQ(open.size(), 4U);
  for (const char* standard : {"0", "1", "2"}) {
    EXPECT_EQ(open[standard], "/dev/null") << standard;
  }
  EXPECT_EQ(open["3"].rfind("socket:", 0), 0U) << open["3"];
}

}  // namespace
}  // namespace eplog
