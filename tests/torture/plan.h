// Everything that a seed decides before it runs: geometry, devices, and what kind of work.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "device/io_kind.h"
#include "eplog/options.h"
#include "layout/geometry.h"

namespace eplog::torture {

enum class Op : uint8_t {
  kWriteChunk,    // one whole chunk, often a hot one
  kWriteInChunk,  // part of a chunk
  kWriteRun,      // several whole chunks
  kWriteStripe,   // one or more whole stripes
  kWriteBytes,    // any bytes
  kRewrite,       // the same bytes as an earlier write
  kRead,
  kFlushRange,
  kFlushVolume,
  kFlushAll,
  kCommit,
  kCheckpoint,
  kCreateVolume,
  kDeleteVolume,
  kResizeVolume,
  kRenameVolume,
  kIdle,
  kTrim,   // any bytes, whole stripes, or a large part of a volume
  kScrub,  // and heal
};
inline constexpr size_t kOps = 19;

// What a seed dwells on.
enum class Focus : uint8_t {
  kGeneral,
  kPound,    // a few chunks again and again, hardly a flush: slots come round, ring blocks pile up
  kRecover,  // short lives, recoveries struck again and again, devices that come and go
  kCheckpoint,  // a full log and checkpoints all the time
  kSpread,      // long lives that overwrite everything at random: slots or log run out
  kRewrite,     // a small set of chunks, checkpoints, hardly a flush: log stripes die early
  kHeal,        // a device reads badly: much is read, and what is wrong is mended
  kLarge,       // some hundred stripes, nearly full
};

// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): in the order of meaning
struct SeedPlan {
  uint64_t seed = 0;
  Focus focus = Focus::kGeneral;
  CreateOptions create;
  uint32_t n = 0;
  uint32_t stripes = 0;
  uint64_t ssd_bytes = 0;
  uint64_t log_bytes = 0;
  Geometry geometry;
  uint32_t alignment_bytes = 512;
  bool discard = false;
  std::optional<IoKind> slow_kind;
  uint64_t engine_flush_us = 0;
  // Free choices of the engine (EngineHooks).
  bool lowest_slot_first = false;
  bool rings_in_order = false;
  uint32_t headers_a_ring_block = 0;
  uint32_t checkpoint_step_bytes = 0;
  bool incremental_checkpoints = false;
  BufferSizes buffers;
  bool resizes_buffers = false;  // while running
  bool auto_commit = true;
  CommitTriggers commit;
  CheckpointTriggers checkpoint;

  uint32_t width = 1;              // requests at once
  uint64_t operations = 500;       // at least
  uint64_t life_operations = 260;  // most of a life
  std::array<uint32_t, kOps> weights{};
  uint32_t hot_chunks = 1;  // of each volume
  double hot = 0.5;         // share of single chunk writes that go there
  bool overcommit = false;  // volumes may promise more than there is
  uint32_t max_volumes = 4;
  uint64_t volume_bytes = 0;  // of every volume; 0 = any

  bool loses_devices = false;    // every second seed
  bool degrades = false;         // of them: opens for writing without some
  double doom = 0;               // chance of each such device to fail, in each life and opening
  uint32_t max_read_errors = 0;  // after as many the array may fail a device by itself; 0: never
  bool takes_back = false;       // openings take back devices that were away
  double goes_back = 0;          // how often an older copy of a device is put in its place
  bool stops = false;            // now and then more than m devices cease to answer
  bool lacks_space = false;      // now and then a device finds no space below
  // Crashes while the states of devices are written down, lies about superblocks, who failed is
  // back while others are lost, renames onto volumes in use.
  bool strikes_states = false;
  bool strikes_openings = false;  // one after the other, before their epochs have opened
  bool moves_on = false;          // in the log, what could be committed where it is
  bool misses_openings = false;   // devices are away at one opening, and back at the next
  bool repairs = false;           // lost devices are replaced while running
  double power = 0.7;             // share of crashes that are power cuts
  double recovery_crash = 0.4;    // chance that an opening is struck
  double withhold = 0.3;          // chance of each device that may be away, at each opening
  uint32_t probe_one_in = 60;     // operations between what-if crashes

  [[nodiscard]] uint32_t devices() const { return n + create.parity; }
  [[nodiscard]] std::string ToString() const;
};

// `min_ssd_bytes`: for arrays that need larger devices than EPLOG does.
SeedPlan MakePlan(uint64_t seed, uint64_t min_ssd_bytes);

// A small array for fixed scenarios.
SeedPlan FixedPlan(uint32_t n, uint32_t m, uint32_t chunk_bytes, JournalMode journal,
                   uint64_t min_ssd_bytes);

// Larger fixed areas, for a geometry that the array refused as too small. Keeps everything else.
void Enlarge(SeedPlan& plan, uint64_t min_ssd_bytes);

}  // namespace eplog::torture
