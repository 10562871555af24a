// A block device as a device of an array: what is said of a file is said of it too.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "host/device_content.h"
#include "host/path_looks.h"
#include "tests/device/real_files.h"
#include "tests/host/member_superblock.h"
#include "tests/support/temp_dir.h"

namespace eplog {
namespace {

constexpr uint64_t kBlockDeviceBytes = uint64_t{8} << 20;

// A loop device over a file that holds this, and zeros.
std::filesystem::path BackingFile(const TempDir& dir, const std::vector<std::byte>& bytes) {
  const auto path = dir.WriteSparse("backing", kBlockDeviceBytes);
  std::fstream(path, std::ios::in | std::ios::out | std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  return path;
}

// A path is not enough to hold it: its node goes with its driver.
TEST(BlockDevice, TellsItsSizeAndIsHeldOpen) {
  const TempDir dir;
  std::vector<std::byte> bytes(kSuperblockCopyBytes);
  EncodeSuperblock(MemberSuperblock(), bytes);
  const auto file = BackingFile(dir, bytes);
  const test::LoopDevice loop(file);
  if (!loop.trouble().empty()) {
    GTEST_SKIP() << loop.trouble();
  }
  const auto probed = ProbeDevice(loop.path());
  ASSERT_TRUE(probed.ok()) << probed.error().ToString();
  EXPECT_TRUE(probed->block);
  EXPECT_TRUE(probed->identity.block);
  EXPECT_EQ(probed->size_bytes, kBlockDeviceBytes);
  EXPECT_EQ(probed->disk_bytes, 0U) << "it is no file";
  EXPECT_EQ(::fcntl(probed->held->get(), F_GETFL) & O_PATH, 0);
  EXPECT_TRUE(OpenProbed(loop.path(), *probed).ok());
  const auto superblock = ReadSuperblock(loop.path(), *probed);
  ASSERT_TRUE(superblock.ok()) << superblock.error().ToString();
  EXPECT_EQ(superblock->DeviceName(), "ssd1");
  EXPECT_EQ(ReadSuperblock(loop.path())->DeviceName(), "ssd1");
  EXPECT_EQ(FindContent(loop.path(), *probed).value_or(""),
            "a member (ssd1) of the EPLOG array 'demo', 0a0a0a0a-0a0a-0a0a-0a0a-0a0a0a0a0a0a");
}

// Also the last MiB is looked at.
TEST(BlockDevice, IsEmptyOrHoldsData) {
  const TempDir dir;
  const auto file = BackingFile(dir, {});
  for (const bool empty : {true, false}) {
    if (!empty) {
      std::fstream data(file, std::ios::in | std::ios::out | std::ios::binary);
      data.seekp(static_cast<std::streamoff>(kBlockDeviceBytes) - 1);
      data << 'x';
    }
    const test::LoopDevice loop(file);
    if (!loop.trouble().empty()) {
      GTEST_SKIP() << loop.trouble();
    }
    const auto probed = ProbeDevice(loop.path());
    ASSERT_TRUE(probed.ok()) << probed.error().ToString();
    EXPECT_EQ(FindContent(loop.path(), *probed).value_or("an error"), empty ? "" : "data");
  }
}

TEST(BlockDevice, IsTheSameByEveryNode) {
  const TempDir dir;
  const auto file = BackingFile(dir, {});
  const test::LoopDevice loop(file);
  if (!loop.trouble().empty()) {
    GTEST_SKIP() << loop.trouble();
  }
  struct stat info {};
  ASSERT_EQ(::stat(loop.path().c_str(), &info), 0);
  const std::string node = dir.path() / "node";
  if (::mknod(node.c_str(), S_IFBLK | 0600, info.st_rdev) != 0) {
    GTEST_SKIP() << "needs root: device nodes";
  }
  const DeviceIdentity device{true, info.st_rdev, 0};
  EXPECT_EQ(*IdentifyDevice(loop.path()), device);
  EXPECT_EQ(*IdentifyDevice(node), device);
  EXPECT_FALSE(*IdentifyDevice(file) == device) << "what it lies on is another";
  const auto seen =
      PathLooks::At({node, loop.path()}, PathLooks::Clock::now() + std::chrono::minutes(10));
  ASSERT_TRUE(seen.ok());
  EXPECT_EQ(*seen, (std::vector<std::optional<DeviceIdentity>>{device, device}));
}

}  // namespace
}  // namespace eplog
