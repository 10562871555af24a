// Replays of generated workloads on memory: bytes that follow from the requests alone are exact.
#include "replay/replay.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <memory>

#include "base/random.h"
#include "replay/feed.h"

namespace eplog {
namespace {

constexpr Policy kAll[] = {Policy::kEplog, Policy::kPaper, Policy::kMd, Policy::kPl};

ReplaySettings Settings(const std::string& trace, uint32_t data, uint32_t parity) {
  ReplaySettings settings;
  settings.traces = {trace};
  settings.ssds = data + parity;
  settings.parity = parity;
  settings.devices = DeviceKind::kMemory;
  settings.check_parity = true;
  return settings;
}

Result<ReplayResult> Play(const ReplaySettings& settings, std::span<const Policy> policies) {
  return Replay(settings, policies, [](const std::string&, uint64_t, uint64_t) {});
}

// What the requests alone say.
struct Expected {
  uint64_t chunk_rounded_bytes = 0;  // of writes
  uint64_t whole_stripes = 0;        // inside single requests
  uint64_t write_requests = 0;
};

Expected Count(const ReplaySettings& settings) {
  Expected expected;
  auto feed = Feed::Open(settings, {});
  EXPECT_TRUE(feed.ok());
  const uint64_t chunk = settings.chunk_bytes;
  const uint64_t stripe = chunk * (settings.ssds - settings.parity);
  while (true) {
    auto next = (*feed)->Next();
    EXPECT_TRUE(next.ok());
    if (!next.ok() || !*next) {
      return expected;
    }
    const TraceRequest& request = **next;
    if (request.op != TraceOp::kWrite) {
      continue;
    }
    ++expected.write_requests;
    const uint64_t end = request.end_bytes();
    expected.chunk_rounded_bytes += (DivideUp(end, chunk) - request.offset_bytes / chunk) * chunk;
    const uint64_t first = DivideUp(request.offset_bytes, stripe);
    expected.whole_stripes += end / stripe > first ? end / stripe - first : 0;
  }
}

uint64_t Sum(const std::vector<DeviceCounters>& devices) {
  uint64_t sum = 0;
  for (const DeviceCounters& device : devices) {
    sum += device.bytes_written;
  }
  return sum;
}

struct Layout {
  uint32_t data;
  uint32_t parity;
};

// A profile of this folder that has everything and is small.
const char* const kSmall = EPLOG_SOURCE_DIR "/tests/replay/small.toml";

class ReplayBytes : public ::testing::TestWithParam<Layout> {};

TEST_P(ReplayBytes, WithoutCommitsFollowFromTheRequests) {
  const Layout layout = GetParam();
  ReplaySettings settings = Settings(kSmall, layout.data, layout.parity);
  settings.prefill = true;
  settings.commit_every = 0;
  constexpr Policy kBoth[] = {Policy::kPaper, Policy::kEplog};
  const auto result = Play(settings, kBoth);
  ASSERT_TRUE(result.ok()) << result.error().ToString();
  const Expected expected = Count(settings);
  const PolicyResult& paper = result->policies[0];
  const PolicyResult& eplog = result->policies[1];
  EXPECT_EQ(paper.traffic.ssd_data_bytes, expected.chunk_rounded_bytes);
  EXPECT_EQ(paper.traffic.ssd_parity_bytes, 0U);
  EXPECT_EQ(eplog.traffic.ssd_data_bytes, expected.chunk_rounded_bytes);
  EXPECT_EQ(eplog.traffic.ssd_parity_bytes,
            expected.whole_stripes * layout.parity * settings.chunk_bytes);
  for (const PolicyResult& each : result->policies) {
    EXPECT_EQ(each.write_requests, expected.write_requests);
    EXPECT_EQ(Sum(each.ssds), each.traffic.ssd_data_bytes + each.traffic.ssd_parity_bytes +
                                  each.traffic.ssd_metadata_bytes);
    EXPECT_EQ(Sum(each.logs), each.traffic.log_chunk_bytes + each.traffic.log_header_bytes);
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, ReplayBytes,
                         ::testing::Values(Layout{6, 2}, Layout{6, 1}, Layout{4, 2}, Layout{4, 1},
                                           Layout{5, 3}),
                         [](const auto& each) {
                           return std::to_string(each.param.data) + "and" +
                                  std::to_string(each.param.parity);
                         });

std::string Fingerprint(const ReplayResult& result) {
  std::string text;
  for (const PolicyResult& each : result.policies) {
    ForEachCounter(each.traffic, [&](uint64_t value) { text += std::to_string(value) + ","; });
    for (const DeviceCounters& ssd : each.ssds) {
      text += std::to_string(ssd.reads) + "/" + std::to_string(ssd.bytes_written) + ",";
    }
    text += std::to_string(each.duration_us) + "," + std::to_string(each.flash.erases) + "," +
            std::to_string(each.latency_us.Percentile(990'000)) + ";";
  }
  return text;
}

TEST(Replay, TheSameTwice) {
  ReplaySettings settings = Settings(kSmall, 6, 2);
  settings.limit = 5'000;
  settings.prefill = true;
  settings.devices = DeviceKind::kSimulated;
  settings.commit_every = 1'000;
  settings.buffers.device_chunks = 8;
  const auto first = Play(settings, kAll);
  const auto second = Play(settings, kAll);
  ASSERT_TRUE(first.ok()) << first.error().ToString();
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(Fingerprint(*first), Fingerprint(*second));
  settings.trace.seed = 99;
  const auto other = Play(settings, kAll);
  ASSERT_TRUE(other.ok());
  EXPECT_NE(Fingerprint(*first), Fingerprint(*other));
}

TEST(Replay, DegradedAndWithEveryPolicy) {
  ReplaySettings settings = Settings(kSmall, 6, 2);
  settings.limit = 3'000;
  settings.prefill = true;
  settings.failed_ssds = {2, 5};
  settings.commit_every = 1'000;
  settings.commit_at_end = true;
  const auto result = Play(settings, kAll);
  ASSERT_TRUE(result.ok()) << result.error().ToString();
  for (const PolicyResult& each : result->policies) {
    EXPECT_EQ(each.requests, 3'000U);
    EXPECT_EQ(each.ssds[2].bytes_written, 0U) << PolicyName(each.policy);
    EXPECT_EQ(each.ssds[5].reads, 0U);
  }
}

TEST(Replay, LargerChunksTrimsAndFewerRequestsACommitThanInFlight) {
  const std::string path = ::testing::TempDir() + "trims.txt";
  {
    std::ofstream out(path);
    Random random(5);
    for (int i = 0; i < 2'000; ++i) {
      const char op = "wwwrtf"[random.Below(6)];
      out << i * 50 << ",0," << random.Below(4000) * 1024 << "," << 1 + random.Below(40'000) << ","
          << op << "\n";
    }
  }
  ReplaySettings settings = Settings(path, 4, 2);
  settings.trace.format = TraceFormat::kColumns;
  const auto layout = ParseColumnLayout("time_us,disk,offset,size,op");
  ASSERT_TRUE(layout.ok());
  settings.trace.columns = *layout;
  settings.chunk_bytes = 65'536;
  settings.commit_every = 7;
  settings.flush_every = 100;
  for (const double speed : {0.0, 1.0, 10.0}) {
    settings.speed = speed;
    settings.devices = speed == 0 ? DeviceKind::kMemory : DeviceKind::kSimulated;
    const auto result = Play(settings, kAll);
    ASSERT_TRUE(result.ok()) << result.error().ToString();
    for (const PolicyResult& each : result->policies) {
      EXPECT_EQ(each.requests, 2'000U) << PolicyName(each.policy);
      EXPECT_EQ(each.flash.gc_runs, 0U);
    }
  }
  std::remove(path.c_str());
}

TEST(Replay, ComesTooFastForTheDevices) {
  ReplaySettings settings = Settings("fin", 6, 2);
  settings.limit = 200'000;
  settings.devices = DeviceKind::kSimulated;
  settings.speed = 1e6;
  constexpr Policy kOne[] = {Policy::kMd};
  const auto result = Play(settings, kOne);
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.error().message.find("lower --speed"), std::string::npos);
}

TEST(Replay, SaysWhenSpaceRanOutWithoutCommits) {
  ReplaySettings settings = Settings(kSmall, 6, 2);
  settings.prefill = true;
  settings.commit_every = 0;
  settings.ssd_bytes = uint64_t{8} << 20;
  constexpr Policy kOne[] = {Policy::kEplog};
  const auto result = Play(settings, kOne);
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.error().message.find("--ssd-size"), std::string::npos);
}

TEST(Replay, CommitsComeAfterSoManyWriteRequests) {
  ReplaySettings settings = Settings(kSmall, 6, 2);
  settings.limit = 5'500;
  settings.prefill = true;
  settings.commit_every = 500;
  constexpr Policy kTwo[] = {Policy::kEplog, Policy::kPl};
  const auto result = Play(settings, kTwo);
  ASSERT_TRUE(result.ok()) << result.error().ToString();
  const PolicyResult& eplog = result->policies.front();
  const PolicyResult& pl = result->policies.back();
  const Expected expected = Count(settings);
  EXPECT_GT(pl.write_requests, 2'000U);
  EXPECT_EQ(pl.traffic.commits, pl.write_requests / 500);
  EXPECT_EQ(eplog.traffic.ssd_parity_bytes,
            (eplog.traffic.committed_stripes + expected.whole_stripes) * 2 * settings.chunk_bytes);
}

class Refused : public ::testing::Test {
 protected:
  std::string Why(const ReplaySettings& settings) {
    const auto result = Play(settings, kAll);
    EXPECT_FALSE(result.ok());
    return result.ok() ? "" : result.error().message;
  }
};

TEST_F(Refused, WhatMakesNoSense) {
  ReplaySettings settings = Settings(kSmall, 6, 2);
  settings.failed_ssds = {1, 2, 3};
  EXPECT_NE(Why(settings).find("more SSDs are to fail"), std::string::npos);
  settings.failed_ssds = {8};
  EXPECT_NE(Why(settings).find("ssd0 to ssd7"), std::string::npos);
  settings.failed_ssds = {};
  settings.queue_depth = 0;
  EXPECT_NE(Why(settings).find("queue depth"), std::string::npos);
  settings.queue_depth = 1;
  settings.precondition = true;
  EXPECT_NE(Why(settings).find("--devices sim"), std::string::npos);
  settings.precondition = false;
  settings.traces = {"no-such-trace"};
  EXPECT_NE(Why(settings).find("no-such-trace"), std::string::npos);
  settings.traces = {"-"};
  EXPECT_NE(Why(settings).find("twice"), std::string::npos);
}

// Far places, ends that are no sectors, other volumes: dense and whole sectors.
TEST(Feed, PlacesAreMadeDense) {
  const std::string path = ::testing::TempDir() + "feed.txt";
  {
    std::ofstream out(path);
    out << "0,0,1000,100,w\n5,0,9000000000,512,w\n9,1,0,4096,r\n";
  }
  ReplaySettings settings;
  settings.traces = {path};
  settings.trace.format = TraceFormat::kColumns;
  const auto layout = ParseColumnLayout("time_us,disk,offset,size,op");
  ASSERT_TRUE(layout.ok());
  settings.trace.columns = *layout;
  settings.repeat = 2;
  auto feed = Feed::Open(settings, {});
  ASSERT_TRUE(feed.ok()) << feed.error().ToString();
  EXPECT_EQ((*feed)->span_bytes(), uint64_t{3} << 20);
  EXPECT_EQ((*feed)->total(), 6U);
  uint64_t last_us = 0;
  for (int i = 0; i < 6; ++i) {
    const auto next = (*feed)->Next();
    ASSERT_TRUE(next.ok() && next->has_value());
    const TraceRequest& request = **next;
    EXPECT_EQ(request.offset_bytes % 512, 0U);
    EXPECT_EQ(request.length_bytes % 512, 0U);
    EXPECT_LE(request.end_bytes(), (*feed)->span_bytes());
    EXPECT_GE(request.time_us, last_us);
    last_us = request.time_us;
    if (i % 3 == 0) {
      EXPECT_EQ(request.offset_bytes, 512U);
      EXPECT_EQ(request.length_bytes, 1024U) << "1000 to 1100 lies in two sectors";
    }
  }
  EXPECT_FALSE((*feed)->Next()->has_value());
  std::remove(path.c_str());
}

}  // namespace
}  // namespace eplog
