#include "frontend/fuse_session.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <ctime>
#include <utility>

#include "base/check.h"
#include "frontend/fuse_calls.h"
#include "host/fuse_mount.h"
#include "runtime/side_thread.h"

namespace eplog {
namespace {

// Requests of the kernel on behalf of pages and asynchronous I/O that may be in flight; foreground
// requests (one a waiting thread) come on top.
constexpr unsigned kMaxBackground = 256;
// Messages taken in one turn of the loop, before completions of the devices get their turn.
constexpr int kMessagesATurn = 64;
// How long requests may take to end after a forced unmount while their process still waits for the
// answer.
constexpr uint64_t kDrainUs = 5'000'000;

constexpr size_t kMaxComplaints = 100;

static_assert(sizeof(fuse_ino_t) == 8);

// libfuse complains on standard error; while mounting we want its words in our one line.
thread_local std::string* mount_complaint = nullptr;

void Log(enum fuse_log_level /*level*/, const char* format, va_list arguments) {
  std::array<char, 512> line{};
  std::vsnprintf(line.data(), line.size(), format, arguments);
  std::string text = line.data();
  while (!text.empty() && text.back() == '\n') {
    text.pop_back();
  }
  if (mount_complaint != nullptr) {
    *mount_complaint = text;
  } else {
    // A terminal or a pipe that takes nothing holds nobody up. Never destroyed: libfuse may
    // complain until the very end.
    static SideThread* const saying = new SideThread(kMaxComplaints);
    const bool said = saying->Post([text] { std::fprintf(stderr, "eplog: %s\n", text.c_str()); });
    static_cast<void>(said);
  }
}

// A comma in the name would end the option.
std::string EscapeOption(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == ',' || c == '\\') {
      escaped += '\\';
    }
    escaped += c;
  }
  return escaped;
}

std::string MountOptions(const FuseOptions& options) {
  std::string text =
      "subtype=eplog,default_permissions,max_read=" + std::to_string(RequestBuffer::kPayloadBytes) +
      ",fsname=" + EscapeOption(options.fsname);
  if (options.allow_other) {
    text += ",allow_other";
  }
  if (options.read_only) {
    text += ",ro";
  }
  return text;
}

// Whether the kernel still has what was mounted. Once it has not, the number of that file system is
// given away again, and is no way any more to find it.
bool IsConnected(int fd) {
  pollfd channel{.fd = fd, .events = 0, .revents = 0};
  return ::poll(&channel, 1, 0) < 0 || (channel.revents & POLLERR) == 0;
}

void Watch(int epoll_fd, int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  const int added = ::epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event);
  EPLOG_CHECK(added == 0, "epoll takes our descriptors");
}

}  // namespace

FuseSession::FuseSession(IoUringLoop& loop, Array& array, FuseOptions options)
    : loop_(loop),
      array_(array),
      options_(std::move(options)),
      epoll_fd_(::epoll_create1(EPOLL_CLOEXEC)),
      stop_fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      buffers_(options_.buffers),
      buffer_free_(loop),
      in_flight_(loop),
      helper_(loop) {
  std::array<int, 2> ends{};
  const int piped = ::pipe2(ends.data(), O_CLOEXEC);
  EPLOG_CHECK(piped == 0 && epoll_fd_ >= 0 && stop_fd_ >= 0, "no descriptors left");
  ::close(ends[0]);
  closed_end_ = ends[1];
  ::clock_gettime(CLOCK_REALTIME, &mounted_at_);
}

FuseSession::~FuseSession() {
  if (session_ != nullptr) {
    if (!mount_gone_ && IsConnected(fuse_session_fd(session_))) {
      static_cast<void>(TakeMountAway(device_, options_.mountpoint, TakeAway::kAtOnce));
    }
    CloseChannel();
    fuse_session_unmount(session_);
    fuse_session_destroy(session_);
  }
  ::close(epoll_fd_);
  ::close(stop_fd_);
  ::close(closed_end_);
}

