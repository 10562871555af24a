// EventLog: what happened to an array, as JSON lines in a file that does not grow without bound,
// and to a command of the owner's. One line:
//
//   {"time":"2026-01-31T12:00:00Z","event":"device_failed","device":"ssd3","volume":null,
//    "offset_bytes":null,"text":"..."}
//
// At 1 MiB the file becomes PATH.1, in place of the one before. The command is run by /bin/sh, one
// event at a time, with EPLOG_EVENT, EPLOG_DEVICE, EPLOG_TEXT, EPLOG_ARRAY and EPLOG_JSON in its
// environment; one that takes more than a minute is ended.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <thread>

#include "eplog/events.h"

namespace eplog {

class EventLog {
 public:
  // `path` may be empty: no file. `hook` too. `array_name` is for the hook.
  EventLog(std::string path, std::string hook, std::string array_name);
  // A hook that runs is ended, what waits is forgotten.
  ~EventLog();
  EventLog(const EventLog&) = delete;
  EventLog& operator=(const EventLog&) = delete;

  // Never fails: a file that cannot be written is as if there were none.
  void Add(const ArrayEvent& event);

  static constexpr uint64_t kMaxFileBytes = uint64_t{1} << 20;

 private:
  struct Call {
    std::string event;
    std::string device;
    std::string text;
    std::string json;
  };
  void Append(const std::string& line) const;
  void RunHooks();
  void RunHook(const Call& call);

  const std::string path_;
  const std::string hook_;
  const std::string array_name_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable wake_;
  std::deque<Call> calls_;
  bool stop_ = false;
  std::thread thread_;  // runs the hook; started with the first event
};

}  // namespace eplog
