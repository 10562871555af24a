#include "report/event_log.h"

#include <ctime>
#include <utility>
#include <vector>

#include "report/event_file.h"
#include "report/json.h"

namespace eplog {
namespace {

std::string NowUtc() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  const size_t length = std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return {text, length};
}

std::string Line(const char* event, const std::string& device, const Json& volume,
                 const Json& offset_bytes, const std::string& text) {
  const Json json = {{"time", NowUtc()},
                     {"event", event},
                     {"device", OrNull(device)},
                     {"volume", volume},
                     {"offset_bytes", offset_bytes},
                     {"text", text}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::shared_ptr<EventHook> MakeHook(std::string command, std::chrono::milliseconds longest) {
  if (command.empty()) {
    return nullptr;
  }
  return std::make_shared<EventHook>(std::move(command), longest);
}

}  // namespace

EventLog::EventLog(std::string path, std::string hook, std::string array_name, Limits limits,
                   std::function<bool()> may_write)
    : path_(std::move(path)),
      array_name_(std::move(array_name)),
      limits_(limits),
      may_write_(std::move(may_write)),
      hook_(MakeHook(std::move(hook), limits.hook)) {}

EventLog::~EventLog() {
  if (hook_ != nullptr) {
    hook_->Stop();
  }
  writing_.Finish(limits_.closing);
  calling_.Finish(limits_.closing);
}

bool EventLog::Write(std::string line) {
  return writing_.Post([path = path_, may_write = may_write_, text = std::move(line) + "\n"] {
    if (!may_write || may_write()) {
      AppendEventLine(path, text, kMaxFileBytes);
    }
  });
}

void EventLog::Call(const ArrayEvent& event, const std::string& json) {
  std::vector<std::string> variables = {std::string("EPLOG_EVENT=") + EventKindName(event.kind),
                                        "EPLOG_DEVICE=" + event.device, "EPLOG_TEXT=" + event.text,
                                        "EPLOG_ARRAY=" + array_name_, "EPLOG_JSON=" + json};
  const bool queued =
      calling_.Post([hook = hook_, told = std::move(variables)] { hook->Run(told); });
  static_cast<void>(queued);  // too many wait: this one is only in the file
}

void EventLog::Add(const ArrayEvent& event) {
  const std::string line =
      Line(EventKindName(event.kind), event.device, OrNull(event.volume),
           event.volume.empty() ? Json() : Json(event.offset_bytes), event.text);
  if (!path_.empty()) {
    if (lost_ != 0 && Write(Line("events_lost", "", Json(), Json(),
                                 std::to_string(lost_) +
                                     " events before this are missing here: the file could not "
                                     "be written for so long"))) {
      lost_ = 0;
    }
    lost_ += Write(line) ? 0 : 1;
  }
  if (hook_ != nullptr) {
    Call(event, line);
  }
}

}  // namespace eplog
