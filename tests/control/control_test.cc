// The control protocol, from both ends and with clients that misbehave.
#include "control/control.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "runtime/io_uring_loop.h"
#include "tests/support/files.h"

namespace eplog {
namespace {

std::atomic<int> sleeping = 0;  // requests of that kind that were begun

// What the served verbs do.
Task<Result<Json>> Handle(IoUringLoop* loop, Json request, ProgressSink progress) {
  const std::string verb = request["verb"];
  if (verb == "echo") {
    co_return request;
  }
  if (verb == "fail") {
    co_return Fail(ErrorCode::kBusy, "two\nlines");
  }
  if (verb == "work") {
    const uint64_t steps = request["steps"];
    for (uint64_t i = 1; i <= steps; ++i) {
      progress(i, steps);
      if (i % 1000 == 0) {
        co_await loop->Yield();
      }
    }
    co_return Json("worked");
  }
  if (verb == "sleep") {
    ++sleeping;
    co_await loop->Sleep(request["us"].get<uint64_t>());
    co_return Json();
  }
  if (verb == "large") {
    Json large = std::string(size_t{3} << 20, 'x');
    co_return large;
  }
  if (verb == "bytes") {
    Json bytes = std::string("\xff\xfe name");
    co_return bytes;
  }
  co_return Fail(ErrorCode::kUnsupported, "no such verb");
}

// A control server on a thread of its own.
class Served {
 public:
  explicit Served(const std::string& path) : path_(path) {
    std::promise<Status> started;
    std::future<Status> result = started.get_future();
    thread_ = std::thread([this, &started] { Thread(&started); });
    status_ = result.get();
  }
  ~Served() { Stop(); }
  Served(const Served&) = delete;
  Served& operator=(const Served&) = delete;

  void Stop(uint64_t grace_us = 1'000'000) {
    if (thread_.joinable()) {
      grace_us_ = grace_us;
      stop_ = true;
      thread_.join();
    }
  }
  // Stop, whatever is in progress.
  void Abandon() {
    abandon_ = true;
    Stop(0);
  }
  [[nodiscard]] const Status& status() const { return status_; }

 private:
  void Thread(std::promise<Status>* started) {
    Result<std::unique_ptr<IoUringLoop>> loop = IoUringLoop::Create();
    EPLOG_CHECK(loop.ok(), "io_uring");
    IoUringLoop* raw = loop->get();
    auto server = ControlServer::Listen(*raw, path_, [raw](Json request, ProgressSink progress) {
      return Handle(raw, std::move(request), std::move(progress));
    });
    if (!server.ok()) {
      started->set_value(Fail(server.error()));
      return;
    }
    started->set_value(OkStatus());
    raw->Spawn(WaitForStop(raw, server->get()));
    EPLOG_CHECK(raw->RunUntil([this] { return stopped_ || (stop_ && abandon_); }), "stuck");
    if (!stopped_) {
      raw->Abort();
      // Its tasks did not end: it must not die, and nobody is to call it forgotten.
      static auto& abandoned = *new std::vector<ControlServer*>();
      abandoned.push_back(server->release());
    }
  }
  Task<void> WaitForStop(IoUringLoop* loop, ControlServer* server) {
    while (!stop_) {
      co_await loop->Sleep(1000);
    }
    if (abandon_) {
      co_return;
    }
    Task<void> stopping = server->Stop(grace_us_);
    co_await stopping;
    stopped_ = true;
  }

