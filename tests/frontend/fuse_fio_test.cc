// fio against the mount: its own check of every block under parallel direct I/O, and, when asked
// for, figures.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "tests/frontend/served_mount.h"

namespace eplog {
namespace {

bool HaveFio() {
  return std::system("fio --version > /dev/null 2>&1") == 0;
}

int RunFio(const std::string& file, const std::string& options) {
  const std::string command =
      "fio --name=t --filename=" + file + " --ioengine=io_uring --direct=1 --size=64M " + options;
  return std::system(command.c_str());
}

// Buffers that are reused before their request is answered corrupt just this.
TEST(FuseFio, ParallelRandomWritesVerify) {
  EPLOG_NEEDS_FUSE();
  if (!HaveFio()) {
    GTEST_SKIP() << "needs fio";
  }
  ServedMount mount;
  mount.Do([](FakeArray& array) { array.max_delay_us = 300; });
  for (const char* blocks : {"--bs=4k", "--bsrange=4k-256k"}) {
    EXPECT_EQ(
        RunFio(mount / "v", std::string(blocks) +
                                " --rw=randwrite --iodepth=16 --verify=crc32c --verify_backlog=256 "
                                "--do_verify=1 --output=/dev/null"),
        0)
        << blocks;
  }
  mount.Do([](FakeArray& array) { EXPECT_EQ(array.changed_buffers, 0U); });
}

// EPLOG_BENCH=1: prints what FUSE alone costs, over an array that takes no time.
TEST(FuseFio, FiguresWithNullArray) {
  EPLOG_NEEDS_FUSE();
  if (std::getenv("EPLOG_BENCH") == nullptr || !HaveFio()) {  // NOLINT(concurrency-mt-unsafe)
    GTEST_SKIP() << "measures only with EPLOG_BENCH=1 and fio";
  }
  ServedMount mount;
  mount.Do([](FakeArray& array) { array.keep_data = false; });
  ASSERT_EQ(::close(::open((mount / "v").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600)), 0);
  ASSERT_EQ(::truncate((mount / "v").c_str(), 64 << 20), 0);
  for (const char* work :
       {"--bs=4k --rw=randwrite --iodepth=32", "--bs=4k --rw=randread --iodepth=32",
        "--bs=4k --rw=randwrite --iodepth=1", "--bs=1m --rw=write --iodepth=8",
        "--bs=1m --rw=read --iodepth=8"}) {
    std::printf("%s\n", work);
    std::fflush(stdout);
    EXPECT_EQ(RunFio(mount / "v", std::string(work) +
                                      " --time_based --runtime=4 --norandommap --randrepeat=0 "
                                      "--output-format=normal | grep -E 'IOPS|lat.*avg' | head -2"),
              0);
  }
}

}  // namespace
}  // namespace eplog
