#include "frontend/spare_keeper.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "device/memory_device.h"
#include "runtime/virtual_loop.h"
#include "tests/runtime/await.h"
#include "tests/support/fake_array.h"

namespace eplog {
namespace {

constexpr uint64_t kSsdBytes = uint64_t{1} << 20;
constexpr uint64_t kLogBytes = uint64_t{1} << 18;

// Devices by path, and what an array.toml would say.
class FakeShelf final : public SpareShelf {
 public:
  explicit FakeShelf(EventLoop& loop) : loop_(loop) {}

  std::map<std::string, std::unique_ptr<MemoryDevice>> devices;  // those that are there
  std::vector<std::string> listed;
  std::vector<std::pair<std::string, std::string>> joined;
  std::vector<std::string> put_back;
  std::vector<std::string> closed;
  std::set<std::string> wiped;  // those that do not say that they are spares
  std::set<std::string> hangs;  // those that cannot be opened, and of which nobody says so
  std::map<std::string, int> looks;
  Status write_result;
  Status mark_result;
  Status unlist_result;
  Status wipe_result;  // when it is not listed any more

  Device* Put(const std::string& path, uint64_t size_bytes) {
    auto& device = devices[path];
    device = std::make_unique<MemoryDevice>(path, size_bytes);
    return device.get();
  }

  [[nodiscard]] std::vector<std::string> Listed() const override { return listed; }
  Task<Result<SpareDevice>> Open(std::string path) override {
    ++looks[path];
    co_await loop_.Yield();
    while (hangs.contains(path)) {
      co_await loop_.Sleep(1000);
    }
    const auto found = devices.find(path);
    if (found == devices.end()) {
      co_return Fail(ErrorCode::kNotFound, "there is no " + path);
    }
    const uint64_t size = found->second->size_bytes();
    co_return SpareDevice{found->second.get(), size >= kSsdBytes, size >= kLogBytes,
                          wiped.contains(path)};
  }
  Task<Result<SpareDevice>> Add(std::string path, DeviceIdentity looked_at) override {
    const auto found = devices.find(path);
    if (found != devices.end() && found->second->identity() != looked_at) {
      co_return Fail(ErrorCode::kBusy, path + " is not the device that was looked at");
    }
    listed.push_back(path);
    Task<Result<SpareDevice>> opening = Open(std::move(path));
    co_return co_await opening;
  }
  void Close(const std::string& path) override { closed.push_back(path); }
  Task<Status> PutBack(std::string path) override {
    wiped.erase(path);
    put_back.push_back(std::move(path));
    co_return mark_result;
  }
  Task<Status> Remove(std::string path) override {
    co_await loop_.Yield();
    if (!unlist_result.ok()) {
      co_return unlist_result;
    }
    if (std::erase(listed, path) == 0) {
      co_return Fail(ErrorCode::kNotFound, path + " is no spare");
    }
    co_return wipe_result;
  }
  Task<Status> Joined(std::string member, std::string path) override {
    co_await loop_.Yield();
    std::erase(listed, path);
    joined.emplace_back(std::move(member), std::move(path));
    co_return write_result;
  }

 private:
  EventLoop& loop_;
};

// A 4+2 array.
class SpareKeeperTest : public testing::Test {
 protected:
  SpareKeeperTest() {
    for (int i = 0; i < 8; ++i) {
      DeviceStatus device;
      device.name = i < 6 ? "ssd" + std::to_string(i) : "log" + std::to_string(i - 6);
      device.path = "/member/" + device.name;
      device.role = i < 6 ? DeviceRole::kSsd : DeviceRole::kLog;
      array_.devices.push_back(std::move(device));
    }
    array_.on_replace = [this](uint32_t device, Device& replacement) {
      return Replace(device, replacement);
    };
  }
  ~SpareKeeperTest() override {
    shelf_.hangs.clear();
    test::Await(loop_, keeper_.Stop());
  }

