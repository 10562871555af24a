// Who is at the other end, who serves an array, and whether he still does anything.
#include "control/peer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "control/server_mark.h"
#include "tests/support/files.h"

namespace eplog {
namespace {

// A process that does as it is told and then waits; killed and reaped at the end.
class Child {
 public:
  explicit Child(const std::function<void()>& body = [] {}) {
    std::array<int, 2> pipe{};
    EXPECT_EQ(::pipe2(pipe.data(), O_CLOEXEC), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      body();
      ::close(pipe[0]);
      ::close(pipe[1]);
      while (true) {
        ::pause();
      }
    }
    ::close(pipe[1]);
    char byte = 0;
    EXPECT_EQ(::read(pipe[0], &byte, 1), 0);  // it has done what it was told
    ::close(pipe[0]);
  }
  ~Child() { Reap(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }
  // Dead, and a zombie as yet.
  void Kill() {
    ::kill(pid_, SIGKILL);
    siginfo_t info{};
    EXPECT_EQ(::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT), 0);
  }
  void Reap() {
    if (!reaped_) {
      ::kill(pid_, SIGKILL);
      EXPECT_EQ(::waitpid(pid_, nullptr, 0), pid_);
      reaped_ = true;
    }
  }

 private:
  pid_t pid_ = 0;
  bool reaped_ = false;
};

bool Becomes(pid_t pid, char state) {
  for (int i = 0; i < 6000 && ProcessState(pid) != state; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return ProcessState(pid) == state;
}

// In the kernel's clock.
uint64_t TicksNow() {
  double seconds = 0;
  std::ifstream("/proc/uptime") >> seconds;
  return static_cast<uint64_t>(seconds * static_cast<double>(::sysconf(_SC_CLK_TCK)));
}

TEST(Peer, StateIsThatOfTheProcess) {
  EXPECT_EQ(ProcessState(::getpid()), 'R') << "it is just looking";
  Child child;
  EXPECT_TRUE(Becomes(child.pid(), 'S'));
  ASSERT_EQ(::kill(child.pid(), SIGSTOP), 0);
  EXPECT_TRUE(Becomes(child.pid(), 'T'));
  child.Kill();
  EXPECT_TRUE(Becomes(child.pid(), 'Z'));
  child.Reap();
  EXPECT_EQ(ProcessState(child.pid()), '\0');
  EXPECT_EQ(ProcessState(0), '\0');
  EXPECT_EQ(ProcessState(-1), '\0');
}

TEST(Peer, StartIsWhenTheProcessBegan) {
  const uint64_t before = TicksNow();
  const Child child;
  const uint64_t after = TicksNow();
  EXPECT_GE(ProcessStarted(child.pid()) + 2, before);
  EXPECT_LE(ProcessStarted(child.pid()), after + 2);
  EXPECT_EQ(ProcessStarted(child.pid()), ProcessStarted(child.pid()));
  EXPECT_LE(ProcessStarted(::getpid()), ProcessStarted(child.pid()));
  EXPECT_EQ(ProcessStarted(0), 0U);
}

// A process may call itself what it likes.
TEST(Peer, ANameMisleadsNobody) {
  const uint64_t before = TicksNow();
  const Child child([] { ::prctl(PR_SET_NAME, "a) Z 1 (b) X"); });
  EXPECT_TRUE(Becomes(child.pid(), 'S'));
  EXPECT_GE(ProcessStarted(child.pid()) + 2, before);
}

// ---- the other end of a socket

TEST(Peer, ThatIsThisProcessIsAlive) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  EXPECT_TRUE(PeerIsAlive(ends[0]));
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(Peer, ThatCannotBeToldIsTakenForAlive) {
  const int fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  EXPECT_TRUE(PeerIsAlive(fd));
  ::close(fd);
}

TEST(Peer, ThatWasKilledIsNotAlive) {
  const TemporaryDirectory directory;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, (directory / "s").c_str(), sizeof(address.sun_path) - 1);
  const auto* at = reinterpret_cast<const sockaddr*>(&address);
  const int listener = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(::bind(listener, at, sizeof(address)), 0);
  ASSERT_EQ(::listen(listener, 1), 0);
  Child child([&] {
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    static_cast<void>(!::connect(fd, at, sizeof(address)));
  });
  const int accepted = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  ASSERT_GE(accepted, 0);
  EXPECT_TRUE(PeerIsAlive(accepted));
  child.Kill();
  EXPECT_FALSE(PeerIsAlive(accepted)) << "it is there, and does nothing";
  child.Reap();
  EXPECT_FALSE(PeerIsAlive(accepted));
  ::close(accepted);
  ::close(listener);
}

// ---- what is written down beside the socket

std::vector<std::string> FilesIn(const std::string& directory) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

TEST(ServerMarks, SayWhoServesByWhichMount) {
  const TemporaryDirectory directory;
  const std::string socket = directory / "abc.sock";
  EXPECT_FALSE(ReadServerMark(socket));
  ASSERT_TRUE(WriteServerMark(socket, 1234567).ok());
  EXPECT_EQ(FilesIn(directory.path()), std::vector<std::string>{"abc.server"});
  const auto mark = ReadServerMark(socket);
  ASSERT_TRUE(mark);
  EXPECT_EQ(mark->pid, ::getpid());
  EXPECT_EQ(mark->started, ProcessStarted(::getpid()));
  EXPECT_NE(mark->started, 0U);
  EXPECT_EQ(mark->mount, 1234567U);
  EXPECT_EQ(mark->socket_path, socket);
  ASSERT_TRUE(WriteServerMark(socket, 8).ok()) << "in place of the one before";
  EXPECT_EQ(ReadServerMark(socket)->mount, 8U);
  RemoveServerMark(socket);
  EXPECT_FALSE(ReadServerMark(socket));
  EXPECT_TRUE(FilesIn(directory.path()).empty());
}

TEST(ServerMarks, AllOfADirectoryAreFoundAndNothingElse) {
  const TemporaryDirectory directory;
  ASSERT_TRUE(WriteServerMark(directory / "a.sock", 1).ok());
  ASSERT_TRUE(WriteServerMark(directory / "b.sock", 2).ok());
  std::ofstream(directory / "other.txt") << "1 2 3\n";
  std::ofstream(directory / "nobody.server") << "0 2 3\n";
  std::ofstream(directory / "garbage.server") << "one two three\n";
  std::ofstream(directory / "half.server") << "1 2\n";
  std::ofstream(directory / "empty.server").flush();
  std::vector<std::string> sockets;
  for (const ServerMark& mark : ReadServerMarks(directory.path())) {
    sockets.push_back(mark.socket_path);
  }
  std::sort(sockets.begin(), sockets.end());
  EXPECT_EQ(sockets, (std::vector<std::string>{directory / "a.sock", directory / "b.sock"}));
  EXPECT_FALSE(ReadServerMark(directory / "nobody.sock"));
  EXPECT_FALSE(ReadServerMark(directory / "half.sock"));
  EXPECT_TRUE(ReadServerMarks(directory / "none").empty());
}

TEST(ServerMarks, OneThatCannotBeWrittenLeavesNothingBehind) {
  const TemporaryDirectory directory;
  const Status nowhere = WriteServerMark(directory / "none/a.sock", 1);
  ASSERT_FALSE(nowhere.ok());
  EXPECT_EQ(nowhere.error().code, ErrorCode::kIo);
  ASSERT_EQ(::mkdir((directory / "a.server").c_str(), 0700),
            0);  // what it cannot take the place of
  const Status taken = WriteServerMark(directory / "a.sock", 1);
  ASSERT_FALSE(taken.ok());
  EXPECT_EQ(taken.error().code, ErrorCode::kIo);
  EXPECT_NE(taken.error().message.find("a.server"), std::string::npos);
  EXPECT_EQ(FilesIn(directory.path()), std::vector<std::string>{"a.server"});
}

TEST(ServerMarks, TellWhetherTheServerLives) {
  Child child;
  ServerMark mark;
  mark.pid = child.pid();
  mark.started = ProcessStarted(child.pid());
  EXPECT_EQ(LifeOf(mark), ServerLife::kRuns);
  ServerMark other = mark;
  other.started += 1;
  EXPECT_EQ(LifeOf(other), ServerLife::kGone) << "another process has its number";
  child.Kill();
  EXPECT_EQ(LifeOf(mark), ServerLife::kDying) << "it was killed, and is there still";
  EXPECT_EQ(LifeOf(other), ServerLife::kGone);
  child.Reap();
  EXPECT_EQ(LifeOf(mark), ServerLife::kGone);
}

}  // namespace
}  // namespace eplog
