// Data through the mount: every byte where it belongs, whatever the kernel makes of the requests.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/random.h"
#include "tests/frontend/served_mount.h"

namespace eplog {
namespace {

using Op = FakeArray::Op;

size_t Size(const std::string& path) {
  struct stat info {};
  EXPECT_EQ(::stat(path.c_str(), &info), 0) << path;
  return static_cast<size_t>(info.st_size);
}

void WriteAll(int fd, std::span<const std::byte> bytes, uint64_t offset) {
  const ssize_t n = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
  ASSERT_EQ(n, static_cast<ssize_t>(bytes.size())) << std::strerror(errno);
}

std::vector<std::byte> ReadAll(int fd, size_t size, uint64_t offset) {
  std::vector<std::byte> bytes(size);
  const ssize_t n = ::pread(fd, bytes.data(), size, static_cast<off_t>(offset));
  EXPECT_GE(n, 0) << std::strerror(errno);
  bytes.resize(n < 0 ? 0 : static_cast<size_t>(n));
  return bytes;
}

std::vector<std::byte> Pattern(size_t size, uint64_t seed) {
  std::vector<std::byte> bytes(size);
  FillPattern(bytes, seed);
  return bytes;
}

std::vector<FakeArray::Call> Flushes(ServedMount& mount) {
  std::vector<FakeArray::Call> calls = mount.TakeCalls();
  std::erase_if(calls, [](const FakeArray::Call& call) { return call.op != Op::kFlush; });
  return calls;
}

// Random reads and writes of any range, by several openers in turn, against a plain array of bytes.
void CompareWithModel(ServedMount& mount, std::vector<int> flags, uint64_t seed) {
  constexpr size_t kLargest = 3 << 20;
  const std::string path = mount / "model";
  std::vector<File> files;
  for (const int flag : flags) {
    files.emplace_back(path, flag | O_CREAT | O_RDWR);
  }
  std::vector<std::byte> model;
  Random random(seed);
  AlignedBytes buffer(kLargest, 0);
  for (int step = 0; step < 600; ++step) {
    const size_t which = random.Below(files.size());
    const uint64_t unit = (flags[which] & O_DIRECT) != 0 ? 4096 : 1;
    const uint64_t top = random.OneIn(4) ? kLargest : size_t{64} << 10;
    const uint64_t offset = RoundDown(random.Below(top), unit);
    const uint64_t size = RoundUp(random.Between(1, random.OneIn(8) ? 1500000 : 20000), unit);
    if (offset + size > kLargest) {
      continue;
    }
    const auto action = random.Below(10);
    const int fd = files[which].fd();
    if (action < 5) {
      FillPattern(buffer.span().first(size), random.Next());
      WriteAll(fd, buffer.span().first(size), offset);
      model.resize(std::max<size_t>(model.size(), offset + size));
      std::copy_n(buffer.data(), size, model.begin() + static_cast<std::ptrdiff_t>(offset));
    } else if (action < 9) {
      const ssize_t n = ::pread(fd, buffer.data(), size, static_cast<off_t>(offset));
      const size_t rest = model.size() - std::min<size_t>(model.size(), offset);
      ASSERT_EQ(n, static_cast<ssize_t>(std::min<size_t>(rest, size))) << "step " << step;
      ASSERT_EQ(std::memcmp(buffer.data(), model.data() + offset, static_cast<size_t>(n)), 0)
          << "step " << step;
    } else {
      ASSERT_EQ(::ftruncate(fd, static_cast<off_t>(offset)), 0);
      model.resize(offset);
    }
    ASSERT_EQ(Size(path), model.size()) << "step " << step;
  }
  EXPECT_EQ(mount.Content("model"), model);
  mount.Do([](FakeArray& array) { EXPECT_EQ(array.changed_buffers, 0U); });
}

TEST(FuseData, CachedFileMatchesModel) {
  EPLOG_NEEDS_FUSE();
  ServedMount mount;
  CompareWithModel(mount, {0}, 1);
}

TEST(FuseData, DirectFileMatchesModel) {
  EPLOG_NEEDS_FUSE();
  ServedMount mount;
  CompareWithModel(mount, {O_DIRECT}, 2);
}

TEST(FuseData, MixedOpenersSeeEachOther) {
  EPLOG_NEEDS_FUSE();
  ServedMount mount;
  mount.Do([](FakeArray& array) { array.max_delay_us = 50; });
  CompareWithModel(mount, {0, O_DIRECT, 0, O_DIRECT | O_DSYNC}, 3);
}

TEST(FuseData, PayloadsAreAlignedAndLarge) {
  EPLOG_NEEDS_FUSE();
  ServedMount mount;
  const File file(mount / "v", O_CREAT | O_RDWR | O_DIRECT);
  AlignedBytes data(size_t{4} << 20, 7);
  WriteAll(file.fd(), data.span(), 0);
  ASSERT_EQ(::pread(file.fd(), data.data(), data.size(), 0), static_cast<ssize_t>(data.size()));
  mount.Do([](FakeArray& array) {
    EXPECT_EQ(array.unaligned_buffers, 0U);
    EXPECT_EQ(array.writes, 4U);  // 1 MiB each
    EXPECT_EQ(array.reads, 4U);
  });
}

// Many writes in flight at once, each with content of its own, answered late and out of order.
TEST(FuseData, ParallelDirectWritesKeepTheirOwnData) {
  EPLOG_NEEDS_FUSE();
  constexpr size_t kThreads = 24;
  constexpr size_t kRounds = 120;
  constexpr size_t kBlock = 4096;
  constexpr size_t kArea = kThreads * 64 * kBlock;
  ServedMount mount;
  const std::string path = mount / "v";
  const File file(path, O_CREAT | O_RDWR | O_DIRECT);
  ASSERT_EQ(::ftruncate(file.fd(), kArea), 0);
  mount.Do([](FakeArray& array) { array.max_delay_us = 1500; });

  std::vector<std::vector<uint64_t>> seeds(kThreads, std::vector<uint64_t>(64, 0));
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      Random random(t + 1);
      AlignedBytes buffer(8 * kBlock, 0);
      for (size_t round = 0; round < kRounds; ++round) {
        const size_t blocks = random.Between(1, 8);
        const size_t first = random.Below(64 - blocks + 1);
        for (size_t b = 0; b < blocks; ++b) {
          seeds[t][first + b] = random.Next();
          FillPattern(buffer.span().subspan(b * kBlock, kBlock), seeds[t][first + b]);
        }
        WriteAll(file.fd(), buffer.span().first(blocks * kBlock), (t * 64 + first) * kBlock);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  const std::vector<std::byte> content = mount.Content("v");
  for (size_t t = 0; t < kThreads; ++t) {
    for (size_t b = 0; b < 64; ++b) {
      std::vector<std::byte> want(kBlock);
      if (seeds[t][b] != 0) {
        FillPattern(want, seeds[t][b]);
      }
      ASSERT_EQ(std::memcmp(content.data() + (t * 64 + b) * kBlock, want.data(), kBlock), 0)
          << "thread " << t << " block " << b;
    }
  }
  mount.Do([](FakeArray& array) {
    EXPECT_EQ(array.changed_buffers, 0U);
    // Serialised writes would never overlap.
    EXPECT_GT(array.overlapping_writes, array.writes / 2);
  });
}

TEST(FuseData, AppendAndHolesReadAsWritten) {
  EPLOG_NEEDS_FUSE();
  ServedMount mount;
  const File file(mount / "log", O_CREAT | O_RDWR | O_APPEND);
  std::vector<std::byte> want;
  for (uint64_t i = 0; i < 50; ++i) {
    const std::vector<std::byte> line = Pattern(100 + i * 37, i);
    ASSERT_EQ(::write(file.fd(), line.data(), line.size()), static_cast<ssize_t>(line.size()));
    want.insert(want.end(), line.begin(), line.end());
  }
  const File other(mount / "log", O_RDWR);
  const std::vector<std::byte> far = Pattern(10, 99);
  WriteAll(other.fd(), far, want.size() + 1000000);
  want.resize(want.size() + 1000000);
  want.insert(want.end(), far.begin(), far.end());
  EXPECT_EQ(ReadAll(other.fd(), want.size() + 5, 0), want);
  EXPECT_EQ(mount.Content("log"), want);
}

TEST(FuseData, TruncateCutsAndGrowsWithZeros) {
  EPLOG_NEEDS_FUSE();
  ServedMount mount;
  const File file(mount / "v", O_CREAT | O_RDWR);
  WriteAll(file.fd(), Pattern(20000, 1), 0);
  ASSERT_EQ(::ftruncate(file.fd(), 5000), 0);
  ASSERT_EQ(::ftruncate(file.fd(), 12000), 0);
  std::vector<std::byte> want = Pattern(20000, 1);
  want.resize(5000);
  want.resize(12000);
  EXPECT_EQ(ReadAll(file.fd(), 20000, 0), want);
  EXPECT_EQ(mount.Content("v"), want);
  const File again(mount / "v", O_RDWR | O_TRUNC);
  EXPECT_EQ(Size(mount / "v"), 0U);
  EXPECT_EQ(::ftruncate(again.fd(), off_t{1} << 51), -1);
  EXPECT_EQ(errno, EFBIG);
}

TEST(FuseData, SyncWriteFlushesJustItsRange) {
  EPLOG_NEEDS_FUSE();
  ServedMount mount;
  const std::string path = mount / "v";
  const File plain(path, O_CREAT | O_RDWR);
  ASSERT_EQ(::ftruncate(plain.fd(), 1 << 20), 0);
  WriteAll(plain.fd(), Pattern(4096, 1), 0);
  EXPECT_TRUE(Flushes(mount).empty());

  for (const int flags : {O_DSYNC, O_SYNC, O_DSYNC | O_DIRECT}) {
    const File file(path, O_RDWR | flags);
    AlignedBytes data(8192, 2);
    WriteAll(file.fd(), data.span(), 40960);
    const std::vector<FakeArray::Call> flushes = Flushes(mount);
    ASSERT_FALSE(flushes.empty()) << flags;
    EXPECT_EQ(flushes[0].offset_bytes, 40960U);
    EXPECT_EQ(flushes[0].length_bytes, 8192U);
    // Some kernels send an FSYNC, which has no range, after a cached write as well; none after a
    // direct one.
    EXPECT_LE(flushes.size(), (flags & O_DIRECT) != 0 ? 1U : 2U);
  }
  std::vector<std::byte> data = Pattern(100, 3);
  const iovec part{data.data(), data.size()};
  ASSERT_EQ(::pwritev2(plain.fd(), &part, 1, 777, RWF_DSYNC), 100);
  const std::vector<FakeArray::Call> flushes = Flushes(mount);
  ASSERT_FALSE(flushes.empty());
  EXPECT_EQ(flushes[0].offset_bytes, 777U);
  EXPECT_EQ(flushes[0].length_bytes, 100U);
}

TEST(FuseData, FsyncFlushesTheVolumeAndCloseDoesNot) {
  EPLOG_NEEDS_FUSE();
  ServedMount mount;
  {
    const File file(mount / "v", O_CREAT | O_RDWR);
    WriteAll(file.fd(), Pattern(10000, 1), 0);
  }
  EXPECT_TRUE(Flushes(mount).empty());
  const File file(mount / "v", O_RDWR);
  for (const auto sync : {&::fsync, &::fdatasync}) {
    WriteAll(file.fd(), Pattern(10, 1), 0);
    ASSERT_EQ(sync(file.fd()), 0);
    const std::vector<FakeArray::Call> flushes = Flushes(mount);
    ASSERT_EQ(flushes.size(), 1U);
    EXPECT_EQ(flushes[0].offset_bytes, 0U);
    EXPECT_EQ(flushes[0].length_bytes, 10000U);
  }
  const File directory(mount.directory(), O_RDONLY | O_DIRECTORY);
  EXPECT_EQ(::fsync(directory.fd()), 0);
}

TEST(FuseData, SharedMappingIsWrittenAndSeenByDirectReaders) {
  EPLOG_NEEDS_FUSE();
  ServedMount mount;
  constexpr size_t kSize = 64 * 4096;
  const File file(mount / "v", O_CREAT | O_RDWR);
  ASSERT_EQ(::ftruncate(file.fd(), kSize), 0);
  void* memory = ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED, file.fd(), 0);
  ASSERT_NE(memory, MAP_FAILED);
  const std::vector<std::byte> want = Pattern(kSize, 5);
  std::memcpy(memory, want.data(), kSize);

  const File direct(mount / "v", O_RDWR | O_DIRECT);
  AlignedBytes read(4096, 0);
  ASSERT_EQ(::pread(direct.fd(), read.data(), 4096, 8192), 4096);
  EXPECT_EQ(std::memcmp(read.data(), want.data() + 8192, 4096), 0) << "dirty page not seen";

  ASSERT_EQ(::msync(memory, kSize, MS_SYNC), 0);
  EXPECT_EQ(mount.Content("v"), want);
  EXPECT_FALSE(Flushes(mount).empty());

  AlignedBytes fresh(4096, 6);
  WriteAll(direct.fd(), fresh.span(), 16384);
  EXPECT_EQ(std::memcmp(static_cast<std::byte*>(memory) + 16384, fresh.data(), 4096), 0)
      << "direct write not seen by the mapping";
  ::munmap(memory, kSize);
}

// A cached reader runs all the time beside a direct writer; what was written must be seen at once.
void RaceCachedReader(
    ServedMount& mount,
    const std::function<ssize_t(int, std::span<const std::byte>, uint64_t)>& write) {
  constexpr size_t kBlocks = 64;
  const File direct(mount / "v", O_CREAT | O_RDWR | O_DIRECT);
  ASSERT_EQ(::ftruncate(direct.fd(), kBlocks * 4096), 0);
  mount.Do([](FakeArray& array) { array.max_delay_us = 200; });
  const File cached(mount / "v", O_RDONLY);
  std::atomic<bool> stop = false;
  std::thread reader([&] {
    while (!stop) {
      ReadAll(cached.fd(), kBlocks * 4096, 0);
    }
  });
  Random random(9);
  AlignedBytes block(4096, 0);
  int stale = 0;
  for (int i = 0; i < 1000; ++i) {
    const uint64_t at = random.Below(kBlocks) * 4096;
    FillPattern(block.span(), random.Next());
    EXPECT_EQ(write(direct.fd(), block.span(), at), 4096);
    const std::vector<std::byte> seen = ReadAll(cached.fd(), 4096, at);
    stale += std::memcmp(seen.data(), block.data(), 4096) == 0 ? 0 : 1;
  }
  stop = true;
  reader.join();
  EXPECT_EQ(stale, 0);
}

TEST(FuseData, CachedReaderSeesDirectWritesThatRacedIt) {
  EPLOG_NEEDS_FUSE();
  ServedMount mount;
  RaceCachedReader(mount, [](int fd, std::span<const std::byte> bytes, uint64_t offset) {
    return ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
  });
}

Task<void> WriteOnRing(IoUringLoop* loop, int fd, const iovec* part, uint64_t offset, int* result) {
  *result = co_await loop->Writev(fd, part, 1, offset);
}

// Asynchronous direct writes end on another way in the kernel, which forgets the pages less
// thoroughly.
TEST(FuseData, CachedReaderSeesAsynchronousDirectWritesThatRacedIt) {
  EPLOG_NEEDS_FUSE();
  ServedMount mount;
  const Result<std::unique_ptr<IoUringLoop>> loop = IoUringLoop::Create();
  ASSERT_TRUE(loop.ok());
  RaceCachedReader(mount, [&](int fd, std::span<const std::byte> bytes, uint64_t offset) {
    const iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
    int result = INT_MAX;
    (*loop)->Spawn(WriteOnRing(loop->get(), fd, &part, offset, &result));
    EXPECT_TRUE((*loop)->RunUntil([&] { return result != INT_MAX; }));
    return static_cast<ssize_t>(result);
  });
}

// A direct write beside a cached reader ends only when the kernel has dropped the reader's pages,
// and it drops none whose read is on its way to us. So these reads must find room, however many
// writers there are. (From Linux 6.9 on direct writers of one file beside cached ones take turns,
// so here everybody has a file of his own.)
TEST(FuseData, ManyDirectWritersBesideCachedReadersLeaveRoomForTheReads) {
  EPLOG_NEEDS_FUSE();
  constexpr size_t kFiles = 12;
  MountSetup setup;
  setup.buffers = 4;
  setup.prepare = [](FakeArray& array) {
    array.max_delay_us = 300;
    for (size_t i = 0; i < kFiles; ++i) {
      array.AddVolume("v" + std::to_string(i), std::vector<std::byte>(4096));
    }
  };
  ServedMount mount(setup);
  std::atomic<size_t> writing = kFiles;
  std::atomic<int> errors = 0;
  std::vector<std::thread> threads;
  std::vector<std::unique_ptr<File>> files;
  for (size_t i = 0; i < kFiles; ++i) {
    const std::string path = mount / ("v" + std::to_string(i));
    files.push_back(std::make_unique<File>(path, O_RDONLY));
    files.push_back(std::make_unique<File>(path, O_RDWR | O_DIRECT));
  }
  for (size_t i = 0; i < kFiles; ++i) {
    const int reading = files[2 * i]->fd();
    const int direct = files[2 * i + 1]->fd();
    threads.emplace_back([&, direct, i] {
      const AlignedBytes bytes(4096, i);
      for (int n = 0; n < 300; ++n) {
        errors += ::pwrite(direct, bytes.data(), bytes.size(), 0) == 4096 ? 0 : 1;
      }
      --writing;
    });
    threads.emplace_back([&, reading] {
      std::array<char, 4096> page{};
      while (writing != 0) {
        errors += ::pread(reading, page.data(), page.size(), 0) == 4096 ? 0 : 1;
      }
    });
  }
  for (int i = 0; i < 1200 && writing != 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  const bool all = writing == 0;
  EXPECT_TRUE(all) << "writers and readers wait for each other";
  if (!all) {
    ::umount2(mount.directory().c_str(), MNT_FORCE | MNT_DETACH);
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(errors, 0);
}

TEST(FuseData, PagesKeptFromEarlierOpensAreNotStale) {
  EPLOG_NEEDS_FUSE();
  ServedMount mount;
  const std::vector<std::byte> old = Pattern(8192, 1);
  {
    const File cached(mount / "v", O_CREAT | O_RDWR);
    WriteAll(cached.fd(), old, 0);
    EXPECT_EQ(ReadAll(cached.fd(), 8192, 0), old);
  }
  uint64_t reads_before = 0;
  mount.Do([&](FakeArray& array) { reads_before = array.reads; });
  EXPECT_EQ(ReadAll(File(mount / "v", O_RDONLY).fd(), 8192, 0), old);
  mount.Do([&](FakeArray& array) { EXPECT_EQ(array.reads, reads_before) << "cache was dropped"; });
  AlignedBytes fresh(4096, 2);
  {
    const File direct(mount / "v", O_RDWR | O_DIRECT);
    WriteAll(direct.fd(), fresh.span(), 4096);
  }
  const std::vector<std::byte> seen = ReadAll(File(mount / "v", O_RDONLY).fd(), 8192, 0);
  EXPECT_EQ(std::memcmp(seen.data() + 4096, fresh.data(), 4096), 0);
}

TEST(FuseData, ErrorsBecomeErrno) {
  EPLOG_NEEDS_FUSE();
  ServedMount mount;
  const File file(mount / "v", O_CREAT | O_RDWR | O_DIRECT);
  ASSERT_EQ(::ftruncate(file.fd(), 1 << 20), 0);
  AlignedBytes block(4096, 1);
  const std::pair<ErrorCode, int> cases[] = {
      {ErrorCode::kNoSpace, ENOSPC},
      {ErrorCode::kIo, EIO},
      {ErrorCode::kCorrupt, EIO},
      {ErrorCode::kDeviceFailed, EIO},
      {ErrorCode::kTooManyFailures, EIO},
      {ErrorCode::kReadOnly, EROFS},
      {ErrorCode::kShutdown, EIO},
      {ErrorCode::kBusy, EBUSY},
      {ErrorCode::kUnsupported, EOPNOTSUPP},
  };
  for (const auto& [code, error] : cases) {
    mount.Do([code = code](FakeArray& array) {
      array.before = [code](const FakeArray::Call& call) -> Status {
        return call.op == Op::kResize ? OkStatus() : Status(Fail(code, "wanted"));
      };
    });
    EXPECT_EQ(::pwrite(file.fd(), block.data(), 4096, 0), -1);
    EXPECT_EQ(errno, error) << ErrorCodeName(code);
    EXPECT_EQ(::pread(file.fd(), block.data(), 4096, 0), -1);
    EXPECT_EQ(errno, error) << ErrorCodeName(code);
    EXPECT_EQ(::fsync(file.fd()), -1);
    EXPECT_EQ(errno, error) << ErrorCodeName(code);
    // Growing is undone when the data finds no place.
    EXPECT_EQ(::pwrite(file.fd(), block.data(), 4096, 1 << 20), -1);
    EXPECT_EQ(errno, error) << ErrorCodeName(code);
    EXPECT_EQ(Size(mount / "v"), size_t{1} << 20);
    mount.Do([](FakeArray& array) { array.before = nullptr; });
  }
  WriteAll(file.fd(), block.span(), 0);
}

TEST(FuseData, FullArrayRefusesAndStatfsTellsWhatIsLeft) {
  EPLOG_NEEDS_FUSE();
  MountSetup setup;
  setup.capacity_bytes = 64 * 4096;
  ServedMount mount(setup);
  struct statvfs before {};
  ASSERT_EQ(::statvfs(mount.directory().c_str(), &before), 0);
  EXPECT_EQ(before.f_blocks, 64U);
  EXPECT_EQ(before.f_bfree, 64U);
  EXPECT_EQ(before.f_bsize, 4096U);
  EXPECT_EQ(before.f_namemax, kMaxVolumeNameBytes);
  const File file(mount / "v", O_CREAT | O_RDWR | O_DIRECT);
  AlignedBytes data(48 * 4096, 1);
  WriteAll(file.fd(), data.span(), 0);
  EXPECT_EQ(::pwrite(file.fd(), data.data(), data.size(), 48 * 4096), -1);
  EXPECT_EQ(errno, ENOSPC);
  EXPECT_EQ(Size(mount / "v"), data.size());
  struct statvfs after {};
  ASSERT_EQ(::statvfs(mount.directory().c_str(), &after), 0);
  EXPECT_EQ(after.f_bfree, 16U);
  struct stat info {};
  ASSERT_EQ(::fstat(file.fd(), &info), 0);
  EXPECT_EQ(info.st_blocks, 48 * 8);
  EXPECT_EQ(info.st_blksize, 4096);
}

// What every file system says, and what a program may go by.
TEST(FuseData, TheLargestSizeIsFilledAndNotPassed) {
  EPLOG_NEEDS_FUSE();
  ServedMount mount;
  const File cached(mount / "v", O_CREAT | O_RDWR);
  const File direct(mount / "v", O_RDWR | O_DIRECT);
  const AlignedBytes bytes(8192, 1);
  const auto most = static_cast<off_t>(kMaxVolumeBytes);
  for (const int fd : {cached.fd(), direct.fd()}) {
    EXPECT_EQ(::pwrite(fd, bytes.data(), 8192, most - 4096), 4096) << "as far as there is room";
    EXPECT_EQ(::pwrite(fd, bytes.data(), 4096, most), -1);
    EXPECT_EQ(errno, EFBIG);
    EXPECT_EQ(::pwrite(fd, bytes.data(), 4096, most + 4096), -1);
    EXPECT_EQ(errno, EFBIG);
  }
  EXPECT_EQ(Size(mount / "v"), kMaxVolumeBytes);
  EXPECT_EQ(::ftruncate(cached.fd(), most + 1), -1);
  EXPECT_EQ(errno, EFBIG);
  EXPECT_EQ(::fallocate(cached.fd(), 0, most, 1), -1);
  EXPECT_EQ(errno, EFBIG);
  ASSERT_EQ(::ftruncate(cached.fd(), 0), 0);
  // An array whose extents are small may hold less; it says so, and the errno is the same.
  mount.Do([](FakeArray& array) {
    array.before = [](const FakeArray::Call& call) -> Status {
      if (call.op != Op::kResize || call.length_bytes <= 8192) {
        return OkStatus();
      }
      Error error;
      error.code = ErrorCode::kInvalidArgument;
      error.errno_value = EFBIG;
      error.message = "wanted";
      return Fail(std::move(error));
    };
  });
  EXPECT_EQ(::ftruncate(cached.fd(), 8193), -1);
  EXPECT_EQ(errno, EFBIG);
  EXPECT_EQ(::pwrite(cached.fd(), bytes.data(), 1, 8192), -1);
  EXPECT_EQ(errno, EFBIG);
  EXPECT_EQ(::fallocate(cached.fd(), 0, 0, 8193), -1);
  EXPECT_EQ(errno, EFBIG);
  mount.Do([](FakeArray& array) { array.before = nullptr; });
}

TEST(FuseData, AllocateExtendsPunchesAndZeroes) {
  EPLOG_NEEDS_FUSE();
  ServedMount mount;
  const File file(mount / "v", O_CREAT | O_RDWR);
  WriteAll(file.fd(), Pattern(9000, 1), 0);
  EXPECT_EQ(::fallocate(file.fd(), 0, 0, 4096), 0);
  EXPECT_EQ(Size(mount / "v"), 9000U) << "fallocate inside must not cut";
  EXPECT_EQ(::fallocate(file.fd(), 0, 4096, 100000), 0);
  EXPECT_EQ(Size(mount / "v"), 104096U);
  constexpr int kKeep = FALLOC_FL_KEEP_SIZE;
  std::vector<std::byte> want = Pattern(9000, 1);
  const auto zero = [&want](size_t begin, size_t end) {
    std::fill(want.begin() + static_cast<std::ptrdiff_t>(begin),
              want.begin() + static_cast<std::ptrdiff_t>(end), std::byte{0});
  };
  ASSERT_EQ(::fallocate(file.fd(), FALLOC_FL_PUNCH_HOLE | kKeep, 100, 4096), 0);
  zero(100, 4196);
  EXPECT_EQ(ReadAll(file.fd(), 9000, 0), want);
  ASSERT_EQ(::fallocate(file.fd(), FALLOC_FL_ZERO_RANGE | kKeep, 8000, 200000), 0);
  zero(8000, 9000);
  EXPECT_EQ(ReadAll(file.fd(), 9000, 0), want);
  EXPECT_EQ(Size(mount / "v"), 104096U);
  ASSERT_EQ(::fallocate(file.fd(), FALLOC_FL_ZERO_RANGE, 100000, 100000), 0);
  EXPECT_EQ(Size(mount / "v"), 200000U);
  ASSERT_EQ(::fallocate(file.fd(), FALLOC_FL_PUNCH_HOLE | kKeep, 300000, 10), 0)
      << "a hole beyond the end is there already";
  EXPECT_EQ(::fallocate(file.fd(), FALLOC_FL_COLLAPSE_RANGE, 0, 4096), -1);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

TEST(FuseData, ReadOnlyMountReadsAndRefusesChanges) {
  EPLOG_NEEDS_FUSE();
  MountSetup setup;
  setup.read_only = true;
  setup.prepare = [](FakeArray& array) { array.AddVolume("v", Pattern(5000, 1)); };
  ServedMount mount(setup);
  const File file(mount / "v", O_RDONLY);
  EXPECT_EQ(ReadAll(file.fd(), 6000, 0), Pattern(5000, 1));
  EXPECT_EQ(::open((mount / "v").c_str(), O_RDWR | O_CLOEXEC), -1);
  EXPECT_EQ(errno, EROFS);
  EXPECT_EQ(::open((mount / "w").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600), -1);
  EXPECT_EQ(errno, EROFS);
  EXPECT_EQ(::truncate((mount / "v").c_str(), 1), -1);
  EXPECT_EQ(errno, EROFS);
  EXPECT_EQ(::unlink((mount / "v").c_str()), -1);
  EXPECT_EQ(errno, EROFS);
}

}  // namespace
}  // namespace eplog
