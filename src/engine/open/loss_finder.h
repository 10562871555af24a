// LossFinder: which parts of volumes cannot be read since more than m devices are missing (P7).
// From the tables, and from what recovery found wrong of the newest entries. Of what is pending it
// reads what is on devices that missed something, and no other chunk: it knows nothing of rot.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/core/core.h"
#include "engine/read/chunk_reader.h"
#include "eplog/report.h"

namespace eplog {

class LossFinder {
 public:
  // When `closing` becomes true it ends with kShutdown.
  LossFinder(Core& core, const ChunkReader& reader, const bool& closing)
      : core_(core), reader_(reader), closing_(closing) {}

  Task<Result<LossReport>> Find();

 private:
  Task<void> LookAt(VolumeId id, ExtentIndex extent);
  // SSDs that missed something and are read all the same, or are back and not looked through yet.
  [[nodiscard]] uint64_t Doubtful() const;
  [[nodiscard]] bool Readable(DeviceIndex ssd, SlotWord word) const;
  // Bit i: data chunk i of the stripe.
  Task<uint64_t> LostIn(StripeIndex stripe);
  Task<bool> PendingIsLost(ChunkIndex chunk, LogStripeId id);
  // What is referred to lives until the task ends. Bit i: member i of the log stripe.
  Task<uint64_t> LostOf(const LogStripeView& view);
  Task<bool> MemberIsThere(const LogStripeMember& member);
  Task<bool> LogChunkIsThere(uint32_t j, const LogStripeView& view);
  void Add(const Volume& volume, uint64_t offset_bytes, uint64_t length_bytes);

  Core& core_;
  const ChunkReader& reader_;
  const bool& closing_;
  // Of a log stripe, under these device states.
  struct Known {
    uint64_t sequence = 0;
    StatesNumber states = 0;
    uint64_t lost = 0;
  };
  std::unordered_map<LogStripeId, Known> known_;
  LossReport report_;
};

}  // namespace eplog
