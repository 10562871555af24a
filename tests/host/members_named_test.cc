// Which members are meant by a name where devices lie in each other's places, and what is no reason
// to go on without one.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "host/members.h"
#include "tests/host/member_superblock.h"
#include "tests/support/temp_dir.h"

namespace eplog {
namespace {

// Whatever this thread and those that it starts open from now on cannot be opened for that.
bool OpensFailWith(unsigned error) {
  std::array<sock_filter, 4> filter = {{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  const sock_fprog program{filter.size(), filter.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0;
}

class MembersNamed : public testing::Test {
 protected:
  void SetUp() override {
    auto loop = IoUringLoop::Create();
    if (!loop.ok()) {
      GTEST_SKIP() << "needs io_uring";
    }
    loop_ = std::move(*loop);
    file_.file = dir_.path() / kArrayFileName;
    file_.uuid = UuidToString(UuidOf(0xA));
    file_.name = "demo";
    for (const char* name : {"ssd0", "ssd1", "ssd2", "log0"}) {
      file_.members.push_back({name, name});
      dir_.WriteSparse(name, 1 << 20);
    }
  }
  void Put(const std::string& name, const Superblock& superblock) const {
    std::vector<std::byte> bytes(kSuperblockCopyBytes);
    EncodeSuperblock(superblock, bytes);
    std::fstream(At(name), std::ios::in | std::ios::out | std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  }
  // "ssd0 ssd2; what is said of the others"
  std::string OpenedWithout(const std::string& name) {
    MemberOptions options;
    options.without = {name};
    const auto members = OpenMembers(*loop_, file_, options);
    if (!members.ok()) {
      return members.error().ToString();
    }
    std::string text;
    for (const Member& member : members->opened) {
      text += (text.empty() ? "" : " ") + member.name;
    }
    for (const std::string& line : members->left_out) {
      text += "; " + line;
    }
    return text;
  }
  [[nodiscard]] std::string LeftOut(const std::string& name, const std::string& path) const {
    return "; " + name + " (" + At(path) + ") is left out, as told";
  }
  [[nodiscard]] std::string At(const std::string& name) const { return dir_.path() / name; }

  TempDir dir_;
  std::unique_ptr<IoUringLoop> loop_;
  ArrayFile file_;
};

// What a device of another array says of itself, or a spare, is no name here: array.toml's counts.
TEST_F(MembersNamed, AreThoseThatBearTheNameOrAreListedByIt) {
  Superblock foreign = MemberSuperblock();  // ssd1
  foreign.array_uuid = UuidOf(0xB);
  Put("ssd0", foreign);
  Put("ssd1", SpareSuperblock(MemberSuperblock(), UuidOf(7)));
  Superblock moved = MemberSuperblock();
  moved.index = DeviceIndex(0);
  Put("ssd2", moved);
  EXPECT_EQ(OpenedWithout("ssd1"), "ssd0 ssd2 log0" + LeftOut("ssd1", "ssd1"));
  EXPECT_EQ(OpenedWithout("ssd0"), "ssd1 log0" + LeftOut("ssd0", "ssd0") + LeftOut("ssd0", "ssd2"));
  EXPECT_EQ(OpenedWithout("ssd2"), "ssd0 ssd1 ssd2 log0") << "ssd0 lies there";
  EXPECT_EQ(OpenedWithout("log0"), "ssd0 ssd1 ssd2" + LeftOut("log0", "log0"));
}

// The machine has no room for it: with a member as good as gone it would be written to without.
TEST_F(MembersNamed, AreNotMissingForWantOfFilesOrMemory) {
  const auto opened_where_opens_fail = [this](int error) {
    const pid_t child = ::fork();
    if (child == 0) {
      const bool failing = OpensFailWith(static_cast<unsigned>(error));
      const auto refused = OpenMembers(*loop_, file_, MemberOptions());
      const bool stopped = !refused.ok() && refused.error().errno_value == error;
      ::_exit(!failing ? 1 : stopped ? 2 : refused.ok() ? 3 : 4);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 5;
  };
  constexpr int kStopped = 2;
  constexpr int kNoneIsThere = 4;
  for (const int error : {EMFILE, ENFILE, ENOMEM}) {
    EXPECT_EQ(opened_where_opens_fail(error), kStopped) << error;
  }
  for (const int error : {EIO, ENXIO, EACCES, ETXTBSY, ELOOP}) {
    EXPECT_EQ(opened_where_opens_fail(error), kNoneIsThere) << error;
  }
}

// What there is no descriptor for does not hang: going on without it is no way out.
TEST_F(MembersNamed, WhatCannotBeOpenedForWantOfFilesIsNotToBeLeftOut) {
  const pid_t child = ::fork();
  if (child == 0) {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = 0;
    for (int left = 3; left > 0; ++limit.rlim_cur) {  // of four
      left -= ::fcntl(static_cast<int>(limit.rlim_cur), F_GETFD) < 0 ? 1 : 0;
    }
    const bool limited = ::setrlimit(RLIMIT_NOFILE, &limit) == 0;
    const auto refused = OpenMembers(*loop_, file_, MemberOptions());
    const bool stopped = !refused.ok() && refused.error().errno_value == EMFILE;
    const bool advised = stopped && refused.error().message.find("--without") != std::string::npos;
    ::_exit(!limited ? 1 : !stopped ? 2 : advised ? 3 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace eplog
