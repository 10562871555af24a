// BufferedChunks: chunks that were acknowledged in RAM and are not in the log yet, and who may see
// or take them. What is drained when is decided in WriteBuffer.
//
// At most one version of a chunk is *absorbing*: later writes go into it. When it is submitted to
// the appender, or when something that overwrites it is, it is *leaving*: reads still find it,
// until that is applied. Both happen under the chunk's lock (Writer::chunks), so that at most one
// version is leaving, and who holds the lock knows that none is.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/buffer.h"
#include "engine/core/core.h"
#include "engine/log/admission.h"

namespace eplog {

struct BufferedChunk {
  ChunkIndex chunk;
  Buffer data;                   // chunk_bytes
  std::unique_ptr<Grant> grant;  // its slot and log room
  uint64_t order = 0;            // of becoming ready
  uint64_t since_us = 0;
  bool fresh = false;     // in the stripe buffer, else in the device buffer of its SSD
  bool ready = false;     // acknowledged; before that somebody prepares it
  bool draining = false;  // somebody is about to submit it; in no queue any more
  bool done = false;      // in the log, or overwritten there
};
using BufferedPtr = std::shared_ptr<BufferedChunk>;

class BufferedChunks {
 public:
  explicit BufferedChunks(Core& core) : core_(core), queues_(core.geometry.n) {}

  // Chunks that something overwrites which is about to be submitted: visible until it is applied.
  // Where it fails, the array has stopped, and reads go on finding what was acknowledged.
  class [[nodiscard]] Leaving {
   public:
    explicit Leaving(BufferedChunks& chunks) : chunks_(chunks) {}
    Leaving(const Leaving&) = delete;
    Leaving& operator=(const Leaving&) = delete;
    // It is applied, or there is nothing to submit. The array may have stopped since.
    void Overwritten() {
      for (const BufferedPtr& chunk : taken_) {
        chunks_.Done(*chunk);
      }
      taken_.clear();
    }

   private:
    friend class BufferedChunks;
    BufferedChunks& chunks_;
    std::vector<BufferedPtr> taken_;
  };
  // Those in [first, first + count), which the caller overwrites: at the instant of submitting it,
  // holding their locks.
  void Supersede(ChunkIndex first, uint64_t count, Leaving& leaving);

  // The newest acknowledged content, null if it is not here.
  [[nodiscard]] const std::byte* Latest(ChunkIndex chunk) const;
  // Where later writes of the chunk go, null if nowhere.
  [[nodiscard]] std::byte* AbsorbingData(ChunkIndex chunk) const {
    const BufferedPtr found = absorbing_.empty() ? nullptr : Absorbing(chunk);
    return found && found->ready ? found->data.data() : nullptr;
  }
  [[nodiscard]] bool AnyIn(ChunkIndex first, uint64_t count) const;
  [[nodiscard]] bool empty() const { return absorbing_.empty() && leaving_.empty(); }
  [[nodiscard]] uint64_t size() const { return absorbing_.size() + leaving_.size(); }
  // Chunks that have RAM.
  [[nodiscard]] uint64_t held() const { return held_; }

  // Until none in the range is leaving.
  Task<void> WaitLeft(ChunkIndex first, uint64_t count);

  // ---- for WriteBuffer
  [[nodiscard]] BufferedPtr Absorbing(ChunkIndex chunk) const;
  // A version that is being prepared: others wait for it.
  BufferedPtr Prepare(ChunkIndex chunk);
  void TakeRam(BufferedChunk& chunk);
  void GiveUp(const BufferedPtr& chunk);
  void Ready(const BufferedPtr& chunk);
  // Out of its queue; still absorbing.
  void Dequeue(BufferedChunk& chunk);
  // From absorbing to leaving, under its lock. False if it is not absorbing any more.
  bool Leave(const BufferedPtr& chunk);
  void Done(BufferedChunk& chunk);
  // Ready or leaving ones that `wanted` names.
  [[nodiscard]] std::vector<BufferedPtr> Select(
      const std::function<bool(ChunkIndex)>& wanted) const;
  // By order of becoming ready: the device buffer of an SSD.
  [[nodiscard]] const std::map<uint64_t, BufferedPtr>& Queue(DeviceIndex ssd) const {
    return queues_[ssd.value];
  }
  // The same of the stripe buffer: stripes in the order of their first chunk.
  [[nodiscard]] const std::map<uint64_t, StripeIndex>& FreshStripes() const { return fresh_order_; }
  // Chunks of a stripe that are absorbing and ready.
  [[nodiscard]] std::vector<BufferedPtr> ReadyOf(StripeIndex stripe) const;
  [[nodiscard]] uint32_t CountReady(StripeIndex stripe) const;

 private:
  struct StripeNote {
    uint32_t ready = 0;  // absorbing and ready
    uint32_t fresh = 0;  // of them: queued in the stripe buffer
    uint64_t order = 0;  // of the first of these
  };
  void Forget(BufferedChunk& chunk);
  void GiveBack(BufferedChunk& chunk);

  Core& core_;
  std::unordered_map<uint64_t, BufferedPtr> absorbing_;
  std::unordered_map<uint64_t, BufferedPtr> leaving_;
  std::unordered_map<uint32_t, StripeNote> stripes_;
  std::vector<std::map<uint64_t, BufferedPtr>> queues_;
  std::map<uint64_t, StripeIndex> fresh_order_;
  uint64_t next_order_ = 0;
  uint64_t held_ = 0;
};

}  // namespace eplog
