// ParityMaker: the parity of a stripe whose row is to name other versions, by the way that reads
// less (section 8): from all of its data (reconstruct), or from the old parity and what each
// changed chunk was and is (delta).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "engine/core/core.h"
#include "engine/read/chunk_reader.h"

namespace eplog {

class ParityMaker {
 public:
  ParityMaker(Core& core, ChunkReader& reader) : core_(core), reader_(reader) {}

  // Which versions a commit takes is said by the versions, never by what they look like: two of
  // them may have one CRC and, with their SSD lost, one word.
  struct Change {
    StripeIndex stripe;
    std::vector<RowWord> old_words;             // n, as the parity covers them
    std::vector<RowWord> words;                 // n: the data words as the row will say
    std::array<uint64_t, kMaxSsds> versions{};  // by data position: the pending version taken, or 0
    StatesNumber states = 0;                    // DeviceStates::number when all that was looked up
    [[nodiscard]] bool takes(uint32_t index) const { return versions[index] != 0; }
  };
  // m chunks into `parity`; all slots of the change are pinned by the caller. What cannot be read
  // directly is decoded. kBusy if a version was overwritten and can no longer be read.
  Task<Status> Make(const Change& change, std::vector<Buffer>& parity);

 private:
  [[nodiscard]] bool Changes(const Change& change, uint32_t index) const;
  [[nodiscard]] bool DeltaPays(const Change& change) const;
  Task<bool> ByDelta(const Change& change, std::vector<Buffer>& parity);
  Task<Status> FromData(const Change& change, std::vector<Buffer>& parity);
  Task<Status> ReadVersions(const Change& change, std::span<const std::span<std::byte>> data);
  Task<Status> ReadVersion(const Change& change, uint32_t index, std::span<std::byte> into,
                           uint64_t& bad);
  Task<Status> ReadCounted(const Change& change, uint32_t index, RowWord word,
                           std::span<std::byte> into);

  Core& core_;
  ChunkReader& reader_;
};

}  // namespace eplog
