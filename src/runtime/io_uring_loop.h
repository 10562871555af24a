// IoUringLoop: the event loop of the real world. Files, sockets and signals through one io_uring,
// and time from CLOCK_MONOTONIC. It knows descriptors and bytes; what they mean, and how a short
// transfer goes on, is for its callers (device/file_device.h). liburing stays in the .cc.
//
// One thread, the one that called Create (the ring is single-issuer where the kernel can). A ring
// does not survive fork: a daemon forks first. At most one io_uring_enter a turn: it submits all
// that the turn asked for and waits, when nothing is ready, for the first completion or the next
// timer.
#pragma once

#include <sys/stat.h>
#include <sys/uio.h>

#include <coroutine>
#include <cstdint>
#include <memory>

#include "base/check.h"
#include "eplog/event_loop.h"
#include "eplog/result.h"

namespace eplog {

class IoUringLoop final : public EventLoop {
  struct Request {
    enum class Kind : uint8_t {
      kRead,
      kReadv,
      kWritev,
      kFsync,
      kFdatasync,
      kFallocate,
      kStatx,
      kPoll
    };
    Kind kind;
    int fd;
    const void* memory = nullptr;  // iovec array, the bytes of kRead, or the answer of kStatx
    // iovecs or bytes; the mode of kFallocate; what kStatx asks for; the events of kPoll
    unsigned count = 0;
    uint64_t offset = 0;
    uint64_t length = 0;  // kFallocate
    bool elsewhere = false;
    int result = 0;
    std::coroutine_handle<> handle{};
    bool pending = false;
    Request* prev = nullptr;
    Request* next = nullptr;
  };

 public:
  // `entries`: submissions a turn that need no second one; more wait for the next turn. At most 8
  // times as many are in the kernel at once. Fails with kUnsupported where io_uring is missing or
  // forbidden.
  static Result<std::unique_ptr<IoUringLoop>> Create(unsigned entries = 1024);
  // Cancels what can be cancelled, waits for the rest, and only then destroys the suspended tasks.
  ~IoUringLoop() override;

  [[nodiscard]] uint64_t NowUs() const override;

  // Awaiting it submits; the result is what the system call would return, with -errno for an error.
  // Memory and iovecs belong to the kernel until then. It lives in the awaiting frame and is not
  // copied.
  class [[nodiscard]] Operation {
   public:
    Operation(IoUringLoop& loop, const Request& request) : loop_(loop), request_(request) {}
    Operation(const Operation&) = delete;
    Operation& operator=(const Operation&) = delete;
    ~Operation() { EPLOG_CHECK(!request_.pending, "a frame dies with its I/O in flight"); }
    [[nodiscard]] bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> handle) {
      request_.handle = handle;
      loop_.Submit(request_);
    }
    [[nodiscard]] int await_resume() const noexcept { return request_.result; }

   private:
    IoUringLoop& loop_;
    Request request_;
  };

  // Who carries a transfer out. The kernel's first try is made within this thread, which is quick,
  // and does not wait for a device. A file of FUSE it polls then, though, and that waits for the
  // process that serves the file: such transfers belong on a thread of the kernel's own.
  enum class Try : uint8_t { kHere, kElsewhere };
  // At most IOV_MAX (1024) parts. May transfer less than was asked.
  Operation Readv(int fd, const iovec* parts, unsigned count, uint64_t offset_bytes,
                  Try first = Try::kHere);
  Operation Writev(int fd, const iovec* parts, unsigned count, uint64_t offset_bytes,
                   Try first = Try::kHere);
  // From the current position: pipes, sockets, signalfd.
  Operation Read(int fd, void* memory, unsigned length_bytes);
  Operation Fsync(int fd);
  Operation Fdatasync(int fd);
  Operation Fallocate(int fd, int mode, uint64_t offset_bytes, uint64_t length_bytes);
  // Of what is open, asked anew where the file system asks others.
  Operation Statx(int fd, unsigned mask, struct statx* into);
  // Until one of `events` (POLLIN, ...), once. The result is the mask of events.
  Operation PollAdd(int fd, short events);

  // For an end that cannot wait for as long as Abort may have to: cancels what can be cancelled,
  // and waits for the rest until then. False: the kernel still has some, and may write into the
  // memory of frames until this process ends. So the loop and all that lives on it must stay as
  // they are till then.
  [[nodiscard]] bool EndRequests(uint64_t deadline_us);

  // What `fd` opened stays open, and locked, until the kernel has put away the last request of this
  // loop, also where the process is killed and the descriptor is gone; what was given before is let
  // go. -1: nothing any more. False: the kernel does not do so.
  bool KeepOpen(int fd);

  // Submitted and not yet completed, whether the kernel has them or not.
  [[nodiscard]] size_t in_flight() const { return in_kernel_ + backlog_count_; }
  // Calls of io_uring_enter by Poll so far.
  [[nodiscard]] uint64_t enters() const { return enters_; }

 protected:
  bool Poll(bool may_block, uint64_t deadline_us) override;
  void BeforeAbort() override;

 private:
  struct Ring;   // the io_uring
  struct List {  // of requests, in order
    Request* first = nullptr;
    Request* last = nullptr;
    void PushBack(Request& request);
    void Remove(Request& request);
  };

  explicit IoUringLoop(std::unique_ptr<Ring> ring);
  void Submit(Request& request);
  // False: no place in the submission queue or the completion queue now.
  bool Prepare(Request& request);
  void DrainBacklog();
  void Enter(bool wait, uint64_t deadline_us);
  void ReapCompletions();
  void CancelAll();

  std::unique_ptr<Ring> ring_;
  List kernel_;   // prepared or submitted
  List backlog_;  // no place yet
  size_t in_kernel_ = 0;
  size_t backlog_count_ = 0;
  uint64_t enters_ = 0;
};

}  // namespace eplog