Status FuseSession::Mount() {
  Result<std::string> path = ResolveMountpoint(options_.mountpoint);
  EPLOG_TRY(path);
  options_.mountpoint = *path;
  EPLOG_TRY(PrepareMountpoint(options_.mountpoint));
  // Now: what could not be unmounted, or whose kernel could not be told of changes, is not mounted.
  EPLOG_TRY(helper_.Start());

  fuse_set_log_func(&Log);
  std::string complaint;
  mount_complaint = &complaint;
  const std::string mount_options = MountOptions(options_);
  fuse_args args = FUSE_ARGS_INIT(0, nullptr);
  fuse_opt_add_arg(&args, "eplog");
  fuse_opt_add_arg(&args, "-o");
  fuse_opt_add_arg(&args, mount_options.c_str());
  const fuse_lowlevel_ops operations = FuseCalls::Table();
  session_ = fuse_session_new(&args, &operations, sizeof(operations), this);
  const bool mounted =
      session_ != nullptr && fuse_session_mount(session_, options_.mountpoint.c_str()) == 0;
  fuse_opt_free_args(&args);
  mount_complaint = nullptr;
  if (!mounted) {
    return Fail(ErrorCode::kIo, "cannot mount on " + options_.mountpoint +
                                    (complaint.empty() ? "" : ": " + complaint));
  }
  channel_open_ = true;
  device_ = MountedDevice(options_.mountpoint);
  const int fd = fuse_session_fd(session_);
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  Watch(epoll_fd_, fd);
  Watch(epoll_fd_, stop_fd_);
  return OkStatus();
}

void FuseSession::Init(fuse_conn_info* connection) const {
  // Not FUSE_CAP_WRITEBACK_CACHE: the kernel would keep writes and the size to itself, acknowledge
  // O_DSYNC by an FSYNC of the whole volume, and overwrite what another front end resized. Not
  // AUTO_INVAL_DATA: our own writes change the mtime, and would throw away the pages that they just
  // filled; changes from elsewhere are announced instead (NotifyVolumeChanged). Not ATOMIC_O_TRUNC:
  // truncation comes as an attribute change. No splice: a chunk's CRC needs bytes that stay as they
  // are.
  constexpr unsigned kWanted = FUSE_CAP_ASYNC_READ | FUSE_CAP_ASYNC_DIO | FUSE_CAP_PARALLEL_DIROPS |
                               FUSE_CAP_EXPLICIT_INVAL_DATA | FUSE_CAP_READDIRPLUS |
                               FUSE_CAP_READDIRPLUS_AUTO;
  connection->want = connection->capable & kWanted;
  connection->max_write = RequestBuffer::kPayloadBytes;
  connection->max_read = RequestBuffer::kPayloadBytes;  // must equal the mount option
  connection->max_background = kMaxBackground;
  connection->congestion_threshold = kMaxBackground * 3 / 4;
  connection->time_gran = 1;
}

FuseSession::Received FuseSession::ReceiveSome() {
  for (int i = 0; i < kMessagesATurn; ++i) {
    if (!incoming_) {
      incoming_ = buffers_.TryGet();
      if (!incoming_) {
        return Received::kNoBuffer;
      }
    }
    fuse_buf message{};
    message.mem = incoming_.message();
    const int size = fuse_session_receive_buf(session_, &message);
    if (size == -EAGAIN || size == -EINTR) {
      return Received::kNothingMore;
    }
    if (size <= 0) {
      return Received::kMountGone;
    }
    // The handlers run inside: they take `incoming_` if they need it beyond this call.
    fuse_session_process_buf(session_, &message);
  }
  return Received::kEnough;
}

// Where files stay open beyond the mount (it was detached, or another mount namespace has a copy)
// the kernel goes on asking, and holds the pages that it asks for. What it was told to forget waits
// for these, where no signal reaches it: the last of that ends before we stop answering.
Task<void> FuseSession::Serve() {
  while (!stop_ || invalidations_ != 0) {
    const Received received = ReceiveSome();
    if (received == Received::kMountGone) {
      mount_gone_ = true;
      break;
    }
    if (received == Received::kNoBuffer) {
      co_await buffer_free_.Wait();
      continue;
    }
    // Also when there is more to read: completions of the array's devices are reaped on the way.
    static_cast<void>(co_await loop_.PollAdd(epoll_fd_, POLLIN));
    if (stop_) {
      uint64_t woken = 0;
      static_cast<void>(::read(stop_fd_, &woken, sizeof(woken)));  // or it would wake us for ever
    }
  }
  incoming_ = RequestBuffer();
}

Task<void> FuseSession::Drain() {
  const uint64_t deadline_us = loop_.NowUs() + kDrainUs;
  while (in_flight_.count() != 0 && loop_.NowUs() < deadline_us) {
    co_await loop_.Sleep(1000);
  }
  // From here on the kernel answers in our place.
  if (mount_gone_) {
    CloseChannel();
  }
  Task<void> rest = in_flight_.Wait();
  co_await rest;
  if (!options_.read_only) {
    Task<void> unlinked = DeleteUnlinked();
    co_await unlinked;
  }
}

// End the connection without unmounting: what is mounted at our path by now may be somebody else's.
// libfuse unmounts unless the descriptor reports an error, as it does once the kernel took the
// mount away; so put one in its place that reports an error for ever, the write end of a pipe that
// nobody reads.
void FuseSession::CloseChannel() {
  if (!channel_open_) {
    return;
  }
  channel_open_ = false;
  ::dup3(closed_end_, fuse_session_fd(session_), O_CLOEXEC);
}

