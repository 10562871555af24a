#include "runtime/io_uring_loop.h"

#include <fcntl.h>
#include <liburing.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <ctime>
#include <limits>
#include <string>

namespace eplog {
namespace {

constexpr unsigned kCompletionsPerEntry = 8;
constexpr unsigned kMaxEntries =
    4096;                        // 8 times as many completions are still allowed by the kernel
constexpr uint64_t kNobody = 0;  // user_data of requests that nobody waits for

constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();

// The best first. With DEFER_TASKRUN completions are made only while we wait for them, which
// batches them.
constexpr std::array<unsigned, 4> kSetupFlags = {
    IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG,
    IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG,
    IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG,
    0,
};

std::string WhyUnavailable(int error) {
  switch (error) {
    case ENOSYS:
      return "this kernel has no io_uring (5.11 or newer is needed)";
    case EPERM:
      return "io_uring is forbidden here (sysctl kernel.io_uring_disabled, or a container's "
             "seccomp "
             "profile)";
    default:
      return "cannot set up io_uring";
  }
}

// Errors of io_uring_enter after which the next turn just tries again.
bool Passing(int error) {
  return error == -ETIME || error == -EINTR || error == -EAGAIN || error == -EBUSY ||
         error == -ENOMEM;
}

}  // namespace

struct IoUringLoop::Ring {
  Ring() = default;
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;
  ~Ring() {
    if (live) {
      io_uring_queue_exit(&uring);
    }
  }

  // 0 or -errno.
  int SetUp(unsigned entries) {
    int result = -EINVAL;
    for (const unsigned flags : kSetupFlags) {
      io_uring_params params{};
      params.flags = flags | IORING_SETUP_CQSIZE;
      params.cq_entries = entries * kCompletionsPerEntry;
      result = io_uring_queue_init_params(entries, &uring, &params);
      if (result != -EINVAL) {
        break;
      }
    }
    live = result == 0;
    if (live) {
      // A child would keep the ring, and all that is kept open by it, for as long as it lives.
      static_cast<void>(io_uring_ring_dontfork(&uring));
      // While nothing is in flight: older kernels wait for all that is.
      const int none = -1;
      keeps = io_uring_register_files(&uring, &none, 1) == 0;
      // What may block is done by workers of the kernel, a few a processor if nobody says otherwise:
      // requests of one device that hangs would keep them all, and the others' flushes wait for one.
      // There are only as many as there is work. Older kernels do not ask.
      std::array<unsigned, 2> workers = {*uring.cq.kring_entries, 0};
      static_cast<void>(io_uring_register_iowq_max_workers(&uring, workers.data()));
    }
    return result;
  }

  // The kernel has completions that it only hands over when entered.
  [[nodiscard]] bool WantsEnter() const {
    const unsigned flags =
        std::atomic_ref<unsigned>(*uring.sq.kflags).load(std::memory_order_relaxed);
    return (flags & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW)) != 0;
  }

  io_uring uring{};
  bool live = false;
  bool keeps = false;  // it has a place for what is kept open
};

void IoUringLoop::List::PushBack(Request& request) {
  request.prev = last;
  request.next = nullptr;
  (last != nullptr ? last->next : first) = &request;
  last = &request;
}

void IoUringLoop::List::Remove(Request& request) {
  (request.prev != nullptr ? request.prev->next : first) = request.next;
  (request.next != nullptr ? request.next->prev : last) = request.prev;
  request.prev = request.next = nullptr;
}

Result<std::unique_ptr<IoUringLoop>> IoUringLoop::Create(unsigned entries) {
  auto ring = std::make_unique<Ring>();
  const int result = ring->SetUp(std::clamp(entries, 1U, kMaxEntries));
  if (result != 0) {
    Error error;
    error.code = ErrorCode::kUnsupported;
    error.message = WhyUnavailable(-result);
    error.errno_value = -result;
    return Fail(std::move(error));
  }
  if ((ring->uring.features & IORING_FEAT_NODROP) == 0 ||
      (ring->uring.features & IORING_FEAT_EXT_ARG) == 0) {
    return Fail(ErrorCode::kUnsupported,
                "the io_uring of this kernel is too old (5.11 or newer is needed)");
  }
  return std::unique_ptr<IoUringLoop>(new IoUringLoop(std::move(ring)));
}

IoUringLoop::IoUringLoop(std::unique_ptr<Ring> ring) : ring_(std::move(ring)) {}

