// Committer: parity commit (I5). Makes rows cover their pending chunks: reads the stable latest
// versions, writes new parity to new slots, then installs the words that changed. Out of place and
// in the background.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/commit/parity_maker.h"
#include "engine/core/core.h"
#include "engine/log/appender.h"
#include "engine/read/chunk_reader.h"
#include "engine/write/writer.h"

namespace eplog {

class Flusher;

class Committer {
 public:
  Committer(Core& core, Appender& appender, Flusher& flusher, ChunkReader& reader, Writer& writer)
      : core_(core),
        appender_(appender),
        flusher_(flusher),
        maker_(core, reader),
        writer_(writer),
        turn_(core.loop) {}

  // Stripes with pending chunks that are stable, those of the oldest log stripes first; at most
  // `limit`, and only of log stripes up to `upto`. Stripes whose commit failed are left out until
  // ForgetFailures.
  [[nodiscard]] std::vector<StripeIndex> OldestStripes(size_t limit,
                                                       uint64_t upto = UINT64_MAX) const;

  // How many stripes are committed together, and how many of them are read and written at once.
  struct Batch {
    uint32_t stripes = 0;
    uint32_t at_once = 0;
  };
  // Commits what is pending *and stable* in these stripes, in batches or what slots and log permit;
  // the installs of one such batch are submitted together, so that they share entries (section 5).
  // Waits for slots, never for log room: kBusy without it, after what was done so far. A stripe
  // that cannot be read does not keep the others from being committed; its error is returned in the
  // end.
  Task<Status> Commit(std::span<const StripeIndex> stripes, Batch size);
  Task<Status> Commit(std::span<const StripeIndex> stripes) {
    const uint32_t width = core_.geometry.commit_width();
    return Commit(stripes, {width, width});
  }

  // There is log room to commit a stripe at least.
  [[nodiscard]] bool HasLogRoom() const {
    return core_.commit_cost.Blocks(1, core_.geometry.k()) <= appender_.UrgentRoom();
  }
  void ForgetFailures() { failed_.clear(); }
  // The same, and says which of them have something pending, in order.
  std::vector<StripeIndex> TakeFailures();
  // Stripes that could not be read, and why.
  using Failures = std::unordered_map<uint32_t, Error>;
  [[nodiscard]] const Failures& failed() const { return failed_; }

 private:
  struct Install;  // one stripe on its way

  [[nodiscard]] size_t FittingSlots(std::span<const StripeIndex> stripes) const;
  Task<Result<size_t>> WaitForRoom(std::span<const StripeIndex> stripes, uint32_t width);
  Task<Status> CommitBatch(std::span<const StripeIndex> stripes, uint32_t at_once);
  Task<Status> Prepare(Install& install);
  bool TakeVersions(Install& install);
  void GiveUp(Install& install);
  Task<Status> WriteParityChunk(DeviceIndex ssd, SlotIndex slot, std::span<const std::byte> chunk);
  Task<Status> WriteParity(Install& install, std::span<const Buffer> parity);
  void AddParityWord(Install& install, uint32_t index, RowWord word);

  Core& core_;
  Appender& appender_;
  Flusher& flusher_;
  ParityMaker maker_;
  Writer& writer_;
  AsyncMutex turn_;  // one batch at a time: commit_width slots are kept free for one
  Failures failed_;
};

}  // namespace eplog
