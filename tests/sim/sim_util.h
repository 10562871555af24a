// What the tests of this room share: drives of round numbers, and many requests at once.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "runtime/task_group.h"
#include "runtime/virtual_loop.h"
#include "sim/sim_hdd.h"
#include "sim/sim_ssd.h"
#include "tests/device/device_util.h"

namespace eplog::sim::test {

using eplog::test::Await;
using eplog::test::Filled;
using eplog::test::Holds;
using eplog::test::Pool;

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kUs = 1000;
constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kPage = 4096;

// Four channels of two dies; a read of the flash gets a page, a program writes four. The link costs
// next to nothing.
inline SsdParameters PlainSsd() {
  SsdParameters ssd;
  ssd.link.read_bytes_per_s = ssd.link.write_bytes_per_s = 100'000'000'000;
  ssd.link.queue_depth = 1024;
  ssd.link.request_ns = 1;
  ssd.flash.channels = 4;
  ssd.flash.ways = 2;
  ssd.flash.program_pages = 4;
  ssd.flash.pages_per_block = 64;
  ssd.flash.read_ns = 50 * kUs;
  ssd.flash.program_ns = 1000 * kUs;
  ssd.flash.erase_ns = 3000 * kUs;
  ssd.flash.channel_bytes_per_s = 10'000'000'000;
  ssd.flash.overprovisioning_ppm = 200'000;
  ssd.buffer_bytes = 2 * kMiB;
  return ssd;
}

// 7,200 rpm, 100 MB/s everywhere, tracks without a switch between them.
inline HddParameters PlainHdd() {
  HddParameters hdd;
  hdd.link.read_bytes_per_s = hdd.link.write_bytes_per_s = 100'000'000'000;
  hdd.link.queue_depth = 32;
  hdd.revolution_ns = 8'333'333;
  hdd.seek_track_ns = 1 * kMs;
  hdd.seek_average_ns = 8 * kMs;
  hdd.seek_full_ns = 17 * kMs;
  hdd.outer_bytes_per_s = hdd.inner_bytes_per_s = 100'000'000;
  hdd.cache_bytes = 16 * kMiB;
  hdd.read_ahead_bytes = 1 * kMiB;
  return hdd;
}

inline Task<Status> OneAfterTheOther(uint64_t* next, uint64_t count,
                                     const std::function<Task<Status>(uint64_t)>* request) {
  while (*next < count) {
    Task<Status> task = (*request)((*next)++);
    Status status = co_await task;
    EPLOG_CO_TRY(status);
  }
  co_return OkStatus();
}

inline Task<Status> AtDepth(EventLoop& loop, uint32_t depth, uint64_t count,
                            const std::function<Task<Status>(uint64_t)>* request) {
  uint64_t next = 0;
  TaskGroup group(loop);
  for (uint32_t i = 0; i < depth; ++i) {
    group.Start(OneAfterTheOther(&next, count, request));
  }
  Task<Status> all = group.Wait();
  co_return co_await all;
}

// `count` requests, always `depth` at once. The virtual microseconds that all take.
inline uint64_t Elapsed(EventLoop& loop, uint32_t depth, uint64_t count,
                        const std::function<Task<Status>(uint64_t)>& request) {
  const uint64_t begin_us = loop.NowUs();
  const Status status = Await(loop, AtDepth(loop, depth, count, &request));
  EXPECT_TRUE(status.ok());
  return loop.NowUs() - begin_us;
}

// Of one request.
inline uint64_t Elapsed(EventLoop& loop, Task<Status> task) {
  const uint64_t begin_us = loop.NowUs();
  EXPECT_TRUE(Await(loop, std::move(task)).ok());
  return loop.NowUs() - begin_us;
}

inline double RelativeError(double measured, double expected) {
  return measured / expected - 1;
}

// The simulated second as requests or bytes a second.
inline double PerSecond(uint64_t amount, uint64_t elapsed_us) {
  return static_cast<double>(amount) * 1e6 / static_cast<double>(elapsed_us);
}

}  // namespace eplog::sim::test
