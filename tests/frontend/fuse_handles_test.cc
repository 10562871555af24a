// What the kernel holds of a volume while somebody else deletes, replaces or makes it; and that what
// it is told once is what it is told when it asks again.
#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "tests/frontend/served_mount.h"

namespace eplog {
namespace {

using Op = FakeArray::Op;

std::vector<std::byte> Pattern(size_t size, uint64_t seed) {
  std::vector<std::byte> bytes(size);
  FillPattern(bytes, seed);
  return bytes;
}

std::string LinkOf(int fd) {
  return "/proc/self/fd/" + std::to_string(fd);
}

// 0 or the errno of what just returned this.
int Errno(int result) {
  return result < 0 ? errno : 0;
}

// As the kernel has it, or as the server says now.
struct statx Attributes(int fd, bool anew) {
  struct statx info {};
  const int flags = AT_EMPTY_PATH | (anew ? AT_STATX_FORCE_SYNC : AT_STATX_DONT_SYNC);
  EXPECT_EQ(::statx(fd, "", flags, STATX_BASIC_STATS, &info), 0) << errno;
  return info;
}

int AskAnew(int fd) {
  struct statx info {};
  return Errno(::statx(fd, "", AT_EMPTY_PATH | AT_STATX_FORCE_SYNC, STATX_BASIC_STATS, &info));
}

// The kernel tells of a close, and that it forgot, after it has answered.
void Eventually(const std::function<bool()>& holds) {
  for (int i = 0; i < 12000 && !holds(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(holds());
}

// Volumes v and w.
class Handles : public testing::Test {
 protected:
  void SetUp() override { EPLOG_NEEDS_FUSE(); }
  void Serve(std::function<void(FakeArray&)> prepare = {}) {
    MountSetup setup;
    setup.prepare = [this, prepare = std::move(prepare)](FakeArray& array) {
      array.AddVolume("v", v_);
      array.AddVolume("w", w_);
      if (prepare) {
        prepare(array);
      }
    };
    mount_ = std::make_unique<ServedMount>(setup);
  }
  // By which it can be opened, and which is no open file to the server.
  int Handle(const std::string& name) {
    handles_.emplace_back(::open((*mount_ / name).c_str(), O_PATH | O_CLOEXEC));
    EXPECT_GE(handles_.back().fd(), 0);
    return handles_.back().fd();
  }
  // As the control verb does it.
  std::future<Status> Delete(const std::string& name) {
    return std::async(std::launch::async, [this, name] {
      Status result;
      mount_->Await([&](FakeArray& /*array*/, FuseServer& server) -> Task<void> {
        Task<Status> deleting = server.DeleteVolume(name);
        result = co_await deleting;
      });
      return result;
    });
  }
  void WaitForCall(Op op) {
    bool seen = false;
    while (!seen) {
      mount_->Do([&](FakeArray& array) { seen = array.Count(op) != 0; });
    }
  }
  size_t Volumes() {
    size_t count = 0;
    mount_->Do([&](FakeArray& array) { count = array.volume_count(); });
    return count;
  }
  bool IsOpen(uint32_t volume) {
    bool open = false;
    mount_->Await([&](FakeArray&, FuseServer& server) -> Task<void> {
      open = server.IsOpen(VolumeId(volume));
      co_return;
    });
    return open;
  }

  const std::vector<std::byte> v_ = Pattern(5000, 1);
  const std::vector<std::byte> w_ = Pattern(300, 2);
  std::unique_ptr<ServedMount> mount_;
  std::vector<File> handles_;
};

TEST_F(Handles, OfADeletedVolumeReachNothing) {
  Serve();
  const int handle = Handle("v");
  ASSERT_TRUE(Delete("v").get().ok());
  const int opened = Errno(::open(LinkOf(handle).c_str(), O_RDWR | O_CLOEXEC));
  EXPECT_TRUE(opened == ESTALE || opened == ENOENT) << opened;
  EXPECT_EQ(AskAnew(handle), ENOENT);
  EXPECT_EQ(Errno(::chmod(LinkOf(handle).c_str(), 0640)), ENOENT);
  EXPECT_EQ(mount_->Content("w"), w_);
}

// Who opened it now would lose it a moment later.
TEST_F(Handles, OfAVolumeThatIsBeingDeletedOpenNothing) {
  std::atomic<bool> may = false;
  Serve([&may](FakeArray& array) {
    array.hold = [&may](const FakeArray::Call& call) { return call.op == Op::kDelete && !may; };
  });
  const int handle = Handle("v");
  EXPECT_EQ(Attributes(handle, true).stx_nlink, 1U);
  auto deleting = Delete("v");
  WaitForCall(Op::kDelete);
  EXPECT_EQ(Attributes(handle, true).stx_nlink, 0U);
  EXPECT_EQ(Errno(::open(LinkOf(handle).c_str(), O_RDWR | O_CLOEXEC)), ESTALE);
  may = true;
  EXPECT_TRUE(deleting.get().ok());
}

// The rename was before it: the name is another volume's, and this one is hidden and nobody's.
TEST_F(Handles, AVolumeThatIsReplacedWhileItIsToBeDeletedGoesAllTheSame) {
  std::atomic<bool> renamed = false;
  Serve([&renamed](FakeArray& array) {
    array.hold = [&renamed](const FakeArray::Call& call) {
      return call.op == Op::kDelete && !renamed;
    };
  });
  auto deleting = Delete("v");
  WaitForCall(Op::kDelete);
  EXPECT_EQ(Errno(::rename((*mount_ / "w").c_str(), (*mount_ / "v").c_str())), 0);
  renamed = true;
  const Status deleted = deleting.get();
  ASSERT_FALSE(deleted.ok());
  EXPECT_EQ(deleted.error().code, ErrorCode::kNotFound);
  Eventually([&] { return Volumes() == 1; });
  EXPECT_EQ(mount_->Content("v"), w_);
}

// The kernel has been told that there is none of that name, and will not forget what it never knew.
TEST_F(Handles, AVolumeMadeElsewhereIsReplacedByARename) {
  Serve([](FakeArray& array) {
    array.looked_up = [&array, made = false](std::string_view name) mutable {
      if (name == "new" && !std::exchange(made, true)) {
        array.AddVolume("new", Pattern(100, 3));
      }
    };
  });
  EXPECT_EQ(Errno(::rename((*mount_ / "w").c_str(), (*mount_ / "new").c_str())), 0);
  EXPECT_EQ(mount_->Content("new"), w_);
  Eventually([&] { return Volumes() == 2; });
}

// What the kernel forgets while the server is busy it tells all at once.
TEST_F(Handles, ManyVolumesAreForgottenAtOnce) {
  Serve();
  constexpr uint32_t kMany = 12;
  for (uint32_t i = 0; i < kMany; ++i) {
    const std::string name = "n" + std::to_string(i);
    const File file(*mount_ / name, O_CREAT | O_EXCL | O_RDWR);
    Handle(name);
    ASSERT_EQ(::unlink((*mount_ / name).c_str()), 0) << "it is open, and hidden therefore";
  }
  for (uint32_t i = 0; i < kMany; ++i) {
    Eventually([&] { return !IsOpen(3 + i); });
  }
  EXPECT_EQ(Volumes(), 2 + kMany);
  mount_->Do([this](const FakeArray& /*array*/) { handles_.clear(); });
  Eventually([&] { return Volumes() == 2; });
}

// ---- what is told once, and when it is asked for again

void ExpectSame(const struct statx& told, const struct statx& asked) {
  EXPECT_EQ(told.stx_ino, asked.stx_ino);
  EXPECT_EQ(told.stx_mode, asked.stx_mode);
  EXPECT_EQ(told.stx_nlink, asked.stx_nlink);
  EXPECT_EQ(told.stx_uid, asked.stx_uid);
  EXPECT_EQ(told.stx_gid, asked.stx_gid);
  EXPECT_EQ(told.stx_size, asked.stx_size);
  EXPECT_EQ(told.stx_blocks, asked.stx_blocks);
  EXPECT_EQ(told.stx_blksize, asked.stx_blksize);
  for (const auto time : {&statx::stx_atime, &statx::stx_mtime, &statx::stx_ctime}) {
    EXPECT_EQ((told.*time).tv_sec, (asked.*time).tv_sec);
    EXPECT_EQ((told.*time).tv_nsec, (asked.*time).tv_nsec);
  }
}

TEST_F(Handles, WhoMakesAVolumeIsToldWhatItIs) {
  Serve();
  const File fresh(*mount_ / "fresh", O_CREAT | O_EXCL | O_RDWR, 0640);
  const struct statx told = Attributes(fresh.fd(), false);
  EXPECT_EQ(told.stx_size, 0U);
  EXPECT_EQ(told.stx_mode, S_IFREG | 0640U);
  ExpectSame(told, Attributes(fresh.fd(), true));
}

TEST_F(Handles, WhoWantedToMakeOneIsToldWhatIsThere) {
  Serve([](FakeArray& array) {
    array.looked_up = [&array, made = false](std::string_view name) mutable {
      if (name == "new" && !std::exchange(made, true)) {
        array.AddVolume("new", Pattern(5000, 3));
      }
    };
  });
  const File there(*mount_ / "new", O_CREAT | O_RDWR);
  const struct statx told = Attributes(there.fd(), false);
  EXPECT_EQ(told.stx_size, 5000U);
  EXPECT_EQ(told.stx_blocks, 16U);
  ExpectSame(told, Attributes(there.fd(), true));
}

// Backup programs go by it.
TEST_F(Handles, EachChangeOfAttributesShowsInItsOwnTime) {
  Serve();
  const File file(*mount_ / "v", O_RDWR | O_DIRECT);
  auto changed = [&file, last = timespec()]() mutable {
    const struct statx info = Attributes(file.fd(), true);
    const timespec now = {info.stx_ctime.tv_sec, info.stx_ctime.tv_nsec};
    const timespec before = std::exchange(last, now);
    return now.tv_sec != before.tv_sec || now.tv_nsec != before.tv_nsec;
  };
  static_cast<void>(changed());
  EXPECT_FALSE(changed()) << "asking is no change";
  ASSERT_EQ(::fchmod(file.fd(), 0640), 0);
  EXPECT_TRUE(changed());
  const timespec old[2] = {{1000, 0}, {2000, 0}};
  ASSERT_EQ(::futimens(file.fd(), old), 0);
  EXPECT_TRUE(changed());
  const AlignedBytes bytes(4096, 3);
  ASSERT_EQ(::pwrite(file.fd(), bytes.data(), 4096, 0), 4096);
  EXPECT_TRUE(changed());
  ASSERT_EQ(::futimens(file.fd(), old), 0);
  ASSERT_TRUE(changed());
  mount_->Await([](FakeArray& array, FuseServer& server) {
    return server.NotifyVolumeChanged(array.FindVolume("v")->id);
  });
  EXPECT_TRUE(changed());
}

// ---- the directory

// Each reads it as it was when he began, however many do.
TEST_F(Handles, TwoWhoReadTheDirectoryDoNotDisturbEachOther) {
  std::map<std::string, int> want;
  Serve([&want](FakeArray& array) {
    for (int i = 0; i < 400; ++i) {
      const std::string name = "a volume with a long name, of which few fit " + std::to_string(i);
      array.AddVolume(name, {});
      want[name] = 1;
    }
  });
  want["v"] = want["w"] = 1;
  DIR* const first = ::opendir(mount_->directory().c_str());
  ASSERT_NE(first, nullptr);
  std::map<std::string, int> seen;
  const auto take = [&seen](const dirent* entry) {
    if (entry != nullptr && entry->d_name[0] != '.') {
      ++seen[entry->d_name];
    }
    return entry != nullptr;
  };
  ASSERT_TRUE(take(::readdir(first)));
  for (int i = 100; i < 300; ++i) {
    const std::string name = "a volume with a long name, of which few fit " + std::to_string(i);
    ASSERT_EQ(::unlink((*mount_ / name).c_str()), 0);
  }
  DIR* const second = ::opendir(mount_->directory().c_str());
  ASSERT_NE(second, nullptr);
  size_t count = 0;
  while (::readdir(second) != nullptr) {
    ++count;
  }
  EXPECT_EQ(count, 202U + 2) << "and . and ..";
  while (take(::readdir(first))) {
  }
  EXPECT_EQ(seen, want);
  ::closedir(first);
  ::closedir(second);
}

}  // namespace
}  // namespace eplog
