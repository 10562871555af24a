// EventLog: what happened to an array, as JSON lines in a file that does not grow without bound,
// and to a command of the owner's. One line:
//
//   {"time":"2026-01-31T12:00:00Z","event":"device_failed","device":"ssd3","volume":null,
//    "offset_bytes":null,"text":"..."}
//
// At 1 MiB the file becomes PATH.1, in place of the one before. The command is run by /bin/sh, one
// event at a time, with EPLOG_EVENT, EPLOG_DEVICE, EPLOG_TEXT, EPLOG_ARRAY and EPLOG_JSON in its
// environment; one that takes more than a minute is ended.
//
// Whoever has something to tell does not wait for either: the file may lie on a file system on this
// very array, the command may use its mount. Both have a thread of their own and 1,000 events that
// may wait. While the file hangs, what comes on top is not written, and the next line that is says
// how many are missing ("event":"events_lost"); the command is not run for what comes on top.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "eplog/events.h"
#include "report/event_hook.h"
#include "runtime/side_thread.h"

namespace eplog {

class EventLog {
 public:
  struct Limits {
    std::chrono::milliseconds hook{60'000};    // a command that takes longer is ended
    std::chrono::milliseconds closing{5'000};  // how long the destructor waits for the file
  };
  // `path` may be empty: no file. `hook` too; with one this comes before members are opened
  // (EventHook). `array_name` is for the hook. Before each line
  // `may_write`, unless it is empty, says whether the file still is this array's; it may block as
  // long as the file does, and refers to nothing that may be gone by then.
  EventLog(std::string path, std::string hook, std::string array_name, Limits limits,
           std::function<bool()> may_write = {});
  EventLog(std::string path, std::string hook, std::string array_name)
      : EventLog(std::move(path), std::move(hook), std::move(array_name), Limits()) {}
  // Waits for what is to be written, for a bounded time. A hook that runs is ended, what waits for
  // it is forgotten.
  ~EventLog();
  EventLog(const EventLog&) = delete;
  EventLog& operator=(const EventLog&) = delete;

  // False: there is a command, and nobody who could run it.
  [[nodiscard]] bool CanCall() const { return hook_ == nullptr || hook_->ok(); }
  // Never fails and never waits: a file that cannot be written is as if there were none.
  void Add(const ArrayEvent& event);

  static constexpr uint64_t kMaxFileBytes = uint64_t{1} << 20;
  static constexpr size_t kMaxWaiting = 1000;

 private:
  [[nodiscard]] bool Write(std::string line);
  void Call(const ArrayEvent& event, const std::string& json);

  const std::string path_;
  const std::string array_name_;
  const Limits limits_;
  const std::function<bool()> may_write_;
  const std::shared_ptr<EventHook> hook_;  // null: none
  uint64_t lost_ = 0;                      // events since the last that was queued for the file
  SideThread writing_{kMaxWaiting};
  SideThread calling_{kMaxWaiting};
};

}  // namespace eplog
