// Closing waits for whatever is on its way, and leaves nothing behind; and what counts as a request
// of a user when the array looks whether it is idle.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/engine/array_fixture.h"

namespace eplog {
namespace {

constexpr uint64_t kChunk = 4096;
constexpr uint64_t kSize = uint64_t{1} << 20;

template <typename T>
Task<Status> OutcomeOf(Task<Result<T>> task) {
  const Result<T> result = co_await task;
  co_return result.ok() ? OkStatus() : Status(Fail(result.error()));
}

Task<void> Await(Task<Status> task, bool& ended) {
  static_cast<void>(co_await task);
  ended = true;
}

struct Verb {
  std::string name;
  std::function<Task<Status>(Array&)> begin;
};

ArrayShape SmallShape() {
  ArrayShape shape;
  shape.n = 4;
  shape.m = 1;
  shape.ssd_bytes = uint64_t{16} << 20;
  shape.log_bytes = uint64_t{8} << 20;
  return shape;
}

const std::vector<std::byte>& Bytes() {
  static const std::vector<std::byte> bytes(kChunk, std::byte{7});
  return bytes;
}

// Slow to read, or slow to flush: each is on its way for half a second, for which nothing of the
// closing itself would wait.
TEST(Closing, WaitsForEveryRequest) {
  static std::vector<std::byte> into(kChunk);
  const VolumeId id(1);
  const std::vector<Verb> verbs = {
      {"read", [id](Array& array) { return array.Read(id, 0, into); }},
      {"write", [id](Array& array) { return array.Write(id, 100, std::span(Bytes()).first(9)); }},
      {"trim", [id](Array& array) { return array.Trim(id, 100, 9, TrimMode::kPunch); }},
      {"cut", [id](Array& array) { return array.ResizeVolume(id, 100); }},
      {"commit", [](Array& array) { return array.Commit({}); }},
      {"check", [](Array& array) { return OutcomeOf(array.Check({})); }},
      {"scrub", [](Array& array) { return OutcomeOf(array.Scrub(false, {})); }},
      {"heal", [](Array& array) { return OutcomeOf(array.Scrub(true, {})); }},
  };
  for (const Verb& verb : verbs) {
    SCOPED_TRACE(verb.name);
    TestArray test(SmallShape());
    ASSERT_EQ(test.CreateVolume("v", kSize), id);
    ASSERT_TRUE(test.Write(id, 0, std::vector<std::byte>(kSize, std::byte{1})).ok());
    ASSERT_TRUE(test.Write(id, kChunk, Bytes()).ok());
    ASSERT_TRUE(RunTask(test.loop, test.array->FlushAll()).ok());
    for (uint32_t i = 0; i < 5; ++i) {
      test.delayed(i).set_delays({.read_us = 500'000});
    }
    bool ended = false;
    bool closed = false;
    test.loop.Spawn(Await(verb.begin(*test.array), ended));
    test.Sleep(1);
    EXPECT_FALSE(ended);
    test.loop.Spawn(Await(test.array->Close(), closed));
    ASSERT_TRUE(test.loop.RunUntil([&] { return closed; }));
    EXPECT_TRUE(ended);
    test.Kill();
  }
}

// Whatever was at work: nobody sleeps on, no timer is set and nothing is in flight.
TEST(Closing, LeavesTheLoopNothingToDo) {
  for (const bool stopped : {false, true}) {
    ArrayShape shape = SmallShape();
    shape.ssd_delays = kSsdDelays;
    shape.log_delays = kLogDelays;
    shape.buffers = {.device_chunks = 16, .stripes = 4};
    shape.commit = {.every_writes = 7, .idle_us = 3'000'000, .age_us = 9'000'000};
    shape.checkpoint.interval_us = 20'000'000;
    uint64_t events = 0;
    shape.on_event = [&](const ArrayEvent&) { ++events; };
    TestArray test(shape);
    const VolumeId id = test.CreateVolume("v", 4 << 20);
    const VolumeId other = test.CreateVolume("w", 4 << 20);
    const std::vector<std::byte> data(2 << 20, std::byte{5});
    ASSERT_TRUE(test.Write(id, 0, data).ok());
    ASSERT_TRUE(test.Write(other, 0, data).ok());
    ASSERT_TRUE(RunTask(test.loop, test.array->FailDevice(1, "by hand")).ok());
    ASSERT_TRUE(RunTask(test.loop, test.array->ReplaceDevice(1, *test.Devices()[1])).ok());
    ASSERT_TRUE(RunTask(test.loop, test.array->DeleteVolume(other)).ok());
    for (uint64_t i = 0; i < 20; ++i) {
      ASSERT_TRUE(test.Write(id, i * 5 * kChunk, Bytes()).ok());
    }
    if (stopped) {
      test.faulty(4).Add({.kinds = MaskOf(RequestKind::kWrite), .code = ErrorCode::kNoSpace});
      EXPECT_FALSE(RunTask(test.loop, test.array->FlushAll()).ok());
    }
    bool closed = false;
    test.loop.Spawn(Await(test.array->Close(), closed));
    ASSERT_TRUE(test.loop.RunUntil([&] { return closed; }));
    const uint64_t now = test.loop.NowUs();
    const uint64_t told = events;
    EXPECT_FALSE(test.loop.RunUntil([] { return false; })) << "it is idle";
    EXPECT_EQ(test.loop.NowUs(), now) << "and was at once";
    EXPECT_EQ(events, told);
    for (uint32_t i = 0; i < 5; ++i) {
      EXPECT_EQ(test.delayed(i).in_flight(), 0U);
    }
    test.Kill();
  }
}

// ---- idleness

class Idleness : public ::testing::Test {
 protected:
  static ArrayShape Shape() {
    ArrayShape shape = SmallShape();
    shape.commit.idle_us = 2'000'000;
    return shape;
  }
  void SetUp() override {
    ASSERT_TRUE(test_.Write(id_, 0, std::vector<std::byte>(kSize / 2, std::byte{1})).ok());
    ASSERT_TRUE(RunTask(test_.loop, test_.array->Commit({})).ok());
    ASSERT_TRUE(test_.Write(id_, kChunk, Bytes()).ok());
  }
  uint64_t Pending() { return test_.array->GetStatus().pending_chunks; }

  TestArray test_{Shape()};
  VolumeId id_ = test_.CreateVolume("v", kSize);
};

TEST_F(Idleness, IsCountedFromTheOpening) {
  test_.Sleep(1'000'000);
  ASSERT_TRUE(test_.Close().ok());
  test_.Sleep(60'000'000);
  test_.Open();
  EXPECT_EQ(Pending(), 1U);
  test_.Sleep(1'900'000);
  EXPECT_EQ(Pending(), 1U);
  test_.Sleep(200'000);
  EXPECT_EQ(Pending(), 0U);
}

TEST_F(Idleness, IsEndedByWhateverIsAskedFor) {
  static std::vector<std::byte> into(kChunk);
  const VolumeId id = id_;
  Device* const any = test_.Devices()[0];
  const std::vector<Verb> verbs = {
      {"read", [id](Array& array) { return array.Read(id, 0, into); }},
      {"write", [id](Array& array) { return array.Write(id, kChunk, Bytes()); }},
      {"trim", [id](Array& array) { return array.Trim(id, kSize - 1, 1, TrimMode::kZero); }},
      {"flush", [id](Array& array) { return array.Flush(id, 0, 1); }},
      {"flush all", [](Array& array) { return array.FlushAll(); }},
      {"create", [](Array& array) { return OutcomeOf(array.CreateVolume("v", 1)); }},
      {"resize", [id](Array& array) { return array.ResizeVolume(id, kSize); }},
      {"rename", [id](Array& array) { return array.RenameVolume(id, "v", false); }},
      {"take a name", [id](Array& array) { return OutcomeOf(array.RenameVolumeOver(id, "v")); }},
      {"hide", [](Array& array) { return array.HideVolume(VolumeId(77)); }},
      {"delete", [](Array& array) { return array.DeleteVolume(VolumeId(77)); }},
      {"delete by name", [id](Array& array) { return array.DeleteVolumeNamed(id, "w"); }},
      {"checkpoint", [](Array& array) { return array.Checkpoint(CheckpointKind::kAuto); }},
      {"discard", [](Array& array) { return OutcomeOf(array.DiscardFree({})); }},
      {"check", [](Array& array) { return OutcomeOf(array.Check({})); }},
      {"scrub", [](Array& array) { return OutcomeOf(array.Scrub(false, {})); }},
      {"find lost", [](Array& array) { return OutcomeOf(array.FindLost()); }},
      {"fail", [](Array& array) { return array.FailDevice(99, ""); }},
      {"replace", [any](Array& array) { return array.ReplaceDevice(99, *any); }},
  };
  for (const Verb& verb : verbs) {
    test_.Sleep(1'500'000);
    ASSERT_EQ(Pending(), 1U) << "before " << verb.name;
    static_cast<void>(RunTask(test_.loop, verb.begin(*test_.array)));
  }
  test_.Sleep(1'900'000);
  EXPECT_EQ(Pending(), 1U);
  test_.Sleep(200'000);
  EXPECT_EQ(Pending(), 0U) << "nobody asks for anything any more";
}

}  // namespace
}  // namespace eplog
