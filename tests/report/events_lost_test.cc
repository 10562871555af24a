// While the file of events hangs, a thousand of them wait; of those on top it is said how many they
// were, once and in their place.
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "report/event_log.h"
#include "report/json.h"
#include "tests/support/files.h"

namespace eplog {
namespace {

// Stands for a file system that hangs while it is shut.
class Gate {
 public:
  void Open(bool open) {
    const std::lock_guard lock(mutex_);
    open_ = open;
    changed_.notify_all();
  }
  // By whoever writes.
  bool Pass() {
    std::unique_lock lock(mutex_);
    ++came_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return open_; });
    return true;
  }
  // Until so many have come in all.
  void Await(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return came_ >= count; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
  size_t came_ = 0;
};

ArrayEvent Numbered(size_t number) {
  ArrayEvent event;
  event.kind = EventKind::kSlowDevice;
  event.device = "ssd0";
  event.text = std::to_string(number);
  return event;
}

TEST(EventsLost, AreCountedWhereTheyAreMissingAndThenForgotten) {
  const TemporaryDirectory directory;
  const auto gate = std::make_shared<Gate>();
  size_t next = 0;
  {
    EventLog::Limits limits;
    limits.closing = std::chrono::minutes(2);
    EventLog log(directory / "log", "", "tank", limits, [gate] { return gate->Pass(); });
    const auto add = [&](size_t count) {
      for (size_t i = 0; i < count; ++i) {
        log.Add(Numbered(next++));
      }
    };
    size_t written = 0;
    for (const size_t lost : {3U, 1U}) {
      gate->Open(false);
      add(1);
      gate->Await(written + 1);  // it is being written, and hangs
      add(EventLog::kMaxWaiting + lost);
      gate->Open(true);
      written += 1 + EventLog::kMaxWaiting;
      gate->Await(written);
      add(1);  // and before it the line that tells of the others
      written += 2;
      gate->Await(written);
      add(1);
      written += 1;
      gate->Await(written);
    }
  }
  std::vector<std::string> texts;
  std::ifstream in(directory / "log");
  for (std::string line; std::getline(in, line);) {
    const Json event = Json::parse(line, nullptr, false);
    const std::string kind = event.value("event", "");
    EXPECT_TRUE(kind != "events_lost" || event["device"].is_null()) << line;
    texts.push_back((kind == "events_lost" ? "lost " : "") + event.value("text", ""));
  }
  const std::string words =
      " events before this are missing here: the file could not be written for so long";
  std::vector<std::string> want;
  size_t number = 0;
  for (const size_t lost : {3U, 1U}) {
    for (size_t i = 0; i < 1 + EventLog::kMaxWaiting; ++i) {
      want.push_back(std::to_string(number++));
    }
    number += lost;
    want.push_back("lost " + std::to_string(lost) + words);
    want.push_back(std::to_string(number++));
    want.push_back(std::to_string(number++));
  }
  EXPECT_EQ(texts, want);
}

}  // namespace
}  // namespace eplog
