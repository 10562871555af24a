// What a verb carries reaches the array and whoever has its devices, and what they answer goes
// back; what lacks something is refused before anybody is asked.
#include "frontend/daemon_verbs.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "device/memory_device.h"
#include "frontend/spare_keeper.h"
#include "runtime/io_uring_loop.h"
#include "runtime/run_task.h"
#include "tests/frontend/served_mount.h"
#include "tests/support/asked_array.h"
#include "tests/support/called_owner.h"

namespace eplog {
namespace {

// Notes what it was asked.
class NotedShelf final : public SpareShelf {
 public:
  std::vector<std::string> asked;
  Status answer;
  MemoryDevice spare{"/spare", 4096};

  [[nodiscard]] std::vector<std::string> Listed() const override { return {}; }
  Task<Result<SpareDevice>> Open(std::string path) override {
    asked.push_back("open " + path);
    co_return SpareDevice{&spare, true, true, false};
  }
  Task<Result<SpareDevice>> Add(std::string path, DeviceIdentity looked_at) override {
    asked.push_back("add " + path + " " + std::to_string(looked_at.inode));
    co_return answer.ok() ? Result<SpareDevice>(SpareDevice{&spare, true, true, false})
                          : Fail(answer.error());
  }
  void Close(const std::string& path) override { asked.push_back("close " + path); }
  Task<Status> PutBack(std::string /*path*/) override { co_return OkStatus(); }
  Task<Status> Remove(std::string path) override {
    asked.push_back("remove " + path);
    co_return answer;
  }
  Task<Status> Joined(std::string member, std::string path) override {
    asked.push_back(member + " is at " + path);
    co_return answer;
  }
};

const Json kIdentity = {{"block", true}, {"device", 31}, {"inode", 32}};

class Verbs : public testing::Test {
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
    array_.status.devices[0].name = "ssd0";
    array_.status.devices[0].path = "/dev/a";
    array_.status.devices[1].name = "log0";
    array_.status.devices[1].state = DeviceState::kMissing;
    array_.volumes = {{VolumeId(9), "disk", 5000, 4096}, {VolumeId(2), "other", 1, 0}};
    owner_.open = [this](std::string path, DeviceIdentity looked_at) {
      return Open(std::move(path), looked_at);
    };
    owner_.close = [this](Device& device) { done_.push_back("close " + device.name()); };
    owner_.inject = [this](const std::string& path, const Injection& injection) {
      done_.push_back("inject " + path);
      injection_ = injection;
      return array_.answer;
    };
    owner_.forget_scrub = [this] { done_.emplace_back("forget"); };
  }
  void TearDown() override {
    verbs_.reset();
    fuse_.reset();
  }

  Task<Result<Device*>> Open(std::string path, DeviceIdentity looked_at) {
    done_.push_back("open " + path + " " + std::to_string(looked_at.block) + " " +
                    std::to_string(looked_at.device) + " " + std::to_string(looked_at.inode));
    co_return opens_.ok() ? Result<Device*>(&replacement_) : Fail(opens_.error());
  }
  DaemonVerbs& verbs() {
    if (verbs_ == nullptr) {
      verbs_ = std::make_unique<DaemonVerbs>(
          *loop_, array_, *fuse_, ServingInfo{"2024-05-06T07:08:09Z", 77},
          DaemonVerbs::Served{owner_, spares_, directory_.path()});
    }
    return *verbs_;
  }
  // As it comes off the socket.
  Result<Json> Ask(const Json& request) {
    return RunTask(*loop_,
                   verbs().Run(Json::parse(request.dump()), [this](uint64_t done, uint64_t total) {
                     progress_ += std::to_string(done) + "/" + std::to_string(total) + " ";
                   }));
  }
  std::string Answer(const Json& request) {
    const Result<Json> answer = Ask(request);
    return answer.ok() ? answer->dump() : "refused: " + answer.error().message;
  }
  void ExpectRefused(const Json& request, ErrorCode code) {
    const Result<Json> answer = Ask(request);
    ASSERT_FALSE(answer.ok()) << request.dump();
    EXPECT_EQ(answer.error().code, code) << request.dump();
    EXPECT_FALSE(answer.error().message.empty()) << request.dump();
  }

  using Words = std::vector<std::string>;