  std::string path_;
  Status status_;
  std::atomic<bool> stop_ = false;
  std::atomic<bool> abandon_ = false;
  std::atomic<uint64_t> grace_us_ = 0;
  bool stopped_ = false;
  std::thread thread_;
};

class Client {
 public:
  explicit Client(const std::string& path) : fd_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
    connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  }
  ~Client() { ::close(fd_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void Send(const std::string& text) const {
    size_t sent = 0;
    while (sent < text.size()) {
      const ssize_t n = ::send(fd_, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
      if (n < 0) {
        return;  // the server had enough
      }
      sent += static_cast<size_t>(n);
    }
  }
  // Everything until the server hangs up, or the lines are there.
  std::string Receive(size_t lines = SIZE_MAX) const {
    std::string text;
    char c = 0;
    while (lines > 0 && ::recv(fd_, &c, 1, 0) == 1) {
      text += c;
      lines -= c == '\n' ? 1 : 0;
    }
    return text;
  }
  [[nodiscard]] int fd() const { return fd_; }
  [[nodiscard]] bool connected() const { return connected_; }

 private:
  int fd_;
  bool connected_ = false;
};

class ControlTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!IoUringLoop::Create().ok()) {
      GTEST_SKIP() << "needs io_uring";
    }
    ::chmod(directory_.path().c_str(), 0700);
    path_ = directory_ / "control.sock";
  }
  TemporaryDirectory directory_;
  std::string path_;
};

TEST_F(ControlTest, AnswersAndErrorsComeBack) {
  const Served served(path_);
  ASSERT_TRUE(served.status().ok());
  struct stat info {};
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600U);

  const Json request = {{"verb", "echo"}, {"text", "a\nb"}, {"list", {1, 2, 3}}};
  const Result<Json> echo = ControlRequest(path_, request);
  ASSERT_TRUE(echo.ok());
  EXPECT_EQ(*echo, request);

  const Result<Json> failed = ControlRequest(path_, {{"verb", "fail"}});
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, ErrorCode::kBusy);
  EXPECT_EQ(failed.error().message, "two lines");

  const Result<Json> large = ControlRequest(path_, {{"verb", "large"}});
  ASSERT_TRUE(large.ok());
  EXPECT_EQ(large->get<std::string>().size(), size_t{3} << 20);

  EXPECT_TRUE(ControlRequest(path_, {{"verb", "bytes"}}).ok()) << "bytes that are no text";
  EXPECT_FALSE(ControlRequest(path_, {{"verb", "none"}}).ok());
}

TEST_F(ControlTest, PlainJsonIsAccepted) {
  const Served served(path_);
  const nlohmann::json request = {{"verb", "echo"}, {"n", 1}};
  const Result<Json> answer = ControlRequest(path_, request);
  ASSERT_TRUE(answer.ok());
  const nlohmann::json plain = *answer;
  EXPECT_EQ(plain, request);
}

TEST_F(ControlTest, ProgressArrivesInOrder) {
  const Served served(path_);
  std::vector<uint64_t> seen;
  const Result<Json> answer =
      ControlRequest(path_, {{"verb", "work"}, {"steps", 50}}, [&](uint64_t done, uint64_t total) {
        EXPECT_EQ(total, 50U);
        seen.push_back(done);
      });
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(*answer, "worked");
  ASSERT_FALSE(seen.empty());
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  EXPECT_EQ(seen.back(), 50U);
}

