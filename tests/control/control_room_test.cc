// Who of many is let in, who gives way, and who is waited for at the end. Everything is done on one
// thread, so that it happens in the order in which it is written here.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
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

constexpr size_t kMostConnections = 64;

// A connection that is looked at now and then.
class Guest {
 public:
  explicit Guest(const std::string& path)
      : fd_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
    EXPECT_EQ(::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  }
  ~Guest() { ::close(fd_); }
  Guest(const Guest&) = delete;
  Guest& operator=(const Guest&) = delete;

  void Ask(const std::string& verb) const {
    const std::string line = "{\"verb\":\"" + verb + "\"}\n";
    EXPECT_EQ(::send(fd_, line.data(), line.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(line.size()));
  }
  void Look() {
    std::string chunk(65536, '\0');
    ssize_t n = 0;
    while ((n = ::recv(fd_, chunk.data(), chunk.size(), 0)) > 0) {
      text_.append(chunk, 0, static_cast<size_t>(n));
    }
    hung_up_ = hung_up_ || n == 0 || (errno != EAGAIN && errno != EINTR);
  }
  // So many lines were answered in all.
  [[nodiscard]] bool Has(size_t lines) {
    Look();
    return static_cast<size_t>(std::count(text_.begin(), text_.end(), '\n')) >= lines;
  }
  [[nodiscard]] bool hung_up() const { return hung_up_; }
  [[nodiscard]] bool sent_away() {
    Look();
    return text_.find("\"again\":true") != std::string::npos;
  }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  const int fd_;
  std::string text_;
  bool hung_up_ = false;
};

class ControlRoom : public testing::Test {
 protected:
  void SetUp() override {
    auto loop = IoUringLoop::Create();
    if (!loop.ok()) {
      GTEST_SKIP() << "needs io_uring";
    }
    loop_ = std::move(*loop);
    ::chmod(directory_.path().c_str(), 0700);
    path_ = directory_ / "a.sock";
    Listen();
  }
  void TearDown() override {
    if (server_ != nullptr) {
      Stop(0);
    }
  }
  void Listen() {
    auto server = ControlServer::Listen(*loop_, path_, [this](Json request, ProgressSink progress) {
      return Handle(std::move(request), std::move(progress));
    });
    ASSERT_TRUE(server.ok());
    server_ = std::move(*server);
  }
  void Stop(uint64_t grace_us) {
    may_end_ = true;
    test::Await(*loop_, server_->Stop(grace_us));
    server_.reset();
  }
  Task<Result<Json>> Handle(Json request, ProgressSink progress) {
    const std::string verb = request["verb"];
    ++begun_;
    if (verb == "wait") {
      while (!may_end_) {
        co_await loop_->Sleep(1000);
      }
    }
    if (verb == "work") {
      for (uint64_t i = 1; i <= kSteps; ++i) {
        progress(i, kSteps);
      }
      worked_ = true;
    }
    co_return Json("done");
  }
  Task<void> Turns(std::function<bool()> until) {
    while (!until()) {
      co_await loop_->Sleep(1000);
    }
  }
  void Rest(uint64_t us) {
    const auto rest = [](EventLoop& loop, uint64_t for_us) -> Task<void> {
      co_await loop.Sleep(for_us);
    };
    test::Await(*loop_, rest(*loop_, us));
  }
  void Until(std::function<bool()> holds) { test::Await(*loop_, Turns(std::move(holds))); }
  // Each has asked once, and was answered.
  void LetInAllThatThereIsRoomFor() {
    guests_.clear();
    for (size_t i = 0; i < kMostConnections; ++i) {
      Guest* const guest = &Come();
      guest->Ask("echo");
      Until([&] { return guest->Has(1); });
    }
  }
  Guest& Come() { return *guests_.emplace_back(std::make_unique<Guest>(path_)); }

