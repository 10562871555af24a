#include "tests/torture/plan.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"
#include "base/random.h"

namespace eplog::torture {
namespace {

template <size_t N>
uint64_t OneOf(Random& random, const uint64_t (&values)[N]) {
  return values[random.Below(N)];
}

void Size(SeedPlan& plan, uint64_t min_ssd_bytes) {
  GeometryRequest request;
  request.n = plan.n;
  request.m = plan.create.parity;
  request.chunk_bytes = plan.create.chunk_bytes;
  request.reserve_percent = plan.create.reserve_percent;
  request.log_bytes = plan.log_bytes;
  request.ring_bytes = plan.create.ring_bytes;
  request.extent_stripes = plan.create.extent_stripes;
  const auto least = SsdBytesForStripes(request, plan.stripes);
  EPLOG_CHECK(least.ok(), "a planned geometry fits");
  request.ssd_bytes = *least;
  const auto geometry = PlanGeometry(request);
  EPLOG_CHECK(geometry.ok(), "a planned geometry can be laid out");
  plan.geometry = *geometry;
  plan.ssd_bytes = std::max(*least, min_ssd_bytes);
}

// Mostly small ones, since time goes with bytes; now and then up to the largest.
uint32_t ChunkBytes(Random& random) {
  const uint64_t bytes = random.OneIn(40)
                             ? OneOf(random, {32'768, 65'536, 131'072, 262'144, 524'288, 1'048'576})
                             : OneOf(random, {4096, 4096, 4096, 4096, 4096, 4096, 8192, 16384});
  return static_cast<uint32_t>(bytes);
}

void PlanGeometryOf(SeedPlan& plan, Random& random) {
  const uint64_t draw = random.Below(20);
  plan.create.parity = draw < 8 ? 1 : draw < 18 ? 2 : draw < 19 ? 3 : 4;
  const uint32_t m = plan.create.parity;
  plan.n = static_cast<uint32_t>(random.Between(m + 1, random.OneIn(2) ? m + 3 : 10));
  plan.create.chunk_bytes = ChunkBytes(random);
  plan.create.reserve_percent = static_cast<uint32_t>(random.Between(1, 20));
  plan.create.journal = random.OneIn(3) ? JournalMode::kLog : JournalMode::kFull;
  plan.create.extent_stripes = static_cast<uint32_t>(OneOf(random, {1, 1, 2, 4}));
  const uint64_t stripe_bytes = uint64_t{plan.n - m} * plan.create.chunk_bytes;
  const uint64_t most = std::clamp<uint64_t>((uint64_t{768} << 10) / stripe_bytes, 8, 40);
  plan.stripes =
      static_cast<uint32_t>(RoundUp(random.Between(4, most), plan.create.extent_stripes));
  const uint64_t spare =
      random.OneIn(2) ? 0 : random.Below(random.OneIn(2) ? 64 : 400) * kBlockBytes;
  plan.log_bytes = MinLogBytes(plan.create.chunk_bytes) + spare;
  plan.create.ring_bytes =
      (kMinRingBlocks + (random.OneIn(2) ? 0 : random.Below(16))) * kBlockBytes;
}

void PlanWork(SeedPlan& plan, Random& random) {
  plan.width = static_cast<uint32_t>(OneOf(random, {1, 2, 4, 4, 8, 16}));
  plan.operations = random.Between(500, 700);
  for (size_t i = 0; i < kOps; ++i) {
    static constexpr uint32_t kUsual[kOps] = {30, 12, 10, 10, 6, 2, 12, 8, 2, 3,
                                              3,  2,  2,  1,  2, 1, 2,  5, 1};
    plan.weights[i] = kUsual[i] * static_cast<uint32_t>(OneOf(random, {0, 1, 2, 2, 4, 12}));
  }
  // Something must be written, and something must be promised.
  plan.weights[static_cast<size_t>(Op::kWriteChunk)] += 10;
  plan.weights[static_cast<size_t>(Op::kFlushRange)] += 4;
  plan.hot_chunks = static_cast<uint32_t>(OneOf(random, {1, 2, 4, 8, 16, 64}));
  plan.hot = random.Unit();
  plan.overcommit = random.OneIn(5);
  plan.max_volumes = static_cast<uint32_t>(random.Between(1, 5));
}

uint32_t& Weight(SeedPlan& plan, Op op) {
  return plan.weights[static_cast<size_t>(op)];
}

std::optional<IoKind> SlowKind(Random& random) {
  static constexpr IoKind kKinds[] = {IoKind::kSuperblock, IoKind::kCheckpointRoot, IoKind::kParity,
                                      IoKind::kEntry,      IoKind::kRing,           IoKind::kData};
  return random.OneIn(2) ? std::optional(kKinds[random.Below(std::size(kKinds))]) : std::nullopt;
}

void PlanSpread(SeedPlan& plan, Random& random) {
  plan.focus = Focus::kSpread;
  plan.weights.fill(0);
  Weight(plan, Op::kWriteChunk) = 200;
  Weight(plan, Op::kWriteStripe) = static_cast<uint32_t>(OneOf(random, {0, 0, 5}));
  Weight(plan, Op::kFlushRange) = static_cast<uint32_t>(OneOf(random, {1, 4, 20}));
  Weight(plan, Op::kRead) = Weight(plan, Op::kCommit) = 1;
  plan.hot = 0;
  plan.max_volumes = 1;
  plan.width = static_cast<uint32_t>(OneOf(random, {4, 8, 16, 32}));
  plan.operations = random.Between(800, 1600);
  plan.life_operations = 1000;
  // From the smallest log to four times what the slots of an SSD hold.
  const uint64_t slots = uint64_t{plan.stripes + kMinReserveSlots} * plan.create.chunk_bytes;
  const uint64_t halves = OneOf(random, {0, 0, 0, 3, 4, 8});
  if (halves == 0) {
    // The log comes round while a checkpoint is on its way.
    plan.slow_kind = IoKind::kSuperblock;
    plan.width = static_cast<uint32_t>(OneOf(random, {16, 32}));
  }
  plan.log_bytes = halves == 0 ? MinLogBytes(plan.create.chunk_bytes)
                               : std::max(plan.log_bytes, RoundUp(slots * halves / 2, kBlockBytes));
}

void PlanRewrite(SeedPlan& plan, Random& random) {
  plan.focus = Focus::kRewrite;
  plan.weights.fill(0);
  Weight(plan, Op::kWriteChunk) = 200;
  Weight(plan, Op::kCheckpoint) = static_cast<uint32_t>(OneOf(random, {2, 4, 10}));
  Weight(plan, Op::kFlushRange) = 1;
  Weight(plan, Op::kTrim) = static_cast<uint32_t>(OneOf(random, {0, 0, 5}));
  Weight(plan, Op::kRead) = 1;
  // Four chunks, of which three are left alone for a while: the log stripe of one of them is the
  // oldest by far when it dies, often just after a checkpoint.
  plan.hot = 0.75 + 0.17 * random.Unit();
  plan.hot_chunks = 1;
  plan.max_volumes = 1;
  plan.volume_bytes = uint64_t{4} * plan.create.chunk_bytes;
  plan.create.parity = random.OneIn(3) ? 2 : 1;
  plan.n = plan.create.parity + static_cast<uint32_t>(random.Between(1, 2));
  // With slots enough the log comes round before the lack of them asks for a flush.
  plan.stripes = static_cast<uint32_t>(OneOf(random, {8, 40, 40}));
  plan.loses_devices = true;
  plan.width = static_cast<uint32_t>(OneOf(random, {1, 1, 2, 4}));
  plan.engine_flush_us = 5'000'000;
  plan.auto_commit = false;
  plan.commit = {};
  plan.checkpoint = {};
  plan.log_bytes =
      MinLogBytes(plan.create.chunk_bytes) + OneOf(random, {0, 0, 0, 16}) * plan.create.chunk_bytes;
  plan.buffers = {};
  plan.probe_one_in = 4;
}

void PlanHeal(SeedPlan& plan, Random& random) {
  plan.focus = Focus::kHeal;
  plan.loses_devices = true;
  plan.doom = 0.3;
  Weight(plan, Op::kRead) += 150;
  Weight(plan, Op::kWriteStripe) += 20;
  Weight(plan, Op::kCommit) += 6;
  Weight(plan, Op::kScrub) += random.OneIn(2) ? 6 : 0;
}

void PlanFocus(SeedPlan& plan, Random& random) {
  const uint64_t draw = random.Below(10);
  if (draw < 2) {
    plan.focus = Focus::kPound;
    plan.weights.fill(0);
    Weight(plan, Op::kWriteChunk) = 200;
    Weight(plan, Op::kWriteRun) = static_cast<uint32_t>(OneOf(random, {0, 0, 20, 200}));
    Weight(plan, Op::kFlushRange) = static_cast<uint32_t>(OneOf(random, {2, 6, 15}));
    Weight(plan, Op::kRead) = Weight(plan, Op::kIdle) = 1;
    Weight(plan, Op::kFlushAll) = Weight(plan, Op::kCommit) = 1;
    plan.hot = 1;
    plan.hot_chunks = static_cast<uint32_t>(random.Between(1, 3));
    plan.engine_flush_us = 5'000'000;
    plan.width = static_cast<uint32_t>(OneOf(random, {1, 2, 4}));
  } else if (draw < 4) {
    plan.focus = Focus::kRecover;
    plan.recovery_crash = 0.85;
    plan.withhold = 0.5;
    plan.degrades = plan.loses_devices;
  } else if (draw < 5) {
    plan.focus = Focus::kCheckpoint;
    plan.log_bytes = MinLogBytes(plan.create.chunk_bytes);
    Weight(plan, Op::kWriteChunk) += 100;
    Weight(plan, Op::kCheckpoint) = 25;
    plan.width = static_cast<uint32_t>(OneOf(random, {4, 8, 16}));
    plan.create.journal = random.OneIn(3) ? JournalMode::kFull : JournalMode::kLog;
    plan.slow_kind = random.OneIn(2) ? IoKind::kSuperblock : IoKind::kCheckpointRoot;
  } else if (draw < 6) {
    PlanSpread(plan, random);
  } else if (draw < 7) {
    PlanRewrite(plan, random);
  } else if (draw < 8) {
    PlanHeal(plan, random);
  }
}

// A few wide rows, hardly a slot more, the lowest free one first, and commits one after the other while entries are slow:
// two of one row go without a flush between them, and what they freed is taken by data while the log does not say so yet.
// Who judges the first of them by a slot that is somebody else's then drops it, and rests on what the second freed.
void PlanShortage(SeedPlan& plan, Random& random) {
  plan.create.parity = 1;
  plan.n = static_cast<uint32_t>(random.Between(8, 10));
  plan.create.chunk_bytes = 4096;
  plan.create.extent_stripes = 1;
  plan.create.journal = JournalMode::kLog;
  plan.stripes = static_cast<uint32_t>(random.Between(6, 10));
  plan.log_bytes = MinLogBytes(plan.create.chunk_bytes) + (random.OneIn(2) ? 0 : 25 * kBlockBytes);
  plan.slow_kind = IoKind::kEntry;
  plan.lowest_slot_first = true;
  plan.overcommit = true;
  plan.weights.fill(0);
  Weight(plan, Op::kWriteChunk) = 100;
  Weight(plan, Op::kCommit) = 30;
  Weight(plan, Op::kFlushAll) = static_cast<uint32_t>(random.Between(10, 30));
  plan.width = 16;
  plan.engine_flush_us = 5'000'000;
  plan.commit = {};
  plan.checkpoint = {};
  plan.buffers = {};
  plan.loses_devices = plan.degrades = true;
  plan.doom = 0.5;
  plan.probe_one_in = 4;
}

// As large as time allows, and nearly full: what tables, logs and space do when there is much of all.
void PlanLarge(SeedPlan& plan, Random& random) {
  plan.focus = Focus::kLarge;
  plan.create.chunk_bytes = 4096;
  plan.create.reserve_percent = static_cast<uint32_t>(random.Between(1, 5));
  plan.n = plan.create.parity + static_cast<uint32_t>(random.Between(1, 4));
  plan.stripes = static_cast<uint32_t>(RoundUp(random.Between(250, 700), 4));
  plan.log_bytes = MinLogBytes(plan.create.chunk_bytes) * OneOf(random, {1, 2, 8});
  plan.weights.fill(0);
  Weight(plan, Op::kWriteChunk) = 60;
  Weight(plan, Op::kWriteRun) = Weight(plan, Op::kWriteStripe) = 40;
  Weight(plan, Op::kWriteBytes) = Weight(plan, Op::kRead) = 5;
  Weight(plan, Op::kFlushRange) = Weight(plan, Op::kTrim) = 3;
  Weight(plan, Op::kCommit) = Weight(plan, Op::kCheckpoint) = 1;
  Weight(plan, Op::kDeleteVolume) = static_cast<uint32_t>(OneOf(random, {0, 0, 1}));
  Weight(plan, Op::kCreateVolume) = 2;
  plan.hot = 0.2 * random.Unit();
  plan.overcommit = random.OneIn(2);
  plan.max_volumes = static_cast<uint32_t>(random.Between(1, 3));
  plan.width = static_cast<uint32_t>(OneOf(random, {8, 16, 32}));
  plan.operations = random.Between(1500, 2500);
  plan.life_operations = 900;
  plan.probe_one_in = 500;
}

// Rings that are full before a slow checkpoint makes room, and what is left of them on few SSDs: a
// log device that is lost then wants more copies of each header than there is room for.
void PlanRings(SeedPlan& plan, Random& random) {
  plan.rings_in_order = random.OneIn(4);
  if (plan.rings_in_order && random.OneIn(2)) {
    plan.create.ring_bytes = kMinRingBlocks * kBlockBytes;
    plan.headers_a_ring_block = static_cast<uint32_t>(random.Between(2, 6));
    plan.checkpoint_step_bytes = 1;
    plan.checkpoint = {};
  }
}

}  // namespace

SeedPlan MakePlan(uint64_t seed, uint64_t min_ssd_bytes) {
  Random random(seed * 2 + 1);
  SeedPlan plan;
  plan.seed = seed;
  PlanGeometryOf(plan, random);
  plan.create.name = "torture";
  plan.create.format = seed % 16 == 7 || seed % 16 == 10 ? 1 : 2;
  plan.create.entropy = random.Next();
  plan.alignment_bytes = random.OneIn(4) ? 4096 : 512;
  plan.discard = random.OneIn(4);
  plan.slow_kind = SlowKind(random);
  plan.engine_flush_us = OneOf(random, {3'000, 30'000, 300'000, 5'000'000, 5'000'000});
  plan.lowest_slot_first = random.OneIn(2);
  plan.headers_a_ring_block = static_cast<uint32_t>(OneOf(random, {0, 0, 1, 2, 3, 6}));
  plan.checkpoint_step_bytes = static_cast<uint32_t>(OneOf(random, {0, 1, 40, 400}));
  plan.incremental_checkpoints = !random.OneIn(4);
  plan.buffers.device_chunks = static_cast<uint32_t>(OneOf(random, {0, 0, 1, 2, 4, 16}));
  plan.buffers.stripes = static_cast<uint32_t>(OneOf(random, {0, 0, 1, 3}));
  plan.resizes_buffers = random.OneIn(4);
  plan.commit.every_writes = OneOf(random, {0, 0, 0, 20, 100});
  plan.commit.idle_us = OneOf(random, {0, 0, 5'000, 200'000});
  plan.commit.age_us = OneOf(random, {0, 0, 50'000, 2'000'000});
  plan.commit.on_close = random.OneIn(3);
  plan.checkpoint.log_bytes = OneOf(random, {0, 0, 64, 300}) * kBlockBytes;
  plan.checkpoint.interval_us = OneOf(random, {0, 20'000, 1'000'000, 300'000'000});
  PlanWork(plan, random);
  plan.loses_devices = seed % 2 == 1;
  plan.degrades = plan.loses_devices && random.OneIn(2);
  plan.doom = plan.loses_devices && !random.OneIn(12) ? 0.6 + 0.4 * random.Unit() : 0;
  if (plan.doom != 0 && random.OneIn(2)) {
    plan.weights[static_cast<size_t>(Op::kScrub)] += 4;
  }
  plan.repairs = plan.loses_devices && !random.OneIn(4);
  plan.max_read_errors = static_cast<uint32_t>(OneOf(random, {0, 0, 0, 2, 8}));
  plan.takes_back = random.OneIn(3);
  plan.power = random.OneIn(4) ? random.Unit() : 0.75;
  plan.recovery_crash = random.OneIn(3) ? 0.8 : 0.35;
  plan.withhold = random.OneIn(2) ? 0.3 : 0.15;
  plan.probe_one_in = static_cast<uint32_t>(OneOf(random, {30, 80, 200}));
  PlanFocus(plan, random);
  if (seed % 16 == 12) {
    PlanShortage(plan, random);
  }
  if (min_ssd_bytes == 0 && (seed % 64 == 40 || seed % 64 == 41)) {
    PlanLarge(plan, random);
  }
  PlanRings(plan, random);
  Size(plan, min_ssd_bytes);
  plan.goes_back = plan.loses_devices && random.OneIn(4) ? 0.3 : 0;
  plan.stops = plan.loses_devices && random.OneIn(4);
  plan.lacks_space = seed % 8 == 2 || seed % 8 == 5;
  plan.strikes_states = seed % 8 == 1 || seed % 8 == 3;
  plan.misses_openings = seed % 8 == 5;
  plan.moves_on = seed % 4 == 2;
  plan.strikes_openings = seed % 8 == 7;
  return plan;
}

SeedPlan FixedPlan(uint32_t n, uint32_t m, uint32_t chunk_bytes, JournalMode journal,
                   uint64_t min_ssd_bytes) {
  SeedPlan plan;
  plan.seed = n * 100 + m;
  plan.n = n;
  plan.create.name = "fixed";
  plan.create.parity = m;
  plan.create.chunk_bytes = chunk_bytes;
  plan.create.journal = journal;
  plan.create.extent_stripes = 2;
  plan.create.ring_bytes = kMinRingBlocks * kBlockBytes;
  plan.create.entropy = 5;
  plan.stripes = 24;
  plan.log_bytes = MinLogBytes(plan.create.chunk_bytes);
  plan.engine_flush_us = 5'000'000;
  Size(plan, min_ssd_bytes);
  return plan;
}

void Enlarge(SeedPlan& plan, uint64_t min_ssd_bytes) {
  plan.log_bytes = plan.log_bytes * 3 / 2 / kBlockBytes * kBlockBytes;
  plan.create.ring_bytes = plan.create.ring_bytes * 3 / 2 / kBlockBytes * kBlockBytes;
  Size(plan, min_ssd_bytes);
}

std::string SeedPlan::ToString() const {
  static constexpr const char* kFocusNames[] = {"general",       "pounding", "recovering",
                                                "checkpointing", "spread",   "rewriting",
                                                "healing",       "large"};
  return "seed " + std::to_string(seed) + ": " + std::to_string(n - create.parity) + "+" +
         std::to_string(create.parity) + ", chunk " + std::to_string(create.chunk_bytes) + ", " +
         std::to_string(geometry.stripes) + " stripes, " + std::to_string(geometry.slots) +
         " slots, log " + std::to_string(geometry.log_blocks) + " blocks, ring " +
         std::to_string(geometry.ring_blocks) + " blocks, mode " +
         (create.journal == JournalMode::kFull ? "full" : "log") +
         (create.format == 1 ? ", format 1" : "") + ", buffers " +
         std::to_string(buffers.device_chunks) + "/" + std::to_string(buffers.stripes) +
         (resizes_buffers ? " and others" : "") + ", width " + std::to_string(width) + ", hot " +
         std::to_string(hot_chunks) + ", " + kFocusNames[static_cast<size_t>(focus)] +
         (loses_devices ? degrades ? ", degrades" : ", loses devices" : "") +
         (goes_back != 0 ? ", goes back" : "") + (stops ? ", stops" : "") +
         (lacks_space ? ", lacks space" : "");
}

}  // namespace eplog::torture
