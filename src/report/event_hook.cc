#include "report/event_hook.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <thread>
#include <utility>

namespace eplog {
namespace {

constexpr int kLookMs = 20;
constexpr int kLooksAtTheEnd = 1000;
constexpr size_t kMostBytes = size_t{256} << 10;  // more than a packet holds
constexpr size_t kMostVariables = 64;
constexpr char kKill = 'k';
constexpr char kEnded = 'e';
constexpr char kGone = 'g';  // who runs commands

// Standard input, output, error, working directory.
using HandedOver = std::array<int, 4>;
constexpr size_t kHandedOverBytes = CMSG_SPACE(sizeof(HandedOver));

// ---- the process that runs commands: one thread, and no memory but this, since it is the child of a
// process that may have had several

struct Runner {
  int socket = -1;
  std::string command;
  std::vector<char> packet = std::vector<char>(kMostBytes);
  std::vector<char*> environment = {};
  size_t inherited = 0;
};

// Bytes of a packet, and what came with it, if all did. 0 or less: nobody asks any more.
ssize_t Receive(Runner& runner, HandedOver& handed, bool& has_handed) {
  alignas(cmsghdr) std::array<char, kHandedOverBytes> control{};
  iovec bytes{runner.packet.data(), runner.packet.size() - 1};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t received = ::recvmsg(runner.socket, &message, MSG_CMSG_CLOEXEC);
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  has_handed = received > 0 && header != nullptr && header->cmsg_type == SCM_RIGHTS &&
               header->cmsg_len == CMSG_LEN(sizeof(HandedOver));
  if (has_handed) {
    std::memcpy(handed.data(), CMSG_DATA(header), sizeof(HandedOver));
  }
  return received;
}

// The packet: variables, each with a zero at its end.
[[noreturn]] void Become(Runner& runner, size_t bytes, const HandedOver& handed) {
  char* const end = runner.packet.data() + bytes;
  size_t count = runner.inherited;
  for (char* variable = runner.packet.data();
       variable < end && count + 1 < runner.environment.size();
       variable += std::strlen(variable) + 1) {
    runner.environment[count++] = variable;
  }
  runner.environment[count] = nullptr;
  ::setpgid(0, 0);                         // to be ended with its children
  static_cast<void>(::fchdir(handed[3]));  // or where this is: at the root
  for (int i = 0; i < 3; ++i) {
    ::dup2(handed[static_cast<size_t>(i)], i);
  }
  sigset_t none;
  ::sigemptyset(&none);
  ::pthread_sigmask(SIG_SETMASK, &none, nullptr);
  std::array<char, 3> shell{"sh"};
  std::array<char, 3> option{"-c"};
  std::array<char*, 4> arguments{shell.data(), option.data(), runner.command.data(), nullptr};
  ::execve("/bin/sh", arguments.data(), runner.environment.data());
  ::_exit(127);
}

// Until it is gone. Whoever asked may want it ended; if he is gone himself it is left alone.
void Attend(int socket, pid_t command) {
  while (::waitpid(command, nullptr, WNOHANG) == 0) {
    pollfd polled{socket, POLLIN, 0};
    if (::poll(&polled, 1, kLookMs) != 1) {
      continue;
    }
    char word = 0;
    if (::recv(socket, &word, 1, 0) <= 0) {
      ::_exit(0);
    }
    ::kill(-command, SIGKILL);
  }
}

[[noreturn]] void RunCommands(Runner& runner) {
  while (true) {
    HandedOver handed{};
    bool has_handed = false;
    const ssize_t bytes = Receive(runner, handed, has_handed);
    if (bytes <= 0) {
      ::_exit(0);
    }
    if (!has_handed && bytes == 1 && runner.packet[0] == kKill) {
      continue;  // that the one before be ended, which it had
    }
    if (!has_handed) {
      ::send(runner.socket, &kEnded, 1, MSG_NOSIGNAL);  // it did not come whole
      continue;
    }
    const pid_t command = ::fork();
    if (command == 0) {
      runner.packet[static_cast<size_t>(bytes)] = '\0';
      Become(runner, static_cast<size_t>(bytes), handed);
    }
    for (const int fd : handed) {
      ::close(fd);
    }
    if (command > 0) {
      ::setpgid(command, command);
      Attend(runner.socket, command);
    }
    ::send(runner.socket, &kEnded, 1, MSG_NOSIGNAL);
  }
}

// Nothing of what this process has open stays: somebody may read a pipe to its end. Whatever ends
// this process by its group or its terminal is not meant for the commands.
[[noreturn]] void BeRunner(Runner& runner, int socket) {
  constexpr int kSocket = 3;
  ::setsid();
  sigset_t all;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, nullptr);
  ::prctl(PR_SET_NAME, "eplog hook");
  const bool alone = ::chdir("/") == 0 && ::dup2(socket, kSocket) == kSocket &&
                     ::close_range(kSocket + 1, ~0U, 0) == 0 &&
                     ::close_range(0, kSocket - 1, 0) == 0;
  for (int i = 0; i < kSocket; ++i) {
    if (!alone || ::open("/dev/null", O_RDWR | O_CLOEXEC) != i) {
      ::_exit(1);
    }
  }
  ::fcntl(kSocket, F_SETFD, FD_CLOEXEC);
  runner.socket = kSocket;
  RunCommands(runner);
}

// ---- who asks

// What stands there, or else this.
int OrElse(int fd, const FileDescriptor& other) {
  return fd >= 0 && ::fcntl(fd, F_GETFD) >= 0 ? fd : other.get();
}

}  // namespace

