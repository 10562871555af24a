// RowBatch: the chunks of many rows at once. What lies side by side on an SSD is read and written
// by one request, so that rebuilding and scrubbing go at the speed of the devices.
//
// The words are those of the moment when a row was added, and its slots are pinned: whatever
// happens to the row meanwhile, what was added stays readable and consistent with its parity.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "engine/core/core.h"
#include "engine/read/chunk_reader.h"

namespace eplog {

class RowBatch {
 public:
  // Room for `most` rows.
  RowBatch(Core& core, ChunkReader& reader, size_t most);

  struct Row {
    StripeIndex stripe;
    uint32_t first_parity_ssd = 0;
    std::array<RowWord, kMaxSsds> words{};
    StatesNumber states = 0;  // DeviceStates::number when these were looked up
    uint64_t valid = 0;       // mask of positions: the content is here, and its CRC is right
    uint64_t bad = 0;  // there is a device that should have it, and it is wrong or unreadable
  };

  void Add(StripeIndex stripe);
  [[nodiscard]] size_t size() const { return rows_.size(); }
  [[nodiscard]] const Row& row(size_t at) const { return rows_[at]; }
  // One position of a row: chunk_bytes.
  [[nodiscard]] std::span<std::byte> Chunk(size_t at, uint32_t index) const;

  // Everything that is on a device.
  Task<void> ReadAll();
  // Of each row these positions, as far as a device has them.
  Task<void> ReadThese(std::span<const uint64_t> masks);
  // What decoding these rows takes: k positions, and others only where some are wrong.
  Task<void> ReadEnough(std::span<const size_t> rows);
  // The positions `wanted` (mask) of a row that are not valid, from those that are, checked against
  // their CRCs; they are valid then. kTooManyFailures if too few are; kCorrupt if the result is not
  // what the row says.
  Status Decode(size_t at, uint64_t wanted);
  // Parity that is valid and yet not the parity of the row's data (all valid): mask of positions.
  [[nodiscard]] uint64_t WrongParity(size_t at) const;
  // Counts these positions against their SSDs: their checksums are right, and nobody else says so.
  void CountWrong(size_t at, uint64_t positions);
  // The parity positions `wanted` anew from the row's data (all valid), with their CRCs.
  void EncodeParity(size_t at, uint64_t wanted);

  struct Place {
    size_t at;
    uint32_t index;
    DeviceIndex ssd;
    SlotIndex slot;
    StatesNumber states = 0;  // to write: those under which the slot was taken
  };
  // Chunks of rows to slots. The loss of a device is no error (MemberSet::Absorb), and a device that
  // has joined since gets nothing: its slots are others'.
  Task<Status> Write(std::vector<Place> places);

 private:
  [[nodiscard]] DeviceIndex SsdOf(const Row& row, uint32_t index) const {
    return core_.geometry.SsdAt(row.first_parity_ssd, index);
  }
  [[nodiscard]] bool Readable(const Row& row, uint32_t index) const;
  using Part = Task<Status> (RowBatch::*)(std::span<const Place> places);
  Task<Status> Transfer(std::vector<Place> places, Part part);
  Task<void> Read(std::vector<Place> places);
  Task<Status> ReadSideBySide(std::span<const Place> places);
  Task<Status> WriteSideBySide(std::span<const Place> places);
  Task<Status> ReadOne(Place place);
  void Verify(const Place& place);
  void NoteCorrupt(const Row& row, DeviceIndex ssd);
  void Wanted(size_t at, uint32_t index, std::vector<Place>& places);
  [[nodiscard]] std::vector<iovec> Parts(std::span<const Place> places) const;

  Core& core_;
  ChunkReader& reader_;
  const size_t most_;
  std::vector<Row> rows_;
  Pins pins_;
  // By SSD, so that what is side by side on a device often is in memory too.
  std::vector<Buffer> columns_;
};

}  // namespace eplog
