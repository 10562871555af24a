// Who may have slots and log room, in which order, and what is left to parity commit (section 5).
#include "engine/log/admission.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <vector>

#include "tests/engine/parts_fixture.h"

namespace eplog {
namespace {

constexpr DeviceIndex kSsd(0);
constexpr uint64_t kOne = 1;  // mask of it

class Admissions : public ::testing::Test {
 protected:
  // Just so many slots are left that a request finds `open` of them.
  void LeaveOpen(DeviceIndex ssd, uint32_t open) {
    while (parts_.core.space.free(ssd) > parts_.g().commit_width() + open) {
      claimed_.push_back(parts_.core.space.Claim(ssd));
    }
  }
  // One of those slots is free again.
  void GiveBackOne(DeviceIndex ssd) {
    parts_.core.space.Unclaim(ssd, claimed_.back());
    claimed_.pop_back();
    parts_.core.space_changed.NotifyAll();
    parts_.Settle();
  }
  // All the log that a request may have, but for so many blocks.
  void LeaveLog(uint64_t blocks) {
    while (parts_.appender.CanPromise(blocks + 1, false)) {
      parts_.appender.Promise(1);
      ++promised_;
    }
    ASSERT_TRUE(parts_.appender.CanPromise(blocks, false));
  }
  bool TryAdmit(const Admission::Need& need) {
    grants_.push_back(std::make_unique<Grant>(parts_.admission));
    return parts_.admission.TryAdmit(*grants_.back(), need);
  }
  struct Request {
    explicit Request(Admission& admission) : grant(std::make_unique<Grant>(admission)) {}
    std::unique_ptr<Grant> grant;
    std::optional<Status> ended;
    [[nodiscard]] bool admitted() const { return ended && ended->ok(); }
  };
  std::unique_ptr<Request> Ask(const Admission::Need& need) {
    auto request = std::make_unique<Request>(parts_.admission);
    parts_.Start(parts_.admission.Admit(*request->grant, need), request->ended);
    return request;
  }

