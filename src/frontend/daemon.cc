// ServeArray: mount, control socket and signals around one array, in the order that loses nothing:
// mount gone -> nobody new on the socket -> requests in flight end -> array closed -> `umount`
// answered.
#include "frontend/daemon.h"

#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <ctime>
#include <memory>
#include <string>
#include <utility>

#include "base/check.h"
#include "control/control.h"
#include "frontend/daemon_verbs.h"
#include "frontend/spare_keeper.h"
#include "frontend/stall_watch.h"
#include "host/array_owner.h"
#include "runtime/io_uring_loop.h"
#include "runtime/sync.h"

namespace eplog {
namespace {

// How long an answer may wait for a client that does not read it.
constexpr uint64_t kAnswerGraceUs = 5'000'000;
// How long who mounts waits for spares that do not answer.
constexpr uint64_t kSparesGraceUs = 2'000'000;
#ifndef NDEBUG
// Nothing on this thread may wait at all; this is for machines that are very busy.
constexpr auto kLongestCall = std::chrono::seconds(20);
#endif

std::string NowUtc() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  const size_t size = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return {text.data(), size};
}

// Takes SIGTERM, SIGINT and SIGHUP out of their usual way for as long as it lives.
class SignalWatch {
 public:
  SignalWatch() {
    sigemptyset(&signals_);
    for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
      sigaddset(&signals_, signal);
    }
    ::pthread_sigmask(SIG_BLOCK, &signals_, &before_);
    signal_fd_ = ::signalfd(-1, &signals_, SFD_CLOEXEC | SFD_NONBLOCK);
    stop_fd_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    epoll_fd_ = ::epoll_create1(EPOLL_CLOEXEC);
    EPLOG_CHECK(signal_fd_ >= 0 && stop_fd_ >= 0 && epoll_fd_ >= 0, "no descriptors left");
    for (const int fd : {signal_fd_, stop_fd_}) {
      epoll_event event{};
      event.events = EPOLLIN;
      const int added = ::epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &event);
      EPLOG_CHECK(added == 0, "epoll takes our descriptors");
    }
  }
  ~SignalWatch() {
    ::close(epoll_fd_);
    ::close(stop_fd_);
    // A signal that came while we were stopping has had its wish.
    const timespec now{};
    while (::sigtimedwait(&signals_, nullptr, &now) > 0) {
    }
    ::close(signal_fd_);
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  [[nodiscard]] int fd() const { return epoll_fd_; }  // readable: Take, or stopped
  [[nodiscard]] bool Take() const {
    signalfd_siginfo info{};
    return ::read(signal_fd_, &info, sizeof(info)) == sizeof(info);
  }
  void Stop() {
    stopped_ = true;
    const uint64_t one = 1;
    const ssize_t written = ::write(stop_fd_, &one, sizeof(one));
    EPLOG_CHECK(written == sizeof(one), "an eventfd takes every signal");
  }
  [[nodiscard]] bool stopped() const { return stopped_; }

 private:
  sigset_t signals_{};
  sigset_t before_{};
  int signal_fd_ = -1;
  int stop_fd_ = -1;
  int epoll_fd_ = -1;
  bool stopped_ = false;
};

class Daemon {
 public:
  Daemon(IoUringLoop& loop, Array& array, ServeOptions options, const std::function<void()>& ready)
      : loop_(loop),
        array_(array),
        options_(std::move(options)),
        owner_(options_.owner != nullptr ? *options_.owner : nobody_),
        ready_(ready),
        tasks_(loop) {}

  Task<void> Main();
  [[nodiscard]] bool done() const { return done_; }
  Status TakeResult() { return std::move(result_); }

 private:
  Status Begin();
  void KeepSpares();
  Task<void> WatchSignals();
  Task<Status> CloseArray();

  IoUringLoop& loop_;
  Array& array_;
  ServeOptions options_;
  ArrayOwner nobody_;
  ArrayOwner& owner_;
  const std::function<void()>& ready_;
  SignalWatch signals_;
  std::unique_ptr<FuseServer> fuse_;
  std::unique_ptr<SpareKeeper> spares_;
  std::unique_ptr<DaemonVerbs> verbs_;
  std::unique_ptr<ControlServer> control_;
  WaitGroup tasks_;
  Status result_;
  bool done_ = false;
};

