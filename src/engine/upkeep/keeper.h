// Keeper: the background work that keeps an array going (sections 5 and 7), in two tasks that must
// not wait for each other:
//   Stability: the engine's own flush, and checkpoints when the rings run short. It waits for no
//              append, so that an append may wait for it.
//   Space:     parity commit when log or slots run short or when a trigger says so, marks that let
//              freed slots go, checkpoints that free log or are due. What it does appends, and so
//              may wait for Stability.
//
// While nobody waits for space, commits go in small batches with pauses between them, more and
// faster the less space is left; so the foreground keeps most of the devices.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/checkpoint/checkpointer.h"
#include "engine/commit/committer.h"
#include "engine/core/core.h"
#include "engine/log/admission.h"
#include "engine/log/appender.h"
#include "engine/log/flusher.h"
#include "engine/upkeep/relogger.h"
#include "engine/write/write_buffer.h"

namespace eplog {

class Keeper {
 public:
  Keeper(Core& core, Appender& appender, Flusher& flusher, Committer& committer,
         Checkpointer& checkpointer, Admission& admission, WriteBuffer& buffer, Relogger& relogger)
      : core_(core),
        appender_(appender),
        flusher_(flusher),
        committer_(committer),
        checkpointer_(checkpointer),
        admission_(admission),
        buffer_(buffer),
        relogger_(relogger),
        space_task_(core.loop),
        stability_task_(core.loop) {}

  void Start();
  // A write request has ended.
  void WriteDone() {
    const uint64_t every = core_.options.commit.every_writes;
    if (every != 0 && core_.traffic.user_writes - counted_writes_ >= every) {
      counted_writes_ = core_.traffic.user_writes;
      commit_upto_ = appender_.applied().sequence;
      core_.kick.NotifyAll();
    }
  }
  // What is applied becomes stable, and if a log device was lost, what it protected is committed.
  void DevicesChanged();
  // Ends both tasks after what they are doing: Space first, since what it does may wait for
  // Stability.
  Task<void> Stop();

 private:
  [[nodiscard]] bool FlushDue() const;
  [[nodiscard]] bool CheckpointPays() const;
  [[nodiscard]] bool MarkDue() const;
  Task<void> Stability();
  Task<void> Space();
  Task<Status> MakeRoom();
  Task<Status> TryEverything();
  [[nodiscard]] std::vector<StripeIndex> InTheWay() const;
  Task<void> Pause(int fruitless);
  Task<void> RefuseForAWhile(const Error& error, int fruitless);
  struct CommitStep {
    uint32_t stripes = 0;
    uint64_t upto = UINT64_MAX;  // of what is pending up to this sequence
    Committer::Batch batch;
  };
  Task<Status> CommitOldest(CommitStep step);
  [[nodiscard]] double Pressure() const;
  [[nodiscard]] uint64_t DueUpto() const;
  [[nodiscard]] bool CheckpointDue() const;
  [[nodiscard]] uint64_t NextDueUs() const;
  Task<void> Triggered();
  Task<void> Breathe(uint64_t since_us);
  Task<Status> FlushAndCheckpoint();

  Core& core_;
  Appender& appender_;
  Flusher& flusher_;
  Committer& committer_;
  Checkpointer& checkpointer_;
  Admission& admission_;
  WriteBuffer& buffer_;
  Relogger& relogger_;
  WaitGroup space_task_;
  WaitGroup stability_task_;
  uint64_t counted_writes_ = 0;  // at the last commit by count
  uint64_t commit_upto_ = 0;     // what is pending up to this sequence is to be committed
  uint64_t not_before_us_ = 0;   // triggers rest after a commit that changed nothing
  uint32_t lost_logs_ = 0;
  bool flush_now_ = false;
  bool stop_space_ = false;
  bool stop_stability_ = false;
};

}  // namespace eplog
