// Keeper: the background work that keeps an array going (sections 5 and 7), in two tasks that must
// not wait for each other:
//   Stability: the engine's own flush, and checkpoints when the rings run short. It waits for no
//   append, so that an
//              append may wait for it.
//   Space:     parity commit when log or slots run short, marks that let freed slots go,
//   checkpoints for the log. Its
//              commits append, and so may wait for Stability.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/admission.h"
#include "engine/appender.h"
#include "engine/checkpointer.h"
#include "engine/committer.h"
#include "engine/core.h"
#include "engine/flusher.h"

namespace eplog {

class Keeper {
 public:
  Keeper(Core& core, Appender& appender, Flusher& flusher, Committer& committer,
         Checkpointer& checkpointer, Admission& admission)
      : core_(core),
        appender_(appender),
        flusher_(flusher),
        committer_(committer),
        checkpointer_(checkpointer),
        admission_(admission),
        tasks_(core.loop) {}

  void Start();
  // Cheap: kicks if something begins to run short.
  void LookSoon() {
    if (LogShort() || SlotsShort() || RingsShort()) {
      core_.kick.NotifyAll();
    }
  }
  // Ends both tasks after what they are doing.
  Task<void> Stop();

  // Log blocks that committing so many stripes takes at most.
  [[nodiscard]] uint64_t LogBlocksFor(size_t stripes) const;

 private:
  [[nodiscard]] bool LogShort() const;
  [[nodiscard]] bool SlotsShort() const;
  [[nodiscard]] bool RingsShort() const;
  [[nodiscard]] bool FlushDue() const;
  [[nodiscard]] std::vector<StripeIndex> ChooseStripes(bool log_short) const;
  [[nodiscard]] size_t StripesThatFitReserve() const;
  [[nodiscard]] uint64_t BlocksABatch() const;
  [[nodiscard]] bool MarkDue() const;
  Task<void> Stability();
  Task<void> Space();
  Task<Status> MakeRoom();
  Task<Status> FlushAndCheckpoint();

  Core& core_;
  Appender& appender_;
  Flusher& flusher_;
  Committer& committer_;
  Checkpointer& checkpointer_;
  Admission& admission_;
  WaitGroup tasks_;
  bool stopping_ = false;
};

}  // namespace eplog
