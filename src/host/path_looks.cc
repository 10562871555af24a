#include "host/path_looks.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <span>
#include <type_traits>
#include <utility>

#include "device/file_device.h"

namespace eplog {
namespace {

// What goes through the pipe, each at once.
struct Seen {
  size_t path = 0;
  bool there = false;
  DeviceIdentity identity;
};
static_assert(std::is_trivially_copyable_v<Seen>);

void LookAtAll(std::span<const std::string> paths, size_t first, int answers) {
  for (size_t i = first; i < paths.size(); ++i) {
    Seen seen;
    seen.path = i;
    struct stat info {};
    if (::stat(paths[i].c_str(), &info) == 0 && (S_ISBLK(info.st_mode) || S_ISREG(info.st_mode))) {
      seen.there = true;
      seen.identity = IdentityOf(info);
    }
    if (::write(answers, &seen, sizeof seen) != sizeof seen) {
      return;  // nobody reads any more
    }
  }
}

// Keeps nothing of what the process has open: neither a pipe that somebody reads to its end, nor
// the file system that its folder is on.
[[noreturn]] void BeLooker(std::span<const std::string> paths, size_t first, int answers) {
  constexpr int kAnswers = 3;
  ::setsid();
  std::signal(SIGPIPE, SIG_IGN);
  const bool alone = ::chdir("/") == 0 && ::dup2(answers, kAnswers) == kAnswers &&
                     ::close_range(0, kAnswers - 1, 0) == 0 &&
                     ::close_range(kAnswers + 1, ~0U, 0) == 0;
  if (alone) {
    LookAtAll(paths, first, kAnswers);
  }
  ::_exit(0);
}

// A child's child, which is nobody's to wait for. False: no process can be had.
bool RunLooker(std::span<const std::string> paths, size_t first, int answers) {
  const pid_t between = ::fork();
  if (between < 0) {
    return false;
  }
  if (between == 0) {
    const pid_t looker = ::fork();
    if (looker == 0) {
      BeLooker(paths, first, answers);
    }
    ::_exit(looker < 0 ? 1 : 0);
  }
  int status = 0;
  while (::waitpid(between, &status, 0) < 0) {
    if (errno != EINTR) {
      return true;  // ended, and somebody else was told: if nobody looks, the pipe says so
    }
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

PathLooks::PathLooks(std::vector<std::string> paths)
    : paths_(std::move(paths)), answered_(paths_.size()) {
  if (!paths_.empty()) {
    StartLooker(0);
  }
}

// Where no process can be had it is looked here and now.
void PathLooks::StartLooker(size_t first) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    return;
  }
  FileDescriptor answers(ends[0]);
  const FileDescriptor into(ends[1]);
  if (!RunLooker(paths_, first, into.get())) {
    LookAtAll(paths_, first, into.get());
  }
  lookers_.push_back({std::move(answers), first});
}

bool PathLooks::MoreBehindNewest() const {
  return !lookers_.empty() && lookers_.back().at + 1 < paths_.size();
}

std::optional<PathLooks::Answer> PathLooks::Take(Looker& looker, bool& ended) {
  Seen seen;
  ssize_t got = -1;
  do {
    got = ::read(looker.answers.get(), &seen, sizeof seen);
  } while (got < 0 && errno == EINTR);
  ended = got != sizeof seen;
  if (ended) {
    return std::nullopt;
  }
  looker.at = seen.path + 1;
  if (answered_[seen.path]) {
    return std::nullopt;
  }
  answered_[seen.path] = true;
  return Answer{seen.path, seen.there ? std::optional(seen.identity) : std::nullopt};
}

std::optional<PathLooks::Answer> PathLooks::Next() {
  while (!lookers_.empty()) {
    std::vector<pollfd> polled;
    for (const Looker& looker : lookers_) {
      polled.push_back({looker.answers.get(), POLLIN, 0});
    }
    const int ready = ::poll(polled.data(), polled.size(),
                             MoreBehindNewest() ? static_cast<int>(kTurn.count()) : -1);
    if (ready == 0) {
      StartLooker(lookers_.back().at + 1);
      continue;
    }
    for (size_t i = polled.size(); ready > 0 && i-- > 0;) {
      if (polled[i].revents == 0) {
        continue;
      }
      bool ended = false;
      auto answer = Take(lookers_[i], ended);
      if (answer) {
        return answer;
      }
      if (ended) {
        // The path that it was at when it was ended has no answer.
        const bool newest = i + 1 == lookers_.size();
        const size_t next = lookers_[i].at + 1;
        lookers_.erase(lookers_.begin() + static_cast<std::ptrdiff_t>(i));
        if (newest && next < paths_.size()) {
          StartLooker(next);
        }
        break;
      }
    }
  }
  return std::nullopt;
}

}  // namespace eplog
