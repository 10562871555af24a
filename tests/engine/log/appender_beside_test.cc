// What lets on an entry that waits, and how what is on its way ends with the array.
#include <gtest/gtest.h>

#include <optional>
#include <utility>

#include "engine/log/appender.h"
#include "tests/engine/parts_fixture.h"

namespace eplog {
namespace {

// A log of marks that are stable.
class LogOfMarks : public EngineParts {
 public:
  LogOfMarks() {
    for (int i = 0; i < 20; ++i) {
      EXPECT_TRUE(Run(appender.AppendMark()).ok());
    }
    EXPECT_TRUE(Run(flusher.FlushAll()).ok());
  }
  ~LogOfMarks() { appender.TakeBack(promised_); }
  LogOfMarks(const LogOfMarks&) = delete;
  LogOfMarks& operator=(const LogOfMarks&) = delete;

  // All that is left is promised, so that one more waits.
  void OneMoreWaits(std::optional<Status>& ended) {
    promised_ = appender.UrgentRoom();
    appender.Promise(promised_);
    Start(appender.AppendMark(), ended);
    EXPECT_FALSE(ended);
    EXPECT_TRUE(appender.blocked());
  }

 private:
  uint64_t promised_ = 0;
};

// Log room comes back with a checkpoint, and nobody else tells who waits for it.
TEST(AppendingBeside, ACheckpointThatCountsLetsOnWhoWaitsForLogRoom) {
  LogOfMarks parts;
  std::optional<Status> ended;
  parts.OneMoreWaits(ended);
  parts.appender.CheckpointCounts(parts.appender.applied().place);
  parts.Settle();
  EXPECT_TRUE(ended && ended->ok());
  EXPECT_FALSE(parts.appender.blocked());
}

// The log was needed for a read alone.
TEST(AppendingBeside, AReadThatEndsLetsOnWhoWaitsForLogRoom) {
  LogOfMarks parts;
  std::optional<Appender::LogPin> pin(std::in_place, parts.appender, 0);
  parts.appender.CheckpointCounts(parts.appender.applied().place);
  std::optional<Status> ended;
  parts.OneMoreWaits(ended);
  pin.reset();
  parts.Settle();
  EXPECT_TRUE(ended && ended->ok());
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
