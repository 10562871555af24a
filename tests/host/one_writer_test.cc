// Who has an array open for writing has it alone, also where the locks of its devices do not meet.
#include "host/one_writer.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "control/control.h"
#include "host/device_content.h"
#include "host/session.h"
#include "tests/support/temp_dir.h"

namespace eplog {
namespace {

constexpr uint64_t kBytes = uint64_t{16} << 20;
const std::vector<std::string> kMembers = {"ssd0", "ssd1", "ssd2", "log0"};

class OneWriterTest : public testing::Test {
 protected:
  void SetUp() override {
    auto loop = IoUringLoop::Create();
    if (!loop.ok()) {
      GTEST_SKIP() << "needs io_uring";
    }
    file_ = FileIn(dir_);
    std::vector<std::unique_ptr<FileDevice>> devices;
    std::vector<Device*> members;
    for (const std::string& member : kMembers) {
      auto device = FileDevice::Open(**loop, dir_.WriteSparse(member, kBytes).string());
      ASSERT_TRUE(device.ok());
      members.push_back(device->get());
      devices.push_back(std::move(*device));
    }
    CreateOptions options;
    options.parity = 1;
    options.entropy = Entropy();
    ASSERT_TRUE(RunTask(**loop, Array::Create(**loop, {members.begin(), members.end() - 1},
                                              {members.back()}, options))
                    .ok());
    devices.clear();
    file_.uuid = UuidToString(ReadSuperblock(dir_.path() / "ssd0")->array_uuid);
    ASSERT_TRUE(WriteArrayFile(file_).ok());
    // As another node of each device would be.
    other_ = FileIn(copy_);
    other_.uuid = file_.uuid;
    for (const std::string& member : kMembers) {
      std::filesystem::copy_file(dir_.path() / member, copy_.path() / member);
    }
    ASSERT_TRUE(WriteArrayFile(other_).ok());
  }
  static ArrayFile FileIn(const TempDir& dir) {
    ArrayFile file;
    file.file = dir.path() / kArrayFileName;
    file.name = "demo";
    for (const std::string& member : kMembers) {
      file.members.push_back({member, member});
    }
    return file;
  }
  static Result<std::unique_ptr<Session>> Open(const ArrayFile& file, bool read_only = false) {
    MemberOptions options;
    options.read_only = read_only;
    return Session::Open("test", file, options);
  }
  [[nodiscard]] std::filesystem::path LockPath() const {
    return std::filesystem::path(ControlSocketPath(file_.uuid)).replace_extension("writer");
  }

  TempDir dir_;
  TempDir copy_;
  ArrayFile file_;
  ArrayFile other_;
};

TEST_F(OneWriterTest, WhatMayBeTheSameDevicesIsNotOpenedForWritingBesideIt) {
  auto session = Open(file_);
  ASSERT_TRUE(session.ok()) << session.error().message;
  const auto beside = Open(other_);
  ASSERT_FALSE(beside.ok());
  EXPECT_EQ(beside.error().code, ErrorCode::kBusy);
  for (const std::string& word :
       {"an array with the UUID of " + other_.Argument().string() + " is in use by process " +
            std::to_string(::getpid()),
        std::string("one is a copy of the other, or the same by other paths")}) {
    EXPECT_NE(beside.error().message.find(word), std::string::npos) << beside.error().message;
  }
  EXPECT_TRUE(Open(other_, true).ok()) << "a copy may be looked at";
  ASSERT_TRUE((*session)->Close().ok());
  session->reset();
  EXPECT_FALSE(std::filesystem::exists(LockPath())) << "it is left behind";
  auto then = Open(other_);
  EXPECT_TRUE(then.ok());
  ASSERT_TRUE((*then)->Close().ok());
}

TEST_F(OneWriterTest, WhoOnlyReadsIsInNobodysWay) {
  auto looks = Open(other_, true);
  ASSERT_TRUE(looks.ok());
  auto session = Open(file_);
  ASSERT_TRUE(session.ok());
  ASSERT_TRUE((*session)->Close().ok());
}

TEST_F(OneWriterTest, AKilledOneHasItNoMore) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto taken = OneWriter::Take(file_);
    static_cast<void>(!::write(ready[1], taken.ok() ? "y" : "n", 1));
    while (true) {
      ::pause();
    }
  }
  char answer = 0;
  ASSERT_EQ(::read(ready[0], &answer, 1), 1);
  EXPECT_EQ(answer, 'y');
  EXPECT_FALSE(OneWriter::Take(file_).ok());
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  EXPECT_TRUE(OneWriter::Take(file_).ok()) << "it waits until the killed one is gone";
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST_F(OneWriterTest, ItIsGivenOnAndTakenAgain) {
  auto first = OneWriter::Take(file_);
  ASSERT_TRUE(first.ok());
  OneWriter moved = std::move(*first);
  EXPECT_FALSE(OneWriter::Take(file_).ok());
  moved = OneWriter();
  EXPECT_FALSE(std::filesystem::exists(LockPath()));
  EXPECT_TRUE(OneWriter::Take(file_).ok());
}

// Those of its devices are there all the same.
TEST_F(OneWriterTest, WhereItsFileCannotBeMadeThereIsNone) {
  ASSERT_TRUE(PrepareControlDirectory(ControlSocketPath(file_.uuid)).ok());
  ASSERT_TRUE(std::filesystem::create_directory(LockPath()));
  EXPECT_TRUE(OneWriter::Take(file_).ok());
  EXPECT_TRUE(OneWriter::Take(file_).ok());
  EXPECT_TRUE(std::filesystem::remove(LockPath()));
}

}  // namespace
}  // namespace eplog
