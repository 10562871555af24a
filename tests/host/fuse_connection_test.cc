// The connection of a mount to who serves it: known by its number, and cut with or without the file
// system in which the kernel lists connections; each in a process that sees its own mounts. What is
// mounted is served by nobody: whoever asked it anything would wait for ever.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <string>
#include <vector>

#include "base/file_descriptor.h"
#include "host/fuse_mount.h"
#include "host/mount_table.h"
#include "tests/support/no_threads.h"
#include "tests/support/temp_dir.h"

namespace eplog {
namespace {

constexpr char kConnections[] = "/sys/fs/fuse/connections";

bool SeesItsOwnMounts() {
  return ::unshare(CLONE_NEWNS) == 0 &&
         ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
}

bool CannotMount() {
  return ::geteuid() != 0 || ::access("/dev/fuse", W_OK) != 0;
}

class Mount {
 public:
  explicit Mount(const char* type = "fuse.eplog")
      : fd_(::open("/dev/fuse", O_RDWR | O_NONBLOCK | O_CLOEXEC)) {
    const std::string options =
        "fd=" + std::to_string(fd_.get()) + ",rootmode=40000,user_id=0,group_id=0";
    EXPECT_EQ(::mount("array", path().c_str(), type, 0, options.c_str()), 0);
  }
  ~Mount() { ::umount2(path().c_str(), MNT_DETACH); }
  Mount(const Mount&) = delete;
  Mount& operator=(const Mount&) = delete;

  [[nodiscard]] std::string path() const { return dir_.path(); }
  // Of what was mounted there last.
  [[nodiscard]] dev_t device() const {
    dev_t device = 0;
    for (const MountLine& line : ReadMounts()) {
      device = line.directory == path() ? line.device : device;
    }
    return device;
  }
  [[nodiscard]] bool connected() const {
    std::array<char, 65536> request{};
    return ::read(fd_.get(), request.data(), request.size()) >= 0 || errno != ENODEV;
  }
  [[nodiscard]] bool there() const { return FindMountOn(path()).has_value(); }

 private:
  TempDir dir_;
  FileDescriptor fd_;
};

void IsCutWhereTheKernelListsConnections() {
  ASSERT_TRUE(SeesItsOwnMounts());
  ASSERT_EQ(::mount("none", kConnections, "fusectl", 0, nullptr), 0);
  const Mount one;
  const Mount other;
  EXPECT_EQ(MountedDevice(one.path()), one.device());
  const auto connection = ConnectionOf(one.device());
  ASSERT_TRUE(connection.has_value());
  struct stat listed {};
  ASSERT_EQ(
      ::stat((std::string(kConnections) + "/" + std::to_string(::minor(one.device()))).c_str(),
             &listed),
      0);
  EXPECT_EQ(*connection, listed.st_ino);
  EXPECT_EQ(ConnectionOf(one.device()), connection) << "it stays the same";
  EXPECT_NE(ConnectionOf(other.device()), connection);
  EXPECT_FALSE(ConnectionOf(::makedev(0, 0xFFFFF)).has_value());
  EXPECT_TRUE(CutConnection(one.device()));
  EXPECT_FALSE(one.connected());
  EXPECT_TRUE(one.there()) << "dead, until it is unmounted";
  EXPECT_TRUE(other.connected());
  EXPECT_TRUE(MountIsDead(one.path()));
  EXPECT_TRUE(PrepareMountpoint(one.path()).ok()) << "which whoever mounts there does";
  EXPECT_FALSE(one.there());
}

void IsCutWhereTheKernelListsNone() {
  ASSERT_TRUE(SeesItsOwnMounts());
  while (::umount2(kConnections, MNT_DETACH) == 0) {
  }
  const Mount one;
  const Mount other;
  const Mount anothers("fuse.other");
  EXPECT_FALSE(ConnectionOf(one.device()).has_value());
  EXPECT_FALSE(CutConnection(anothers.device())) << "it is not ours";
  EXPECT_TRUE(anothers.connected());
  EXPECT_TRUE(CutConnection(one.device()));
  EXPECT_FALSE(one.connected());
  EXPECT_TRUE(one.there()) << "it is cut and stays";
  EXPECT_TRUE(other.connected());
  // By its path something else is reached.
  const dev_t covered = other.device();
  ASSERT_EQ(::mount("cover", other.path().c_str(), "tmpfs", 0, nullptr), 0);
  EXPECT_FALSE(CutConnection(covered));
  EXPECT_TRUE(other.connected());
  ASSERT_EQ(::umount2(other.path().c_str(), MNT_DETACH), 0);
  // Reached in two places, of which one is covered.
  const TempDir elsewhere;
  ASSERT_EQ(::mount(other.path().c_str(), elsewhere.path().c_str(), nullptr, MS_BIND, nullptr), 0);
  ASSERT_EQ(::mount("cover", other.path().c_str(), "tmpfs", 0, nullptr), 0);
  EXPECT_TRUE(CutConnection(covered));
  EXPECT_FALSE(other.connected());
  ASSERT_EQ(::umount2(elsewhere.path().c_str(), MNT_DETACH), 0);
  ASSERT_EQ(::umount2(other.path().c_str(), MNT_DETACH), 0);
}

// The last that was mounted there, and the last that is of this array.
void IsFoundByWhereAndWhat() {
  ASSERT_TRUE(SeesItsOwnMounts());
  const Mount one;
  const dev_t below = one.device();
  const FileDescriptor fd(::open("/dev/fuse", O_RDWR | O_NONBLOCK | O_CLOEXEC));
  const std::string options =
      "fd=" + std::to_string(fd.get()) + ",rootmode=40000,user_id=0,group_id=0";
  ASSERT_EQ(::mount("second", one.path().c_str(), "fuse.eplog", 0, options.c_str()), 0);
  EXPECT_NE(one.device(), below);
  EXPECT_EQ(MountedDevice(one.path()), one.device()) << "what was mounted last";
  ASSERT_TRUE(FindMountOn(one.path()).has_value());
  EXPECT_EQ(FindMountOn(one.path())->source, "second");
  ASSERT_TRUE(FindMountOf("array").has_value());
  EXPECT_EQ(FindMountOf("array")->device, below);
  EXPECT_EQ(MountDevicesOf("array"), std::vector<dev_t>{below});
  EXPECT_FALSE(FindMountOf("third").has_value());
  const Mount again;
  EXPECT_EQ(FindMountOf("array")->directory, again.path());
  EXPECT_EQ(MountDevicesOf("array"), (std::vector<dev_t>{below, again.device()}));
  const Mount anothers("fuse.other");
  EXPECT_EQ(MountedDevice(anothers.path()), 0U);
  EXPECT_FALSE(FindMountOn(anothers.path()).has_value());
  EXPECT_EQ(FindMountOf("array")->directory, again.path());
  ASSERT_EQ(::umount2(one.path().c_str(), MNT_DETACH), 0);
}

TEST(ConnectionsDeathTest, AreCut) {
  if (CannotMount()) {
    GTEST_SKIP() << "needs root and /dev/fuse";
  }
  EPLOG_IN_A_PROCESS(IsCutWhereTheKernelListsConnections);
  EPLOG_IN_A_PROCESS(IsCutWhereTheKernelListsNone);
}

TEST(ConnectionsDeathTest, MountsAreFoundByWhereAndWhat) {
  if (CannotMount()) {
    GTEST_SKIP() << "needs root and /dev/fuse";
  }
  EPLOG_IN_A_PROCESS(IsFoundByWhereAndWhat);
}

}  // namespace
}  // namespace eplog