  static constexpr uint64_t kSteps = 200'000;
  TemporaryDirectory directory_;
  std::string path_;
  std::unique_ptr<IoUringLoop> loop_;
  std::unique_ptr<ControlServer> server_;
  std::vector<std::unique_ptr<Guest>> guests_;
  bool may_end_ = false;
  bool worked_ = false;
  int begun_ = 0;
};

// Of those who have waited for nothing for long, as many as are needed, in the order in which they
// came. Who was answered just now is not among them, unless the machine stood still.
TEST_F(ControlRoom, WhoCameFirstGivesWayUnlessHeHasJustAsked) {
  constexpr size_t kNew = 10;
  bool stayed = false;
  for (int attempt = 0; attempt < 5 && !stayed; ++attempt) {
    LetInAllThatThereIsRoomFor();
    Rest(2'100'000);
    guests_[0]->Ask("echo");
    Until([&] { return guests_[0]->Has(2); });
    for (size_t i = 0; i < kNew; ++i) {
      Come().Ask("echo");
    }
    for (size_t i = kMostConnections; i < kMostConnections + kNew; ++i) {
      Until([&] { return guests_[i]->Has(1); });
      EXPECT_FALSE(guests_[i]->sent_away());
    }
    std::vector<size_t> away;
    for (size_t i = 0; i < guests_.size(); ++i) {
      if (guests_[i]->sent_away()) {
        away.push_back(i);
        Until([&] { return guests_[i]->Look(), guests_[i]->hung_up(); });
      }
    }
    EXPECT_EQ(away.size(), kNew) << "not all who only keep their connections";
    stayed = away == std::vector<size_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  }
  EXPECT_TRUE(stayed);
}

// What he is just asking is either carried out or not, and he knows which.
TEST_F(ControlRoom, WhatIsAskedByOneWhoIsSentAwayIsNotCarriedOut) {
  LetInAllThatThereIsRoomFor();
  Rest(2'100'000);
  const int before = begun_;
  Guest& newcomer = Come();
  guests_[0]->Ask("echo");
  newcomer.Ask("echo");
  Until([&] { return newcomer.Has(1); });
  Until([&] { return guests_[0]->Has(2); });
  Stop(UINT64_MAX / 2);
  EXPECT_EQ(begun_ - before, guests_[0]->sent_away() ? 1 : 2) << guests_[0]->text();
}

// Also if each has had an answer before.
TEST_F(ControlRoom, WhoIsAtWorkGivesNoWay) {
  LetInAllThatThereIsRoomFor();
  const int before = begun_;
  for (const auto& guest : guests_) {
    guest->Ask("wait");
  }
  Until([&] { return begun_ == before + static_cast<int>(kMostConnections); });
  Guest& newcomer = Come();
  Until([&] { return newcomer.Look(), newcomer.hung_up(); });
  EXPECT_EQ(newcomer.text(),
            "{\"ok\":false,\"error\":\"the serving process carries out 64 verbs already: try again "
            "when one has ended\",\"code\":\"busy\"}\n");
  may_end_ = true;
  for (size_t i = 0; i < kMostConnections; ++i) {
    Until([&] { return guests_[i]->Has(2); });
    EXPECT_FALSE(guests_[i]->sent_away());
  }
  Guest& next = Come();
  next.Ask("echo");
  Until([&] { return next.Has(1); });
  EXPECT_FALSE(next.sent_away());
}

// As many as there are.
class NoDescriptorLeft {
 public:
  NoDescriptorLeft() {
    int highest = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      highest = std::max(highest, std::stoi(entry.path().filename()));
    }
    while (fill_.empty() || fill_.back() < highest) {
      fill_.push_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    }
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    const rlimit limit{static_cast<rlim_t>(fill_.back()) + 1, before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  }
  ~NoDescriptorLeft() {
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before_), 0);
    for (const int fd : fill_) {
      ::close(fd);
    }
  }
  NoDescriptorLeft(const NoDescriptorLeft&) = delete;
  NoDescriptorLeft& operator=(const NoDescriptorLeft&) = delete;

 private:
  std::vector<int> fill_;
  rlimit before_{};
};

