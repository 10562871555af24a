// JournalRings against a plain model: what was packed stays on its SSDs until a checkpoint counts
// that covers it, whatever else is written, and all room that is said to be there is there.

#include "rings/journal_rings.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "base/random.h"
#include "device/memory_device.h"
#include "device/wrappers.h"
#include "runtime/run_task.h"
#include "runtime/virtual_loop.h"

namespace eplog {
namespace {

constexpr Uuid kArray = {std::byte{1}, std::byte{2}};
constexpr uint64_t kRingOffset = 64 * kBlockBytes;

Geometry RingsOf(uint32_t n, uint32_t m, uint64_t blocks) {
  Geometry g;
  g.n = n;
  g.m = m;
  g.chunk_bytes = 4096;
  g.slots = 16;
  g.stripes = 8;
  g.extent_stripes = 1;
  g.ring_offset_bytes = kRingOffset;
  g.ring_blocks = blocks;
  g.log_blocks = 1000;
  return g;
}

class Rings {
 public:
  explicit Rings(uint64_t seed) : random(seed) {
    const auto m = static_cast<uint32_t>(random.Between(1, 2));
    g = RingsOf(m + static_cast<uint32_t>(random.Between(2, 3)), m, random.Between(3, 9));
    std::vector<Device*> all;
    for (uint32_t i = 0; i < g.n + g.m; ++i) {
      memory_.push_back(std::make_unique<MemoryDevice>(std::to_string(i),
                                                       kRingOffset + g.ring_blocks * kBlockBytes));
      delayed_.push_back(std::make_unique<DelayDevice>(
          loop, *memory_.back(), DeviceDelays{.write_us = random.Between(1, 300)}));
      all.push_back(delayed_.back().get());
    }
    members = std::make_unique<MemberSet>(loop, all);
    members->TakeLosses([](DeviceIndex, const Error&) {});
    max_headers = static_cast<uint32_t>(random.Between(1, 3));
    Open();
  }
  ~Rings() { EXPECT_TRUE(Run(Drain(rings.get())).ok()); }

  template <typename T>
  T Run(Task<T> task) {
    return RunTask(loop, std::move(task));
  }
  // What lies on the devices, in any order, as an opening finds it.
  void Open() {
    if (rings) {
      EXPECT_TRUE(Run(Drain(rings.get())).ok());
    }
    rings = std::make_unique<JournalRings>(loop, *members, g, kArray, pool);
    rings->set_max_headers(max_headers);
    std::vector<std::pair<DeviceIndex, RingBlock>> found;
    for (uint8_t i = 0; i < g.n; ++i) {
      for (const auto& block : BlocksOn(DeviceIndex(i))) {
        found.emplace_back(DeviceIndex(i), block);
      }
    }
    for (size_t i = found.size(); i > 1; --i) {
      std::swap(found[i - 1], found[random.Below(i)]);
    }
    for (const auto& [ssd, block] : found) {
      const uint64_t last = block.headers.back().sequence;
      rings->NoteBlock(ssd, block.number, last, last > covered);
    }
  }
  void Enqueue() {
    EntryHeader header;
    header.epoch = {1, 2};
    header.sequence = ++newest;
    header.place = newest;
    std::vector<std::byte> bytes(kMaxEntryHeaderBytes);
    bytes.resize(EncodeEntryHeader(header, kArray, bytes));
    rings->Enqueue(header.sequence, bytes);
  }
  // Packed headers up to this one may be read now; where they lie is noted.
  void AwaitWritten(uint64_t upto) {
    const auto written = Run(rings->Written(upto));
    ASSERT_TRUE(written.ok()) << written.error().ToString();
    rings->Stable(upto);
    stable = std::max(stable, upto);
    where = Found();
    for (const auto& [sequence, ssds] : where) {
      for (const uint8_t ssd : ssds) {
        ASSERT_TRUE(sequence > upto || (*written >> ssd & 1) != 0 || sequence <= flushed)
            << sequence;
      }
    }
    flushed = std::max(flushed, upto);
  }
  void AwaitWritten() { AwaitWritten(rings->packed()); }
  // sequence -> SSDs that have it, of what no checkpoint covers.
  std::map<uint64_t, std::set<uint8_t>> Found() {
    std::map<uint64_t, std::set<uint8_t>> found;
    for (uint8_t i = 0; i < g.n; ++i) {
      for (const RingBlock& block : BlocksOn(DeviceIndex(i))) {
        for (const EntryHeader& header : block.headers) {
          if (header.sequence > covered) {
            found[header.sequence].insert(i);
          }
        }
      }
    }
    return found;
  }
  std::vector<RingBlock> BlocksOn(DeviceIndex ssd) {
    std::vector<RingBlock> blocks;
    for (uint64_t at = 0; members->live(ssd) && at < g.ring_blocks; ++at) {
      const auto bytes =
          memory_[ssd.value]->bytes().subspan(kRingOffset + at * kBlockBytes, kBlockBytes);
      auto block = DecodeRingBlock(bytes, kArray, g, ssd);
      if (block.ok() && block->number % g.ring_blocks == at) {
        blocks.push_back(std::move(*block));
      }
    }
    return blocks;
  }
  [[nodiscard]] uint32_t Copies() const {
    uint32_t lost_logs = 0;
    uint32_t live = 0;
    for (uint8_t i = 0; i < g.n + g.m; ++i) {
      const bool is_log = i >= g.n;
      lost_logs += is_log && !members->live(DeviceIndex(i)) ? 1 : 0;
      live += !is_log && members->live(DeviceIndex(i)) ? 1 : 0;
    }
    return std::min(1 + lost_logs, live);
  }
  void Lose(DeviceIndex device) {
    Error why;
    why.code = ErrorCode::kDeviceFailed;
    members->Lose(device, why);
    for (auto& [sequence, ssds] : where) {
      ssds.erase(device.value);
    }
  }