  TemporaryDirectory directory_;
  std::unique_ptr<IoUringLoop> loop_;
  AskedArray array_;
  std::unique_ptr<FuseServer> fuse_;
  CalledOwner owner_;
  SpareKeeper* spares_ = nullptr;
  std::unique_ptr<DaemonVerbs> verbs_;
  MemoryDevice replacement_{"/dev/new", 4096};
  Status opens_;
  Words done_;  // with devices
  Injection injection_;
  std::string progress_;
};

TEST_F(Verbs, StatusNamesWhoServes) {
  const Result<Json> status = Ask({{"verb", "status"}});
  ASSERT_TRUE(status.ok());
  EXPECT_EQ((*status)["array"]["mounted_at"], "2024-05-06T07:08:09Z");
  EXPECT_EQ((*status)["array"]["pid"], 77);
  EXPECT_EQ((*status)["devices"].size(), 2U);
}

TEST_F(Verbs, ServingIsWhatItsOpenerSaysAndTheMount) {
  EXPECT_EQ(Answer({{"verb", "serving"}}), "null");
  verbs_.reset();
  Json told = {{"uuid", "u"}};
  owner_.describe = [&told] { return told; };
  EXPECT_EQ(Answer({{"verb", "serving"}}),
            R"({"uuid":"u","mount_device":)" + std::to_string(fuse_->device()) + "}");
  EXPECT_NE(fuse_->device(), 0U);
  told = Json();
  EXPECT_EQ(Answer({{"verb", "serving"}}), "null");
}

TEST_F(Verbs, MaintenanceIsDoneByTheArray) {
  array_.discarded_bytes = 4711;
  array_.loss.lost_bytes = 12;
  EXPECT_EQ(Answer({{"verb", "commit"}}), "null");
  EXPECT_EQ(Answer({{"verb", "checkpoint"}}), "null");
  EXPECT_EQ(Answer({{"verb", "discard"}}), R"({"bytes":4711})");
  EXPECT_EQ(Ask({{"verb", "lost"}})->value("lost_bytes", 0), 12);
  EXPECT_EQ(array_.asked, (Words{"commit", "checkpoint", "discard", "find lost"}));
  EXPECT_EQ(progress_, "3/4 3/4 ") << "of the commit, and of what is discarded";
}

TEST_F(Verbs, ADeviceIsFailedByHand) {
  EXPECT_EQ(Answer({{"verb", "fail"}, {"device", 1}}), "null");
  EXPECT_EQ(array_.asked, Words{"fail 1: failed by hand"});
  ExpectRefused({{"verb", "fail"}}, ErrorCode::kInvalidArgument);
  EXPECT_EQ(array_.asked.size(), 1U);
}

TEST_F(Verbs, ScrubHealsAndBeginsAnewOnlyIfTold) {
  array_.report.rows_checked = 8;
  EXPECT_EQ(Ask({{"verb", "scrub"}})->value("rows_checked", 0), 8);
  EXPECT_EQ(Answer({{"verb", "scrub"}, {"repair", 1}, {"restart", 1}}),
            Answer({{"verb", "scrub"}, {"repair", false}, {"restart", false}}));
  EXPECT_EQ(done_, Words{});
  EXPECT_TRUE(Ask({{"verb", "scrub"}, {"repair", true}}).ok());
  EXPECT_EQ(done_, Words{});
  EXPECT_TRUE(Ask({{"verb", "scrub"}, {"restart", true}}).ok());
  EXPECT_EQ(done_, Words{"forget"});
  EXPECT_EQ(array_.asked, (Words{"scrub", "scrub", "scrub", "scrub and heal", "scrub"}));
  EXPECT_EQ(progress_, "3/4 3/4 3/4 3/4 3/4 ");
  verbs_.reset();
  owner_.forget_scrub = nullptr;
  EXPECT_TRUE(Ask({{"verb", "scrub"}, {"restart", true}}).ok()) << "there is nothing to forget";
}

TEST_F(Verbs, PlansAreTheArraysUnlessItIsReadOnly) {
  EXPECT_EQ(Ask({{"verb", "plan"}, {"change", "fail"}, {"device", 0}})->value("path", ""),
            "/dev/a");
  EXPECT_TRUE(Ask({{"verb", "plan"}, {"change", "volume-delete"}, {"name", "disk"}}).ok());
  EXPECT_EQ(array_.asked, (Words{"plan", "plan"}));
  ExpectRefused({{"verb", "plan"}, {"change", "volume-delete"}, {"name", "none"}},
                ErrorCode::kNotFound);
  ExpectRefused({{"verb", "plan"}, {"change", "volume-delete"}}, ErrorCode::kInvalidArgument);
  array_.status.read_only = true;
  ExpectRefused({{"verb", "plan"}, {"change", "scrub"}}, ErrorCode::kReadOnly);
  EXPECT_EQ(array_.asked.size(), 2U);
}

TEST_F(Verbs, BuffersAreNumbersUpToALimit) {
  EXPECT_EQ(Answer({{"verb", "buffers"}, {"device_chunks", 5}, {"stripes", 7}}), "null");
  EXPECT_EQ(Answer({{"verb", "buffers"}, {"device_chunks", kMaxBufferChunks}, {"stripes", 0}}),
            "null");
  const Words asked = {"buffers 5 7", "buffers " + std::to_string(kMaxBufferChunks) + " 0"};
  EXPECT_EQ(array_.asked, asked);
  for (const Json& bad :
       {Json{{"verb", "buffers"}, {"device_chunks", 5}}, Json{{"verb", "buffers"}, {"stripes", 5}},
        Json{{"verb", "buffers"}, {"device_chunks", kMaxBufferChunks + 1}, {"stripes", 1}},
        Json{{"verb", "buffers"}, {"device_chunks", 1}, {"stripes", uint64_t{1} << 32}},
        Json{{"verb", "buffers"}, {"device_chunks", -1}, {"stripes", 1}},
        Json{{"verb", "buffers"}, {"device_chunks", 1}, {"stripes", "1"}}}) {
    const Result<Json> refused = Ask(bad);
    ASSERT_FALSE(refused.ok()) << bad.dump();
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument) << bad.dump();
    EXPECT_NE(refused.error().message.find(std::to_string(kMaxBufferChunks)), std::string::npos);
  }
  EXPECT_EQ(array_.asked, asked);
}

