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
#include "tests/host/file_array.h"

namespace eplog {
namespace {

class OneWriterTest : public FileArrayTest {
 protected:
  void SetUp() override {
    FileArrayTest::SetUp();
    if (IsSkipped()) {
      return;
    }
    // As another node of each device would be.
    other_ = FileIn(copy_);
    other_.uuid = file_.uuid;
    for (const std::string& member : kMembers) {
      std::filesystem::copy_file(dir_.path() / member, copy_.path() / member);
    }
    ASSERT_TRUE(WriteArrayFile(other_).ok());
  }
  static Result<std::unique_ptr<Session>> OpenReadOnly(const ArrayFile& file) {
    MemberOptions options;
    options.read_only = true;
    return Open(file, options);
  }
  Result<std::unique_ptr<Session>> OpenHanging(const std::vector<std::string>& members) {
    MemberOptions options;
    options.io_deadline_us = 3'000'000;
    auto session = Open(file_, options);
    Injection hang;
    hang.hang = true;
    for (const std::string& member : members) {
      EXPECT_TRUE(session.ok() && (*session)->Inject(At(member).string(), hang).ok());
    }
    return session;
  }
  [[nodiscard]] std::filesystem::path LockPath() const {
    return std::filesystem::path(ControlSocketPath(file_.uuid)).replace_extension("writer");
  }

  TempDir copy_;
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
  EXPECT_TRUE(OpenReadOnly(other_).ok()) << "a copy may be looked at";
  ASSERT_TRUE((*session)->Close().ok());
  session->reset();
  EXPECT_FALSE(std::filesystem::exists(LockPath())) << "it is left behind";
  auto then = Open(other_);
  EXPECT_TRUE(then.ok());
  ASSERT_TRUE((*then)->Close().ok());
}

TEST_F(OneWriterTest, WhoOnlyReadsIsInNobodysWay) {
  auto looks = OpenReadOnly(other_);
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

// As at a logout, with the directory that it lies in.
TEST_F(OneWriterTest, WhatAnotherHasByNowIsNotTakenAway) {
  auto first = OneWriter::Take(file_);
  ASSERT_TRUE(first.ok());
  std::filesystem::remove(LockPath());
  const auto second = OneWriter::Take(file_);
  ASSERT_TRUE(second.ok());
  *first = OneWriter();
  EXPECT_TRUE(std::filesystem::exists(LockPath()));
  EXPECT_FALSE(OneWriter::Take(file_).ok());
}

// More than parity replaces hang: nothing of that was written down, so that who opens the array next
// trusts them again, and what they were asked may still be carried out.
TEST_F(OneWriterTest, WhileWhatIsTrustedHangsNobodyOpensIt) {
  auto session = OpenHanging({"ssd0", "ssd1"});
  ASSERT_TRUE(session.ok());
  EXPECT_FALSE((*session)->Run((*session)->array().CreateVolume("v", kBytes / 4)).ok());
  EXPECT_FALSE((*session)->Close().ok());
  const auto beside = OneWriter::Take(file_);
  ASSERT_FALSE(beside.ok());
  EXPECT_EQ(beside.error().code, ErrorCode::kBusy);
  session->reset();
  EXPECT_TRUE(OneWriter::Take(file_).ok());
}

// One that is lost is nobody's any more whom an opening would trust.
TEST_F(OneWriterTest, AMemberThatIsLostAndHangsKeepsNobodyOut) {
  auto session = OpenHanging({"ssd0"});
  ASSERT_TRUE(session.ok());
  EXPECT_TRUE((*session)->Run((*session)->array().CreateVolume("v", kBytes / 4)).ok());
  ASSERT_TRUE((*session)->Run((*session)->array().FlushAll()).ok());
  EXPECT_TRUE((*session)->Close().ok());
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