IoUringLoop::~IoUringLoop() {
  Abort();
}

uint64_t IoUringLoop::NowUs() const {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000 + static_cast<uint64_t>(now.tv_nsec) / 1000;
}

IoUringLoop::Operation IoUringLoop::Readv(int fd, const iovec* parts, unsigned count,
                                          uint64_t offset_bytes, Try first) {
  return {*this,
          {.kind = Request::Kind::kReadv,
           .fd = fd,
           .memory = parts,
           .count = count,
           .offset = offset_bytes,
           .elsewhere = first == Try::kElsewhere}};
}

IoUringLoop::Operation IoUringLoop::Writev(int fd, const iovec* parts, unsigned count,
                                           uint64_t offset_bytes, Try first) {
  return {*this,
          {.kind = Request::Kind::kWritev,
           .fd = fd,
           .memory = parts,
           .count = count,
           .offset = offset_bytes,
           .elsewhere = first == Try::kElsewhere}};
}

IoUringLoop::Operation IoUringLoop::Read(int fd, void* memory, unsigned length_bytes) {
  return {*this, {.kind = Request::Kind::kRead, .fd = fd, .memory = memory, .count = length_bytes}};
}

IoUringLoop::Operation IoUringLoop::Fsync(int fd) {
  return {*this, {.kind = Request::Kind::kFsync, .fd = fd}};
}

IoUringLoop::Operation IoUringLoop::Fdatasync(int fd) {
  return {*this, {.kind = Request::Kind::kFdatasync, .fd = fd}};
}

IoUringLoop::Operation IoUringLoop::Fallocate(int fd, int mode, uint64_t offset_bytes,
                                              uint64_t length_bytes) {
  return {*this,
          {.kind = Request::Kind::kFallocate,
           .fd = fd,
           .count = static_cast<unsigned>(mode),
           .offset = offset_bytes,
           .length = length_bytes}};
}

IoUringLoop::Operation IoUringLoop::Statx(int fd, unsigned mask, struct statx* into) {
  return {*this, {.kind = Request::Kind::kStatx, .fd = fd, .memory = into, .count = mask}};
}

IoUringLoop::Operation IoUringLoop::PollAdd(int fd, short events) {
  return {*this,
          {.kind = Request::Kind::kPoll, .fd = fd, .count = static_cast<unsigned short>(events)}};
}

void IoUringLoop::Submit(Request& request) {
  request.pending = true;
  if (backlog_.first != nullptr || !Prepare(request)) {
    backlog_.PushBack(request);
    ++backlog_count_;
  }
}

bool IoUringLoop::Prepare(Request& request) {
  if (in_kernel_ >= *ring_->uring.cq.kring_entries) {
    return false;  // never more than the completion queue holds, so that it cannot overflow
  }
  io_uring_sqe* sqe = io_uring_get_sqe(&ring_->uring);
  if (sqe == nullptr) {
    return false;
  }
  const auto* parts = static_cast<const iovec*>(request.memory);
  const auto offset = static_cast<off_t>(request.offset);
  switch (request.kind) {
    case Request::Kind::kRead:
      io_uring_prep_read(sqe, request.fd, const_cast<void*>(request.memory), request.count,
                         std::numeric_limits<uint64_t>::max());
      break;
    case Request::Kind::kReadv:
      io_uring_prep_readv(sqe, request.fd, parts, request.count, request.offset);
      break;
    case Request::Kind::kWritev:
      io_uring_prep_writev(sqe, request.fd, parts, request.count, request.offset);
      break;
    case Request::Kind::kFsync:
      io_uring_prep_fsync(sqe, request.fd, 0);
      break;
    case Request::Kind::kFdatasync:
      io_uring_prep_fsync(sqe, request.fd, IORING_FSYNC_DATASYNC);
      break;
    case Request::Kind::kFallocate:
      io_uring_prep_fallocate(sqe, request.fd, static_cast<int>(request.count), offset,
                              static_cast<off_t>(request.length));
      break;
    case Request::Kind::kStatx:
      io_uring_prep_statx(sqe, request.fd, "", AT_EMPTY_PATH, request.count,
                          static_cast<struct statx*>(const_cast<void*>(request.memory)));
      break;
    case Request::Kind::kPoll:
      io_uring_prep_poll_add(sqe, request.fd, request.count);
      break;
  }
  if (request.elsewhere) {
    io_uring_sqe_set_flags(sqe, IOSQE_ASYNC);
  }
  io_uring_sqe_set_data(sqe, &request);
  kernel_.PushBack(request);
  ++in_kernel_;
  return true;
}

