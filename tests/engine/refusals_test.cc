// What an array refuses, whoever asks: everything while it is closing, every change where nothing
// may be written, and what names a volume, a range or a device that is not there. Each verb has its
// own gate, so each is tried.
#include <gtest/gtest.h>

#include <cerrno>
#include <functional>
#include <string>
#include <utility>
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

struct Verb {
  std::string name;
  std::function<Task<Status>(Array&)> begin;
};

const std::vector<std::byte>& Bytes() {
  static const std::vector<std::byte> bytes(kChunk, std::byte{7});
  return bytes;
}

std::vector<std::byte>& Into() {
  static std::vector<std::byte> bytes(kChunk);
  return bytes;
}

// Those that name a volume and change it.
std::vector<Verb> ChangesOf(VolumeId id) {
  return {
      {"write", [id](Array& array) { return array.Write(id, 0, Bytes()); }},
      {"trim", [id](Array& array) { return array.Trim(id, 0, kChunk, TrimMode::kPunch); }},
      {"flush", [id](Array& array) { return array.Flush(id, 0, kChunk); }},
      {"resize", [id](Array& array) { return array.ResizeVolume(id, kSize / 2); }},
      {"rename", [id](Array& array) { return array.RenameVolume(id, "x", false); }},
      {"replace", [id](Array& array) { return array.RenameVolume(id, "x", true); }},
      {"take a name", [id](Array& array) { return OutcomeOf(array.RenameVolumeOver(id, "x")); }},
      {"hide", [id](Array& array) { return array.HideVolume(id); }},
      {"delete by name", [id](Array& array) { return array.DeleteVolumeNamed(id, "v"); }},
      {"delete", [id](Array& array) { return array.DeleteVolume(id); }},
  };
}

std::vector<Verb> AllChanges(VolumeId id, Device& replacement) {
  std::vector<Verb> all = ChangesOf(id);
  const std::vector<Verb> others = {
      {"create", [](Array& array) { return OutcomeOf(array.CreateVolume("new", kSize)); }},
      {"flush all", [](Array& array) { return array.FlushAll(); }},
      {"commit", [](Array& array) { return array.Commit({}); }},
      {"checkpoint", [](Array& array) { return array.Checkpoint(CheckpointKind::kFull); }},
      {"fail", [](Array& array) { return array.FailDevice(0, "by hand"); }},
      {"replace a device",
       [&replacement](Array& array) { return array.ReplaceDevice(0, replacement); }},
      {"discard", [](Array& array) { return OutcomeOf(array.DiscardFree({})); }},
      {"heal", [](Array& array) { return OutcomeOf(array.Scrub(true, {})); }},
  };
  all.insert(all.end(), others.begin(), others.end());
  return all;
}

std::vector<Verb> Looks(VolumeId id) {
  return {
      {"read", [id](Array& array) { return array.Read(id, 0, Into()); }},
      {"check", [](Array& array) { return OutcomeOf(array.Check({})); }},
      {"scrub", [](Array& array) { return OutcomeOf(array.Scrub(false, {})); }},
      {"find lost", [](Array& array) { return OutcomeOf(array.FindLost()); }},
  };
}

class Refusals : public ::testing::Test {
 protected:
  static ArrayShape Shape() {
    ArrayShape shape;
    shape.n = 4;
    shape.m = 1;
    shape.ssd_bytes = uint64_t{16} << 20;
    shape.log_bytes = uint64_t{8} << 20;
    shape.ssd_delays = kSsdDelays;
    shape.log_delays = kLogDelays;
    return shape;
  }
  Status Do(const Verb& verb) { return RunTask(test_.loop, verb.begin(*test_.array)); }
  ErrorCode CodeOf(const Verb& verb) {
    const Status status = Do(verb);
    EXPECT_FALSE(status.ok()) << verb.name;
    return status.ok() ? ErrorCode::kIo : status.error().code;
  }
  uint64_t Written() {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < 5; ++i) {
      sum += test_.counter(i).counters().writes + test_.counter(i).counters().flushes;
    }
    return sum;
  }

  TestArray test_{Shape()};
  MemoryDevice replacement_{"new", uint64_t{16} << 20};
  VolumeId volume_ = test_.CreateVolume("v", kSize);
  Random random_{5};
};

