#include "host/device_closer.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

#include "base/start_thread.h"

namespace eplog {

struct DeviceCloser::Shared {
  std::mutex mutex;  // guards what follows; never held while closing
  std::condition_variable changed;
  std::vector<DeviceIdentity> closing;

  void Remove(const DeviceIdentity& identity) {
    const std::lock_guard lock(mutex);
    closing.erase(std::find(closing.begin(), closing.end(), identity));
    changed.notify_all();
  }
};

DeviceCloser::DeviceCloser() : shared_(std::make_shared<Shared>()) {}

DeviceCloser::~DeviceCloser() = default;

bool DeviceCloser::Close(std::unique_ptr<Device>& device) {
  const DeviceIdentity identity = device->identity();
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->closing.push_back(identity);
  }
  const auto going = std::make_shared<std::unique_ptr<Device>>(std::move(device));
  std::thread thread = TryStartThread([shared = shared_, going, identity] {
    going->reset();
    shared->Remove(identity);
  });
  if (!thread.joinable()) {
    device = std::move(*going);
    shared_->Remove(identity);
    return false;
  }
  thread.detach();
  return true;
}

bool DeviceCloser::Wait(const DeviceIdentity& identity, Clock::time_point until) const {
  std::unique_lock lock(shared_->mutex);
  return shared_->changed.wait_until(lock, until, [&] {
    return std::find(shared_->closing.begin(), shared_->closing.end(), identity) ==
           shared_->closing.end();
  });
}

bool DeviceCloser::WaitForAll(Clock::time_point until) const {
  std::unique_lock lock(shared_->mutex);
  return shared_->changed.wait_until(lock, until, [&] { return shared_->closing.empty(); });
}

}  // namespace eplog
