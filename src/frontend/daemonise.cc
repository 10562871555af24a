// How a process becomes a server: into the background, and protected against waiting for itself.
#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <system_error>

#include "frontend/daemon.h"

namespace eplog {
namespace {

bool MayLockMemory() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur == RLIM_INFINITY) {
    return true;
  }
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> data{};
  return ::syscall(SYS_capget, &header, data.data()) == 0 &&
         (data[CAP_TO_INDEX(CAP_IPC_LOCK)].effective & CAP_TO_MASK(CAP_IPC_LOCK)) != 0;
}

// What the child says, once: that it is ready, or that it failed and with which exit status.
constexpr ssize_t kReadyBytes = 1;
constexpr ssize_t kFailedBytes = 2;
using Said = std::array<unsigned char, kFailedBytes>;

// False: it still runs.
bool EndsSoon(pid_t child) {
  constexpr int kSoonMs = 5000;
  const int fd = static_cast<int>(::syscall(SYS_pidfd_open, child, 0));
  if (fd < 0) {
    return true;  // then its end is waited for
  }
  pollfd poll = {fd, POLLIN, 0};
  int ended = 0;
  do {
    ended = ::poll(&poll, 1, kSoonMs);
  } while (ended < 0 && errno == EINTR);
  ::close(fd);
  return ended != 0;
}

// The parent's side: until the child is ready, or has ended. One that has failed may be unable to
// end, since the kernel waits for a device that hangs: it is left behind.
int AwaitReady(int pipe_fd, pid_t child) {
  Said said{};
  ssize_t n = 0;
  do {
    n = ::read(pipe_fd, said.data(), said.size());
  } while (n < 0 && errno == EINTR);
  ::close(pipe_fd);
  if (n == kReadyBytes) {
    return 0;
  }
  if (n == kFailedBytes && !EndsSoon(child)) {
    return said[1];
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status)) {
    std::fprintf(stderr, "eplog: the serving process died of signal %d before it was ready\n",
                 WTERMSIG(status));
    return 1;
  }
  return WEXITSTATUS(status);
}

// Should the parent have been killed, nobody waits.
void Say(int fd, Said said, ssize_t bytes) {
  const ssize_t ignored = ::write(fd, said.data(), static_cast<size_t>(bytes));
  static_cast<void>(ignored);
  ::close(fd);
}

void LeaveTerminal(const std::string& log_path) {
  int log = -1;
  if (!log_path.empty()) {
    log = ::open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
  }
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  std::fflush(stdout);
  std::fflush(stderr);
  ::dup2(null, STDIN_FILENO);
  ::dup2(log >= 0 ? log : null, STDOUT_FILENO);
  ::dup2(log >= 0 ? log : null, STDERR_FILENO);
  ::close(null);
  if (log >= 0) {
    ::close(log);
  }
  if (::chdir("/") != 0) {
    std::fprintf(stderr, "eplog: cannot leave the working directory: %s\n",
                 std::generic_category().message(errno).c_str());
  }
}

}  // namespace

void PrepareServingProcess() {
  // Answers that come when the connection has been ended go into a pipe that nobody reads: that is
  // an error like others, and must not end the process before the array is closed.
  ::signal(SIGPIPE, SIG_IGN);
  ::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0);
  // Without the privilege the lock would succeed now and make later allocations fail at the limit.
  if (MayLockMemory()) {
    ::mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT);
  }
  const int fd = ::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (fd >= 0) {
    const ssize_t ignored = ::write(fd, "-1000", 5);
    static_cast<void>(ignored);
    ::close(fd);
  }
}

int RunDaemonised(bool foreground, const std::string& log_path,
                  const std::function<int(const ReadyFn& ready)>& body) {
  if (foreground) {
    PrepareServingProcess();
    return body([] {});
  }
  std::array<int, 2> pipe{};
  if (::pipe2(pipe.data(), O_CLOEXEC) != 0) {
    std::fprintf(stderr, "eplog: cannot go to the background: %s\n",
                 std::generic_category().message(errno).c_str());
    return 1;
  }
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child < 0) {
    std::fprintf(stderr, "eplog: cannot go to the background: %s\n",
                 std::generic_category().message(errno).c_str());
    return 1;
  }
  if (child > 0) {
    ::close(pipe[1]);
    return AwaitReady(pipe[0], child);
  }
  ::close(pipe[0]);
  ::setsid();
  PrepareServingProcess();
  bool told = false;
  const ReadyFn ready = [&told, &log_path, fd = pipe[1]] {
    if (told) {
      return;
    }
    told = true;
    LeaveTerminal(log_path);
    Say(fd, {'r'}, kReadyBytes);
  };
  const int status = body(ready);
  if (!told) {
    LeaveTerminal("");  // who reads what was said waits for the end of that, too
    Say(pipe[1], {'f', static_cast<unsigned char>(status)}, kFailedBytes);
  }
  return status;
}

}  // namespace eplog
