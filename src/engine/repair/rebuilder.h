// Rebuilder: brings everything onto devices that joined (section 8). First a parity commit of all
// that was pending when they did, and of what was described without them since: log stripes lack
// their chunks. Then every row word that is `absent` on a joining SSD: its chunk is decoded from
// the stripe and written to a slot there. Then a full checkpoint, so that nothing older is needed;
// then Membership::TryOk.
//
// What is done is in the log and in checkpoints: after a crash it goes on from there. While the
// foreground has work, batches are small and rest as long as they took.
//
// A row of which too much is wrong or missing is told (`corruption_lost`) and left alone until it
// is written, devices change, or after ever longer times: it may have been for the moment only. The
// device stays `joining` as long as such chunks are absent on it.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "engine/checkpoint/checkpointer.h"
#include "engine/commit/committer.h"
#include "engine/core/core.h"
#include "engine/log/admission.h"
#include "engine/log/appender.h"
#include "engine/log/flusher.h"
#include "engine/read/chunk_reader.h"
#include "engine/repair/membership.h"
#include "engine/repair/row_mender.h"
#include "engine/write/writer.h"

namespace eplog {

class Rebuilder {
 public:
  Rebuilder(Core& core, Appender& appender, Flusher& flusher, Admission& admission,
            ChunkReader& reader, Writer& writer, Committer& committer, Checkpointer& checkpointer,
            Membership& membership)
      : core_(core),
        appender_(appender),
        flusher_(flusher),
        admission_(admission),
        reader_(reader),
        writer_(writer),
        committer_(committer),
        checkpointer_(checkpointer),
        membership_(membership),
        mender_(core, appender),
        running_(core.loop),
        wake_(core.loop) {}

  void Open();
  // Something has joined.
  void Wake() { wake_.NotifyAll(); }
  Task<void> Close();
  void SetPace(const RebuildPace& pace);

  struct Progress {
    uint64_t total_bytes = 0;
    uint64_t left_bytes = 0;
    uint64_t lost_bytes = 0;        // of them, what could not be decoded
    uint64_t bytes_per_second = 0;  // over the last half minute
  };
  [[nodiscard]] Progress GetProgress() const;

 private:
  [[nodiscard]] bool Ended() const { return closing_ || core_.stop_error.has_value(); }
  [[nodiscard]] uint64_t JoiningSsds() const;
  [[nodiscard]] uint64_t Gaps(StripeIndex stripe) const;
  [[nodiscard]] uint64_t Unverified(StripeIndex stripe) const;
  [[nodiscard]] bool Busy() const;
  [[nodiscard]] size_t BatchStripes() const;
  [[nodiscard]] bool CommitDue() const;
  Task<void> Run();
  Task<Status> Pass();
  Task<Status> CommitOld();
  Task<Status> RebuildRows();
  Task<Status> RebuildBatch(std::vector<StripeIndex> stripes);
  [[nodiscard]] std::vector<RowWord> WordsOf(StripeIndex stripe) const;
  [[nodiscard]] bool IsStuck(StripeIndex stripe) const;
  void NoteStuck(StripeIndex stripe, uint64_t gaps);
  void RetryStuck();
  void CountStuck();
  void Sample();
  Task<void> Breathe(uint64_t since_us);
  Task<void> KeepLimit();

  Core& core_;
  Appender& appender_;
  Flusher& flusher_;
  Admission& admission_;
  ChunkReader& reader_;
  Writer& writer_;
  Committer& committer_;
  Checkpointer& checkpointer_;
  Membership& membership_;
  RowMender mender_;
  WaitGroup running_;
  Event wake_;
  bool closing_ = false;
  RebuildPace pace_;
  uint64_t limit_since_us_ = 0;  // what the limit counts from,
  uint64_t limited_bytes_ = 0;   // and what was begun since then
  bool skipped_ = false;         // in this pass: something could not be looked at or mended
  // Rows that could not be decoded, as they were then.
  std::map<uint32_t, std::vector<RowWord>> stuck_;
  std::set<uint32_t> told_;        // of which that was said
  uint64_t stuck_chunks_ = 0;      // that are left in these, after a pass
  StatesNumber stuck_states_ = 0;  // `states` when the first of them was met
  uint64_t stuck_retry_us_ = 0;    // when they are all tried again,
  uint64_t stuck_wait_us_ = 0;     // and how long that was
  // Rows of which everything was right while `states` was this, and nothing old was pending: not
  // read again in the next pass. Empty: not known of any.
  std::vector<bool> verified_;
  StatesNumber verified_states_ = 0;
  uint64_t verified_chunks_ = 0;                       // in this pass, or before it
  uint64_t rebuilt_bytes_ = 0;                         // since something is joining
  std::deque<std::pair<uint64_t, uint64_t>> samples_;  // loop time, rebuilt bytes
};

}  // namespace eplog
