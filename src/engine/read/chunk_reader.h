// ChunkReader: the content of chunks, verified (P5). What is wrong or unreadable is decoded: a
// pending chunk through its log stripe, a committed one through its row with the old versions of
// its peers.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "engine/core/core.h"
#include "engine/log/appender.h"

namespace eplog {

// Slots that may not be reused while somebody reads them (I1). Give back by destruction.
class Pins {
 public:
  explicit Pins(Core& core) : core_(core) {}
  Pins(const Pins&) = delete;
  Pins& operator=(const Pins&) = delete;
  ~Pins() { Release(); }
  void Add(DeviceIndex ssd, SlotWord word);
  void Release();

 private:
  Core& core_;
  std::vector<SlotSpace::PinKey> pins_;
};

class ChunkReader {
 public:
  // `appender` may be null before the array is open (recovery, read-only).
  ChunkReader(Core& core, Appender* appender) : core_(core), appender_(appender) {}

  // Called with a stripe of which something that a device should have is wrong or unreadable.
  void set_on_wrong(std::function<void(StripeIndex)> on_wrong) { on_wrong_ = std::move(on_wrong); }

  // Read-only openings: this is what the chunk reads as, and what an opening for writing would
  // write again.
  void ReadInstead(ChunkIndex chunk, Buffer content) { instead_[chunk.value] = std::move(content); }
  [[nodiscard]] bool ReadsInstead(ChunkIndex chunk) const { return instead_.contains(chunk.value); }

  // The latest version of a chunk into `into` (chunk_bytes, aligned).
  Task<Status> ReadLatest(ChunkIndex chunk, std::span<std::byte> into);

  // One slot, checked against its CRC. kCorrupt, kIo or kDeviceFailed if it cannot be had directly.
  // `states`: DeviceStates::number when the word was looked up; who joined since is not to blame.
  Task<Status> ReadSlot(DeviceIndex ssd, SlotWord word, uint32_t crc, StatesNumber states,
                        std::span<std::byte> into);

  // All k data chunks of a row whose words are given (n of them; looked up under `states` and
  // pinned by the caller), decoding what is missing. data[i] is written. `rebuilt`, if given, gets
  // the positions (data and parity) that were not readable.
  Task<Status> ReadRow(StripeIndex stripe, std::span<const RowWord> words, StatesNumber states,
                       std::span<const std::span<std::byte>> data, uint64_t* rebuilt = nullptr);

  // All members of a log stripe, decoding what is missing (just looked up, and pinned by the
  // caller). Chunks are written to data[i]. `rebuilt`: bits 0 ... members-1, then log devices.
  Task<Status> ReadLogStripe(const LogStripeView& view, std::span<const std::span<std::byte>> data,
                             uint64_t* rebuilt = nullptr);

  // The verified content of one log chunk.
  Task<Status> ReadLogChunk(uint32_t j, uint64_t place, uint32_t crc, std::span<std::byte> into);

 private:
  // Which version of a chunk is the latest.
  struct Seen {
    uint64_t version = 0;
    std::vector<SlotWord> row;
    bool operator==(const Seen&) const = default;
  };
  [[nodiscard]] Seen See(ChunkIndex chunk) const;
  Task<Status> DecodeLatest(ChunkIndex chunk, std::span<std::byte> into);
  Task<Status> DecodePending(ChunkIndex chunk, LogStripeId id, std::span<std::byte> into);
  Task<Status> DecodeCommitted(ChunkIndex chunk, std::span<std::byte> into);
  void Blame(DeviceIndex device, StatesNumber states);
  void NoteWrong(StripeIndex stripe, DeviceIndex ssd, SlotWord word);

  Core& core_;
  Appender* appender_;
  std::function<void(StripeIndex)> on_wrong_;
  std::map<uint64_t, Buffer> instead_;
};

}  // namespace eplog
