#include "tests/torture/coverage.h"

#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

namespace eplog::torture {
namespace {

constexpr size_t kWords = sizeof(Coverage) / sizeof(uint64_t);
static_assert(std::is_trivially_copyable_v<Coverage> && sizeof(Coverage) % sizeof(uint64_t) == 0);

uint64_t Struck(const Coverage& coverage, IoKind kind) {
  const auto& both = coverage.struck[static_cast<size_t>(kind)];
  return both[0] + both[1];
}

constexpr const char* kFailureNames[kFailures] = {"died",       "failed a write", "failed a flush",
                                                  "read badly", "hung",           "lied"};
constexpr const char* kPhaseNames[kPhases] = {"commit", "checkpoint", "rebuild", "recovery"};

uint64_t StruckInRecovery(const Coverage& coverage) {
  uint64_t sum = 0;
  for (const auto& both : coverage.struck) {
    sum += both[1];
  }
  return sum;
}

}  // namespace

const char* IoKindName(IoKind kind) {
  static constexpr const char* kNames[kIoKinds] = {
      "read",       "data",   "parity", "entry",  "ring", "checkpoint page", "checkpoint root",
      "superblock", "repair", "flush",  "discard"};
  return kNames[static_cast<size_t>(kind)];
}

void Coverage::AddEngine(const EngineHooks& hooks) {
  log_wraps += hooks.log_wraps;
  ring_wraps += hooks.ring_wraps;
  flushes_without_ring_room += hooks.flushes_without_ring_room;
  flushes_beside_full_rings += hooks.flushes_beside_full_rings;
  slot_reuses += hooks.slot_reuses;
  recovery_repairs += hooks.recovery_repairs;
  recovery_cut_entries += hooks.recovery_cut_entries;
  recovery_dropped += hooks.recovery_dropped;
  recovery_salvaged += hooks.recovery_salvaged;
  recovery_checkpoints += hooks.recovery_checkpoints;
  decoded_chunks += hooks.decoded_chunks;
  full_checkpoints += hooks.full_checkpoints_written;
  incremental_checkpoints += hooks.incremental_checkpoints_written;
  metadata_full += hooks.metadata_full;
  delta_commits += hooks.delta_commits;
  buffer_hits += hooks.buffer_hits;
  partial_drains += hooks.partial_drains;
  buffered_stripes += hooks.buffered_stripes;
  early_deaths += hooks.early_deaths;
  relogged_chunks += hooks.relogged_chunks;
  space_waits += hooks.space_waits;
  rebuilt_chunks += hooks.rebuilt_chunks;
}

void Coverage::Add(const Coverage& other) {
  std::array<uint64_t, kWords> mine{};
  std::array<uint64_t, kWords> theirs{};
  std::memcpy(mine.data(), this, sizeof(*this));
  std::memcpy(theirs.data(), &other, sizeof(other));
  for (size_t i = 0; i < kWords; ++i) {
    mine[i] += theirs[i];
  }
  std::memcpy(static_cast<void*>(this), mine.data(), sizeof(*this));
}

std::string Coverage::ToString() const {
  std::string text = "crashes by the I/O they struck      running  in recovery\n";
  const auto pad = [](std::string s, size_t width) {
    return s.size() < width ? std::string(width - s.size(), ' ') + s : s;
  };
  for (size_t i = 0; i < kIoKinds; ++i) {
    const std::string name = IoKindName(static_cast<IoKind>(i));
    text += "  " + name + pad(std::to_string(struck[i][0]), 40 - name.size()) +
            pad(std::to_string(struck[i][1]), 13) + "\n";
  }
  text += "crashes after a device ...              commit  checkpoint     rebuild    recovery\n";
  for (size_t failure = 0; failure < kFailures; ++failure) {
    const std::string name = kFailureNames[failure];
    text += "  " + name + std::string(32 - name.size(), ' ');
    for (const uint64_t count : pairs[failure]) {
      text += pad(std::to_string(count), 12);
    }
    text += "\n";
  }
  const std::vector<std::pair<const char*, uint64_t>> lines = {
      {"seeds", seeds},
      {"operations", operations},
      {"writes", writes},
      {"reads", reads},
      {"trims", trims},
      {"flushes", flushes},
      {"commits", commits},
      {"checkpoints", checkpoints},
      {"volume changes", volume_changes},
      {"refused for space", no_space},
      {"crashes", crashes},
      {"power cuts", power_cuts},
      {"kills", kills},
      {"quiet crashes", quiet_crashes},
      {"openings", openings},
      {"degraded openings", degraded_openings},
      {"stale devices passed in", stale_returns},
      {"clean restarts", clean_restarts},
      {"what-if crashes", probes},
      {"  with devices lost", lossy_probes},
      {"  judged by mode log", weak_probes},
      {"  without its logs, unasked", unasked_probes},
      {"full checks", full_checks},
      {"devices that died", doomed[0]},
      {"failed writes", doomed[1]},
      {"failed flushes", doomed[2]},
      {"devices that read badly", doomed[3]},
      {"devices that hung", doomed[4]},
      {"devices that lied", doomed[5]},
      {"scrubs", scrubs},
      {"  problems found", scrub_findings},
      {"  chunks healed", healed},
      {"  liars made whole", made_whole},
      {"sectors corrupted", corrupt_sectors},
      {"logs lost while running", logs_lost_while_running},
      {"openings that lost more than m", stopped_openings},
      {"devices without space", no_space_below},
      {"  arrays seen to have stopped", no_space_stopped},
      {"what-if damages", damaged},
      {"  beyond parity", damaged_beyond},
      {"  refused to open", damaged_refused},
      {"  of which little can be asked", damaged_unjudged},
      {"  superblocks", damaged_superblocks},
      {"  struck while it was mended", damaged_struck},
      {"  chunks harmed", damaged_chunks},
      {"more than m lost in a what-if", beyond},
      {"  opened by force", beyond_read},
      {"  with the end of the log lost", beyond_log_lost},
      {"  chunks lost", beyond_lost},
      {"one back and m others lost", back},
      {"  opened", back_opened},
      {"stopped, and its losses compared", stopped_read},
      {"  chunks lost", stopped_lost},
      {"away at one opening", absences},
      {"  more than m not whole", absences_unwhole},
      {"  refused", absences_refused},
      {"after two openings that were struck", struck_twice},
      {"  opened", struck_twice_opened},
      {"superblocks that were lied about", superblock_lies},
      {"arrays that stopped", stopped},
      {"overwrites in a full array", overwrites_when_full},
      {"devices taken back", taken_back},
      {"older copies put back", went_back},
      {"devices replaced", replaced},
      {"devices rebuilt", repaired},
      {"chunks rebuilt", rebuilt_chunks},
      {"log wraps", log_wraps},
      {"ring wraps", ring_wraps},
      {"flushes without ring room", flushes_without_ring_room},
      {"  for who needs none", flushes_beside_full_rings},
      {"slot reuses", slot_reuses},
      {"repairs in recovery", recovery_repairs},
      {"entries cut", recovery_cut_entries},
      {"entries dropped, or parts", recovery_dropped},
      {"chunks salvaged", recovery_salvaged},
      {"recovery checkpoints", recovery_checkpoints},
      {"chunks decoded", decoded_chunks},
      {"full checkpoints", full_checkpoints},
      {"incremental checkpoints", incremental_checkpoints},
      {"commits by delta", delta_commits},
      {"  full for want of room", metadata_full},
      {"hits in buffers", buffer_hits},
      {"partial drains", partial_drains},
      {"whole stripes out of buffers", buffered_stripes},
      {"early deaths", early_deaths},
      {"chunks moved on in the log", relogged_chunks},
      {"waits for space", space_waits},
  };
  for (const auto& [name, value] : lines) {
    const std::string label = name;
    text += "  " + label + pad(std::to_string(value), 40 - label.size()) + "\n";
  }
  return text;
}

std::string Coverage::Missing(uint64_t least) const {
  std::string text;
  const auto need = [&](const std::string& what, uint64_t value) {
    if (value < least) {
      text += (text.empty() ? "" : ", ") + what + " (" + std::to_string(value) + ")";
    }
  };
  for (const IoKind kind :
       {IoKind::kData, IoKind::kEntry, IoKind::kRing, IoKind::kParity, IoKind::kCheckpointPage,
        IoKind::kCheckpointRoot, IoKind::kSuperblock, IoKind::kFlush}) {
    need(std::string("crashes at ") + IoKindName(kind), Struck(*this, kind));
  }
  need("crashes during recovery", StruckInRecovery(*this));
  need("devices that died", doomed[0]);
  need("failed writes", doomed[1]);
  need("failed flushes", doomed[2]);
  need("devices that read badly", doomed[3]);
  need("devices that hung", doomed[4]);
  need("devices that lied", doomed[5]);
  for (size_t failure = 0; failure < kFailures; ++failure) {
    for (size_t phase = 0; phase < kPhases; ++phase) {
      need(std::string("crashes in ") + kPhaseNames[phase] + " after a device " +
               kFailureNames[failure],
           pairs[failure][phase]);
    }
  }
  need("scrubs", scrubs);
  need("damage beyond parity", damaged_beyond);
  need("chunks harmed by that", damaged_chunks);
  need("damaged superblocks", damaged_superblocks);
  need("openings struck while damage was mended", damaged_struck);
  need("judgements by the rule of mode log", weak_probes);
  need("openings without its logs, unasked", unasked_probes);
  need("records dropped in recovery", recovery_dropped);
  need("chunks salvaged of these", recovery_salvaged);
  need("chunks moved on in the log", relogged_chunks);
  need("liars made whole", made_whole);
  need("arrays that stopped, and were read", stopped_read);
  need("losses of more than m", beyond);
  need("openings by force", beyond_read);
  need("chunks lost in these", beyond_lost);
  need("one back and m others lost", back);
  need("openings of these", back_opened);
  need("away at one opening", absences);
  need("more than m not whole at one opening", absences_unwhole);
  need("openings of these refused", absences_refused);
  need("openings after two that were struck", struck_twice_opened);
  need("superblocks that were lied about", superblock_lies);
  need("arrays that stopped", stopped);
  need("openings that lost more than m", stopped_openings);
  need("devices without space", no_space_below);
  need("arrays seen to have stopped for that", no_space_stopped);
  need("overwrites in a full array", overwrites_when_full);
  need("chunks healed", healed);
  need("devices taken back", taken_back);
  need("older copies put back", went_back);
  need("devices replaced", replaced);
  need("devices rebuilt", repaired);
  need("ring wraps", ring_wraps);
  need("slot reuses", slot_reuses);
  need("writes refused for space", no_space);
  need("waits for space", space_waits);
  need("trims", trims);
  need("early deaths", early_deaths);
  need("incremental checkpoints", incremental_checkpoints);
  need("full checkpoints", full_checkpoints);
  need("full checkpoints for want of room", metadata_full);
  need("partial drains", partial_drains);
  need("whole stripes out of buffers", buffered_stripes);
  need("commits by delta", delta_commits);
  return text;
}

}  // namespace eplog::torture
