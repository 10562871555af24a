// Pieces: what the parts of the engine hand to the appender, each to become part of an entry. A
// piece lives in the frame of the coroutine that submits it and awaits its completion.
#pragma once

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/types.h"
#include "engine/core/device_states.h"
#include "eplog/event_loop.h"
#include "eplog/status.h"
#include "format/entry.h"
#include "layout/slot_word.h"

namespace eplog {

// Awaited once by the coroutine that submitted a piece.
class Completion {
 public:
  [[nodiscard]] bool await_ready() const noexcept { return done_; }
  void await_suspend(std::coroutine_handle<> handle) noexcept { waiter_ = handle; }
  void await_resume() const noexcept {}

  void Finish(EventLoop& loop, Status status, uint64_t sequence) {
    done_ = true;
    status_ = std::move(status);
    sequence_ = sequence;
    if (waiter_) {
      loop.Post(waiter_);
    }
  }
  [[nodiscard]] Status status() const { return status_; }
  [[nodiscard]] uint64_t sequence() const { return sequence_; }

 private:
  std::coroutine_handle<> waiter_;
  bool done_ = false;
  Status status_;
  uint64_t sequence_ = 0;
};

// A new version of one data chunk, to become a member of a log stripe. Lives in the writer's frame;
// `data` is chunk_bytes, aligned for the devices, unchanged until completion.
struct ChunkWrite {
  ChunkIndex chunk;
  SlotWord word;  // claimed slot, or `absent`
  uint32_t crc = 0;
  const std::byte* data = nullptr;
  StatesNumber states = 0;  // set by Submit
  Completion completion;
};

struct SlotWrite {
  DeviceIndex ssd;
  SlotIndex slot;
  const std::byte* data = nullptr;  // chunk_bytes
  bool parity = false;
};

// Records with the chunks that they bring along. With neither it only carries the mark.
struct RecordWrite {
  std::optional<RowRecord> row;
  bool own_version = false;  // full stripe: the row's data words are of the entry itself
  std::vector<VolumeRecord> volumes;
  std::optional<TrimRecord> trim;
  std::vector<SlotWrite> writes;
  // Taken under these device states (DeviceStates::number): under others it is not described, but
  // ends with kBusy.
  std::optional<StatesNumber> states;
  uint64_t promised = 1;  // log blocks; what exceeds the entry's is held until it is applied
  Completion completion;
  size_t max_bytes = 0;           // set by Submit
  uint64_t submitted_states = 0;  // the same
};

}  // namespace eplog
