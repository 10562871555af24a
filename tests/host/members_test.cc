// Which of the listed members are opened, what is said of the others, and what stands before each.
#include "host/members.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/file_descriptor.h"
#include "base/read_text.h"
#include "host/device_content.h"
#include "runtime/run_task.h"
#include "tests/support/files.h"
#include "tests/support/temp_dir.h"

namespace eplog {
namespace {

class MembersOf : public testing::Test {
 protected:
  void SetUp() override {
    auto loop = IoUringLoop::Create();
    if (!loop.ok()) {
      GTEST_SKIP() << "needs io_uring";
    }
    loop_ = std::move(*loop);
    file_.file = dir_.path() / kArrayFileName;
    file_.uuid = "0123abcd-0123-4567-89ab-0123456789ab";
    file_.name = "demo";
    for (const char* name : {"ssd0", "ssd1", "ssd2", "log0"}) {
      file_.members.push_back({name, name});
      dir_.WriteSparse(name, 1 << 20);
    }
  }
  Result<Members> Open(const std::vector<std::string>& without = {}) {
    MemberOptions options;
    options.without = without;
    return OpenMembers(*loop_, file_, options);
  }
  // "ssd0 ssd2 | what was said; what was said"
  std::string Opened(const std::vector<std::string>& without = {}) { return Said(Open(without)); }
  static std::string Said(const Result<Members>& members) {
    if (!members.ok()) {
      return std::string(ErrorCodeName(members.error().code)) + ": " + members.error().message;
    }
    EXPECT_EQ(members->Pointers().size(), members->opened.size());
    std::string text;
    for (size_t i = 0; i < members->opened.size(); ++i) {
      const Member& member = members->opened[i];
      EXPECT_EQ(members->Pointers()[i], member.device.get());
      EXPECT_EQ(member.users, 0U);
      text += (text.empty() ? "" : " ") + member.name;
    }
    for (const std::string& line : members->left_out) {
      text += "; " + line;
    }
    return text;
  }
  [[nodiscard]] std::string At(const std::string& name) const { return dir_.path() / name; }
  std::unique_ptr<FileDevice> Hold(const std::string& name) {
    auto held = FileDevice::Open(*loop_, At(name));
    EXPECT_TRUE(held.ok());
    return std::move(*held);
  }

  TempDir dir_;
  std::unique_ptr<IoUringLoop> loop_;
  ArrayFile file_;
};

TEST_F(MembersOf, AnArrayAreOpenedInTheirOrder) {
  EXPECT_EQ(Opened(), "ssd0 ssd1 ssd2 log0");
  const auto members = Open();
  ASSERT_TRUE(members.ok());
  EXPECT_FALSE(members->read_only_below);
  EXPECT_EQ(members->opened[2].device->name(), At("ssd2"));
  EXPECT_EQ(FileDevice::Open(*loop_, At("ssd2")).error().code, ErrorCode::kBusy) << "and locked";
}

TEST_F(MembersOf, WhatIsNotThereIsSaidToBeMissing) {
  std::filesystem::remove(At("ssd1"));
  std::filesystem::remove(At("log0"));
  std::filesystem::create_directory(At("log0"));
  EXPECT_EQ(Opened(), "ssd0 ssd2; ssd1 is missing: there is no " + At("ssd1") +
                          "; log0 is missing: " + At("log0") +
                          " is neither a regular file nor a block device");
}

TEST_F(MembersOf, OneDeviceIsOneMember) {
  std::filesystem::remove(At("ssd2"));
  std::filesystem::create_symlink("ssd1", At("ssd2"));
  EXPECT_EQ(Opened(), "ssd0 ssd1 log0; ssd2 (" + At("ssd2") +
                          ") is left out: it is the same device as ssd1 (" + At("ssd1") + ")");
}

TEST_F(MembersOf, WhoIsToBeLeftOutIsNamedOrNot) {
  file_.spares = {"s"};
  dir_.WriteSparse("s", 1 << 20);
  EXPECT_EQ(Opened({At("ssd1")}), "ssd0 ssd2 log0; ssd1 (" + At("ssd1") + ") is left out, as told");
  EXPECT_EQ(Opened({"ssd2", "log0"}), "ssd0 ssd1; ssd2 (" + At("ssd2") +
                                          ") is left out, as told; log0 (" + At("log0") +
                                          ") is left out, as told");
  EXPECT_EQ(Opened({At("s")}),
            "ssd0 ssd1 ssd2 log0; a spare (" + At("s") + ") is left out, as told");
  EXPECT_EQ(Opened({At("other"), "ssd7"}), "ssd0 ssd1 ssd2 log0") << "there are no such";
}

TEST_F(MembersOf, NoneAtAllIsNoArray) {
  for (const MemberPath& member : file_.members) {
    std::filesystem::remove(At(member.path));
  }
  EXPECT_EQ(Opened(), "not found: none of the 4 members that " + file_.file.string() +
                          " lists is there (ssd0 is missing: there is no " + At("ssd0") + ")");
}

// ---- held by others

TEST_F(MembersOf, OneThatIsHeldKeepsTheOthersFromBeingOpened) {
  const auto held = Hold("ssd1");
  const auto refused = Open();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kBusy);
  EXPECT_TRUE(refused.error().message.ends_with(
      "; the others are free: should it hang, eplog mount --without ssd1 goes on"))
      << refused.error().message;
  EXPECT_TRUE(FileDevice::Open(*loop_, At("ssd0")).ok()) << "they are let go";
  EXPECT_EQ(Opened({"ssd1"}).rfind("ssd0 ssd2 log0; ssd1", 0), 0U);
}

// More than there are log devices: without them the array would not open either.
TEST_F(MembersOf, MoreThanParityReplacesAreNotToBeLeftOut) {
  const auto one = Hold("ssd0");
  const auto two = Hold("ssd2");
  auto refused = Open();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message.find("--without"), std::string::npos);
  EXPECT_NE(refused.error().message.find(At("ssd0")), std::string::npos) << "the first is named";
  dir_.WriteSparse("log1", 1 << 20);
  file_.members.push_back({"log1", "log1"});
  refused = Open();
  ASSERT_FALSE(refused.ok());
  EXPECT_TRUE(refused.error().message.ends_with("--without ssd0 --without ssd2 goes on"))
      << refused.error().message;
}