TEST_F(Verbs, PaceNeedsBothOfItsWords) {
  EXPECT_EQ(Answer({{"verb", "pace"}, {"yields", true}, {"bytes_per_second", 1000}}), "null");
  EXPECT_EQ(Answer({{"verb", "pace"}, {"yields", false}, {"bytes_per_second", 0}}), "null");
  const Words asked = {"pace yields 1000", "pace 0"};
  for (const Json& bad :
       {Json{{"verb", "pace"}, {"yields", true}}, Json{{"verb", "pace"}, {"bytes_per_second", 1}},
        Json{{"verb", "pace"}, {"yields", 1}, {"bytes_per_second", 1}},
        Json{{"verb", "pace"}, {"yields", true}, {"bytes_per_second", -1}}}) {
    ExpectRefused(bad, ErrorCode::kInvalidArgument);
  }
  EXPECT_EQ(array_.asked, asked);
}

TEST_F(Verbs, VolumesAreMadeListedResizedAndDeleted) {
  EXPECT_EQ(Answer({{"verb", "volume-create"}, {"name", "v"}, {"size_bytes", 4096}}),
            R"({"id":5})");
  EXPECT_EQ(Answer({{"verb", "volume-list"}}),
            R"([{"name":"disk","id":9,"size_bytes":5000,"allocated_bytes":4096},)"
            R"({"name":"other","id":2,"size_bytes":1,"allocated_bytes":0}])");
  EXPECT_EQ(Answer({{"verb", "volume-resize"}, {"name", "disk"}, {"size_bytes", 77}}), "null");
  EXPECT_EQ(Answer({{"verb", "volume-delete"}, {"name", "other"}}), "null");
  const Words asked = {"create v 4096", "resize 9 77", "delete 2 other"};
  EXPECT_EQ(array_.asked, asked);
  for (const char* verb : {"volume-create", "volume-resize"}) {
    ExpectRefused({{"verb", verb}, {"size_bytes", 1}}, ErrorCode::kInvalidArgument);
    ExpectRefused({{"verb", verb}, {"name", "disk"}}, ErrorCode::kInvalidArgument);
    ExpectRefused({{"verb", verb}, {"name", "disk"}, {"size_bytes", 1.5}},
                  ErrorCode::kInvalidArgument);
  }
  ExpectRefused({{"verb", "volume-delete"}}, ErrorCode::kInvalidArgument);
  for (const char* verb : {"volume-resize", "volume-delete"}) {
    const Result<Json> missing = Ask({{"verb", verb}, {"name", "none"}, {"size_bytes", 1}});
    ASSERT_FALSE(missing.ok()) << verb;
    EXPECT_EQ(missing.error().code, ErrorCode::kNotFound) << verb;
    EXPECT_EQ(missing.error().message, "no volume is called none") << verb;
  }
  EXPECT_EQ(array_.asked, asked);
}

// ---- devices that join

Json Replace() {
  return {{"verb", "replace"}, {"device", 1}, {"path", "/dev/new"}, {"identity", kIdentity}};
}

