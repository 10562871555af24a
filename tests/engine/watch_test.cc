// What the array tells of before it hurts: space that runs low, a device that is much slower than
// its peers, writes that wait for parity commit. Each once, and not again before there is reason.

#include <algorithm>
#include <vector>

#include "layout/geometry.h"
#include "runtime/task_group.h"
#include "tests/engine/array_fixture.h"

namespace eplog {
namespace {

constexpr uint64_t kChunk = 4096;
constexpr uint64_t kSecond = 1'000'000;
constexpr uint64_t kLook = 5 * kSecond;  // it looks that often, from the opening on

class Watching : public ::testing::Test {
 protected:
  void Make(ArrayShape shape) {
    shape.on_event = [this](const ArrayEvent& event) { events_.push_back(event); };
    test_ = std::make_unique<TestArray>(shape);
    opened_us_ = test_->loop.NowUs();
  }
  // Until just after it has looked.
  void Look() {
    const uint64_t since = test_->loop.NowUs() - opened_us_;
    test_->Sleep((since / kLook + 1) * kLook - since + 1000);
  }
  std::vector<ArrayEvent> Take(EventKind kind) {
    std::vector<ArrayEvent> found;
    for (const ArrayEvent& event : std::exchange(events_, {})) {
      if (event.kind == kind) {
        found.push_back(event);
      }
    }
    return found;
  }

  std::vector<ArrayEvent> events_;
  std::unique_ptr<TestArray> test_;
  uint64_t opened_us_ = 0;
};

// ---- space

class LowSpace : public Watching {
 protected:
  static constexpr uint32_t kStripes = 400;
  // 400 extents of one stripe.
  void SetUp() override {
    const auto ssd_bytes = SsdBytesForStripes(
        {.n = 4, .m = 1, .chunk_bytes = kChunk, .log_bytes = uint64_t{8} << 20}, kStripes);
    ASSERT_TRUE(ssd_bytes.ok());
    ArrayShape shape;
    shape.n = 4;
    shape.m = 1;
    shape.ssd_bytes = *ssd_bytes;
    shape.log_bytes = uint64_t{8} << 20;
    Make(shape);
    ASSERT_EQ(test_->array->GetStatus().capacity_bytes, kStripes * 3 * kChunk);
    volume_ = test_->CreateVolume("v", kStripes * 3 * kChunk);
  }
  void Use(uint64_t extents) {
    const std::vector<std::byte> data(kChunk, std::byte{1});
    for (; used_ < extents; ++used_) {
      ASSERT_TRUE(test_->Write(volume_, used_ * 3 * kChunk, data).ok());
    }
    if (used_ > extents) {
      ASSERT_TRUE(
          RunTask(test_->loop, test_->array->Trim(volume_, extents * 3 * kChunk,
                                                  (used_ - extents) * 3 * kChunk, TrimMode::kPunch))
              .ok());
      used_ = extents;
    }
    ASSERT_EQ(test_->array->GetStatus().free_bytes, (kStripes - extents) * 3 * kChunk);
  }
  size_t TellsWhenUsed(uint64_t extents) {
    Use(extents);
    Look();
    Look();
    return Take(EventKind::kSpaceLow).size();
  }

  VolumeId volume_;
  uint64_t used_ = 0;
};

TEST_F(LowSpace, IsToldOnceBelowATenthAndAgainOnlyWhenItWasAboveAnEighth) {
  EXPECT_EQ(TellsWhenUsed(200), 0U);
  EXPECT_EQ(TellsWhenUsed(360), 0U) << "a tenth is left";
  Use(361);
  Look();
  const auto told = Take(EventKind::kSpaceLow);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].text, "0 MiB are left for volumes, of 4");
  EXPECT_EQ(told[0].device, "");
  EXPECT_EQ(TellsWhenUsed(390), 0U) << "it is known";
  EXPECT_EQ(TellsWhenUsed(351), 0U);
  EXPECT_EQ(TellsWhenUsed(361), 0U) << "it was never above an eighth";
  EXPECT_EQ(TellsWhenUsed(349), 0U);
  EXPECT_EQ(TellsWhenUsed(361), 1U);
}

