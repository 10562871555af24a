// InjectDevice: faults on demand, to rehearse a failure before it comes (`eplog inject`). With none
// set, requests pass at no cost.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/random.h"
#include "device/forwarding_device.h"
#include "eplog/event_loop.h"
#include "runtime/sync.h"

namespace eplog {

struct Injection {
  double read_error_rate = 0;   // of reads that fail; 0 ... 1
  double write_error_rate = 0;  // of writes and flushes that fail
  uint64_t corrupt = 0;         // so many of the next writes are stored with one bit wrong
  uint64_t misdirect = 0;       // so many of the next writes land elsewhere on the device
  uint64_t slow_us = 0;         // each request takes so much longer
  bool hang = false;            // no request is answered any more
  bool drop = false;            // the device is gone: everything fails at once
};

class InjectDevice final : public ForwardingDevice {
 public:
  InjectDevice(EventLoop& loop, std::unique_ptr<Device> below, uint64_t seed)
      : ForwardingDevice(std::move(below)), loop_(loop), random_(seed), cleared_(loop) {}
  InjectDevice(EventLoop& loop, Device& below, uint64_t seed)
      : ForwardingDevice(below), loop_(loop), random_(seed), cleared_(loop) {}

  // From now on these, instead of what was set before. Requests that hang fail when nothing hangs
  // any more.
  void Set(const Injection& injection);
  [[nodiscard]] const Injection& injection() const { return now_; }
  // Nobody waits any more for what it holds up, whose memory may be in other use: that fails.
  void Abandon() { abandoned_ = true; }
  // Requests struck so far.
  [[nodiscard]] uint64_t struck() const { return struck_; }

  Task<Status> Read(uint64_t offset_bytes, std::span<const iovec> into) override;
  Task<Status> Write(uint64_t offset_bytes, std::span<const iovec> from) override;
  Task<Status> Flush() override;
  Task<Status> Discard(uint64_t offset_bytes, uint64_t length_bytes) override;

 private:
  Task<Status> Before(double error_rate, const char* what);
  Task<Status> StruckRead(uint64_t offset_bytes, std::span<const iovec> into);
  Task<Status> StruckWrite(uint64_t offset_bytes, std::span<const iovec> from);
  Task<Status> StruckFlush();
  Task<Status> StruckDiscard(uint64_t offset_bytes, uint64_t length_bytes);
  Task<Status> WriteWrong(uint64_t offset_bytes, std::span<const iovec> from, bool misdirected);
  [[nodiscard]] Error Struck(ErrorCode code, int errno_value, const char* what) const;

  EventLoop& loop_;
  Random random_;
  Event cleared_;
  Injection now_;
  bool any_ = false;
  bool abandoned_ = false;
  uint64_t struck_ = 0;
};

}  // namespace eplog
