// DeadlineDevice: no request takes longer than its deadline, whatever the device below does. One
// that is not answered by then fails with kDeviceFailed; from then on the device counts as hung and
// everything fails at once, also what is on its way to it: nobody waits longer for the device than
// one deadline from the first request that it does not answer. Time in which the loop itself stood
// still does not count. Without a deadline (0) it only counts what is in flight.
//
// A request that hangs may still be answered some day. Until then what it works on has to live:
// reads go to memory of the wrapper and are copied when they come in time; a write that comes late
// finds its memory in other use, and what it leaves on the device is anything. Its frames live in
// the loop, so the loop, and the device below, outlive it (EventLoop::Abort ends those that never
// come).
//
// What lands late is harmless. An array that goes on does not trust the device any more, at no
// later opening either. One that stops, since more than m devices are lost, does not write the last
// of these losses down: the next opening trusts those devices again. But nothing was acknowledged
// since, what such a write was to replace lies elsewhere, and whatever an opening believes says by
// checksum what it is, and where: so it is judged like what a crash tore. And nothing lands after
// that opening: whoever owns the device closes it, and lets go of its lock, only when it is idle;
// where the process dies first, the kernel keeps the lock until the last request has ended.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "device/forwarding_device.h"
#include "eplog/event_loop.h"
#include "runtime/sync.h"

namespace eplog {

class DeadlineDevice final : public ForwardingDevice {
 public:
  DeadlineDevice(EventLoop& loop, Device& below, uint64_t deadline_us)
      : ForwardingDevice(below), loop_(loop), deadline_us_(deadline_us) {}
  DeadlineDevice(EventLoop& loop, std::unique_ptr<Device> below, uint64_t deadline_us)
      : ForwardingDevice(std::move(below)), loop_(loop), deadline_us_(deadline_us) {}

  Task<Status> Read(uint64_t offset_bytes, std::span<const iovec> into) override;
  Task<Status> Write(uint64_t offset_bytes, std::span<const iovec> from) override;
  Task<Status> Flush() override;
  Task<Status> Discard(uint64_t offset_bytes, uint64_t length_bytes) override;

  // Nobody waits any more for what is on its way to it, nor for what comes: it is lost for other
  // reasons, or its owner says so. As if it had not answered one in time.
  void Abandon();

  [[nodiscard]] bool hung() const { return hung_; }
  // Requests that the device below has not answered, also those given up here.
  [[nodiscard]] uint64_t unanswered() const { return *unanswered_; }
  // Nothing is in it or below it: once nobody sends it anything any more, it may be destroyed.
  [[nodiscard]] bool idle() const { return inside_ == 0 && *unanswered_ == 0; }

 private:
  struct Request {
    explicit Request(EventLoop& loop) : answered(loop) {}
    Event answered;
    bool done = false;
    Status status;
    std::vector<iovec> parts;
    std::shared_ptr<BufferPool> pool;  // of `memory`: it may outlive the device
    Buffer memory;
  };
  using RequestPtr = std::shared_ptr<Request>;
  static Task<void> Carry(RequestPtr request, Task<Status> task,
                          std::shared_ptr<uint64_t> unanswered);
  Task<Status> Await(RequestPtr request, Task<Status> task);
  void GiveUp();
  [[nodiscard]] Error Hung() const;

  EventLoop& loop_;
  const uint64_t deadline_us_;
  std::shared_ptr<BufferPool> pool_ = std::make_shared<BufferPool>();
  bool hung_ = false;
  bool abandoned_ = false;
  uint64_t inside_ = 0;          // requests whose caller has no answer yet
  std::list<Request*> waiting_;  // somebody waits for these here
  std::shared_ptr<uint64_t> unanswered_ = std::make_shared<uint64_t>(0);
};

}  // namespace eplog