EventHook::EventHook(std::string command, std::chrono::milliseconds longest)
    : longest_(longest),
      null_(::open("/dev/null", O_RDWR | O_CLOEXEC)),
      root_(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC)) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return;
  }
  FileDescriptor ours(ends[0]);
  const FileDescriptor theirs(ends[1]);
  Runner runner;
  runner.command = std::move(command);
  for (char** value = environ; *value != nullptr; ++value) {
    runner.environment.push_back(*value);
  }
  runner.inherited = runner.environment.size();
  runner.environment.resize(runner.inherited + kMostVariables + 1);
  process_ = ::fork();
  if (process_ == 0) {
    BeRunner(runner, theirs.get());
  }
  if (process_ > 0) {
    runner_ = std::move(ours);
  }
}

// Ended, it is waited for as long as that takes: what it closes first may hang.
EventHook::~EventHook() {
  if (process_ <= 0) {
    return;
  }
  ::kill(process_, SIGKILL);
  for (int look = 0; look < kLooksAtTheEnd && ::waitpid(process_, nullptr, WNOHANG) == 0; ++look) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

bool EventHook::Send(const std::string& packet) const {
  HandedOver handed{OrElse(STDIN_FILENO, null_), OrElse(STDOUT_FILENO, null_),
                    OrElse(STDERR_FILENO, null_), root_.get()};
  // Not before: where one of these is closed, what is opened next has its number.
  const FileDescriptor here(::open(".", O_PATH | O_DIRECTORY | O_CLOEXEC));
  handed.back() = OrElse(here.get(), root_);
  alignas(cmsghdr) std::array<char, kHandedOverBytes> control{};
  iovec bytes{const_cast<char*>(packet.data()), packet.size()};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof handed);
  std::memcpy(CMSG_DATA(header), handed.data(), sizeof handed);
  return ::sendmsg(runner_.get(), &message, MSG_NOSIGNAL) == static_cast<ssize_t>(packet.size());
}

// Nothing: there is nothing to hear yet.
std::optional<char> EventHook::Hear() const {
  pollfd polled{runner_.get(), POLLIN, 0};
  const int ready = ::poll(&polled, 1, kLookMs);
  if (ready == 0 || (ready < 0 && errno == EINTR)) {
    return std::nullopt;
  }
  char word = kGone;
  const ssize_t heard = ::recv(runner_.get(), &word, 1, 0);
  return heard < 0 && errno == EINTR ? std::nullopt : std::optional(heard == 1 ? word : kGone);
}

// Without who runs them there are no commands any more: another would inherit what is open by now.
void EventHook::Run(const std::vector<std::string>& variables) {
  std::string packet;
  for (const std::string& variable : variables) {
    packet.append(variable).push_back('\0');
  }
  if (packet.empty()) {
    packet.push_back('\0');
  }
  if (stop_ || !Send(packet)) {
    return;
  }
  const auto until = std::chrono::steady_clock::now() + longest_;
  bool killed = false;
  for (std::optional<char> heard; !heard; heard = Hear()) {
    if (!killed && (stop_ || std::chrono::steady_clock::now() >= until)) {
      killed = ::send(runner_.get(), &kKill, 1, MSG_NOSIGNAL) == 1;
    }
  }
}

}  // namespace eplog
