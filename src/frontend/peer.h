// Who is at the other end of a Unix socket.
#pragma once

#include <signal.h>
#include <sys/socket.h>

#include <cerrno>

namespace eplog {

// False only if the process is known to be gone (one in another PID namespace is not known).
inline bool PeerIsAlive(int fd) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  const bool known = ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.pid > 0;
  return !known || ::kill(peer.pid, 0) == 0 || errno != ESRCH;
}

}  // namespace eplog