TEST_F(MembersOf, WhereAllAreHeldNoneIsToBeLeftOut) {
  file_.members = {{"log0", "log0"}};
  const auto log = Hold("log0");
  const auto refused = Open();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kBusy);
  EXPECT_EQ(refused.error().message.find("--without"), std::string::npos);
}

// A member that cannot be opened for want of descriptors is not missing.
TEST_F(MembersOf, AreNotMissingWhereNoMoreFilesMayBeOpen) {
  const pid_t child = ::fork();
  if (child == 0) {
    const FileDescriptor last(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = static_cast<rlim_t>(last.get()) + 1;
    const bool limited = ::setrlimit(RLIMIT_NOFILE, &limit) == 0;
    const auto refused = Open();
    ::_exit(limited && !refused.ok() && refused.error().errno_value == EMFILE ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(ReadOnlyBelow, NamesTheMend) {
  ArrayFile file;
  file.file = "/a b/array.toml";
  file.name = "demo";
  const Error error = FailReadOnlyBelow(file, {"ssd0 cannot be written", "ssd1 too"}).value();
  EXPECT_EQ(error.code, ErrorCode::kReadOnly);
  EXPECT_EQ(error.message,
            "the members of 'demo' lie on a read-only file system: make it writable, or only read: "
            "eplog mount '/a b' DIR --read-only (ssd0 cannot be written; ssd1 too)");
}

// In a process that sees its own mounts.
class ReadOnlyMembers : public MembersOf {
 protected:
  void Move(const std::string& name) {
    std::filesystem::create_directories(At("ro"));
    std::filesystem::rename(At(name), At("ro/" + name));
    for (MemberPath& member : file_.members) {
      member.path = member.name == name ? "ro/" + name : member.path;
    }
  }
  // Those that were moved cannot be written to there.
  void There(const std::function<void()>& look) {
    if (::geteuid() != 0) {
      GTEST_SKIP() << "only root mounts";
    }
    const pid_t child = ::fork();
    if (child == 0) {
      const std::string ro = At("ro");
      const bool mounted =
          ::unshare(CLONE_NEWNS) == 0 &&
          ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
          ::mount(ro.c_str(), ro.c_str(), nullptr, MS_BIND, nullptr) == 0 &&
          ::mount("none", ro.c_str(), nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY, nullptr) == 0;
      EXPECT_TRUE(mounted);
      look();
      std::fflush(nullptr);
      ::_exit(HasFailure() ? 1 : 0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
};

// They are there, and not as good as gone.
TEST_F(ReadOnlyMembers, AreNotMissingAndTheMendIsNamed) {
  for (const char* name : {"ssd0", "ssd1", "ssd2", "log0"}) {
    Move(name);
  }
  There([this] {
    const auto refused = Open();
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kReadOnly);
    const std::string begin =
        "the members of 'demo' lie on a read-only file system: make it writable, or only read: "
        "eplog mount " +
        dir_.path().string() + " DIR --read-only (ssd0 cannot be written: ";
    EXPECT_EQ(refused.error().message.substr(0, begin.size()), begin);
    EXPECT_NE(refused.error().message.find("; log0 cannot be written: "), std::string::npos);
    MemberOptions options;
    options.read_only = true;
    EXPECT_EQ(Said(OpenMembers(*loop_, file_, options)), "ssd0 ssd1 ssd2 log0");
  });
}

TEST_F(ReadOnlyMembers, AreToldApartFromThoseThatAreMissing) {
  Move("ssd1");
  std::filesystem::remove(At("ssd2"));
  There([this] {
    const auto members = Open();
    ASSERT_TRUE(members.ok()) << members.error().message;
    EXPECT_TRUE(members->read_only_below);
    EXPECT_EQ(Said(members).rfind("ssd0 log0; ssd2 is missing: there is no " + At("ssd2") +
                                      "; ssd1 cannot be written: ",
                                  0),
              0U)
        << Said(members);
  });
  // Whoever else holds some is the one to be named.
  const auto held = Hold("ssd0");
  There([this] {
    const auto refused = Open();
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kBusy);
  });
}

// ---- one device

class OneMember : public MembersOf {
 protected:
  // What the file holds once it was written to and flushed.
  char Flushed(const MemberOptions& options) {
    auto member = OpenMember(*loop_, At("ssd0"), options);
    EXPECT_TRUE(member.ok());
    const AlignedBytes bytes(4096, 1);
    std::fill_n(reinterpret_cast<char*>(bytes.data()), bytes.size(), 'x');
    const iovec part{bytes.data(), bytes.size()};
    EXPECT_TRUE(RunTask(*loop_, member->device->Write(0, std::span(&part, 1))).ok());
    EXPECT_TRUE(RunTask(*loop_, member->device->Flush()).ok());
    const char first = ReadText(At("ssd0"))[0];
    std::filesystem::remove(At("ssd0"));
    dir_.WriteSparse("ssd0", 1 << 20);
    return first;
  }
};

TEST_F(OneMember, IsWrittenToUnlessATestWantsACacheThatIsLost) {
  MemberOptions options;
  EXPECT_EQ(Flushed(options), 'x');
  options.volatile_cache = true;
  EXPECT_EQ(Flushed(options), 'x') << "a flush gets through the cache";
  options.ignore_flush = true;
  EXPECT_EQ(Flushed(options), '\0');
  options.volatile_cache = false;
  EXPECT_EQ(Flushed(options), 'x') << "there is nothing to be flushed";
}

TEST_F(OneMember, TakesFaultsAndHasADeadline) {
  auto member = OpenMember(*loop_, At("ssd0"), MemberOptions());
  ASSERT_TRUE(member.ok());
  ASSERT_NE(member->inject, nullptr);
  ASSERT_NE(member->deadline, nullptr);
  EXPECT_TRUE(member->deadline->idle());
  EXPECT_EQ(member->device->name(), At("ssd0"));
  EXPECT_EQ(member->device->size_bytes(), uint64_t{1} << 20);
  EXPECT_TRUE(RunTask(*loop_, member->device->Flush()).ok());
}

TEST_F(OneMember, IsOpenedAsTold) {
  const std::string path = At("ssd0");
  const auto held = Hold("ssd0");
  MemberOptions options;
  EXPECT_EQ(OpenFile(*loop_, path, options).error().code, ErrorCode::kBusy);
  options.lock = false;
  EXPECT_TRUE(OpenFile(*loop_, path, options).ok()) << "only to look at it";
  options.read_only = true;
  const auto readable = OpenFile(*loop_, path, options);
  ASSERT_TRUE(readable.ok());
  EXPECT_EQ(::fcntl((*readable)->fd(), F_GETFL) & O_ACCMODE, O_RDONLY);
  EXPECT_TRUE(OpenFile(*loop_, path, options, *IdentifyDevice(path)).ok());
  EXPECT_EQ(OpenFile(*loop_, path, options, *IdentifyDevice(At("ssd1"))).error().code,
            ErrorCode::kBusy);
}

}  // namespace
}  // namespace eplog
