// Volumes: named thin byte ranges over extents (section 5), and the gates that keep requests on a
// volume apart from what takes parts of it away.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/core/core.h"
#include "engine/log/admission.h"
#include "engine/log/appender.h"
#include "engine/log/flusher.h"
#include "engine/write/trimmer.h"
#include "engine/write/writer.h"
#include "eplog/array.h"

namespace eplog {

class Volumes {
 public:
  Volumes(Core& core, Appender& appender, Flusher& flusher, Admission& admission, Writer& writer,
          Trimmer& trimmer, BufferedChunks& buffered)
      : core_(core),
        appender_(appender),
        flusher_(flusher),
        admission_(admission),
        writer_(writer),
        trimmer_(trimmer),
        buffered_(buffered),
        changes_(core.loop),
        assigned_(core.loop),
        background_(core.loop) {}

  Task<Result<VolumeId>> Create(std::string name, uint64_t size_bytes);
  Task<Status> Resize(VolumeId id, uint64_t size_bytes);
  Task<Status> Rename(VolumeId id, std::string new_name, bool replace);
  Task<Result<VolumeId>> RenameOver(VolumeId id, std::string new_name);
  Task<Status> Hide(VolumeId id);
  Task<Status> Delete(VolumeId id, std::optional<std::string> only_if_named);

  // Resumes what a crash interrupted: freeing the extents of deleted and shrunk volumes, deleting
  // hidden ones.
  void Open();
  // Until background freeing has ended; it ends early once `closing`.
  Task<void> Close();

  // Requests on a volume hold its gate shared; deleting and resizing hold it alone. Who wants to be
  // alone waits for those inside; who comes after that waits for him.
  class Gate;
  Task<std::shared_ptr<Gate>> Enter(VolumeId id, bool alone);

  // The extent behind a logical extent, assigned now if there is none. kNoSpace if the array has no
  // free extent.
  Task<Result<ExtentIndex>> EnsureExtent(VolumeId id, uint32_t logical);

  // Trims bytes [from, to) of a volume, whose gate the caller holds shared. Extents that may go
  // back to the array then (they lie wholly inside, or nothing is left in them) are added to
  // `empty` and are for FreeTrimmed; the former are not touched before.
  Task<Status> Trim(const Volume& volume, uint64_t from_bytes, uint64_t to_bytes, TrimMode mode,
                    std::vector<ExtentIndex>& empty);
  // The caller does not hold the gate.
  Task<Status> FreeTrimmed(VolumeId id, uint64_t from_bytes, uint64_t to_bytes,
                           std::vector<ExtentIndex> empty);
  // The newest entry that freed extents of this volume in this life, or a newer one: a flush of any
  // part of the volume covers it, since no extent is left to remember it. While some are being
  // freed the entry may be applied already and who submitted it not know yet.
  [[nodiscard]] uint64_t LastFreed(VolumeId id) const {
    if (freeing_.contains(id.value)) {
      return appender_.applied().sequence;
    }
    const auto found = last_freed_.find(id.value);
    return found == last_freed_.end() ? 0 : found->second;
  }

  [[nodiscard]] Status CheckSize(uint64_t size_bytes) const;
  static Status CheckName(std::string_view name);  // as bytes
  [[nodiscard]] Status MayTake(std::string_view name) const;
  // Extents that are assigned to no live byte and on their way back: they count as free.
  [[nodiscard]] uint64_t ExtentsComingBack() const;
  [[nodiscard]] VolumeInfo Info(const Volume& volume) const;

 private:
  struct GateState {
    explicit GateState(EventLoop& loop) : changed(loop) {}
    Event changed;
    uint64_t shared = 0;
    uint64_t alone_wanted = 0;
    bool alone = false;
  };
  std::shared_ptr<GateState>& GateOf(VolumeId id);

  Task<Status> Append(std::vector<VolumeRecord> records, bool durable, bool frees = false);
  // Durable, of what lets go of extents. If it succeeds, background_.Done() is the caller's to see to.
  Task<Status> AppendFreeing(std::vector<VolumeRecord> records);
  Task<Status> FreeExtents(VolumeId owner, std::vector<ExtentIndex> extents);
  Task<Status> FreeRun(VolumeId owner, ExtentIndex first, uint32_t count);
  Task<void> FreeDeleted(VolumeId id);
  void FreeGivenUp();
  Task<void> DeleteHidden(VolumeId id);
  [[nodiscard]] Result<VolumeId> FindOther(VolumeId id, std::string_view name) const;
  Task<void> FinishShrinking(VolumeId id, std::shared_ptr<Gate> gate);
  [[nodiscard]] std::vector<ExtentIndex> ExtentsBeyond(const Volume& volume) const;
  Task<Status> CleanBeyond(VolumeId id, uint64_t size_bytes);
  [[nodiscard]] bool ExtentIsZero(ExtentIndex extent) const;
  Task<Result<ExtentIndex>> AssignExtent(VolumeId id, uint32_t logical);

  Core& core_;
  Appender& appender_;
  Flusher& flusher_;
  Admission& admission_;
  Writer& writer_;
  Trimmer& trimmer_;
  BufferedChunks& buffered_;
  AsyncMutex changes_;  // one change of the table at a time
  Event assigned_;      // an extent was assigned, or some were freed
  std::set<std::pair<uint32_t, uint32_t>> assigning_;
  std::unordered_map<uint32_t, std::shared_ptr<GateState>> gates_;
  std::unordered_map<uint32_t, uint64_t> last_freed_;
  std::multiset<uint32_t> freeing_;
  std::set<uint32_t> clean_;     // volumes with nothing but zeros beyond their size
  std::set<uint32_t> unclean_;   // shrunk in this life, and not clean since
  std::set<uint32_t> given_up_;  // deleted, and not freed since that was refused
  WaitGroup background_;
  bool closing_ = false;
};

class Volumes::Gate {
 public:
  // Nobody is inside who would have to be waited for.
  Gate(std::shared_ptr<GateState> state, bool alone) : state_(std::move(state)), alone_(alone) {
    if (alone_) {
      state_->alone = true;
    } else {
      ++state_->shared;
    }
  }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  ~Gate() {
    if (alone_) {
      state_->alone = false;
    } else {
      --state_->shared;
    }
    state_->changed.NotifyAll();
  }

 private:
  std::shared_ptr<GateState> state_;
  bool alone_;
};

}  // namespace eplog
