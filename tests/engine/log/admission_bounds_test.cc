// From where on slots, log and rings are short, to the last of them, and what is left to whom.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine/log/admission.h"
#include "tests/engine/parts_fixture.h"

namespace eplog {
namespace {

class Bounds : public ::testing::Test {
 protected:
  explicit Bounds(const PartsShape& shape = {}) : parts_(shape) {}

  Admission& admission() { return parts_.admission; }
  void LeaveFree(DeviceIndex ssd, uint32_t slots) {
    while (parts_.core.space.free(ssd) > slots) {
      last_claimed_ = parts_.core.space.Claim(ssd);
    }
  }
  [[nodiscard]] uint32_t HalfOfTheReserve() const {
    const uint32_t closed = parts_.g().commit_width();
    return closed + (parts_.g().reserve_slots() - closed) / 2;
  }
  struct Request {
    explicit Request(Admission& admission) : grant(std::make_unique<Grant>(admission)) {}
    std::unique_ptr<Grant> grant;
    std::optional<Status> ended;
  };
  Request& Ask(const Admission::Need& need) {
    requests_.push_back(std::make_unique<Request>(admission()));
    parts_.Start(admission().Admit(*requests_.back()->grant, need), requests_.back()->ended);
    return *requests_.back();
  }
  // So many blocks of log in use, by entries that a checkpoint does not cover.
  void UseLog(uint64_t blocks) {
    while (parts_.appender.log_used() < blocks) {
      ASSERT_TRUE(parts_.Run(parts_.appender.AppendMark()).ok());
      ASSERT_TRUE(parts_.Run(parts_.flusher.FlushAll()).ok());
      parts_.core.rings.CheckpointCounts(UINT64_MAX);  // of these there is enough
    }
  }
  void TearDown() override {
    parts_.core.Stop(Error{ErrorCode::kShutdown, "the end"});
    parts_.Settle();
  }

