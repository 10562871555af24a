// CalledOwner: an ArrayOwner who does what the test says, and where it says nothing what any other
// does.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "host/array_owner.h"

namespace eplog {

class CalledOwner final : public ArrayOwner {
 public:
  Task<Result<Device*>> OpenDevice(std::string path, DeviceIdentity looked_at) override {
    return open ? open(std::move(path), looked_at)
                : ArrayOwner::OpenDevice(std::move(path), looked_at);
  }
  void CloseDevice(Device& device) override { Call(close, device); }
  Status Inject(const std::string& path, const Injection& injection) override {
    return inject ? inject(path, injection) : ArrayOwner::Inject(path, injection);
  }
  void ForgetScrubMark() override { Call(forget_scrub); }
  Json Describe(const std::string& directory) override {
    return describe ? describe() : ArrayOwner::Describe(directory);
  }
  void Listen(EventSink sink) override { Call(listen, std::move(sink)); }
  void Tell(const ArrayEvent& event) override { Call(tell, event); }
  void Release() override { Call(release); }

  std::function<Task<Result<Device*>>(std::string path, DeviceIdentity looked_at)> open;
  std::function<void(Device& device)> close;
  std::function<Status(const std::string& path, const Injection& injection)> inject;
  std::function<void()> forget_scrub;
  std::function<Json()> describe;
  std::function<void(EventSink sink)> listen;
  EventSink tell;
  std::function<void()> release;

 private:
  template <typename Function, typename... Given>
  static void Call(const Function& function, Given&&... given) {
    if (function) {
      function(std::forward<Given>(given)...);
    }
  }
};

}  // namespace eplog
