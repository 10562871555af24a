// Journal mode `log`: what was flushed last may be on the log devices alone. Going on without all
// of them gives that up, and is done only where it was asked for (P2).
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "eplog/examine.h"
#include "format/superblock.h"
#include "tests/engine/array_fixture.h"

namespace eplog {
namespace {

constexpr uint32_t kSsdCount = 5;
constexpr uint32_t kParity = 2;
constexpr uint64_t kChunk = 4096;
constexpr uint64_t kSize = 64 * kChunk;
constexpr uint64_t kBothLogs = uint64_t{3} << kSsdCount;
constexpr uint64_t kFirstLog = uint64_t{1} << kSsdCount;
constexpr uint64_t kSecondLog = uint64_t{2} << kSsdCount;

enum class How : uint8_t { kPlain, kReadOnly, kForced, kWithoutLogs };

class WithoutLogs : public ::testing::Test {
 protected:
  // Whole stripes with a checkpoint behind them, then one chunk that is flushed.
  void Make(JournalMode journal) {
    ArrayShape shape;
    shape.n = kSsdCount;
    shape.m = kParity;
    shape.ssd_bytes = uint64_t{8} << 20;
    shape.log_bytes = uint64_t{4} << 20;
    shape.journal = journal;
    test_ = std::make_unique<TestArray>(shape);
    volume_ = test_->CreateVolume("v", kSize);
    Write(0, kSize);
    ASSERT_TRUE(test_->Close().ok());
    test_->Open();
    Write(7 * kChunk, kChunk);
  }
  void Write(uint64_t offset, uint64_t length) {
    last_ = RandomBytes(random_, length);
    ASSERT_TRUE(test_->Write(volume_, offset, last_).ok());
    ASSERT_TRUE(RunTask(test_->loop, test_->array->FlushAll()).ok());
  }
  std::vector<Device*> Except(uint64_t without) {
    std::vector<Device*> devices;
    for (uint32_t i = 0; i < kSsdCount + kParity; ++i) {
      if ((without >> i & 1) == 0) {
        devices.push_back(test_->Devices()[i]);
      }
    }
    return devices;
  }
  Status Open(uint64_t without, How how = How::kPlain, EngineHooks* hooks = nullptr) {
    OpenOptions options;
    options.entropy = ++lives_;
    options.read_only = how == How::kReadOnly || how == How::kForced;
    options.force = how == How::kForced;
    options.without_logs = how == How::kWithoutLogs ? without >> kSsdCount : 0;
    auto opened = RunTask(test_->loop, OpenHooked(test_->loop, Except(without), options, hooks));
    if (!opened.ok()) {
      return Fail(std::move(opened).error());
    }
    test_->array = std::move(*opened);
    return OkStatus();
  }
  // Power fails when recovery first writes to a ring: the superblocks know of the new epoch, and
  // nothing else does.
  void OpenStruck(uint64_t without) {
    EngineHooks hooks;
    hooks.before_io = [this](DeviceIndex /*device*/, IoKind kind) {
      for (uint32_t i = 0; i < kSsdCount + kParity && kind == IoKind::kRing; ++i) {
        test_->faulty(i).FailDevice();
      }
    };
    EXPECT_FALSE(Open(without, How::kPlain, &hooks).ok());
    EXPECT_NE(test_->faulty(0).fired(), 0U) << "no ring was written";
    for (uint32_t i = 0; i < kSsdCount + kParity; ++i) {
      test_->faulty(i).Clear();
    }
  }
  // The log itself, not its superblocks.
  void MakeLogUnreadable(uint32_t device) {
    const auto superblock =
        DecodeSuperblock(test_->memory(device).bytes().first(kSuperblockCopyBytes));
    ASSERT_TRUE(superblock.ok());
    Fault fault;
    fault.kinds = MaskOf(RequestKind::kRead);
    fault.from_then_on = true;
    fault.range_offset_bytes = superblock->geometry.log_offset_bytes;
    test_->faulty(device).Add(fault);
  }
  bool HasNewest() {
    Buffer buffer = test_->pool.Get(kChunk);
    const auto into = buffer.span();
    EXPECT_TRUE(RunTask(test_->loop, test_->array->Read(volume_, 7 * kChunk, into)).ok());
    return std::equal(into.begin(), into.end(), last_.begin());
  }
  uint64_t Writes() {
    uint64_t writes = 0;
    for (uint32_t i = 0; i < kSsdCount + kParity; ++i) {
      writes += test_->counter(i).counters().writes;
    }
    return writes;
  }

