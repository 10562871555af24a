#include "engine/log/entry_writer.h"

#include <algorithm>
#include <span>
#include <utility>

#include "rings/log_ring.h"

namespace eplog {
namespace {

constexpr size_t kMaxMergedBytes = size_t{1} << 20;

}  // namespace

Task<Status> EntryWriter::Write(LogEntry& entry) {
  TaskGroup group(core_.loop);
  StartSlotWrites(entry, group);
  for (uint32_t j = 0; j < core_.geometry.m; ++j) {
    const DeviceIndex log = core_.geometry.LogDevice(j);
    if (!core_.members.live(log)) {
      continue;
    }
    std::vector<iovec> parts;
    parts.push_back({entry.header_block.data(), kBlockBytes});
    for (size_t i = j; i < entry.log_chunks.size(); i += core_.geometry.m) {
      parts.push_back({entry.log_chunks[i].data(), core_.geometry.chunk_bytes});
    }
    group.Start(WriteLogCopy(log, entry.header.place, std::move(parts)));
  }
  Task<Status> all = group.Wait();
  co_return co_await all;
}

// Neighbouring slots of an SSD go in one request.
void EntryWriter::StartSlotWrites(LogEntry& entry, TaskGroup& group) {
  auto& writes = entry.slot_writes;
  std::sort(writes.begin(), writes.end(), [](const SlotWrite& a, const SlotWrite& b) {
    return a.ssd != b.ssd ? a.ssd < b.ssd : a.slot < b.slot;
  });
  const size_t chunk = core_.geometry.chunk_bytes;
  entry.slot_parts.resize(writes.size());
  for (size_t i = 0; i < writes.size(); ++i) {
    entry.slot_parts[i] = {const_cast<std::byte*>(writes[i].data), chunk};
  }
  const size_t limit = std::max<size_t>(1, kMaxMergedBytes / chunk);
  for (size_t first = 0; first < writes.size();) {
    size_t last = first + 1;
    while (last < writes.size() && last - first < limit && writes[last].ssd == writes[first].ssd &&
           writes[last].slot.value == writes[last - 1].slot.value + 1) {
      ++last;
    }
    group.Start(WriteSlots(entry, first, last));
    first = last;
  }
}

// One request. Counted when it ends, as the devices count.
Task<Status> EntryWriter::WriteSlots(LogEntry& entry, size_t first, size_t last) {
  const std::span<const SlotWrite> writes(entry.slot_writes.data() + first, last - first);
  const auto parity = static_cast<size_t>(std::count_if(
      writes.begin(), writes.end(), [](const SlotWrite& write) { return write.parity; }));
  Task<Status> write =
      core_.members.Write(writes[0].ssd, core_.geometry.SlotOffset(writes[0].slot),
                          std::span(entry.slot_parts).subspan(first, last - first),
                          parity == writes.size() ? IoKind::kParity : IoKind::kData);
  Status status = co_await write;
  if (status.ok()) {
    core_.traffic.ssd_parity_bytes += parity * core_.geometry.chunk_bytes;
    core_.traffic.ssd_data_bytes += (writes.size() - parity) * core_.geometry.chunk_bytes;
  }
  co_return core_.members.Absorb(std::move(status));
}

Task<Status> EntryWriter::WriteLogCopy(DeviceIndex log, uint64_t place, std::vector<iovec> parts) {
  Task<Status> write = WriteLog(core_.members, core_.geometry,
                                {log, place, std::move(parts), IoKind::kEntry, &core_.log_bytes});
  Status status = co_await write;
  co_return core_.members.Absorb(std::move(status));
}

}  // namespace eplog