  Task<Status> Replace(uint32_t device, Device& replacement) {
    co_await loop_.Sleep(1000);
    DeviceStatus& status = array_.devices[device];
    if (!outcome_.ok()) {
      Status failed = std::exchange(outcome_, OkStatus());
      if (failed.error().code == ErrorCode::kBusy) {
        status.state = DeviceState::kRebuilding;  // somebody else's
      }
      co_return failed;
    }
    replaced_.emplace_back(device, replacement.name());
    taken_ = &replacement;
    status.state = DeviceState::kRebuilding;
    status.path = replacement.name();
    co_return OkStatus();
  }

  void Lose(uint32_t device, DeviceState state = DeviceState::kFailed) {
    array_.devices[device].state = state;
    ArrayEvent event;
    event.kind = device < 6 ? EventKind::kDeviceFailed : EventKind::kLogDeviceLost;
    event.device = array_.devices[device].name;
    keeper_.Notice(event);
  }
  Task<void> Turn() { co_await loop_.Sleep(100'000); }
  // A verb, beside all else; its end is noted.
  static Task<void> Note(Task<Status> verb, std::optional<Status>* ended) {
    *ended = co_await verb;
  }
  void Settle() { test::Await(loop_, Turn()); }
  void Start() {
    loop_.Spawn(keeper_.Run());
    Settle();
  }
  [[nodiscard]] std::string Told() const {
    std::string told;
    for (const ArrayEvent& event : events_) {
      told += std::string(told.empty() ? "" : " ") + EventKindName(event.kind) + ":" + event.device;
    }
    return told;
  }
  [[nodiscard]] bool Has(const std::string& path) const {
    const auto list = keeper_.List();
    return std::any_of(list.begin(), list.end(), [&](const DeviceStatus& spare) {
      return spare.path == path && spare.state == DeviceState::kOk;
    });
  }
  Status Add(const std::string& path) {
    const auto there = shelf_.devices.find(path);
    return test::Await(
        loop_, keeper_.Add(path, there == shelf_.devices.end() ? DeviceIdentity()
                                                               : there->second->identity()));
  }
  void List(const std::string& path, uint64_t size_bytes) {
    shelf_.Put(path, size_bytes);
    shelf_.listed.push_back(path);
  }

  using Pairs = std::vector<std::pair<uint32_t, std::string>>;

  VirtualLoop loop_;
  FakeArray array_{loop_};
  FakeShelf shelf_{loop_};
  Status outcome_;  // of the next replacement
  Pairs replaced_;
  const Device* taken_ = nullptr;  // the last replacement
  std::vector<ArrayEvent> events_;
  SpareKeeper keeper_{loop_, array_, shelf_,
                      [this](const ArrayEvent& event) { events_.push_back(event); }};
};

TEST_F(SpareKeeperTest, LossBringsInTheSmallestThatFits) {
  List("/large", 4 * kSsdBytes);
  List("/fits", kSsdBytes);
  List("/log", kLogBytes);
  Start();
  EXPECT_TRUE(replaced_.empty());
  Lose(3);
  Settle();
  EXPECT_EQ(replaced_, (Pairs{{3, "/fits"}}));
  EXPECT_EQ(shelf_.joined.front(), std::pair(std::string("ssd3"), std::string("/fits")));
  Lose(7);
  Settle();
  EXPECT_EQ(replaced_.back(), (std::pair<uint32_t, std::string>(7, "/log")));
  EXPECT_EQ(Told(), "spare_joined:ssd3 spare_joined:log1");
  EXPECT_NE(events_.front().text.find("/fits"), std::string::npos);
  const auto left = keeper_.List();
  ASSERT_EQ(left.size(), 1U);
  EXPECT_EQ(left.front().name, "spare0");
  EXPECT_EQ(left.front().path, "/large");
  EXPECT_EQ(left.front().role, DeviceRole::kSpare);
  EXPECT_EQ(left.front().state, DeviceState::kOk);
  EXPECT_EQ(left.front().size_bytes, 4 * kSsdBytes);
}

// The one that was open is closed as soon as another is at its path.
TEST_F(SpareKeeperTest, WhatIsLookedAtAgainIsNotShownAsItWas) {
  List("/a", kSsdBytes);
  Start();
  ASSERT_TRUE(Has("/a"));
  shelf_.hangs.insert("/a");
  shelf_.Put("/a", 2 * kSsdBytes);  // the old one is gone
  Lose(0);
  Settle();
  const auto list = keeper_.List();
  ASSERT_EQ(list.size(), 1U);
  EXPECT_EQ(list[0].state, DeviceState::kMissing);
  EXPECT_EQ(list[0].size_bytes, 0U);
  shelf_.hangs.clear();
  Settle();
  EXPECT_EQ(replaced_, (Pairs{{0, "/a"}}));
}

TEST_F(SpareKeeperTest, DegradedArrayIsServedAtOnce) {
  List("/a", kSsdBytes);
  array_.devices[0].state = DeviceState::kMissing;
  array_.devices[0].path.clear();
  Start();
  EXPECT_EQ(replaced_, (Pairs{{0, "/a"}}));
}

TEST_F(SpareKeeperTest, SeveralLossesGetOneEachWhileSparesLast) {
  List("/a", kSsdBytes);
  List("/b", kSsdBytes);
  Start();
  array_.devices[1].state = DeviceState::kFailed;
  Lose(6);
  Settle();
  EXPECT_EQ(replaced_, (Pairs{{1, "/a"}, {6, "/b"}}));
  EXPECT_TRUE(keeper_.List().empty());
  Lose(2);
  Settle();
  EXPECT_EQ(replaced_.size(), 2U);
  EXPECT_EQ(Told(), "spare_joined:ssd1 spare_joined:log0 no_spare:ssd2");
}

TEST_F(SpareKeeperTest, MissingSpareIsToldOnceForEachLoss) {
  List("/log", kLogBytes);
  Start();
  Lose(2);
  Lose(2);
  Settle();
  Lose(2);
  Settle();
  EXPECT_TRUE(replaced_.empty()) << "a log device's size is no use for an SSD";
  EXPECT_EQ(Told(), "no_spare:ssd2");
  shelf_.Put("/new", kSsdBytes);
  ASSERT_TRUE(Add("/new").ok());
  Settle();
  EXPECT_EQ(replaced_, (Pairs{{2, "/new"}})) << "an added one steps in at once";
  shelf_.listed.clear();
  Lose(2);
  Settle();
  EXPECT_EQ(Told(), "no_spare:ssd2 spare_joined:ssd2 no_spare:ssd2");
}

TEST_F(SpareKeeperTest, ArrayWithoutSparesHearsNothing) {
  Start();
  Lose(2);
  Settle();
  EXPECT_TRUE(events_.empty());
}

TEST_F(SpareKeeperTest, SpareThatFailsIsNamedAndTheNextIsTaken) {
  List("/bad", kSsdBytes);
  List("/good", 2 * kSsdBytes);
  Start();
  outcome_ = Fail(ErrorCode::kDeviceFailed, "/bad failed at once");
  Lose(4);
  Settle();
  EXPECT_EQ(replaced_, (Pairs{{4, "/good"}}));
  EXPECT_EQ(Told(), "spare_failed:ssd4 spare_joined:ssd4");
  ASSERT_EQ(keeper_.List().size(), 1U);
  EXPECT_EQ(keeper_.List().front().state, DeviceState::kFailed);
  EXPECT_EQ(keeper_.List().front().failed_because, "/bad failed at once");
  EXPECT_EQ(shelf_.closed, std::vector<std::string>{"/bad"});
  Lose(5);
  Settle();
  EXPECT_EQ(replaced_.size(), 1U) << "a failed one is not tried again";
}

// As another node of a member: nobody wakes the keeper for it to be tried again.
TEST_F(SpareKeeperTest, SpareThatIsADeviceInUseLeavesTheNextItsTurn) {
  List("/node", kSsdBytes);
  List("/good", 2 * kSsdBytes);
  Start();
  outcome_ = Fail(ErrorCode::kExists, "/node is ssd0 by another path, and in use");
  Lose(4);
  Settle();
  EXPECT_EQ(replaced_, (Pairs{{4, "/good"}}));
  EXPECT_EQ(Told(), "spare_failed:ssd4 spare_joined:ssd4");
}

TEST_F(SpareKeeperTest, SomebodyElseWasQuicker) {
  List("/a", kSsdBytes);
  Start();
  outcome_ = Fail(ErrorCode::kBusy, "ssd4 has been replaced by somebody else");
  Lose(4);
  Settle();
  EXPECT_EQ(shelf_.put_back, std::vector<std::string>{"/a"});
  EXPECT_EQ(keeper_.List().front().state, DeviceState::kOk);
  EXPECT_TRUE(events_.empty());
  Lose(1);
  Settle();
  EXPECT_EQ(replaced_, (Pairs{{1, "/a"}}));
}

TEST_F(SpareKeeperTest, SpareThatCannotBePutBackIsClosed) {
  List("/a", kSsdBytes);
  Start();
  outcome_ = Fail(ErrorCode::kBusy, "ssd4 has been replaced by somebody else");
  shelf_.mark_result = Fail(ErrorCode::kIo, "/a: write failed");
  Lose(4);
  Settle();
  EXPECT_EQ(shelf_.put_back, std::vector<std::string>{"/a"});
  EXPECT_EQ(keeper_.List().front().state, DeviceState::kFailed);
  EXPECT_EQ(keeper_.List().front().failed_because, "/a: write failed");
  EXPECT_EQ(shelf_.closed, std::vector<std::string>{"/a"});
}

TEST_F(SpareKeeperTest, RefusedReplacementIsTriedWhenTheOtherIsIn) {
  List("/a", kSsdBytes);
  Start();
  outcome_ = Fail(ErrorCode::kInvalidArgument, "another replacement is just being taken in");
  Lose(4);
  Settle();
  EXPECT_TRUE(replaced_.empty());
  EXPECT_TRUE(shelf_.put_back.empty()) << "nothing was written to it";
  ArrayEvent started;
  started.kind = EventKind::kRebuildStarted;
  keeper_.Notice(started);
  Settle();
  EXPECT_EQ(replaced_, (Pairs{{4, "/a"}}));
}

TEST_F(SpareKeeperTest, NothingStepsInWhenMoreThanParityIsLost) {
  List("/a", kSsdBytes);
  Start();
  array_.devices[0].state = DeviceState::kFailed;
  array_.devices[1].state = DeviceState::kFailed;
  Lose(7);
  Settle();
  EXPECT_TRUE(replaced_.empty());
  EXPECT_TRUE(events_.empty());
}

TEST_F(SpareKeeperTest, MissingSpareIsUsedOnceItIsThere) {
  shelf_.listed.push_back("/late");
  Start();
  ASSERT_EQ(keeper_.List().size(), 1U);
  EXPECT_EQ(keeper_.List().front().state, DeviceState::kMissing);
  EXPECT_EQ(keeper_.List().front().failed_because, "there is no /late");
  EXPECT_FALSE(Has("/late"));
  shelf_.Put("/late", kSsdBytes);
  Lose(0);
  Settle();
  EXPECT_EQ(replaced_, (Pairs{{0, "/late"}}));
}

TEST_F(SpareKeeperTest, SpareThatHangsDelaysNoOther) {
  List("/hangs", kSsdBytes);
  List("/well", 2 * kSsdBytes);
  shelf_.hangs = {"/hangs"};
  array_.devices[0].state = DeviceState::kMissing;
  Start();
  ASSERT_EQ(replaced_, (Pairs{{0, "/well"}}));
  EXPECT_EQ(keeper_.List().front().failed_because, "not looked at yet");
  // Nor does it delay one that is added while it is being opened.
  shelf_.Put("/new", kSsdBytes);
  Lose(1);
  Settle();
  EXPECT_EQ(Told(), "spare_joined:ssd0") << "it may be well, and fit";
  ASSERT_TRUE(Add("/new").ok());
  Settle();
  EXPECT_EQ(replaced_, (Pairs{{0, "/well"}, {1, "/new"}}));
  Lose(2);
  Settle();
  shelf_.hangs.clear();
  Settle();
  EXPECT_EQ(replaced_, (Pairs{{0, "/well"}, {1, "/new"}, {2, "/hangs"}})) << "when it is open";
  EXPECT_EQ(shelf_.looks["/hangs"], 2) << "when it was listed, and before it stepped in";
}

TEST_F(SpareKeeperTest, NoneIsLeftWhenTheLastThatHungIsNotThere) {
  shelf_.listed = {"/gone"};
  shelf_.hangs = {"/gone"};
  array_.devices[0].state = DeviceState::kMissing;
  Start();
  EXPECT_EQ(Told(), "");
  shelf_.hangs.clear();
  Settle();
  EXPECT_EQ(Told(), "no_spare:ssd0");
  EXPECT_EQ(shelf_.looks["/gone"], 1) << "not again before something happens";
  Lose(1);
  Settle();
  EXPECT_EQ(shelf_.looks["/gone"], 2);
}

TEST_F(SpareKeeperTest, VerbsOnASpareThatIsBeingOpenedWait) {
  List("/hangs", kSsdBytes);
  shelf_.hangs = {"/hangs"};
  Start();
  std::optional<Status> removed;
  loop_.Spawn(Note(keeper_.Remove("/hangs"), &removed));
  Settle();
  EXPECT_FALSE(removed);
  shelf_.hangs.clear();
  Settle();
  ASSERT_TRUE(removed);
  EXPECT_TRUE(removed->ok());
  EXPECT_TRUE(keeper_.List().empty());
}

// By hand, while it was being opened as a spare: a spare it is no more, and nothing may say so.
TEST_F(SpareKeeperTest, SpareThatBecameAMemberWhileItWasOpenedIsLetGo) {
  List("/a", kSsdBytes);
  shelf_.hangs = {"/a"};
  shelf_.wiped = {"/a"};
  Start();
  Device& a = *shelf_.devices["/a"];
  array_.devices[0].state = DeviceState::kFailed;
  ASSERT_TRUE(test::Await(loop_, keeper_.Replace(0, a)).ok());
  array_.held.insert(&a);
  shelf_.hangs.clear();
  Settle();
  EXPECT_TRUE(shelf_.put_back.empty());
  EXPECT_EQ(shelf_.closed, std::vector<std::string>{"/a"});
  EXPECT_EQ(shelf_.joined, (std::vector<std::pair<std::string, std::string>>{{"ssd0", "/a"}}));
  EXPECT_TRUE(keeper_.List().empty());
}

// The file of a spare that is open was deleted, and there is another: what went to the deleted one
// would be gone at the next opening.
TEST_F(SpareKeeperTest, WhatIsAtThePathNowStepsIn) {
  List("/a", kSsdBytes);
  Start();
  const auto before = std::move(shelf_.devices["/a"]);
  const Device* const now = shelf_.Put("/a", kSsdBytes);
  EXPECT_EQ(keeper_.PathOf(*before), "/a");
  Lose(3);
  Settle();
  EXPECT_EQ(replaced_, (Pairs{{3, "/a"}}));
  EXPECT_EQ(taken_, now);
}

TEST_F(SpareKeeperTest, SpareThatIsGoneWhenItIsNeededIsNamedAndTheNextIsTaken) {
  List("/gone", kSsdBytes);
  List("/there", 2 * kSsdBytes);
  Start();
  const auto before = std::move(shelf_.devices["/gone"]);
  shelf_.devices.erase("/gone");
  Lose(3);
  Settle();
  EXPECT_EQ(replaced_, (Pairs{{3, "/there"}}));
  EXPECT_EQ(Told(), "spare_failed:ssd3 spare_joined:ssd3");
  EXPECT_EQ(keeper_.List().front().state, DeviceState::kMissing);
}

// Killed between stepping in and writing that down.
TEST_F(SpareKeeperTest, ListedSpareThatIsAMemberIsWrittenDown) {
  List("/a", kSsdBytes);
  array_.devices[3].path = "/a";
  array_.devices[3].state = DeviceState::kRebuilding;
  Start();
  EXPECT_EQ(shelf_.joined.front(), std::pair(std::string("ssd3"), std::string("/a")));
  EXPECT_TRUE(keeper_.List().empty());
  EXPECT_TRUE(replaced_.empty());
  EXPECT_EQ(Told(), "spare_joined:ssd3");
}

TEST_F(SpareKeeperTest, ListThatCannotBeWrittenStopsNothing) {
  List("/a", kSsdBytes);
  Start();
  shelf_.write_result = Fail(ErrorCode::kNoSpace, "array.toml: no space");
  Lose(3);
  Settle();
  EXPECT_EQ(replaced_.size(), 1U);
  EXPECT_EQ(Told(), "spare_joined:ssd3");
  EXPECT_NE(events_.front().text.find("no space"), std::string::npos);
  EXPECT_TRUE(keeper_.List().empty());
  // What is listed still is a member all the same.
  const Status removed = test::Await(loop_, keeper_.Remove("/a"));
  ASSERT_FALSE(removed.ok());
  EXPECT_EQ(removed.error().code, ErrorCode::kExists);
  EXPECT_FALSE(Add("/a").ok());
}

TEST_F(SpareKeeperTest, AddedAndRemoved) {
  Start();
  shelf_.Put("/a", kSsdBytes);
  ASSERT_TRUE(Add("/a").ok());
  EXPECT_TRUE(Has("/a"));
  const Status again = Add("/a");
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.error().code, ErrorCode::kExists);
  ASSERT_TRUE(test::Await(loop_, keeper_.Remove("/a")).ok());
  EXPECT_FALSE(Has("/a"));
  EXPECT_EQ(test::Await(loop_, keeper_.Remove("/a")).error().code, ErrorCode::kNotFound);
  Lose(0);
  Settle();
  EXPECT_TRUE(replaced_.empty());
}

TEST_F(SpareKeeperTest, SpareThatCannotBeTakenFromTheListIsOneStill) {
  List("/a", kSsdBytes);
  Start();
  shelf_.unlist_result = Fail(ErrorCode::kNoSpace, "array.toml: no space");
  EXPECT_FALSE(test::Await(loop_, keeper_.Remove("/a")).ok());
  EXPECT_TRUE(Has("/a"));
}

// The shelf has closed it.
TEST_F(SpareKeeperTest, SpareThatWasTakenFromTheListAndNotWipedIsNone) {
  List("/a", kSsdBytes);
  Start();
  shelf_.wipe_result = Fail(ErrorCode::kIo, "/a: write failed");
  const Status removed = test::Await(loop_, keeper_.Remove("/a"));
  ASSERT_FALSE(removed.ok());
  EXPECT_EQ(removed.error().message, "/a: write failed");
  EXPECT_TRUE(keeper_.List().empty());
}

TEST_F(SpareKeeperTest, RemovingWaitsForOneThatIsSteppingIn) {
  List("/a", kSsdBytes);
  Start();
  Lose(0);
  loop_.Spawn([](SpareKeeper& keeper) -> Task<void> {
    Task<Status> removing = keeper.Remove("/a");
    const Status removed = co_await removing;
    EXPECT_FALSE(removed.ok()) << "it is ssd0 by now";
  }(keeper_));
  Settle();
  EXPECT_EQ(replaced_.size(), 1U);
}

TEST_F(SpareKeeperTest, ChosenByHand) {
  List("/a", kSsdBytes);
  List("/b", kSsdBytes);
  Start();
  Device& b = *shelf_.devices["/b"];
  EXPECT_FALSE(test::Await(loop_, keeper_.Replace(99, b)).ok());
  array_.devices[0].state = DeviceState::kFailed;
  ASSERT_TRUE(test::Await(loop_, keeper_.Replace(0, b)).ok());
  EXPECT_EQ(replaced_, (Pairs{{0, "/b"}}));
  EXPECT_FALSE(Has("/b"));
}

TEST_F(SpareKeeperTest, ChosenByHandThatIsNoSpare) {
  List("/a", kSsdBytes);
  Start();
  MemoryDevice none("/none", kSsdBytes);
  ASSERT_TRUE(test::Await(loop_, keeper_.Replace(0, none)).ok());
  EXPECT_EQ(replaced_, (Pairs{{0, "/none"}}));
  EXPECT_EQ(shelf_.joined, (std::vector<std::pair<std::string, std::string>>{{"ssd0", "/none"}}));
  EXPECT_TRUE(Has("/a"));
  shelf_.write_result = Fail(ErrorCode::kNoSpace, "array.toml: no space");
  const auto unwritten = test::Await(loop_, keeper_.Replace(1, none));
  ASSERT_TRUE(unwritten.ok()) << "it has joined all the same";
  EXPECT_EQ(*unwritten, "array.toml: no space");
}

// It fails before anything is written down: what is written last is what came last.
TEST_F(SpareKeeperTest, ReplacementByHandIsWrittenDownBeforeTheSpareThatTakesItsPlace) {
  List("/a", kSsdBytes);
  Start();
  MemoryDevice none("/none", kSsdBytes);
  array_.on_replace = [this](uint32_t device, Device& replacement) -> Task<Status> {
    Task<Status> replacing = Replace(device, replacement);
    Status replaced = co_await replacing;
    if (replacement.name() == "/none") {
      Lose(device);
    }
    co_return replaced;
  };
  ASSERT_TRUE(test::Await(loop_, keeper_.Replace(3, none)).ok());
  Settle();
  EXPECT_EQ(replaced_, (Pairs{{3, "/none"}, {3, "/a"}}));
  EXPECT_EQ(shelf_.joined,
            (std::vector<std::pair<std::string, std::string>>{{"ssd3", "/none"}, {"ssd3", "/a"}}));
}

TEST_F(SpareKeeperTest, MissingSpareWhosePathAReplacementByHandHasIsOneNoMore) {
  shelf_.listed.push_back("/late");
  Start();
  MemoryDevice late("/late", kSsdBytes);
  ASSERT_TRUE(test::Await(loop_, keeper_.Replace(0, late)).ok());
  EXPECT_TRUE(keeper_.List().empty());
  Settle();
  EXPECT_EQ(shelf_.joined, (std::vector<std::pair<std::string, std::string>>{{"ssd0", "/late"}}));
}

// The chosen spare was looked at, and another has its path when it is to step in.
TEST_F(SpareKeeperTest, ChosenByHandIsWhatWasLookedAt) {
  List("/a", kSsdBytes);
  Start();
  const auto chosen = std::move(shelf_.devices["/a"]);
  const Device* const now = shelf_.Put("/a", kSsdBytes);
  array_.devices[0].state = DeviceState::kFailed;
  const auto refused = test::Await(loop_, keeper_.Replace(0, *chosen));
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("not the device that was looked at"), std::string::npos);
  EXPECT_TRUE(replaced_.empty());
  EXPECT_EQ(keeper_.PathOf(*now), "/a") << "a spare all the same";
}

TEST_F(SpareKeeperTest, WipedSpareIsMadeOneAgain) {
  List("/a", kSsdBytes);
  List("/b", kSsdBytes);
  shelf_.wiped = {"/a"};
  Start();
  EXPECT_EQ(shelf_.put_back, std::vector<std::string>{"/a"});
  EXPECT_TRUE(Has("/a"));
  shelf_.wiped = {"/a"};
  Lose(0);
  Settle();
  EXPECT_EQ(shelf_.put_back, (std::vector<std::string>{"/a", "/a"}));
  EXPECT_EQ(replaced_, (Pairs{{0, "/a"}}));
}

TEST_F(SpareKeeperTest, WipedSpareThatTakesNoWriteIsMissingAndClosed) {
  List("/a", kSsdBytes);
  shelf_.wiped = {"/a"};
  shelf_.mark_result = Fail(ErrorCode::kIo, "/a: write failed");
  Start();
  ASSERT_EQ(keeper_.List().size(), 1U);
  EXPECT_EQ(keeper_.List().front().state, DeviceState::kMissing);
  EXPECT_EQ(keeper_.List().front().failed_because, "/a: write failed");
  EXPECT_EQ(shelf_.closed, std::vector<std::string>{"/a"});
}

TEST_F(SpareKeeperTest, NothingStepsInAfterStop) {
  List("/a", kSsdBytes);
  Start();
  test::Await(loop_, keeper_.Stop());
  Lose(0);
  Settle();
  EXPECT_TRUE(replaced_.empty());
  EXPECT_FALSE(Add("/b").ok());
}

TEST_F(SpareKeeperTest, StopWaitsForOneThatIsSteppingIn) {
  List("/a", kSsdBytes);
  Start();
  Lose(0);
  test::Await(loop_, [](VirtualLoop& loop) -> Task<void> { co_await loop.Sleep(10); }(loop_));
  EXPECT_TRUE(replaced_.empty());
  test::Await(loop_, keeper_.Stop());
  EXPECT_EQ(replaced_.size(), 1U);
  EXPECT_EQ(shelf_.joined.size(), 1U);
}

TEST_F(SpareKeeperTest, StopWaitsForOneThatIsBeingOpened) {
  List("/a", kSsdBytes);
  shelf_.hangs = {"/a"};
  shelf_.wiped = {"/a"};
  Start();
  bool stopped = false;
  loop_.Spawn(test::SetFlag(keeper_.Stop(), &stopped));
  Settle();
  EXPECT_FALSE(stopped) << "what is on its way refers to it";
  shelf_.hangs.clear();
  Settle();
  EXPECT_TRUE(stopped);
  EXPECT_TRUE(shelf_.put_back.empty()) << "nothing is written any more";
}

TEST_F(SpareKeeperTest, LookedWaitsForTheLast) {
  List("/hangs", kSsdBytes);
  List("/well", kSsdBytes);
  shelf_.hangs = {"/hangs"};
  bool looked = false;
  loop_.Spawn(keeper_.Run());
  loop_.Spawn(test::SetFlag(keeper_.Looked(UINT64_MAX), &looked));
  Settle();
  EXPECT_FALSE(looked);
  shelf_.hangs.clear();
  Settle();
  EXPECT_TRUE(looked);
}

TEST_F(SpareKeeperTest, LookedEndsAtItsDeadline) {
  const uint64_t before = loop_.NowUs();
  test::Await(loop_, keeper_.Looked(before + 5000));
  EXPECT_EQ(loop_.NowUs(), before + 5000);
  List("/a", kSsdBytes);
  loop_.Spawn(keeper_.Run());
  test::Await(loop_, keeper_.Looked(before + 1'000'000));
  EXPECT_LT(loop_.NowUs(), before + 1'000'000);
  EXPECT_EQ(keeper_.List().front().state, DeviceState::kOk);
}

}  // namespace
}  // namespace eplog
