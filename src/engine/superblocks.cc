#include "engine/superblocks.h"

#include "runtime/task_group.h"

namespace eplog {

Task<Status> Superblocks::Write() {
  Task<AsyncMutex::Guard> locking = turn_.Lock();
  const AsyncMutex::Guard guard = co_await locking;
  TaskGroup group(core_.loop);
  for (uint8_t i = 0; i < core_.geometry.devices(); ++i) {
    if (core_.members.live(DeviceIndex(i))) {
      group.Start(WriteOne(DeviceIndex(i)));
    }
  }
  Task<Status> all = group.Wait();
  co_return co_await all;
}

Task<Status> Superblocks::WriteOne(DeviceIndex device) {
  Superblock superblock = current_;
  superblock.index = device;
  superblock.device_uuid = current_.members[device.value].uuid;
  superblock.generation = ++generations_[device.value];
  Buffer buffer = core_.pool.Get(kSuperblockCopyBytes);
  EncodeSuperblock(superblock, buffer.span());
  const uint64_t offset = kSuperblockCopyOffset[superblock.generation % 2];
  Task<Status> write = core_.members.WriteBytes(device, offset, buffer.span(), IoKind::kSuperblock);
  Status status = co_await write;
  EPLOG_CO_TRY(status);
  (core_.geometry.IsLog(device) ? core_.traffic.log_header_bytes
                                : core_.traffic.ssd_metadata_bytes) += kSuperblockCopyBytes;
  Task<Status> flush = core_.members.Flush(device);
  co_return co_await flush;
}

}  // namespace eplog
