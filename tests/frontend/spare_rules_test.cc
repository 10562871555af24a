// When a spare steps in and when not, and what is said of it.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "device/memory_device.h"
#include "frontend/spare_keeper.h"
#include "runtime/virtual_loop.h"
#include "tests/runtime/await.h"
#include "tests/support/asked_array.h"

namespace eplog {
namespace {

// Devices by path; those of 8192 bytes fit an SSD, all fit a log device.
class Shelf final : public SpareShelf {
 public:
  std::map<std::string, std::unique_ptr<MemoryDevice>> devices;
  std::vector<std::string> listed;
  std::vector<std::string> asked;
  std::map<std::string, int> looks;
  Status written;               // the list
  std::set<std::string> wiped;  // those that do not say that they are spares

  void Put(const std::string& path, uint64_t size_bytes) {
    devices[path] = std::make_unique<MemoryDevice>(path, size_bytes);
    listed.push_back(path);
  }
  [[nodiscard]] std::vector<std::string> Listed() const override { return listed; }
  Task<Result<SpareDevice>> Open(std::string path) override {
    ++looks[path];
    const auto found = devices.find(path);
    if (found == devices.end()) {
      co_return Fail(ErrorCode::kNotFound, "there is no " + path);
    }
    co_return SpareDevice{found->second.get(), found->second->size_bytes() >= 8192, true,
                          wiped.contains(path)};
  }
  Task<Result<SpareDevice>> Add(std::string path, DeviceIdentity /*looked_at*/) override {
    asked.push_back("add " + path);
    return Open(std::move(path));
  }
  void Close(const std::string& path) override { asked.push_back("close " + path); }
  Task<Status> PutBack(std::string path) override {
    asked.push_back("put back " + path);
    co_return OkStatus();
  }
  Task<Status> Remove(std::string path) override {
    asked.push_back("remove " + path);
    std::erase(listed, path);
    co_return OkStatus();
  }
  Task<Status> Joined(std::string member, std::string path) override {
    asked.push_back(member + " is at " + path);
    std::erase(listed, path);
    co_return written;
  }
};

// A 2+2 array: ssd0 ... ssd3, log0, log1.
class SpareRules : public testing::Test {
 protected:
  SpareRules() {
    array_.status.parity_chunks = 2;
    for (int i = 0; i < 6; ++i) {
      DeviceStatus device;
      device.name = i < 4 ? "ssd" + std::to_string(i) : "log" + std::to_string(i - 4);
      device.path = "/member/" + device.name;
      device.role = i < 4 ? DeviceRole::kSsd : DeviceRole::kLog;
      array_.status.devices.push_back(std::move(device));
    }
  }
  ~SpareRules() override { test::Await(loop_, keeper_.Stop()); }

