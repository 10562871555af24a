// What a process may take of the machine, each time in a process of its own, which gets the limits.
#include "host/limits.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "tests/support/temp_dir.h"

namespace eplog {
namespace {

// What `ask` says there.
std::string Beside(const std::function<std::string()>& ask) {
  int ends[2] = {};
  EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const std::string said = ask();
    ::_exit(::write(ends[1], said.data(), said.size()) < 0 ? 1 : 0);
  }
  ::close(ends[1]);
  std::string said;
  for (char c = 0; ::read(ends[0], &c, 1) == 1;) {
    said += c;
  }
  ::close(ends[0]);
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
  return said;
}

void Limit(int resource, rlim_t now, rlim_t most) {
  const rlimit limit{now, most};
  if (::setrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0) {
    ::_exit(7);
  }
}

std::string Said(const Status& status) {
  return status.ok()
             ? "ok"
             : std::string(ErrorCodeName(status.error().code)) + ": " + status.error().message;
}

// ---- memory

TEST(Limits, BuffersTakeAQuarterOfWhatThereIs) {
  const uint64_t unlimited = MostBufferBytes();
  const auto machine = static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
                       static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  EXPECT_GT(unlimited, 0U);
  EXPECT_LE(unlimited, machine / 4) << "a control group may leave less";
  const auto of = [](rlim_t bytes, int kind = RLIMIT_AS) {
    return Beside([bytes, kind] {
      Limit(kind, bytes, RLIM_INFINITY);
      return std::to_string(MostBufferBytes());
    });
  };
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they take all address space
  const uint64_t least = unlimited;  // a quarter of all other limits
  EXPECT_EQ(of(least), std::to_string(least / 4));
  EXPECT_EQ(of(least, RLIMIT_DATA), std::to_string(least / 4));
#endif
  EXPECT_EQ(of(RLIM_INFINITY), std::to_string(unlimited));
}

// What the kernel says of control groups is made up for a process that sees its own mounts.
class Groups {
 public:
  Groups() { std::filesystem::create_directory(dir_.path() / "fs"); }
  void Limit(const std::string& group, const std::string& most) const {
    std::filesystem::create_directories(dir_.path() / "fs" / group);
    dir_.Write("fs/" + group + "/memory.max", most + "\n");
  }
  // Of one that is in these, in KiB; empty: this cannot be shown here.
  [[nodiscard]] std::string BuffersIn(const std::string& groups) const {
    const std::string file = dir_.Write("groups", groups);
    const std::string fs = dir_.path() / "fs";
    return Beside([&]() -> std::string {
      if (::unshare(CLONE_NEWNS) != 0 ||
          ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
          ::mount(fs.c_str(), "/sys/fs/cgroup", nullptr, MS_BIND, nullptr) != 0 ||
          ::mount(file.c_str(), "/proc/self/cgroup", nullptr, MS_BIND, nullptr) != 0) {
        return "";
      }
      return std::to_string(MostBufferBytes() >> 10);
    });
  }