Task<Status> FuseSession::Unmount() {
  const std::string path = options_.mountpoint;
  const dev_t device = device_;
  const int fd = fuse_session_fd(session_);
  Status unmounted;
  Task<Status> unmount = helper_.Run([path, device, fd, &unmounted] {
    if (IsConnected(fd)) {
      static_cast<void>(SyncMount(device, path));
      unmounted = TakeMountAway(device, path, TakeAway::kIfUnused);
    }
  });
  Status ran = co_await unmount;
  EPLOG_CO_TRY(ran);
  EPLOG_CO_TRY(unmounted);
  // Usually the connection ends with the mount. Where another mount namespace still has a copy of
  // it, it would not.
  StopServing();
  co_return OkStatus();
}

Task<void> FuseSession::UnmountForced() {
  // Dirty pages first, while there is somebody to take them; then in peace if possible.
  const std::string path = options_.mountpoint;
  const dev_t device = device_;
  const int fd = fuse_session_fd(session_);
  bool synced = true;
  Task<Status> sync = helper_.Run(
      [path, device, fd, &synced] { synced = !IsConnected(fd) || SyncMount(device, path); });
  static_cast<void>(co_await sync);
  if (!synced) {
    Task<void> write_back = WriteBackAll();
    co_await write_back;
  }
  // What is covered by another mount stays there, and is dead.
  Task<Status> unmount = helper_.Run([path, device, fd] {
    if (IsConnected(fd) && !TakeMountAway(device, path, TakeAway::kIfUnused).ok()) {
      static_cast<void>(TakeMountAway(device, path, TakeAway::kAtOnce));
    }
  });
  static_cast<void>(co_await unmount);
  StopServing();
}

// To forget its pages the kernel writes back those that are dirty.
Task<void> FuseSession::WriteBackAll() {
  std::vector<FuseNodePtr> nodes;
  for (const auto& [id, node] : nodes_) {
    nodes.push_back(node);
  }
  for (const FuseNodePtr& node : nodes) {
    Task<bool> invalidate = Invalidate(node->inode(), 0, 0);
    static_cast<void>(co_await invalidate);
  }
}

void FuseSession::StopServing() {
  mount_gone_ = true;
  stop_ = true;
  WakeServe();
}

void FuseSession::WakeServe() {
  const uint64_t one = 1;
  const ssize_t written = ::write(stop_fd_, &one, sizeof(one));
  EPLOG_CHECK(written == sizeof(one), "an eventfd takes every signal");
  buffer_free_.NotifyAll();
}

// The kernel has no use any more for what it did not close and forget.
Task<void> FuseSession::DeleteUnlinked() {
  std::vector<FuseNodePtr> unlinked;
  for (const auto& [id, node] : nodes_) {
    if (node->unlinked && !node->gone) {
      unlinked.push_back(node);
    }
  }
  for (const FuseNodePtr& node : unlinked) {
    Task<Status> removing = RemoveNode(node);
    const Status removed = co_await removing;
    if (!removed.ok()) {
      co_return;  // a full or failed array: the next opening tries again
    }
  }
}

Task<bool> FuseSession::Invalidate(fuse_ino_t inode, uint64_t offset_bytes, uint64_t length_bytes) {
  fuse_session* session = session_;
  const auto offset = static_cast<off_t>(offset_bytes);
  const auto length = static_cast<off_t>(length_bytes);
  if (stop_) {
    co_return false;  // else those who go on writing would keep us from ending
  }
  // The kernel may wait for reads and write-backs of these pages, which we answer: not on this
  // thread.
  ++invalidations_;
  Task<Status> job = helper_.Run([session, inode, offset, length] {
    fuse_lowlevel_notify_inval_inode(session, inode, offset, length);
  });
  static_cast<void>(co_await job);
  if (--invalidations_ == 0 && stop_) {
    WakeServe();
  }
  co_return true;
}

Task<void> FuseSession::NotifyVolumeChanged(VolumeId volume) {
  const auto found = nodes_.find(volume.value);
  if (found == nodes_.end() || !channel_open_) {
    co_return;  // the kernel knows nothing of it
  }
  in_flight_.Add();
  const FuseNodePtr node = found->second;
  RefreshSize(*node);
  ::clock_gettime(CLOCK_REALTIME, &node->mtime);
  node->ctime = node->mtime;
  Task<bool> invalidate = Invalidate(node->inode(), 0, 0);
  static_cast<void>(co_await invalidate);
  in_flight_.Done();
}

bool FuseSession::IsOpen(VolumeId volume) const {
  const auto found = nodes_.find(volume.value);
  return found != nodes_.end() && found->second->IsOpen();
}

}  // namespace eplog
