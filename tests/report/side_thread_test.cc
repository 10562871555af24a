// Where no thread can be had: the one who asks is told, and the next one gets one if there is.
#include "runtime/side_thread.h"

#include <gtest/gtest.h>

#include <fstream>
#include <future>
#include <string>

#include "report/event_log.h"
#include "report/json.h"
#include "tests/support/files.h"
#include "tests/support/no_threads.h"

namespace eplog {
namespace {

void JobsAreRefusedUntilThereIsAThread() {
  SideThread side(1);
  ThreadLimit limit;
  std::promise<void> ran;
  EXPECT_FALSE(side.Post([] { ADD_FAILURE() << "it was refused"; }));
  EXPECT_FALSE(side.Post([] { ADD_FAILURE() << "it was refused"; }));
  limit.Lift();
  EXPECT_TRUE(side.Post([&] { ran.set_value(); })) << "nothing waits, one may";
  ran.get_future().wait();
  EXPECT_TRUE(side.Finish(std::chrono::minutes(2)));
}

TEST(SideThreadDeathTest, JobsAreRefusedUntilThereIsAThread) {
  EPLOG_IN_A_PROCESS(JobsAreRefusedUntilThereIsAThread);
}

void EventsAreMissingUntilThereIsAThread() {
  ThreadLimit limit;
  const TemporaryDirectory directory;
  {
    EventLog::Limits patient;
    patient.closing = std::chrono::minutes(2);
    EventLog log(directory / "log", "exit 0", "tank", patient);
    ArrayEvent event;
    event.kind = EventKind::kDeviceFailed;
    log.Add(event);
    log.Add(event);
    limit.Lift();
    event.kind = EventKind::kScrubFinished;
    log.Add(event);
  }
  std::ifstream in(directory / "log");
  std::string line;
  EXPECT_TRUE(std::getline(in, line));
  const Json lost = Json::parse(line, nullptr, false);
  EXPECT_EQ(lost.value("event", ""), "events_lost");
  EXPECT_EQ(lost.value("text", "").rfind("2 events", 0), 0U) << line;
  EXPECT_TRUE(std::getline(in, line));
  EXPECT_EQ(Json::parse(line, nullptr, false).value("event", ""), "scrub_finished");
}

TEST(EventLogDeathTest, EventsAreMissingUntilThereIsAThread) {
  EPLOG_IN_A_PROCESS(EventsAreMissingUntilThereIsAThread);
}

}  // namespace
}  // namespace eplog