  EngineParts parts_;
  SlotIndex last_claimed_;
  std::vector<std::unique_ptr<Request>> requests_;
};

// The keeper begins when half of what is left to others is used, on any SSD.
TEST_F(Bounds, SlotsAreShortBelowHalfOfTheReserve) {
  const auto last = static_cast<uint8_t>(parts_.g().n - 1);
  for (const DeviceIndex ssd : {DeviceIndex(0), DeviceIndex(last)}) {
    LeaveFree(ssd, HalfOfTheReserve());
    EXPECT_FALSE(admission().SlotsShort());
    LeaveFree(ssd, HalfOfTheReserve() - 1);
    EXPECT_TRUE(admission().SlotsShort());
    parts_.core.space.Unclaim(ssd, last_claimed_);
    EXPECT_FALSE(admission().SlotsShort());
  }
}

// What is owed by others on their way may be more than what is in use tells.
TEST_F(Bounds, SlotsAreShortForWhoWaitsForThem) {
  const DeviceIndex ssd(1);
  LeaveFree(ssd, HalfOfTheReserve());
  std::vector<std::unique_ptr<Grant>> grants;
  while (true) {
    grants.push_back(std::make_unique<Grant>(admission()));
    if (!admission().TryAdmit(*grants.back(), {.owing = EngineParts::MaskOf(ssd), .blocks = 0})) {
      break;
    }
  }
  EXPECT_EQ(grants.size() - 1, HalfOfTheReserve() - parts_.g().commit_width());
  EXPECT_FALSE(admission().SlotsShort());
  const Request& waits = Ask({.ssds = EngineParts::MaskOf(ssd), .blocks = 0});
  EXPECT_FALSE(waits.ended);
  EXPECT_TRUE(admission().SlotsShort());
  EXPECT_FALSE(admission().LogShort());
  grants.clear();
  parts_.Settle();
  EXPECT_TRUE(waits.ended && waits.ended->ok());
}

TEST_F(Bounds, LogIsShortAboveFiveSeventhsOfWhatOthersMayHave) {
  const uint64_t open = parts_.g().log_blocks - parts_.g().log_blocks / 8;
  UseLog(open * 5 / 7);
  EXPECT_FALSE(admission().LogShort());
  UseLog(open * 5 / 7 + 1);
  EXPECT_TRUE(admission().LogShort());
  // By hand only for who waits for it.
  parts_.core.options.auto_commit = false;
  EXPECT_FALSE(admission().LogShort());
  const Request& waits = Ask({.blocks = open});
  EXPECT_FALSE(waits.ended);
  EXPECT_TRUE(admission().LogShort());
  EXPECT_FALSE(admission().SlotsShort());
}

TEST_F(Bounds, LogIsShortForWhoWaitsForIt) {
  const Request& waits = Ask({.blocks = parts_.g().log_blocks});
  EXPECT_FALSE(waits.ended);
  EXPECT_TRUE(admission().LogShort());
}

TEST_F(Bounds, RingsAreShortBelowAQuarterOfTheirRoom) {
  const uint64_t blocks = parts_.g().ring_blocks;
  const uint64_t all = (blocks - JournalRings::kReserveBlocks) * parts_.g().n;
  for (uint8_t i = 2; i < parts_.g().n; ++i) {
    parts_.core.rings.NoteBlock(DeviceIndex(i), 1, 1, true);
    parts_.core.rings.NoteBlock(DeviceIndex(i), blocks, 1, true);
  }
  for (uint64_t number = 1; number <= blocks; ++number) {
    const uint64_t room = parts_.core.rings.Room(JournalRings::kReserveBlocks);
    EXPECT_EQ(admission().RingsShort(), room * 4 < all) << room << " of " << all;
    parts_.core.rings.NoteBlock(DeviceIndex(0), number, 1, true);
  }
  EXPECT_TRUE(admission().RingsShort());
}

// With a log device lost each block has two copies, and there is room for half as many.
TEST_F(Bounds, RingsWithTwoCopiesOfEachBlockAreShortBelowAQuarterToo) {
  parts_.Lose(parts_.g().LogDevice(0));
  const uint64_t blocks = parts_.g().ring_blocks;
  const uint64_t most = (blocks - JournalRings::kReserveBlocks) * parts_.g().n / 2;
  ASSERT_EQ(parts_.core.rings.Room(JournalRings::kReserveBlocks), most);
  for (uint64_t number = 1; number <= blocks; ++number) {
    const uint64_t room = parts_.core.rings.Room(JournalRings::kReserveBlocks);
    EXPECT_EQ(admission().RingsShort(), room * 4 < most) << room << " of " << most;
    for (uint8_t i = 0; i < parts_.g().n; ++i) {
      parts_.core.rings.NoteBlock(DeviceIndex(i), number, 1, true);
    }
  }
  EXPECT_TRUE(admission().RingsShort());
}

// ---- who gets what

// Nobody looks at what ran short but the keeper, and he sleeps.
TEST_F(Bounds, WhoTakesWhatThenIsShortWakesTheKeeper) {
  int kicks = 0;
  parts_.loop.Spawn([](Event& kick, int& count) -> Task<void> {
    while (true) {
      co_await kick.Wait();
      ++count;
    }
  }(parts_.core.kick, kicks));
  LeaveFree(DeviceIndex(0), HalfOfTheReserve() + 2);
  parts_.Settle();
  std::vector<std::unique_ptr<Grant>> grants;
  for (const int woken : {0, 0, 1}) {
    grants.push_back(std::make_unique<Grant>(admission()));
    ASSERT_TRUE(admission().TryAdmit(*grants.back(), {.ssds = 1, .blocks = 1}));
    parts_.Settle();
    EXPECT_EQ(kicks, woken);
  }
}

// The error is for those who find no room: it may have come at the same moment.
TEST_F(Bounds, WhoIsRefusedAndFindsRoomIsServed) {
  const DeviceIndex ssd(0);
  LeaveFree(ssd, parts_.g().commit_width());
  const Request& first = Ask({.ssds = 1, .blocks = 1});
  const Request& second = Ask({.ssds = 1, .blocks = 1});
  parts_.core.space.Unclaim(ssd, last_claimed_);
  admission().Refuse(Error{ErrorCode::kNoSpace, "nothing makes room"});
  parts_.Settle();
  EXPECT_TRUE(first.ended && first.ended->ok());
  ASSERT_TRUE(second.ended && !second.ended->ok());
  EXPECT_EQ(second.ended->error().code, ErrorCode::kNoSpace);
}

class LargeLog : public Bounds {
 protected:
  static PartsShape Shape() {
    PartsShape shape;
    shape.log_bytes = uint64_t{16} << 20;
    return shape;
  }
  LargeLog() : Bounds(Shape()) {}
};

// What moves on in the log frees something of others at best: a quarter of what is closed is left
// to those who free what they had themselves.
TEST_F(LargeLog, WhatGoesBeforeOthersLeavesAQuarterOfWhatIsClosed) {
  const Appender& appender = parts_.appender;
  const uint64_t quarter = (appender.ClosedBlocks(2) - appender.ClosedBlocks(2, true)) / 4;
  ASSERT_GT(quarter, 50U);
  std::vector<std::unique_ptr<Grant>> grants;
  while (true) {
    grants.push_back(std::make_unique<Grant>(admission()));
    if (!admission().TryAdmitFreeing(*grants.back(), {.blocks = 2})) {
      break;
    }
  }
  EXPECT_FALSE(appender.CanPromise(quarter + 3, true));
  EXPECT_TRUE(appender.CanPromise(quarter - 3, true));
  EXPECT_FALSE(admission().TryAdmit(*grants.back(), {.blocks = 2}));
  EXPECT_TRUE(admission().TryAdmit(*grants.back(), {.blocks = 2, .frees = true}));
}

TEST_F(LargeLog, NothingGoesBeforeOthersInAnArrayThatHasStopped) {
  Grant grant(admission());
  parts_.core.Stop(Error{ErrorCode::kNoSpace, "full below"});
  EXPECT_FALSE(admission().TryAdmitFreeing(grant, {.blocks = 2}));
}

}  // namespace
}  // namespace eplog
