// The public API end to end on memory devices: what a user of an array sees.

#include <cerrno>

#include "tests/engine/array_fixture.h"

namespace eplog {
namespace {

TEST(Array, NeverWrittenReadsAsZeros) {
  TestArray test({});
  const VolumeId volume = test.CreateVolume("v", 1 << 20);
  EXPECT_EQ(test.Read(volume, 12345, 5000), std::vector<std::byte>(5000));
}

TEST(Array, NameThatTheSuperblockCannotHoldIsRefusedBeforeAnythingIsWritten) {
  VirtualLoop loop;
  MemoryDevice a("a", 8 << 20);
  MemoryDevice b("b", 8 << 20);
  MemoryDevice log("log", 8 << 20);
  for (const std::string& name : {std::string(64, 'x'), std::string("a\0b", 3)}) {
    CreateOptions options;
    options.parity = 1;
    options.name = name;
    const Status created = RunTask(loop, Array::Create(loop, {&a, &b}, {&log}, options));
    ASSERT_FALSE(created.ok());
    EXPECT_EQ(created.error().code, ErrorCode::kInvalidArgument);
    for (MemoryDevice* device : {&a, &b, &log}) {
      const auto head = device->bytes().first(1 << 20);
      EXPECT_TRUE(
          std::all_of(head.begin(), head.end(), [](std::byte c) { return c == std::byte{}; }));
    }
  }
}

class ArrayGeometry
    : public ::testing::TestWithParam<std::tuple<uint32_t, uint32_t, uint32_t, JournalMode>> {
 protected:
  static ArrayShape Shape() {
    ArrayShape shape;
    std::tie(shape.n, shape.m, shape.chunk_bytes, shape.journal) = GetParam();
    return shape;
  }
};

TEST_P(ArrayGeometry, RandomWritesSurviveKillCommitCheckpointAndRestart) {
  TestArray test(Shape());
  constexpr size_t kSize = 3 << 20;
  const VolumeId volume = test.CreateVolume("v", kSize);
  std::vector<std::byte> model(kSize);
  Random random(7);
  const auto scribble = [&](int writes) {
    for (int i = 0; i < writes; ++i) {
      const size_t offset = random.Below(kSize);
      const size_t size =
          std::min<size_t>(kSize - offset, 1 + random.Below(random.OneIn(8) ? 400000 : 9000));
      const auto bytes = RandomBytes(random, size);
      ASSERT_TRUE(test.Write(volume, offset, bytes).ok());
      std::copy(bytes.begin(), bytes.end(), model.begin() + static_cast<std::ptrdiff_t>(offset));
    }
  };
  const auto verify = [&](const char* when) {
    ASSERT_TRUE(test.Read(volume, 0, kSize) == model) << when;
    const auto report = RunTask(test.loop, test.array->Check({}));
    ASSERT_TRUE(report.ok());
    EXPECT_EQ(report->problems_found, 0U) << when << ": " << report->findings.front().Text();
  };
  scribble(60);
  verify("after writing");
  ASSERT_TRUE(RunTask(test.loop, test.array->FlushAll()).ok());
  test.Kill();
  test.Open();
  verify("after a kill");
  scribble(40);
  ASSERT_TRUE(RunTask(test.loop, test.array->Commit({})).ok());
  EXPECT_EQ(test.array->GetStatus().pending_chunks, 0U);
  verify("after a commit");
  scribble(30);
  ASSERT_TRUE(RunTask(test.loop, test.array->Checkpoint(CheckpointKind::kFull)).ok());
  scribble(10);
  verify("after a checkpoint");
  ASSERT_TRUE(test.Close().ok());
  test.Open(true);
  verify("read-only");
  ASSERT_TRUE(test.Close().ok());
  test.Open();
  verify("after a restart");
}

INSTANTIATE_TEST_SUITE_P(Shapes, ArrayGeometry,
                         ::testing::Values(std::tuple(3U, 1U, 4096U, JournalMode::kFull),
                                           std::tuple(2U, 1U, 4096U, JournalMode::kLog),
                                           std::tuple(8U, 2U, 4096U, JournalMode::kFull),
                                           std::tuple(6U, 2U, 16384U, JournalMode::kLog),
                                           std::tuple(7U, 3U, 4096U, JournalMode::kFull),
                                           std::tuple(10U, 4U, 65536U, JournalMode::kLog)));

TEST(Array, VolumesAreCreatedRenamedResizedAndDeleted) {
  TestArray test({});
  const VolumeId a = test.CreateVolume("a", 1 << 20);
  const VolumeId b = test.CreateVolume("b", 1 << 20);
  Random random(1);
  const auto bytes = RandomBytes(random, 100000);
  ASSERT_TRUE(test.Write(a, 5, bytes).ok());
  EXPECT_EQ(RunTask(test.loop, test.array->CreateVolume("a", 1)).error().code, ErrorCode::kExists);
  EXPECT_EQ(RunTask(test.loop, test.array->RenameVolume(a, "b", false)).error().code,
            ErrorCode::kExists);
  ASSERT_TRUE(RunTask(test.loop, test.array->RenameVolume(a, "b", true)).ok());
  EXPECT_FALSE(test.array->GetVolume(b));
  const auto large = RunTask(test.loop, test.array->ResizeVolume(a, uint64_t{1} << 60));
  ASSERT_FALSE(large.ok());
  EXPECT_EQ(large.error().errno_value, EFBIG);
  ASSERT_EQ(test.array->Volumes().size(), 1U);
  EXPECT_EQ(test.array->FindVolume("b")->id, a);
  // Shrink in the middle of a chunk and grow again: what was cut off is zero.
  ASSERT_TRUE(RunTask(test.loop, test.array->ResizeVolume(a, 50000)).ok());
  ASSERT_TRUE(RunTask(test.loop, test.array->ResizeVolume(a, 100005)).ok());
  auto expected = bytes;
  std::fill(expected.begin() + 50000 - 5, expected.end(), std::byte{0});
  EXPECT_TRUE(test.Read(a, 5, 100000) == expected);
  test.Kill();
  test.Open();
  EXPECT_TRUE(test.Read(a, 5, 100000) == expected);
  const uint64_t free_before = test.array->GetStatus().free_bytes;
  ASSERT_TRUE(RunTask(test.loop, test.array->DeleteVolume(a)).ok());
  ASSERT_TRUE(test.Close().ok());
  test.Open();
  EXPECT_GT(test.array->GetStatus().free_bytes, free_before);
  EXPECT_TRUE(test.array->Volumes().empty());
}

// Character by character: under the thread sanitizer gcc 12 takes a sum of strings for an overflow.
std::string Reserved(std::string_view rest) {
  std::string name(kReservedVolumePrefix);
  for (const char c : rest) {
    name.push_back(c);
  }
  return name;
}

TEST(Array, ReservedNamesAndOnesThatAreNoTextAreRefused) {
  TestArray test({});
  const VolumeId a = test.CreateVolume("a", 1 << 20);
  for (const std::string& bad : {Reserved(""), Reserved("1"), Reserved("1\x7f"),
                                 std::string("\xff"), std::string("a\xc3")}) {
    EXPECT_EQ(RunTask(test.loop, test.array->CreateVolume(bad, 1)).error().code,
              ErrorCode::kInvalidArgument);
    EXPECT_EQ(RunTask(test.loop, test.array->RenameVolume(a, bad, true)).error().code,
              ErrorCode::kInvalidArgument);
    EXPECT_EQ(RunTask(test.loop, test.array->RenameVolumeOver(a, bad)).error().code,
              ErrorCode::kInvalidArgument);
  }
  ASSERT_EQ(test.array->Volumes().size(), 1U);
  EXPECT_EQ(test.array->Volumes().front().name, "a");
}

// Earlier versions let them pass.
TEST(Array, VolumesThatHaveReservedNamesAreKept) {
  TestArray test({});
  ASSERT_TRUE(test.Close().ok());
  test.hooks().reserved_names = true;
  test.Open();
  Random random(1);
  const auto bytes = RandomBytes(random, 50000);
  // The second is just what an earlier version would have called a volume that was unlinked.
  const std::string names[] = {Reserved("mine"), Reserved("2")};
  for (const std::string& name : names) {
    ASSERT_TRUE(test.Write(test.CreateVolume(name, 1 << 20), 0, bytes).ok());
  }
  ASSERT_TRUE(test.Close().ok());
  test.hooks().reserved_names = false;
  for (int life = 0; life < 2; ++life) {
    test.Open();
    test.Sleep(1'000'000);
    ASSERT_EQ(test.array->Volumes().size(), 2U);
    for (const std::string& name : names) {
      const auto found = test.array->FindVolume(name);
      ASSERT_TRUE(found) << name;
      EXPECT_TRUE(test.Read(found->id, 0, bytes.size()) == bytes);
    }
    ASSERT_TRUE(test.Close().ok());
  }
  test.Open();
  const VolumeId mine = test.array->FindVolume(names[0])->id;
  ASSERT_TRUE(RunTask(test.loop, test.array->RenameVolume(mine, "good", false)).ok());
  ASSERT_TRUE(
      RunTask(test.loop, test.array->DeleteVolume(test.array->FindVolume(names[1])->id)).ok());
  EXPECT_EQ(test.array->Volumes().size(), 1U);
}

TEST(Array, AHiddenVolumeLivesForItsUsersAndNoLongerThanTheArrayIsOpen) {
  TestArray test({});
  const VolumeId volume = test.CreateVolume("v", 1 << 20);
  Random random(1);
  const auto bytes = RandomBytes(random, 300000);
  ASSERT_TRUE(test.Write(volume, 0, bytes).ok());
  ASSERT_TRUE(RunTask(test.loop, test.array->HideVolume(volume)).ok());
  EXPECT_TRUE(RunTask(test.loop, test.array->HideVolume(volume)).ok());
  EXPECT_TRUE(test.array->Volumes().empty());
  EXPECT_FALSE(test.array->FindVolume("v"));
  ASSERT_TRUE(test.array->GetVolume(volume));
  EXPECT_EQ(test.array->GetVolume(volume)->name, "");
  EXPECT_TRUE(test.Read(volume, 0, bytes.size()) == bytes);
  EXPECT_TRUE(test.Write(volume, 0, bytes).ok());
  test.CreateVolume("v", 1 << 20);  // the name is free
  const uint64_t free_before = test.array->GetStatus().free_bytes;
  test.Kill();
  test.Open(true);
  EXPECT_TRUE(test.array->GetVolume(volume)) << "to look changes nothing";
  EXPECT_EQ(test.array->Volumes().size(), 1U);
  ASSERT_TRUE(test.Close().ok());
  test.Open();
  test.Sleep(10'000'000);
  EXPECT_FALSE(test.array->GetVolume(volume));
  EXPECT_GT(test.array->GetStatus().free_bytes, free_before);
  EXPECT_EQ(test.array->Volumes().size(), 1U);
}

// Killed at any moment of it: the name means the old volume or the new one.
TEST(Array, AVolumeIsReplacedAtOneMomentOverAKillToo) {
  ArrayShape shape;
  shape.ssd_delays = kSsdDelays;
  shape.log_delays = kLogDelays;
  Random random(1);
  const auto old_bytes = RandomBytes(random, 100000);
  const auto new_bytes = RandomBytes(random, 100000);
  uint32_t olds = 0;
  uint32_t news = 0;
  shape.n = 4;
  shape.ssd_bytes = uint64_t{8} << 20;
  shape.log_bytes = uint64_t{8} << 20;
  for (uint64_t after_us = 0; after_us < 4000; after_us += 80) {
    TestArray test(shape);
    const VolumeId was = test.CreateVolume("v", 1 << 20);
    const VolumeId is = test.CreateVolume("new", 1 << 20);
    ASSERT_TRUE(test.Write(was, 0, old_bytes).ok());
    ASSERT_TRUE(test.Write(is, 0, new_bytes).ok());
    ASSERT_TRUE(RunTask(test.loop, test.array->FlushAll()).ok());
    bool done = false;
    test.loop.Spawn([](Array& array, VolumeId id, bool& ended) -> Task<void> {
      Task<Result<VolumeId>> renaming = array.RenameVolumeOver(id, "v");
      const Result<VolumeId> hidden = co_await renaming;
      EXPECT_TRUE(hidden.ok() && hidden->value != 0);
      ended = true;
    }(*test.array, is, done));
    test.Sleep(after_us);
    ASSERT_TRUE(test.array->FindVolume("v")) << "at every moment";
    test.Kill();
    test.Open();
    const auto found = test.array->FindVolume("v");
    ASSERT_TRUE(found) << after_us;
    const bool replaced = found->id == is;
    EXPECT_TRUE(test.Read(found->id, 0, new_bytes.size()) == (replaced ? new_bytes : old_bytes));
    EXPECT_EQ(test.array->FindVolume("new").has_value(), !replaced) << after_us;
    EXPECT_EQ(test.array->Volumes().size(), replaced ? 1U : 2U);
    EXPECT_TRUE(replaced || !done) << "what was answered is durable";
    ++(replaced ? news : olds);
  }
  EXPECT_GT(olds, 0U);
  EXPECT_GT(news, 0U);
}

// What is to be deleted is what has the name when it is done: a change that was before it comes
// first.
TEST(Array, VolumeIsDeletedByItsNameOnlyWhileItHasIt) {
  TestArray test({});
  const VolumeId v = test.CreateVolume("v", 1 << 20);
  const auto begin = [&](Task<Status> change) {
    test.loop.Start([](Task<Status> running) -> Task<void> {
      EXPECT_TRUE((co_await running).ok());
    }(std::move(change)));
  };
  const auto expect_kept = [&] {
    const Status deleted = RunTask(test.loop, test.array->DeleteVolumeNamed(v, "v"));
    ASSERT_FALSE(deleted.ok());
    EXPECT_EQ(deleted.error().code, ErrorCode::kNotFound);
    EXPECT_NE(deleted.error().message.find("no volume is called v"), std::string::npos);
    EXPECT_TRUE(test.array->GetVolume(v));
  };
  begin(test.array->RenameVolume(v, "w", false));
  expect_kept();
  EXPECT_EQ(test.array->FindVolume("w")->id, v);
  ASSERT_TRUE(RunTask(test.loop, test.array->RenameVolume(v, "v", false)).ok());
  begin(test.array->HideVolume(v));
  expect_kept();
  ASSERT_TRUE(RunTask(test.loop, test.array->RenameVolume(v, "v", false)).ok());
  EXPECT_TRUE(RunTask(test.loop, test.array->DeleteVolumeNamed(v, "v")).ok());
  EXPECT_FALSE(test.array->GetVolume(v));
  EXPECT_TRUE(test.Close().ok());
}

// A full array: overwriting goes on for ever, a new extent is refused.
TEST(Array, OverwritingAFullArrayNeverMeetsNoSpace) {
  ArrayShape shape;
  shape.n = 4;
  shape.ssd_bytes = uint64_t{4} << 20;
  shape.log_bytes = uint64_t{1} << 20;
  shape.ring_bytes = 16 * 4096;
  TestArray test(shape);
  const uint64_t capacity = test.array->GetStatus().capacity_bytes;
  const VolumeId volume = test.CreateVolume("v", capacity + (1 << 20));
  Random random(3);
  const auto block = RandomBytes(random, 65536);
  for (uint64_t offset = 0; offset < capacity; offset += block.size()) {
    const auto part = std::span(block).first(std::min<uint64_t>(block.size(), capacity - offset));
    ASSERT_TRUE(test.Write(volume, offset, part).ok()) << offset;
  }
  EXPECT_EQ(test.Write(volume, capacity, block).error().code, ErrorCode::kNoSpace);
  for (int i = 0; i < 3000; ++i) {
    const uint64_t offset = random.Below(capacity / 4096) * 4096;
    ASSERT_TRUE(test.Write(volume, offset, std::span(block).first(4096)).ok()) << i;
  }
  const auto report = RunTask(test.loop, test.array->Check({}));
  EXPECT_EQ(report->problems_found, 0U) << report->findings.front().Text();
  EXPECT_GT(test.array->GetStatus().traffic.checkpoints, 0U);
}

}  // namespace
}  // namespace eplog