TEST_F(ControlTest, ManyRequestsOnOneConnectionAndManyAtOnce) {
  const Served served(path_);
  const Client client(path_);
  client.Send("{\"verb\":\"echo\",\"n\":1}\n{\"verb\":\"echo\",\"n\":2}\n");
  EXPECT_EQ(client.Receive(2),
            "{\"ok\":true,\"result\":{\"verb\":\"echo\",\"n\":1}}\n"
            "{\"ok\":true,\"result\":{\"verb\":\"echo\",\"n\":2}}\n");
  std::vector<std::thread> threads;
  std::atomic<int> good = 0;
  for (int t = 0; t < 16; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) {
        good += ControlRequest(path_, {{"verb", "sleep"}, {"us", 100}}).ok() ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(good, 320);
}

TEST_F(ControlTest, GarbageIsRefusedAndHarmsNobody) {
  const Served served(path_);
  for (const std::string& garbage :
       {std::string("garbage\n"), std::string("\n"), std::string("[1,2]\n"),
        std::string("{\"verb\":7}\n"), std::string("{\"no\":1}\n"), std::string("\0\1\xff\n", 4),
        std::string(100000, '[') + "\n"}) {
    const Client client(path_);
    client.Send(garbage);
    const std::string answer = client.Receive();
    EXPECT_EQ(answer.rfind("{\"ok\":false,\"error\":", 0), 0U) << answer;
  }
  const Client endless(path_);
  endless.Send(std::string(kMaxControlLineBytes * 2, 'x'));
  EXPECT_NE(endless.Receive().find("too long"), std::string::npos);
  EXPECT_TRUE(ControlRequest(path_, {{"verb", "echo"}}).ok());
}

TEST_F(ControlTest, ClientsThatLeaveOrStallHarmNobody) {
  Served served(path_);
  {
    const Client silent(path_);
    const Client half(path_);
    half.Send("{\"verb\":\"ech");
    const Client gone(path_);
    gone.Send("{\"verb\":\"work\",\"steps\":100000}\n");
  }
  const Client deaf(path_);  // asks for a lot and reads nothing
  deaf.Send("{\"verb\":\"work\",\"steps\":100000}\n{\"verb\":\"large\"}\n");
  const Client closing(path_);  // done sending, still listening
  closing.Send("{\"verb\":\"sleep\",\"us\":20000}\n");
  ::shutdown(closing.fd(), SHUT_WR);
  EXPECT_EQ(closing.Receive(), "{\"ok\":true,\"result\":null}\n");
  EXPECT_TRUE(ControlRequest(path_, {{"verb", "echo"}}).ok());

  served.Stop(200'000);
}

// Whoever keeps connections and asks for nothing keeps nobody out.
TEST_F(ControlTest, IdleConnectionsGiveWay) {
  const Served served(path_);
  std::vector<std::unique_ptr<Client>> idle;
  for (int i = 0; i < 200; ++i) {
    idle.push_back(std::make_unique<Client>(path_));
    if (i % 3 == 1) {
      idle.back()->Send("{\"verb\":\"ech");
    } else if (i % 3 == 2) {
      idle.back()->Send("{\"verb\":\"large\"}\n");  // and its answer is never read
    }
  }
  for (int i = 0; i < 5; ++i) {
    const Result<Json> answer = ControlRequest(path_, {{"verb", "echo"}});
    EXPECT_TRUE(answer.ok()) << answer.error().ToString();
  }
  // Who had asked for nothing is told why he was hung up on, and that he may ask again.
  EXPECT_NE(idle[0]->Receive(1).find("\"again\":true"), std::string::npos);
  EXPECT_EQ(idle[1]->Receive(1).find("\"result\""), std::string::npos);
  // The newest are still there.
  idle[198]->Send("{\"verb\":\"echo\"}\n");
  EXPECT_EQ(idle[198]->Receive(1), "{\"ok\":true,\"result\":{\"verb\":\"echo\"}}\n");
}

TEST_F(ControlTest, WhenAllAreAtWorkTheNextIsToldSo) {
  Served served(path_);
  std::vector<std::unique_ptr<Client>> busy;
  for (int i = 0; i < 64; ++i) {
    busy.push_back(std::make_unique<Client>(path_));
    busy.back()->Send("{\"verb\":\"sleep\",\"us\":600000000}\n");
  }
  Result<Json> answer = ControlRequest(path_, {{"verb", "echo"}});
  for (int i = 0; i < 6000 && answer.ok(); ++i) {  // until all have been read
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    answer = ControlRequest(path_, {{"verb", "echo"}});
  }
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code, ErrorCode::kBusy) << answer.error().ToString();
  EXPECT_NE(answer.error().message.find("64 verbs"), std::string::npos);
  served.Abandon();
}

// A server in a process of its own, which can be stopped, or be somebody else's.
class ServerProcess {
 public:
  explicit ServerProcess(const std::function<int()>& body) : pid_(::fork()) {
    if (pid_ == 0) {
      ::_exit(body());
    }
  }
  ~ServerProcess() {
    ::kill(pid_, SIGKILL);
    int status = 0;
    ::waitpid(pid_, &status, 0);
  }
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

// Answers to nothing, or until it is killed, as `user`.
int ListenOnly(const std::string& path, uid_t user) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
      (user != ::geteuid() && ::setuid(user) != 0) || ::listen(fd, 16) != 0) {
    return 1;
  }
  while (true) {
    ::pause();
  }
}

