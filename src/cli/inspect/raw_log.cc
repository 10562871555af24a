#include "cli/inspect/raw_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

namespace eplog::cli {
namespace {

constexpr uint64_t kScanBlocks = 1024;

void AddEntry(FoundEntries& into, EntryHeader header, std::string where) {
  FoundEntry& found = into[{header.sequence, header.epoch}];
  found.header = std::move(header);
  found.copies.push_back(std::move(where));
}

// Calls `visit(block, bytes)` for every block of an area that can be read: a bad one hides none of its
// neighbours.
template <typename Visit>
Status ForEachBlock(const RawMember& member, uint64_t offset, uint64_t blocks, const Visit& visit) {
  for (uint64_t first = 0; first < blocks; first += kScanBlocks) {
    const uint64_t count = std::min(kScanBlocks, blocks - first);
    auto bytes = ReadBytes(member, offset + first * kBlockBytes, count * kBlockBytes);
    if (!bytes.ok() && member.hangs) {
      return Fail(std::move(bytes).error());
    }
    for (uint64_t i = 0; i < count; ++i) {
      if (bytes.ok()) {
        visit(first + i, std::span<const std::byte>(*bytes).subspan(i * kBlockBytes, kBlockBytes));
        continue;
      }
      const auto single = ReadBytes(member, offset + (first + i) * kBlockBytes, kBlockBytes);
      if (single.ok()) {
        visit(first + i, std::span<const std::byte>(*single));
      }
    }
  }
  return OkStatus();
}

Status ScanLogRing(const RawMember& member, const Superblock& identity, FoundEntries& into) {
  const Geometry& g = identity.geometry;
  return ForEachBlock(member, g.log_offset_bytes, g.log_blocks,
                      [&](uint64_t block, std::span<const std::byte> bytes) {
                        auto header = DecodeEntryHeader(bytes, identity.array_uuid, g);
                        if (header.ok() && header->place % g.log_blocks == block) {
                          AddEntry(into, std::move(*header), member.name);
                        }
                      });
}

Status ScanJournalRing(const RawMember& member, const Superblock& identity, FoundEntries& into) {
  const Geometry& g = identity.geometry;
  const DeviceIndex ssd = member.superblock()->index;
  return ForEachBlock(member, g.ring_offset_bytes, g.ring_blocks,
                      [&](uint64_t block, std::span<const std::byte> bytes) {
                        auto ring_block = DecodeRingBlock(bytes, identity.array_uuid, g, ssd);
                        if (!ring_block.ok() || ring_block->number % g.ring_blocks != block) {
                          return;
                        }
                        for (EntryHeader& header : ring_block->headers) {
                          AddEntry(into, std::move(header), member.name + " ring");
                        }
                      });
}

// The entry at a place of the log rings that goes on from `before`, with every copy there is.
class Joiner {
 public:
  Joiner(const RawArray& array, const Superblock& identity) : array_(array), identity_(identity) {}

  Status ReadRings() {
    for (const RawMember& member : array_.members()) {
      const Superblock* superblock = member.superblock();
      if (superblock == nullptr || superblock->array_uuid != identity_.array_uuid ||
          identity_.geometry.IsLog(superblock->index)) {
        continue;
      }
      EPLOG_TRY(ScanRing(member, identity_, rings_));
    }
    for (const auto& [key, found] : rings_) {
      if (found.header.first_of_epoch) {
        firsts_[found.header.follows_sequence].push_back(&found);
      }
    }
    return OkStatus();
  }

  Result<FoundEntry> Next(const Epoch& epoch, uint64_t sequence, uint64_t place) const {
    FoundEntries candidates;
    AddFromLogs(place, candidates);
    AddFromRings(sequence, candidates);
    const FoundEntry* best = nullptr;
    for (const auto& [key, found] : candidates) {
      const bool newer = best == nullptr || found.header.epoch > best->header.epoch;
      if (newer && Continues(found.header, {epoch, sequence, place})) {
        best = &found;
      }
    }
    if (best == nullptr) {
      return Fail(ErrorCode::kNotFound, "the log ends here");
    }
    return *best;
  }

 private:
  void AddFromLogs(uint64_t place, FoundEntries& candidates) const {
    const Geometry& g = identity_.geometry;
    for (uint32_t j = 0; j < g.m; ++j) {
      const RawMember* log = array_.ByIndex(g.LogDevice(j));
      if (log == nullptr) {
        continue;
      }
      const auto bytes = ReadBytes(*log, g.LogOffset(place), kBlockBytes);
      if (!bytes.ok()) {
        continue;
      }
      auto header = DecodeEntryHeader(*bytes, identity_.array_uuid, g);
      if (header.ok()) {
        AddEntry(candidates, std::move(*header), log->name);
      }
    }
  }

  // The next sequence, and what begins an epoch after this one.
  void AddFromRings(uint64_t sequence, FoundEntries& candidates) const {
    const auto add = [&](const FoundEntry& found) {
      for (const std::string& where : found.copies) {
        AddEntry(candidates, found.header, where);
      }
    };
    for (auto it = rings_.lower_bound({sequence + 1, Epoch{}});
         it != rings_.end() && it->first.first == sequence + 1; ++it) {
      if (!it->second.header.first_of_epoch) {
        add(it->second);
      }
    }
    const auto firsts = firsts_.find(sequence);
    if (firsts != firsts_.end()) {
      for (const FoundEntry* found : firsts->second) {
        add(*found);
      }
    }
  }

  const RawArray& array_;
  const Superblock& identity_;
  FoundEntries rings_;
  std::map<uint64_t, std::vector<const FoundEntry*>> firsts_;  // by the sequence that they follow
};

}  // namespace

Status ScanRing(const RawMember& member, const Superblock& identity, FoundEntries& into) {
  return identity.geometry.IsLog(member.superblock()->index)
             ? ScanLogRing(member, identity, into)
             : ScanJournalRing(member, identity, into);
}

Result<JoinedLog> JoinLog(const RawArray& array, const CheckpointRoot& root) {
  const auto identity = array.Identity();
  EPLOG_TRY(identity);
  Joiner joiner(array, **identity);
  EPLOG_TRY(joiner.ReadRings());
  JoinedLog log;
  Epoch epoch = root.epoch;
  uint64_t sequence = root.sequence;
  log.end_place = root.place;
  for (auto next = joiner.Next(epoch, sequence, log.end_place); next.ok();
       next = joiner.Next(epoch, sequence, log.end_place)) {
    epoch = next->header.epoch;
    sequence = next->header.sequence;
    log.end_place += next->header.length_blocks;
    log.newest_mark = std::max(log.newest_mark, next->header.mark);
    log.entries.push_back(std::move(*next));
  }
  return log;
}

}  // namespace eplog::cli