// Whoever comes then waits until there is one, and nobody is busy with him meanwhile.
TEST_F(ControlRoom, WhereNoDescriptorIsLeftTheNextIsLetInLater) {
  Guest& guest = Come();
  guest.Ask("echo");
  Until([&] { return guest.Has(1); });
  Guest& newcomer = Come();
  newcomer.Ask("echo");
  {
    const NoDescriptorLeft none;
    const uint64_t before = loop_->enters();
    Rest(500'000);
    EXPECT_LT(loop_->enters() - before, 200U);
    EXPECT_FALSE(newcomer.Has(1));
    guest.Ask("echo");
    Until([&] { return guest.Has(2); });
    EXPECT_FALSE(guest.sent_away()) << "there is room for more than come";
  }
  Until([&] { return newcomer.Has(1); });
  EXPECT_FALSE(newcomer.sent_away());
}

// Where there is none and no room either, the descriptor of him who gives way is taken, and no other.
TEST_F(ControlRoom, WhoGivesWayGivesHisDescriptor) {
  LetInAllThatThereIsRoomFor();
  Rest(2'100'000);
  Guest& newcomer = Come();
  newcomer.Ask("echo");
  const NoDescriptorLeft none;
  Until([&] { return newcomer.Has(1); });
  EXPECT_FALSE(newcomer.sent_away());
  EXPECT_TRUE(guests_[0]->sent_away());
  for (size_t i = 1; i < kMostConnections; ++i) {
    EXPECT_FALSE(guests_[i]->sent_away()) << i;
  }
}

// Descriptors may be fewer than places.
TEST_F(ControlRoom, WhereNoDescriptorIsLeftWhoKeepsOneForNothingGivesWay) {
  std::vector<Guest*> idle;
  for (int i = 0; i < 3; ++i) {
    idle.push_back(&Come());
    idle.back()->Ask("echo");
    Until([&] { return idle.back()->Has(1); });
  }
  Rest(2'100'000);
  Guest& newcomer = Come();
  newcomer.Ask("echo");
  const NoDescriptorLeft none;
  Until([&] { return newcomer.Has(1); });
  EXPECT_TRUE(idle[0]->sent_away()) << "who came first";
  EXPECT_FALSE(idle[1]->sent_away());
  EXPECT_FALSE(idle[2]->sent_away());
}

TEST_F(ControlRoom, WhoIsNotStoppedDoesNotEnd) {
  EXPECT_DEATH(server_.reset(), "a control server is destroyed before it was stopped");
}

// Who keeps his connection has his answer, and nobody waits any longer then.
TEST_F(ControlRoom, StoppingWaitsForAnswersAndNotForWhoKeepsHisConnection) {
  Guest& guest = Come();
  guest.Ask("echo");
  Until([&] { return guest.Has(1); });
  guest.Ask("wait");
  Until([&] { return begun_ == 2; });
  Stop(UINT64_MAX / 2);
  guest.Look();
  EXPECT_TRUE(guest.hung_up());
  EXPECT_EQ(guest.text(), "{\"ok\":true,\"result\":\"done\"}\n{\"ok\":true,\"result\":\"done\"}\n");
}

// One who does not read misses progress, and gets the answer all the same.
TEST_F(ControlRoom, ProgressDoesNotWaitForItsReader) {
  Guest& guest = Come();
  guest.Ask("work");
  Until([&] { return worked_; });
  Until([&] { return guest.Has(1) && guest.text().find("done") != std::string::npos; });
  const auto lines =
      static_cast<uint64_t>(std::count(guest.text().begin(), guest.text().end(), '\n'));
  EXPECT_GT(lines, 1U);
  EXPECT_LT(lines, kSteps) << "it was kept for him";
  EXPECT_EQ(guest.text().rfind("{\"progress\":[1,200000]}\n{\"progress\":[2,200000]}\n", 0), 0U);
  EXPECT_TRUE(guest.text().ends_with("}\n{\"ok\":true,\"result\":\"done\"}\n"));
  guest.Ask("echo");
  Until([&] { return guest.Has(lines + 1); });
}

// ---- where it cannot listen

TEST_F(ControlRoom, ItsFileIsItsOwnersAloneWhateverTheMask) {
  Stop(0);
  const mode_t mask = ::umask(0777);
  Listen();
  ::umask(mask);
  struct stat info {};
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600U);
}