void AwaitListening(const std::string& path) {
  for (int i = 0; i < 6000; ++i) {
    const Client client(path);
    if (client.connected()) {
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  FAIL() << "nobody listens at " << path;
}

TEST_F(ControlTest, AStoppedServerIsNamedAndNotWaitedFor) {
  const ServerProcess server([this] {
    const Served served(path_);
    while (true) {
      ::pause();
    }
    return 0;
  });
  AwaitListening(path_);
  ASSERT_TRUE(ControlRequest(path_, {{"verb", "echo"}}).ok());
  ASSERT_EQ(::kill(server.pid(), SIGSTOP), 0);
  int status = 0;
  ASSERT_EQ(::waitpid(server.pid(), &status, WUNTRACED), server.pid());
  ASSERT_TRUE(WIFSTOPPED(status));
  const Result<Json> answer = ControlRequest(path_, {{"verb", "echo"}});
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code, ErrorCode::kBusy);
  EXPECT_NE(answer.error().message.find("process " + std::to_string(server.pid())),
            std::string::npos)
      << answer.error().message;
  EXPECT_NE(answer.error().message.find("is stopped; kill -CONT"), std::string::npos);
  ASSERT_EQ(::kill(server.pid(), SIGCONT), 0);
  EXPECT_TRUE(ControlRequest(path_, {{"verb", "echo"}}).ok());
}

TEST_F(ControlTest, AServerThatAnswersToNothingIsNotWaitedForForEver) {
  const ServerProcess server([this] { return ListenOnly(path_, ::geteuid()); });
  AwaitListening(path_);
  const Result<Json> answer =
      ControlRequest(path_, {{"verb", "echo"}}, {}, {.silence = std::chrono::milliseconds(3000)});
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code, ErrorCode::kBusy);
  EXPECT_NE(answer.error().message.find("has not answered"), std::string::npos)
      << answer.error().message;
}

TEST_F(ControlTest, LongWorkIsWaitedFor) {
  const Served served(path_);
  const Result<Json> answer = ControlRequest(path_, {{"verb", "sleep"}, {"us", 8'000'000}}, {},
                                             {.silence = std::chrono::milliseconds(2000)});
  EXPECT_TRUE(answer.ok()) << answer.error().ToString();
}

TEST_F(ControlTest, NothingInADirectoryOfOthersIsBelieved) {
  if (::geteuid() != 0) {
    GTEST_SKIP() << "needs root to give a directory away";
  }
  const Served served(path_);
  ASSERT_TRUE(ControlRequest(path_, {{"verb", "echo"}}).ok());
  ASSERT_EQ(::chown(directory_.path().c_str(), 65534, 65534), 0);
  Result<Json> answer = ControlRequest(path_, {{"verb", "echo"}});
  ASSERT_FALSE(answer.ok());
  EXPECT_NE(answer.error().message.find("belongs to user 65534"), std::string::npos)
      << answer.error().message;
  ASSERT_EQ(::chown(directory_.path().c_str(), 0, 0), 0);
  ASSERT_EQ(::chmod(directory_.path().c_str(), 0777), 0);
  answer = ControlRequest(path_, {{"verb", "echo"}});
  ASSERT_FALSE(answer.ok());
  EXPECT_NE(answer.error().message.find("can be written by others"), std::string::npos)
      << answer.error().message;
  ASSERT_EQ(::chmod(directory_.path().c_str(), 0755), 0);
  EXPECT_TRUE(ControlRequest(path_, {{"verb", "echo"}}).ok());
}

