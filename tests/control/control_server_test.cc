// What a control server leaves behind and takes over, and whom its directory lets in.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "control/control.h"
#include "control/server_mark.h"
#include "runtime/io_uring_loop.h"
#include "tests/runtime/await.h"
#include "tests/support/files.h"

namespace eplog {
namespace {

Task<Result<Json>> Echo(Json request, ProgressSink /*progress*/) {
  if (request["verb"] == "fail") {
    co_return Fail(ErrorCode::kBusy, "three\r\nlines\nof text");
  }
  co_return request;
}

class ControlServerTest : public testing::Test {
 protected:
  void SetUp() override {
    auto loop = IoUringLoop::Create();
    if (!loop.ok()) {
      GTEST_SKIP() << "needs io_uring";
    }
    loop_ = std::move(*loop);
    ::chmod(directory_.path().c_str(), 0700);
    path_ = directory_ / "a.sock";
  }
  Status Listen(const std::string& path, dev_t mount = 0) {
    auto server = ControlServer::Listen(*loop_, path, &Echo, mount);
    if (!server.ok()) {
      return Fail(server.error());
    }
    server_ = std::move(*server);
    return OkStatus();
  }
  // By another thread, while this one serves.
  Result<Json> Ask(const Json& request) {
    auto answer = std::async(std::launch::async, [&] { return ControlRequest(path_, request); });
    test::Await(*loop_, UntilReady(&answer));
    return answer.get();
  }
  Task<void> UntilReady(const std::future<Result<Json>>* answer) {
    while (answer->wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
      co_await loop_->Sleep(1000);
    }
  }
  void Stop(uint64_t grace_us) {
    test::Await(*loop_, server_->Stop(grace_us));
    server_.reset();
  }
  // Connected, and in the queue.
  [[nodiscard]] int Connect() const {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path_.c_str(), sizeof(address.sun_path) - 1);
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
      const int error = errno;
      ::close(fd);
      errno = error;
      return -1;
    }
    return fd;
  }

  TemporaryDirectory directory_;
  std::string path_;
  std::unique_ptr<IoUringLoop> loop_;
  std::unique_ptr<ControlServer> server_;
};

TEST_F(ControlServerTest, BesideItsSocketStandsWhoListens) {
  ASSERT_TRUE(Listen(path_, 4711).ok());
  EXPECT_EQ(server_->path(), path_);
  const auto mark = ReadServerMark(path_);
  ASSERT_TRUE(mark);
  EXPECT_EQ(mark->pid, ::getpid());
  EXPECT_EQ(mark->mount, 4711U);
  server_->StopAccepting();
  EXPECT_FALSE(ReadServerMark(path_));
  EXPECT_NE(::access(path_.c_str(), F_OK), 0);
  std::ofstream(path_) << "of who came next";  // this is not its own any more
  Stop(0);
  EXPECT_EQ(::access(path_.c_str(), F_OK), 0);
}

TEST_F(ControlServerTest, AnErrorIsOneLine) {
  ASSERT_TRUE(Listen(path_).ok());
  EXPECT_EQ(Ask({{"verb", "fail"}}).error().message, "three  lines of text");
  Stop(0);
}

