#include "host/candidate.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "host/device_content.h"
#include "tests/device/real_files.h"
#include "tests/support/temp_dir.h"

namespace eplog {
namespace {

class Candidate : public ::testing::Test {
 protected:
  Candidate() {
    file_.file = dir_.Write(kArrayFileName, "text");
    file_.name = "demo";
  }
  void ExpectRefused(const std::filesystem::path& path, ErrorCode code, const std::string& words) {
    const Status checked = CheckCandidate(file_, path);
    ASSERT_FALSE(checked.ok()) << path;
    EXPECT_EQ(checked.error().code, code);
    EXPECT_NE(checked.error().message.find(words), std::string::npos) << checked.error().message;
  }

  TempDir dir_;
  ArrayFile file_;
};

TEST_F(Candidate, AnythingElseMayBecomeOne) {
  const auto path = dir_.Write("new", "");
  EXPECT_TRUE(CheckCandidate(file_, path).ok());
  EXPECT_TRUE(CheckCandidate(file_, path, *IdentifyDevice(path)).ok());
  EXPECT_TRUE(CheckCandidate(file_, dir_.path()).ok());
}

TEST_F(Candidate, FilesThatTheArrayKeepsMayNot) {
  dir_.Write("events.jsonl", "");
  dir_.Write("events.jsonl.1", "");
  dir_.Write("scrub.json", "");
  for (const char* name : {kArrayFileName, "events.jsonl", "events.jsonl.1", "scrub.json"}) {
    ExpectRefused(dir_.path() / name, ErrorCode::kInvalidArgument, name);
    std::filesystem::create_hard_link(dir_.path() / name, dir_.path() / "link");
    ExpectRefused(dir_.path() / "link", ErrorCode::kInvalidArgument, name);
    std::filesystem::remove(dir_.path() / "link");
    std::filesystem::create_symlink(name, dir_.path() / "link");
    ExpectRefused(dir_.path() / "link", ErrorCode::kInvalidArgument, name);
    std::filesystem::remove(dir_.path() / "link");
  }
}

TEST_F(Candidate, WhyNotIsSaidInALine) {
  const std::string own = dir_.path() / kArrayFileName;
  EXPECT_EQ(CheckCandidate(file_, own).error().message,
            own +
                " is array.toml of 'demo' itself, which the array keeps beside its devices: give "
                "another");
  const std::string none = dir_.path() / "none";
  const Status missing = CheckCandidate(file_, none);
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().message, "cannot look at " + none);
}

// What is mounted from it would be overwritten, by force too.
TEST_F(Candidate, TheFileOfALoopDeviceMayNot) {
  const auto path = dir_.WriteSparse("backing", 1 << 20);
  {
    const test::LoopDevice loop(path);
    if (!loop.trouble().empty()) {
      GTEST_SKIP() << loop.trouble();
    }
    ExpectRefused(path, ErrorCode::kInvalidArgument, "is in use as " + loop.path());
    std::filesystem::create_symlink(path, dir_.path() / "link");
    ExpectRefused(dir_.path() / "link", ErrorCode::kInvalidArgument, "is in use as " + loop.path());
    std::filesystem::create_hard_link(path, dir_.path() / "name");
    ExpectRefused(dir_.path() / "name", ErrorCode::kInvalidArgument, "is in use as " + loop.path());
    std::filesystem::remove(path);  // by no name that the kernel could tell any more
    ExpectRefused(dir_.path() / "name", ErrorCode::kInvalidArgument, "is in use as " + loop.path());
    EXPECT_TRUE(CheckCandidate(file_, dir_.Write("other", "")).ok());
  }
  EXPECT_TRUE(CheckCandidate(file_, dir_.path() / "name").ok());
}

// Nor one of two over the same part of a file, nor one over what another has as its device, which
// neither a lock nor what lies there tells.
TEST_F(Candidate, ALoopDeviceThatIsNotAloneOverItsFileMayNot) {
  const auto path = dir_.WriteSparse("backing", 1 << 20);
  const test::LoopDevice loop(path);
  if (!loop.trouble().empty()) {
    GTEST_SKIP() << loop.trouble();
  }
  EXPECT_TRUE(CheckCandidate(file_, loop.path()).ok());
  EXPECT_TRUE(CheckNoLoopOver({loop.path()}).ok());
  {
    const test::LoopDevice other(path);
    ASSERT_TRUE(other.trouble().empty()) << other.trouble();
    ExpectRefused(loop.path(), ErrorCode::kInvalidArgument,
                  other.path() + ", which is over the same file as " + loop.path());
    EXPECT_FALSE(CheckNoLoopOver({loop.path()}).ok());
  }
  {
    const test::LoopDevice above(loop.path());
    ASSERT_TRUE(above.trouble().empty()) << above.trouble();
    EXPECT_TRUE(CheckCandidate(file_, above.path()).ok());
    const int member = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    ASSERT_EQ(::flock(member, LOCK_EX), 0);
    ExpectRefused(above.path(), ErrorCode::kInvalidArgument,
                  path.string() + " is in use by process " + std::to_string(::getpid()));
    ExpectRefused(loop.path(), ErrorCode::kInvalidArgument, "is in use as " + above.path());
    ::close(member);
  }
  EXPECT_TRUE(CheckCandidate(file_, loop.path()).ok());
}

TEST_F(Candidate, WhatTookTheNameIsNotTheOne) {
  const auto path = dir_.Write("new", "");
  const auto looked_at = *IdentifyDevice(path);
  const auto other = dir_.Write("other", "");
  std::filesystem::rename(other, path);
  const Status checked = CheckCandidate(file_, path, looked_at);
  ASSERT_FALSE(checked.ok());
  EXPECT_EQ(checked.error().code, ErrorCode::kBusy);
}

}  // namespace
}  // namespace eplog