class WhyNot : public ControlRoom {
 protected:
  std::string Refusal(const std::string& path) {
    const auto server =
        ControlServer::Listen(*loop_, path, [this](Json request, ProgressSink sink) {
          return Handle(std::move(request), std::move(sink));
        });
    EXPECT_FALSE(server.ok());
    return server.ok() ? "" : Told(server.error());
  }
  static std::string Told(const Error& error) {
    return std::string(ErrorCodeName(error.code)) + ": " + error.message;
  }
  void Mode(mode_t mode) { ::chmod(directory_.path().c_str(), mode); }
};

TEST_F(WhyNot, ItDoesNotListenIsSaidInALine) {
  const std::string here = directory_.path();
  EXPECT_EQ(Refusal(path_), "busy: another process serves this array at " + path_);
  const std::string longest = directory_ / std::string(108 - here.size() - 1, 'x');
  EXPECT_EQ(Refusal(longest), "invalid argument: control socket path is too long: " + longest);
  ASSERT_EQ(::mkdir((directory_ / "taken.sock").c_str(), 0700), 0);
  EXPECT_EQ(Refusal(directory_ / "taken.sock"),
            "io: cannot listen on the control socket " + directory_ / "taken.sock");
  ASSERT_EQ(::mkdir((directory_ / "b.server").c_str(), 0700), 0);
  EXPECT_EQ(Refusal(directory_ / "b.sock"), "io: cannot write " + directory_ / "b.server");
  EXPECT_EQ(Refusal(directory_ / "none/below/a.sock"),
            "io: cannot make " + (directory_ / "none/below") + " for the control socket");
  Mode(0770);
  EXPECT_EQ(Refusal(directory_ / "c.sock"),
            "invalid argument: control directory " + here +
                " must be a directory of yours that others cannot write; remove it");
  Mode(0700);
}

TEST_F(WhyNot, ADirectoryIsNotBelievedIsSaidInALine) {
  const auto checked = [&](const std::string& path) {
    const Status status = CheckControlDirectory(path);
    return status.ok() ? "ok" : Told(status.error());
  };
  const std::string here = directory_.path();
  EXPECT_EQ(checked(path_), "ok");
  EXPECT_EQ(checked(directory_ / "none/a.sock"), "not found: nobody serves this array");
  EXPECT_EQ(checked(path_ + "/x/a.sock"), "io: control directory " + path_ + "/x");
  Mode(0722);
  EXPECT_EQ(checked(path_), "unsupported: control directory " + here +
                                " can be written by others, so that nothing in it is believed; "
                                "look what is there, then chmod 700 " +
                                here);
  Mode(0700);
  const std::string us = std::to_string(::geteuid());
  EXPECT_EQ(checked(path_ + "/a.sock"),
            "unsupported: control directory " + path_ + " belongs to user " + us +
                ", so that nothing in it is believed; remove it, or set XDG_RUNTIME_DIR to a "
                "directory of your own");
}

// A process that serves for months asks and is asked often.
TEST_F(WhyNot, NoDescriptorIsLeftOpen) {
  const auto open = [] {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return std::distance(begin(all), end(all));
  };
  Stop(0);
  const auto before = open();
  EXPECT_EQ(ControlRequest(path_, {{"verb", "v"}}).error().code, ErrorCode::kNotFound);
  ASSERT_EQ(::mkdir(path_.c_str(), 0700), 0);
  EXPECT_FALSE(ControlRequest(path_, {{"verb", "v"}}).ok());
  EXPECT_EQ(Refusal(path_).rfind("io: ", 0), 0U);
  ASSERT_EQ(::rmdir(path_.c_str()), 0);
  ASSERT_EQ(::mkdir((directory_ / "a.server").c_str(), 0700), 0);
  EXPECT_EQ(Refusal(path_).rfind("io: ", 0), 0U);
  ASSERT_EQ(::rmdir((directory_ / "a.server").c_str()), 0);
  for (int round = 0; round < 3; ++round) {
    Listen();
    guests_.clear();
    Guest& guest = Come();
    guest.Ask("echo");
    Until([&] { return guest.Has(1); });
    EXPECT_EQ(Refusal(path_).rfind("busy: ", 0), 0U);
    Stop(0);
    guests_.clear();
  }
  EXPECT_EQ(open(), before);
}

}  // namespace
}  // namespace eplog