// Of one who sends garbage nothing more is read.
TEST_F(ControlServerTest, WhatFollowsGarbageIsNotCarriedOut) {
  ASSERT_TRUE(Listen(path_).ok());
  const int fd = Connect();
  ASSERT_GE(fd, 0);
  const std::string text = "garbage\n{\"verb\":\"v\"}\n";
  ASSERT_EQ(::send(fd, text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
  EXPECT_TRUE(Ask({{"verb", "v"}}).ok());  // by then both lines are there
  Stop(0);
  std::string answer(1000, '\0');
  const ssize_t n = ::recv(fd, answer.data(), answer.size(), 0);
  ::close(fd);
  ASSERT_GT(n, 0);
  answer.resize(static_cast<size_t>(n));
  EXPECT_EQ(answer,
            "{\"ok\":false,\"error\":\"not a request: {\\\"verb\\\":...}\",\"code\":"
            "\"invalid argument\"}\n");
}

// It can be connected to, since this process has it open still.
TEST_F(ControlServerTest, TheSocketOfAProcessThatHasEndedIsReplaced) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path_.c_str(), sizeof(address.sun_path) - 1);
  const int before = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(::bind(before, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::_exit(::listen(before, 16) == 0 ? 0 : 1);
  }
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(Listen(path_).ok());
  EXPECT_TRUE(Ask({{"verb", "v"}}).ok());
  Stop(0);
  ::close(before);
}

// Root may ask whoever serves; others may not.
TEST_F(ControlServerTest, AUsersServerAnswersHimAndRoot) {
  if (::geteuid() != 0) {
    GTEST_SKIP() << "needs root to become somebody else";
  }
  ASSERT_EQ(::chown(directory_.path().c_str(), 65534, 65534), 0);
  std::array<int, 2> ready{};
  ASSERT_EQ(::pipe2(ready.data(), O_CLOEXEC), 0);
  const pid_t server = ::fork();
  if (server == 0) {
    auto loop = IoUringLoop::Create();
    const bool other = ::setgid(65534) == 0 && ::setuid(65534) == 0;
    const auto listens = ControlServer::Listen(**loop, path_, &Echo);
    const char said = other && listens.ok() ? 'y' : 'n';
    if (::write(ready[1], &said, 1) == 1) {
      static_cast<void>((*loop)->RunUntil([] { return false; }));
    }
    ::_exit(0);
  }
  char said = 'n';
  EXPECT_EQ(::read(ready[0], &said, 1), 1);
  EXPECT_EQ(said, 'y');
  ::chmod(directory_.path().c_str(), 0755);
  ::chmod(path_.c_str(), 0666);  // whoever the file lets in
  const auto answered = [this](uid_t user) {
    const pid_t client = ::fork();
    if (client == 0) {
      const int fd = ::setuid(user) == 0 ? Connect() : -1;
      ::fcntl(fd, F_SETFL, 0);
      char first = 0;
      ::_exit(::send(fd, "{\"verb\":\"v\"}\n", 13, MSG_NOSIGNAL) >= 0 &&
                      ::recv(fd, &first, 1, 0) == 1
                  ? 1
                  : 0);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(client, &status, 0), client);
    return WEXITSTATUS(status) == 1;
  };
  EXPECT_TRUE(answered(65534));
  EXPECT_TRUE(answered(0));
  EXPECT_FALSE(answered(65533));
  ::kill(server, SIGKILL);
  EXPECT_EQ(::waitpid(server, nullptr, 0), server);
  for (const int fd : ready) {
    ::close(fd);
  }
}

// The grace is for answers.
TEST_F(ControlServerTest, OneThatOnlyKeepsAConnectionIsNotWaitedFor) {
  ASSERT_TRUE(Listen(path_).ok());
  const int idle = Connect();
  ASSERT_GE(idle, 0);
  EXPECT_TRUE(Ask({{"verb", "v"}}).ok()) << "both are let in";
  Stop(UINT64_MAX / 2);
  char byte = 0;
  EXPECT_EQ(::recv(idle, &byte, 1, 0), 0) << "it was hung up on";
  ::close(idle);
}

TEST_F(ControlServerTest, LongPathsAreRefused) {
  const Status refused = Listen(directory_ / std::string(200, 'x'));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(refused.error().message.find("too long"), std::string::npos);
  // The longest that there is room for, with the end of the text.
  path_ = directory_ / std::string(107 - directory_.path().size() - 1, 'x');
  ASSERT_EQ(path_.size(), 107U);
  ASSERT_TRUE(Listen(path_).ok());
  EXPECT_TRUE(Ask({{"verb", "v"}}).ok());
  Stop(0);
}

TEST_F(ControlServerTest, WhereItCannotSayWhoItIsItDoesNotListen) {
  ASSERT_EQ(::mkdir((directory_ / "a.server").c_str(), 0700), 0);
  EXPECT_FALSE(Listen(path_).ok());
  ASSERT_EQ(::rmdir((directory_ / "a.server").c_str()), 0);
  ::chmod(directory_.path().c_str(), 0777);
  EXPECT_FALSE(Listen(path_).ok()) << "others write there";
  ::chmod(directory_.path().c_str(), 0700);
  EXPECT_NE(::access(path_.c_str(), F_OK), 0);
  ASSERT_TRUE(Listen(path_).ok());
  Stop(0);
}

// What else has the path of the socket: nobody serves, and nothing says so.
TEST_F(ControlServerTest, WhereItCannotListenNothingSaysThatItDoes) {
  ASSERT_EQ(::mkdir(path_.c_str(), 0700), 0);
  EXPECT_FALSE(Listen(path_).ok());
  EXPECT_FALSE(ReadServerMark(path_).has_value());
  ASSERT_TRUE(WriteServerMark(path_, 7).ok());
  EXPECT_FALSE(Listen(path_).ok());
  const auto anothers = ReadServerMark(path_);
  ASSERT_TRUE(anothers.has_value()) << "of somebody who was quicker";
  EXPECT_EQ(anothers->mount, 7U);
  ASSERT_EQ(::rmdir(path_.c_str()), 0);
  ASSERT_TRUE(Listen(path_).ok());
  EXPECT_TRUE(ReadServerMark(path_).has_value());
  Stop(0);
}

// Somebody listens there, and his queue is full.
class FullQueueTest : public ControlServerTest {
 protected:
  void SetUp() override {
    ControlServerTest::SetUp();
    if (IsSkipped()) {
      return;
    }
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path_.c_str(), sizeof(address.sun_path) - 1);
    listener_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT_EQ(::bind(listener_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    ASSERT_EQ(::listen(listener_, 0), 0);
    for (int fd = Connect(); fd >= 0; fd = Connect()) {
      waiting_.push_back(fd);
    }
    ASSERT_EQ(errno, EAGAIN);
  }
  void TearDown() override {
    for (const int fd : waiting_) {
      ::close(fd);
    }
    ::close(listener_);
  }
  int listener_ = -1;
  std::vector<int> waiting_;
};

TEST_F(FullQueueTest, MeansThatSomebodyServes) {
  Status refused = Listen(path_);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kBusy);
  ASSERT_TRUE(WriteServerMark(path_, 0).ok());  // and it says who
  refused = Listen(path_);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kBusy);
}

