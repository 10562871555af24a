// ServedMount: a FakeArray behind a real FUSE mount in a temporary directory, served by a thread of
// its own, so that the test can use it as any program would.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "frontend/fuse_server.h"
#include "runtime/io_uring_loop.h"
#include "tests/support/fake_array.h"
#include "tests/support/files.h"

namespace eplog {

// Why FUSE cannot be used here; empty if it can.
std::string WhyNoFuse();

#define EPLOG_NEEDS_FUSE()                            \
  do {                                                \
    const std::string eplog_reason = WhyNoFuse();     \
    if (!eplog_reason.empty()) {                      \
      GTEST_SKIP() << "needs FUSE: " << eplog_reason; \
    }                                                 \
  } while (false)

struct MountSetup {
  uint64_t capacity_bytes = uint64_t{1} << 30;
  bool read_only = false;
  uint32_t buffers = 512;
  std::function<void(FakeArray&)> prepare;
  std::string directory;  // empty: its own
};

class ServedMount {
 public:
  explicit ServedMount(MountSetup setup = MountSetup());
  // Takes the mount away whatever is open, and waits for the thread.
  ~ServedMount();
  ServedMount(const ServedMount&) = delete;
  ServedMount& operator=(const ServedMount&) = delete;

  [[nodiscard]] const std::string& directory() const { return directory_; }
  [[nodiscard]] std::string operator/(const std::string& name) const {
    return directory_ + "/" + name;
  }

  // Run on the serving thread and wait.
  void Do(const std::function<void(FakeArray&)>& action);
  void Await(const std::function<Task<void>(FakeArray&, FuseServer&)>& action);
  Status Unmount();
  // Until Serve and Drain have returned.
  void WaitUntilServed();
  [[nodiscard]] bool Served() const {
    return served_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }

  [[nodiscard]] std::vector<std::byte> Content(const std::string& name);
  [[nodiscard]] std::vector<FakeArray::Call> TakeCalls();

 private:
  void Thread(const MountSetup& setup, std::promise<Status>* started);
  Task<void> Main();
  Task<void> Commands();

  std::unique_ptr<TemporaryDirectory> own_directory_;
  std::string directory_;
  int command_fd_ = -1;
  size_t mount_slot_ = 0;
  std::mutex mutex_;
  std::vector<std::function<void()>> commands_;  // guarded by mutex_

  // The serving thread's.
  IoUringLoop* loop_ = nullptr;
  FakeArray* array_ = nullptr;
  std::unique_ptr<FuseServer> server_;
  bool finished_ = false;
  bool commands_ended_ = false;
  bool main_ended_ = false;

  std::promise<void> served_promise_;
  std::shared_future<void> served_;
  std::thread thread_;
};

}  // namespace eplog
