// What the checkpoint and the log after it say of one row or of the volumes, worked out from the
// bytes alone, for `inspect`. It believes the log as far as headers go; recovery also verifies the
// chunks behind the newest mark.
//
// A second witness, on purpose (raw_array.h): what an item and a record mean is what StateLoader and
// State::Apply say (metadata/state_loader.cc, state.cc), and what becomes of words of a device that
// was replaced, State::WordOf and Recovery::ForgetReplaced (engine/open/recovery_analyse.cc).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/inspect/raw_array.h"
#include "cli/inspect/raw_log.h"
#include "eplog/result.h"

namespace eplog::cli {

// A version of a data chunk that the row's parity does not cover yet.
struct RawPending {
  uint64_t version = 0;  // sequence of its entry
  SlotWord word;
  uint32_t crc = 0;
};

struct RawRow {
  StripeIndex stripe;
  std::vector<RowWord> words;              // n, by position
  std::map<uint32_t, RawPending> pending;  // by data position: the latest
  std::vector<std::string> history;        // in words, in order
};

struct RawVolume {
  std::string name;
  uint64_t size_bytes = 0;
  bool deleting = false;
  uint64_t extents = 0;
};

struct RawVolumes {
  std::map<VolumeId, RawVolume> volumes;
  std::map<std::pair<VolumeId, uint32_t>, ExtentIndex> extents;  // (volume, logical) -> extent
  std::map<ExtentIndex, std::pair<VolumeId, uint32_t>> owners;   // the same the other way round
};

// What a checkpoint holds, counted.
struct CheckpointContent {
  uint64_t rows = 0;  // with any word that is not `zero`
  uint64_t words_in_slots = 0;
  uint64_t words_absent = 0;
  uint64_t log_stripes = 0;
  uint64_t pending_chunks = 0;
  RawVolumes volumes;
};

Result<CheckpointContent> CountCheckpoint(const Superblock& identity,
                                          const RawCheckpoint& checkpoint);
Result<RawRow> ReplayRow(const Superblock& identity, const RawCheckpoint& checkpoint,
                         const JoinedLog& log, StripeIndex stripe);
Result<RawVolumes> ReplayVolumes(const Superblock& identity, const RawCheckpoint& checkpoint,
                                 const JoinedLog& log);

// "slot 17", "zero", "absent"
std::string WordText(SlotWord word);

}  // namespace eplog::cli