TEST_F(Verbs, AReplacementIsOpenedTakenInAndLetGo) {
  EXPECT_EQ(Answer(Replace()),
            R"({"unwritten":"the process that serves the array keeps no list of its devices"})");
  EXPECT_EQ(array_.asked, Words{"replace 1 /dev/new"});
  const Words done = {"open /dev/new 1 31 32", "close /dev/new"};
  EXPECT_EQ(done_, done);
  array_.answer = Fail(ErrorCode::kInvalidArgument, "log0 is not lost");
  EXPECT_EQ(Answer(Replace()), "refused: log0 is not lost");
  EXPECT_EQ(done_.size(), 4U) << "it is let go then, too";
  opens_ = Fail(ErrorCode::kBusy, "another is there by now");
  ExpectRefused(Replace(), ErrorCode::kBusy);
  EXPECT_EQ(done_.size(), 5U);
  EXPECT_EQ(array_.asked.size(), 2U);
}

TEST_F(Verbs, HalfAReplacementIsNotOpened) {
  for (const char* lacking : {"device", "path", "identity"}) {
    Json request = Replace();
    request.erase(lacking);
    ExpectRefused(request, ErrorCode::kInvalidArgument);
  }
  Json request = Replace();
  request["path"] = 7;
  ExpectRefused(request, ErrorCode::kInvalidArgument);
  EXPECT_EQ(done_, Words{});
  verbs_.reset();
  owner_.open = nullptr;
  ExpectRefused(Replace(), ErrorCode::kInvalidArgument);
}

TEST_F(Verbs, SparesAreKeptByTheirKeeper) {
  NotedShelf shelf;
  SpareKeeper keeper(*loop_, array_, shelf, {});
  spares_ = &keeper;
  EXPECT_EQ(Answer({{"verb", "spare-add"}, {"path", "/spare"}, {"identity", kIdentity}}), "null");
  const Result<Json> status = Ask({{"verb", "status"}});
  ASSERT_EQ((*status)["devices"].size(), 3U);
  EXPECT_EQ((*status)["devices"][2]["name"], "spare0");
  EXPECT_EQ((*status)["devices"][2]["path"], "/spare");
  EXPECT_EQ(Answer(Replace()), R"({"unwritten":""})");
  EXPECT_EQ(Answer({{"verb", "spare-remove"}, {"path", "/spare"}}), "null");
  const Words asked = {"add /spare 32", "log0 is at /dev/new", "remove /spare"};
  EXPECT_EQ(shelf.asked, asked);
  shelf.answer = Fail(ErrorCode::kNoSpace, "array.toml: no space");
  EXPECT_EQ(Answer(Replace()), R"({"unwritten":"array.toml: no space"})");
  ExpectRefused({{"verb", "spare-add"}, {"path", "/b"}, {"identity", kIdentity}},
                ErrorCode::kNoSpace);
  ExpectRefused({{"verb", "spare-remove"}, {"path", "/b"}}, ErrorCode::kNoSpace);
  ExpectRefused({{"verb", "spare-add"}, {"path", "/b"}}, ErrorCode::kInvalidArgument);
  ExpectRefused({{"verb", "spare-add"}, {"identity", kIdentity}}, ErrorCode::kInvalidArgument);
  ExpectRefused({{"verb", "spare-remove"}, {"path", 7}}, ErrorCode::kInvalidArgument);
  EXPECT_EQ(shelf.asked.size(), 6U);
}

TEST_F(Verbs, WithoutSparesThereIsNothingToAdd) {
  ExpectRefused({{"verb", "spare-add"}, {"path", "/b"}, {"identity", kIdentity}},
                ErrorCode::kUnsupported);
  ExpectRefused({{"verb", "spare-remove"}, {"path", "/b"}}, ErrorCode::kUnsupported);
}

// ---- faults to rehearse with

TEST_F(Verbs, FaultsGoToTheirDevice) {
  EXPECT_EQ(Answer({{"verb", "inject"},
                    {"device", 0},
                    {"read_error_rate", 0.25},
                    {"write_error_rate", 1},
                    {"corrupt", 3},
                    {"misdirect", 4},
                    {"slow_us", 5},
                    {"hang", true}}),
            "null");
  EXPECT_EQ(done_, Words{"inject /dev/a"});
  EXPECT_EQ(injection_.read_error_rate, 0.25);
  EXPECT_EQ(injection_.write_error_rate, 1.0);
  EXPECT_EQ(injection_.corrupt, 3U);
  EXPECT_EQ(injection_.misdirect, 4U);
  EXPECT_EQ(injection_.slow_us, 5U);
  EXPECT_TRUE(injection_.hang);
  EXPECT_FALSE(injection_.drop);
  EXPECT_EQ(Answer({{"verb", "inject"},
                    {"device", 0},
                    {"drop", true},
                    {"hang", 1},
                    {"corrupt", -1},
                    {"read_error_rate", "1"}}),
            "null");
  EXPECT_TRUE(injection_.drop);
  EXPECT_FALSE(injection_.hang) << "what is of another kind says nothing";
  EXPECT_EQ(injection_.corrupt + injection_.misdirect + injection_.slow_us, 0U);
  EXPECT_EQ(injection_.read_error_rate + injection_.write_error_rate, 0.0);
}

