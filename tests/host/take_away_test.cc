// A mount is taken away by this process itself where it is root, and else by fusermount3: here one
// that is made up. Each in a process that sees its own mounts; what is mounted is served by nobody.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>

#include "base/file_descriptor.h"
#include "base/read_text.h"
#include "host/fuse_mount.h"
#include "tests/support/temp_dir.h"

namespace eplog {
namespace {

namespace fs = std::filesystem;

class TakingAway : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0 || ::access("/dev/fuse", W_OK) != 0) {
      GTEST_SKIP() << "needs root and /dev/fuse";
    }
    fs::create_directories(At("mnt"));
    fs::create_directories(At("bin"));
    ::chmod(dir_.path().c_str(), 0755);
    ::chmod(At("bin").c_str(), 0755);
  }
  // In a process of its own, with a mount of ours at `place`.
  void Beside(const std::string& place, const std::function<void()>& work) {
    const pid_t child = ::fork();
    if (child == 0) {
      if (::unshare(CLONE_NEWNS) != 0 ||
          ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
        ::_exit(7);
      }
      Mount(place);
      work();
      std::fflush(nullptr);
      ::_exit(HasFailure() ? 1 : 0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  void Mount(const std::string& place) {
    fuse_ = FileDescriptor(::open("/dev/fuse", O_RDWR | O_NONBLOCK | O_CLOEXEC));
    const std::string options =
        "fd=" + std::to_string(fuse_.get()) + ",rootmode=40000,user_id=0,group_id=0";
    ASSERT_EQ(::mount("array", place.c_str(), "fuse.eplog", 0, options.c_str()), 0);
    device_ = MountedDevice(place);
    ASSERT_NE(device_, 0U);
  }
  // It writes down how it was asked, and ends as this line of the shell does.
  void MakeUpFusermount(const std::string& end) const {
    dir_.Write("bin/fusermount3",
               "#!/bin/sh\necho \"$#: $*\" >> '" + At("asked") + "'\n" + end + "\n");
    ::chmod(At("bin/fusermount3").c_str(), 0755);
    ::setenv("PATH", At("bin").c_str(), 1);
  }
  void BeNobody() const {
    constexpr uid_t kNobody = 65534;
    dir_.Write("asked", "");
    ::chmod(At("asked").c_str(), 0666);
    ASSERT_EQ(::setresuid(kNobody, kNobody, kNobody), 0);
    ASSERT_EQ(::prctl(PR_SET_DUMPABLE, 1, 0, 0, 0), 0);  // else its own /proc is closed to it
  }
  static void LimitDescriptors(rlim_t most) {
    rlimit limit{};
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = std::min(most, limit.rlim_max);
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  }
  [[nodiscard]] bool AllMayEnter() const {
    for (fs::path path = dir_.path(); path.has_relative_path(); path = path.parent_path()) {
      struct stat info {};
      if (::stat(path.c_str(), &info) != 0 || (info.st_mode & S_IXOTH) == 0) {
        return false;
      }
    }
    return true;
  }
  [[nodiscard]] Status Take(TakeAway how) const { return TakeMountAway(device_, At("mnt"), how); }
  [[nodiscard]] std::string At(const std::string& name) const { return dir_.path() / name; }

  TempDir dir_;
  FileDescriptor fuse_;
  dev_t device_ = 0;
};

TEST_F(TakingAway, RootNeedsNobodyForIt) {
  ::unlink(At("bin/fusermount3").c_str());
  Beside(At("mnt"), [this] {
    ::setenv("PATH", At("bin").c_str(), 1);
    const Status taken = Take(TakeAway::kIfUnused);
    EXPECT_TRUE(taken.ok()) << taken.error().ToString();
    EXPECT_EQ(MountedDevice(At("mnt")), 0U);
    Mount(At("mnt"));
    const FileDescriptor user(::open(At("mnt").c_str(), O_PATH | O_CLOEXEC));
    const Status busy = Take(TakeAway::kIfUnused);
    ASSERT_FALSE(busy.ok());
    EXPECT_EQ(busy.error().code, ErrorCode::kBusy);
    EXPECT_EQ(busy.error().message, At("mnt") +
                                        " is in use: close what is open there first (fuser -vm " +
                                        At("mnt") + " tells who)");
    EXPECT_EQ(MountedDevice(At("mnt")), device_);
    EXPECT_TRUE(Take(TakeAway::kAtOnce).ok());
    EXPECT_EQ(MountedDevice(At("mnt")), 0U);
  });
}

// In its words; of what it says only whether it was done.
TEST_F(TakingAway, WhoIsNotRootAsksFusermount) {
  if (!AllMayEnter()) {
    GTEST_SKIP() << "needs a TMPDIR that everybody may enter";
  }
  Beside(At("mnt"), [this] {
    MakeUpFusermount("exit 0");
    ASSERT_NO_FATAL_FAILURE(BeNobody());
    for (const TakeAway how : {TakeAway::kIfUnused, TakeAway::kAtOnce}) {
      const Status taken = Take(how);
      EXPECT_TRUE(taken.ok()) << taken.error().ToString();
    }
    EXPECT_EQ(ReadText(At("asked")),
              "4: -u -q -- " + At("mnt") + "\n5: -u -q -z -- " + At("mnt") + "\n");
  });
}

// It does not say why: what is still mounted then is in use.
TEST_F(TakingAway, WhatFusermountLeavesIsInUse) {
  if (!AllMayEnter()) {
    GTEST_SKIP() << "needs a TMPDIR that everybody may enter";
  }
  for (const char* end : {"exit 1", "exit 2", "kill -9 $$"}) {
    Beside(At("mnt"), [this, end] {
      MakeUpFusermount(end);
      ASSERT_NO_FATAL_FAILURE(BeNobody());
      const Status busy = Take(TakeAway::kIfUnused);
      ASSERT_FALSE(busy.ok()) << end;
      EXPECT_EQ(busy.error().code, ErrorCode::kBusy);
      EXPECT_EQ(busy.error().message.rfind(At("mnt") + " is in use: ", 0), 0U)
          << busy.error().message;
      EXPECT_NE(ReadText(At("asked")), "") << "it was asked";
    });
  }
}

TEST_F(TakingAway, WhereThereIsNoFusermountItIsSaidSo) {
  if (!AllMayEnter()) {
    GTEST_SKIP() << "needs a TMPDIR that everybody may enter";
  }
  ::unlink(At("bin/fusermount3").c_str());
  Beside(At("mnt"), [this] {
    ::setenv("PATH", At("bin").c_str(), 1);
    ASSERT_NO_FATAL_FAILURE(BeNobody());
    const Status failed = Take(TakeAway::kIfUnused);
    ASSERT_FALSE(failed.ok());
    EXPECT_EQ(failed.error().message, "cannot unmount " + At("mnt"));
    EXPECT_EQ(failed.error().errno_value, ENOENT);
  });
}

// For want of descriptors it is not known whether anything is mounted.
TEST_F(TakingAway, WhatCannotBeLookedForIsNotSaidToBeGone) {
  Beside(At("mnt"), [this] {
    const dev_t device = device_;
    LimitDescriptors(0);
    for (const TakeAway how : {TakeAway::kIfUnused, TakeAway::kAtOnce}) {
      const Status failed = Take(how);
      ASSERT_FALSE(failed.ok());
      EXPECT_EQ(failed.error().errno_value, EMFILE);
      EXPECT_EQ(failed.error().message, "cannot read /proc/self/mountinfo");
    }
    EXPECT_FALSE(SyncMount(device, At("mnt")));
    // Nor is it covered where there is one descriptor, and two are needed to see that.
    LimitDescriptors(1024);
    const int next = FileDescriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC)).get();
    LimitDescriptors(static_cast<rlim_t>(next) + 1);
    for (const TakeAway how : {TakeAway::kIfUnused, TakeAway::kAtOnce}) {
      const Status failed = Take(how);
      ASSERT_FALSE(failed.ok());
      EXPECT_EQ(failed.error().errno_value, EMFILE);
      EXPECT_EQ(failed.error().message, "cannot tell what is at " + At("mnt"));
    }
    EXPECT_FALSE(SyncMount(device, At("mnt")));
    LimitDescriptors(1024);
    EXPECT_EQ(MountedDevice(At("mnt")), device);
    EXPECT_TRUE(Take(TakeAway::kAtOnce).ok());
  });
}

// Whatever its last letter is: some come before the slash.
TEST_F(TakingAway, ADeadMountIsFoundBelowAFolderOfAnyName) {
  for (const char* folder : {"a", "a-", "a+", "a ", "a!", "a.", "a0"}) {
    const std::string place = At(std::string(folder) + "/mnt");
    fs::create_directories(place);
    Beside(place, [this, &place] {
      fuse_ = FileDescriptor();  // who serves it is gone
      fs::current_path(fs::path(place).parent_path());
      for (const std::string& typed : {place + "/", place + "//", std::string("mnt/")}) {
        const auto resolved = ResolveMountpoint(typed);
        ASSERT_TRUE(resolved.ok()) << typed << ": " << resolved.error().ToString();
        EXPECT_EQ(*resolved, place);
      }
      EXPECT_TRUE(PrepareMountpoint(place).ok());
      EXPECT_EQ(MountedDevice(place), 0U);
    });
  }
}

}  // namespace
}  // namespace eplog
