// Who has an array open for writing has it alone, also where the locks of its devices do not meet.
#include "host/one_writer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "control/control.h"
#include "host/candidate.h"
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
  // Of the lock's file, as the end of a process does.
  void CloseDescriptor() {
    int held = -1;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code gone;
      if (std::filesystem::read_symlink(entry.path(), gone) == LockPath()) {
        held = std::stoi(entry.path().filename());
      }
    }
    ASSERT_GE(held, 0);
    const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    ASSERT_EQ(::dup3(nothing, held, O_CLOEXEC), held);
    ::close(nothing);
  }
  static Task<Status> Sleep(EventLoop& loop, uint64_t us) {
    co_await loop.Sleep(us);
    co_return OkStatus();
  }
  void ExpectFreeSoon() {
    while (OneWriter::Who(file_.uuid)) {  // the kernel ends a ring in its own time
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
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

TEST_F(OneWriterTest, WhoHasItIsTold) {
  EXPECT_EQ(OneWriter::Who(file_.uuid), std::nullopt);
  auto taken = OneWriter::Take(file_);
  ASSERT_TRUE(taken.ok());
  const auto who = OneWriter::Who(file_.uuid);
  ASSERT_TRUE(who);
  EXPECT_TRUE(who->starts_with("process " + std::to_string(::getpid()) + " (")) << *who;
  EXPECT_EQ(OneWriter::Who("00000000-0000-0000-0000-000000000001"), std::nullopt);
  EXPECT_FALSE(OneWriter::Take(file_).ok()) << "asking took it away";
  *taken = OneWriter();
  EXPECT_EQ(OneWriter::Who(file_.uuid), std::nullopt);
}

// By force too: nothing tells whether it is the device itself.
TEST_F(OneWriterTest, WhatBearsTheNameOfAServedArrayIsNotOverwritten) {
  const std::filesystem::path node = copy_.path() / "ssd1";
  const auto probed = ProbeDevice(node);
  ASSERT_TRUE(probed.ok());
  EXPECT_TRUE(CheckNotServed(node, *probed).ok());
  auto session = Open(file_);
  ASSERT_TRUE(session.ok());
  const Status refused = CheckNotServed(node, *probed);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kBusy);
  EXPECT_NE(refused.error().message.find("bears the name of ssd1 of the EPLOG array"),
            std::string::npos)
      << refused.error().message;
  EXPECT_TRUE(CheckNotServed(node, *probed, file_.uuid).ok()) << "of itself an array sees it";
  const auto blank = copy_.WriteSparse("blank", kBytes);
  EXPECT_TRUE(CheckNotServed(blank, *ProbeDevice(blank)).ok());
  ASSERT_TRUE((*session)->Close().ok());
  session->reset();
  EXPECT_TRUE(CheckNotServed(node, *probed).ok());
}

// Nor while it is served to be read: of several the last one counts.
TEST_F(OneWriterTest, WhatIsReadIsNotOverwrittenEither) {
  const std::filesystem::path node = copy_.path() / "ssd1";
  const auto probed = ProbeDevice(node);
  ASSERT_TRUE(probed.ok());
  auto first = OpenReadOnly(file_);
  auto second = OpenReadOnly(other_);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(CheckNotServed(node, *probed).error().code, ErrorCode::kBusy);
  first->reset();
  EXPECT_FALSE(CheckNotServed(node, *probed).ok());
  second->reset();
  EXPECT_TRUE(CheckNotServed(node, *probed).ok());
}

// The kernel may still carry out what a killed process has asked for: its descriptors are gone then.
TEST_F(OneWriterTest, ItIsHeldForAsLongAsTheKernelHasRequests) {
  auto session = Open(file_);
  ASSERT_TRUE(session.ok());
  CloseDescriptor();
  EXPECT_TRUE(OneWriter::Who(file_.uuid));
  ASSERT_TRUE((*session)->Close().ok());
  session->reset();
  ExpectFreeSoon();
}

TEST_F(OneWriterTest, ItIsHeldForThoseOfAnArrayThatStopped) {
  auto session = OpenHanging({"ssd0", "ssd1"});
  ASSERT_TRUE(session.ok());
  EXPECT_FALSE((*session)->Run((*session)->array().CreateVolume("v", kBytes / 4)).ok());
  ASSERT_FALSE((*session)->array().GetStatus().stopped_because.empty());
  ASSERT_TRUE((*session)->Run(Sleep((*session)->loop(), 500'000)).ok());  // what is lost is let go
  CloseDescriptor();
  EXPECT_TRUE(OneWriter::Who(file_.uuid));
  EXPECT_FALSE((*session)->Close().ok());
  session->reset();
  ExpectFreeSoon();
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

// Whose last requests do not end: they go to a device that is given up, says who opens it without.
TEST_F(OneWriterTest, ADeadOnesIsGoneOnWithoutWhereThatIsSaid) {
  ASSERT_TRUE(PrepareControlDirectory(ControlSocketPath(file_.uuid)).ok());
  const int fd = ::open(LockPath().c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_GE(fd, 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::_exit(::flock(fd, LOCK_EX));  // what it opened is open here, too
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  const auto refused = OneWriter::Take(file_);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("--without it does not wait"), std::string::npos)
      << refused.error().message;
  auto taken = OneWriter::Take(file_, /*despite_dead=*/true);
  EXPECT_TRUE(taken.ok());
  EXPECT_FALSE(OneWriter::Take(file_, /*despite_dead=*/true).ok()) << "whoever lives has it";
  *taken = OneWriter();
  EXPECT_TRUE(OneWriter::Take(file_).ok()) << "nor is it waited for by anybody then";
  ::close(fd);
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

// Whatever became of the array here: it was closed, as an unmount does, before this process ended.
TEST_F(OneWriterTest, WhatHangsWhenAnArrayThatStoppedIsLetGoKeepsTheLock) {
  auto session = OpenHanging({"ssd0", "ssd1"});
  ASSERT_TRUE(session.ok());
  EXPECT_FALSE((*session)->Run((*session)->array().CreateVolume("v", kBytes / 4)).ok());
  (*session)->Release();
  EXPECT_FALSE(OneWriter::Take(file_).ok());
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