TEST_F(LowSpace, SaysHowMuchIsLeft) {
  // Of an array of 1,200 MiB.
  const auto ssd_bytes = SsdBytesForStripes(
      {.n = 4, .m = 1, .chunk_bytes = 1 << 20, .log_bytes = uint64_t{64} << 20}, 400);
  ASSERT_TRUE(ssd_bytes.ok());
  ArrayShape shape;
  shape.n = 4;
  shape.m = 1;
  shape.chunk_bytes = 1 << 20;
  shape.ssd_bytes = *ssd_bytes;
  shape.log_bytes = uint64_t{64} << 20;
  Make(shape);
  const VolumeId volume = test_->CreateVolume("v", uint64_t{1200} << 20);
  const uint64_t stripe = uint64_t{3} << 20;
  const std::vector<std::byte> data(1, std::byte{1});
  for (uint64_t extent = 0; extent < 365; ++extent) {
    ASSERT_TRUE(test_->Write(volume, extent * stripe, data).ok());
    ASSERT_TRUE(
        RunTask(test_->loop, test_->array->Trim(volume, extent * stripe, 1, TrimMode::kZero)).ok());
  }
  Look();
  const auto told = Take(EventKind::kSpaceLow);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].text, "105 MiB are left for volumes, of 1200");
}

// ---- slow devices

struct Delays {
  uint64_t slow_us;
  uint64_t peers_us;
};

class SlowDevice : public Watching {
 protected:
  static constexpr uint32_t kSsds = 5;
  void SetUp() override {
    ArrayShape shape;
    shape.n = kSsds;
    shape.m = 2;
    shape.ssd_bytes = uint64_t{16} << 20;
    shape.log_bytes = uint64_t{16} << 20;
    shape.auto_commit = false;
    Make(shape);
    volume_ = test_->CreateVolume("v", 100 * kStripe);
    const std::vector<std::byte> data(100 * kStripe, std::byte{1});
    ASSERT_TRUE(test_->Write(volume_, 0, data).ok());
    Settle();
  }
  // Nothing is on its way, and what comes next falls between two looks.
  void Settle() {
    ASSERT_TRUE(RunTask(test_->loop, test_->array->FlushAll()).ok());
    for (int i = 0; i < 4; ++i) {
      Look();
    }
    events_.clear();
  }
  void SetDelays(uint32_t slow, const Delays& delays) {
    for (uint32_t i = 0; i < kSsds + 2; ++i) {
      const uint64_t us = i == slow ? delays.slow_us : delays.peers_us;
      test_->delayed(i).set_delays({.read_us = us, .write_us = us});
    }
  }
  // Each SSD answers so many reads: every five stripes that many as there are data chunks.
  void ReadEach(uint64_t times) {
    ASSERT_EQ(times % 3, 0U);
    for (uint64_t stripe = 0; stripe < times / 3 * kSsds; ++stripe) {
      static_cast<void>(test_->Read(volume_, stripe * kStripe, kStripe));
    }
  }
  std::vector<ArrayEvent> TellsWhen(uint32_t slow, const Delays& delays, uint64_t times) {
    Settle();
    SetDelays(slow, delays);
    ReadEach(times);
    Look();
    SetDelays(slow, {0, 0});
    return Take(EventKind::kSlowDevice);
  }

  static constexpr uint64_t kStripe = 3 * kChunk;
  VolumeId volume_;
};

