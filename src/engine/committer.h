// Committer: parity commit (I5). Makes rows cover their pending chunks: reads the stable latest
// versions, writes new parity to new slots, then installs the words that changed. Out of place and
// in the background.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/appender.h"
#include "engine/chunk_reader.h"
#include "engine/core.h"
#include "engine/writer.h"

namespace eplog {

class Flusher;

class Committer {
 public:
  Committer(Core& core, Appender& appender, Flusher& flusher, ChunkReader& reader, Writer& writer)
      : core_(core),
        appender_(appender),
        flusher_(flusher),
        reader_(reader),
        writer_(writer),
        turn_(core.loop) {}

  // Stripes with pending chunks, those of the oldest log stripes first; at most `limit`, and only
  // of log stripes that lie before `before_place` (the oldest one always counts).
  [[nodiscard]] std::vector<StripeIndex> OldestStripes(size_t limit,
                                                       uint64_t before_place = UINT64_MAX) const;

  // Commits what is pending *and stable* in these stripes. At most commit_width at once; the
  // installs of one such batch are submitted together, so that they share entries (section 5).
  Task<Status> Commit(std::span<const StripeIndex> stripes);

 private:
  struct Install;  // one stripe on its way

  [[nodiscard]] bool HaveSlots() const;
  Task<Status> WaitForSlots();
  Task<Status> CommitBatch(std::span<const StripeIndex> stripes);
  Task<Status> Prepare(Install& install);
  bool TakeVersions(Install& install);
  Task<Status> ReadVersions(Install& install, std::span<const std::span<std::byte>> data);
  Task<Status> ReadVersion(Install& install, uint32_t index, std::span<std::byte> into,
                           uint64_t& bad);
  Task<Status> WriteParity(Install& install, std::span<const std::span<std::byte>> data);
  void AddParityWord(Install& install, uint32_t index, RowWord word);

  Core& core_;
  Appender& appender_;
  Flusher& flusher_;
  ChunkReader& reader_;
  Writer& writer_;
  AsyncMutex turn_;  // one batch at a time: commit_width slots are kept free for one
};

}  // namespace eplog
