// What a verb that cannot be carried out answers: what is lacking, and the mend where there is one.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device/memory_device.h"
#include "frontend/daemon_verbs.h"
#include "runtime/io_uring_loop.h"
#include "runtime/run_task.h"
#include "tests/frontend/served_mount.h"
#include "tests/support/asked_array.h"
#include "tests/support/called_owner.h"

namespace eplog {
namespace {

// Verbs of an array without spares, of which nobody reads the mount.
class VerbWords : public testing::Test {
 protected:
  void SetUp() override {
    EPLOG_NEEDS_FUSE();
    loop_ = std::move(*IoUringLoop::Create());
    FuseOptions options;
    options.mountpoint = directory_.path();
    auto mounted = FuseServer::Mount(*loop_, array_, options);
    ASSERT_TRUE(mounted.ok()) << mounted.error().message;
    fuse_ = std::move(*mounted);
    array_.status.devices.resize(2);
    array_.status.devices[0].path = "/dev/a";
    array_.status.devices[1].state = DeviceState::kMissing;
    owner_.open = [this](std::string path, DeviceIdentity /*looked_at*/) {
      return Open(std::move(path));
    };
    owner_.close = [this](Device& device) { done_.push_back("close " + device.name()); };
    verbs_ = std::make_unique<DaemonVerbs>(*loop_, array_, *fuse_,
                                           ServingInfo{"2024-05-06T07:08:09Z", 77},
                                           DaemonVerbs::Served{owner_, nullptr, directory_.path()});
  }
  void TearDown() override {
    verbs_.reset();
    fuse_.reset();
  }

  // The array may be closed meanwhile.
  Task<Result<Device*>> Open(std::string path) {
    done_.push_back("open " + path);
    if (closes_meanwhile_) {
      verbs_->Closed(OkStatus());
    }
    co_return &replacement_;
  }
  // As it comes off the socket.
  std::string Answer(const Json& request) {
    const Result<Json> answer =
        RunTask(*loop_, verbs_->Run(Json::parse(request.dump()), ProgressSink()));
    return answer.ok()
               ? answer->dump()
               : std::string(ErrorCodeName(answer.error().code)) + ": " + answer.error().message;
  }
  static Json Replace() {
    return {{"verb", "replace"},
            {"device", 1},
            {"path", "/dev/new"},
            {"identity", {{"block", true}, {"device", 31}, {"inode", 32}}}};
  }

  using Words = std::vector<std::string>;

  TemporaryDirectory directory_;
  std::unique_ptr<IoUringLoop> loop_;
  AskedArray array_;
  std::unique_ptr<FuseServer> fuse_;
  CalledOwner owner_;
  std::unique_ptr<DaemonVerbs> verbs_;
  MemoryDevice replacement_{"/dev/new", 4096};
  bool closes_meanwhile_ = false;
  Words done_;  // with devices
};

TEST_F(VerbWords, SayWhatIsLacking) {
  EXPECT_EQ(Answer({{"verb", "dance"}}), "unsupported: the serving process knows no verb dance");
  Json replace = Replace();
  replace.erase("path");
  EXPECT_EQ(Answer(replace), "invalid argument: the request lacks the path of the replacement");
  EXPECT_EQ(Answer({{"verb", "spare-add"}}),
            "invalid argument: the request lacks the path of a spare");
  EXPECT_EQ(Answer({{"verb", "pace"}, {"yields", 1}, {"bytes_per_second", 1}}),
            "invalid argument: yields is a boolean, bytes_per_second a number");
  EXPECT_EQ(Answer({{"verb", "buffers"}, {"stripes", 1}}),
            "invalid argument: device_chunks and stripes are numbers up to " +
                std::to_string(kMaxBufferChunks));
  EXPECT_EQ(Answer({{"verb", "inject"}, {"device", 1}}),
            "not found: the device is not part of the array now");
  EXPECT_EQ(done_, Words{});
  EXPECT_EQ(array_.asked, Words{});
}

TEST_F(VerbWords, SayThatTheArrayIsReadOnly) {
  const std::string mend =
      "unsupported: the array is mounted read-only: umount it, or mount it for writing";
  EXPECT_EQ(Answer({{"verb", "spare-add"}, {"path", "/b"}}), mend);
  EXPECT_EQ(Answer({{"verb", "spare-remove"}, {"path", "/b"}}), mend);
  array_.status.read_only = true;
  EXPECT_EQ(Answer({{"verb", "plan"}, {"change", "scrub"}}),
            "read-only: the array is open read-only");
}

// Opening a replacement may take as long as it takes, and nobody waits for it.
TEST_F(VerbWords, SayThatTheArrayCloses) {
  closes_meanwhile_ = true;
  EXPECT_EQ(Answer(Replace()), "shut down: the array is closing; nothing was replaced");
  EXPECT_EQ(done_, (Words{"open /dev/new", "close /dev/new"}));
  EXPECT_EQ(Answer({{"verb", "status"}}), "shut down: the array is being unmounted");
  EXPECT_EQ(array_.asked, Words{});
}

}  // namespace
}  // namespace eplog
