// What volumes may be called, how large and how many they may be, and what their figures say.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

#include "format/entry.h"
#include "tests/engine/array_fixture.h"

namespace eplog {
namespace {

constexpr uint64_t kChunk = 4096;

ArrayShape SmallShape() {
  ArrayShape shape;
  shape.n = 4;
  shape.m = 1;
  shape.ssd_bytes = uint64_t{16} << 20;
  shape.log_bytes = uint64_t{8} << 20;
  return shape;
}

Geometry GeometryOf(TestArray& test) {
  const auto superblock = DecodeSuperblock(test.memory(0).bytes().first(kSuperblockCopyBytes));
  EXPECT_TRUE(superblock.ok());
  return superblock.ok() ? superblock->geometry : Geometry();
}

class VolumeRules : public ::testing::Test {
 protected:
  Status Create(const std::string& name, uint64_t size = 1) {
    const auto id = RunTask(test_.loop, test_.array->CreateVolume(name, size));
    return id.ok() ? OkStatus() : Status(Fail(id.error()));
  }
  Status Rename(VolumeId id, const std::string& name, bool replace) {
    return RunTask(test_.loop, test_.array->RenameVolume(id, name, replace));
  }
  Status Resize(VolumeId id, uint64_t size) {
    return RunTask(test_.loop, test_.array->ResizeVolume(id, size));
  }
  Traffic Now() { return test_.array->GetStatus().traffic; }

