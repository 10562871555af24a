// Who is told of free slots: SSDs that are there, while nobody waits for one of them, and as long
// as the array runs.
#include "engine/upkeep/discarder.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "engine/log/admission.h"
#include "tests/engine/parts_fixture.h"

namespace eplog {
namespace {

class Discarders : public ::testing::Test {
 protected:
  [[nodiscard]] const Geometry& g() const { return parts_.g(); }
  [[nodiscard]] uint32_t Free(DeviceIndex ssd) const { return parts_.core.space.free(ssd); }
  // Of all SSDs but this one.
  [[nodiscard]] uint64_t FreeBytesWithout(std::optional<DeviceIndex> left_out) const {
    uint64_t slots = 0;
    for (uint8_t i = 0; i < g().n; ++i) {
      slots += left_out == DeviceIndex(i) ? 0 : Free(DeviceIndex(i));
    }
    return slots * g().chunk_bytes;
  }
  Result<uint64_t> DiscardAll() { return parts_.Run(discarder_.DiscardAll(Progress())); }
  // Slots on these SSDs for a moment.
  Task<Status> Wait(uint64_t ssds) {
    Grant grant(parts_.admission);
    Task<Status> admitting = parts_.admission.Admit(grant, {.ssds = ssds, .owing = 0, .blocks = 1});
    co_return co_await admitting;
  }

  EngineParts parts_;
  Discarder discarder_{parts_.core, parts_.admission};
};

TEST_F(Discarders, TheOthersAreToldWhereOneIsLost) {
  for (uint32_t s = 0; s < 10; ++s) {
    parts_.WriteStripe(StripeIndex(s));
  }
  const DeviceIndex lost(2);
  parts_.Lose(lost);
  parts_.ResetCounters();
  const Result<uint64_t> bytes = DiscardAll();
  ASSERT_TRUE(bytes.ok()) << bytes.error().ToString();
  EXPECT_EQ(*bytes, FreeBytesWithout(lost));
  for (uint8_t i = 0; i < g().n; ++i) {
    const DeviceIndex ssd(i);
    EXPECT_EQ(parts_.counted(ssd).bytes_discarded,
              ssd == lost ? 0 : uint64_t{Free(ssd)} * g().chunk_bytes)
        << int{i};
  }
}

// A slot that is borrowed could be the one that he gets.
TEST_F(Discarders, NobodyIsToldWhileSomebodyWaitsForASlot) {
  const DeviceIndex full(0);
  std::vector<SlotIndex> taken;
  while (Free(full) > g().commit_width()) {
    taken.push_back(parts_.core.space.Claim(full));
  }
  std::optional<Status> admitted;
  parts_.Start(Wait(EngineParts::MaskOf(full)), admitted);
  ASSERT_FALSE(admitted);
  const Result<uint64_t> none = DiscardAll();
  ASSERT_TRUE(none.ok()) << none.error().ToString();
  EXPECT_EQ(*none, 0U);
  for (uint8_t i = 0; i < g().n; ++i) {
    EXPECT_EQ(parts_.counted(DeviceIndex(i)).discards, 0U) << int{i};
  }
  for (const SlotIndex slot : taken) {
    parts_.core.space.Unclaim(full, slot);
  }
  parts_.core.space_changed.NotifyAll();
  parts_.Settle();
  ASSERT_TRUE(admitted);
  EXPECT_TRUE(admitted->ok()) << admitted->error().ToString();
  const Result<uint64_t> all = DiscardAll();
  ASSERT_TRUE(all.ok()) << all.error().ToString();
  EXPECT_EQ(*all, FreeBytesWithout(std::nullopt));
}

TEST_F(Discarders, AnArrayThatHasStoppedTellsNobody) {
  Error why;
  why.code = ErrorCode::kNoSpace;
  parts_.core.Stop(why);
  const Result<uint64_t> refused = DiscardAll();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kNoSpace);
  EXPECT_EQ(parts_.counted(DeviceIndex(0)).discards, 0U);
}

}  // namespace
}  // namespace eplog
