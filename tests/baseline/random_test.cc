// Random requests, many in flight, on devices that answer in any order: what is read is what was
// written, and parity is that of the data when all is quiet. Healthy, and for every choice of
// failed devices.
#include <gtest/gtest.h>

#include <bit>

#include "runtime/task_group.h"
#include "tests/baseline/rig.h"
#include "tests/baseline/volume_model.h"
#include "tests/erasure/oracle.h"

namespace eplog::test {
namespace {

constexpr uint64_t kMostRequestBytes = 96 << 10;

class Storm {
 public:
  Storm(TargetRig& rig, VolumeModel& model, uint64_t seed)
      : rig_(rig), model_(model), random_(seed) {}

  // `count` requests, `depth` at once.
  void Run(uint32_t count, uint32_t depth) {
    left_ = count;
    const Status status = RunTask(rig_.loop, All(depth));
    EXPECT_TRUE(status.ok()) << status.error().ToString();
  }
  void ReadAll() {
    const Status status = RunTask(rig_.loop, ReadWhole());
    EXPECT_TRUE(status.ok()) << status.error().ToString();
  }

 private:
  Task<Status> All(uint32_t depth) {
    TaskGroup group(rig_.loop);
    for (uint32_t i = 0; i < depth; ++i) {
      group.Start(Work());
    }
    Task<Status> all = group.Wait();
    co_return co_await all;
  }

  Task<Status> Work() {
    while (left_ != 0) {
      --left_;
      const auto [offset, length] = Range();
      const uint64_t dice = random_.Below(20);
      Task<Status> request = dice < 13   ? Write(offset, length)
                             : dice < 18 ? Read(offset, length)
                             : dice < 19 ? rig_.target->Flush()
                                         : rig_.target->Commit();
      const Status status = co_await request;
      EPLOG_CO_TRY(status);
    }
    co_return OkStatus();
  }

  // Small and large, whole pages and sectors, often in one place.
  std::pair<uint64_t, uint64_t> Range() {
    const uint64_t size = rig_.target->size_bytes();
    const uint64_t unit = random_.OneIn(3) ? kSectorBytes : kPageBytes;
    const uint64_t most = random_.OneIn(5) ? kMostRequestBytes : 3 * kPageBytes;
    const uint64_t within = random_.OneIn(2) ? size : size / 8;
    const uint64_t length = std::min((1 + random_.Below(most / unit)) * unit, within);
    return {random_.Below((within - length) / unit + 1) * unit, length};
  }

  Task<Status> Write(uint64_t offset, uint64_t length) {
    const Buffer data = rig_.pool.Get(length);
    const uint64_t write = model_.BeginWrite(offset, data.span());
    Task<Status> request = rig_.target->Write(offset, data.span());
    Status status = co_await request;
    model_.EndWrite(write, offset, length);
    co_return status;
  }

  Task<Status> Read(uint64_t offset, uint64_t length) {
    const Buffer data = rig_.pool.Get(length);
    const uint64_t begin = model_.Now();
    Task<Status> request = rig_.target->Read(offset, data.span());
    const Status status = co_await request;
    EPLOG_CO_TRY(status);
    const auto wrong = model_.Check(begin, offset, data.span());
    EXPECT_FALSE(wrong) << *wrong;
    co_return OkStatus();
  }

  Task<Status> ReadWhole() {
    for (uint64_t at = 0; at < rig_.target->size_bytes(); at += kMostRequestBytes) {
      Task<Status> read = Read(at, std::min(kMostRequestBytes, rig_.target->size_bytes() - at));
      const Status status = co_await read;
      EPLOG_CO_TRY(status);
    }
    co_return OkStatus();
  }