 private:
  TempDir dir_;
};

TEST(Limits, BuffersTakeAQuarterOfWhatAControlGroupAndThoseAboveItLeave) {
  const Groups groups;
  groups.Limit("a/b/c", "65536");
  groups.Limit("a/b", "max");
  groups.Limit("a", "32768");
  groups.Limit("other", "4096");
  groups.Limit("wide/in", "16384");
  groups.Limit("wide", "65536");
  if (groups.BuffersIn("0::/a\n").empty()) {
    GTEST_SKIP() << "needs root, and mounts of its own";
  }
  EXPECT_EQ(groups.BuffersIn("0::/wide/in\n"), "4") << "its own";
  EXPECT_EQ(groups.BuffersIn("0::/a/b/c\n"), "8") << "that of one above";
  EXPECT_EQ(groups.BuffersIn("0::/a/b\n"), "8") << "and has none itself";
  EXPECT_EQ(groups.BuffersIn("0::/a/none\n"), "8");
  EXPECT_EQ(groups.BuffersIn("4:memory:/other\n1:cpu:/other\n0::/wide\n"), "16")
      << "of version 2, wherever it stands";
  EXPECT_EQ(groups.BuffersIn("0::/wide\n4:memory:/other\n"), "16");
  EXPECT_EQ(groups.BuffersIn("4:memory:/other\n"), groups.BuffersIn(""));
  EXPECT_EQ(groups.BuffersIn("0::/\n"), groups.BuffersIn("")) << "nothing is said of all";
  groups.Limit(".", "8192");
  EXPECT_EQ(groups.BuffersIn("0::/\n"), "2");
  EXPECT_EQ(groups.BuffersIn("0::/wide\n"), "2") << "all that there is, is above all";
}

// ---- open files

ArrayFile Listing(size_t members, size_t spares) {
  ArrayFile file;
  for (size_t i = 0; i < members; ++i) {
    file.members.push_back({"ssd" + std::to_string(i), "s" + std::to_string(i)});
  }
  file.spares.resize(spares, "x");
  return file;
}

// What it may have open then.
std::string RoomFor(const ArrayFile& file, rlim_t now, rlim_t most) {
  return Beside([&] {
    Limit(RLIMIT_NOFILE, now, most);
    const std::string said = Said(MakeRoomForDescriptors(file));
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    return said + ", " + std::to_string(limit.rlim_cur);
  });
}

TEST(Limits, OpenFilesAreRaisedAsFarAsTheyMayBe) {
  const ArrayFile small = Listing(4, 0);
  EXPECT_EQ(RoomFor(small, 64, 1000), "ok, 1000");
  EXPECT_EQ(RoomFor(small, 1000, 1000), "ok, 1000");
  if (RoomFor(small, 64, 70000).empty()) {
    GTEST_SKIP() << "needs 70,000 open files, or root";
  }
  EXPECT_EQ(RoomFor(small, 64, 70000), "ok, 65536") << "nobody needs more";
  EXPECT_EQ(RoomFor(small, 66000, 70000), "ok, 66000") << "and nothing is taken away";
}

// Each device has one, each connection of the control socket one, and 32 are for all else.
TEST(Limits, TooFewOpenFilesAreSaidToBe) {
  const ArrayFile file = Listing(20, 3);
  EXPECT_EQ(RoomFor(file, 119, 119), "ok, 119");
  EXPECT_EQ(RoomFor(file, 40, 119), "ok, 119");
  EXPECT_EQ(RoomFor(file, 118, 118),
            "no space: this process may have 118 files open, and to serve this array takes 119: "
            "raise that limit (ulimit -n), 118");
}

// ---- sizes of files

TEST(Limits, MembersThatCouldNotBeWrittenToTheirEndsAreNamed) {
  const TempDir dir;
  ArrayFile file;
  file.file = dir.path() / "array.toml";
  file.members = {{"ssd0", "ssd0"}, {"ssd1", "ssd1"}, {"ssd2", "none"}, {"log0", "log0"}};
  dir.WriteSparse("ssd0", 64 << 10);
  dir.WriteSparse("ssd1", 96 << 10);
  std::filesystem::create_directory(dir.path() / "log0");
  const auto with = [&](rlim_t bytes) {
    return Beside([&] {
      Limit(RLIMIT_FSIZE, bytes, RLIM_INFINITY);
      return Said(CheckFileSizes(file));
    });
  };
  EXPECT_EQ(with(RLIM_INFINITY), "ok");
  EXPECT_EQ(with(96 << 10), "ok") << "to the last byte";
  EXPECT_EQ(with((96 << 10) - 1),
            "unsupported: " + (dir.path() / "ssd1").string() +
                " has 96 KiB, and this process may write files up to 95 KiB only (ulimit -f): "
                "raise that");
  EXPECT_EQ(with(1024).find("unsupported: " + (dir.path() / "ssd0").string()), 0U);
  file.members.erase(file.members.begin(), file.members.begin() + 2);
  EXPECT_EQ(with(1024), "ok") << "what is no file, or is not there, is another's concern";
}

}  // namespace
}  // namespace eplog
