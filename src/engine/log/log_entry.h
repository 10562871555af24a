// LogEntry: one entry of the log on its way, from its making until it is applied and its pieces are
// finished.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/buffer.h"
#include "engine/log/pieces.h"
#include "eplog/status.h"
#include "format/entry.h"

namespace eplog {

// Made by EntryMaker, written by EntryWriter, applied by Appender, which owns it meanwhile.
struct LogEntry {
  EntryHeader header;
  Buffer header_block;
  size_t used_bytes = 0;                  // of the header
  std::vector<Buffer> log_chunks;         // m for each log stripe
  std::vector<ChunkWrite*> chunk_writes;  // borrowed, as the records are
  std::vector<RecordWrite*> records;
  std::vector<SlotWrite> slot_writes;
  std::vector<iovec> slot_parts;
  size_t bytes = kEntryFixedBytes;  // upper bound of the header's used bytes
  uint64_t ssd_mask = 0;            // SSDs that must be flushed before it is stable
  uint64_t held_blocks = 0;         // promises that end when it is applied
  bool written = false;
  Status status;

  void Clear() {
    header.volumes.clear();
    header.rows.clear();
    header.trims.clear();
    header.log_stripes.clear();
    header.first_of_epoch = false;
    header.follows_epoch = {};
    header.follows_sequence = 0;
    log_chunks.clear();
    chunk_writes.clear();
    records.clear();
    slot_writes.clear();
    slot_parts.clear();
    bytes = kEntryFixedBytes;
    ssd_mask = 0;
    held_blocks = 0;
    written = false;
    status = OkStatus();
  }
};

}  // namespace eplog
