// ArrayOwner: whoever opened the array that is being served. Its devices are his, and where they
// are is written down by him; the serving process asks him for what the array alone cannot do.
#pragma once

#include <string>

#include "device/inject_device.h"
#include "eplog/device.h"
#include "eplog/events.h"
#include "eplog/result.h"
#include "eplog/task.h"
#include "report/json.h"

namespace eplog {

// As it stands here: an owner who can do nothing of it.
class ArrayOwner {
 public:
  ArrayOwner() = default;
  ArrayOwner(const ArrayOwner&) = delete;
  ArrayOwner& operator=(const ArrayOwner&) = delete;
  virtual ~ArrayOwner() = default;

  // A device that is to join the array, if it is what was looked at by this path. It lives for as
  // long as the array holds it, and until CloseDevice was called for it.
  virtual Task<Result<Device*>> OpenDevice(std::string /*path*/, DeviceIdentity /*looked_at*/) {
    co_return Fail(ErrorCode::kInvalidArgument, "no device can be opened here");
  }
  // Whether it has joined or not, nobody here needs it any more.
  virtual void CloseDevice(Device& /*device*/) {}
  // Faults on the member at this path, from now on; on all of them if it is empty.
  virtual Status Inject(const std::string& /*path*/, const Injection& /*injection*/) {
    return Fail(ErrorCode::kUnsupported, "faults cannot be injected here");
  }
  // The next scrub begins at the beginning.
  virtual void ForgetScrubMark() {}
  // Which array this is, mounted at `directory`, so that nobody takes a copy of it for it
  // (server.h). Null: he does not say.
  virtual Json Describe(const std::string& /*directory*/) { return {}; }
  // Who takes the array's events from now on; empty: nobody any more.
  virtual void Listen(EventSink /*sink*/) {}
  // Something that happened to the array's spares.
  virtual void Tell(const ArrayEvent& /*event*/) {}
  // The array is closed: its devices (their locks) are let go, so that others can open it. It may
  // be gone when this returns.
  virtual void Release() {}
};

}  // namespace eplog
