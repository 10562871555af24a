#include "report/event_hook.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <thread>

namespace eplog {
namespace {

constexpr auto kLook = std::chrono::milliseconds(20);

// This process blocks signals that a command expects, and it is to be ended with its children.
pid_t Spawn(const std::string& command, std::vector<std::string>& variables) {
  std::vector<char*> environment;
  for (char** value = environ; *value != nullptr; ++value) {
    environment.push_back(*value);
  }
  for (std::string& value : variables) {
    environment.push_back(value.data());
  }
  environment.push_back(nullptr);
  std::string shell = "sh";
  std::string option = "-c";
  std::string text = command;
  char* arguments[] = {shell.data(), option.data(), text.data(), nullptr};
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
  return error == 0 ? child : 0;
}

}  // namespace

void RunEventHook(const EventHook& hook, std::vector<std::string> variables) {
  if (hook.stop) {
    return;
  }
  const pid_t child = Spawn(hook.command, variables);
  if (child == 0) {
    return;
  }
  const auto until = std::chrono::steady_clock::now() + hook.longest;
  bool killed = false;
  while (::waitpid(child, nullptr, WNOHANG) == 0) {
    if (!killed && (hook.stop || std::chrono::steady_clock::now() >= until)) {
      ::kill(-child, SIGKILL);
      killed = true;
    }
    std::this_thread::sleep_for(kLook);
  }
}

}  // namespace eplog
