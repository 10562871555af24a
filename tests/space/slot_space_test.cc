// SlotSpace against a plain model: who may take which slot when (I1).

#include "space/slot_space.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/random.h"
#include "tests/space/ssds.h"

namespace eplog {
namespace {

// The same rules in the plainest form: every slot has a state.
class Model {
 public:
  enum class Is : uint8_t { kFree, kTaken, kWaiting, kReleasedWhilePinned };
  explicit Model(const Geometry& g) : slots_(g.n, std::vector<Slot>(g.slots)) {}

  struct Slot {
    Is is = Is::kFree;
    uint64_t freed_by = 0;
    uint32_t pins = 0;
    SlotSpace::PinKey pin = 0;
  };
  Slot& At(uint32_t ssd, uint32_t slot) { return slots_[ssd][slot]; }
  [[nodiscard]] uint32_t Free(uint32_t ssd) const {
    uint32_t count = 0;
    for (const Slot& slot : slots_[ssd]) {
      count += slot.is == Is::kFree ? 1 : 0;
    }
    return count;
  }
  // Another SSD is in its place: what was held of the one before says nothing of it.
  void Replace(uint32_t ssd) {
    for (Slot& slot : slots_[ssd]) {
      slot = Slot();
    }
  }
  void Release(Slot& slot) { slot.is = slot.pins != 0 ? Is::kReleasedWhilePinned : Is::kFree; }
  void Covered(uint64_t mark) {
    for (auto& ssd : slots_) {
      for (Slot& slot : ssd) {
        if (slot.is == Is::kWaiting && slot.freed_by <= mark) {
          Release(slot);
        }
      }
    }
  }

