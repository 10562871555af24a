#include "frontend/peer.h"

#include <signal.h>
#include <sys/socket.h>

#include <cerrno>
#include <fstream>
#include <iterator>
#include <string>

namespace eplog {

char ProcessState(int pid) {
  if (pid <= 0) {
    return 0;
  }
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const size_t name_end = text.rfind(')');
  return name_end != std::string::npos && name_end + 2 < text.size() ? text[name_end + 2] : '\0';
}

bool PeerIsAlive(int fd) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  const bool known = ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.pid > 0;
  if (!known) {
    return true;
  }
  const char state = ProcessState(peer.pid);
  return state != 'Z' && state != 'X' && (::kill(peer.pid, 0) == 0 || errno != ESRCH);
}

}  // namespace eplog
