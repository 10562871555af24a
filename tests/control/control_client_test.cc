// What a client makes of answers that are not as they should be, and of servers that take their
// time.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "control/control.h"
#include "control/server_mark.h"
#include "tests/support/files.h"

namespace eplog {
namespace {

sockaddr_un AddressOf(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
  return address;
}

int BoundAt(const std::string& path) {
  const sockaddr_un address = AddressOf(path);
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  EXPECT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  return fd;
}

int ListenAt(const std::string& path, int queue) {
  const int fd = BoundAt(path);
  EXPECT_EQ(::listen(fd, queue), 0);
  return fd;
}

void SendAll(int fd, const std::string& text) {
  for (size_t sent = 0; sent < text.size();) {
    const ssize_t n = ::send(fd, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (n <= 0) {
      return;
    }
    sent += static_cast<size_t>(n);
  }
}

// Answers each line of each connection, numbered from 0, with a text of its own; an empty one hangs
// up.
class ScriptedServer {
 public:
  using Script = std::function<std::string(size_t connection, const std::string& line)>;
  ScriptedServer(const std::string& path, Script script)
      : script_(std::move(script)), listener_(ListenAt(path, 16)) {
    accepting_ = std::thread([this] {
      for (size_t number = 0;; ++number) {
        const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
        if (fd < 0) {
          return;
        }
        connections_.push_back(fd);
        threads_.emplace_back([this, fd, number] { Serve(fd, number); });
      }
    });
  }
  ~ScriptedServer() {
    ::shutdown(listener_, SHUT_RDWR);
    accepting_.join();
    for (const int fd : connections_) {
      ::shutdown(fd, SHUT_RDWR);
    }
    for (std::thread& thread : threads_) {
      thread.join();
    }
    for (const int fd : connections_) {
      ::close(fd);
    }
    ::close(listener_);
  }
  ScriptedServer(const ScriptedServer&) = delete;
  ScriptedServer& operator=(const ScriptedServer&) = delete;

 private:
  void Serve(int fd, size_t number) {
    std::string received;
    std::vector<char> chunk(1 << 16);
    while (true) {
      const size_t end = received.find('\n');
      if (end == std::string::npos) {
        const ssize_t n = ::recv(fd, chunk.data(), chunk.size(), 0);
        if (n <= 0) {
          return;
        }
        received.append(chunk.data(), static_cast<size_t>(n));
        continue;
      }
      const std::string answer = script_(number, received.substr(0, end));
      received.erase(0, end + 1);
      if (answer.empty()) {
        ::shutdown(fd, SHUT_RDWR);
        return;
      }
      SendAll(fd, answer);
    }
  }

  const Script script_;
  const int listener_;
  std::vector<int> connections_;
  std::vector<std::thread> threads_;
  std::thread accepting_;
};

class ControlClientTest : public testing::Test {
 protected:
  void SetUp() override {
    ::chmod(directory_.path().c_str(), 0700);
    path_ = directory_ / "s.sock";
  }
  // One request, answered so.
  Result<Json> Answered(const std::string& with) {
    ::unlink(path_.c_str());
    const ScriptedServer server(path_, [&](size_t, const std::string&) { return with; });
    return ControlRequest(path_, {{"verb", "v"}});
  }
  void ExpectError(const std::string& with, ErrorCode code, const std::string& message) {
    const Result<Json> answer = Answered(with);
    ASSERT_FALSE(answer.ok()) << with;
    EXPECT_EQ(answer.error().code, code) << with;
    EXPECT_EQ(answer.error().message, message) << with;
  }

  TemporaryDirectory directory_;
  std::string path_;
};

TEST_F(ControlClientTest, EveryKindOfErrorComesBackAsItself) {
  for (int code = 0; code <= static_cast<int>(ErrorCode::kShutdown); ++code) {
    const auto kind = static_cast<ErrorCode>(code);
    ExpectError(
        std::string(R"({"ok":false,"error":"why","code":")") + ErrorCodeName(kind) + "\"}\n", kind,
        "why");
  }
  ExpectError("{\"ok\":false,\"error\":\"why\",\"code\":\"of a later version\"}\n", ErrorCode::kIo,
              "why");
}

TEST_F(ControlClientTest, ARefusalNeedNotSayWhy) {
  const std::string none = "the serving process refused and did not say why";
  for (const char* answer :
       {"{\"ok\":false}\n", "{\"ok\":false,\"error\":7,\"code\":8}\n", "{\"ok\":1}\n", "{}\n",
        "{\"ok\":false,\"error\":\"\"}\n", "{\"result\":5}\n"}) {
    ExpectError(answer, ErrorCode::kIo, none);
  }
  ExpectError("{\"ok\":false,\"code\":\"busy\"}\n", ErrorCode::kBusy, none);
}

TEST_F(ControlClientTest, AnAnswerNeedNotHoldAResult) {
  const Result<Json> nothing = Answered("{\"ok\":true}\n");
  ASSERT_TRUE(nothing.ok());
  EXPECT_TRUE(nothing->is_null());
  const Result<Json> something = Answered("{\"ok\":true,\"result\":[1]}\n");
  ASSERT_TRUE(something.ok());
  EXPECT_EQ(something->dump(), "[1]");
}

TEST_F(ControlClientTest, NonsenseIsSaidToBe) {
  for (const char* answer : {"nonsense\n", "\n", "[1]\n", "7\n", "{\"ok\":true\n"}) {
    ExpectError(answer, ErrorCode::kCorrupt, "the serving process answered nonsense");
  }
}

TEST_F(ControlClientTest, OneThatHangsUpIsNotWaitedFor) {
  ExpectError("", ErrorCode::kIo, "the serving process hung up without an answer");
}

TEST_F(ControlClientTest, WhatIsNoProgressIsTheAnswer) {
  std::vector<std::pair<uint64_t, uint64_t>> seen;
  const ScriptedServer server(path_, [](size_t, const std::string&) -> std::string {
    return "{\"progress\":[1,3]}\n{\"progress\":[2,3]}\n{\"ok\":true}\n";
  });
  EXPECT_TRUE(ControlRequest(path_, {{"verb", "v"}}, [&](uint64_t done, uint64_t total) {
                seen.emplace_back(done, total);
              }).ok());
  EXPECT_EQ(seen, (std::vector<std::pair<uint64_t, uint64_t>>{{1, 3}, {2, 3}}));
  EXPECT_TRUE(ControlRequest(path_, {{"verb", "v"}}).ok()) << "nobody need look at it";
}

TEST_F(ControlClientTest, HalfAProgressIsNone) {
  for (const char* answer :
       {"{\"progress\":[1]}\n", "{\"progress\":[1,2,3]}\n", "{\"progress\":[\"a\",2]}\n",
        "{\"progress\":[1,\"b\"]}\n", "{\"progress\":7}\n"}) {
    EXPECT_FALSE(Answered(answer).ok()) << answer;
  }
}

// One after the other, whatever pieces they come in, and to the same process.
TEST_F(ControlClientTest, SeveralRequestsGoOverOneConnection) {
  const ScriptedServer server(path_, [](size_t connection, const std::string& line) {
    const std::string answer =
        "{\"ok\":true,\"result\":{\"connection\":" + std::to_string(connection) +
        ",\"request\":" + line + "}}\n";
    return answer + (line.find("first") != std::string::npos ? "{\"ok\":true,\"result\":2}\n" : "");
  });
  auto client = ControlClient::Connect(path_);
  ASSERT_TRUE(client.ok());
  EXPECT_EQ(client->pid(), ::getpid());
  EXPECT_EQ(client->Request({{"verb", "first"}})->dump(),
            R"({"connection":0,"request":{"verb":"first"}})");
  EXPECT_EQ(client->Request({{"verb", "second"}})->dump(), "2") << "it was there already";
  EXPECT_EQ(client->RequestSoon({{"verb", "third"}})->dump(),
            R"({"connection":0,"request":{"verb":"second"}})");
}

// More than a socket takes at once.
TEST_F(ControlClientTest, ALargeRequestArrivesWhole) {
  const std::string text(kMaxControlLineBytes * 2, 'x');
  const std::string want = "{\"verb\":\"v\",\"text\":\"" + text + "\"}";
  const ScriptedServer server(path_, [&](size_t, const std::string& line) -> std::string {
    return line == want ? "{\"ok\":true}\n" : "{\"ok\":false,\"error\":\"not what was sent\"}\n";
  });
  const Result<Json> answer = ControlRequest(path_, {{"verb", "v"}, {"text", text}});
  EXPECT_TRUE(answer.ok()) << answer.error().message;
}

TEST_F(ControlClientTest, OneThatIsSentAwayIsToldSo) {
  int requests = 0;
  const ScriptedServer server(path_, [&](size_t, const std::string&) -> std::string {
    const char* const again[] = {",\"again\":true", "", ",\"again\":1", ",\"again\":true"};
    return std::string("{\"ok\":false,\"error\":\"e\",\"code\":\"busy\"") + again[requests++] +
           "}\n";
  });
  auto client = ControlClient::Connect(path_);
  ASSERT_TRUE(client.ok());
  EXPECT_FALSE(client->sent_away());
  for (const bool sent_away : {true, false, false, true}) {
    EXPECT_FALSE(client->Request({{"verb", "v"}}).ok());
    EXPECT_EQ(client->sent_away(), sent_away);
  }
}

// ---- servers that take their time

// It answers everybody else.
TEST_F(ControlClientTest, WhatTakesNoTimeIsNotWaitedForAsWorkIs) {
  std::atomic<int> others = 0;
  const ScriptedServer server(path_, [&](size_t connection, const std::string& line) {
    if (connection != 0) {
      ++others;
      return std::string("{\"ok\":true}\n");
    }
    while (line.find("work") != std::string::npos && others == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return std::string(line.find("work") != std::string::npos ? "{\"ok\":true}\n"
                                                              : "{\"progress\":[0,1]}\n");
  });
  auto client =
      ControlClient::Connect(path_, ControlPatience{.silence = std::chrono::milliseconds(1000)});
  ASSERT_TRUE(client.ok());
  EXPECT_TRUE(client->Request({{"verb", "work"}}).ok()) << "somebody is at home";
  EXPECT_GT(others, 0);
  others = 0;
  const Result<Json> soon = client->RequestSoon({{"verb", "v"}});
  ASSERT_FALSE(soon.ok());
  EXPECT_EQ(soon.error().code, ErrorCode::kBusy);
  EXPECT_EQ(soon.error().message, "process " + std::to_string(::getpid()) +
                                      " serves this array and has not answered for 1 s, to "
                                      "nothing; its log, and what it waits for, may tell why");
  EXPECT_EQ(others, 0) << "nobody else was asked";
}

// Sockets that are in its queue.
class FullQueue {
 public:
  explicit FullQueue(const std::string& path) : listener_(ListenAt(path, 0)) {
    const sockaddr_un address = AddressOf(path);
    for (int error = 0; error == 0;) {
      fds_.push_back(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      error =
          ::connect(fds_.back(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0
              ? 0
              : errno;
      EXPECT_TRUE(error == 0 || error == EAGAIN);
    }
  }
  ~FullQueue() {
    for (const int fd : fds_) {
      ::close(fd);
    }
    ::close(listener_);
  }
  FullQueue(const FullQueue&) = delete;
  FullQueue& operator=(const FullQueue&) = delete;

 private:
  const int listener_;
  std::vector<int> fds_;
};

TEST_F(ControlClientTest, OneThatLetsNobodyInIsNotWaitedForForEver) {
  const FullQueue full(path_);
  const ControlPatience patience{.silence = std::chrono::milliseconds(100)};
  Result<Json> answer = ControlRequest(path_, {{"verb", "v"}}, {}, patience);
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code, ErrorCode::kBusy);
  EXPECT_EQ(answer.error().message,
            "a process serves this array and lets nobody in: is it "
            "stopped?");
  ASSERT_TRUE(WriteServerMark(path_, 0).ok());
  answer = ControlRequest(path_, {{"verb", "v"}}, {}, patience);
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code, ErrorCode::kBusy);
  EXPECT_EQ(answer.error().message.rfind("process " + std::to_string(::getpid()) + " serves", 0),
            0U)
      << answer.error().message;
}

TEST_F(ControlClientTest, OneThatWasKilledAndLetsNobodyInServesNobody) {
  const FullQueue full(path_);
  const pid_t child = ::fork();
  if (child == 0) {
    ::_exit(WriteServerMark(path_, 0).ok() ? 0 : 1);
  }
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  const Result<Json> answer = ControlRequest(path_, {{"verb", "v"}});
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(answer.error().message, "nobody serves this array");
}

// The socket of a process that has ended can be connected to as long as somebody has it open.
TEST_F(ControlClientTest, OneThatHasEndedServesNobody) {
  const int listener = BoundAt(path_);
  const pid_t child = ::fork();
  if (child == 0) {
    ::_exit(::listen(listener, 16) == 0 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  const Result<Json> answer = ControlRequest(path_, {{"verb", "v"}});
  ::close(listener);
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code, ErrorCode::kNotFound);
}

TEST_F(ControlClientTest, WhatIsNoSocketOfOursIsSaidToBe) {
  const int fd = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const sockaddr_un address = AddressOf(path_);
  ASSERT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  const Result<Json> answer = ControlRequest(path_, {{"verb", "v"}});
  ::close(fd);
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code, ErrorCode::kIo);
  EXPECT_NE(answer.error().message.find(path_), std::string::npos);
  const std::string long_path = directory_ / std::string(200, 'x');
  EXPECT_EQ(ControlRequest(long_path, {{"verb", "v"}}).error().code, ErrorCode::kIo);
}

// ---- servers that hang up early

// Before anything was asked: with a word at parting, or without.
TEST_F(ControlClientTest, WhoIsHungUpOnBeforeHeAskedIsToldWhy) {
  const auto asked_late = [&](const std::string& word) {
    ::unlink(path_.c_str());
    const int listener = ListenAt(path_, 1);
    auto client = ControlClient::Connect(path_);
    EXPECT_TRUE(client.ok());
    const int fd = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    SendAll(fd, word);
    ::close(fd);
    ::close(listener);
    return client->Request({{"verb", "v"}}).error();
  };
  const Error silent = asked_late("");
  EXPECT_EQ(silent.code, ErrorCode::kIo);
  EXPECT_EQ(silent.message, "the serving process hung up");
  EXPECT_EQ(silent.errno_value, EPIPE);
  const Error busy = asked_late("{\"ok\":false,\"error\":\"why\",\"code\":\"busy\"}\n");
  EXPECT_EQ(busy.code, ErrorCode::kBusy);
  EXPECT_EQ(busy.message, "why");
  const Error half = asked_late("{\"ok\":");
  EXPECT_EQ(half.message, "the serving process hung up") << "half a word is none";
}

// One who is about to end lets nobody in any more, and does what he has begun.
TEST_F(ControlClientTest, OneThatLetsNobodyInAnyMoreIsWaitedFor) {
  const ScriptedServer server(path_, [&](size_t, const std::string&) {
    ::unlink(path_.c_str());
    std::this_thread::sleep_for(std::chrono::seconds(3));  // as long as his work takes
    return std::string("{\"ok\":true}\n");
  });
  const auto answer =
      ControlRequest(path_, {{"verb", "v"}}, {}, {.silence = std::chrono::milliseconds(100)});
  EXPECT_TRUE(answer.ok()) << answer.error().message;
}

// ---- servers that are stopped or killed

// Listens by the descriptor, and then does nothing.
class Listener {
 public:
  explicit Listener(int fd, const std::string& mark_of = "") : pid_(::fork()) {
    if (pid_ == 0) {
      const bool good = ::listen(fd, 16) == 0 &&
                        (mark_of.empty() || WriteServerMark(mark_of, 0).ok()) &&
                        ::raise(SIGSTOP) == 0;
      while (good) {
        ::pause();
      }
      ::_exit(1);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(pid_, &status, WUNTRACED), pid_);
    EXPECT_TRUE(WIFSTOPPED(status));
  }
  ~Listener() {
    ::kill(pid_, SIGKILL);
    EXPECT_EQ(::waitpid(pid_, nullptr, 0), pid_);
  }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  // And not gone.
  void Kill() const {
    ::kill(pid_, SIGKILL);
    siginfo_t info{};
    EXPECT_EQ(::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT), 0);
  }
  [[nodiscard]] std::string name() const { return "process " + std::to_string(pid_); }
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  const pid_t pid_;
};

TEST_F(ControlClientTest, WhoDoesNothingAnyMoreIsNamedAndNotWaitedFor) {
  const int socket = BoundAt(path_);
  const Listener killed(socket);
  auto client = ControlClient::Connect(path_);
  ASSERT_TRUE(client.ok());
  EXPECT_EQ(client->pid(), killed.pid());
  killed.Kill();
  const std::string other = directory_ / "b.sock";
  const int other_socket = BoundAt(other);
  const Listener stopped(other_socket, other);
  // While another waits whose queue is full.
  std::vector<int> waiting;
  const sockaddr_un address = AddressOf(other);
  do {
    waiting.push_back(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  } while (
      ::connect(waiting.back(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
  auto queued = std::async(std::launch::async, [&] {
    return ControlRequest(other, {{"verb", "v"}});
  });
  const auto answer = client->Request({{"verb", "v"}});
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code, ErrorCode::kBusy);
  EXPECT_EQ(answer.error().message, killed.name() +
                                        " serves this array and was killed and does not end: the "
                                        "kernel waits for a device of its that does not answer");
  const auto not_let_in = queued.get();
  ASSERT_FALSE(not_let_in.ok());
  EXPECT_EQ(not_let_in.error().code, ErrorCode::kBusy);
  EXPECT_EQ(not_let_in.error().message, stopped.name() +
                                            " serves this array and is stopped; kill -CONT " +
                                            std::to_string(stopped.pid()) + " lets it go on");
  for (const int fd : waiting) {
    ::close(fd);
  }
  ::close(socket);
  ::close(other_socket);
}

// ---- whom a user believes

TEST_F(ControlClientTest, AUserBelievesHimselfAndRoot) {
  if (::geteuid() != 0) {
    GTEST_SKIP() << "needs root to become somebody else";
  }
  const auto believed = [&](uid_t owner) {
    EXPECT_EQ(::chown(directory_.path().c_str(), owner, owner), 0);
    ::chmod(directory_.path().c_str(), 0755);
    const pid_t child = ::fork();
    if (child == 0) {
      ::_exit(::setuid(65534) == 0 && CheckControlDirectory(path_).ok() ? 0 : 1);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return status == 0;
  };
  EXPECT_TRUE(believed(65534));
  EXPECT_TRUE(believed(0));
  EXPECT_FALSE(believed(65533));
}

TEST_F(ControlClientTest, APathThatIsTooLongLeadsNowhere) {
  const std::string longest = directory_ / std::string(108 - directory_.path().size() - 1, 'x');
  const auto answer = ControlRequest(longest, {{"verb", "v"}});
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().message, "control socket " + longest);
  EXPECT_EQ(answer.error().errno_value, ENAMETOOLONG);
  const auto shorter = ControlRequest(longest.substr(0, 107), {{"verb", "v"}});
  EXPECT_EQ(shorter.error().code, ErrorCode::kNotFound) << "nobody is there, but it can be asked";
}

// Whoever took that for nobody would open an array that somebody serves.
TEST_F(ControlClientTest, WithoutADescriptorNobodyIsAskedAndThatIsSaid) {
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit none{0, limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const auto answer = ControlRequest(path_, {{"verb", "v"}});
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  ASSERT_FALSE(answer.ok());
  EXPECT_NE(answer.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(answer.error().errno_value, EMFILE);
  EXPECT_EQ(answer.error().message, "control socket " + path_);
}

}  // namespace
}  // namespace eplog
