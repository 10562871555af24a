// What is on its way when something else happens to spares, or when the array is closed; and what
// is said to who asked for what cannot be.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <span>
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

// Borrowed devices by path, and calls that end when they may.
class HeldShelf final : public SpareShelf {
 public:
  explicit HeldShelf(EventLoop& loop) : loop_(loop) {}

  std::map<std::string, Device*> at;
  std::vector<std::string> listed;
  std::vector<std::string> asked;
  std::map<std::string, int> looks;
  std::string held;  // "open" or "join": it does not end as long as this says so

  [[nodiscard]] std::vector<std::string> Listed() const override { return listed; }
  Task<Result<SpareDevice>> Open(std::string path) override {
    ++looks[path];
    Task<void> holding = Hold("open");
    co_await holding;
    const auto found = at.find(path);
    if (found == at.end()) {
      co_return Fail(ErrorCode::kNotFound, "there is no " + path);
    }
    co_return SpareDevice{found->second, true, true, false};
  }
  Task<Result<SpareDevice>> Add(std::string path, DeviceIdentity /*looked_at*/) override {
    asked.push_back("add " + path);
    listed.push_back(path);
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
    Task<void> holding = Hold("join");
    co_await holding;
    asked.push_back(member + " is at " + path);
    std::erase(listed, path);
    co_return OkStatus();
  }

 private:
  Task<void> Hold(std::string what) {
    while (held == what) {
      co_await loop_.Sleep(1000);
    }
  }

  EventLoop& loop_;
};

// A file on a file system that refused O_DIRECT.
class IndirectDevice final : public Device {
 public:
  IndirectDevice() { capabilities_.direct = false; }
  Task<Status> Read(uint64_t /*offset*/, std::span<const iovec> /*into*/) override {
    return Well();
  }
  Task<Status> Write(uint64_t /*offset*/, std::span<const iovec> /*from*/) override {
    return Well();
  }
  Task<Status> Flush() override { return Well(); }
  Task<Status> Discard(uint64_t /*offset*/, uint64_t /*length*/) override { return Well(); }
  [[nodiscard]] uint64_t size_bytes() const override { return 8192; }
  [[nodiscard]] const DeviceCapabilities& capabilities() const override { return capabilities_; }
  [[nodiscard]] const std::string& name() const override { return name_; }

 private:
  static Task<Status> Well() { co_return OkStatus(); }

  const std::string name_ = "/indirect";
  DeviceCapabilities capabilities_;
};

// A 2+2 array: ssd0 ... ssd3. Devices /0 ... /4, each behind the one before in memory.
class SpareEnds : public testing::Test {
 protected:
  SpareEnds() {
    array_.status.parity_chunks = 2;
    for (int i = 0; i < 4; ++i) {
      DeviceStatus device;
      device.name = "ssd" + std::to_string(i);
      device.path = "/member/" + device.name;
      array_.status.devices.push_back(std::move(device));
    }
    for (MemoryDevice& device : devices_) {
      shelf_.at[device.name()] = &device;
    }
  }
  ~SpareEnds() override {
    shelf_.held.clear();
    test::Await(loop_, keeper_.Stop());
  }

