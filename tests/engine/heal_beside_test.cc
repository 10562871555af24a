// Healing beside everything else: chunks of one SSD at a time go wrong while others write, trim,
// delete and scrub, also where the array is full. Nothing is lost, nothing is old, and no slot
// leaks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "layout/geometry.h"
#include "runtime/task_group.h"
#include "tests/engine/small_array.h"

namespace eplog {
namespace {

constexpr uint64_t kChunk = 4096;
constexpr uint64_t kPatienceUs = 600'000'000;  // of the virtual clock

struct HealCase {
  uint32_t n;
  uint32_t m;
  uint64_t ssd_kib;
  uint64_t log_kib;
  uint64_t seed;
  uint32_t buffer_chunks;
};

void PrintTo(const HealCase& c, std::ostream* out) {
  *out << c.n - c.m << "+" << c.m << ", SSD " << c.ssd_kib << "K, log " << c.log_kib << "K, seed "
       << c.seed << ", buffers of " << c.buffer_chunks;
}

class HealBeside : public ::testing::TestWithParam<HealCase> {
 protected:
  void SetUp() override {
    const HealCase& c = GetParam();
    ArrayShape shape;
    shape.n = c.n;
    shape.m = c.m;
    shape.ssd_bytes = c.ssd_kib << 10;
    shape.log_bytes = c.log_kib << 10;
    shape.ssd_delays = kSsdDelays;
    shape.log_delays = kLogDelays;
    shape.buffers.device_chunks = c.buffer_chunks;
    shape.max_corrupt_chunks = UINT32_MAX;
    test_ = std::make_unique<SmallArray>(shape);
    const uint64_t capacity = test_->array->GetStatus().capacity_bytes;
    const uint64_t extent =
        capacity - test_->array->GetStatus().free_bytes == 0 ? ExtentBytes() : 0;
    ASSERT_NE(extent, 0U);
    // All of it but what the volumes that come and go take.
    size_ = capacity - 2 * extent;
    coming_size_ = extent;
    volume_ = test_->CreateVolume("v", size_);
    model_.assign(size_ / kChunk, 0);
    Fill();
    random_ = Random(c.seed);
  }

  void Fill() {
    for (uint64_t chunk = 0; chunk < model_.size(); ++chunk) {
      std::vector<std::byte> data(kChunk);
      std::memcpy(data.data(), &++stamp_, sizeof stamp_);
      ASSERT_TRUE(test_->Write(volume_, chunk * kChunk, data).ok());
      model_[chunk] = stamp_;
    }
  }
  uint64_t ExtentBytes() {
    const VolumeId probe = test_->CreateVolume("probe", kChunk);
    const std::vector<std::byte> data(kChunk, std::byte{1});
    EXPECT_TRUE(test_->Write(probe, 0, data).ok());
    const uint64_t bytes = test_->array->GetStatus().allocated_bytes;
    EXPECT_TRUE(RunTask(test_->loop, test_->array->DeleteVolume(probe)).ok());
    return bytes;
  }
  void Note(const Status& status, const std::string& what) {
    if (!status.ok() && failure_.empty()) {
      failure_ = what + ": " + status.error().ToString();
    }
  }