  Random random_{5};
  std::unique_ptr<TestArray> test_;
  VolumeId volume_;
  std::vector<std::byte> last_;
  uint64_t lives_ = 100;
};

TEST_F(WithoutLogs, AreNotGivenUpUnasked) {
  Make(JournalMode::kLog);
  test_->Kill();
  const uint64_t writes = Writes();
  for (const How how : {How::kPlain, How::kReadOnly}) {
    const Status refused = Open(kBothLogs, how);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kTooManyFailures);
    EXPECT_NE(refused.error().message.find("bring back log0, log1"), std::string::npos)
        << refused.error().message;
    EXPECT_NE(refused.error().message.find("--without"), std::string::npos);
  }
  EXPECT_EQ(Writes(), writes);
  ASSERT_TRUE(Open(kFirstLog).ok());
  EXPECT_TRUE(HasNewest());
}

TEST_F(WithoutLogs, ForceShowsWhatIsLeftAndSaysWhatMayBeOld) {
  Make(JournalMode::kLog);
  test_->Kill();
  ASSERT_TRUE(Open(kBothLogs, How::kForced).ok());
  const auto lost = RunTask(test_->loop, test_->array->FindLost());
  ASSERT_TRUE(lost.ok());
  EXPECT_NE(lost->log_damage.find("no log device"), std::string::npos) << lost->log_damage;
  test_->Kill();
}

TEST_F(WithoutLogs, WhatWasGivenUpOnceIsNotAskedForAgain) {
  Make(JournalMode::kLog);
  test_->Kill();
  ASSERT_TRUE(Open(kBothLogs, How::kWithoutLogs).ok());
  Write(7 * kChunk, kChunk);
  test_->Kill();
  ASSERT_TRUE(Open(kBothLogs).ok());
  EXPECT_TRUE(HasNewest());
}

TEST_F(WithoutLogs, ThoseThatWereLostBeforeTookNothingWithThem) {
  Make(JournalMode::kLog);
  for (uint32_t i = kSsdCount; i < kSsdCount + kParity; ++i) {
    ASSERT_TRUE(RunTask(test_->loop, test_->array->FailDevice(i, "told to")).ok());
  }
  Write(7 * kChunk, kChunk);
  test_->Kill();
  ASSERT_TRUE(Open(kBothLogs).ok());
  EXPECT_TRUE(HasNewest());
}

// From then on flushes wait for the rings, too.
TEST_F(WithoutLogs, WhereOneWasLostBeforeNoneIsNeeded) {
  Make(JournalMode::kLog);
  ASSERT_TRUE(RunTask(test_->loop, test_->array->FailDevice(kSsdCount, "told to")).ok());
  Write(7 * kChunk, kChunk);
  test_->Kill();
  ASSERT_TRUE(Open(kBothLogs).ok());
  EXPECT_TRUE(HasNewest());
}

// An opening that power struck does not forget that.
TEST_F(WithoutLogs, WhereOneWasLostInTheEpochThatOpenedLastNoneIsNeeded) {
  Make(JournalMode::kLog);
  ASSERT_TRUE(RunTask(test_->loop, test_->array->FailDevice(kSsdCount, "told to")).ok());
  Write(7 * kChunk, kChunk);
  test_->Kill();
  OpenStruck(0);
  ASSERT_TRUE(Open(kBothLogs).ok());
  EXPECT_TRUE(HasNewest());
}

// Nor do two, which leave no superblock of that epoch.
TEST_F(WithoutLogs, WhatTheLastOpenedEpochKnewOutlivesItsSuperblocks) {
  Make(JournalMode::kLog);
  ASSERT_TRUE(RunTask(test_->loop, test_->array->FailDevice(kSsdCount, "told to")).ok());
  Write(7 * kChunk, kChunk);
  test_->Kill();
  OpenStruck(0);
  OpenStruck(0);
  ASSERT_TRUE(Open(kBothLogs).ok());
  EXPECT_TRUE(HasNewest());
}

// Two openings that power struck, each without another of them: what was flushed is still on both,
// and on no ring.
TEST_F(WithoutLogs, OneThatIsBackBeforeAnEpochOpenedStaysWhatItIs) {
  Make(JournalMode::kLog);
  test_->Kill();
  OpenStruck(kFirstLog);
  OpenStruck(0);
  if (Open(kSecondLog).ok()) {
    EXPECT_TRUE(HasNewest());
    test_->Kill();
  }
  ASSERT_TRUE(Open(0).ok());
  EXPECT_TRUE(HasNewest());
  // And it is taken back at once, not at the next opening: nobody need replace it meanwhile.
  EXPECT_EQ(test_->array->GetStatus().devices[kSsdCount].state, DeviceState::kRebuilding);
}

// Only those that were named.
TEST_F(WithoutLogs, EachIsGivenUpByItsName) {
  Make(JournalMode::kLog);
  test_->Kill();
  OpenOptions options;
  for (const uint64_t named : {1U, 2U}) {
    options.entropy = ++lives_;
    options.without_logs = named;
    EXPECT_FALSE(RunTask(test_->loop, Array::Open(test_->loop, Except(kBothLogs), options)).ok());
  }
}

// A log does not end where it cannot be read.
TEST_F(WithoutLogs, WhatCannotBeReadIsNotGivenUpEither) {
  Make(JournalMode::kLog);
  test_->Kill();
  MakeLogUnreadable(kSsdCount);
  const uint64_t writes = Writes();
  for (const How how : {How::kPlain, How::kReadOnly}) {
    const Status refused = Open(kSecondLog, how);
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find("log0 cannot be read"), std::string::npos)
        << refused.error().message;
  }
  EXPECT_EQ(Writes(), writes);
  ASSERT_TRUE(Open(kSecondLog, How::kForced).ok());
  const auto lost = RunTask(test_->loop, test_->array->FindLost());
  ASSERT_TRUE(lost.ok());
  EXPECT_NE(lost->log_damage.find("log0 cannot be read"), std::string::npos) << lost->log_damage;
  test_->Kill();
  // The other one has all of it.
  ASSERT_TRUE(Open(0).ok());
  EXPECT_TRUE(HasNewest());
}