  EngineParts parts_;
  std::vector<SlotIndex> claimed_;
  std::vector<std::unique_ptr<Grant>> grants_;
  uint64_t promised_ = 0;
};

TEST_F(Admissions, WhatWasNotTakenComesBack) {
  const uint32_t free = parts_.core.space.free(kSsd);
  LeaveLog(3);
  {
    Grant grant(parts_.admission);
    ASSERT_TRUE(parts_.admission.TryAdmit(grant, {.ssds = 3, .owing = 0, .blocks = 3}));
    EXPECT_TRUE(grant.Holds(DeviceIndex(0)) && grant.Holds(DeviceIndex(1)));
    EXPECT_FALSE(grant.Holds(DeviceIndex(2)));
    EXPECT_EQ(parts_.core.space.free(kSsd), free - 1);
    EXPECT_FALSE(parts_.appender.CanPromise(1, false));
    const SlotWord taken = grant.TakeSlot(DeviceIndex(1));
    EXPECT_TRUE(parts_.core.space.IsUsed(DeviceIndex(1), taken.slot()));
    EXPECT_FALSE(grant.Holds(DeviceIndex(1)));
  }
  EXPECT_EQ(parts_.core.space.free(kSsd), free);
  EXPECT_EQ(parts_.core.space.free(DeviceIndex(1)), free - 1) << "that one is the taker's";
  EXPECT_TRUE(parts_.appender.CanPromise(3, false));
}

TEST_F(Admissions, APromiseThatWasHandedOnIsNotGivenBack) {
  LeaveLog(2);
  {
    Grant grant(parts_.admission);
    ASSERT_TRUE(parts_.admission.TryAdmit(grant, {.ssds = 0, .owing = 0, .blocks = 2}));
    grant.TakeLog();
  }
  EXPECT_FALSE(parts_.appender.CanPromise(2, false));
}

TEST_F(Admissions, AGrantThatWasNeverAdmittedGivesNothingBack) {
  const uint32_t free = parts_.core.space.free(kSsd);
  { const Grant grant(parts_.admission); }
  EXPECT_EQ(parts_.core.space.free(kSsd), free);
  EXPECT_TRUE(parts_.admission.NoneBefore(UINT64_MAX));
}

TEST_F(Admissions, SlotsForOneBatchOfCommitsStay) {
  LeaveOpen(kSsd, 1);
  EXPECT_TRUE(TryAdmit({.ssds = kOne, .owing = 0, .blocks = 1}));
  EXPECT_EQ(parts_.core.space.free(kSsd), parts_.g().commit_width());
  EXPECT_FALSE(TryAdmit({.ssds = kOne, .owing = 0, .blocks = 1}));
  EXPECT_TRUE(TryAdmit({.ssds = 2, .owing = 0, .blocks = 1})) << "elsewhere there is room";
}

// A stripe whose parity was never written has no old slot to give back for the new one.
TEST_F(Admissions, WhatCommitsWillOweStaysTooAlsoOfRequestsOnTheirWay) {
  LeaveOpen(kSsd, 2);
  EXPECT_TRUE(TryAdmit({.ssds = 2, .owing = kOne, .blocks = 1}));
  EXPECT_TRUE(TryAdmit({.ssds = 2, .owing = kOne, .blocks = 1}));
  EXPECT_FALSE(TryAdmit({.ssds = 2, .owing = kOne, .blocks = 1}));
  EXPECT_FALSE(TryAdmit({.ssds = kOne, .owing = 0, .blocks = 1})) << "two are spoken for";
  grants_.erase(grants_.begin());
  EXPECT_TRUE(TryAdmit({.ssds = kOne, .owing = 0, .blocks = 1}));
}

TEST_F(Admissions, WhatIsOwedByPendingChunksStays) {
  const StripeIndex stripe(0);
  const DeviceIndex parity = parts_.g().SsdOf(stripe, parts_.g().k());
  parts_.Log({parts_.Chunk(0, 0)});
  ASSERT_EQ(parts_.core.state->owed(parity), 1U);
  LeaveOpen(parity, 1);
  EXPECT_FALSE(TryAdmit({.ssds = EngineParts::MaskOf(parity), .owing = 0, .blocks = 1}));
}

TEST_F(Admissions, LogRoomToTheLastBlock) {
  LeaveLog(5);
  EXPECT_FALSE(TryAdmit({.ssds = 0, .owing = 0, .blocks = 6}));
  EXPECT_TRUE(TryAdmit({.ssds = 0, .owing = 0, .blocks = 5}));
  EXPECT_FALSE(TryAdmit({.ssds = 0, .owing = 0, .blocks = 1}));
}

// Else writes that let go of pending chunks would wait for commits that wait for them.
TEST_F(Admissions, WhatFreesPendingChunksMayHaveWhatIsClosedToOthers) {
  LeaveLog(0);
  EXPECT_FALSE(TryAdmit({.ssds = 0, .owing = 0, .blocks = 1}));
  EXPECT_TRUE(TryAdmit({.ssds = 0, .owing = 0, .blocks = 1, .frees = true}));
}

// ---- who waits

TEST_F(Admissions, FirstComeFirstServed) {
  LeaveOpen(kSsd, 0);
  const auto first = Ask({.ssds = kOne, .owing = 0, .blocks = 1});
  const auto second = Ask({.ssds = kOne, .owing = 0, .blocks = 1});
  // It would find room, and is behind them all the same.
  const auto third = Ask({.ssds = 2, .owing = 0, .blocks = 1});
  EXPECT_FALSE(TryAdmit({.ssds = 2, .owing = 0, .blocks = 1}));
  EXPECT_FALSE(first->ended || second->ended || third->ended);
  EXPECT_TRUE(parts_.admission.waiting() && parts_.admission.waiting_for_slots());
  EXPECT_FALSE(parts_.admission.waiting_for_log());
  EXPECT_EQ(parts_.hooks.space_waits, 3U);
  GiveBackOne(kSsd);
  EXPECT_TRUE(first->admitted());
  EXPECT_FALSE(second->ended || third->ended);
  GiveBackOne(kSsd);
  EXPECT_TRUE(second->admitted() && third->admitted());
  EXPECT_FALSE(parts_.admission.waiting());
}

TEST_F(Admissions, WhoWaitsIsServedByWhatAnotherGivesBack) {
  LeaveLog(4);
  auto first = Ask({.ssds = 0, .owing = 0, .blocks = 4});
  ASSERT_TRUE(first->admitted());
  const auto second = Ask({.ssds = 0, .owing = 0, .blocks = 2});
  EXPECT_TRUE(parts_.admission.waiting_for_log());
  EXPECT_FALSE(parts_.admission.waiting_for_slots());
  first.reset();
  parts_.Settle();
  EXPECT_TRUE(second->admitted());
}

// What they wait for may be freed by it.
TEST_F(Admissions, WhatFreesGoesBeforeThoseWhoWait) {
  LeaveLog(0);
  const auto waits = Ask({.ssds = 0, .owing = 0, .blocks = 1});
  ASSERT_FALSE(waits->ended);
  Grant grant(parts_.admission);
  EXPECT_FALSE(
      parts_.admission.TryAdmit(grant, {.ssds = 0, .owing = 0, .blocks = 1, .frees = true}));
  EXPECT_TRUE(parts_.admission.TryAdmitFreeing(grant, {.ssds = 0, .owing = 0, .blocks = 1}));
  EXPECT_FALSE(waits->ended);
}

TEST_F(Admissions, WhoWaitsIsRefusedAndWhoComesLaterIsNot) {
  LeaveOpen(kSsd, 0);
  const auto first = Ask({.ssds = kOne, .owing = 0, .blocks = 1});
  const auto second = Ask({.ssds = kOne, .owing = 0, .blocks = 1});
  parts_.admission.Refuse(Error{ErrorCode::kNoSpace, "nothing makes room"});
  parts_.Settle();
  for (const auto* request : {first.get(), second.get()}) {
    ASSERT_TRUE(request->ended);
    ASSERT_FALSE(request->ended->ok());
    EXPECT_EQ(request->ended->error().code, ErrorCode::kNoSpace);
  }
  const auto third = Ask({.ssds = kOne, .owing = 0, .blocks = 1});
  EXPECT_FALSE(third->ended);
  GiveBackOne(kSsd);
  EXPECT_TRUE(third->admitted());
}

TEST_F(Admissions, WhoWaitsWhenTheArrayStopsIsToldSo) {
  LeaveOpen(kSsd, 0);
  const auto waits = Ask({.ssds = kOne, .owing = 0, .blocks = 1});
  parts_.core.Stop(Error{ErrorCode::kNoSpace, "full below"});
  parts_.Settle();
  ASSERT_TRUE(waits->ended && !waits->ended->ok());
  EXPECT_EQ(parts_.core.space.free(kSsd), parts_.g().commit_width()) << "and nothing was claimed";
  const auto later = Ask({.ssds = 2, .owing = 0, .blocks = 1});
  EXPECT_TRUE(later->ended && !later->ended->ok());
  EXPECT_FALSE(TryAdmit({.ssds = 2, .owing = 0, .blocks = 1}));
}

// ---- devices come and go

TEST_F(Admissions, OfALostSsdNoSlotIsClaimedAndNoneGivenBack) {
  Grant before(parts_.admission);
  ASSERT_TRUE(parts_.admission.TryAdmit(before, {.ssds = 3, .owing = 0, .blocks = 1}));
  const uint64_t states = parts_.core.devices().number();
  parts_.Lose(kSsd);
  EXPECT_FALSE(parts_.admission.NoneBefore(states + 1));
  EXPECT_TRUE(parts_.admission.NoneBefore(states));
  EXPECT_TRUE(before.TakeSlot(kSsd).is_absent()) << "it was claimed on a device that is gone";
  EXPECT_TRUE(before.TakeSlot(DeviceIndex(1)).has_slot());
  Grant after(parts_.admission);
  ASSERT_TRUE(parts_.admission.TryAdmit(after, {.ssds = 3, .owing = 0, .blocks = 1}));
  EXPECT_FALSE(after.Holds(kSsd));
  EXPECT_TRUE(after.TakeSlot(kSsd).is_absent());
}

TEST_F(Admissions, AReplacementGetsNoSlotBackThatItNeverGave) {
  {
    Grant grant(parts_.admission);
    ASSERT_TRUE(parts_.admission.TryAdmit(grant, {.ssds = kOne, .owing = 0, .blocks = 1}));
    parts_.Lose(kSsd);
    parts_.Join(kSsd);
    EXPECT_EQ(parts_.core.space.free(kSsd), parts_.g().slots);
  }
  EXPECT_EQ(parts_.core.space.free(kSsd), parts_.g().slots);
  EXPECT_TRUE(parts_.admission.NoneBefore(UINT64_MAX));
}

// ---- what begins to run short

TEST_F(Admissions, SlotsAreShortBeforeAnybodyWaits) {
  EXPECT_FALSE(parts_.admission.SlotsShort());
  LeaveOpen(DeviceIndex(3), 1);
  EXPECT_TRUE(parts_.admission.SlotsShort());
  EXPECT_FALSE(parts_.admission.LogShort());
  parts_.Lose(DeviceIndex(3));
  EXPECT_FALSE(parts_.admission.SlotsShort()) << "of what is not there nothing is short";
}

TEST_F(Admissions, RingsAreShortWhenAQuarterIsLeft) {
  EXPECT_FALSE(parts_.admission.RingsShort());
  for (uint8_t i = 0; i < parts_.g().n; ++i) {
    parts_.core.rings.NoteBlock(DeviceIndex(i), 1, 1, true);
    parts_.core.rings.NoteBlock(DeviceIndex(i), parts_.g().ring_blocks - 4, 1, true);
  }
  EXPECT_TRUE(parts_.admission.RingsShort());
}

TEST(AdmissionByHand, NothingIsShortBeforeSomebodyWaits) {
  EngineParts parts;
  parts.core.options.auto_commit = false;
  while (parts.core.space.free(kSsd) > parts.g().commit_width()) {
    static_cast<void>(parts.core.space.Claim(kSsd));
  }
  EXPECT_FALSE(parts.admission.SlotsShort());
  Grant grant(parts.admission);
  std::optional<Status> ended;
  parts.Start(parts.admission.Admit(grant, {.ssds = kOne, .owing = 0, .blocks = 1}), ended);
  EXPECT_TRUE(parts.admission.SlotsShort());
  EXPECT_FALSE(parts.admission.LogShort());
  parts.core.Stop(Error{ErrorCode::kShutdown, "the end"});
  parts.Settle();
}

}  // namespace
}  // namespace eplog
