// What is asked of an SSD that has joined: not what the one before it had, and everything since.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "format/superblock.h"
#include "tests/engine/small_array.h"

namespace eplog {
namespace {

constexpr uint64_t kChunk = 4096;
constexpr uint32_t kSsdCount = 6;
constexpr uint32_t kParity = 2;
constexpr uint64_t kStripe = (kSsdCount - kParity) * kChunk;

class Joined : public ::testing::Test {
 protected:
  void SetUp() override {
    test_ = std::make_unique<SmallArray>(SmallShape(kSsdCount, kParity));
    const VolumeId volume = test_->CreateVolume("v", 40 * kStripe);
    const std::vector<std::byte> data = RandomBytes(random_, 20 * kStripe);
    ASSERT_TRUE(test_->Write(volume, 0, data).ok());
  }
  void WriteCheckpoint() { ASSERT_TRUE(test_->Checkpoint().ok()); }
  // It has joined, and stays so.
  void Replace(uint32_t ssd) {
    test_->array->SetRebuildPace({.bytes_per_second = 1});
    ASSERT_TRUE(test_->Fail(ssd).ok());
    ASSERT_TRUE(test_->ReplaceByItselfBlank(ssd).ok());
  }
  void Finish(uint32_t ssd) {
    test_->array->SetRebuildPace({});
    test_->Sleep(60'000'000);
    ASSERT_EQ(test_->State(ssd), DeviceState::kOk);
  }
  void RotCheckpoints(uint32_t ssd) {
    const auto bytes = test_->memory(ssd).bytes();
    const auto superblock = DecodeSuperblock(test_->memory(0).bytes().first(kSuperblockCopyBytes));
    ASSERT_TRUE(superblock.ok());
    const Geometry& g = superblock->geometry;
    std::ranges::fill(bytes.subspan(g.MetadataOffset(0), g.metadata_blocks * kBlockBytes),
                      std::byte{0x5a});
  }
  uint64_t Problems(bool heal) {
    const auto report = test_->Scrub(heal);
    EXPECT_TRUE(report.ok());
    return report.ok() ? report->problems_found : 0;
  }

  Random random_{5};
  std::unique_ptr<SmallArray> test_;
};

TEST_F(Joined, AnOpeningBlamesItNotForTheCheckpointBefore) {
  for (uint32_t ssd = 0; ssd < kSsdCount; ++ssd) {
    WriteCheckpoint();
    Replace(ssd);
    test_->Kill();
    test_->Open();
    const ArrayStatus status = test_->array->GetStatus();
    ASSERT_EQ(status.devices[ssd].state, DeviceState::kRebuilding);
    for (const DeviceStatus& device : status.devices) {
      EXPECT_EQ(device.corrupt_chunks, 0U) << ssd;
    }
    Finish(ssd);
  }
}

// What a checkpoint gave it while it was not whole yet is what others may rely on.
TEST_F(Joined, PagesThatItWasGivenAreLookedAt) {
  uint32_t found = 0;
  for (uint32_t ssd = 0; ssd < kSsdCount; ++ssd) {
    Replace(ssd);
    WriteCheckpoint();
    ASSERT_EQ(test_->State(ssd), DeviceState::kRebuilding);
    ASSERT_EQ(Problems(false), 0U);
    RotCheckpoints(ssd);
    const bool wrong = Problems(true) != 0;
    EXPECT_EQ(test_->array->GetStatus().devices[ssd].corrupt_chunks != 0, wrong) << ssd;
    found += wrong ? 1 : 0;
    EXPECT_EQ(Problems(false), 0U) << "it was mended";
    Finish(ssd);
  }
  EXPECT_GT(found, 0U) << "not every checkpoint is on every SSD, but each is on some";
}

// What was on its way to the SSD before it, or goes by a word from then, finds other content on
// it: that is read another way, and not held against it.
class ReadAcross : public Joined {
 protected:
  static constexpr uint32_t kSsd = 1;
  static constexpr uint64_t kLongUs = 100'000'000;

