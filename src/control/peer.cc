#include "control/peer.h"

#include <signal.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdlib>
#include <sstream>
#include <string>

#include "base/process_life.h"
#include "base/read_text.h"

namespace eplog {

namespace {

// What /proc/PID/stat tells behind the name: the state first.
std::string StatOf(int pid) {
  if (pid <= 0) {
    return "";
  }
  const std::string text = ReadText("/proc/" + std::to_string(pid) + "/stat");
  const size_t name_end = text.rfind(')');
  return name_end != std::string::npos && name_end + 2 < text.size() ? text.substr(name_end + 2)
                                                                     : "";
}

}  // namespace

char ProcessState(int pid) {
  const std::string stat = StatOf(pid);
  return stat.empty() ? '\0' : stat.front();
}

uint64_t ProcessStarted(int pid) {
  constexpr int kField = 22 - 3;  // as proc(5) counts them, of which the state is the third
  std::istringstream fields(StatOf(pid));
  std::string field;
  for (int i = 0; i <= kField && fields >> field; ++i) {
  }
  return fields ? std::strtoull(field.c_str(), nullptr, 10) : 0;
}

bool PeerIsAlive(int fd) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  const bool known = ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.pid > 0;
  if (!known) {
    return true;
  }
  // One in another PID namespace has no state here.
  return ProcessState(peer.pid) == '\0' ? ::kill(peer.pid, 0) == 0 || errno != ESRCH
                                        : ProcessActs(peer.pid);
}

}  // namespace eplog