 private:
  std::vector<std::vector<Slot>> slots_;
};

class SlotSpaceOf : public ::testing::TestWithParam<uint64_t> {};

TEST_P(SlotSpaceOf, KeepsToTheModel) {
  Random random(GetParam());
  const Geometry g = TwoSsds(static_cast<uint32_t>(random.Between(20, 200)));
  SlotSpace space(g);
  space.set_lowest_first(random.OneIn(2));
  if (random.OneIn(2)) {
    space.NoteFreed();
  }
  Model model(g);
  std::vector<std::pair<uint32_t, SlotSpace::Run>> borrowed;
  // Of SSDs that have been replaced since.
  std::vector<SlotSpace::PinKey> old_pins;
  std::vector<std::pair<uint32_t, SlotSpace::Run>> old_runs;
  uint64_t sequence = 0;
  uint64_t mark = 0;
  for (int step = 0; step < 4000; ++step) {
    const auto ssd = static_cast<uint32_t>(random.Below(2));
    const DeviceIndex device(static_cast<uint8_t>(ssd));
    const auto any = static_cast<uint32_t>(random.Below(g.slots));
    Model::Slot& slot = model.At(ssd, any);
    switch (random.Below(9)) {
      case 0:
      case 1:
        if (space.free(device) != 0) {
          const SlotIndex claimed = space.Claim(device);
          ASSERT_EQ(model.At(ssd, claimed.value).is, Model::Is::kFree) << "a slot in use is given";
          model.At(ssd, claimed.value).is = Model::Is::kTaken;
        }
        break;
      case 2:
      case 3:
        if (slot.is == Model::Is::kTaken && borrowed.empty()) {
          slot.is = Model::Is::kWaiting;
          slot.freed_by = ++sequence;
          space.FreedBy(sequence, std::vector<Freed>{{device, SlotIndex(any)}});
        }
        break;
      case 4:
        mark = random.Between(mark, sequence);
        space.Covered(mark);
        model.Covered(mark);
        break;
      case 5:
        if (slot.is == Model::Is::kTaken || slot.is == Model::Is::kWaiting) {
          slot.pin = space.Pin(device, SlotIndex(any));
          ++slot.pins;
        }
        break;
      case 6:
        if (slot.pins != 0) {
          space.Unpin(slot.pin);
          if (--slot.pins == 0 && slot.is == Model::Is::kReleasedWhilePinned) {
            slot.is = Model::Is::kFree;
          }
        }
        break;
      case 7:
        if (slot.pins != 0 &&
            (slot.is == Model::Is::kWaiting || slot.is == Model::Is::kReleasedWhilePinned)) {
          space.KeepAfterAll(device, SlotIndex(any));
          slot.is = Model::Is::kTaken;
        }
        break;
      default:
        if (!borrowed.empty()) {
          space.Return(DeviceIndex(static_cast<uint8_t>(borrowed.back().first)),
                       borrowed.back().second);
          for (uint32_t i = 0; i < borrowed.back().second.count; ++i) {
            model.At(borrowed.back().first, borrowed.back().second.first.value + i).is =
                Model::Is::kFree;
          }
          borrowed.pop_back();
        } else if (const auto run = space.Borrow(
                       device, SlotIndex(any), 1, 8,
                       random.OneIn(2) ? SlotSpace::Which::kFree : SlotSpace::Which::kLongFree)) {
          for (uint32_t i = 0; i < run->count; ++i) {
            ASSERT_EQ(model.At(ssd, run->first.value + i).is, Model::Is::kFree);
            model.At(ssd, run->first.value + i).is = Model::Is::kTaken;
          }
          borrowed.emplace_back(ssd, *run);
        } else {
          space.AgeFreed();
        }
    }
    if (random.OneIn(400)) {
      for (uint32_t i = 0; i < g.slots; ++i) {
        const Model::Slot& held = model.At(ssd, i);
        old_pins.insert(old_pins.end(), held.pins, held.pin);
      }
      std::erase_if(borrowed, [&](const auto& run) {
        if (run.first == ssd) {
          old_runs.push_back(run);
        }
        return run.first == ssd;
      });
      space.Reset(device);
      model.Replace(ssd);
    } else if (!old_pins.empty() && random.OneIn(3)) {
      space.Unpin(old_pins.back());
      old_pins.pop_back();
    } else if (!old_runs.empty() && random.OneIn(3)) {
      space.Return(DeviceIndex(static_cast<uint8_t>(old_runs.back().first)),
                   old_runs.back().second);
      old_runs.pop_back();
    }
    ASSERT_EQ(space.free(device), model.Free(ssd)) << "step " << step;
    ASSERT_EQ(space.free_min(), std::min(model.Free(0), model.Free(1)));
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, SlotSpaceOf, ::testing::Range(uint64_t{1}, uint64_t{41}));

// Fresh stripes get consecutive slots, so that large writes merge.
TEST(SlotSpace, HandsOutConsecutiveSlots) {
  const Geometry g = TwoSsds(100);
  SlotSpace space(g);
  for (uint32_t i = 0; i < 100; ++i) {
    EXPECT_EQ(space.Claim(DeviceIndex(0)).value, i);
  }
  EXPECT_EQ(space.free(DeviceIndex(0)), 0U);
}

// Only what has been free since before the last aging is long free, and taking it ends that.
TEST(SlotSpace, BorrowsWhatIsLongFree) {
  const Geometry g = TwoSsds(100);
  SlotSpace space(g);
  space.NoteFreed();
  const DeviceIndex ssd(0);
  for (uint32_t i = 0; i < 50; ++i) {
    static_cast<void>(space.Claim(ssd));
  }
  for (uint32_t i = 10; i < 30; ++i) {
    space.Unclaim(ssd, SlotIndex(i));
  }
  const auto borrow = [&](uint32_t least) {
    return space.Borrow(ssd, SlotIndex(0), least, 100, SlotSpace::Which::kLongFree);
  };
  EXPECT_FALSE(borrow(1)) << "free for no time";
  space.AgeFreed();
  EXPECT_FALSE(borrow(21));
  const auto run = borrow(16);
  ASSERT_TRUE(run);
  EXPECT_EQ(run->first.value, 10U);
  EXPECT_EQ(run->count, 20U);
  EXPECT_EQ(space.free(ssd), 50U);
  space.Return(ssd, *run);
  EXPECT_EQ(space.free(ssd), 70U);
  EXPECT_FALSE(borrow(1)) << "the SSD knows";
  EXPECT_FALSE(space.any_freed());
}

}  // namespace
}  // namespace eplog
