// Whoever looks at paths for this process has nothing of it: what hangs keeps nobody else's pipe,
// folder or terminal.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <new>
#include <optional>
#include <set>
#include <span>
#include <string>

#include "base/file_descriptor.h"
#include "host/path_looks.h"
#include "tests/support/temp_dir.h"

namespace eplog {
namespace {

// Of the process that looks.
struct LookerState {
  int descriptors;
  bool at_root;
  pid_t session;
};

std::optional<DeviceIdentity> LookAtItself(const std::string& /*path*/,
                                           std::span<std::byte> content) {
  constexpr int kMost = 1024;
  auto& state = *new (content.data()) LookerState{};
  for (int fd = 0; fd < kMost; ++fd) {
    state.descriptors += ::fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
  }
  std::array<char, 16> folder{};
  state.at_root =
      ::getcwd(folder.data(), folder.size()) != nullptr && std::strcmp(folder.data(), "/") == 0;
  state.session = ::getsid(0);
  return std::nullopt;
}

// How many of the paths have answered.
size_t AnswersOf(PathLooks& looks) {
  size_t count = 0;
  auto answer = looks.Next(PathLooks::Clock::now() + std::chrono::minutes(10));
  while (answer.ok() && *answer) {
    ++count;
    answer = looks.Next(PathLooks::Clock::now() + std::chrono::minutes(10));
  }
  return count;
}

// Children of this thread, also those that have ended and were not waited for.
std::set<pid_t> ChildrenOfThis() {
  std::ifstream file("/proc/thread-self/children");
  return {std::istream_iterator<pid_t>(file), std::istream_iterator<pid_t>()};
}

std::optional<DeviceIdentity> WaitForAWriter(const std::string& path,
                                             std::span<std::byte> /*content*/) {
  ::close(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  return std::nullopt;
}

// Its one descriptor is for its answers.
TEST(LookerAlone, HasNothingOpenAndIsNowhere) {
  const TempDir dir;
  const std::filesystem::path before = std::filesystem::current_path();
  const FileDescriptor file(::open(dir.Write("file", "x").c_str(), O_RDONLY | O_CLOEXEC));
  const FileDescriptor low(::open("/dev/null", O_RDONLY));
  const FileDescriptor high(::fcntl(file.get(), F_DUPFD, 700));
  std::filesystem::current_path(dir.path());
  auto looks = PathLooks::Begin({"/a", "/b"}, LookAtItself, sizeof(LookerState));
  std::filesystem::current_path(before);
  ASSERT_TRUE(looks.ok());
  ASSERT_EQ(AnswersOf(*looks), 2U);
  for (const size_t path : {size_t{0}, size_t{1}}) {
    LookerState seen{};
    ASSERT_EQ(looks->content(path).size(), sizeof seen);
    std::memcpy(&seen, looks->content(path).data(), sizeof seen);
    EXPECT_EQ(seen.descriptors, 1);
    EXPECT_TRUE(seen.at_root);
    EXPECT_NE(seen.session, 0);
    EXPECT_NE(seen.session, ::getsid(0)) << "it is ended with its kin, and nobody else";
  }
}

// Wherever it has come to by then: it may not have begun to look.
TEST(LookerAlone, EndsWhenNobodyAsksAnyMore) {
  if (!std::filesystem::exists("/proc/thread-self/children")) {
    GTEST_SKIP() << "this kernel does not list children";
  }
  const TempDir dir;
  const std::string pipe = dir.path() / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const std::set<pid_t> before = ChildrenOfThis();
  std::set<pid_t> left;
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(PathLooks::Begin({pipe}, WaitForAWriter).ok());
    left.merge(ChildrenOfThis());
  }
  std::erase_if(left, [&](pid_t child) { return before.contains(child); });
  const auto any_is_left = [&] {
    const std::set<pid_t> now = ChildrenOfThis();
    return std::any_of(left.begin(), left.end(), [&](pid_t child) { return now.contains(child); });
  };
  for (int i = 0; i < 60'000 && any_is_left(); ++i) {
    ::usleep(1000);
    ASSERT_TRUE(PathLooks::Begin({}).ok());  // which reaps
  }
  EXPECT_FALSE(any_is_left());
}

TEST(LookerAlone, ShowsAsMuchAsWasAskedFor) {
  const auto fill = [](const std::string& path, std::span<std::byte> content) {
    for (std::byte& byte : content) {
      byte = static_cast<std::byte>(path.back());
    }
    return std::optional<DeviceIdentity>();
  };
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{2}}) {
    auto looks = PathLooks::Begin({"/a"}, fill, bytes);
    ASSERT_TRUE(looks.ok()) << bytes;
    ASSERT_EQ(AnswersOf(*looks), 1U) << bytes;
    const std::span<const std::byte> content = looks->content(0);
    ASSERT_EQ(content.size(), bytes);
    for (const std::byte byte : content) {
      EXPECT_EQ(byte, static_cast<std::byte>('a'));
    }
  }
}

}  // namespace
}  // namespace eplog
