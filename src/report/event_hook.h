// A command of the owner's, run by /bin/sh. Waits for it: for a SideThread.
#pragma once

#include <atomic>
#include <chrono>
#include <string>
#include <vector>

namespace eplog {

struct EventHook {
  std::string command;
  std::chrono::milliseconds longest;  // then it is ended, with its children
  std::atomic<bool> stop = false;     // end it now, and begin no other
};

// `variables`: NAME=VALUE, on top of our environment. Returns when the command is gone. A command
// that hangs inside the kernel, in a read of the array's own mount say, ends when that does, also
// when it was killed; nobody else may have to wait for it.
void RunEventHook(const EventHook& hook, std::vector<std::string> variables);

}  // namespace eplog
