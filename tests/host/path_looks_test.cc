// What is at paths, seen by other processes: each path has one answer, whoever looks keeps nothing
// of this process, and nobody has to be waited for. (Paths that hang: e2e/hangs_test.sh.)
#include "host/path_looks.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "device/file_device.h"
#include "tests/support/files.h"

namespace eplog {
namespace {

namespace fs = std::filesystem;

class PathLooking : public ::testing::Test {
 protected:
  std::string File(const std::string& name) {
    std::ofstream(directory_ / name) << "content";
    return directory_ / name;
  }
  static DeviceIdentity IdentityAt(const std::string& path) {
    struct stat info {};
    EXPECT_EQ(::stat(path.c_str(), &info), 0) << path;
    return IdentityOf(info);
  }
  // All that comes, by path; none twice.
  static std::map<size_t, std::optional<DeviceIdentity>> All(PathLooks& looks) {
    std::map<size_t, std::optional<DeviceIdentity>> all;
    while (const auto answer = looks.Next()) {
      EXPECT_TRUE(all.emplace(answer->path, answer->identity).second) << answer->path;
    }
    return all;
  }

  TemporaryDirectory directory_;
};

TEST_F(PathLooking, EachHasOneAnswer) {
  const std::string a = File("a");
  const std::string b = File("b");
  fs::create_symlink(a, directory_ / "link");
  ASSERT_EQ(::mkfifo((directory_ / "pipe").c_str(), 0600), 0);
  PathLooks looks({b, directory_ / "nothing", a, directory_ / "pipe", directory_.path(),
                   directory_ / "link", "/dev/null"});
  const auto all = All(looks);
  ASSERT_EQ(all.size(), 7U);
  EXPECT_EQ(all.at(0), IdentityAt(b));
  EXPECT_EQ(all.at(1), std::nullopt);
  EXPECT_EQ(all.at(2), IdentityAt(a));
  EXPECT_EQ(all.at(3), std::nullopt);
  EXPECT_EQ(all.at(4), std::nullopt);
  EXPECT_EQ(all.at(5), IdentityAt(a));
  EXPECT_EQ(all.at(6), std::nullopt);
  EXPECT_FALSE(looks.Next());
}

TEST_F(PathLooking, NoPathsHaveNone) {
  PathLooks looks({});
  EXPECT_FALSE(looks.Next());
}

TEST_F(PathLooking, WhoLooksIsNoChildOfThisProcess) {
  PathLooks looks({File("a")});
  EXPECT_EQ(All(looks).size(), 1U);
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

// A pipe that this process closes is at its end, whether or not anybody still looks.
TEST_F(PathLooking, WhoLooksKeepsNoPipeOpen) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  PathLooks looks(std::vector<std::string>(1000, File("a")));
  ASSERT_TRUE(looks.Next());
  ::close(ends[1]);
  char byte = 0;
  EXPECT_EQ(::read(ends[0], &byte, 1), 0);
  ::close(ends[0]);
}

TEST_F(PathLooking, ManyAreAnsweredWhoeverStopsAsking) {
  const std::vector<std::string> paths(1500, File("a"));
  {
    PathLooks given_up(paths);
    EXPECT_TRUE(given_up.Next());
  }
  PathLooks looks(paths);
  EXPECT_EQ(All(looks).size(), paths.size());
}

TEST_F(PathLooking, WithoutAPipeThereIsNoAnswer) {
  const std::string a = File("a");
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit none{0, limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  PathLooks looks({a});
  const auto answer = looks.Next();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_FALSE(answer);
}

}  // namespace
}  // namespace eplog
