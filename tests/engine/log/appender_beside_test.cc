// What lets on an entry that waits, and how what is on its way ends with the array.
#include <gtest/gtest.h>

#include <optional>
#include <utility>

#include "engine/log/appender.h"
#include "tests/engine/parts_fixture.h"

namespace eplog {
namespace {

// Log room comes back with a checkpoint, and nobody else tells who waits for it.
TEST(AppendingBeside, ACheckpointThatCountsLetsOnWhoWaitsForLogRoom) {
  EngineParts parts;
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(parts.Run(parts.appender.AppendMark()).ok());
  }
  ASSERT_TRUE(parts.Run(parts.flusher.FlushAll()).ok());
  const uint64_t promised = parts.appender.UrgentRoom();
  parts.appender.Promise(promised);
  std::optional<Status> ended;
  parts.Start(parts.appender.AppendMark(), ended);
  EXPECT_FALSE(ended);
  EXPECT_TRUE(parts.appender.blocked());
  parts.appender.CheckpointCounts(parts.appender.applied().place);
  parts.Settle();
  EXPECT_TRUE(ended && ended->ok());
  EXPECT_FALSE(parts.appender.blocked());
  parts.appender.TakeBack(promised);
}

// The log was needed for a read alone.
TEST(AppendingBeside, AReadThatEndsLetsOnWhoWaitsForLogRoom) {
  EngineParts parts;
  std::optional<Appender::LogPin> pin(std::in_place, parts.appender, 0);
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(parts.Run(parts.appender.AppendMark()).ok());
  }
  ASSERT_TRUE(parts.Run(parts.flusher.FlushAll()).ok());
  parts.appender.CheckpointCounts(parts.appender.applied().place);
  const uint64_t promised = parts.appender.UrgentRoom();
  parts.appender.Promise(promised);
  std::optional<Status> ended;
  parts.Start(parts.appender.AppendMark(), ended);
  EXPECT_FALSE(ended);
  EXPECT_TRUE(parts.appender.blocked());
  pin.reset();
  parts.Settle();
  EXPECT_TRUE(ended && ended->ok());
  parts.appender.TakeBack(promised);
}

// Nobody will end the change any more.
TEST(AppendingBeside, AnArrayThatStopsDuringAChangeEndsWhatIsOnItsWay) {
  EngineParts parts({.delays = {.write_us = 100}});
  RecordWrite on_its_way;
  RecordWrite waits;
  parts.appender.Submit(on_its_way, true);
  static_cast<void>(parts.loop.RunUntil([&] { return parts.appender.in_flight() != 0; }));
  ASSERT_EQ(parts.appender.in_flight(), 1U);
  parts.states().BeginChange();
  parts.appender.Submit(waits, true);
  parts.core.Stop(Error{ErrorCode::kNoSpace, "full below"});
  parts.Settle();
  for (const RecordWrite* record : {&on_its_way, &waits}) {
    ASSERT_TRUE(record->completion.await_ready());
    EXPECT_EQ(record->completion.status().error().code, ErrorCode::kNoSpace);
  }
  EXPECT_EQ(parts.appender.applied().sequence, 0U) << "nothing more is applied";
  EXPECT_EQ(parts.appender.in_flight(), 0U);
}

}  // namespace
}  // namespace eplog