  // Its SSD is replaced while `task` waits for it, which ends then.
  void ReplaceDuring(Task<Status> task) {
    bool done = false;
    test_->loop.Spawn([](Task<Status> waits, bool& end) -> Task<void> {
      const Status status = co_await waits;
      EXPECT_TRUE(status.ok()) << status.error().ToString();
      end = true;
    }(std::move(task), done));
    test_->Sleep(10);
    ASSERT_GT(test_->delayed(kSsd).in_flight(), 0U);
    test_->delayed(kSsd).set_delays({});
    Replace(kSsd);
    ASSERT_FALSE(done);
    ASSERT_GT(test_->delayed(kSsd).in_flight(), 0U);
    ASSERT_TRUE(test_->loop.RunUntil([&done] { return done; }));
    EXPECT_EQ(test_->array->GetStatus().devices[kSsd].corrupt_chunks, 0U);
    EXPECT_EQ(test_->array->GetStatus().devices[kSsd].read_errors, 0U);
  }
  static Task<Status> FindsNothing(Array& array, Progress progress = Progress()) {
    Task<Result<CheckReport>> scrub = array.Scrub(false, std::move(progress));
    const Result<CheckReport> report = co_await scrub;
    EXPECT_TRUE(report.ok());
    EXPECT_EQ(report.ok() ? report->problems_found : 1, 0U);
    co_return OkStatus();
  }
  void MakeReadsSlow() { test_->delayed(kSsd).set_delays({.read_us = kLongUs}); }
};

TEST_F(ReadAcross, OfAUser) {
  const VolumeId volume = test_->array->FindVolume("v")->id;
  const std::vector<std::byte> before = test_->Read(volume, 0, 20 * kStripe);
  MakeReadsSlow();
  const Buffer into = test_->pool.Get(20 * kStripe);
  ReplaceDuring(test_->array->Read(volume, 0, into.span()));
  EXPECT_TRUE(std::ranges::equal(into.span(), before));
}

// Of many rows at once: by the first word of progress, metadata and some rows have been read.
TEST_F(ReadAcross, OfAScrub) {
  const VolumeId volume = test_->CreateVolume("many", 1000 * kStripe);
  ASSERT_TRUE(test_->Write(volume, 0, RandomBytes(random_, 1000 * kStripe)).ok());
  uint64_t told = 0;
  const Progress progress = [this, &told](uint64_t done, uint64_t total) {
    if (told == 0 && done != 0 && done < total) {
      MakeReadsSlow();
      told = done;
    }
  };
  ReplaceDuring(FindsNothing(*test_->array, progress));
  EXPECT_GT(told, 0U);
}

// What is pending is read chunk by chunk.
TEST_F(ReadAcross, OfAScrubOfTheLog) {
  const VolumeId volume = test_->array->FindVolume("v")->id;
  for (uint64_t chunk = 0; chunk < 40; ++chunk) {
    ASSERT_TRUE(test_->Write(volume, chunk * kChunk, RandomBytes(random_, kChunk)).ok());
  }
  MakeReadsSlow();
  ReplaceDuring(FindsNothing(*test_->array));
}

// Parity is made from what is read under words from before.
TEST_F(ReadAcross, OfACommit) {
  const VolumeId volume = test_->array->FindVolume("v")->id;
  for (uint64_t chunk = 0; chunk < 40; ++chunk) {
    ASSERT_TRUE(test_->Write(volume, chunk * kChunk, RandomBytes(random_, kChunk)).ok());
  }
  MakeReadsSlow();
  ReplaceDuring(test_->array->Commit(Progress()));
}

// A log device that is taken out and put back, with what it had: what it holds is read by reads, so
// no scrub calls a chunk lost that it is enough for, at whatever moment it comes to that log
// stripe.
class BackWithItsLog : public ::testing::TestWithParam<uint32_t> {
 protected:
  static constexpr uint32_t kData = 3;
  static constexpr uint64_t kWriteUs = 1'000'000;

  // When a scrub ended.
  struct End {
    CheckReport report;
    bool back = false;  // the log devices are
    bool pending = false;
  };

