// Nothing waits for ever, and nothing for long: loads that eat slots and log as fast as they can,
// on devices with the latencies of real ones, under the virtual clock. Every wait that never ends
// shows as a run that does not finish.

#include <algorithm>
#include <array>
#include <climits>

#include "layout/geometry.h"
#include "tests/engine/array_fixture.h"

namespace eplog {
namespace {

constexpr uint64_t kPatienceUs = 60'000'000;  // of the virtual clock

// What the task returns, if it ends in time.
template <typename T>
std::optional<T> RunWithin(EventLoop& loop, Task<T> task, uint64_t us = kPatienceUs) {
  auto result = std::make_shared<std::optional<T>>();
  loop.Spawn([](Task<T> inner, std::shared_ptr<std::optional<T>> out) -> Task<void> {
    out->emplace(co_await inner);
  }(std::move(task), result));
  const uint64_t deadline = loop.NowUs() + us;
  const bool ran = loop.RunUntil([&] { return result->has_value() || loop.NowUs() > deadline; });
  return ran && result->has_value() ? std::move(*result) : std::nullopt;
}

// Writers of single chunks at random, each chunk stamped with its number.
struct Load {
  Load(TestArray& test, VolumeId volume, uint64_t chunks, uint32_t chunk_bytes)
      : array(test), id(volume), chunk_count(chunks), bytes(chunk_bytes) {}

  TestArray& array;
  VolumeId id;
  uint64_t chunk_count;
  uint32_t bytes;
  uint64_t first = 0;  // leaves the chunks before it alone
  Random random{7};
  uint64_t left = 0;
  uint64_t running = 0;
  uint64_t done = 0;
  uint64_t last_us = 0;
  uint64_t longest_gap_us = 0;
  Status failure;

