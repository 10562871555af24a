// WriteBuffer: the stripe buffer and the device buffers (paper, supplement section 1 and figure 1).
//
// With sizes of 0 every write goes straight to the Writer. Otherwise a write is acknowledged when
// its chunks lie in RAM with their slots and log room promised; later writes of the same chunks are
// absorbed in place. Chunks of stripes that were never written go to the stripe buffer, others to
// the device buffer of their SSD. When a device buffer is full, one chunk is drained from the head
// of each that is not empty: a log stripe. Chunks that make a whole stripe, whatever requests they
// came from, are written as one with their parity.
//
// A flush drains what lies in its range, nothing else. Nothing stays longer than kMaxAgeUs.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/core/core.h"
#include "engine/read/chunk_reader.h"
#include "engine/write/buffered_chunks.h"
#include "engine/write/writer.h"

namespace eplog {

class WriteBuffer {
 public:
  static constexpr uint64_t kMaxAgeUs = 5'000'000;

  WriteBuffer(Core& core, Admission& admission, ChunkReader& reader, Writer& writer,
              BufferedChunks& chunks)
      : core_(core),
        admission_(admission),
        reader_(reader),
        writer_(writer),
        chunks_(chunks),
        aging_(core.loop),
        ended_(core.loop) {}

  // Sizes beyond what the array or the RAM has: refused, in a line that says what fits.
  [[nodiscard]] static Status Check(const Core& core, const BufferSizes& sizes);
  // Starts the task that drains what is old. Sizes are those of the options, which were checked.
  void Open();
  // Drains everything and ends that task.
  Task<void> Close();
  // Smaller ones are drained to their new sizes at once.
  void SetSizes(const BufferSizes& sizes);
  [[nodiscard]] const BufferSizes& sizes() const { return sizes_; }

  // Bytes [offset, offset + from.size()) of the data of `stripe`.
  Task<Status> WriteInStripe(StripeIndex stripe, uint64_t offset_bytes,
                             std::span<const std::byte> from);

  // Until what lies here of the chunks that `wanted` names is in the log.
  Task<Status> Drain(std::function<bool(ChunkIndex)> wanted);
  // Begins to, for all: somebody waits for space.
  void DrainSoon();

  [[nodiscard]] uint64_t buffered_bytes() const {
    return chunks_.held() * core_.geometry.chunk_bytes;
  }

 private:
  [[nodiscard]] bool active() const {
    return sizes_.device_chunks != 0 || sizes_.stripes != 0 || !chunks_.empty();
  }
  Task<Status> WriteChunk(ChunkIndex chunk, uint64_t offset_bytes, std::span<const std::byte> from);
  Task<Status> Prepare(const BufferedPtr& chunk, uint64_t offset_bytes,
                       std::span<const std::byte> from);
  void DrainWhatIsFull(const BufferedChunk& newest);
  void DrainHeads();
  void DrainOldestStripe();
  void StartDrain(BufferedPtr chunk);
  Task<void> DrainChunk(BufferedPtr chunk);
  Task<void> DrainStripe(StripeIndex stripe);
  Task<void> Age();
  [[nodiscard]] std::optional<uint64_t> OldestUs() const;
  [[nodiscard]] uint64_t MostChunks() const;

  Core& core_;
  Admission& admission_;
  ChunkReader& reader_;
  Writer& writer_;
  BufferedChunks& chunks_;
  BufferSizes sizes_;
  WaitGroup aging_;
  Event ended_;
  bool closing_ = false;
};

}  // namespace eplog