  void Settle() {
    test::Await(loop_,
                [](VirtualLoop& loop) -> Task<void> { co_await loop.Sleep(100'000); }(loop_));
  }
  void Start() {
    loop_.Spawn(keeper_.Run());
    Settle();
  }
  void Lose(uint32_t device) { array_.status.devices[device].state = DeviceState::kFailed; }
  void Happens(EventKind kind) {
    ArrayEvent event;
    event.kind = kind;
    keeper_.Notice(event);
    Settle();
  }
  // A verb, beside all else; its end is noted.
  template <typename T>
  static Task<void> Note(Task<T> verb, std::optional<T>* ended) {
    T result = co_await verb;
    ended->emplace(std::move(result));
  }
  std::string Refusal(Task<Status> verb) {
    const Status status = test::Await(loop_, std::move(verb));
    return status.ok() ? "none" : Said(status.error());
  }
  std::string Refusal(Task<Result<std::string>> verb) {
    const Result<std::string> result = test::Await(loop_, std::move(verb));
    return result.ok() ? "none" : Said(result.error());
  }
  static std::string Said(const Error& error) {
    return std::string(ErrorCodeName(error.code)) + ": " + error.message;
  }

  using Words = std::vector<std::string>;

  VirtualLoop loop_;
  AskedArray array_;
  std::array<MemoryDevice, 5> devices_{
      {{"/0", 8192}, {"/1", 8192}, {"/2", 8192}, {"/3", 8192}, {"/4", 8192}}};
  HeldShelf shelf_{loop_};
  Words told_;
  SpareKeeper keeper_{loop_, array_, shelf_, [this](const ArrayEvent& event) {
                        told_.push_back(std::string(EventKindName(event.kind)) + " " +
                                        event.device + ": " + event.text);
                      }};
};

// What has joined is written down before the array is closed; who waits for his turn is refused.
TEST_F(SpareEnds, TheEndWaitsForWhatIsDoneByHand) {
  Start();
  Lose(0);
  shelf_.held = "join";
  std::optional<Result<std::string>> replaced;
  std::optional<Status> added;
  bool stopped = false;
  loop_.Spawn(Note(keeper_.Replace(0, devices_[4]), &replaced));
  loop_.Spawn(Note(keeper_.Add("/1", {}), &added));
  loop_.Spawn(test::SetFlag(keeper_.Stop(), &stopped));
  Settle();
  EXPECT_FALSE(stopped) << "it has joined, and that is not written down yet";
  EXPECT_FALSE(replaced);
  shelf_.held.clear();
  Settle();
  EXPECT_TRUE(stopped);
  ASSERT_TRUE(replaced && added);
  ASSERT_TRUE(replaced->ok());
  EXPECT_EQ(**replaced, "");
  ASSERT_FALSE(added->ok());
  EXPECT_EQ(added->error().code, ErrorCode::kShutdown);
  EXPECT_EQ(shelf_.asked, Words{"ssd0 is at /4"});
}

// It was taken in by hand meanwhile, and has failed since: the array does not hold it any more.
TEST_F(SpareEnds, OneThatIsNoSpareAnyMoreWhenItComesOpenIsLetGo) {
  shelf_.listed = {"/1"};
  shelf_.held = "open";
  Start();
  Lose(0);
  ASSERT_TRUE(test::Await(loop_, keeper_.Replace(0, devices_[1])).ok());
  Lose(0);
  shelf_.held.clear();
  Settle();
  EXPECT_EQ(shelf_.asked, (Words{"ssd0 is at /1", "close /1"}));
  EXPECT_EQ(keeper_.PathOf(devices_[1]), "");
  EXPECT_TRUE(keeper_.List().empty());
}

TEST_F(SpareEnds, OneThatFailedIsNotOpenedAgain) {
  shelf_.listed = {"/1"};
  Lose(0);
  array_.answer = Fail(ErrorCode::kIo, "/1: write failed");
  Start();
  EXPECT_EQ(shelf_.looks["/1"], 2) << "when it was listed, and before it was to step in";
  array_.answer = OkStatus();
  Happens(EventKind::kDeviceFailed);
  EXPECT_EQ(shelf_.looks["/1"], 2);
  EXPECT_EQ(shelf_.asked, Words{"close /1"});
  ASSERT_EQ(keeper_.List().size(), 1U);
  EXPECT_EQ(keeper_.List().front().state, DeviceState::kFailed);
  EXPECT_EQ(keeper_.List().front().size_bytes, 0U);
  EXPECT_EQ(array_.asked, Words{"replace 0 /1"});
}

// Wherever they lie.
TEST_F(SpareEnds, EachIsKnownByItsOwnPath) {
  shelf_.listed = {"/3", "/1", "/2"};
  Start();
  for (const size_t i : {1U, 2U, 3U}) {
    EXPECT_EQ(keeper_.PathOf(devices_[i]), "/" + std::to_string(i));
  }
  EXPECT_EQ(keeper_.PathOf(devices_[0]), "") << "it is none";
  EXPECT_EQ(keeper_.PathOf(devices_[4]), "");
}

TEST_F(SpareEnds, TheListSaysWhichAreNotDirect) {
  IndirectDevice indirect;
  shelf_.at["/indirect"] = &indirect;
  shelf_.listed = {"/indirect", "/1", "/missing"};
  Start();
  const auto list = keeper_.List();
  ASSERT_EQ(list.size(), 3U);
  EXPECT_FALSE(list[0].direct);
  EXPECT_TRUE(list[1].direct);
  EXPECT_TRUE(list[2].direct) << "of one that is missing nobody knows";
}

// Who has had spares hears that none is left, however short they were there.
TEST_F(SpareEnds, OneThatCameAndWentAtOnceWasThere) {
  Start();
  std::optional<Status> added;
  std::optional<Status> removed;
  loop_.Spawn(Note(keeper_.Add("/1", {}), &added));
  loop_.Spawn(Note(keeper_.Remove("/1"), &removed));
  Settle();
  ASSERT_TRUE(added && removed);
  EXPECT_TRUE(added->ok() && removed->ok());
  EXPECT_TRUE(keeper_.List().empty());
  Lose(2);
  Happens(EventKind::kDeviceFailed);
  EXPECT_EQ(told_, Words{"no_spare ssd2: no spare is left that fits ssd2: replace it, or add one"});
}

// Refused before anything was written to it, or wiped for nothing since another was quicker.
TEST_F(SpareEnds, WhatIsRefusedByHandLeavesASpare) {
  shelf_.listed = {"/1"};
  Start();
  Lose(0);
  array_.answer = Fail(ErrorCode::kInvalidArgument, "another is just being taken in");
  EXPECT_EQ(Refusal(keeper_.Replace(0, devices_[1])),
            "invalid argument: another is just being taken in");
  EXPECT_EQ(shelf_.asked, Words{}) << "nothing was written to it";
  EXPECT_EQ(keeper_.PathOf(devices_[1]), "/1");
  array_.answer = Fail(ErrorCode::kBusy, "ssd0 has been replaced");
  EXPECT_EQ(Refusal(keeper_.Replace(0, devices_[1])), "busy: ssd0 has been replaced");
  EXPECT_EQ(shelf_.asked, Words{"put back /1"});
  EXPECT_EQ(keeper_.PathOf(devices_[1]), "/1");
  EXPECT_TRUE(told_.empty()) << "it is no fault of the spare";
}

TEST_F(SpareEnds, WhyNotIsSaid) {
  shelf_.listed = {"/1"};
  Start();
  EXPECT_EQ(Refusal(keeper_.Add("/1", {})), "exists: /1 is a spare already");
  EXPECT_EQ(Refusal(keeper_.Remove("/member/ssd3")), "exists: /member/ssd3 is ssd3 of this array");
  EXPECT_EQ(Refusal(keeper_.Replace(4, devices_[1])), "invalid argument: no such device");
  Lose(0);
  shelf_.at["/1"] = &devices_[2];
  EXPECT_EQ(Refusal(keeper_.Replace(0, devices_[1])),
            "busy: /1 is not the device that was looked at: another spare has taken its place");
  test::Await(loop_, keeper_.Stop());
  EXPECT_EQ(Refusal(keeper_.Add("/3", {})), "shut down: the array is being unmounted");
  EXPECT_EQ(Refusal(keeper_.Remove("/1")), "shut down: the array is being unmounted");
}

}  // namespace
}  // namespace eplog