  TargetRig& rig_;
  VolumeModel& model_;
  Random random_;
  uint32_t left_ = 0;
};

// Every page that is there is that of the line which its data says, decoded by a slow second
// opinion from the others where SSDs have failed.
void ExpectConsistent(const TargetRig& rig, uint64_t failed) {
  const Placement& placement = rig.placement();
  const uint32_t k = placement.k();
  for (uint64_t line = 0; line < placement.lines(); ++line) {
    std::vector<oracle::Bytes> chunks;
    uint64_t present = 0;
    for (uint32_t i = 0; i < placement.n(); ++i) {
      chunks.push_back(rig.PageOf(line, i));
      const bool gone = (failed >> placement.SsdOf(line, i).value & 1) != 0;
      present |= gone ? 0 : uint64_t{1} << i;
    }
    const auto whole = oracle::Decode(chunks, k, present);
    for (uint32_t i = 0; i < placement.n(); ++i) {
      if ((present >> i & 1) != 0) {
        ASSERT_EQ(whole[i], chunks[i]) << "line " << line << " position " << i;
      }
    }
  }
}

struct Case {
  Kind kind;
  uint32_t n;
  uint32_t m;
  uint32_t chunk_bytes;
  uint64_t page_cache_bytes = 0;
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << (c.kind == Kind::kMd ? "md" : "pl") << c.n << "x" << c.m << "chunk" << c.chunk_bytes
             << (c.page_cache_bytes != 0 ? "cached" : "");
}

class RandomRequests : public ::testing::TestWithParam<Case> {
 protected:
  static RigShape ShapeOf(const Case& c, uint64_t seed) {
    RigShape shape;
    shape.kind = c.kind;
    shape.n = c.n;
    shape.m = c.m;
    shape.chunk_bytes = c.chunk_bytes;
    shape.page_cache_bytes = c.page_cache_bytes;
    shape.ssd_bytes = uint64_t{96} << 10;
    shape.log_bytes = uint64_t{40} << 10;  // full every few requests
    shape.cached_lines = 16;               // of 24
    shape.commit_memory_bytes = uint64_t{32} << 10;
    shape.seed = seed;
    shape.one_submitter = seed % 2 != 0;
    shape.choice = static_cast<ParityChoice>(seed % 3);
    shape.most_delay_us = 200;
    return shape;
  }
};

TEST_P(RandomRequests, AreReadAsWritten) {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    TargetRig rig(ShapeOf(GetParam(), seed));
    VolumeModel model(rig.target->size_bytes());
    Storm storm(rig, model, seed);
    storm.Run(400, 16);
    storm.ReadAll();
    ASSERT_TRUE(RunTask(rig.loop, rig.target->Commit()).ok());
    ExpectConsistent(rig, 0);
  }
}

TEST_P(RandomRequests, AreReadAsWrittenWhereDevicesAnswerAtOnce) {
  RigShape shape = ShapeOf(GetParam(), 9);
  shape.most_delay_us = 0;
  shape.at_once = true;
  TargetRig rig(shape);
  VolumeModel model(rig.target->size_bytes());
  Storm storm(rig, model, 9);
  storm.Run(300, 8);
  rig.Open(1);
  storm.Run(300, 8);
  storm.ReadAll();
  ASSERT_TRUE(RunTask(rig.loop, rig.target->Commit()).ok());
  ExpectConsistent(rig, 1);
}

TEST_P(RandomRequests, SurviveEveryChoiceOfFailedDevices) {
  const Case c = GetParam();
  const uint32_t devices = c.n + (c.kind == Kind::kPl ? c.m : 0);
  for (uint64_t failed = 1; failed < uint64_t{1} << devices; ++failed) {
    if (static_cast<uint32_t>(std::popcount(failed)) > c.m) {
      continue;
    }
    SCOPED_TRACE("failed mask " + std::to_string(failed));
    TargetRig rig(ShapeOf(c, failed));
    VolumeModel model(rig.target->size_bytes());
    Storm storm(rig, model, failed);
    storm.Run(60, 8);
    rig.Open(failed);
    storm.ReadAll();
    storm.Run(80, 8);
    storm.ReadAll();
    ASSERT_TRUE(RunTask(rig.loop, rig.target->Commit()).ok());
    storm.ReadAll();
    ExpectConsistent(rig, failed & ((uint64_t{1} << c.n) - 1));
  }
}

// Which of the requests in flight comes first is up to the seed, and to nothing else.
TEST_P(RandomRequests, SameSeedSameTraffic) {
  const auto run = [](uint64_t seed) {
    TargetRig rig(ShapeOf(GetParam(), seed));
    VolumeModel model(rig.target->size_bytes());
    Storm(rig, model, seed).Run(300, 12);
    std::vector<uint64_t> counts{rig.loop.NowUs()};
    for (const DeviceTraffic& device : rig.traffic().ssds) {
      counts.insert(counts.end(),
                    {device.reads, device.writes, device.bytes_read, device.bytes_written});
    }
    return counts;
  };
  EXPECT_EQ(run(7), run(7));
  EXPECT_NE(run(7), run(8));
}

INSTANTIATE_TEST_SUITE_P(Shapes, RandomRequests,
                         ::testing::Values(Case{Kind::kMd, 3, 1, 4096}, Case{Kind::kMd, 5, 1, 8192},
                                           Case{Kind::kMd, 5, 2, 4096},
                                           Case{Kind::kMd, 8, 2, 16384},
                                           Case{Kind::kMd, 6, 3, 4096}, Case{Kind::kPl, 3, 1, 4096},
                                           Case{Kind::kPl, 5, 1, 8192}, Case{Kind::kPl, 6, 2, 4096},
                                           Case{Kind::kPl, 6, 3, 16384},
                                           // Written back at flushes, and all the time.
                                           Case{Kind::kMd, 5, 2, 4096, 1 << 20},
                                           Case{Kind::kMd, 5, 1, 8192, 32 << 10},
                                           Case{Kind::kPl, 6, 2, 4096, 64 << 10}),
                         ::testing::PrintToStringParamName());

}  // namespace
}  // namespace eplog::test
