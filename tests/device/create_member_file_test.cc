#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <vector>

#include "device/file_device.h"
#include "tests/device/device_util.h"
#include "tests/device/real_files.h"

namespace eplog {
namespace {

using test::Await;

constexpr uint64_t kSize = (uint64_t{5} << 20) + 4096;  // not whole pieces

class CreateMemberFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto made = IoUringLoop::Create(64);
    if (!made.ok() && made.error().code == ErrorCode::kUnsupported) {
      GTEST_SKIP() << made.error().ToString();
    }
    ASSERT_TRUE(made.ok());
    loop_ = std::move(*made);
  }
  Status Create(const std::string& path, uint64_t size, const CreateFileOptions& options = {}) {
    auto made = Await(*loop_, CreateMemberFile(*loop_, path, size, options));
    if (!made.ok()) {
      return Fail(std::move(made).error());
    }
    struct stat file {};
    EXPECT_EQ(::stat(path.c_str(), &file), 0);
    EXPECT_EQ(*made == IdentityOf(file), true);
    return OkStatus();
  }

  std::unique_ptr<IoUringLoop> loop_;
  test::TempFolder folder_{::testing::TempDir()};
  std::string path_ = folder_.File("member");
};

TEST_F(CreateMemberFileTest, WritesZerosOutAndTellsProgress) {
  std::vector<uint64_t> done;
  CreateFileOptions options;
  options.progress = [&](uint64_t done_bytes, uint64_t total_bytes) {
    EXPECT_EQ(total_bytes, kSize);
    done.push_back(done_bytes);
  };
  const Status status = Create(path_, kSize, options);
  ASSERT_TRUE(status.ok()) << status.error().ToString();
  EXPECT_TRUE(std::is_sorted(done.begin(), done.end()));
  EXPECT_EQ(done.size(), 6U);
  EXPECT_EQ(done.back(), kSize);
  EXPECT_GE(test::OccupiedBytes(path_), kSize);
  const auto device = FileDevice::Open(*loop_, path_);
  ASSERT_TRUE(device.ok()) << device.error().ToString();
  EXPECT_EQ((*device)->size_bytes(), kSize);
  const Buffer got = test::Filled(kSize, 1);
  ASSERT_TRUE(test::Read(*loop_, **device, 0, got).ok());
  EXPECT_TRUE(test::Same(got, test::Pool().GetZeroed(kSize)));
}

TEST_F(CreateMemberFileTest, SparseOccupiesNothing) {
  ASSERT_TRUE(Create(path_, kSize, {.sparse = true}).ok());
  EXPECT_LT(test::OccupiedBytes(path_), kSize / 2);
  EXPECT_EQ(std::filesystem::file_size(path_), kSize);
}

TEST_F(CreateMemberFileTest, AnExistingFileIsRefusedUnlessToldOtherwise) {
  static_cast<void>(folder_.MakeFile("member", 12345));
  const Status refused = Create(path_, kSize);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kExists);
  EXPECT_NE(refused.error().message.find(path_), std::string::npos);
  EXPECT_EQ(std::filesystem::file_size(path_), 12345U);
  EXPECT_TRUE(Create(path_, kSize, {.overwrite = true}).ok());
  EXPECT_EQ(std::filesystem::file_size(path_), kSize);
}

TEST_F(CreateMemberFileTest, OnlyTheFileThatWasLookedAtIsOverwritten) {
  static_cast<void>(folder_.MakeFile("member", 12345));
  static_cast<void>(folder_.MakeFile("other", 12345));
  struct stat looked_at {};
  ASSERT_EQ(::stat(path_.c_str(), &looked_at), 0);
  CreateFileOptions options;
  options.overwrite = true;
  options.looked_at = IdentityOf(looked_at);
  std::filesystem::rename(path_, folder_.File("away"));
  std::filesystem::rename(folder_.File("other"), path_);
  const Status refused = Create(path_, kSize, options);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("not the device that was looked at"), std::string::npos);
  EXPECT_EQ(std::filesystem::file_size(path_), 12345U);
  std::filesystem::rename(folder_.File("away"), path_);
  EXPECT_TRUE(Create(path_, kSize, options).ok());
}

TEST_F(CreateMemberFileTest, AFileInUseIsNotOverwritten) {
  static_cast<void>(folder_.MakeFile("member", 16384));
  const auto user = FileDevice::Open(*loop_, path_);
  ASSERT_TRUE(user.ok());
  const Status refused = Create(path_, kSize, {.overwrite = true});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kBusy);
  EXPECT_EQ(std::filesystem::file_size(path_), 16384U);
}

TEST_F(CreateMemberFileTest, SizesThatMakeNoSenseAreRefused) {
  for (const uint64_t size : {uint64_t{0}, uint64_t{512}, kSize + 1}) {
    const Status status = Create(path_, size);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
  }
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(CreateMemberFileTest, AMissingFolderIsNamed) {
  const Status status = Create(folder_.File("nowhere/member"), kSize);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().errno_value, ENOENT);
  EXPECT_NE(status.error().message.find("nowhere/member"), std::string::npos);
}

TEST_F(CreateMemberFileTest, AFullFileSystemIsToldAndNothingIsLeft) {
  const test::SmallFileSystem tmpfs("tmpfs", "size=2m");
  if (!tmpfs.trouble().empty()) {
    GTEST_SKIP() << tmpfs.trouble();
  }
  const std::string path = tmpfs.folder().File("member");
  const Status status = Create(path, kSize);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kNoSpace);
  EXPECT_NE(status.error().message.find(path), std::string::npos);
  EXPECT_NE(status.error().message.find("are free"), std::string::npos) << status.error().message;
  EXPECT_FALSE(std::filesystem::exists(path));
}

// A file system that can neither reserve nor write directly.
TEST_F(CreateMemberFileTest, OnRamfs) {
  const test::SmallFileSystem ramfs("ramfs", "");
  if (!ramfs.trouble().empty()) {
    GTEST_SKIP() << ramfs.trouble();
  }
  const std::string path = ramfs.folder().File("member");
  const Status status = Create(path, kSize);
  ASSERT_TRUE(status.ok()) << status.error().ToString();
  EXPECT_EQ(std::filesystem::file_size(path), kSize);
}

Task<void> CreateAndFail(IoUringLoop& loop, std::string path) {
  Task<Result<DeviceIdentity>> create = CreateMemberFile(loop, path, uint64_t{64} << 20);
  static_cast<void>(co_await create);
  ADD_FAILURE() << "was to be given up before its end";
}

Task<void> Nap(EventLoop& loop, bool* done) {
  co_await loop.Sleep(1000);
  *done = true;
}

TEST_F(CreateMemberFileTest, GivenUpHalfwayItLeavesNothing) {
  loop_->Start(CreateAndFail(*loop_, path_));
  EXPECT_TRUE(std::filesystem::exists(path_));
  bool rested = false;
  loop_->Start(Nap(*loop_, &rested));
  EXPECT_TRUE(loop_->RunUntil([&] { return rested; }));
  loop_->Abort();
  EXPECT_FALSE(std::filesystem::exists(path_));
}

}  // namespace
}  // namespace eplog
