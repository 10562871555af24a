#include "engine/checkpoint/superblocks.h"

#include <algorithm>
#include <cstring>

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

void Superblocks::Return(DeviceIndex device, uint64_t generation, bool damaged) {
  generations_[device.value] = generation;
  damaged_ |= damaged ? uint64_t{1} << device.value : 0;
  returning_ |= uint64_t{1} << device.value;
  const bool log = core_.geometry.IsLog(device);
  current_.members[device.value].state = log ? MemberState::kJoining : MemberState::kReturning;
}

void Superblocks::SetBase(const Epoch& base, bool on_rings) {
  const auto logs = static_cast<std::ptrdiff_t>(core_.geometry.n);
  const bool waited_for =
      current_.journal_mode == static_cast<uint8_t>(JournalMode::kFull) ||
      std::any_of(current_.members.begin() + logs, current_.members.end(),
                  [](const MemberEntry& log) { return log.state != MemberState::kOk; });
  current_.base = base;
  current_.base_on_rings = on_rings && waited_for;
}

Task<Status> Superblocks::Write() {
  Task<AsyncMutex::Guard> locking = turn_.Lock();
  const AsyncMutex::Guard guard = co_await locking;
  if (returning_ != 0) {
    EPLOG_CO_AWAIT(WriteTo(returning_));
  }
  Task<Status> others = WriteTo(~returning_);
  returning_ = 0;
  co_return co_await others;
}

Task<Status> Superblocks::WriteTo(uint64_t devices) {
  TaskGroup group(core_.loop);
  for (uint8_t i = 0; i < core_.geometry.devices(); ++i) {
    if ((devices >> i & 1) != 0 && core_.members.live(DeviceIndex(i))) {
      group.Start(WriteOne(DeviceIndex(i)));
    }
  }
  Task<Status> all = group.Wait();
  co_return co_await all;
}

Task<uint32_t> Superblocks::DamagedCopies(DeviceIndex device) {
  Task<AsyncMutex::Guard> locking = turn_.Lock();
  const AsyncMutex::Guard guard = co_await locking;
  uint32_t damaged = 0;
  const uint64_t newest = generations_[device.value];
  // The first one on a device has nothing of this membership beside it.
  for (uint64_t generation = newest > 1 ? newest - 1 : newest; generation <= newest; ++generation) {
    const uint64_t copy = generation % 2;
    const Buffer buffer = core_.pool.Get(kSuperblockCopyBytes);
    Task<Status> reading =
        core_.members.ReadBytes(device, kSuperblockCopyOffset[copy], buffer.span());
    const Status read = co_await reading;
    const Result<Superblock> found =
        read.ok() ? DecodeSuperblock(buffer.span()) : Fail(ErrorCode::kIo, "unreadable");
    if (!found.ok() || found->generation != generation || found->index != device) {
      damaged |= 1U << copy;
    }
  }
  co_return core_.members.live(device) ? damaged : 0;
}

namespace {

// A superblock that was torn lacks a few sectors. Where these are the same in the one that comes in
// its place, and that is torn as well, they make the older one whole: an epoch would be back that
// others have left, not knowing of it. So nothing of it is left before (I8).
void FillBut(std::span<const std::byte> superblock, std::span<std::byte> into) {
  constexpr size_t kKept = 12;  // magic and version: it is still told that there was one
  constexpr int kFiller = 0xE7;
  std::memset(into.data(), kFiller, into.size());
  std::memcpy(into.data(), superblock.data(), kKept);
}

}  // namespace

Task<Status> Superblocks::WriteOne(DeviceIndex device) {
  Superblock superblock = current_;
  superblock.index = device;
  superblock.device_uuid = current_.members[device.value].uuid;
  superblock.generation = generations_[device.value] + 1;
  Buffer buffer = core_.pool.Get(kSuperblockCopyBytes);
  EncodeSuperblock(superblock, buffer.span());
  const uint64_t bit = uint64_t{1} << device.value;
  if ((damaged_ & bit) != 0) {
    Buffer filler = core_.pool.Get(kSuperblockCopyBytes);
    FillBut(buffer.span(), filler.span());
    EPLOG_CO_AWAIT(WriteCopy(device, superblock.generation, filler.span()));
  }
  damaged_ |= bit;  // until it is whole the other copy alone counts, and the next comes here again
  EPLOG_CO_AWAIT(WriteCopy(device, superblock.generation, buffer.span()));
  damaged_ &= ~bit;
  generations_[device.value] = superblock.generation;
  co_return OkStatus();
}

// Durable on return, if the device is not lost meanwhile.
Task<Status> Superblocks::WriteCopy(DeviceIndex device, uint64_t generation,
                                    std::span<const std::byte> bytes) {
  const uint64_t offset = kSuperblockCopyOffset[generation % 2];
  Task<Status> write = core_.members.WriteBytes(device, offset, bytes, IoKind::kSuperblock);
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
