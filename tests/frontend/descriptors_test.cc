// A process that serves for years keeps no descriptor that it has no use for.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>

#include "control/control.h"
#include "control/peer.h"
#include "control/server_mark.h"
#include "frontend/daemon.h"
#include "host/fuse_mount.h"
#include "report/event_file.h"
#include "report/event_log.h"
#include "runtime/helper_thread.h"
#include "runtime/io_uring_loop.h"
#include "runtime/run_task.h"
#include "tests/frontend/served_mount.h"
#include "tests/runtime/await.h"
#include "tests/support/asked_array.h"

namespace eplog {
namespace {

size_t Open() {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    count += entry.path().empty() ? 0 : 1;
  }
  return count;
}

// As many are open afterwards as before; what is made once and kept is made before.
void ExpectNoneKept(const std::function<void()>& what) {
  what();
  const size_t before = Open();
  for (int i = 0; i < 3; ++i) {
    what();
  }
  EXPECT_EQ(Open(), before);
}

class Descriptors : public testing::Test {
 protected:
  void SetUp() override {
    EPLOG_NEEDS_FUSE();
    ::chmod(directory_.path().c_str(), 0700);
    loop_ = std::move(*IoUringLoop::Create());
  }
  TemporaryDirectory directory_;
  const std::string path_ = directory_ / "a.sock";
  std::unique_ptr<IoUringLoop> loop_;
};

Task<Result<Json>> Echo(Json request, ProgressSink /*progress*/) {
  co_return request;
}

Task<void> UntilReady(EventLoop* loop, const std::future<void>* done) {
  while (done->wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    co_await loop->Sleep(1000);
  }
}

TEST_F(Descriptors, OfAControlServerAndItsClients) {
  ExpectNoneKept([this] {
    auto server = ControlServer::Listen(*loop_, path_, &Echo);
    ASSERT_TRUE(server.ok());
    const auto client = std::async(std::launch::async, [this] {
      EXPECT_TRUE(ControlRequest(path_, {{"verb", "v"}}).ok());
      auto idle = ControlClient::Connect(path_);
      ASSERT_TRUE(idle.ok());
      EXPECT_TRUE(idle->Request({{"verb", "v"}}).ok());
    });
    test::Await(*loop_, UntilReady(loop_.get(), &client));
    // Refused: this one serves already.
    EXPECT_FALSE(ControlServer::Listen(*loop_, path_, &Echo).ok());
    test::Await(*loop_, (*server)->Stop(0));
  });
}

TEST_F(Descriptors, OfWhoFindsNobody) {
  ExpectNoneKept([this] {
    EXPECT_FALSE(ControlRequest(path_, {{"verb", "v"}}).ok());
    EXPECT_FALSE(ControlServer::Listen(*loop_, directory_ / std::string(200, 'x'), &Echo).ok());
    ASSERT_TRUE(WriteServerMark(path_, 0).ok());
    EXPECT_TRUE(ReadServerMark(path_).has_value());
    EXPECT_NE(ProcessStarted(::getpid()), 0U);
    RemoveServerMark(path_);
  });
}

TEST_F(Descriptors, OfAServerThatCannotListen) {
  ASSERT_EQ(::mkdir(path_.c_str(), 0700), 0);  // where its socket would be
  ExpectNoneKept([this] {
    const auto refused = ControlServer::Listen(*loop_, path_, &Echo);
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find(path_), std::string::npos);
  });
}

TEST_F(Descriptors, OfAMount) {
  AskedArray array;
  ExpectNoneKept([&] {
    FuseOptions options;
    options.mountpoint = directory_.path();
    auto server = FuseServer::Mount(*loop_, array, options);
    ASSERT_TRUE(server.ok());
    const dev_t device = (*server)->device();
    const std::string path = (*server)->mountpoint();
    for (const MountLine& mount : ReadMounts()) {
      EXPECT_TRUE(mount.device != device || CoveredBy(mount).empty());
    }
    EXPECT_TRUE(TakeMountAway(device, path, TakeAway::kAtOnce).ok());
  });
}

// Sync asks the server: it runs on a thread of its own here.
TEST_F(Descriptors, OfAMountThatIsSynced) {
  ServedMount mount;
  const dev_t device = MountedDevice(mount.directory());
  ExpectNoneKept([&] { EXPECT_TRUE(SyncMount(device, mount.directory())); });
}

TEST_F(Descriptors, OfServing) {
  ASSERT_EQ(::mkdir((directory_ / "mount").c_str(), 0700), 0);
  ExpectNoneKept([this] {
    AskedArray array;
    ServeOptions options;
    options.fuse.mountpoint = directory_ / "mount";
    options.socket_path = path_;
    std::future<void> unmounted;
    const Status served = ServeArray(*loop_, array, options, [&] {
      unmounted = std::async(std::launch::async, [this] {
        EXPECT_TRUE(ControlRequest(path_, {{"verb", "umount"}}).ok());
      });
    });
    EXPECT_TRUE(served.ok());
    unmounted.get();
  });
}

TEST_F(Descriptors, OfEventsAndHelpers) {
  ExpectNoneKept([this] {
    AppendEventLine(directory_ / "log", "line\n", 8);
    AppendEventLine(directory_ / "none/log", "line\n", 8);
    EventLog::Limits limits;
    limits.closing = std::chrono::minutes(2);
    EventLog(directory_ / "log", "", "tank", limits).Add(ArrayEvent());
    HelperThread helper(*loop_);
    EXPECT_TRUE(RunTask(*loop_, helper.Run([] {})).ok());
  });
}

}  // namespace
}  // namespace eplog