TEST_F(SlowDevice, IsNamedWithItsFigures) {
  for (const uint32_t slow : {0U, 2U, 4U}) {
    const auto told = TellsWhen(slow, {25'000, 100}, 51);
    ASSERT_EQ(told.size(), 1U) << slow;
    const std::string name = "ssd" + std::to_string(slow);
    EXPECT_EQ(told[0].device, name);
    EXPECT_EQ(told[0].text, name + " answers in 25 ms on average, its peers in 100 us");
  }
}

TEST_F(SlowDevice, IsNoneThatIsQuickEnoughByItself) {
  EXPECT_TRUE(TellsWhen(2, {19'999, 100}, 51).empty());
  EXPECT_EQ(TellsWhen(2, {20'000, 100}, 51).size(), 1U);
}

TEST_F(SlowDevice, IsNoneWhosePeersAreSlowToo) {
  EXPECT_TRUE(TellsWhen(2, {24'000, 3'000}, 51).empty()) << "eight times as long";
  EXPECT_EQ(TellsWhen(2, {24'000, 2'900}, 51).size(), 1U);
}

TEST_F(SlowDevice, IsNoneThatIsHardlyAsked) {
  EXPECT_TRUE(TellsWhen(2, {25'000, 100}, 48).empty());
  EXPECT_EQ(TellsWhen(2, {25'000, 100}, 51).size(), 1U);
}

TEST_F(SlowDevice, IsToldAgainAfterAMinute) {
  Settle();
  SetDelays(1, {25'000, 100});
  std::vector<uint64_t> told_us;
  while (told_us.size() < 3 && test_->loop.NowUs() < opened_us_ + 400 * kSecond) {
    ReadEach(60);
    Look();
    for (const ArrayEvent& event : Take(EventKind::kSlowDevice)) {
      EXPECT_EQ(event.device, "ssd1");
      told_us.push_back(test_->loop.NowUs());
    }
  }
  ASSERT_EQ(told_us.size(), 3U);
  EXPECT_NEAR(static_cast<double>(told_us[1] - told_us[0]), 60e6, 1e3);
  EXPECT_NEAR(static_cast<double>(told_us[2] - told_us[1]), 60e6, 1e3);
}

// Hard disks are compared with hard disks.
TEST_F(SlowDevice, IsComparedWithItsOwnKind) {
  const auto write_each = [&](uint64_t slow_us, uint64_t other_us) {
    Settle();
    test_->delayed(kSsds).set_delays({.write_us = other_us});
    test_->delayed(kSsds + 1).set_delays({.write_us = slow_us});
    const std::vector<std::byte> data(kChunk, std::byte{2});
    for (uint64_t i = 0; i < 60; ++i) {
      EXPECT_TRUE(test_->Write(volume_, i * 4 * kChunk, data).ok());
    }
    Look();
    return Take(EventKind::kSlowDevice);
  };
  EXPECT_TRUE(write_each(30'000, 30'000).empty());
  const auto told = write_each(30'000, 3'000);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].device, "log1");
  EXPECT_EQ(told[0].text, "log1 answers in 30 ms on average, its peers in 3000 us");
}

// ---- writes that wait

class Behind : public Watching {
 protected:
  void SetUp() override {
    ArrayShape shape;
    shape.n = 4;
    shape.m = 1;
    shape.ssd_bytes = uint64_t{16} << 20;
    shape.log_bytes = uint64_t{1} << 20;
    shape.ssd_delays = kSsdDelays;
    shape.log_delays = kLogDelays;
    shape.auto_commit = false;  // only when somebody waits
    Make(shape);
    volume_ = test_->CreateVolume("v", kChunks * kChunk);
  }
  // At once; how many of them waited.
  uint64_t Burst(uint64_t writes) {
    const uint64_t before = test_->hooks().space_waits;
    const std::vector<std::byte> data(kChunk, std::byte{3});
    TaskGroup group(test_->loop);
    for (uint64_t i = 0; i < writes; ++i) {
      group.Start(test_->array->Write(volume_, next_++ * 7 % kChunks * kChunk, data));
    }
    EXPECT_TRUE(RunTask(test_->loop, group.Wait()).ok());
    return test_->hooks().space_waits - before;
  }

  static constexpr uint64_t kChunks = 1500;
  VolumeId volume_;
  uint64_t next_ = 0;
};

TEST_F(Behind, IsToldWhenTenWritesWaitedBetweenTwoLooks) {
  uint64_t told = 0;
  uint64_t untold = 0;
  for (int round = 0; round < 60; ++round) {
    for (int i = 0; i < 13; ++i) {  // whatever was told is a minute ago
      Look();
    }
    events_.clear();
    const uint64_t waited = Burst(15 + static_cast<uint64_t>(round) % 20);
    Look();
    const auto events = Take(EventKind::kCommitBehind);
    ASSERT_EQ(events.size(), waited >= 10 ? 1U : 0U) << waited << " waited";
    if (waited >= 10) {
      ++told;
      EXPECT_EQ(events[0].text,
                std::to_string(waited) + " writes waited for parity commit within 5 s");
      // Nor does the next look count them again.
      Look();
      EXPECT_TRUE(Take(EventKind::kCommitBehind).empty());
    } else if (waited != 0) {
      ++untold;
    }
  }
  EXPECT_GT(told, 0U);
  EXPECT_GT(untold, 0U);
}

TEST_F(Behind, IsToldOnceAMinute) {
  uint64_t told = 0;
  const uint64_t until = test_->loop.NowUs() + 185 * kSecond;
  while (test_->loop.NowUs() < until) {
    while (Burst(40) < 10) {
    }
    Look();
    told += Take(EventKind::kCommitBehind).size();
  }
  EXPECT_EQ(told, 4U);
}

}  // namespace
}  // namespace eplog