TEST_F(ControlTest, AnotherUsersServerIsNotBelieved) {
  if (::geteuid() != 0) {
    GTEST_SKIP() << "needs root to become somebody else";
  }
  const ServerProcess server([this] { return ListenOnly(path_, 65534); });
  AwaitListening(path_);
  const Result<Json> answer = ControlRequest(path_, {{"verb", "echo"}});
  ASSERT_FALSE(answer.ok());
  EXPECT_NE(answer.error().message.find("is answered by user 65534"), std::string::npos)
      << answer.error().message;
}

TEST_F(ControlTest, StopLetsAnswersLeave) {
  Served served(path_);
  const int before = sleeping;
  std::future<Result<Json>> answer = std::async(std::launch::async, [&] {
    return ControlRequest(path_, {{"verb", "sleep"}, {"us", 200'000}});
  });
  while (sleeping == before) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  served.Stop(60'000'000);
  EXPECT_TRUE(answer.get().ok());
  EXPECT_NE(::access(path_.c_str(), F_OK), 0) << "the socket file is gone";
  const Result<Json> late = ControlRequest(path_, {{"verb", "echo"}});
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().code, ErrorCode::kNotFound);
}

TEST_F(ControlTest, StaleSocketIsReplacedAndALiveOneRefused) {
  const pid_t child = ::fork();
  if (child == 0) {
    const Served dies(path_);
    ::_exit(dies.status().ok() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  ASSERT_EQ(::access(path_.c_str(), F_OK), 0);
  EXPECT_EQ(ControlRequest(path_, {{"verb", "echo"}}).error().code, ErrorCode::kNotFound);

  const Served served(path_);
  ASSERT_TRUE(served.status().ok());
  const Served second(path_);
  ASSERT_FALSE(second.status().ok());
  EXPECT_EQ(second.status().error().code, ErrorCode::kBusy);
  EXPECT_TRUE(ControlRequest(path_, {{"verb", "echo"}}).ok());
}

TEST_F(ControlTest, OtherUsersAreTurnedAway) {
  if (::geteuid() != 0) {
    GTEST_SKIP() << "needs root to become somebody else";
  }
  const Served served(path_);
  ::chmod(directory_.path().c_str(), 0755);
  ::chmod(path_.c_str(), 0666);  // even if the file let them in
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setuid(65534) != 0) {
      ::_exit(3);
    }
    const Client client(path_);
    client.Send("{\"verb\":\"echo\"}\n");
    ::_exit(!client.connected() ? 4 : client.Receive().empty() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(ControlTest, DirectoryMustBeOursAlone) {
  const std::string inside = directory_ / "new" + "/x.sock";
  EXPECT_TRUE(PrepareControlDirectory(inside).ok());
  struct stat info {};
  ASSERT_EQ(::stat((directory_ / "new").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0700U);
  ::chmod((directory_ / "new").c_str(), 0777);
  EXPECT_FALSE(PrepareControlDirectory(inside).ok());
  ASSERT_EQ(::symlink(directory_.path().c_str(), (directory_ / "link").c_str()), 0);
  EXPECT_FALSE(PrepareControlDirectory(directory_ / "link/x.sock").ok());
}

TEST(ControlPath, NamesTheArray) {
  const std::string path = ControlSocketPath("abc");
  EXPECT_EQ(path.substr(path.rfind('/')), "/abc.sock");
  if (::geteuid() == 0) {
    EXPECT_EQ(path, "/run/eplog/abc.sock");
  }
  const Result<Json> nobody = ControlRequest("/nonexistent/abc.sock", {{"verb", "status"}});
  EXPECT_EQ(nobody.error().code, ErrorCode::kNotFound);
  const std::string long_path(300, 'x');
  EXPECT_FALSE(ControlRequest("/" + long_path, {{"verb", "status"}}).ok());
}

}  // namespace
}  // namespace eplog