TEST_F(Refusals, AnArrayThatIsOpenToBeReadChangesNothing) {
  ASSERT_TRUE(test_.Write(volume_, 0, Bytes()).ok());
  ASSERT_TRUE(test_.Close().ok());
  test_.Open(true);
  const uint64_t before = Written();
  for (const Verb& verb : AllChanges(volume_, replacement_)) {
    EXPECT_EQ(CodeOf(verb), ErrorCode::kReadOnly) << verb.name;
  }
  for (const Verb& verb : Looks(volume_)) {
    const Status status = Do(verb);
    EXPECT_TRUE(status.ok()) << verb.name << ": " << status.error().ToString();
  }
  EXPECT_EQ(Into(), Bytes());
  EXPECT_TRUE(test_.array->GetStatus().read_only);
  ASSERT_TRUE(test_.Close().ok());
  EXPECT_EQ(Written(), before);
}

TEST_F(Refusals, AnArrayThatHasStoppedTakesNoChangeAndIsReadOn) {
  ASSERT_TRUE(test_.Write(volume_, 0, Bytes()).ok());
  test_.faulty(4).Add({.kinds = MaskOf(RequestKind::kWrite), .code = ErrorCode::kNoSpace});
  EXPECT_FALSE(test_.Write(volume_, 3 * kChunk, Bytes()).ok());
  ASSERT_EQ(test_.array->GetStatus().state, ArrayState::kFailed);
  const uint64_t before = Written();
  for (const Verb& verb : AllChanges(volume_, replacement_)) {
    const Status status = Do(verb);
    ASSERT_FALSE(status.ok()) << verb.name;
    EXPECT_NE(status.error().message.find("the array has stopped"), std::string::npos)
        << verb.name << ": " << status.error().message;
  }
  EXPECT_EQ(Written(), before);
  EXPECT_TRUE(test_.Read(volume_, 0, kChunk) == Bytes());
  EXPECT_TRUE(test_.array->FindVolume("v"));
  test_.Kill();
}

// Close waits for what is on its way; whatever comes later is refused at once.
TEST_F(Refusals, AnArrayThatIsClosingTakesNothingNew) {
  ASSERT_TRUE(test_.Write(volume_, 0, Bytes()).ok());
  bool closed = false;
  test_.loop.Spawn([](Array& array, bool& ended) -> Task<void> {
    Task<Status> closing = array.Close();
    EXPECT_TRUE((co_await closing).ok());
    ended = true;
  }(*test_.array, closed));
  test_.Sleep(1);
  ASSERT_FALSE(closed);
  std::vector<Verb> all = AllChanges(volume_, replacement_);
  const std::vector<Verb> looks = Looks(volume_);
  all.insert(all.end(), looks.begin(), looks.end());
  for (const Verb& verb : all) {
    EXPECT_EQ(CodeOf(verb), ErrorCode::kShutdown) << verb.name;
  }
  ASSERT_FALSE(closed) << "each was refused at once";
  ASSERT_TRUE(test_.loop.RunUntil([&] { return closed; }));
  test_.array.reset();
  test_.Open();
  EXPECT_TRUE(test_.Read(volume_, 0, kChunk) == Bytes());
}

TEST_F(Refusals, AVolumeThatIsNotThereIsNotFoundByAnybody) {
  const VolumeId deleted = test_.CreateVolume("gone", kSize);
  ASSERT_TRUE(test_.Write(deleted, 0, RandomBytes(random_, kSize)).ok());
  const uint64_t used = test_.array->GetStatus().allocated_bytes;
  EXPECT_GT(used, 0U);
  ASSERT_TRUE(RunTask(test_.loop, test_.array->DeleteVolume(deleted)).ok());
  EXPECT_EQ(test_.array->GetStatus().allocated_bytes, 0U) << "what is on its way back is free";
  for (const VolumeId id : {deleted, VolumeId(deleted.value + 1)}) {
    std::vector<Verb> verbs = ChangesOf(id);
    verbs.push_back(Looks(id).front());
    for (const Verb& verb : verbs) {
      EXPECT_EQ(CodeOf(verb), ErrorCode::kNotFound) << verb.name << " of " << id.value;
    }
    EXPECT_FALSE(test_.array->GetVolume(id));
  }
  EXPECT_EQ(test_.array->Volumes().size(), 1U);
  EXPECT_FALSE(test_.array->FindVolume("gone"));
}