  TestArray test_{SmallShape()};
  Random random_{1};
};

TEST_F(VolumeRules, NamesAreTextThatCanBeAFilesName) {
  const VolumeId v = test_.CreateVolume("v", 1);
  for (const std::string& bad :
       {std::string(), std::string("."), std::string(".."), std::string("/"), std::string("a/b"),
        std::string("a\0b", 3), std::string("\x01"), std::string("tab\there"), std::string("\x1F"),
        std::string("\x7F"), std::string(kMaxVolumeNameBytes + 1, 'x')}) {
    SCOPED_TRACE(bad);
    EXPECT_EQ(Create(bad).error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(Rename(v, bad, false).error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(RunTask(test_.loop, test_.array->RenameVolumeOver(v, bad)).error().code,
              ErrorCode::kInvalidArgument);
  }
  EXPECT_EQ(test_.array->Volumes().size(), 1U);
  for (const std::string& good :
       {std::string(" "), std::string("~"), std::string("..."), std::string(".a"), std::string("0"),
        std::string("a.b-c d"), std::string("\xC3\xA4"),
        std::string(kReservedVolumePrefix.substr(0, kReservedVolumePrefix.size() - 1)),
        std::string(kMaxVolumeNameBytes, 'x')}) {
    SCOPED_TRACE(good);
    EXPECT_TRUE(Create(good).ok());
    EXPECT_TRUE(test_.array->FindVolume(good));
  }
  const auto all = test_.array->Volumes();
  EXPECT_EQ(all.size(), 10U);
  EXPECT_TRUE(std::is_sorted(all.begin(), all.end(),
                             [](const auto& a, const auto& b) { return a.name < b.name; }));
}

// It is not taken away from itself, nor replaced by itself.
TEST_F(VolumeRules, ItsOwnNameIsNoChange) {
  const VolumeId v = test_.CreateVolume("v", 1 << 20);
  const auto bytes = RandomBytes(random_, 1 << 20);
  ASSERT_TRUE(test_.Write(v, 0, bytes).ok());
  const auto expect_kept = [&](const char* name) {
    ASSERT_EQ(test_.array->Volumes().size(), 1U);
    EXPECT_EQ(test_.array->FindVolume(name)->id, v);
    EXPECT_TRUE(test_.Read(v, 0, bytes.size()) == bytes);
  };
  EXPECT_TRUE(Rename(v, "v", false).ok());
  expect_kept("v");
  EXPECT_TRUE(Rename(v, "v", true).ok());
  expect_kept("v");
  const auto own = RunTask(test_.loop, test_.array->RenameVolumeOver(v, "v"));
  ASSERT_TRUE(own.ok());
  EXPECT_EQ(own->value, 0U);
  expect_kept("v");
  // Nor does a name that nobody has take anything from anybody.
  const auto nobody = RunTask(test_.loop, test_.array->RenameVolumeOver(v, "w"));
  ASSERT_TRUE(nobody.ok());
  EXPECT_EQ(nobody->value, 0U);
  expect_kept("w");
  EXPECT_TRUE(Rename(v, "u", true).ok());
  expect_kept("u");
  test_.Sleep(10'000'000);
  expect_kept("u");
  test_.Kill();
  test_.Open();
  expect_kept("u");
}

TEST_F(VolumeRules, AHiddenOneIsFoundByNoName) {
  const VolumeId v = test_.CreateVolume("v", 1 << 20);
  ASSERT_TRUE(RunTask(test_.loop, test_.array->HideVolume(v)).ok());
  std::string name(kReservedVolumePrefix);
  name += std::to_string(v.value);
  name.push_back('\x7F');
  EXPECT_FALSE(test_.array->FindVolume(name)) << "what it is called on the devices";
  ASSERT_TRUE(test_.array->GetVolume(v));
  EXPECT_EQ(test_.array->GetVolume(v)->size_bytes, uint64_t{1} << 20);
}

TEST_F(VolumeRules, AreAsManyAsTheArrayHasRoomFor) {
  const uint32_t most = GeometryOf(test_).max_volumes();
  ASSERT_GT(most, 10U);
  for (uint32_t i = 0; i < most; ++i) {
    ASSERT_TRUE(Create("v" + std::to_string(i)).ok()) << i << " of " << most;
  }
  const Status refused = Create("one more");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kNoSpace);
  EXPECT_NE(refused.error().message.find(std::to_string(most)), std::string::npos)
      << refused.error().message;
  ASSERT_TRUE(
      RunTask(test_.loop, test_.array->DeleteVolume(test_.array->FindVolume("v3")->id)).ok());
  test_.Sleep(1'000'000);
  EXPECT_TRUE(Create("one more").ok());
  EXPECT_EQ(Create("and another").error().code, ErrorCode::kNoSpace);
}

// What a volume has is what was written to, by extents; growing costs nothing.
// As if so many had been created: the number is changed in the log.
TEST_F(VolumeRules, NumbersAreNotGivenTwice) {
  ASSERT_TRUE(Create("last").ok());
  test_.Kill();
  const auto superblock = DecodeSuperblock(test_.memory(0).bytes().first(kSuperblockCopyBytes));
  ASSERT_TRUE(superblock.ok());
  const Geometry& g = superblock->geometry;
  uint64_t changed = 0;
  for (uint64_t place = 0; place < g.log_blocks; ++place) {
    const auto block = test_.memory(g.n).bytes().subspan(g.LogOffset(place), kBlockBytes);
    auto entry = DecodeEntryHeader(block, superblock->array_uuid, g);
    if (entry.ok() && !entry->volumes.empty()) {
      std::get<VolumeCreated>(entry->volumes.front()).id = VolumeId(UINT32_MAX - 1);
      EncodeEntryHeader(*entry, superblock->array_uuid, block);
      ++changed;
    }
  }
  ASSERT_EQ(changed, 1U);
  test_.Open();
  EXPECT_EQ(Create("more").error().code, ErrorCode::kNoSpace);
  ASSERT_TRUE(RunTask(test_.loop, test_.array->DeleteVolume(VolumeId(UINT32_MAX - 1))).ok());
  const Status refused = Create("last");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kNoSpace);
  EXPECT_NE(refused.error().message.find("given twice"), std::string::npos);
}

TEST_F(VolumeRules, AreThin) {
  const uint64_t extent = GeometryOf(test_).extent_data_bytes();
  const VolumeId v = test_.CreateVolume("v", 10 * extent + 100);
  const auto allocated = [&] { return test_.array->GetVolume(v)->allocated_bytes; };
  const uint64_t free = test_.array->GetStatus().free_bytes;
  EXPECT_EQ(free, test_.array->GetStatus().capacity_bytes);
  EXPECT_EQ(allocated(), 0U);
  const auto bytes = RandomBytes(random_, extent + 1);
  ASSERT_TRUE(test_.Write(v, 0, std::span(bytes).first(1)).ok());
  EXPECT_EQ(allocated(), extent);
  ASSERT_TRUE(test_.Write(v, extent - 1, std::span(bytes).first(1)).ok());
  EXPECT_EQ(allocated(), extent);
  ASSERT_TRUE(test_.Write(v, 10 * extent, std::span(bytes).first(100)).ok());
  EXPECT_EQ(allocated(), 2 * extent);
  ASSERT_TRUE(test_.Write(v, 4 * extent - 1, bytes).ok());
  EXPECT_EQ(allocated(), 4 * extent);
  EXPECT_EQ(free - test_.array->GetStatus().free_bytes, 4 * extent);
  EXPECT_EQ(test_.array->GetStatus().allocated_bytes, 4 * extent);
  EXPECT_EQ(test_.array->FindVolume("v")->allocated_bytes, 4 * extent);

  const Traffic before = Now();
  ASSERT_TRUE(Resize(v, 20 * extent + 7).ok());
  ASSERT_TRUE(Resize(v, 20 * extent + 7).ok());
  ASSERT_TRUE(Resize(v, 30 * extent).ok());
  EXPECT_EQ(Now().ssd_data_bytes, before.ssd_data_bytes);
  EXPECT_EQ(Now().log_chunk_bytes, before.log_chunk_bytes);
  EXPECT_EQ(allocated(), 4 * extent);
  // Back to where it ended: the two extents in the middle go, all of what is before stays.
  ASSERT_TRUE(Resize(v, 4 * extent - 1).ok());
  EXPECT_EQ(allocated(), 2 * extent);
  ASSERT_TRUE(Resize(v, extent).ok());
  EXPECT_EQ(allocated(), extent);
  ASSERT_TRUE(Resize(v, 0).ok());
  EXPECT_EQ(allocated(), 0U);
  EXPECT_EQ(test_.array->GetStatus().free_bytes, free);
  ASSERT_TRUE(Resize(v, 10 * extent).ok());
  EXPECT_EQ(test_.Read(v, 0, 10 * extent), std::vector<std::byte>(10 * extent));
}

// Many at once to what was never written: it is assigned once.
TEST(VolumeExtents, AreAssignedOnceWhoeverComesFirst) {
  ArrayShape shape = SmallShape();
  shape.ssd_delays = kSsdDelays;
  shape.log_delays = kLogDelays;
  TestArray test(shape);
  const uint64_t extent = GeometryOf(test).extent_data_bytes();
  const VolumeId v = test.CreateVolume("v", 10 * extent);
  const std::vector<std::byte> data(100, std::byte{8});
  uint64_t done = 0;
  for (uint64_t i = 0; i < 60; ++i) {
    test.loop.Spawn([](Array& array, VolumeId id, uint64_t at, std::span<const std::byte> from,
                       uint64_t& ended) -> Task<void> {
      Task<Status> writing = array.Write(id, at, from);
      EXPECT_TRUE((co_await writing).ok());
      ++ended;
    }(*test.array, v, i % 3 * extent + i * 101, data, done));
  }
  ASSERT_TRUE(test.loop.RunUntil([&] { return done == 60; }));
  EXPECT_EQ(test.array->GetVolume(v)->allocated_bytes, 3 * extent);
  for (uint64_t i = 0; i < 60; ++i) {
    EXPECT_TRUE(test.Read(v, i % 3 * extent + i * 101, 100) == data) << i;
  }
}

// Extents are numbered with 32 bits, and no volume has more than a PiB.
TEST(VolumeSize, HasAnEndThatIsNamed) {
  for (const uint32_t chunk_bytes : {4096U, 262144U}) {
    SCOPED_TRACE(chunk_bytes);
    ArrayShape shape = SmallShape();
    shape.n = 8;
    shape.chunk_bytes = chunk_bytes;
    shape.ssd_bytes = uint64_t{64} << 20;
    TestArray test(shape);
    const uint64_t by_extents = GeometryOf(test).extent_data_bytes() * UINT32_MAX;
    const uint64_t most = std::min<uint64_t>(by_extents, uint64_t{1} << 50);
    EXPECT_EQ(most < uint64_t{1} << 50, chunk_bytes == 4096) << "one of each kind";
    const VolumeId v = test.CreateVolume("v", most);
    const std::vector<std::byte> data(kChunk, std::byte{9});
    ASSERT_TRUE(test.Write(v, most - kChunk, data).ok());
    EXPECT_TRUE(test.Read(v, most - kChunk, kChunk) == data);
    EXPECT_EQ(test.Read(v, 0, kChunk), std::vector<std::byte>(kChunk));
    const auto expect_refused = [&](const Error& error) {
      EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
      EXPECT_EQ(error.errno_value, EFBIG);
      EXPECT_NE(error.message.find(std::to_string(most)), std::string::npos) << error.message;
    };
    const VolumeId w = test.CreateVolume("w", 1);
    for (const uint64_t size : {most + 1, 2 * most, UINT64_MAX}) {
      const auto created = RunTask(test.loop, test.array->CreateVolume("x", size));
      ASSERT_FALSE(created.ok());
      expect_refused(created.error());
      const Status resized = RunTask(test.loop, test.array->ResizeVolume(w, size));
      ASSERT_FALSE(resized.ok());
      expect_refused(resized.error());
    }
    EXPECT_TRUE(RunTask(test.loop, test.array->ResizeVolume(w, most)).ok());
    EXPECT_EQ(test.array->GetVolume(w)->size_bytes, most);
  }
}

}  // namespace
}  // namespace eplog
