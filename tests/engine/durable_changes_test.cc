// What was done to a volume is durable when it is acknowledged, though nobody has flushed anything;
// what changes nothing asks no device.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/engine/small_array.h"

namespace eplog {
namespace {

constexpr uint32_t kSsdCount = 4;
constexpr uint32_t kParity = 1;
constexpr uint64_t kSize = uint64_t{1} << 20;

class DurableChanges : public ::testing::Test {
 protected:
  struct Change {
    std::string name;
    std::function<Status()> make;
  };
  static ArrayShape Shape() {
    ArrayShape shape = SmallShape(kSsdCount, kParity);
    shape.auto_commit = false;
    return shape;
  }
  // The log device and at least one ring: an entry that is durable has been flushed to both.
  [[nodiscard]] uint64_t LogFlushes() { return test_.counter(kSsdCount).counters().flushes; }
  // While nothing else is there that a flush could be for.
  void ExpectFlushes(const Change& change, bool flushes) {
    SCOPED_TRACE(change.name);
    ASSERT_TRUE(test_.Flush().ok());
    // What happens in the background because of an earlier one has happened.
    test_.Sleep(20'000'000);
    ASSERT_EQ(test_.array->GetStatus().unstable_bytes, 0U);
    const uint64_t before = LogFlushes();
    const Status made = change.make();
    ASSERT_TRUE(made.ok()) << made.error().ToString();
    EXPECT_EQ(LogFlushes() != before, flushes);
  }
  Status Rename(VolumeId id, const std::string& name, bool replace) {
    return RunTask(test_.loop, test_.array->RenameVolume(id, name, replace));
  }
  Status RenameOver(VolumeId id, const std::string& name) {
    const auto hidden = RunTask(test_.loop, test_.array->RenameVolumeOver(id, name));
    return hidden.ok() ? OkStatus() : Status(Fail(hidden.error()));
  }
  Status Resize(VolumeId id, uint64_t size) {
    return RunTask(test_.loop, test_.array->ResizeVolume(id, size));
  }
  Status Hide(VolumeId id) { return RunTask(test_.loop, test_.array->HideVolume(id)); }

  SmallArray test_{Shape()};
  Random random_{1};
  const VolumeId a_ = test_.CreateVolume("a", kSize);
  const VolumeId b_ = test_.CreateVolume("b", kSize);
  const VolumeId c_ = test_.CreateVolume("c", kSize);
  const VolumeId d_ = test_.CreateVolume("d", kSize);
};

TEST_F(DurableChanges, WhateverIsDoneToAVolume) {
  for (const VolumeId id : {a_, b_, c_, d_}) {
    ASSERT_TRUE(test_.Write(id, 0, RandomBytes(random_, kSize)).ok());
  }
  const std::vector<Change> changes = {
      {"create",
       [&] {
         const auto id = RunTask(test_.loop, test_.array->CreateVolume("e", kSize));
         return id.ok() ? OkStatus() : Status(Fail(id.error()));
       }},
      {"rename", [&] { return Rename(a_, "f", false); }},
      {"rename to what nobody is called", [&] { return RenameOver(a_, "g"); }},
      {"replace", [&] { return Rename(a_, "e", true); }},
      {"rename over", [&] { return RenameOver(a_, "b"); }},
      {"hide", [&] { return Hide(c_); }},
      {"grow", [&] { return Resize(a_, 2 * kSize); }},
      {"shrink where nothing lies", [&] { return Resize(a_, kSize + 1); }},
      {"delete by name",
       [&] { return RunTask(test_.loop, test_.array->DeleteVolumeNamed(a_, "b")); }},
      {"delete", [&] { return RunTask(test_.loop, test_.array->DeleteVolume(d_)); }}};
  for (const Change& change : changes) {
    ExpectFlushes(change, true);
  }
}

TEST_F(DurableChanges, WhatChangesNothingAsksNoDevice) {
  ASSERT_TRUE(Hide(d_).ok());
  const std::vector<Change> changes = {
      {"its own name", [&] { return Rename(a_, "a", false); }},
      {"its own name, over itself", [&] { return Rename(a_, "a", true); }},
      {"its own name, over itself, hidden", [&] { return RenameOver(a_, "a"); }},
      {"its own size", [&] { return Resize(a_, kSize); }},
      {"hidden already", [&] { return Hide(d_); }}};
  for (const Change& change : changes) {
    ExpectFlushes(change, false);
  }
}

}  // namespace
}  // namespace eplog
