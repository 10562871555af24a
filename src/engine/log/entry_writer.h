// EntryWriter: writes an entry: its chunks to their slots, header and log chunks to every live log
// device, all at once (I4). It decides nothing and keeps nothing.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/core/core.h"
#include "engine/log/log_entry.h"
#include "runtime/task_group.h"

namespace eplog {

class EntryWriter {
 public:
  explicit EntryWriter(Core& core) : core_(core) {}

  // Until all of it has been written on the devices that are left; not flushed. The entry stays
  // where it is meanwhile. The loss of a device is no error: Membership deals with it.
  Task<Status> Write(LogEntry& entry);

 private:
  void StartSlotWrites(LogEntry& entry, TaskGroup& group);
  Task<Status> WriteSlots(LogEntry& entry, size_t first, size_t last);
  Task<Status> WriteLogCopy(DeviceIndex log, uint64_t place, std::vector<iovec> parts);

  Core& core_;
};

}  // namespace eplog