  Random random;
  VirtualLoop loop;
  BufferPool pool;
  Geometry g;
  std::unique_ptr<MemberSet> members;
  std::unique_ptr<JournalRings> rings;
  uint32_t max_headers = 0;
  uint64_t newest = 0;
  uint64_t stable = 0;
  uint64_t flushed = 0;
  uint64_t covered = 0;
  std::map<uint64_t, std::set<uint8_t>> where;

 private:
  static Task<Status> Drain(JournalRings* rings) {
    Task<void> draining = rings->Drain();
    co_await draining;
    co_return OkStatus();
  }
  std::vector<std::unique_ptr<MemoryDevice>> memory_;
  std::vector<std::unique_ptr<DelayDevice>> delayed_;
};

class JournalRingsOf : public ::testing::TestWithParam<uint64_t> {};

TEST_P(JournalRingsOf, KeepWhatNoCheckpointCovers) {
  Rings test(GetParam());
  Random& random = test.random;
  uint32_t lost = 0;
  for (int step = 0; step < 600; ++step) {
    switch (random.Below(8)) {
      case 0:
      case 1:
      case 2:
        for (uint64_t i = random.Between(1, 4); i != 0; --i) {
          test.Enqueue();
        }
        break;
      case 3:
      case 4: {
        const uint64_t reserve = random.OneIn(2) ? JournalRings::kReserveBlocks : 0;
        const bool full_only = random.OneIn(4);
        const uint64_t room = test.rings->Room(reserve);
        const size_t queued = test.rings->queued();
        const uint64_t before = std::max(test.rings->packed(), test.stable);
        const uint64_t upto = random.OneIn(2) ? test.newest : random.Between(before, test.newest);
        test.rings->Pack(upto, full_only, reserve);
        ASSERT_LE(test.rings->packed(), std::max(before, upto));
        const size_t blocks = DivideUp(queued - test.rings->queued(), test.max_headers);
        ASSERT_LE(blocks, room) << "step " << step;
        // Nothing waits where there was room for it.
        const uint64_t left = test.rings->Room(reserve);
        ASSERT_TRUE(left == 0 || std::max(test.rings->packed(), before) >= upto ||
                    (full_only && test.rings->queued() < test.max_headers))
            << "step " << step;
        ASSERT_TRUE(left == room - blocks || test.Copies() > 1) << "step " << step;
        break;
      }
      case 5:
        test.AwaitWritten(random.Between(test.stable, std::max(test.stable, test.rings->packed())));
        for (uint64_t sequence = test.covered + 1; sequence <= test.stable; ++sequence) {
          ASSERT_TRUE(test.where.contains(sequence) || lost != 0) << sequence << ", step " << step;
        }
        break;
      case 6:
        // A checkpoint may cover more than is packed; never what is not applied.
        if (random.OneIn(3)) {
          test.covered = random.Between(test.covered, test.stable);
          test.rings->CheckpointCounts(test.covered);
          std::erase_if(test.where, [&](const auto& at) { return at.first <= test.covered; });
        }
        break;
      default:
        if (random.OneIn(60) && lost < test.g.m) {
          test.Lose(DeviceIndex(static_cast<uint8_t>(random.Below(test.g.n + test.g.m))));
          ++lost;
        } else if (random.OneIn(20)) {
          test.AwaitWritten();
          const uint64_t reserve = JournalRings::kReserveBlocks;
          const uint64_t room = test.rings->Room(reserve);
          test.newest = test.stable;  // what was not packed is gone with its opening
          test.Open();
          ASSERT_GE(test.rings->Room(reserve), room) << "step " << step;
        }
    }
    const auto found = test.Found();
    for (const auto& [sequence, ssds] : test.where) {
      const auto now = found.find(sequence);
      for (const uint8_t ssd : ssds) {
        ASSERT_TRUE(now != found.end() && now->second.contains(ssd))
            << "of entry " << sequence << " on ssd" << int{ssd} << ", step " << step;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, JournalRingsOf, ::testing::Range(uint64_t{1}, uint64_t{61}));

// To the last block, then round and round as checkpoints free one block after the other.
TEST(JournalRings, AreFilledToTheLastBlock) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    Rings test(seed);
    const uint64_t blocks = test.g.n * test.g.ring_blocks;
    EXPECT_EQ(test.rings->Room(0), blocks);
    EXPECT_EQ(test.rings->Room(JournalRings::kReserveBlocks),
              test.g.n * (test.g.ring_blocks - JournalRings::kReserveBlocks));
    for (uint64_t i = 0; i < (blocks + 3) * test.max_headers; ++i) {
      test.Enqueue();
    }
    test.rings->Pack(test.newest, false, 0);
    EXPECT_EQ(test.rings->queued(), 3 * test.max_headers);
    EXPECT_EQ(test.rings->Room(0), 0U);
    test.AwaitWritten();
    EXPECT_EQ(test.Found().size(), blocks * test.max_headers);
    for (int i = 0; i < 40; ++i) {
      // The oldest block goes, its place is the next one's, and it is all the room there is.
      test.covered += test.max_headers;
      test.rings->CheckpointCounts(test.covered);
      EXPECT_EQ(test.rings->Room(0), 1U);
      test.rings->Pack(test.newest, false, 0);
      EXPECT_EQ(test.rings->Room(0), 0U);
      for (uint32_t added = 0; added < test.max_headers; ++added) {
        test.Enqueue();
      }
      test.AwaitWritten();
      EXPECT_EQ(test.Found().size(), blocks * test.max_headers);
    }
  }
}

TEST(JournalRings, SeveralCopiesLieOnSeveralSsds) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    Rings test(seed);
    for (uint32_t j = 0; j < test.g.m; ++j) {
      test.Lose(test.g.LogDevice(j));
    }
    ASSERT_EQ(test.Copies(), std::min(1 + test.g.m, test.g.n));
    const uint64_t room = test.rings->Room(0);
    EXPECT_EQ(room, test.g.n * test.g.ring_blocks / test.Copies());
    for (uint64_t i = 0; i < (room + 1) * test.max_headers; ++i) {
      test.Enqueue();
    }
    test.rings->Pack(test.newest, false, 0);
    EXPECT_EQ(test.rings->queued(), test.max_headers);
    test.AwaitWritten();
    EXPECT_EQ(test.where.size(), room * test.max_headers);
    for (const auto& [sequence, ssds] : test.where) {
      EXPECT_EQ(ssds.size(), test.Copies()) << sequence;
    }
  }
}

}  // namespace
}  // namespace eplog
