// How a process becomes a server: into the background, and protected against waiting for itself.
#include <fcntl.h>
#include <linux/capability.h>
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

// The parent's side: until the child is ready or has ended.
int AwaitReady(int pipe_fd, pid_t child) {
  char byte = 0;
  ssize_t n = 0;
  do {
    n = ::read(pipe_fd, &byte, 1);
  } while (n < 0 && errno == EINTR);
  ::close(pipe_fd);
  if (n == 1) {
    return 0;
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
  ::signal(SIGPIPE, SIG_IGN);
  PrepareServingProcess();
  bool told = false;
  const ReadyFn ready = [&told, &log_path, fd = pipe[1]] {
    if (told) {
      return;
    }
    told = true;
    LeaveTerminal(log_path);
    // Should the parent have been killed, nobody waits.
    const ssize_t ignored = ::write(fd, "r", 1);
    static_cast<void>(ignored);
    ::close(fd);
  };
  return body(ready);
}

}  // namespace eplog
