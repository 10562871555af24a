// The same requests give the same times and counters, to the last bit.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <type_traits>
#include <vector>

#include "base/random.h"
#include "tests/sim/sim_util.h"

namespace eplog::sim::test {
namespace {

// Everything that a run shows: when each request ended, and all counters at the end.
class Trace {
 public:
  void Add(uint64_t value) { values_.push_back(value); }
  template <typename Counters>
  void AddAll(const Counters& counters) {
    static_assert(sizeof(Counters) % sizeof(uint64_t) == 0);
    std::array<uint64_t, sizeof(Counters) / sizeof(uint64_t)> words{};
    std::memcpy(words.data(), &counters, sizeof counters);
    values_.insert(values_.end(), words.begin(), words.end());
  }
  bool operator==(const Trace&) const = default;
  [[nodiscard]] size_t size() const { return values_.size(); }

 private:
  std::vector<uint64_t> values_;
};

// One of several clients: reads, writes of any alignment, flushes, trims, pauses.
Task<void> Client(VirtualLoop* loop, Device* device, uint64_t seed, Trace* trace) {
  Random random(seed);
  const Buffer buffer = Filled(64 << 10, seed);
  for (int i = 0; i < 400; ++i) {
    const uint64_t length = random.OneIn(4) ? random.Between(1, 128) * 512 : kPage;
    const uint64_t offset = random.Below((device->size_bytes() - length) / 512) * 512;
    const iovec part{buffer.data(), length};
    const uint64_t kind = random.Below(20);
    Task<Status> task = kind == 0   ? device->Flush()
                        : kind == 1 ? device->Discard(offset, length)
                        : kind < 8  ? device->Read(offset, std::span(&part, 1))
                                    : device->Write(offset, std::span(&part, 1));
    const Status status = co_await task;
    EXPECT_TRUE(status.ok());
    trace->Add(seed);
    trace->Add(loop->NowUs());
    if (random.OneIn(10)) {
      co_await loop->Sleep(random.Below(3000));
    }
  }
}

template <typename Sim, typename Parameters>
Trace Play(const Parameters& parameters, uint64_t seed, bool precondition) {
  VirtualLoop loop(seed);
  Sim device(loop, "d", parameters, 64 * kMiB);
  if constexpr (std::is_same_v<Sim, SimSsd>) {
    device.Precondition(seed, precondition ? 100 : 0);
  }
  Trace trace;
  for (uint64_t client = 0; client < 8; ++client) {
    loop.Spawn(Client(&loop, &device, seed * 100 + client, &trace));
  }
  eplog::test::RunDry(loop);
  trace.AddAll(device.model().counters());
  if constexpr (std::is_same_v<Sim, SimSsd>) {
    trace.AddAll(device.model().ftl().counters());
    for (const uint32_t erases : device.model().ftl().EraseCounts()) {
      trace.Add(erases);
    }
    EXPECT_EQ(device.model().ftl().Fault(), "");
  }
  return trace;
}

TEST(Determinism, OfSsds) {
  SsdParameters parameters = PlainSsd();
  parameters.link.request_ns = 1234;
  parameters.link.read_bytes_per_s = parameters.link.write_bytes_per_s = 543'210'987;
  parameters.flash.channel_bytes_per_s = 198'765'432;
  for (const Collection collection : {Collection::kGreedy, Collection::kCostBenefit}) {
    parameters.flash.collection = collection;
    const Trace first = Play<SimSsd>(parameters, 1, true);
    EXPECT_GE(first.size(), 8 * 400 * 2U);
    EXPECT_EQ(first, Play<SimSsd>(parameters, 1, true));
    EXPECT_FALSE(first == Play<SimSsd>(parameters, 2, true));
  }
}

TEST(Determinism, OfHdds) {
  const Trace first = Play<SimHdd>(PlainHdd(), 1, false);
  EXPECT_EQ(first, Play<SimHdd>(PlainHdd(), 1, false));
  EXPECT_FALSE(first == Play<SimHdd>(PlainHdd(), 2, false));
}

// Content under load, against plain memory: requests of one client at a time on each part.
TEST(Content, IsThatOfPlainMemory) {
  for (const bool ssd : {true, false}) {
    VirtualLoop loop;
    std::unique_ptr<SimDevice> device;
    if (ssd) {
      device = std::make_unique<SimSsd>(loop, "d", PlainSsd(), 16 * kMiB);
    } else {
      device = std::make_unique<SimHdd>(loop, "d", PlainHdd(), 16 * kMiB);
    }
    std::vector<std::byte> plain(16 * kMiB);
    Random random(1);
    for (int i = 0; i < 3000; ++i) {
      const uint64_t length = random.Between(1, 64) * 512;
      const uint64_t offset = random.Below((plain.size() - length) / 512 + 1) * 512;
      if (random.OneIn(3)) {
        const Buffer got = Pool().Get(length);
        ASSERT_TRUE(eplog::test::Read(loop, *device, offset, got).ok());
        ASSERT_EQ(std::memcmp(got.data(), plain.data() + offset, length), 0) << i;
      } else {
        const Buffer content = Filled(length, random.Next());
        ASSERT_TRUE(eplog::test::Write(loop, *device, offset, content).ok());
        std::memcpy(plain.data() + offset, content.data(), length);
      }
    }
  }
}

}  // namespace
}  // namespace eplog::sim::test
