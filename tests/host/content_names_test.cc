// What others have put on a device is said as people call it before it is overwritten.
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include "host/device_content.h"
#include "tests/support/temp_dir.h"

namespace eplog {
namespace {

using namespace std::string_literals;

constexpr uint64_t kDeviceBytes = uint64_t{64} << 20;  // less is too small for a member of ZFS

class ContentNames : public testing::Test {
 protected:
  ContentNames() : path_(dir_.WriteSparse("device", kDeviceBytes)) {}
  void Put(uint64_t at, const std::string& bytes) const {
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(at));
    file << bytes;
  }
  [[nodiscard]] std::string Found() const {
    const auto probed = ProbeDevice(path_);
    EXPECT_TRUE(probed.ok());
    return FindContent(path_, *probed).value_or("an error");
  }

  TempDir dir_;
  std::filesystem::path path_;
};

TEST_F(ContentNames, AnLvmPhysicalVolume) {
  Put(512, "LABELONE"s + "\1\0\0\0\0\0\0\0"s + "\x73\xAC\xA8\x28"s + "\x20\0\0\0"s + "LVM2 001");
  EXPECT_EQ(Found(), "an LVM physical volume");
}

TEST_F(ContentNames, AMemberOfZfs) {
  constexpr uint64_t kUberblocks = 128 << 10;
  for (uint64_t i = 0; i < 8; ++i) {
    Put(kUberblocks + i * 1024, "\x0C\xB1\xBA\0\0\0\0\0"s + "\x88\x13\0\0\0\0\0\0"s);
  }
  EXPECT_EQ(Found(), "a ZFS member");
}

// What has no common name is called by its own.
TEST_F(ContentNames, AnotherFileSystem) {
  Put(0x10040, "_BHRfS_M");
  EXPECT_EQ(Found(), "a btrfs file system");
}

}  // namespace
}  // namespace eplog