  void Settle() {
    test::Await(loop_,
                [](VirtualLoop& loop) -> Task<void> { co_await loop.Sleep(100'000); }(loop_));
  }
  void Start() {
    loop_.Spawn(keeper_.Run());
    Settle();
  }
  void Happens(EventKind kind) {
    ArrayEvent event;
    event.kind = kind;
    keeper_.Notice(event);
    Settle();
  }
  void Lose(uint32_t device) { array_.status.devices[device].state = DeviceState::kFailed; }

  using Words = std::vector<std::string>;

  VirtualLoop loop_;
  AskedArray array_;
  Shelf shelf_;
  Words told_;
  SpareKeeper keeper_{loop_, array_, shelf_, [this](const ArrayEvent& event) {
                        told_.push_back(std::string(EventKindName(event.kind)) + " " +
                                        event.device + ": " + event.text);
                      }};
};

TEST_F(SpareRules, SaysWhoSteppedInForWhom) {
  shelf_.Put("/a", 8192);
  Lose(1);
  Start();
  EXPECT_EQ(array_.asked, Words{"replace 1 /a"});
  EXPECT_EQ(shelf_.asked, Words{"ssd1 is at /a"});
  EXPECT_EQ(told_,
            Words{"spare_joined ssd1: the spare /a has stepped in for ssd1 and is being rebuilt"});
}

TEST_F(SpareRules, SaysThatNoneIsLeft) {
  shelf_.Put("/small", 4096);
  Lose(1);
  Start();
  EXPECT_EQ(told_, Words{"no_spare ssd1: no spare is left that fits ssd1: replace it, or add one"});
  // Of one that is well again and lost once more it is said once more.
  array_.status.devices[1].state = DeviceState::kOk;
  Happens(EventKind::kRebuildStarted);
  Lose(1);
  Happens(EventKind::kDeviceFailed);
  EXPECT_EQ(told_.size(), 2U);
}

TEST_F(SpareRules, SaysWhySomeSpareCannotStepIn) {
  shelf_.Put("/a", 8192);
  Start();
  const auto away = std::move(shelf_.devices["/a"]);
  shelf_.devices.clear();
  Lose(1);
  Happens(EventKind::kDeviceFailed);
  EXPECT_EQ(told_, (Words{"spare_failed ssd1: the spare /a cannot step in for ssd1: there is no /a",
                          "no_spare ssd1: no spare is left that fits ssd1: replace it, or add "
                          "one"}));
}

TEST_F(SpareRules, SaysWhyASpareFailed) {
  shelf_.Put("/a", 8192);
  array_.answer = Fail(ErrorCode::kIo, "/a: write failed");
  Lose(1);
  Start();
  EXPECT_EQ(told_.front(),
            "spare_failed ssd1: the spare /a failed when it was to step in for ssd1: /a: write "
            "failed");
  EXPECT_EQ(keeper_.List().front().state, DeviceState::kFailed);
  EXPECT_EQ(keeper_.List().front().failed_because, "/a: write failed");
  EXPECT_EQ(keeper_.List().front().size_bytes, 0U) << "it is not open any more";
}

TEST_F(SpareRules, SaysWhichHadSteppedInAlready) {
  shelf_.Put("/a", 8192);
  array_.status.devices[5].path = "/a";
  Start();
  EXPECT_EQ(told_, Words{"spare_joined log1: the spare /a had stepped in for log1 already"});
  EXPECT_EQ(shelf_.asked, Words{"log1 is at /a"});
}

TEST_F(SpareRules, APathWhoseMemberIsLostIsThatOfASpare) {
  shelf_.Put("/a", 8192);
  array_.status.devices[5].path = "/a";
  Lose(5);
  Start();
  EXPECT_EQ(array_.asked, Words{"replace 5 /a"});
}

// ---- which

TEST_F(SpareRules, OfEqualOnesTheFirstIsTaken) {
  shelf_.Put("/large", 16384);
  shelf_.Put("/b", 8192);
  shelf_.Put("/a", 8192);
  Lose(0);
  Start();
  EXPECT_EQ(array_.asked, Words{"replace 0 /b"});
}

TEST_F(SpareRules, ALogDeviceTakesWhatIsTooSmallForAnSsd) {
  shelf_.Put("/large", 8192);
  shelf_.Put("/small", 4096);
  Lose(4);
  Start();
  EXPECT_EQ(array_.asked, Words{"replace 4 /small"});
}

// ---- when

TEST_F(SpareRules, AsManyMayBeLostAsParityReplaces) {
  shelf_.Put("/a", 8192);
  Lose(0);
  Lose(1);
  Lose(4);
  Start();
  EXPECT_TRUE(array_.asked.empty());
  array_.status.devices[0].state = DeviceState::kOk;
  Happens(EventKind::kRebuildStarted);
  EXPECT_EQ(array_.asked, Words{"replace 1 /a"});
}

TEST_F(SpareRules, IntoAnArrayThatIsReadOnlyOrHasStoppedNoneSteps) {
  shelf_.Put("/a", 8192);
  Lose(0);
  array_.status.read_only = true;
  Start();
  EXPECT_TRUE(array_.asked.empty());
  array_.status.read_only = false;
  array_.status.stopped_because = "it is full";
  Happens(EventKind::kDeviceFailed);
  EXPECT_TRUE(array_.asked.empty());
  EXPECT_TRUE(told_.empty());
  array_.status.stopped_because.clear();
  Happens(EventKind::kDeviceFailed);
  EXPECT_EQ(array_.asked, Words{"replace 0 /a"});
}

TEST_F(SpareRules, OnlyLossesAndReplacementsMakeItLookAgain) {
  shelf_.listed = {"/missing"};
  Start();
  EXPECT_EQ(shelf_.looks["/missing"], 1);
  for (const EventKind kind :
       {EventKind::kDegraded, EventKind::kStopped, EventKind::kRebuildFinished,
        EventKind::kCorruptionHealed, EventKind::kCorruptionLost, EventKind::kSpaceLow,
        EventKind::kSlowDevice, EventKind::kSpareJoined, EventKind::kCommitBehind,
        EventKind::kScrubFinished, EventKind::kWritesDropped}) {
    Happens(kind);
    EXPECT_EQ(shelf_.looks["/missing"], 1) << EventKindName(kind);
  }
  int looks = 1;
  for (const EventKind kind :
       {EventKind::kDeviceFailed, EventKind::kLogDeviceLost, EventKind::kRebuildStarted}) {
    Happens(kind);
    EXPECT_EQ(shelf_.looks["/missing"], ++looks) << EventKindName(kind);
  }
}

// ---- by hand

TEST_F(SpareRules, AMemberIsNoSpare) {
  Start();
  shelf_.Put("/member/ssd0", 8192);
  const Status refused = test::Await(loop_, keeper_.Add("/member/ssd0", {}));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kExists);
  EXPECT_EQ(refused.error().message, "/member/ssd0 is ssd0 of this array");
  EXPECT_EQ(test::Await(loop_, keeper_.Remove("/member/log1")).error().code, ErrorCode::kExists);
  EXPECT_TRUE(shelf_.asked.empty());
}

TEST_F(SpareRules, OneThatFailsInTheHandIsGivenUp) {
  shelf_.Put("/a", 8192);
  Start();
  Device& a = *shelf_.devices["/a"];
  Lose(0);
  array_.answer = Fail(ErrorCode::kIo, "/a: write failed");
  const auto failed = test::Await(loop_, keeper_.Replace(0, a));
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, ErrorCode::kIo);
  EXPECT_EQ(shelf_.asked, Words{"close /a"});
  EXPECT_EQ(keeper_.PathOf(a), "");
  const auto unknown = test::Await(loop_, keeper_.Replace(6, a));
  EXPECT_FALSE(unknown.ok());
}

TEST_F(SpareRules, ADeviceThatThereIsNotIsNotReplaced) {
  shelf_.Put("/a", 8192);
  Start();
  const auto refused = test::Await(loop_, keeper_.Replace(6, *shelf_.devices["/a"]));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_TRUE(array_.asked.empty());
  EXPECT_EQ(keeper_.PathOf(*shelf_.devices["/a"]), "/a") << "a spare still";
}

// Nobody is blamed: what the spare is now the next opening sees.
TEST_F(SpareRules, WhatGoesWrongBecauseTheArrayStopsIsNoFaultOfTheSpare) {
  shelf_.Put("/a", 8192);
  Start();
  Device& a = *shelf_.devices["/a"];
  array_.answer = Fail(ErrorCode::kShutdown, "the array has stopped");
  array_.status.stopped_because = "it is full";
  Lose(0);
  EXPECT_EQ(test::Await(loop_, keeper_.Replace(0, a)).error().code, ErrorCode::kShutdown);
  EXPECT_TRUE(told_.empty());
  EXPECT_EQ(keeper_.List().front().failed_because, "the array has stopped");
  EXPECT_EQ(shelf_.asked, Words{"close /a"});
}

TEST_F(SpareRules, AfterTheEndNothingIsDoneByHandEither) {
  shelf_.Put("/a", 8192);
  Start();
  test::Await(loop_, keeper_.Stop());
  MemoryDevice other("/other", 8192);
  EXPECT_EQ(test::Await(loop_, keeper_.Add("/b", {})).error().code, ErrorCode::kShutdown);
  EXPECT_EQ(test::Await(loop_, keeper_.Remove("/a")).error().code, ErrorCode::kShutdown);
  EXPECT_EQ(test::Await(loop_, keeper_.Replace(0, other)).error().code, ErrorCode::kShutdown);
  EXPECT_TRUE(array_.asked.empty() && shelf_.asked.empty());
}

TEST_F(SpareRules, TheListNumbersThem) {
  shelf_.Put("/a", 8192);
  shelf_.listed.push_back("/missing");
  shelf_.Put("/b", 4096);
  Start();
  const auto list = keeper_.List();
  ASSERT_EQ(list.size(), 3U);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(list[i].name, "spare" + std::to_string(i));
    EXPECT_EQ(list[i].role, DeviceRole::kSpare);
  }
  EXPECT_EQ(list[0].size_bytes, 8192U);
  EXPECT_EQ(list[0].direct, shelf_.devices["/a"]->capabilities().direct);
  EXPECT_EQ(list[0].failed_because, "");
  EXPECT_EQ(list[1].path, "/missing");
  EXPECT_EQ(list[1].state, DeviceState::kMissing);
  EXPECT_EQ(list[2].path, "/b");
}

// ---- what cannot be written down

TEST_F(SpareRules, WhatCannotBeWrittenDownIsSaidWithWhatHappened) {
  shelf_.Put("/a", 8192);
  array_.status.devices[5].path = "/a";
  shelf_.written = Fail(ErrorCode::kNoSpace, "array.toml: no space");
  Start();
  EXPECT_EQ(told_, Words{"spare_joined log1: the spare /a had stepped in for log1 already; "
                         "array.toml: no space"});
  // And to who chose one by hand.
  shelf_.Put("/b", 8192);
  ASSERT_TRUE(test::Await(loop_, keeper_.Add("/b", {})).ok());
  Lose(0);
  const auto unwritten = test::Await(loop_, keeper_.Replace(0, *shelf_.devices["/b"]));
  ASSERT_TRUE(unwritten.ok());
  EXPECT_EQ(*unwritten, "array.toml: no space");
  shelf_.written = OkStatus();
  shelf_.Put("/c", 8192);
  ASSERT_TRUE(test::Await(loop_, keeper_.Add("/c", {})).ok());
  Lose(1);
  const auto written = test::Await(loop_, keeper_.Replace(1, *shelf_.devices["/c"]));
  ASSERT_TRUE(written.ok());
  EXPECT_EQ(*written, "");
}

// ---- added

TEST_F(SpareRules, OneThatWasMissingIsAddedInItsPlace) {
  shelf_.listed = {"/late"};
  Start();
  EXPECT_EQ(keeper_.List().front().state, DeviceState::kMissing);
  shelf_.devices["/late"] = std::make_unique<MemoryDevice>("/late", 8192);
  ASSERT_TRUE(test::Await(loop_, keeper_.Add("/late", {})).ok());
  ASSERT_EQ(keeper_.List().size(), 1U);
  EXPECT_EQ(keeper_.List().front().state, DeviceState::kOk);
  EXPECT_EQ(keeper_.List().front().failed_because, "");
}

TEST_F(SpareRules, WhatTheArrayHasGivenUpMayComeBackAsASpare) {
  Start();
  Lose(0);
  shelf_.devices["/member/ssd0"] = std::make_unique<MemoryDevice>("/member/ssd0", 8192);
  ASSERT_TRUE(test::Await(loop_, keeper_.Add("/member/ssd0", {})).ok());
  Settle();
  EXPECT_EQ(array_.asked, Words{"replace 0 /member/ssd0"});
}

// Who adds one may have put another in again, too.
TEST_F(SpareRules, WhenOneIsAddedThoseThatAreMissingAreLookedAtAgain) {
  shelf_.listed = {"/late"};
  Start();
  shelf_.devices["/late"] = std::make_unique<MemoryDevice>("/late", 8192);
  shelf_.devices["/b"] = std::make_unique<MemoryDevice>("/b", 8192);
  ASSERT_TRUE(test::Await(loop_, keeper_.Add("/b", {})).ok());
  Settle();
  EXPECT_EQ(shelf_.looks["/late"], 2);
  EXPECT_EQ(keeper_.List().front().state, DeviceState::kOk);
}

// A path is only a name of it: what is a member is nobody's to mark.
TEST_F(SpareRules, AListedDeviceThatIsAMemberByAnotherNameIsLetGo) {
  shelf_.listed = {"/by-id/a"};
  shelf_.devices["/by-id/a"] = std::make_unique<MemoryDevice>("/dev/a", 8192);
  shelf_.wiped = {"/by-id/a"};
  Device& a = *shelf_.devices["/by-id/a"];
  array_.held = {&a};
  Start();
  EXPECT_EQ(shelf_.asked, Words{"close /by-id/a"});
  EXPECT_EQ(keeper_.PathOf(a), "");
  EXPECT_EQ(keeper_.List().front().state, DeviceState::kMissing);
}

// ---- the end

TEST_F(SpareRules, TheEndIsWhenItHasEnded) {
  bool ended = false;
  loop_.Spawn(test::SetFlag(keeper_.Run(), &ended));
  Settle();
  EXPECT_FALSE(ended);
  bool ended_first = false;
  test::Await(loop_, [](SpareKeeper& keeper, const bool& run, bool& first) -> Task<void> {
    Task<void> stopping = keeper.Stop();
    co_await stopping;
    first = run;
  }(keeper_, ended, ended_first));
  EXPECT_TRUE(ended_first);
}

TEST(SparesOfNobody, NeedNotBeToldOf) {
  VirtualLoop loop;
  AskedArray array;
  array.status.parity_chunks = 1;
  array.status.devices.resize(1);
  array.status.devices[0].state = DeviceState::kFailed;
  Shelf shelf;
  shelf.Put("/a", 8192);
  SpareKeeper keeper(loop, array, shelf, {});
  loop.Spawn(keeper.Run());
  test::Await(loop, keeper.Looked(UINT64_MAX));
  test::Await(loop, keeper.Stop());
  EXPECT_EQ(shelf.asked.size(), 1U);
}

}  // namespace
}  // namespace eplog