  // One log stripe, of two members. So many of them are wrong: at most as many as parity replaces.
  void Make(uint32_t wrong = m()) {
    ArrayShape shape;
    shape.n = kData + m();
    shape.m = m();
    shape.ssd_bytes = uint64_t{2} << 20;
    shape.log_bytes = uint64_t{2} << 20;
    shape.auto_commit = false;
    test_ = std::make_unique<SmallArray>(shape);
    volume_ = test_->CreateVolume("v", 12 * kChunk);
    content_ = RandomBytes(random_, (kData - 1) * kChunk);
    const uint64_t elsewhere = uint64_t{2} * kData * kChunk;  // is scrubbed before it
    ASSERT_TRUE(test_->Write(volume_, elsewhere, RandomBytes(random_, kChunk)).ok());
    ASSERT_TRUE(test_->Write(volume_, 0, content_).ok());
    member_ = Find(0).first;
    for (uint32_t i = 0; i < wrong; ++i) {
      std::ranges::fill(Find(i).second, std::byte{0x5a});
    }
  }
  [[nodiscard]] static uint32_t m() { return GetParam(); }
  [[nodiscard]] static uint32_t Log(uint32_t j) { return kData + m() + j; }
  [[nodiscard]] static bool IsLog(uint32_t device) { return device >= Log(0); }
  [[nodiscard]] uint32_t member() const { return member_; }  // the SSD of its first chunk
  // The slot that holds a chunk of the volume.
  std::pair<uint32_t, std::span<std::byte>> Find(uint32_t chunk) {
    const auto wanted = std::span(content_).subspan(chunk * kChunk, kChunk);
    for (uint32_t ssd = 0; ssd < kData + m(); ++ssd) {
      const std::span<std::byte> all = test_->memory(ssd).bytes();
      for (uint64_t at = test_->SlotsOffsetBytes(); at < all.size(); at += kChunk) {
        if (std::ranges::equal(all.subspan(at, kChunk), wanted)) {
          return {ssd, all.subspan(at, kChunk)};
        }
      }
    }
    ADD_FAILURE() << "nobody holds chunk " << chunk;
    return {0, test_->memory(0).bytes().first(kChunk)};
  }
  void TakeOut(uint32_t log) { ASSERT_TRUE(test_->Fail(log).ok()); }
  void PutBack(uint32_t log) { ASSERT_TRUE(test_->ReplaceByItself(log).ok()); }
  [[nodiscard]] bool IsBack() const {
    const ArrayStatus status = test_->array->GetStatus();
    return std::ranges::all_of(status.devices, [](const DeviceStatus& device) {
      return device.state == DeviceState::kOk || device.state == DeviceState::kRebuilding;
    });
  }
  static Task<void> Scrub(BackWithItsLog& test, Progress progress, std::optional<End>& end) {
    Task<Result<CheckReport>> scrub = test.test_->array->Scrub(false, std::move(progress));
    Result<CheckReport> report = co_await scrub;
    EXPECT_TRUE(report.ok());
    end.emplace();
    end->report = report.ok() ? std::move(*report) : CheckReport();
    end->back = test.IsBack();
    end->pending = test.test_->array->GetStatus().pending_chunks != 0;
  }
  // What a scrub reads of this device for the log stripe takes so long, and `meanwhile` happens.
  End ScrubAcross(uint32_t slow, uint64_t read_us, const std::function<void()>& meanwhile) {
    const auto slow_down = [this, slow, read_us] {
      test_->delayed(slow).set_delays({.read_us = read_us});
    };
    bool told = IsLog(slow);  // metadata and the first log stripe have been read
    const Progress progress = [&slow_down, &told](uint64_t /*done*/, uint64_t /*total*/) {
      if (!std::exchange(told, true)) {
        slow_down();
      }
    };
    if (IsLog(slow)) {
      slow_down();  // of those a scrub reads log chunks only
    }
    std::optional<End> end;
    test_->loop.Spawn(Scrub(*this, progress, end));
    test_->Sleep(10);
    EXPECT_GT(test_->delayed(slow).in_flight(), 0U);
    for (uint32_t i = 0; i < test_->Devices().size(); ++i) {
      test_->delayed(i).set_delays({.write_us = kWriteUs});
    }
    meanwhile();
    EXPECT_TRUE(test_->loop.RunUntil([&end] { return end.has_value(); }));
    return end ? std::move(*end) : End();
  }
  // All reads of it, after a while.
  void SlowDownAndFail(uint32_t device) {
    test_->delayed(device).set_delays({.read_us = 100 * kWriteUs});
    test_->faulty(device).Add({.kinds = MaskOf(RequestKind::kRead), .from_then_on = true});
  }
  // A user's read is waiting for this device when `meanwhile` happens.
  void ReadAcross(uint32_t slow, const std::function<void()>& meanwhile) {
    const uint64_t others = test_->delayed(slow).in_flight();
    const Buffer into = test_->pool.Get(content_.size());
    bool done = false;
    test_->loop.Spawn([](Task<Status> read, bool& end) -> Task<void> {
      const Status status = co_await read;
      EXPECT_TRUE(status.ok()) << status.error().ToString();
      end = true;
    }(test_->array->Read(volume_, 0, into.span()), done));
    test_->Sleep(10);
    EXPECT_GT(test_->delayed(slow).in_flight(), others);
    meanwhile();
    EXPECT_FALSE(done);
    EXPECT_TRUE(test_->loop.RunUntil([&done] { return done; }));
    EXPECT_TRUE(std::ranges::equal(into.span(), content_));
  }
  // Of scrubs that come to it early, late and in between. How many ended while all were back and it
  // was still pending.
  uint32_t Sweep(const std::function<uint32_t()>& slow, const std::function<void()>& before,
                 const std::function<void()>& meanwhile) {
    uint32_t met = 0;
    for (uint64_t read_us = kWriteUs / 2; read_us < 30 * kWriteUs; read_us += kWriteUs / 2) {
      Make();
      before();
      const End end = ScrubAcross(slow(), read_us, meanwhile);
      if (end.back) {
        EXPECT_EQ(end.report.lost, 0U) << read_us;
        met += end.pending ? 1 : 0;
      }
      EXPECT_TRUE(std::ranges::equal(test_->Read(volume_, 0, content_.size()), content_));
    }
    return met;
  }