TEST_F(Verbs, WithoutADeviceFaultsAreCleared) {
  EXPECT_EQ(Answer({{"verb", "inject"}, {"hang", true}, {"drop", true}}), "null");
  EXPECT_EQ(done_, Words{"inject "}) << "everywhere";
  EXPECT_FALSE(injection_.hang || injection_.drop);
  ExpectRefused({{"verb", "inject"}, {"device", "x"}}, ErrorCode::kInvalidArgument);
  ExpectRefused({{"verb", "inject"}, {"device", 1}}, ErrorCode::kNotFound);  // it is missing
  ExpectRefused({{"verb", "inject"}, {"device", 2}}, ErrorCode::kNotFound);
  EXPECT_EQ(done_.size(), 1U);
  verbs_.reset();
  owner_.inject = nullptr;
  ExpectRefused({{"verb", "inject"}}, ErrorCode::kUnsupported);
}

// ---- refusals

TEST_F(Verbs, WhatTheArrayRefusesIsRefused) {
  array_.answer = Fail(ErrorCode::kTooManyFailures, "wanted");
  for (const Json& request :
       {Json{{"verb", "lost"}}, Json{{"verb", "commit"}}, Json{{"verb", "checkpoint"}},
        Json{{"verb", "discard"}}, Json{{"verb", "scrub"}}, Json{{"verb", "fail"}, {"device", 0}},
        Replace(), Json{{"verb", "plan"}, {"change", "scrub"}}, Json{{"verb", "inject"}},
        Json{{"verb", "buffers"}, {"device_chunks", 1}, {"stripes", 1}},
        Json{{"verb", "volume-create"}, {"name", "v"}, {"size_bytes", 1}},
        Json{{"verb", "volume-resize"}, {"name", "disk"}, {"size_bytes", 1}},
        Json{{"verb", "volume-delete"}, {"name", "disk"}}}) {
    const Result<Json> refused = Ask(request);
    ASSERT_FALSE(refused.ok()) << request.dump();
    EXPECT_EQ(refused.error().code, ErrorCode::kTooManyFailures) << request.dump();
    EXPECT_EQ(refused.error().message, "wanted") << request.dump();
  }
}

// Each hears why the array could not be closed.
TEST_F(Verbs, SeveralMayWaitForTheEnd) {
  std::vector<std::string> told;
  const auto wait = [this, &told]() -> Task<void> {
    Task<Result<Json>> asking = verbs().Run({{"verb", "umount"}}, ProgressSink());
    const Result<Json> answer = co_await asking;
    told.push_back(answer.ok() ? "well" : answer.error().message);
  };
  bool served = false;
  const auto serve = [this, &served]() -> Task<void> {
    Task<void> serving = fuse_->Serve();  // or nobody could look at the mount to unmount it
    co_await serving;
    served = true;
  };
  loop_->Spawn(serve());
  loop_->Spawn(wait());
  loop_->Spawn(wait());
  ASSERT_TRUE(loop_->RunUntil([&served] { return served; }));
  EXPECT_TRUE(told.empty());
  verbs().Closed(Fail(ErrorCode::kIo, "the last checkpoint failed"));
  ASSERT_TRUE(loop_->RunUntil([&told] { return told.size() == 2; }));
  EXPECT_EQ(told, Words(2, "the last checkpoint failed"));
}

TEST_F(Verbs, OfAClosedArrayNothingIsAsked) {
  verbs().Closed(OkStatus());
  ExpectRefused({{"verb", "status"}}, ErrorCode::kShutdown);
  ExpectRefused({{"verb", "fail"}, {"device", 0}}, ErrorCode::kShutdown);
  const Result<Json> unknown = Ask({{"verb", "dance"}});
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(unknown.error().message.find("dance"), std::string::npos);
  EXPECT_TRUE(array_.asked.empty());
}

}  // namespace
}  // namespace eplog
