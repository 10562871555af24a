// A log device whose journal is gone with it is given up only by who names it: by its name, by the
// path where it is listed, or by the path where it lies by now.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "host/device_content.h"
#include "host/session.h"
#include "tests/host/member_superblock.h"
#include "tests/support/temp_dir.h"

namespace eplog {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMemberBytes = uint64_t{16} << 20;

// A 2+1 array with its journal on the log device alone, killed with entries in it; that device was
// moved to a place that array.toml does not list.
class WithoutLogs : public testing::Test {
 protected:
  void SetUp() override {
    if (!IoUringLoop::Create().ok()) {
      GTEST_SKIP() << "needs io_uring";
    }
    file_.file = dir_.path() / kArrayFileName;
    file_.name = "demo";
    Create();
    auto session = Session::Open("test", file_, MemberOptions());
    ASSERT_TRUE(session.ok()) << session.error().message;
    Array& array = (*session)->array();
    const auto volume = (*session)->Run(array.CreateVolume("v", 1 << 20));
    ASSERT_TRUE(volume.ok());
    const std::vector<std::byte> bytes(4096, std::byte{7});
    ASSERT_TRUE((*session)->Run(array.Write(*volume, 0, bytes)).ok());
    ASSERT_TRUE((*session)->Run(array.FlushAll()).ok());
    session->reset();
    fs::rename(At("log0"), At("moved"));
  }
  void Create() {
    auto loop = IoUringLoop::Create();
    std::vector<std::unique_ptr<FileDevice>> devices;
    std::vector<Device*> members;
    for (const char* member : {"ssd0", "ssd1", "ssd2", "log0"}) {
      auto device = FileDevice::Open(**loop, dir_.WriteSparse(member, kMemberBytes).string());
      ASSERT_TRUE(device.ok());
      members.push_back(device->get());
      devices.push_back(std::move(*device));
      file_.members.push_back({member, member});
    }
    CreateOptions options;
    options.parity = 1;
    options.journal = JournalMode::kLog;
    options.entropy = Entropy();
    ASSERT_TRUE(RunTask(**loop, Array::Create(**loop, {members.begin(), members.end() - 1},
                                              {members.back()}, options))
                    .ok());
    devices.clear();
    file_.uuid = UuidToString(ReadSuperblock(At("ssd0"))->array_uuid);
    ASSERT_TRUE(WriteArrayFile(file_).ok());
  }
  [[nodiscard]] bool OpensWithout(const std::string& device) const {
    MemberOptions options;
    options.read_only = true;
    options.without = {device};
    return Session::Open("test", file_, options).ok();
  }
  // What is at "other" says this of itself.
  void PutOther(const Superblock& superblock) const {
    std::string bytes(kSuperblockCopyBytes, '\0');
    EncodeSuperblock(superblock, std::as_writable_bytes(std::span(bytes.data(), bytes.size())));
    dir_.Write("other", bytes);
  }
  [[nodiscard]] std::string At(const std::string& name) const { return dir_.path() / name; }

  TempDir dir_;
  ArrayFile file_;
};

TEST_F(WithoutLogs, ItIsKnownWhereverItLies) {
  EXPECT_FALSE(OpensWithout("log1")) << "there is no such";
  EXPECT_TRUE(OpensWithout("log0"));
  EXPECT_TRUE(OpensWithout(At("log0")));
  EXPECT_TRUE(OpensWithout(At("moved")));
}

// A log device of another array, a spare of this one, or an SSD is not what was named.
TEST_F(WithoutLogs, NothingElseStandsForIt) {
  Superblock log = *ReadSuperblock(At("moved"));
  ASSERT_EQ(log.DeviceName(), "log0");
  PutOther(log);
  ASSERT_TRUE(OpensWithout(At("other"))) << "as a copy of it would";
  for (const uint8_t byte : {uint8_t{0}, uint8_t{0xFF}}) {  // below and above it
    log.array_uuid = UuidOf(byte);
    PutOther(log);
    EXPECT_FALSE(OpensWithout(At("other"))) << int{byte};
  }
  PutOther(SpareSuperblock(*ReadSuperblock(At("moved")), UuidOf(7)));
  EXPECT_FALSE(OpensWithout(At("other"))) << "a spare";
  for (const std::string& name : {At("ssd1"), std::string("ssd1"), At("none")}) {
    EXPECT_FALSE(OpensWithout(name)) << name;
  }
}

}  // namespace
}  // namespace eplog
