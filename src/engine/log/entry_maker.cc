#include "engine/log/entry_maker.h"

#include <array>
#include <cstring>
#include <span>
#include <utility>

#include "base/check.h"

namespace eplog {

void EntryMaker::Open(const Epoch& epoch, const LogPosition& position) {
  epoch_ = epoch;
  end_ = position;
}

void EntryMaker::BeginEpoch(const Epoch& epoch) {
  epoch_ = epoch;
  first_of_epoch_ = true;
}

std::unique_ptr<LogEntry> EntryMaker::Make(uint64_t mark) {
  std::unique_ptr<LogEntry> entry = NewEntry();
  if (queue_.urgent() != 0) {
    TakeRecords(*entry, true);
  } else {
    TakeRecords(*entry, false);
    TakeLogStripes(*entry);
  }
  Number(*entry, mark);
  Encode(*entry);
  return entry;
}

std::unique_ptr<LogEntry> EntryMaker::NewEntry() {
  if (spare_.empty()) {
    return std::make_unique<LogEntry>();
  }
  std::unique_ptr<LogEntry> entry = std::move(spare_.back());
  spare_.pop_back();
  entry->Clear();
  return entry;
}

void EntryMaker::Recycle(std::unique_ptr<LogEntry> entry) {
  entry->header_block = Buffer();
  entry->log_chunks.clear();
  spare_.push_back(std::move(entry));
}

void EntryMaker::TakeRecords(LogEntry& entry, bool urgent) {
  // Without urgent work, leave room for one log stripe of the chunks that wait.
  const size_t keep = urgent || !queue_.has_chunks()
                          ? 0
                          : MaxLogStripeRecordBytes(core_.geometry.n, core_.geometry.m);
  for (const RecordWrite* next = queue_.NextRecord(urgent);
       next != nullptr &&
       (entry.bytes + next->max_bytes + keep <= kMaxEntryHeaderBytes || entry.records.empty());
       next = queue_.NextRecord(urgent)) {
    RecordWrite& record = queue_.TakeRecord(urgent);
    entry.bytes += record.max_bytes;
    entry.records.push_back(&record);
    entry.held_blocks += urgent ? 0 : record.promised - 1;
    if (record.row) {
      entry.header.rows.push_back(*record.row);
    }
    for (const VolumeRecord& volume : record.volumes) {
      entry.header.volumes.push_back(volume);
    }
    if (record.trim) {
      entry.header.trims.push_back(*record.trim);
    }
    entry.slot_writes.insert(entry.slot_writes.end(), record.writes.begin(), record.writes.end());
  }
  EPLOG_CHECK(entry.bytes <= kMaxEntryHeaderBytes, "a record does not fit an entry");
}

void EntryMaker::TakeLogStripes(LogEntry& entry) {
  const size_t record_bytes = MaxLogStripeRecordBytes(core_.geometry.n, core_.geometry.m);
  // The first log stripe takes what there is; further ones only if they are about as wide as the
  // array.
  while (queue_.has_chunks() && entry.bytes + record_bytes <= kMaxEntryHeaderBytes &&
         (entry.header.log_stripes.empty() || queue_.Width() + 1 >= core_.geometry.n)) {
    TakeLogStripe(entry);
    entry.bytes += record_bytes;
  }
}

void EntryMaker::TakeLogStripe(LogEntry& entry) {
  LogStripeRecord& record = entry.header.log_stripes.emplace_back();
  std::array<ChunkWrite*, kMaxSsds> members{};
  std::array<const std::byte*, kMaxSsds> data{};
  const size_t width = queue_.TakeStripe(members);
  for (size_t i = 0; i < width; ++i) {
    ChunkWrite* write = members[i];
    data[i] = write->data;
    record.members.push_back({write->chunk, write->word, write->crc});
    entry.chunk_writes.push_back(write);
    if (write->word.has_slot()) {
      entry.slot_writes.push_back(
          {core_.geometry.SsdOf(write->chunk), write->word.slot(), write->data, false});
    }
  }
  std::array<std::byte*, kMaxParity> parity{};
  const size_t first = entry.log_chunks.size();
  for (uint32_t j = 0; j < core_.geometry.m; ++j) {
    entry.log_chunks.push_back(core_.pool.Get(core_.geometry.chunk_bytes));
    parity[j] = entry.log_chunks.back().data();
  }
  core_.code.Encode(std::span(data).first(width), std::span(parity).first(core_.geometry.m),
                    core_.geometry.chunk_bytes);
  for (uint32_t j = 0; j < core_.geometry.m; ++j) {
    record.log_crcs.push_back(core_.checksum(entry.log_chunks[first + j].span()));
  }
}

void EntryMaker::Number(LogEntry& entry, uint64_t mark) {
  EntryHeader& header = entry.header;
  header.epoch = epoch_;
  header.sequence = end_.sequence + 1;
  header.mark = newest_mark_ = mark;
  header.place = end_.place;
  if (std::exchange(first_of_epoch_, false)) {
    header.first_of_epoch = true;
    header.follows_epoch = end_.epoch;
    header.follows_sequence = end_.sequence;
  }
  header.length_blocks =
      1 + static_cast<uint32_t>(header.log_stripes.size()) * core_.geometry.chunk_blocks();
  NoteRows(entry);
  for (const SlotWrite& write : entry.slot_writes) {
    entry.ssd_mask |= uint64_t{1} << write.ssd.value;
  }
  const uint64_t lap = end_.place / core_.geometry.log_blocks;
  end_ = {epoch_, header.sequence, header.place + header.length_blocks};
  core_.hooks.log_wraps += end_.place / core_.geometry.log_blocks != lap ? 1 : 0;
}

// The rows' words that are of the entry itself bear its sequence; their slots, and those of parity,
// must be durable with it.
void EntryMaker::NoteRows(LogEntry& entry) {
  EntryHeader& header = entry.header;
  size_t row = 0;
  for (const RecordWrite* record : entry.records) {
    if (!record->row) {
      continue;
    }
    for (RowChange& change : header.rows[row].changes) {
      if (record->own_version && change.index < core_.geometry.k()) {
        change.version = header.sequence;
      }
      if (change.word.has_slot() && (record->own_version || change.version == 0)) {
        entry.ssd_mask |= uint64_t{1}
                          << core_.geometry.SsdOf(header.rows[row].stripe, change.index).value;
      }
    }
    ++row;
  }
}

void EntryMaker::Encode(LogEntry& entry) {
  entry.header_block = core_.pool.Get(kBlockBytes);
  const auto block = entry.header_block.span();
  entry.used_bytes = EncodeEntryHeader(entry.header, core_.identity.array_uuid, block);
  std::memset(block.data() + entry.used_bytes, 0, block.size() - entry.used_bytes);
#ifndef NDEBUG
  const auto decoded = DecodeEntryHeader(block, core_.identity.array_uuid, core_.geometry);
  EPLOG_CHECK(decoded.ok() && *decoded == entry.header, "an entry does not decode to itself");
#endif
}

}  // namespace eplog
