// A mount that is taken away while programs go on with what they have open there.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/random.h"
#include "tests/frontend/served_mount.h"

namespace eplog {
namespace {

constexpr size_t kPage = 4096;
constexpr uint64_t kPages = 32;

// The last resort, so that a test which fails leaves nothing behind that no signal ends.
void CutConnection(dev_t device) {
  const TemporaryDirectory control;
  if (::mount("none", control.path().c_str(), "fusectl", 0, nullptr) == 0) {
    std::ofstream(control.path() + "/" + std::to_string(minor(device)) + "/abort") << 1;
    ::umount(control.path().c_str());
  }
}

// Reads through the page cache beside direct writes, until the mount is gone.
class Busy {
 public:
  Busy(const std::string& path, uint64_t seed)
      : seed_(seed),
        cached_(path, O_RDONLY),
        direct_(path, O_RDWR | O_DIRECT),
        reader_([this] { Read(); }),
        writer_([this] { Write(); }) {}
  ~Busy() {
    over_ = true;  // whoever has all pages goes on reading without the mount
    reader_.join();
    writer_.join();
  }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

 private:
  void Read() const {
    Random random(seed_);
    std::vector<char> page(kPage);
    while (!over_ && ::pread(cached_.fd(), page.data(), kPage, PlaceOf(random)) >= 0) {
    }
  }
  void Write() const {
    Random random(seed_ + 1);
    AlignedBytes page(kPage, seed_);
    while (::pwrite(direct_.fd(), page.data(), kPage, PlaceOf(random)) >= 0) {
    }
  }
  static off_t PlaceOf(Random& random) { return static_cast<off_t>(random.Below(kPages) * kPage); }

  uint64_t seed_;
  std::atomic<bool> over_ = false;
  File cached_;
  File direct_;
  std::thread reader_;
  std::thread writer_;
};

// What the kernel was told to forget waits for reads of those pages, which somebody has to answer.
TEST(FuseBusyEnd, DirectWritersBesideCachedReadersKeepNobodyFromEnding) {
  EPLOG_NEEDS_FUSE();
  for (uint64_t round = 1; round <= 12; ++round) {
    ServedMount mount;
    struct stat root {};
    ASSERT_EQ(::stat(mount.directory().c_str(), &root), 0);
    std::vector<std::unique_ptr<Busy>> busy;
    for (uint64_t i = 0; i < 32; ++i) {
      const std::string path = mount / ("v" + std::to_string(i));
      ASSERT_EQ(::ftruncate(File(path, O_CREAT | O_RDWR).fd(), kPages * kPage), 0);
      busy.push_back(std::make_unique<Busy>(path, 100 * round + 2 * i));
    }
    for (uint64_t written = 0; written < 200;) {
      mount.Do([&written](const FakeArray& array) { written = array.writes; });
    }
    mount.Await([](FakeArray&, FuseServer& server) { return server.UnmountForced(); });
    for (int look = 0; look < 600 && !mount.Served(); ++look) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    EXPECT_TRUE(mount.Served()) << "round " << round;
    if (!mount.Served()) {
      CutConnection(root.st_dev);
    }
    mount.WaitUntilServed();
    busy.clear();
  }
}

// Pages outlive the mount where somebody has the file open. What the kernel is not told to forget any
// more is not called written: by itself it does so only in newer versions.
TEST(FuseBusyEnd, WhatCachedReadersMayNotSeeIsNotCalledWritten) {
  EPLOG_NEEDS_FUSE();
  ServedMount mount;
  const std::string path = mount / "v";
  AlignedBytes page(kPage, 1);
  const File cached(path, O_CREAT | O_RDWR);
  ASSERT_EQ(::pwrite(cached.fd(), page.data(), kPage, 0), static_cast<ssize_t>(kPage));
  const File direct(path, O_RDWR | O_DIRECT);
  std::atomic<bool> on_its_way = false;
  std::atomic<bool> held = true;
  mount.Do([&](FakeArray& array) {
    array.hold = [&](const FakeArray::Call& call) {
      on_its_way = on_its_way || call.op == FakeArray::Op::kWrite;
      return call.op == FakeArray::Op::kWrite && held;
    };
  });
  ssize_t written = 0;
  std::thread writer([&] { written = ::pwrite(direct.fd(), page.data(), kPage, 0); });
  while (!on_its_way) {
    std::this_thread::yield();
  }
  mount.Await([](FakeArray&, FuseServer& server) { return server.UnmountForced(); });
  held = false;
  writer.join();
  EXPECT_LT(written, 0);
  mount.WaitUntilServed();
}

// Somebody else took the first mount away, and the kernel gave its number to the second one, before
// whoever serves the first looks.
TEST(FuseBusyEnd, ANumberThatWasGivenAwayAgainIsNobodysToUnmount) {
  EPLOG_NEEDS_FUSE();
  const auto number = [](const ServedMount& mount) {
    struct stat root {};
    EXPECT_EQ(::stat(mount.directory().c_str(), &root), 0);
    return root.st_dev;
  };
  int same = 0;
  for (int round = 0; round < 20 && same < 3; ++round) {
    ServedMount first;
    const dev_t of_first = number(first);
    std::promise<void> held;
    std::promise<void> go_on;
    std::thread holding([&] {
      first.Do([&](FakeArray&) {
        held.set_value();
        go_on.get_future().wait();
      });
    });
    held.get_future().wait();
    EXPECT_EQ(::umount2(first.directory().c_str(), 0), 0);
    ServedMount second;
    same += number(second) == of_first ? 1 : 0;
    std::promise<void> asked;
    std::thread unmounting([&] {
      asked.set_value();
      first.Await([](FakeArray&, FuseServer& server) { return server.UnmountForced(); });
    });
    asked.get_future().wait();
    go_on.set_value();
    holding.join();
    unmounting.join();
    const File file(second / "v", O_CREAT | O_RDWR);
    second.Do(
        [](const FakeArray& array) { EXPECT_EQ(array.Volumes().size(), 1U) << "taken away"; });
  }
  EXPECT_GT(same, 0) << "numbers are not given away again here";
}

}  // namespace
}  // namespace eplog