// Up to the last byte and not one further, whatever the sum of offset and length is.
TEST_F(Refusals, ARangeIsInsideItsVolumeToTheByte) {
  constexpr uint64_t kOdd = 3 * kChunk + 100;
  ASSERT_TRUE(RunTask(test_.loop, test_.array->ResizeVolume(volume_, kOdd)).ok());
  const std::vector<std::byte> data = RandomBytes(random_, kOdd + 1);
  const auto expect = [&](uint64_t offset, uint64_t length, bool inside) {
    SCOPED_TRACE(std::to_string(offset) + "+" + std::to_string(length));
    const auto refused = [](const Status& status) {
      return !status.ok() && status.error().code == ErrorCode::kInvalidArgument;
    };
    if (length <= data.size()) {
      const Status written = test_.Write(volume_, offset, std::span(data).first(length));
      EXPECT_TRUE(inside ? written.ok() : refused(written));
      Buffer into = test_.pool.Get(std::max<uint64_t>(length, 1));
      const Status read =
          RunTask(test_.loop, test_.array->Read(volume_, offset, into.span().first(length)));
      EXPECT_TRUE(inside ? read.ok() : refused(read));
      EXPECT_TRUE(!inside || std::memcmp(into.data(), data.data(), length) == 0);
    }
    for (const TrimMode mode : {TrimMode::kPunch, TrimMode::kZero}) {
      const Status trimmed = RunTask(test_.loop, test_.array->Trim(volume_, offset, length, mode));
      EXPECT_TRUE(inside ? trimmed.ok() : refused(trimmed));
    }
  };
  expect(0, kOdd, true);
  expect(0, kOdd + 1, false);
  expect(1, kOdd - 1, true);
  expect(1, kOdd, false);
  expect(kOdd - 1, 1, true);
  expect(kOdd - 1, 2, false);
  expect(kOdd, 0, true);
  expect(kOdd, 1, false);
  expect(kOdd + 1, 0, false);
  expect(UINT64_MAX, 1, false);
  expect(UINT64_MAX - 10, 100, false);
  expect(100, UINT64_MAX, false);
}

TEST_F(Refusals, ADeviceThatIsNotThereIsNone) {
  for (const uint32_t device : {5U, 6U, 255U, 256U, UINT32_MAX}) {
    const Status failed = RunTask(test_.loop, test_.array->FailDevice(device, "by hand"));
    ASSERT_FALSE(failed.ok()) << device;
    EXPECT_EQ(failed.error().code, ErrorCode::kInvalidArgument) << device;
    const Status replaced = RunTask(test_.loop, test_.array->ReplaceDevice(device, replacement_));
    ASSERT_FALSE(replaced.ok()) << device;
    EXPECT_EQ(replaced.error().code, ErrorCode::kInvalidArgument) << device;
  }
  EXPECT_NE(test_.array->GetStatus().state, ArrayState::kDegraded);
  // The last one is there, and is shown as what has taken its place.
  ASSERT_TRUE(RunTask(test_.loop, test_.array->FailDevice(4, "by hand")).ok());
  EXPECT_EQ(test_.array->GetStatus().devices[4].failed_because, "by hand");
  MemoryDevice log("another", uint64_t{9} << 20);
  ASSERT_TRUE(RunTask(test_.loop, test_.array->ReplaceDevice(4, log)).ok());
  EXPECT_EQ(test_.array->GetStatus().devices[4].path, "another");
  EXPECT_EQ(test_.array->GetStatus().devices[4].size_bytes, uint64_t{9} << 20);
  test_.Sleep(10'000'000);
  EXPECT_EQ(test_.array->GetStatus().devices[4].state, DeviceState::kOk);
  ASSERT_TRUE(test_.Close().ok());
}

}  // namespace
}  // namespace eplog
