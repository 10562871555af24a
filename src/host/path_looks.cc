#include "host/path_looks.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <mutex>
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

void LookAtOne(const std::string& path, size_t at, PathLooks::Look look,
               std::span<std::byte> content, int answers) {
  Seen seen;
  seen.path = at;
  if (const auto identity = look(path, content)) {
    seen.there = true;
    seen.identity = *identity;
  }
  static_cast<void>(::write(answers, &seen, sizeof seen));  // perhaps nobody reads any more
}

// Keeps nothing of what the process has open: neither a pipe that somebody reads to its end, nor
// the file system that its folder is on. Each path has a process of its own: threads cannot be
// started by the child of a process that has some. Where one cannot be had nobody looks at all: a
// path that was not looked at would pass for one that hangs.
template <typename ContentOf>
[[noreturn]] void BeLooker(std::span<const std::string> paths, PathLooks::Look look,
                           const ContentOf& content_of, int answers) {
  constexpr int kAnswers = 3;
  ::setsid();
  std::signal(SIGPIPE, SIG_IGN);
  const bool alone = ::chdir("/") == 0 && ::dup2(answers, kAnswers) == kAnswers &&
                     ::close_range(0, kAnswers - 1, 0) == 0 &&
                     ::close_range(kAnswers + 1, ~0U, 0) == 0;
  if (!alone) {
    ::_exit(1);
  }
  for (size_t i = 0; i < paths.size(); ++i) {
    const pid_t one = ::fork();
    if (one < 0) {
      ::kill(0, SIGKILL);  // all of them, and this
    }
    if (one == 0) {
      LookAtOne(paths[i], i, look, content_of(i), kAnswers);
      ::_exit(0);
    }
  }
  int status = 0;
  while (::waitpid(-1, &status, 0) > 0 || errno == EINTR) {
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
      ::kill(0, SIGKILL);  // nobody is to wait for the others' answers, nor they for nobody
    }
  }
  ::_exit(0);
}

// Lookers of this process that had not ended when nobody asked them any more.
class Left {
 public:
  void Add(pid_t looker) {
    const std::lock_guard lock(mutex_);
    lookers_.push_back(looker);
  }
  void Reap() {
    const std::lock_guard lock(mutex_);
    std::erase_if(lookers_, [](pid_t looker) { return ::waitpid(looker, nullptr, WNOHANG) != 0; });
  }

 private:
  std::mutex mutex_;
  std::vector<pid_t> lookers_;
};

Left& AllLeft() {
  static Left left;
  return left;
}

}  // namespace

// Of each path so much; whoever looks has it too, and may write there later than anybody reads.
class PathLooks::SharedMemory {
 public:
  SharedMemory(size_t paths, size_t each) : each_(each), bytes_(paths * each) {
    if (bytes_ != 0) {
      memory_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    }
  }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory() {
    if (memory_ != MAP_FAILED) {
      ::munmap(memory_, bytes_);
    }
  }
  [[nodiscard]] bool ok() const { return bytes_ == 0 || memory_ != MAP_FAILED; }
  [[nodiscard]] std::span<std::byte> Of(size_t path) const {
    return bytes_ == 0 ? std::span<std::byte>()
                       : std::span(static_cast<std::byte*>(memory_) + path * each_, each_);
  }

 private:
  size_t each_;
  size_t bytes_;
  void* memory_ = MAP_FAILED;
};

std::optional<DeviceIdentity> PathLooks::LookAt(const std::string& path,
                                                std::span<std::byte> /*content*/) {
  struct stat info {};
  const bool is_device =
      ::stat(path.c_str(), &info) == 0 && (S_ISBLK(info.st_mode) || S_ISREG(info.st_mode));
  return is_device ? std::optional(IdentityOf(info)) : std::nullopt;
}

Result<PathLooks> PathLooks::Begin(std::vector<std::string> paths, Look look,
                                   size_t content_bytes) {
  AllLeft().Reap();
  auto contents = std::make_unique<SharedMemory>(paths.size(), content_bytes);
  if (!contents->ok()) {
    return FailErrno(errno, "cannot look at the members");
  }
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    return FailErrno(errno, "cannot look at the members");
  }
  FileDescriptor answers(ends[0]);
  const FileDescriptor into(ends[1]);
  const pid_t looker = ::fork();
  if (looker < 0) {
    return FailErrno(errno, "cannot look at the members: no process can be had");
  }
  if (looker == 0) {
    BeLooker(
        paths, look, [&](size_t path) { return contents->Of(path); }, into.get());
  }
  return PathLooks(std::move(answers), paths.size(), looker, std::move(contents));
}

Result<std::vector<std::optional<DeviceIdentity>>> PathLooks::At(std::vector<std::string> paths,
                                                                 Clock::time_point until) {
  std::vector<std::optional<DeviceIdentity>> there(paths.size());
  auto looks = Begin(std::move(paths));
  EPLOG_TRY(looks);
  while (true) {
    const auto answer = looks->Next(until);
    EPLOG_TRY(answer);
    if (!*answer) {
      return there;
    }
    there[(*answer)->path] = (*answer)->identity;
  }
}

PathLooks::PathLooks(FileDescriptor answers, size_t count, pid_t looker,
                     std::unique_ptr<SharedMemory> contents)
    : answers_(std::move(answers)), left_(count), contents_(std::move(contents)), looker_(looker) {}

PathLooks::PathLooks(PathLooks&& other) noexcept
    : answers_(std::move(other.answers_)),
      left_(other.left_),
      contents_(std::move(other.contents_)),
      looker_(std::exchange(other.looker_, 0)) {}

PathLooks::~PathLooks() {
  if (looker_ == 0) {
    return;
  }
  if (::waitpid(looker_, nullptr, WNOHANG) == 0) {  // not reaped: the number is still its own
    ::kill(looker_, SIGKILL);                       // first, so that it starts no more
    ::kill(-looker_, SIGKILL);
    AllLeft().Add(looker_);
  }
  AllLeft().Reap();
}

Result<std::optional<PathLooks::Answer>> PathLooks::Next(Clock::time_point until) {
  while (left_ != 0) {
    using std::chrono::milliseconds;
    const auto wait = std::chrono::ceil<milliseconds>(until - Clock::now());
    pollfd polled{answers_.get(), POLLIN, 0};
    const int ready = ::poll(&polled, 1, static_cast<int>(std::max(wait, milliseconds(0)).count()));
    if (ready == 0) {
      return std::nullopt;
    }
    Seen seen;
    const ssize_t got = ready < 0 ? -1 : ::read(answers_.get(), &seen, sizeof seen);
    if (got == sizeof seen) {
      --left_;
      return Answer{seen.path, seen.there ? std::optional(seen.identity) : std::nullopt};
    }
    if (got >= 0) {
      return Fail(ErrorCode::kIo, "cannot look at the members: the process that did was ended");
    }
    if (errno != EINTR) {
      return FailErrno(errno, "cannot look at the members");
    }
  }
  return std::nullopt;
}

std::span<const std::byte> PathLooks::content(size_t path) const {
  return contents_->Of(path);
}

}  // namespace eplog
