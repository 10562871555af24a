// What is at paths, seen by another process: each path has one answer, one that hangs keeps nobody
// from the others and nobody from ending, and whoever looks keeps nothing of this process.
#include "host/path_looks.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "device/file_device.h"
#include "tests/support/files.h"

namespace eplog {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

// Patience of a test that expects an answer, and of one that expects none.
PathLooks::Clock::time_point Long() {
  return PathLooks::Clock::now() + 10min;
}
PathLooks::Clock::time_point Short() {
  return PathLooks::Clock::now() + 50ms;
}

// Hangs at a pipe that nobody has opened for writing.
std::optional<DeviceIdentity> OpenToLook(const std::string& path, std::span<std::byte> content) {
  const File file(path, O_RDONLY);
  return PathLooks::LookAt(path, content);
}

std::optional<DeviceIdentity> DieLooking(const std::string& /*path*/,
                                         std::span<std::byte> /*content*/) {
  ::_exit(1);
}

class PathLooking : public ::testing::Test {
 protected:
  std::string Ordinary(const std::string& name) {
    std::ofstream(directory_ / name) << "content";
    return directory_ / name;
  }
  std::string Pipe(const std::string& name) {
    EXPECT_EQ(::mkfifo((directory_ / name).c_str(), 0600), 0);
    return directory_ / name;
  }
  static DeviceIdentity IdentityAt(const std::string& path) {
    struct stat info {};
    EXPECT_EQ(::stat(path.c_str(), &info), 0) << path;
    return IdentityOf(info);
  }
  // The next so many, by path; none twice.
  using Answers = std::map<size_t, std::optional<DeviceIdentity>>;
  static Answers Next(PathLooks& looks, size_t count) {
    Answers all;
    for (size_t i = 0; i < count; ++i) {
      const auto answer = looks.Next(Long());
      if (!answer.ok() || !*answer) {
        ADD_FAILURE() << "answer " << i;
        break;
      }
      EXPECT_TRUE(all.emplace((*answer)->path, (*answer)->identity).second) << (*answer)->path;
    }
    return all;
  }
  static bool NoneComes(PathLooks& looks, PathLooks::Clock::time_point until) {
    const auto answer = looks.Next(until);
    return answer.ok() && !*answer;
  }

