// Files of somebody else's FUSE mount as devices: their server may stop answering at any moment,
// and the loop that uses them goes on.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "base/buffer.h"
#include "device/deadline_device.h"
#include "device/file_device.h"
#include "runtime/run_task.h"
#include "tests/frontend/served_mount.h"

namespace eplog {
namespace {

constexpr uint64_t kBytes = uint64_t{1} << 20;

// The thread that serves a mount does nothing from the construction of this to its end. Should the
// test be stuck because of that it goes on after a while, and `gave_up` says so.
class Held {
 public:
  explicit Held(ServedMount& mount) {
    holding_ = std::thread([this, &mount] {
      mount.Do([this](FakeArray&) {
        std::unique_lock lock(mutex_);
        held_ = true;
        changed_.notify_all();
        gave_up_ = !changed_.wait_for(lock, std::chrono::seconds(60), [this] { return !held_; });
      });
    });
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return held_; });
  }
  ~Held() { LetGo(); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

  void LetGo() {
    {
      const std::lock_guard lock(mutex_);
      held_ = false;
      changed_.notify_all();
    }
    if (holding_.joinable()) {
      holding_.join();
    }
  }
  bool gave_up() {
    const std::lock_guard lock(mutex_);
    return gave_up_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool held_ = false;
  bool gave_up_ = false;
  std::thread holding_;
};

class FuseMember : public ::testing::Test {
 protected:
  void SetUp() override {
    EPLOG_NEEDS_FUSE();
    mount_ = std::make_unique<ServedMount>();
    const File file(*mount_ / "member", O_CREAT | O_RDWR);
    ASSERT_EQ(::ftruncate(file.fd(), kBytes), 0);
    auto loop = IoUringLoop::Create();
    ASSERT_TRUE(loop.ok());
    loop_ = std::move(*loop);
    auto opened = FileDevice::Open(*loop_, *mount_ / "member");
    ASSERT_TRUE(opened.ok()) << opened.error().ToString();
    device_ = std::move(*opened);
  }

  Task<void> ReadInto(Buffer buffer, std::optional<Status>* result) {
    const iovec part{buffer.data(), buffer.size()};
    Task<Status> reading = device_->Read(0, std::span(&part, 1));
    *result = co_await reading;
  }
  Task<void> FlushInto(std::optional<Status>* result) {
    Task<Status> flushing = device_->Flush();
    *result = co_await flushing;
  }
  void Turn() {
    const auto sleeping = [](EventLoop& loop) -> Task<Status> {
      co_await loop.Sleep(20'000);
      co_return OkStatus();
    };
    EXPECT_TRUE(RunTask(*loop_, sleeping(*loop_)).ok());
  }

  BufferPool pool_;
  std::unique_ptr<ServedMount> mount_;
  std::unique_ptr<IoUringLoop> loop_;
  std::unique_ptr<FileDevice> device_;
};

// The very first request on a connection: the kernel asks the server whether files can be polled.
TEST_F(FuseMember, ServerThatDoesNotAnswerHoldsOnlyItsRequests) {
  Held held(*mount_);
  std::optional<Status> read;
  loop_->Spawn(ReadInto(pool_.Get(kBlockBytes), &read));
  Turn();
  EXPECT_FALSE(held.gave_up());
  EXPECT_FALSE(read.has_value());
  held.LetGo();
  ASSERT_TRUE(loop_->RunUntil([&] { return read.has_value(); }));
  EXPECT_TRUE(read->ok());
}

TEST_F(FuseMember, DeadlineDeclaresItFailed) {
  DeadlineDevice deadline(*loop_, *device_, 50'000);
  Held held(*mount_);
  const Buffer buffer = pool_.Get(kBlockBytes);
  const iovec part{buffer.data(), buffer.size()};
  const Status read = RunTask(*loop_, deadline.Read(0, std::span(&part, 1)));
  EXPECT_FALSE(held.gave_up());
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().code, ErrorCode::kDeviceFailed);
  held.LetGo();
  EXPECT_TRUE(loop_->RunUntil([&] { return deadline.idle(); }));
}

// Its size is asked after a flush, of the server too.
TEST_F(FuseMember, FlushOfAFileThatBecameShorterFails) {
  ASSERT_TRUE(RunTask(*loop_, device_->Flush()).ok());
  ASSERT_EQ(::truncate((*mount_ / "member").c_str(), kBytes / 2), 0);
  const Status flushed = RunTask(*loop_, device_->Flush());
  ASSERT_FALSE(flushed.ok());
  EXPECT_EQ(flushed.error().code, ErrorCode::kDeviceFailed);
}

// The server answers the flush, and not how long the file is now.
TEST_F(FuseMember, SizeThatIsNotToldHoldsOnlyItsFlush) {
  const Buffer buffer = pool_.GetZeroed(kBlockBytes);
  const iovec part{buffer.data(), buffer.size()};
  ASSERT_TRUE(
      RunTask(*loop_, device_->Write(0, std::span(&part, 1))).ok());  // the kernel forgets it
  std::atomic<bool> holding = true;
  std::atomic<bool> answered = false;
  mount_->Do([&](FakeArray& array) {
    array.hold = [&](const FakeArray::Call& call) {
      const bool later = call.op == FakeArray::Op::kFlush && holding;
      answered = answered || (call.op == FakeArray::Op::kFlush && !later);
      return later;
    };
  });
  std::optional<Status> flushed;
  loop_->Spawn(FlushInto(&flushed));
  Turn();
  holding = false;
  while (!answered) {
    mount_->Do([](FakeArray&) {});
  }
  mount_->Do([](FakeArray&) {});
  Held held(*mount_);
  Turn();
  EXPECT_FALSE(held.gave_up());
  EXPECT_FALSE(flushed.has_value());
  held.LetGo();
  mount_->Do([](FakeArray& array) { array.hold = nullptr; });
  ASSERT_TRUE(loop_->RunUntil([&] { return flushed.has_value(); }));
  EXPECT_TRUE(flushed->ok());
}

// The kernel's workers that requests of a stopped server keep are none of those that others need.
TEST_F(FuseMember, ManyRequestsThatHangDelayNoOtherDevice) {
  const TemporaryDirectory directory;
  const File file(directory / "other", O_CREAT | O_RDWR);
  ASSERT_EQ(::ftruncate(file.fd(), kBytes), 0);
  auto other = FileDevice::Open(*loop_, directory / "other");
  ASSERT_TRUE(other.ok()) << other.error().ToString();
  constexpr size_t kMany = 10'000;  // more than a ring has places
  Held held(*mount_);
  std::vector<std::optional<Status>> reads(kMany);
  for (std::optional<Status>& read : reads) {
    loop_->Spawn(ReadInto(pool_.Get(kBlockBytes), &read));
  }
  Turn();
  EXPECT_TRUE(RunTask(*loop_, (*other)->Flush()).ok());
  EXPECT_FALSE(held.gave_up());
  EXPECT_FALSE(reads.front().has_value());
  held.LetGo();
  EXPECT_TRUE(loop_->RunUntil([&] {
    return std::all_of(reads.begin(), reads.end(),
                       [](const auto& read) { return read.has_value(); });
  }));
}

}  // namespace
}  // namespace eplog