void Daemon::KeepSpares() {
  if (options_.spares == nullptr) {
    return;
  }
  spares_ = std::make_unique<SpareKeeper>(loop_, array_, *options_.spares,
                                          [this](const ArrayEvent& event) { owner_.Tell(event); });
  owner_.Listen([keeper = spares_.get()](const ArrayEvent& event) { keeper->Notice(event); });
}

Status Daemon::Begin() {
  Result<std::unique_ptr<FuseServer>> fuse = FuseServer::Mount(loop_, array_, options_.fuse);
  EPLOG_TRY(fuse);
  fuse_ = std::move(*fuse);
  KeepSpares();
  verbs_ = std::make_unique<DaemonVerbs>(
      loop_, array_, *fuse_, ServingInfo{NowUtc(), static_cast<int>(::getpid())},
      DaemonVerbs::Served{owner_, spares_.get(), options_.fuse.mountpoint});
  std::string path = options_.socket_path.empty() ? ControlSocketPath(array_.GetStatus().uuid)
                                                  : options_.socket_path;
  DaemonVerbs* verbs = verbs_.get();
  Result<std::unique_ptr<ControlServer>> control = ControlServer::Listen(
      loop_, std::move(path),
      [verbs](Json request, ProgressSink progress) {
        return verbs->Run(std::move(request), std::move(progress));
      },
      fuse_->device());
  EPLOG_TRY(control);
  control_ = std::move(*control);
  return OkStatus();
}

Task<void> Daemon::Main() {
  Status begun = Begin();
  if (!begun.ok()) {
    control_.reset();
    fuse_.reset();  // unmounts
    const Status closed = co_await CloseArray();
    static_cast<void>(closed);  // the first error is the one to tell
    result_ = std::move(begun);
    done_ = true;
    co_return;
  }
  tasks_.Add();
  loop_.Spawn(WatchSignals());
  if (spares_ != nullptr) {
    loop_.Spawn(spares_->Run());
    Task<void> looking = spares_->Looked(loop_.NowUs() + kSparesGraceUs);
    co_await looking;
  }
  ready_();

  Task<void> serving = fuse_->Serve();
  co_await serving;
  control_->StopAccepting();
  Task<void> draining = fuse_->Drain();
  co_await draining;
  result_ = co_await CloseArray();
  verbs_->Closed(result_);
  Task<void> stopping = control_->Stop(kAnswerGraceUs);
  co_await stopping;
  signals_.Stop();
  Task<void> rest = tasks_.Wait();
  co_await rest;
  control_.reset();
  fuse_.reset();
  done_ = true;
}

Task<Status> Daemon::CloseArray() {
  if (spares_ != nullptr) {
    Task<void> stopping = spares_->Stop();
    co_await stopping;
    owner_.Listen({});
  }
  Status status = co_await array_.Close();
  owner_.Release();
  co_return status;
}

Task<void> Daemon::WatchSignals() {
  bool unmounting = false;
  while (!signals_.stopped()) {
    static_cast<void>(co_await loop_.PollAdd(signals_.fd(), POLLIN));
    if (signals_.Take() && !unmounting) {
      unmounting = true;
      Task<void> unmount = fuse_->UnmountForced();
      co_await unmount;
    }
  }
  tasks_.Done();
}

}  // namespace

Status ServeArray(IoUringLoop& loop, Array& array, ServeOptions options,
                  const std::function<void()>& ready) {
  Daemon daemon(loop, array, std::move(options), ready);
#ifndef NDEBUG
  const StallWatch watch(kLongestCall, &StallWatch::Die);
#endif
  loop.Spawn(daemon.Main());
  const bool done = loop.RunUntil([&daemon] { return daemon.done(); });
  EPLOG_CHECK(done, "the serving process waits for something that cannot happen");
  return daemon.TakeResult();
}

}  // namespace eplog
