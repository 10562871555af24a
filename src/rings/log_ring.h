// The log ring of a log device: blocks at places that count up for ever and wrap in the device
// (docs/format.md). Reading for recovery goes through LogReader, which reads ahead.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "base/types.h"
#include "device/members.h"
#include "format/entry.h"
#include "layout/geometry.h"
#include "runtime/task_group.h"

namespace eplog {

// Bytes that reached log devices.
struct LogBytes {
  uint64_t headers = 0;
  uint64_t chunks = 0;
};

struct LogWrite {
  DeviceIndex log;
  uint64_t place = 0;
  std::vector<iovec> parts;  // whole blocks; their memory lives until the task ends
  IoKind kind = IoKind::kEntry;
  LogBytes* counted = nullptr;  // gets what each request wrote when it ends; a header comes first
};
// In two requests where the ring wraps.
Task<Status> WriteLog(MemberSet& members, const Geometry& geometry, LogWrite write);
Task<Status> ReadLog(MemberSet& members, const Geometry& geometry, DeviceIndex log, uint64_t place,
                     std::span<std::byte> into);

// Finds headers by place on all live log devices. A device that cannot be read is one copy less.
class LogReader {
 public:
  LogReader(EventLoop& loop, MemberSet& members, const Geometry& geometry, const Uuid& array,
            BufferPool& pool)
      : members_(members),
        geometry_(geometry),
        array_(array),
        pool_(pool),
        reads_(loop),
        copies_(geometry.m) {}

  // The header that log device j holds for exactly this place, if it is valid.
  Task<std::optional<EntryHeader>> HeaderAt(uint32_t j, uint64_t place);
  // Until no read is on its way. Before this object goes.
  Task<void> Drain();
  // Of a header for exactly the place of the last HeaderAt, with something in it that this version
  // does not know: what it knows of it, which is no record.
  [[nodiscard]] const std::optional<EntryHeader>& met_unknown() const { return met_unknown_; }
  // The last HeaderAt could not read the place.
  [[nodiscard]] bool met_unreadable() const { return met_unreadable_; }

 private:
  static constexpr uint64_t kWindowBlocks = 256;
  static constexpr size_t kMostAhead = 4;  // windows, while places ascend
  struct Window {
    Buffer buffer;
    uint64_t first = 0;
    uint64_t blocks = 0;
    bool readable = false;
    bool done = false;
    [[nodiscard]] bool Holds(uint64_t place) const {
      return place >= first && place < first + blocks;
    }
  };
  struct Copy {
    std::deque<std::unique_ptr<Window>> windows;  // the one in use, then those ahead
    size_t ahead = 0;
  };
  Task<void> MoveTo(uint32_t j, uint64_t place);
  void StartRead(uint32_t j, uint64_t place);
  Task<Status> Load(uint32_t j, Window& window);

  MemberSet& members_;
  const Geometry& geometry_;
  const Uuid array_;
  BufferPool& pool_;
  TaskGroup reads_;
  std::vector<Copy> copies_;
  std::optional<EntryHeader> met_unknown_;
  bool met_unreadable_ = false;
};

}  // namespace eplog
