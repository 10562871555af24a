#include "engine/superblocks.h"

#include "base/bytes.h"
#include "runtime/task_group.h"

namespace eplog {

Uuid RandomUuid(Random& random) {
  Uuid uuid{};
  StoreLe(uuid.data(), random.Next());
  StoreLe(uuid.data() + 8, random.Next());
  uuid[6] = (uuid[6] & std::byte{0x0F}) | std::byte{0x40};  // version 4, variant 1
  uuid[8] = (uuid[8] & std::byte{0x3F}) | std::byte{0x80};
  return uuid;
}

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
  if (!status.ok()) {
    co_return core_.members.Absorb(std::move(status));
  }
  (core_.geometry.IsLog(device) ? core_.traffic.log_header_bytes
                                : core_.traffic.ssd_metadata_bytes) += kSuperblockCopyBytes;
  Task<Status> flush = core_.members.Flush(device);
  status = co_await flush;
  co_return core_.members.Absorb(std::move(status));
}

}  // namespace eplog
