#include "base/process_life.h"

#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string>

#include "base/read_text.h"

namespace eplog {
namespace {

bool KillPending(const std::string& folder) {
  std::istringstream status(ReadText(folder + "/status"));
  std::string key;
  std::string value;
  while (status >> key && std::getline(status, value)) {
    if (key == "SigPnd:" || key == "ShdPnd:") {
      const uint64_t pending = std::strtoull(value.c_str(), nullptr, 16);
      if ((pending >> (SIGKILL - 1) & 1) != 0) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace

bool ProcessActs(pid_t pid) {
  constexpr unsigned long kExiting = 0x4;     // PF_EXITING of linux/sched.h
  constexpr unsigned long kSignaled = 0x400;  // PF_SIGNALED: a signal ends it
  const std::string folder = "/proc/" + std::to_string(pid);
  const std::string line = ReadText(folder + "/stat");
  const size_t end_of_name = line.rfind(')');
  if (end_of_name == std::string::npos) {
    return false;
  }
  std::istringstream rest(line.substr(end_of_name + 1));
  char state = 'X';
  long ignored = 0;
  unsigned long flags = 0;
  rest >> state;
  for (int field = 0; field < 5; ++field) {  // parent, group, session, terminal, its group
    rest >> ignored;
  }
  rest >> flags;
  return state != 'Z' && state != 'X' && (flags & (kExiting | kSignaled)) == 0 &&
         !KillPending(folder);
}

}  // namespace eplog