// It can be read all the same: nobody is told to give that up.
TEST_F(WithoutLogs, WhatCannotBeWrittenIsToBeRead) {
  Make(JournalMode::kLog);
  test_->Kill();
  Fault fault;
  fault.kinds = MaskOf(RequestKind::kWrite);
  fault.from_then_on = true;
  test_->faulty(kSsdCount).Add(fault);
  const Status refused = Open(kSecondLog);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("--read-only"), std::string::npos);
  EXPECT_EQ(refused.error().message.find("--without"), std::string::npos)
      << refused.error().message;
  ASSERT_TRUE(Open(kSecondLog, How::kReadOnly).ok());
  EXPECT_TRUE(HasNewest());
}

TEST_F(WithoutLogs, WhoExaminesSaysWhatAnOpeningSays) {
  Make(JournalMode::kLog);
  test_->Kill();
  const auto without = RunTask(test_->loop, ExamineDevices(Except(kBothLogs)));
  ASSERT_EQ(without.arrays.size(), 1U);
  EXPECT_NE(without.arrays[0].why_not.find("bring back log0, log1"), std::string::npos);
  const auto with = RunTask(test_->loop, ExamineDevices(Except(kFirstLog)));
  ASSERT_EQ(with.arrays.size(), 1U);
  EXPECT_EQ(with.arrays[0].why_not, "");
}

TEST_F(WithoutLogs, ModeFullNeedsNone) {
  Make(JournalMode::kFull);
  test_->Kill();
  ASSERT_TRUE(Open(kBothLogs).ok());
  EXPECT_TRUE(HasNewest());
}

}  // namespace
}  // namespace eplog