  TemporaryDirectory directory_;
};

TEST_F(PathLooking, EachHasOneAnswer) {
  const std::string a = Ordinary("a");
  const std::string b = Ordinary("b");
  fs::create_symlink(a, directory_ / "link");
  auto looks = PathLooks::Begin({b, directory_ / "nothing", a, Pipe("pipe"), directory_.path(),
                                 directory_ / "link", "/dev/null"});
  ASSERT_TRUE(looks.ok());
  const Answers all = Next(*looks, 7);
  ASSERT_EQ(all.size(), 7U);
  EXPECT_EQ(all.at(0), IdentityAt(b));
  EXPECT_EQ(all.at(1), std::nullopt);
  EXPECT_EQ(all.at(2), IdentityAt(a));
  EXPECT_EQ(all.at(3), std::nullopt);
  EXPECT_EQ(all.at(4), std::nullopt);
  EXPECT_EQ(all.at(5), IdentityAt(a));
  EXPECT_EQ(all.at(6), std::nullopt);
  EXPECT_TRUE(NoneComes(*looks, Long()));
}

TEST_F(PathLooking, NoPathsHaveNone) {
  auto looks = PathLooks::Begin({});
  ASSERT_TRUE(looks.ok());
  EXPECT_TRUE(NoneComes(*looks, Long()));
}

// Nor this process's pipes open, while it hangs.
TEST_F(PathLooking, OneThatHangsKeepsNobodyFromTheOthers) {
  const std::string a = Ordinary("a");
  const std::string pipe = Pipe("pipe");
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  auto looks = PathLooks::Begin({pipe, a, pipe, a}, OpenToLook);
  ASSERT_TRUE(looks.ok());
  const Answers first = Next(*looks, 2);
  EXPECT_TRUE(first.contains(1) && first.contains(3));
  EXPECT_TRUE(NoneComes(*looks, Short()));
  ::close(ends[1]);
  char byte = 0;
  EXPECT_EQ(::read(ends[0], &byte, 1), 0);
  ::close(ends[0]);
  const File opened(pipe, O_RDWR);
  const Answers late = Next(*looks, 2);
  EXPECT_TRUE(late.contains(0) && late.contains(2));
  EXPECT_TRUE(NoneComes(*looks, Long()));
}

// Nor does one stay that a signal can end, though nothing ever comes of what it waits for.
TEST_F(PathLooking, NobodyWaitsForOneThatIsLeftBehind) {
  constexpr char kChildren[] = "/proc/thread-self/children";
  if (!fs::exists(kChildren)) {
    GTEST_SKIP() << "this kernel does not list children";
  }
  const std::string pipe = Pipe("pipe");
  const auto children = [&] {
    std::ifstream file(kChildren);
    return std::set<pid_t>(std::istream_iterator<pid_t>(file), {});
  };
  const std::set<pid_t> before = children();
  {
    auto looks = PathLooks::Begin({pipe}, OpenToLook);
    ASSERT_TRUE(looks.ok());
    EXPECT_TRUE(NoneComes(*looks, Short()));
  }
  const auto somebody_reads = [&] {
    const int writer = ::open(pipe.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    return writer >= 0 && ::close(writer) == 0;
  };
  std::set<pid_t> left = children();
  std::erase_if(left, [&](pid_t child) { return before.contains(child); });
  const auto somebody_is_left = [&] {  // of these: each look below leaves one of its own
    const std::set<pid_t> now = children();
    return std::any_of(left.begin(), left.end(), [&](pid_t child) { return now.contains(child); });
  };
  while (somebody_is_left() || somebody_reads()) {
    ::usleep(1000);
    ASSERT_TRUE(PathLooks::Begin({}).ok());  // which reaps
  }
}

TEST_F(PathLooking, AtSeveralPathsAtOnceUntilATime) {
  const std::string a = Ordinary("a");
  const auto there = PathLooks::At({Pipe("pipe"), a, directory_ / "nothing"}, Long());
  ASSERT_TRUE(there.ok());
  EXPECT_EQ(*there, (std::vector<std::optional<DeviceIdentity>>{{}, IdentityAt(a), {}}));
}

// What has been answered by then counts; what has not is not waited for.
TEST_F(PathLooking, ATimeThatHasPassedIsNotWaitedFor) {
  auto looks = PathLooks::Begin({Pipe("pipe"), Ordinary("a")}, OpenToLook);
  ASSERT_TRUE(looks.ok());
  ASSERT_EQ(Next(*looks, 1).size(), 1U);
  EXPECT_TRUE(NoneComes(*looks, PathLooks::Clock::now() - 10min));
}

// Signals that somebody else handles neither end the wait nor are an answer.
TEST_F(PathLooking, ASignalIsNoAnswer) {
  struct sigaction noted {};
  struct sigaction before {};
  noted.sa_handler = [](int) {};
  ASSERT_EQ(::sigaction(SIGUSR1, &noted, &before), 0);  // calls are not begun again
  const std::string pipe = Pipe("pipe");
  auto looks = PathLooks::Begin({pipe}, OpenToLook);
  ASSERT_TRUE(looks.ok());
  const pthread_t here = ::pthread_self();
  std::thread others([&] {
    for (int i = 0; i < 100; ++i) {
      ::pthread_kill(here, SIGUSR1);
      std::this_thread::sleep_for(1ms);
    }
    const File opened(pipe, O_RDWR);
    ::pthread_kill(here, SIGUSR1);
    while (::access((directory_ / "end").c_str(), F_OK) != 0) {
      std::this_thread::sleep_for(1ms);
    }
  });
  const auto answer = looks->Next(Long());
  Ordinary("end");
  others.join();
  ASSERT_TRUE(answer.ok()) << answer.error().ToString();
  EXPECT_TRUE(*answer);
  EXPECT_EQ(::sigaction(SIGUSR1, &before, nullptr), 0);
}

// Each has room of its own, zero at first.
TEST_F(PathLooking, WhatMoreIsSeenIsShared) {
  constexpr size_t kBytes = 3000;
  const auto fill = [](const std::string& path, std::span<std::byte> content) {
    if (path.back() != 'b') {
      std::fill(content.begin(), content.end(), static_cast<std::byte>(path.back()));
    }
    return std::optional<DeviceIdentity>();
  };
  auto looks = PathLooks::Begin({"/a", "/b", "/c"}, fill, kBytes);
  ASSERT_TRUE(looks.ok());
  ASSERT_EQ(Next(*looks, 3).size(), 3U);
  const PathLooks moved(std::move(*looks));
  const auto is_all = [](std::span<const std::byte> content, char byte) {
    return content.size() == kBytes &&
           std::all_of(content.begin(), content.end(),
                       [byte](std::byte b) { return b == static_cast<std::byte>(byte); });
  };
  EXPECT_TRUE(is_all(moved.content(0), 'a'));
  EXPECT_TRUE(is_all(moved.content(1), 0));
  EXPECT_TRUE(is_all(moved.content(2), 'c'));
}

TEST_F(PathLooking, WhoIsKilledLookingIsNoAnswer) {
  auto looks = PathLooks::Begin({Ordinary("a")}, DieLooking);
  ASSERT_TRUE(looks.ok());
  const auto answer = looks->Next(Long());
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code, ErrorCode::kIo);
}

// Nor is anybody who hangs waited for then.
TEST_F(PathLooking, WhoIsKilledTakesTheOthersAlong) {
  const auto die_or_hang = [](const std::string& path, std::span<std::byte> content) {
    return path == "/die" ? DieLooking(path, content) : OpenToLook(path, content);
  };
  auto looks = PathLooks::Begin({Pipe("pipe"), "/die"}, die_or_hang);
  ASSERT_TRUE(looks.ok());
  const auto answer = looks->Next(Long());
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code, ErrorCode::kIo);
}

TEST_F(PathLooking, WithoutAPipeNobodyLooks) {
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit none{0, limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const auto looks = PathLooks::Begin({directory_.path()});
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  ASSERT_FALSE(looks.ok());
  EXPECT_NE(looks.error().message.find("cannot look at the members"), std::string::npos);
}

}  // namespace
}  // namespace eplog
