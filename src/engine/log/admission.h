// Admission: space is promised to a foreground request before it takes any lock and before anything
// is acknowledged (section 5): one slot on each SSD that it writes, and log room. First come, first
// served.
//
// What it leaves free is all that parity commit may need to bring everything home, so that a
// request never waits for room that cannot come: on each SSD commit_width slots, and one for each
// parity chunk there that commit will write without giving an old one back (State::owed); in the
// log CommitCost. Requests on their way count as if they were pending already.
#pragma once

#include <array>
#include <cstdint>
#include <map>

#include "engine/core/core.h"
#include "engine/log/appender.h"

namespace eplog {

class Admission;

// What one request holds until it hands it on. Lives until the request's entry is applied; gives
// back on destruction what was not taken.
class [[nodiscard]] Grant {
 public:
  explicit Grant(Admission& admission) : admission_(admission) { slots_.fill(SlotWord::Absent()); }
  Grant(const Grant&) = delete;
  Grant& operator=(const Grant&) = delete;
  ~Grant();

  [[nodiscard]] bool Holds(DeviceIndex ssd) const { return (claimed_ >> ssd.value & 1) != 0; }
  // The slot claimed on this SSD, or `absent` if the SSD is not there. From now on the caller's.
  SlotWord TakeSlot(DeviceIndex ssd);
  // The promise passes to a piece that is submitted now.
  void TakeLog() { blocks_ = 0; }

 private:
  friend class Admission;
  Admission& admission_;
  std::array<SlotWord, kMaxSsds> slots_{};
  uint64_t claimed_ = 0;  // mask
  uint64_t owing_ = 0;    // mask: SSDs on which a commit of this will owe a slot
  uint64_t blocks_ = 0;
  StatesNumber states_ = 0;  // device states when admitted
  bool admitted_ = false;
};

class Admission {
 public:
  Admission(Core& core, Appender& appender) : core_(core), appender_(appender), turn_(core.loop) {}

  struct Need {
    uint64_t ssds = 0;    // mask: a slot on each of these that is live
    uint64_t owing = 0;   // mask: commit will take one there and give none back
    uint64_t blocks = 0;  // of log
    bool frees = false;   // lets go of pending chunks: may have all the log that commit can spare
  };
  // Claims the slots and promises the log room into `grant`. Waits while there is none. Fails if
  // the array stops, and when Refuse says why there will be none.
  Task<Status> Admit(Grant& grant, Need need);

  // The same without waiting: false if there is no room at once.
  bool TryAdmit(Grant& grant, Need need);
  // The same before those who wait: what they wait for may be freed by it. Leaves some log to
  // requests that free what they had themselves.
  bool TryAdmitFreeing(Grant& grant, Need need);

  // Who waits now and finds no room gets this error: nothing that can be done makes any.
  void Refuse(const Error& error);

  // Nothing that was admitted under earlier device states than these is on its way.
  [[nodiscard]] bool NoneBefore(StatesNumber states) const {
    return granted_.empty() || granted_.begin()->first >= states;
  }

  // Somebody waits for this now.
  [[nodiscard]] bool waiting_for_log() const {
    return waiting_ && !appender_.CanPromise(need_.blocks, need_.frees);
  }
  [[nodiscard]] bool waiting_for_slots() const { return waiting_ && !HaveSlots(need_); }
  [[nodiscard]] bool waiting() const { return waiting_; }

  // What begins to run short, or is waited for: the keeper makes room then.
  [[nodiscard]] bool LogShort() const;
  [[nodiscard]] bool SlotsShort() const;
  [[nodiscard]] bool RingsShort() const;
  // So much log since the last checkpoint that another is due.
  [[nodiscard]] bool CheckpointFar() const {
    const uint64_t bytes = core_.options.checkpoint.log_bytes;
    return bytes != 0 && appender_.SinceCheckpoint() * kBlockBytes >= bytes;
  }
  // Cheap: kicks the keeper if something does.
  void LookSoon();

 private:
  friend class Grant;
  [[nodiscard]] bool HaveSlots(const Need& need) const;
  [[nodiscard]] bool HaveRoom(const Need& need) const {
    return HaveSlots(need) && appender_.CanPromise(need.blocks, need.frees);
  }
  void Take(Grant& grant, const Need& need);
  void GiveBack(Grant& grant);

  Core& core_;
  Appender& appender_;
  AsyncMutex turn_;
  bool waiting_ = false;
  Need need_;                                 // of who waits
  uint64_t next_ticket_ = 0;                  // of who comes to wait
  uint64_t refused_tickets_ = 0;              // those below
  Error refusal_;                             // for these
  std::map<StatesNumber, uint64_t> granted_;  // grants on their way, by device states
  std::array<uint32_t, kMaxSsds> owing_{};    // by SSD, of requests on their way
};

}  // namespace eplog
