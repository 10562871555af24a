// The oracle: what an array may answer, known from the requests and their acknowledgements alone.
// It knows nothing of stripes, logs or checkpoints, only that a version of data is a whole chunk.
//
// P1: a read returns the last acknowledged write, or any that ran beside it. P2, P3: after a crash
// each chunk holds, as a whole, a version not older than the last successful flush that covered it.
// Volume changes are durable once they returned; one that did not return may have happened or not.
// What an opening finds becomes the truth.
//
// Moments are counted by events (`now_`), not by the clock.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "eplog/array.h"
#include "tests/torture/chunk_model.h"

namespace eplog::torture {

using VolumeKey = uint64_t;  // the oracle's own name of a volume, never reused
inline constexpr VolumeKey kAllVolumes = 0;

struct VolumeModel {
  VolumeKey key = 0;
  std::optional<VolumeId> id;  // unknown until its creation returned
  std::string name;
  uint64_t size_bytes = 0;
  std::vector<ChunkModel> chunks;
  uint32_t users = 0;     // requests in flight
  bool changing = false;  // is being created, cut or deleted: start nothing new
  bool doomed = false;    // is being deleted under its users: they may get anything
  bool reshaped = false;  // created or resized since the last stable state
  uint64_t reshaped_at = 0;
};

// A change of the set of volumes.
struct VolumeChange {
  enum class Kind : uint8_t { kCreate, kResize, kRename, kDelete } kind = Kind::kCreate;
  VolumeKey key = 0;
  std::string name;         // kCreate, kRename
  uint64_t size_bytes = 0;  // kCreate, kResize
  VolumeKey victim = 0;     // kRename: deleted in the same step
  uint64_t called = 0;      // set by BeginChange
};

class Oracle {
 public:
  // `separate_stable`: a flush does not make things stable against the loss of all log devices
  // (journal mode log).
  Oracle(uint32_t chunk_bytes, bool separate_stable)
      : chunk_bytes_(chunk_bytes), separate_stable_(separate_stable) {}
  [[nodiscard]] uint64_t chunk_bytes() const { return chunk_bytes_; }

  // ---- volumes
  [[nodiscard]] VolumeModel* Find(VolumeKey key);
  [[nodiscard]] const std::map<VolumeKey, std::unique_ptr<VolumeModel>>& volumes() const {
    return volumes_;
  }
  // Returns the key of the volume concerned. At most one change runs at a time.
  VolumeKey BeginChange(VolumeChange change);
  // `created`: the id that a creation returned. Not ok: it may or may not have happened. A sentence
  // if wrong.
  std::string EndChange(bool ok, std::optional<VolumeId> created = std::nullopt);

  // Changes of which it is not known whether they happened.
  [[nodiscard]] size_t unresolved() const { return unresolved_.size(); }
  static constexpr size_t kMostUnresolved = 8;  // any of them may have: all combinations are tried

  // ---- data
  struct WriteToken {
    VolumeKey key = 0;
    std::vector<std::pair<size_t, uint32_t>> parts;  // chunk, write
  };
  [[nodiscard]] bool CanWrite(VolumeKey key, uint64_t offset_bytes, uint64_t length_bytes);
  WriteToken BeginWrite(VolumeKey key, uint64_t offset_bytes, std::span<const std::byte> data);
  void EndWrite(const WriteToken& token, bool acknowledged);

  uint64_t BeginRead();
  // A sentence if `got` may not be; empty if all is well. `failed`: nothing was read.
  std::string EndRead(uint64_t since, VolumeKey key, uint64_t offset_bytes,
                      std::span<const std::byte> got, bool failed);

  struct FlushToken {
    uint64_t called = 0;
    VolumeKey key = kAllVolumes;
    uint64_t offset_bytes = 0;
    uint64_t length_bytes = 0;
  };
  FlushToken BeginFlush(VolumeKey key, uint64_t offset_bytes, uint64_t length_bytes);
  // Only on success. `stable`: also against the loss of all log devices.
  void EndFlush(const FlushToken& token, bool stable);

  // ---- after a crash. First the volumes, then the content of each.
  void Crashed();
  struct Match {
    VolumeKey key = 0;
    VolumeInfo info;
    uint64_t since = 0;  // what was there then was durable, without any flush that says so
  };
  struct TableVerdict {
    std::string wrong;
    std::vector<Match> volumes;  // to be read and judged
    uint64_t applied = 0;        // which of the unresolved changes happened
  };
  [[nodiscard]] TableVerdict JudgeTable(const std::vector<VolumeInfo>& found, bool weak) const;
  // `offset_bytes` is chunk-aligned, `got` whole chunks or to the volume's end.
  [[nodiscard]] std::string JudgeFound(const Match& match, uint64_t offset_bytes,
                                       std::span<const std::byte> got, bool weak) const;
  [[nodiscard]] bool IsDurable(const Match& match, uint64_t offset_bytes) const;
  // This is the truth from now on.
  void AdoptTable(const TableVerdict& verdict);
  // Does each extent that the range touches hold something for certain? Then a write to it needs no
  // space of its own.
  [[nodiscard]] bool IsOverwrite(VolumeKey key, uint64_t offset_bytes, uint64_t length_bytes,
                                 uint64_t extent_bytes) const;
  void AdoptFound(VolumeKey key, uint64_t offset_bytes, std::span<const std::byte> got);

 private:
  struct Row {
    VolumeKey key;
    std::optional<VolumeId> id;
    std::string name;
    uint64_t size_bytes;
  };
  using Rows = std::map<VolumeKey, Row>;
  [[nodiscard]] Rows Table(uint64_t applied) const;
  [[nodiscard]] bool Matches(const Rows& table, const std::vector<VolumeInfo>& found,
                             std::vector<Match>& into) const;
  void Apply(const VolumeChange& change);
  void FlushEnds(VolumeModel& volume, const FlushToken& token, size_t first, size_t end);
  void NoteTable();
  [[nodiscard]] TableVerdict JudgeEarlierTable(const std::vector<VolumeInfo>& found) const;
  [[nodiscard]] uint64_t DurableSince(VolumeKey key, uint64_t applied) const;
  void Resize(VolumeModel& volume, uint64_t size_bytes);
  [[nodiscard]] uint64_t OldestReader() const;

  uint32_t chunk_bytes_;
  bool separate_stable_;
  uint64_t now_ = 1;
  VolumeKey next_key_ = 1;
  std::map<VolumeKey, std::unique_ptr<VolumeModel>> volumes_;
  std::vector<VolumeChange> unresolved_;  // running, or ended without success
  // Tables of the past, and until when they were: the weak rule may go back to them.
  std::vector<std::pair<uint64_t, Rows>> earlier_;
  bool change_running_ = false;
  std::set<uint32_t> used_ids_;
  std::multiset<uint64_t> readers_;
};

}  // namespace eplog::torture