  // Each writer has chunks of its own, so that what they should hold is known.
  Task<Status> Writer(uint64_t who, uint64_t count) {
    Buffer block = test_->pool.GetZeroed(3 * kChunk);
    const uint64_t chunks = model_.size();
    const uint64_t share = chunks / kWriters;
    for (uint64_t i = 0; i < count && failure_.empty(); ++i) {
      const uint64_t length = random_.Between(1, 3);
      const uint64_t at = who * share + random_.Between(0, share - length);
      if (random_.Between(0, 9) < 3) {
        Task<Status> trimming =
            test_->array->Trim(volume_, at * kChunk, length * kChunk, TrimMode::kZero);
        Note(co_await trimming, "a trim");
        std::fill_n(model_.begin() + static_cast<std::ptrdiff_t>(at), length, 0);
        continue;
      }
      for (uint64_t k = 0; k < length; ++k) {
        const uint64_t stamp = ++stamp_;
        std::memcpy(block.data() + k * kChunk, &stamp, sizeof stamp);
        model_[at + k] = stamp;
      }
      Task<Status> write =
          test_->array->Write(volume_, at * kChunk, block.span().first(length * kChunk));
      Note(co_await write, "a write");
    }
    co_return OkStatus();
  }
  Task<Status> ComeAndGo(uint64_t count) {
    Buffer block = test_->pool.GetZeroed(coming_size_);
    for (uint64_t i = 0; i < count && failure_.empty(); ++i) {
      Task<Result<VolumeId>> creating =
          test_->array->CreateVolume("w" + std::to_string(i), coming_size_);
      const Result<VolumeId> created = co_await creating;
      if (!created.ok()) {
        Note(Fail(created.error()), "creating");
        break;
      }
      Task<Status> write = test_->array->Write(*created, 0, block.span());
      const Status written = co_await write;
      if (!written.ok() &&
          written.error().code != ErrorCode::kNoSpace) {  // the one before is still going
        Note(written, "a write to another volume");
      }
      Task<Status> deleting = test_->array->DeleteVolume(*created);
      Note(co_await deleting, "deleting");
    }
    co_return OkStatus();
  }
  // An SSD goes wrong in many places, again and again; another one only when a scrub has found
  // nothing more.
  Task<Status> Scrubs(uint64_t count) {
    auto ssd = static_cast<uint32_t>(random_.Below(GetParam().n));
    for (uint64_t i = 0; i < count && failure_.empty(); ++i) {
      Rot(ssd);
      uint64_t problems = 1;
      for (int round = 0; round < 3 && problems != 0 && failure_.empty(); ++round) {
        Task<Result<CheckReport>> scrub = test_->array->Scrub(true, Progress());
        const Result<CheckReport> report = co_await scrub;
        Judge(report);
        problems = report.ok() ? report->problems_found : 1;
      }
      if (problems == 0) {
        ssd = static_cast<uint32_t>(random_.Below(GetParam().n));
        ++ssds_healed_;
      }
    }
    co_return OkStatus();
  }
  void Judge(const Result<CheckReport>& report) {
    if (!report.ok()) {
      Note(Fail(report.error()), "a scrub");
    } else if (report->lost != 0 && failure_.empty()) {
      failure_ = "a scrub lost " + std::to_string(report->lost) +
                 " chunks: " + report->findings.front().Text();
    } else {
      healed_ += report->healed;
    }
  }
  void Rot(uint32_t ssd) {
    const auto bytes = test_->memory(ssd).bytes();
    for (uint64_t at = test_->SlotsOffsetBytes(); at + kChunk <= bytes.size(); at += kChunk) {
      if (random_.Between(0, 7) == 0) {
        bytes[at + 100] ^= std::byte{1};
      }
    }
  }
  Task<void> All() {
    TaskGroup group(test_->loop);
    for (uint64_t who = 0; who < kWriters; ++who) {
      group.Start(Writer(who, kWrites));
    }
    group.Start(ComeAndGo(20));
    group.Start(Scrubs(6));
    Task<Status> all = group.Wait();
    Note(co_await all, "something");
    ended_ = true;
  }
  void ExpectContent() {
    for (uint64_t chunk = 0; chunk < model_.size(); ++chunk) {
      const auto content = test_->Read(volume_, chunk * kChunk, kChunk);
      uint64_t stamp = 0;
      std::memcpy(&stamp, content.data(), sizeof stamp);
      ASSERT_EQ(stamp, model_[chunk]) << "chunk " << chunk;
    }
  }
  // In use after some writes that let what waits become free.
  uint64_t SlotsAtRest() {
    for (int i = 0; i < 8; ++i) {
      const std::vector<std::byte> data(kChunk, std::byte{0});
      EXPECT_TRUE(test_->Write(volume_, 0, data).ok());
      model_[0] = 0;
      EXPECT_TRUE(test_->Commit().ok());
      EXPECT_TRUE(test_->Flush().ok());
    }
    return test_->array->GetStatus().slots_used;
  }

  static constexpr uint64_t kWriters = 6;
  static constexpr uint64_t kWrites = 400;

  std::unique_ptr<SmallArray> test_;
  VolumeId volume_;
  uint64_t size_ = 0;
  uint64_t coming_size_ = 0;
  std::vector<uint64_t> model_;  // the stamp of each chunk
  uint64_t stamp_ = 0;
  uint64_t healed_ = 0;
  uint64_t ssds_healed_ = 0;
  bool ended_ = false;
  std::string failure_;
  Random random_{1};
};

TEST_P(HealBeside, NothingIsLostAndNoSlotLeaks) {
  const uint64_t until = test_->loop.NowUs() + kPatienceUs;
  test_->loop.Spawn(All());
  static_cast<void>(test_->loop.RunUntil([&] { return ended_ || test_->loop.NowUs() > until; }));
  ASSERT_TRUE(ended_) << "something waits for ever";
  ASSERT_EQ(failure_, "");
  EXPECT_GT(healed_, 20U);
  EXPECT_GT(ssds_healed_, 1U);
  ExpectContent();
  const auto scrubbed = test_->Scrub(true);
  ASSERT_TRUE(scrubbed.ok());
  const auto clean = test_->Scrub(false);
  ASSERT_TRUE(clean.ok());
  EXPECT_EQ(clean->problems_found, 0U) << clean->findings.front().Text();
  const uint64_t before = SlotsAtRest();
  ASSERT_TRUE(test_->Close().ok());
  test_->Open();
  const uint64_t counted = SlotsAtRest();  // an opening counts what the tables name
  EXPECT_EQ(before, counted);
  std::printf("%lu healed, %lu slots in use, counted anew %lu\n",
              static_cast<unsigned long>(healed_), static_cast<unsigned long>(before),
              static_cast<unsigned long>(counted));
  ExpectContent();
}

std::vector<HealCase> Cases() {
  std::vector<HealCase> cases;
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    cases.push_back({4, 1, 6144, 4096, seed, 0});
    cases.push_back({5, 2, 6144, 4096, seed, 0});
    cases.push_back({6, 2, 4096, 9216, seed, 8});
    cases.push_back({3, 1, 6144, 1024, seed, 0});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Shapes, HealBeside, ::testing::ValuesIn(Cases()));

}  // namespace
}  // namespace eplog