void IoUringLoop::DrainBacklog() {
  while (backlog_.first != nullptr) {
    Request& request = *backlog_.first;
    backlog_.Remove(request);
    if (!Prepare(request)) {
      request.next = backlog_.first;  // back to its place at the head
      (backlog_.first != nullptr ? backlog_.first->prev : backlog_.last) = &request;
      backlog_.first = &request;
      return;
    }
    --backlog_count_;
  }
}

bool IoUringLoop::Poll(bool may_block, uint64_t deadline_us) {
  DrainBacklog();
  if (may_block && in_flight() == 0 && deadline_us == kNever) {
    return false;
  }
  // What could not be prepared goes with the next turn, at once, unless it waits for completions.
  const bool full = in_kernel_ >= *ring_->uring.cq.kring_entries;
  Enter(may_block && (backlog_.first == nullptr || full), deadline_us);
  ReapCompletions();
  return true;
}

void IoUringLoop::Enter(bool wait, uint64_t deadline_us) {
  io_uring* uring = &ring_->uring;
  const uint64_t now = deadline_us == kNever ? 0 : NowUs();
  if (wait && deadline_us > now) {
    const uint64_t us = deadline_us - now;
    __kernel_timespec timeout{.tv_sec = static_cast<long long>(us / 1000000),
                              .tv_nsec = static_cast<long long>(us % 1000000 * 1000)};
    io_uring_cqe* first = nullptr;
    ++enters_;
    const int result = io_uring_submit_and_wait_timeout(
        uring, &first, 1, deadline_us == kNever ? nullptr : &timeout, nullptr);
    EPLOG_CHECK(result >= 0 || Passing(result), "io_uring_enter fails");
    return;
  }
  if (io_uring_sq_ready(uring) == 0 && !ring_->WantsEnter()) {
    return;
  }
  ++enters_;
  const int result = io_uring_submit_and_get_events(uring);
  EPLOG_CHECK(result >= 0 || Passing(result), "io_uring_enter fails");
}

void IoUringLoop::ReapCompletions() {
  unsigned head = 0;
  unsigned seen = 0;
  io_uring_cqe* cqe = nullptr;
  io_uring_for_each_cqe(&ring_->uring, head, cqe) {
    ++seen;
    if (cqe->user_data == kNobody) {
      continue;
    }
    auto& request = *static_cast<Request*>(io_uring_cqe_get_data(cqe));
    kernel_.Remove(request);
    --in_kernel_;
    request.pending = false;
    request.result = cqe->res;
    Post(request.handle);
  }
  io_uring_cq_advance(&ring_->uring, seen);
}

void IoUringLoop::CancelAll() {
  while (backlog_.first != nullptr) {
    backlog_.first->pending = false;
    backlog_.Remove(*backlog_.first);
  }
  backlog_count_ = 0;
  io_uring* uring = &ring_->uring;
  for (Request* request = kernel_.first; request != nullptr; request = request->next) {
    io_uring_sqe* sqe = io_uring_get_sqe(uring);
    while (sqe == nullptr) {
      const int result = io_uring_submit(uring);
      EPLOG_CHECK(result >= 0 || Passing(result), "io_uring_enter fails");
      sqe = io_uring_get_sqe(uring);
    }
    io_uring_prep_cancel(sqe, request, 0);
    io_uring_sqe_set_data64(sqe, kNobody);
  }
}

bool IoUringLoop::KeepOpen(int fd) {
  return ring_->keeps && io_uring_register_files_update(&ring_->uring, 0, &fd, 1) == 1;
}

bool IoUringLoop::EndRequests(uint64_t deadline_us) {
  CancelAll();
  while (in_kernel_ != 0 && NowUs() < deadline_us) {
    Enter(true, deadline_us);
    ReapCompletions();
  }
  return in_kernel_ == 0;
}

// The kernel writes into the memory of frames until their requests are over. Disk I/O cannot be
// cancelled and is waited for; polls and reads of pipes end at once.
void IoUringLoop::BeforeAbort() {
  const bool ended = EndRequests(kNever);
  EPLOG_CHECK(ended, "there is no deadline");
}

}  // namespace eplog
