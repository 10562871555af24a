#include "frontend/event_log.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <utility>
#include <vector>

#include "frontend/json.h"

namespace eplog {
namespace {

constexpr size_t kMaxWaiting = 1000;  // calls; what comes then is only in the file
constexpr auto kHookTime = std::chrono::seconds(60);
constexpr auto kLook = std::chrono::milliseconds(20);

std::string NowUtc() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  const size_t length = std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return {text, length};
}

Json OrNull(const std::string& text) {
  return text.empty() ? Json() : Json(text);
}

}  // namespace

EventLog::EventLog(std::string path, std::string hook, std::string array_name)
    : path_(std::move(path)), hook_(std::move(hook)), array_name_(std::move(array_name)) {}

EventLog::~EventLog() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) {
    thread_.join();
  }
}

void EventLog::Add(const ArrayEvent& event) {
  const Json json = {{"time", NowUtc()},
                     {"event", EventKindName(event.kind)},
                     {"device", OrNull(event.device)},
                     {"volume", OrNull(event.volume)},
                     {"offset_bytes", event.volume.empty() ? Json() : Json(event.offset_bytes)},
                     {"text", event.text}};
  const std::string line = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  Append(line + "\n");
  if (hook_.empty()) {
    return;
  }
  const std::lock_guard lock(mutex_);
  if (calls_.size() < kMaxWaiting) {
    calls_.push_back({EventKindName(event.kind), event.device, event.text, line});
  }
  if (!thread_.joinable()) {
    thread_ = std::thread(&EventLog::RunHooks, this);
  }
  wake_.notify_all();
}

void EventLog::Append(const std::string& line) const {
  if (path_.empty()) {
    return;
  }
  struct stat file {};
  if (::stat(path_.c_str(), &file) == 0 &&
      static_cast<uint64_t>(file.st_size) + line.size() > kMaxFileBytes) {
    static_cast<void>(std::rename(path_.c_str(), (path_ + ".1").c_str()));
  }
  const int fd = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) {
    return;
  }
  const ssize_t written = ::write(fd, line.data(), line.size());
  static_cast<void>(written);
  ::close(fd);
}

void EventLog::RunHooks() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stop_ || !calls_.empty(); });
    if (stop_) {
      return;
    }
    const Call call = std::move(calls_.front());
    calls_.pop_front();
    lock.unlock();
    RunHook(call);
    lock.lock();
  }
}

void EventLog::RunHook(const Call& call) {
  std::vector<std::string> values = {"EPLOG_EVENT=" + call.event, "EPLOG_DEVICE=" + call.device,
                                     "EPLOG_TEXT=" + call.text, "EPLOG_ARRAY=" + array_name_,
                                     "EPLOG_JSON=" + call.json};
  std::vector<char*> environment;
  for (char** value = environ; *value != nullptr; ++value) {
    environment.push_back(*value);
  }
  for (std::string& value : values) {
    environment.push_back(value.data());
  }
  environment.push_back(nullptr);
  std::string shell = "sh";
  std::string option = "-c";
  std::string command = hook_;
  char* arguments[] = {shell.data(), option.data(), command.data(), nullptr};
  // This process blocks signals that a command expects, and it is to be ended with its children.
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setpgroup(&attributes, 0);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
  pid_t child = 0;
  const int error =
      ::posix_spawn(&child, "/bin/sh", nullptr, &attributes, arguments, environment.data());
  ::posix_spawnattr_destroy(&attributes);
  if (error != 0) {
    return;
  }
  const auto until = std::chrono::steady_clock::now() + kHookTime;
  std::unique_lock lock(mutex_);
  while (::waitpid(child, nullptr, WNOHANG) == 0) {
    if (stop_ || std::chrono::steady_clock::now() >= until) {
      ::kill(-child, SIGKILL);
      ::waitpid(child, nullptr, 0);
      return;
    }
    wake_.wait_for(lock, kLook);
  }
}

}  // namespace eplog
