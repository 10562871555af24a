// Keeper: the background work that keeps an array going (sections 5 and 7), in two tasks that must
// not wait for each other:
//   Stability: the engine's own flush, and checkpoints when the rings run short. It waits for no
//              append, so that an append may wait for it.
//   Space:     parity commit when log or slots run short, marks that let freed slots go,
//   checkpoints
//              that free log. Its commits append, and so may wait for Stability.
#pragma once

#include <cstdint>

#include "engine/admission.h"
#include "engine/appender.h"
#include "engine/checkpointer.h"
#include "engine/committer.h"
#include "engine/core.h"
#include "engine/flusher.h"
#include "engine/write_buffer.h"

namespace eplog {

class Keeper {
 public:
  Keeper(Core& core, Appender& appender, Flusher& flusher, Committer& committer,
         Checkpointer& checkpointer, Admission& admission, WriteBuffer& buffer)
      : core_(core),
        appender_(appender),
        flusher_(flusher),
        committer_(committer),
        checkpointer_(checkpointer),
        admission_(admission),
        buffer_(buffer),
        space_task_(core.loop),
        stability_task_(core.loop) {}

  void Start();
  // Cheap: kicks if something begins to run short.
  void LookSoon() {
    if (LogShort() || SlotsShort() || RingsShort()) {
      core_.kick.NotifyAll();
    }
  }
  // Ends both tasks after what they are doing: Space first, since what it does may wait for
  // Stability.
  Task<void> Stop();

 private:
  [[nodiscard]] bool LogShort() const;
  [[nodiscard]] bool SlotsShort() const;
  [[nodiscard]] bool RingsShort() const;
  [[nodiscard]] bool FlushDue() const;
  [[nodiscard]] bool CheckpointPays() const;
  [[nodiscard]] bool MarkDue() const;
  Task<void> Stability();
  Task<void> Space();
  Task<Status> MakeRoom();
  Task<Status> TryEverything();
  Task<void> Pause(int fruitless);
  Task<Status> CommitOldest();
  Task<Status> FlushAndCheckpoint();

  Core& core_;
  Appender& appender_;
  Flusher& flusher_;
  Committer& committer_;
  Checkpointer& checkpointer_;
  Admission& admission_;
  WriteBuffer& buffer_;
  WaitGroup space_task_;
  WaitGroup stability_task_;
  bool stop_space_ = false;
  bool stop_stability_ = false;
};

}  // namespace eplog