  void Start(uint64_t workers, uint64_t writes) {
    left = writes;
    last_us = array.loop.NowUs();
    for (uint64_t i = 0; i < workers; ++i) {
      ++running;
      array.loop.Spawn(Work());
    }
  }
  void Finished(const Status& status) {
    const uint64_t now = array.loop.NowUs();
    longest_gap_us = std::max(longest_gap_us, now - last_us);
    last_us = now;
    ++done;
    if (!status.ok() && failure.ok()) {
      failure = status;
      left = 0;
    }
  }
  Task<void> Work() {
    Buffer block = array.pool.GetZeroed(bytes);
    while (left != 0) {
      --left;
      const uint64_t chunk = random.Between(first, chunk_count - 1);
      std::memcpy(block.data(), &chunk, sizeof chunk);
      Task<Status> write = array.array->Write(id, chunk * bytes, block.span());
      const Status status = co_await write;
      Finished(status);
    }
    --running;
  }
  // False if nothing was finished for so long that nothing ever will be.
  bool RunToEnd() {
    return array.loop.RunUntil([&] {
      return running == 0 || array.loop.NowUs() > last_us + kPatienceUs;
    }) && running == 0;
  }
};

struct OverwriteCase {
  uint32_t n;
  uint32_t m;
  uint32_t chunk_bytes;
  uint32_t reserve_percent;
  uint64_t ssd_kib;
  uint64_t log_kib;
  uint64_t workers;
};

void PrintTo(const OverwriteCase& c, std::ostream* out) {
  *out << c.n - c.m << "+" << c.m << ", chunk " << c.chunk_bytes << ", reserve "
       << c.reserve_percent << " %, SSD " << c.ssd_kib << "K, log " << c.log_kib << "K, "
       << c.workers << " writers";
}

ArrayShape DelayedShape(const OverwriteCase& c) {
  ArrayShape shape;
  shape.n = c.n;
  shape.m = c.m;
  shape.chunk_bytes = c.chunk_bytes;
  shape.reserve_percent = c.reserve_percent;
  shape.ssd_bytes = c.ssd_kib << 10;
  shape.log_bytes = c.log_kib << 10;
  shape.ssd_delays = kSsdDelays;
  shape.log_delays = kLogDelays;
  return shape;
}

class RandomOverwrites : public ::testing::TestWithParam<OverwriteCase> {};

// A fresh array gives commits nothing back: parity is written where there was none. Random writes
// over all of it, several times, meet every shortage there is.
TEST_P(RandomOverwrites, OfAFreshArrayNeverStall) {
  const OverwriteCase& c = GetParam();
  TestArray test(DelayedShape(c));
  const uint64_t size = test.array->GetStatus().capacity_bytes;
  const uint64_t chunks = size / c.chunk_bytes;
  const VolumeId volume = test.CreateVolume("v", size);
  Load load(test, volume, chunks, c.chunk_bytes);
  load.Start(c.workers, 4 * chunks);
  const bool ended = load.RunToEnd();
  const ArrayStatus status = test.array->GetStatus();
  std::printf("%lu writes, longest wait %.3f s, %lu commits, %lu checkpoints\n",
              static_cast<unsigned long>(load.done), static_cast<double>(load.longest_gap_us) / 1e6,
              static_cast<unsigned long>(status.traffic.commits),
              static_cast<unsigned long>(status.traffic.checkpoints));
  EXPECT_TRUE(ended) << "stalled after " << load.done << " writes";
  EXPECT_TRUE(load.failure.ok()) << load.failure.error().ToString();
  EXPECT_LT(load.longest_gap_us, 1'000'000U);
  if (ended) {
    for (uint64_t chunk = 0; chunk < chunks; chunk += 97) {
      const auto content = test.Read(volume, chunk * c.chunk_bytes, c.chunk_bytes);
      uint64_t stamp = 0;
      std::memcpy(&stamp, content.data(), sizeof stamp);
      EXPECT_TRUE(stamp == chunk || stamp == 0);
    }
    const auto committed = RunWithin(test.loop, test.array->Commit({}));
    ASSERT_TRUE(committed.has_value()) << "the commit of everything never ends";
    EXPECT_TRUE(committed->ok()) << committed->error().ToString();
    EXPECT_EQ(test.array->GetStatus().pending_chunks, 0U);
  }
  const auto closed = RunWithin(test.loop, test.array->Close());
  EXPECT_TRUE(closed.has_value()) << "the array never closes";
  test.Kill();
}

INSTANTIATE_TEST_SUITE_P(Shapes, RandomOverwrites,
                         ::testing::Values(OverwriteCase{3, 1, 4096, 10, 6144, 9216, 32},
                                           OverwriteCase{3, 1, 4096, 10, 6144, 24576, 32},
                                           OverwriteCase{5, 2, 4096, 10, 6144, 9216, 32},
                                           OverwriteCase{5, 2, 4096, 2, 6144, 12288, 32},
                                           OverwriteCase{8, 4, 4096, 10, 4096, 12288, 32},
                                           OverwriteCase{8, 2, 4096, 10, 4096, 16384, 1},
                                           OverwriteCase{8, 2, 4096, 1, 4096, 320, 64},
                                           OverwriteCase{16, 2, 4096, 1, 2560, 320, 64},
                                           OverwriteCase{32, 1, 4096, 1, 2560, 320, 64},
                                           OverwriteCase{32, 4, 4096, 1, 2560, 8192, 64},
                                           OverwriteCase{6, 2, 65536, 1, 12288, 24576, 32},
                                           OverwriteCase{4, 1, 1048576, 10, 65536, 131072, 8}));

// Log room comes back in steps of commit and checkpoint whose length does not depend on the log.
TEST(LogRoom, ComesBackSoonHoweverLargeTheLog) {
  for (const uint64_t log_mib : {4U, 16U, 64U}) {
    OverwriteCase c{8, 2, 4096, 10, log_mib << 11, log_mib << 10, 64};
    TestArray test(DelayedShape(c));
    const uint64_t size = test.array->GetStatus().capacity_bytes;
    const VolumeId volume = test.CreateVolume("v", size);
    Load load(test, volume, size / 4096, 4096);
    load.Start(c.workers, 12 * (log_mib << 20) / 4096);
    ASSERT_TRUE(load.RunToEnd());
    std::printf("log of %lu MiB: longest wait %.3f s, %lu checkpoints\n",
                static_cast<unsigned long>(log_mib), static_cast<double>(load.longest_gap_us) / 1e6,
                static_cast<unsigned long>(test.array->GetStatus().traffic.checkpoints));
    EXPECT_LT(load.longest_gap_us, 1'000'000U);
  }
}

// The smallest rings: entries wait for checkpoints all the time.
ArrayShape ShortRings(uint32_t headers_a_block) {
  ArrayShape shape = DelayedShape({3, 1, 4096, 10, 12288, 8192, 0});
  shape.ring_bytes = uint64_t{16} * 4096;
  shape.headers_a_ring_block = headers_a_block;
  return shape;
}

// Close comes when commits are at work and wait for ring room.
TEST(Close, EndsDuringACommit) {
  for (uint64_t at_us = 100'000; at_us < 200'000; at_us += 4'700) {
    TestArray test(ShortRings(0));
    const uint64_t size = test.array->GetStatus().capacity_bytes;
    const VolumeId volume = test.CreateVolume("v", size);
    Load load(test, volume, size / 4096, 4096);
    load.Start(32, UINT64_MAX);
    const uint64_t until = test.loop.NowUs() + 300'000 + at_us;
    static_cast<void>(test.loop.RunUntil([&] { return test.loop.NowUs() >= until; }));
    load.left = 0;
    const auto closed = RunWithin(test.loop, test.array->Close());
    ASSERT_TRUE(closed.has_value()) << "closing never ends, begun at " << at_us;
    EXPECT_TRUE(closed->ok()) << closed->error().ToString();
    test.Kill();
  }
}

// The array stops, of a checkpoint or of a flush for which there is no space below, while writes
// wait in every queue: all of them end, with an error.
TEST(Stop, EndsEveryRequest) {
  const Fault superblock = {.kinds = MaskOf(RequestKind::kWrite),
                            .code = ErrorCode::kNoSpace,
                            .range_length_bytes = kSuperblockAreaBytes};
  const Fault flush = {.kinds = MaskOf(RequestKind::kFlush), .code = ErrorCode::kNoSpace};
  for (const Fault& kind : {superblock, flush}) {
    for (uint64_t nth = 1; nth <= 8; ++nth) {
      for (const uint32_t device : {0U, 3U}) {
        TestArray test(ShortRings(1));
        const uint64_t size = test.array->GetStatus().capacity_bytes;
        const VolumeId volume = test.CreateVolume("v", size);
        Load load(test, volume, size / 4096, 4096);
        load.Start(64, 100'000);
        const uint64_t until = test.loop.NowUs() + 100'000;
        static_cast<void>(test.loop.RunUntil([&] { return test.loop.NowUs() >= until; }));
        Fault fault = kind;
        fault.nth = nth;
        test.faulty(device).Add(fault);
        ASSERT_TRUE(load.RunToEnd()) << "writes wait for ever after request " << nth;
        EXPECT_FALSE(load.failure.ok());
        EXPECT_TRUE(RunWithin(test.loop, test.array->Close()).has_value());
        test.Kill();
      }
    }
  }
}

// A stripe that lost more chunks than its parity can give back cannot be committed. The others are,
// and what is pending of it is moved on in the log, however short that is. Deleting it, or writing
// it anew, is never refused.
class UnreadableStripe : public ::testing::TestWithParam<bool> {
 protected:
  UnreadableStripe() : test_(DelayedShape({5, 1, 4096, 10, 6144, 1024, 16})) {
    bad_ = test_.CreateVolume("bad", 64 << 10);
    good_ = test_.CreateVolume("good", 8 << 20);
    Random random(3);
    whole_ = RandomBytes(random, size_t{4} * 4096);
    EXPECT_TRUE(test_.Write(bad_, 0, whole_).ok());
    EXPECT_TRUE(RunTask(test_.loop, test_.array->FlushAll()).ok());
    for (uint32_t ssd = 0; ssd < 5; ++ssd) {
      const auto bytes = test_.memory(ssd).bytes();
      for (uint32_t chunk = 0; chunk < 2; ++chunk) {
        const auto* wanted = whole_.data() + size_t{chunk} * 4096;
        const auto found = std::search(bytes.begin(), bytes.end(), wanted, wanted + 4096);
        if (found != bytes.end()) {
          *found = ~*found;
        }
      }
    }
    // Two of four: a commit by delta, which needs neither of the lost ones, would read more.
    EXPECT_TRUE(test_.Write(bad_, 2 * 4096, std::span(whole_).first(2 * 4096)).ok());
  }
  ~UnreadableStripe() override { test_.Kill(); }

  TestArray test_;
  VolumeId bad_;
  VolumeId good_;
  std::vector<std::byte> whole_;
};

TEST_P(UnreadableStripe, HoldsUpNothingElseAndCanBeCured) {
  for (uint64_t i = 0; i < 50; ++i) {
    ASSERT_TRUE(test_.Write(good_, 7 * i * 4096, std::span(whole_).first(4096)).ok());
  }
  const auto committed = RunWithin(test_.loop, test_.array->Commit({}));
  ASSERT_TRUE(committed.has_value());
  ASSERT_FALSE(committed->ok());
  EXPECT_NE(committed->error().message.find("stripe 0"), std::string::npos)
      << committed->error().message;
  EXPECT_EQ(test_.array->GetStatus().pending_chunks, 2U);

  for (int round = 0; round < 3; ++round) {
    Load load(test_, good_, 2048, 4096);
    load.Start(16, 20'000);
    ASSERT_TRUE(load.RunToEnd()) << "waits for ever";
    ASSERT_TRUE(load.failure.ok()) << load.failure.error().message;
    EXPECT_EQ(test_.Read(bad_, 2 * 4096, 2 * 4096),
              std::vector(whole_.begin(), whole_.begin() + 2 * 4096));
    EXPECT_TRUE(test_.array->GetStatus().stopped_because.empty());
    const auto again = RunWithin(test_.loop, test_.array->Commit({}));
    ASSERT_TRUE(again.has_value());
    EXPECT_FALSE(again->ok());
    EXPECT_EQ(test_.array->GetStatus().pending_chunks, 2U) << "the others are committed";
    EXPECT_EQ(test_.Read(good_, 7 * 4096, 4096).size(), 4096U);
    if (round == 1) {
      ASSERT_TRUE(RunWithin(test_.loop, test_.array->Close()).has_value());
      test_.Kill();
      test_.Open();
    }
  }
  if (GetParam()) {
    const auto deleted = RunWithin(test_.loop, test_.array->DeleteVolume(bad_));
    ASSERT_TRUE(deleted.has_value());
    ASSERT_TRUE(deleted->ok()) << deleted->error().ToString();
  } else {
    const auto written = RunWithin(test_.loop, test_.array->Write(bad_, 0, whole_));
    ASSERT_TRUE(written.has_value());
    ASSERT_TRUE(written->ok()) << written->error().ToString();
  }
  Load after(test_, good_, 2048, 4096);
  after.Start(16, 20'000);
  EXPECT_TRUE(after.RunToEnd());
  EXPECT_TRUE(after.failure.ok()) << after.failure.error().ToString();
  EXPECT_TRUE(RunTask(test_.loop, test_.array->Commit({})).ok());
}

INSTANTIATE_TEST_SUITE_P(Cures, UnreadableStripe, ::testing::Values(true, false));

// What fails for a moment only is tried again before anybody is refused.
TEST(Commit, OutlivesReadErrorsThatPass) {
  for (const bool auto_commit : {false, true}) {
    ArrayShape shape = DelayedShape({5, 1, 4096, 10, 6144, 320, 1});
    shape.auto_commit = auto_commit;
    TestArray test(shape);
    const VolumeId volume = test.CreateVolume("v", 8 << 20);
    const Buffer block = test.pool.GetZeroed(4096);
    ASSERT_TRUE(test.Write(volume, 0, block.span()).ok());
    ASSERT_TRUE(RunTask(test.loop, test.array->FlushAll()).ok());
    for (uint32_t device = 0; device < 6; ++device) {
      test.faulty(device).Add({.kinds = MaskOf(RequestKind::kRead)});
      test.faulty(device).Add({.kinds = MaskOf(RequestKind::kRead)});
    }
    Load load(test, volume, 2048, 4096);
    load.first = 16;
    load.Start(1, 600);
    EXPECT_TRUE(load.RunToEnd());
    EXPECT_TRUE(load.failure.ok()) << load.failure.error().ToString();
  }
}

// Whoever changes a volume has its turn, however steady the reads and writes are.
TEST(VolumeChanges, DoNotStarveUnderSteadyWrites) {
  TestArray test(DelayedShape({5, 2, 4096, 10, 12288, 16384, 0}));
  const VolumeId volume = test.CreateVolume("v", 8 << 20);
  const VolumeId other = test.CreateVolume("w", 8 << 20);
  Load load(test, volume, 1024, 4096);
  load.Start(16, UINT64_MAX);
  static_cast<void>(test.loop.RunUntil([&] { return load.done > 1000; }));
  const auto soon = [&](Task<Status> change) {
    const auto changed = RunWithin(test.loop, std::move(change), 1'000'000);
    return changed.has_value() && changed->ok();
  };
  EXPECT_TRUE(soon(test.array->ResizeVolume(volume, 6 << 20)));
  EXPECT_TRUE(soon(test.array->ResizeVolume(volume, 16 << 20)));
  EXPECT_TRUE(soon(test.array->RenameVolume(other, "v", true)));
  load.left = 0;
  EXPECT_TRUE(load.RunToEnd());
  EXPECT_FALSE(load.failure.ok()) << "its volume was replaced";
}

// A shrinking that a crash interrupted goes on at the next opening, and writes that need the space
// it frees wait for it, not the other way round.
TEST(VolumeChanges, AnInterruptedShrinkingAndWritesDoNotWaitForEachOther) {
  int interrupted = 0;
  for (uint64_t after_us = 0; after_us < 6000; after_us += 300) {
    TestArray test(DelayedShape({5, 2, 4096, 10, 12288, 16384, 0}));
    const uint64_t size = test.array->GetStatus().capacity_bytes;
    const VolumeId second = test.CreateVolume("w", size);
    const VolumeId volume = test.CreateVolume("v", size);
    const Buffer block = test.pool.GetZeroed(1 << 20);
    ASSERT_TRUE(test.Write(second, 0, block.span()).ok());
    // All but the beginning, so that it needs an extent later.
    for (uint64_t offset = 1 << 20; offset + block.size() <= size; offset += block.size()) {
      const Status written = test.Write(volume, offset, block.span());
      ASSERT_TRUE(written.ok() || written.error().code == ErrorCode::kNoSpace);
    }
    bool done = false;
    test.loop.Spawn([](Array& array, VolumeId id, bool& out) -> Task<void> {
      Task<Status> resize = array.ResizeVolume(id, 1 << 20);
      static_cast<void>(co_await resize);
      out = true;
    }(*test.array, volume, done));
    const uint64_t until = test.loop.NowUs() + after_us;
    static_cast<void>(test.loop.RunUntil([&] { return test.loop.NowUs() >= until; }));
    interrupted += done ? 0 : 1;
    test.Kill();
    test.Open();
    // The second volume takes whatever is or becomes free, while the first is written to.
    Load first(test, volume, 256, 4096);
    Load greedy(test, second, size / 4096 / 2, 4096);
    first.Start(4, 500);
    greedy.Start(4, 2000);
    EXPECT_TRUE(first.RunToEnd()) << "interrupted after " << after_us;
    EXPECT_TRUE(greedy.RunToEnd()) << "interrupted after " << after_us;
    if (test.array->GetVolume(volume)->size_bytes == 1 << 20) {
      EXPECT_TRUE(first.failure.ok()) << first.failure.error().ToString();
    }
  }
  EXPECT_GE(interrupted, 5);
}

// An array that could not be opened, or was closed after a failure, has no request on its way that
// would come back to memory that is gone.
TEST(Failures, LeaveNoRequestBehind) {
  const auto in_flight = [](TestArray& test) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < 6; ++i) {
      sum += test.delayed(i).in_flight();
    }
    return sum;
  };
  int failed_openings = 0;
  for (int nth = 1; nth <= 24; ++nth) {
    ArrayShape shape = DelayedShape({4, 2, 4096, 10, 6144, 1024, 0});
    shape.headers_a_ring_block = 1;
    TestArray test(shape);
    ASSERT_TRUE(test.Close().ok());
    // Ring blocks are slow but on the last SSD: when one fails there, later ones are on their way.
    int until_fault = INT_MAX;
    test.hooks().before_io = [&](DeviceIndex device, IoKind kind) {
      const bool slow = kind == IoKind::kRing && device.value != 3;
      test.delayed(device.value)
          .set_delays({.read_us = 80, .write_us = slow ? 50'000U : 30U, .flush_us = 300});
      if (kind == IoKind::kRing && device.value == 3 && --until_fault == 0) {
        test.faulty(3).Add({.kinds = MaskOf(RequestKind::kWrite), .code = ErrorCode::kNoSpace});
      }
    };
    test.Open();
    const VolumeId volume = test.CreateVolume("v", 4 << 20);
    Load load(test, volume, 1024, 4096);
    until_fault = nth % 2 == 0 ? 4 + nth / 4 : INT_MAX;
    load.Start(4, 60);
    ASSERT_TRUE(load.RunToEnd());
    if (nth % 2 == 0) {
      EXPECT_TRUE(RunWithin(test.loop, test.array->Close()).has_value());
      EXPECT_EQ(in_flight(test), 0U) << "after a close, " << nth;
      test.Kill();
      continue;
    }
    test.Kill();
    until_fault = 1 + nth / 8;
    const auto opened = test.TryOpen();
    failed_openings += opened.ok() ? 0 : 1;
    if (!opened.ok()) {
      EXPECT_EQ(in_flight(test), 0U) << "after an opening that failed, " << nth;
    }
    test.loop.Abort();
  }
  EXPECT_GE(failed_openings, 5);
}

// A flush looks at what is assigned, not at what could be.
TEST(Flush, OfAHugeSparseVolumeComesToAnEnd) {
  TestArray test(DelayedShape({5, 2, 4096, 10, 6144, 9216, 0}));
  const uint64_t size = uint64_t{47} << 40;
  const VolumeId volume = test.CreateVolume("v", size);
  const Buffer block = test.pool.GetZeroed(4096);
  ASSERT_TRUE(test.Write(volume, size - 4096, block.span()).ok());
  ASSERT_TRUE(test.Write(volume, 0, block.span()).ok());
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(RunTask(test.loop, test.array->Flush(volume, 0, UINT64_MAX)).ok());
  }
}

}  // namespace
}  // namespace eplog
