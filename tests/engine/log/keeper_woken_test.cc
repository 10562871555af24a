// The keeper sleeps until he is woken: by who waits for room, which only he can make, and by
// whoever takes something and finds that it is short.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine/log/admission.h"
#include "tests/engine/parts_fixture.h"

namespace eplog {
namespace {

class WakingTheKeeper : public ::testing::Test {
 protected:
  explicit WakingTheKeeper(const PartsShape& shape = {}) : parts_(shape) {}

  void SetUp() override {
    parts_.loop.Spawn([](Event& kick, int& count) -> Task<void> {
      while (true) {
        co_await kick.Wait();
        ++count;
      }
    }(parts_.core.kick, kicks_));
    parts_.Settle();
  }
  void TearDown() override {
    parts_.core.Stop(Error{ErrorCode::kShutdown, "the end"});
    parts_.Settle();
  }
  Admission& admission() { return parts_.admission; }
  // How often he was woken since the last call.
  int Kicks() {
    parts_.Settle();
    return std::exchange(kicks_, 0);
  }
  // So many blocks of log are used by entries that no checkpoint covers, and wait for no ring.
  void UseLog(uint64_t blocks) {
    while (parts_.appender.log_used() < blocks) {
      ASSERT_TRUE(parts_.Run(parts_.appender.AppendMark()).ok());
      ASSERT_TRUE(parts_.Run(parts_.flusher.FlushAll()).ok());
      parts_.core.rings.CheckpointCounts(UINT64_MAX);
    }
    static_cast<void>(Kicks());
  }
  // How often he is woken by somebody who finds room at once.
  int KicksOfOneMore() {
    static_cast<void>(Kicks());
    grants_.push_back(std::make_unique<Grant>(admission()));
    EXPECT_TRUE(admission().TryAdmit(*grants_.back(), {.blocks = 1}));
    return Kicks();
  }
  // As many headers as the rings still have blocks for, but for so many.
  void QueueHeaders(uint64_t fewer) {
    const std::vector<std::byte> header(100);
    const uint64_t room = parts_.core.rings.Room(JournalRings::kReserveBlocks);
    while (parts_.core.rings.queued() + fewer < room) {
      parts_.core.rings.Enqueue(++sequence_, header);
    }
  }

  EngineParts parts_;
  int kicks_ = 0;
  uint64_t sequence_ = 0;
  std::vector<std::unique_ptr<Grant>> grants_;
};

TEST_F(WakingTheKeeper, WhoWaitsForRoomDoesAndWhoIsServedThen) {
  const DeviceIndex ssd(0);
  SlotIndex last;
  while (parts_.core.space.free(ssd) > parts_.g().commit_width()) {
    last = parts_.core.space.Claim(ssd);
  }
  EXPECT_EQ(Kicks(), 0);
  Grant grant(admission());
  std::optional<Status> ended;
  parts_.Start(admission().Admit(grant, {.ssds = 1, .blocks = 1}), ended);
  EXPECT_FALSE(ended);
  EXPECT_EQ(Kicks(), 1) << "nobody else makes room";
  parts_.core.space_changed.NotifyAll();
  EXPECT_EQ(Kicks(), 1) << "there is none still";
  parts_.core.space.Unclaim(ssd, last);
  parts_.core.space_changed.NotifyAll();
  EXPECT_EQ(Kicks(), 1) << "that was the last";
  EXPECT_TRUE(ended && ended->ok());
}

TEST_F(WakingTheKeeper, WhoTakesLogWhereItIsShortDoes) {
  const uint64_t open = parts_.g().log_blocks - parts_.g().log_blocks / 8;
  UseLog(open * 5 / 7);
  EXPECT_EQ(KicksOfOneMore(), 0);
  UseLog(open * 5 / 7 + 1);
  EXPECT_EQ(KicksOfOneMore(), 1);
}

TEST_F(WakingTheKeeper, WhoFindsTheRingsShortDoes) {
  EXPECT_EQ(KicksOfOneMore(), 0);
  for (uint8_t i = 0; i < parts_.g().n; ++i) {
    parts_.core.rings.NoteBlock(DeviceIndex(i), 1, 1, true);
    parts_.core.rings.NoteBlock(DeviceIndex(i), parts_.g().ring_blocks - 3, 1, true);
  }
  EXPECT_EQ(KicksOfOneMore(), 1);
}

// Each header that waits may get a block of its own: the rings are short when there are no more
// blocks than that, though nothing is in them yet.
TEST_F(WakingTheKeeper, WhoFindsAsManyHeadersAsTheRingsHaveBlocksDoes) {
  QueueHeaders(1);
  EXPECT_FALSE(admission().RingsShort());
  EXPECT_EQ(KicksOfOneMore(), 0);
  QueueHeaders(0);
  EXPECT_TRUE(admission().RingsShort());
  EXPECT_EQ(KicksOfOneMore(), 1);
}

class WakingForACheckpoint : public WakingTheKeeper {
 protected:
  static constexpr uint64_t kBlocks = 10;
  static PartsShape Shape() {
    PartsShape shape;
    shape.options.checkpoint.log_bytes = kBlocks * kBlockBytes;
    return shape;
  }
  WakingForACheckpoint() : WakingTheKeeper(Shape()) {}
};

TEST_F(WakingForACheckpoint, WhoFindsThatOneIsDueDoes) {
  UseLog(kBlocks - 1);
  EXPECT_FALSE(admission().CheckpointFar());
  EXPECT_EQ(KicksOfOneMore(), 0);
  UseLog(kBlocks);
  EXPECT_TRUE(admission().CheckpointFar());
  EXPECT_EQ(KicksOfOneMore(), 1);
  parts_.appender.CheckpointCounts(parts_.appender.applied().place);
  EXPECT_EQ(KicksOfOneMore(), 0);
}

}  // namespace
}  // namespace eplog