 private:
  Random random_{6};
  std::unique_ptr<SmallArray> test_;
  VolumeId volume_;
  std::vector<std::byte> content_;
  uint32_t member_ = 0;
};

TEST_P(BackWithItsLog, WhileMembersAreRead) {
  const uint32_t met = Sweep([this] { return member(); }, [] {},
                             [this] {
                               for (uint32_t j = 0; j < m(); ++j) {
                                 TakeOut(Log(j));
                               }
                               for (uint32_t j = 0; j < m(); ++j) {
                                 PutBack(Log(j));
                               }
                             });
  EXPECT_GT(met, 0U);
}

TEST_P(BackWithItsLog, WhileItIsReadItself) {
  const uint32_t met = Sweep([] { return Log(m() - 1); }, [] {},
                             [this] {
                               TakeOut(Log(m() - 1));
                               PutBack(Log(m() - 1));
                             });
  EXPECT_GT(met, 0U);
}

INSTANTIATE_TEST_SUITE_P(, BackWithItsLog, ::testing::Values(1, 2));

// It was away when its turn came.
class BackBesideAnother : public BackWithItsLog {};

TEST_P(BackBesideAnother, WhileTheOtherIsRead) {
  const uint32_t met =
      Sweep([] { return Log(1); }, [this] { TakeOut(Log(0)); }, [this] { PutBack(Log(0)); });
  EXPECT_GT(met, 0U);
}

// One of the two has what is needed at every moment.
TEST_P(BackBesideAnother, WhileAUserReads) {
  Make(1);
  SlowDownAndFail(Log(1));
  TakeOut(Log(0));  // which makes the array commit what is pending: that waits too
  ReadAcross(Log(1), [this] { PutBack(Log(0)); });
}

INSTANTIATE_TEST_SUITE_P(, BackBesideAnother, ::testing::Values(2));

}  // namespace
}  // namespace eplog