TEST_F(FullQueueTest, OfOneThatWasKilledKeepsNobodyOut) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::_exit(WriteServerMark(path_, 0).ok() ? 0 : 1);
  }
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_TRUE(Listen(path_).ok());
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(Ask({{"verb", "v"}}).ok());
  Stop(0);
}

// ---- the directory

TEST_F(ControlServerTest, ADirectoryIsBelievedOnlyIfNobodyElseWritesThere) {
  const auto belief = [this](mode_t mode) {
    ::chmod(directory_.path().c_str(), mode);
    const Status checked = CheckControlDirectory(path_);
    const Status prepared = PrepareControlDirectory(path_);
    EXPECT_EQ(checked.ok(), prepared.ok()) << mode;
    EXPECT_TRUE(checked.ok() || checked.error().code == ErrorCode::kUnsupported) << mode;
    EXPECT_TRUE(prepared.ok() || prepared.error().code == ErrorCode::kInvalidArgument) << mode;
    return checked.ok();
  };
  EXPECT_TRUE(belief(0700));
  EXPECT_TRUE(belief(0755));
  EXPECT_FALSE(belief(0720)) << "the group may write";
  EXPECT_FALSE(belief(0702)) << "others may write";
  EXPECT_TRUE(belief(0700));
}

TEST_F(ControlServerTest, WhatIsNoDirectoryIsNotBelieved) {
  EXPECT_EQ(CheckControlDirectory(directory_ / "none/a.sock").error().code, ErrorCode::kNotFound);
  std::ofstream(directory_ / "file") << "x";
  EXPECT_EQ(CheckControlDirectory(directory_ / "file/a.sock").error().code,
            ErrorCode::kUnsupported);
  EXPECT_FALSE(PrepareControlDirectory(directory_ / "file/a.sock").ok());
  const Status below = CheckControlDirectory(directory_ / "file/below/a.sock");
  ASSERT_FALSE(below.ok());
  EXPECT_NE(below.error().code, ErrorCode::kNotFound);
  const Status nowhere = PrepareControlDirectory(directory_ / "none/below/a.sock");
  ASSERT_FALSE(nowhere.ok());
  EXPECT_NE(nowhere.error().message.find("cannot make"), std::string::npos);
  if (::geteuid() == 0) {
    ASSERT_EQ(::mkdir((directory_ / "others").c_str(), 0700), 0);
    ASSERT_EQ(::chown((directory_ / "others").c_str(), 65534, 65534), 0);
    EXPECT_FALSE(PrepareControlDirectory(directory_ / "others/a.sock").ok());
    EXPECT_FALSE(CheckControlDirectory(directory_ / "others/a.sock").ok());
  }
}

TEST(ControlDirectories, AreWhatIsBeforeTheLastSlash) {
  EXPECT_EQ(ControlDirectory("/run/eplog/a.sock"), "/run/eplog");
  EXPECT_EQ(ControlDirectory("/a.sock"), "/");
  EXPECT_EQ(ControlDirectory("here/a.sock"), "here");
  EXPECT_EQ(ControlDirectory("a.sock"), ".");
}

TEST(ControlDirectories, OfAUserAreHisOwn) {
  if (::geteuid() != 0) {
    GTEST_SKIP() << "needs root to become somebody else";
  }
  const pid_t child = ::fork();
  if (child == 0) {
    ::unsetenv("XDG_RUNTIME_DIR");
    bool good = ::setuid(65534) == 0 && ControlSocketPath("abc") == "/tmp/eplog-65534/abc.sock";
    ::setenv("XDG_RUNTIME_DIR", "/run/user/7", 1);
    good = good && ControlSocketPath("abc") == "/run/user/7/eplog/abc.sock";
    ::setenv("XDG_RUNTIME_DIR", "not/absolute", 1);
    good = good && ControlSocketPath("abc") == "/tmp/eplog-65534/abc.sock";
    ::setenv("XDG_RUNTIME_DIR", "", 1);
    good = good && ControlSocketPath("abc") == "/tmp/eplog-65534/abc.sock";
    ::_exit(good ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace eplog
