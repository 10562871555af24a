// DeviceCloser: gives devices up without anybody waiting for that. A close writes out what is
// cached, asks a server, gives a lock back: on NFS, FUSE or a busy disk it may take as long as it
// likes. Each device has a thread of its own, so that one that hangs holds up no other; that is
// left behind at the end.
#pragma once

#include <chrono>
#include <memory>

#include "eplog/device.h"

namespace eplog {

class DeviceCloser {
 public:
  using Clock = std::chrono::steady_clock;

  DeviceCloser();
  ~DeviceCloser();
  DeviceCloser(const DeviceCloser&) = delete;
  DeviceCloser& operator=(const DeviceCloser&) = delete;

  // Destroys the device, on which nothing is in flight, elsewhere. False: no thread can be had now,
  // and `device` is what it was.
  [[nodiscard]] bool Close(std::unique_ptr<Device>& device);
  // On any thread. Until no device of this identity is being closed, whose lock whoever opens it
  // next would meet; false: one still is.
  [[nodiscard]] bool Wait(const DeviceIdentity& identity, Clock::time_point until) const;
  [[nodiscard]] bool WaitForAll(Clock::time_point until) const;

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;  // also the threads', which may outlive this
};

}  // namespace eplog
