// Jobs that end while others do not, and what is left of their threads.
#include <gtest/gtest.h>

#include <cstddef>
#include <filesystem>
#include <future>
#include <iterator>
#include <memory>

#include "runtime/helper_thread.h"
#include "runtime/io_uring_loop.h"
#include "runtime/run_task.h"

namespace eplog {
namespace {

Task<void> MarkEnd(Task<Status> job, bool* ended) {
  const Status status = co_await job;
  EXPECT_TRUE(status.ok());
  *ended = true;
}

class HelperEnds : public testing::Test {
 protected:
  void SetUp() override {
    auto made = IoUringLoop::Create();
    if (!made.ok()) {
      GTEST_SKIP() << "needs io_uring";
    }
    loop_ = std::move(*made);
  }
  static size_t Descriptors() {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return static_cast<size_t>(std::distance(begin(all), end(all)));
  }

  std::unique_ptr<IoUringLoop> loop_;
};

TEST_F(HelperEnds, OfOthersAreNotOnesOwn) {
  HelperThread helper(*loop_, 2);
  std::promise<void> may_end;
  std::promise<void> began;
  bool ended = false;
  loop_->Spawn(MarkEnd(helper.Run([&began, may = may_end.get_future().share()] {
    began.set_value();
    may.wait();
  }),
                       &ended));
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(RunTask(*loop_, helper.Run([] {})).ok());
    EXPECT_FALSE(ended) << "it runs still, and has what is its caller's";
  }
  began.get_future().wait();
  may_end.set_value();
  EXPECT_TRUE(loop_->RunUntil([&ended] { return ended; }));
}

TEST_F(HelperEnds, LeaveNoDescriptor) {
  const auto use = [this] {
    HelperThread helper(*loop_, 2);
    EXPECT_TRUE(helper.Start().ok());
    EXPECT_TRUE(RunTask(*loop_, helper.Run([] {})).ok());
    const HelperThread never_used(*loop_);
  };
  use();
  const size_t before = Descriptors();
  for (int i = 0; i < 3; ++i) {
    use();
  }
  EXPECT_EQ(Descriptors(), before);
}

}  // namespace
}  // namespace eplog
