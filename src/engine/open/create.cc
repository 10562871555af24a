// Array::Create: every check before the first write; then an empty checkpoint and superblocks.

#include <algorithm>
#include <string>

#include "base/bytes.h"
#include "engine/checkpoint/checkpointer.h"
#include "engine/checkpoint/superblocks.h"
#include "engine/core/core.h"
#include "engine/log/flusher.h"
#include "engine/open/assembly.h"
#include "eplog/array.h"
#include "runtime/task_group.h"

namespace eplog {
namespace {

constexpr uint64_t kDiscardBytes = uint64_t{1} << 30;  // in one request

Status CheckDevices(const std::vector<Device*>& ssds, const std::vector<Device*>& logs,
                    const CreateOptions& options) {
  if (logs.size() != options.parity) {
    return Fail(ErrorCode::kInvalidArgument,
                "parity " + std::to_string(options.parity) + " needs exactly " +
                    std::to_string(options.parity) + " log devices, not " +
                    std::to_string(logs.size()));
  }
  if (options.name.size() > kMaxArrayNameBytes) {
    return Fail(ErrorCode::kInvalidArgument,
                "an array's name has at most " + std::to_string(kMaxArrayNameBytes) + " bytes");
  }
  if (options.format < 1 || options.format > kFormatVersion) {
    return Fail(ErrorCode::kInvalidArgument, "there is no format " +
                                                 std::to_string(options.format) + ", only 1 to " +
                                                 std::to_string(kFormatVersion));
  }
  if (options.name.find('\0') != std::string::npos) {
    return Fail(ErrorCode::kInvalidArgument, "an array's name has no NUL byte in it");
  }
  std::vector<Device*> all = ssds;
  all.insert(all.end(), logs.begin(), logs.end());
  for (size_t i = 0; i < all.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (all[i] == all[j]) {
        return Fail(ErrorCode::kInvalidArgument, all[i]->name() + " is given twice");
      }
    }
  }
  return OkStatus();
}

uint64_t SmallestSize(const std::vector<Device*>& devices) {
  uint64_t least = UINT64_MAX;
  for (const Device* device : devices) {
    least = std::min(least, device->size_bytes());
  }
  return devices.empty() ? 0 : least;
}

Task<Status> RefuseMembers(const std::vector<Device*>& devices) {
  for (Device* device : devices) {
    Task<Result<Superblock>> reading = ReadSuperblock(*device);
    const Result<Superblock> superblock = co_await reading;
    const bool ours = superblock.ok() || superblock.error().code == ErrorCode::kUnsupported;
    if (ours) {
      co_return Fail(
          ErrorCode::kExists,
          device->name() + " already is a member of an array" +
              (superblock.ok() ? " (" + UuidToString(superblock->array_uuid) + ")" : "") +
              "; --force overwrites it");
    }
  }
  co_return OkStatus();
}

// Copies of an earlier array must not be mistaken for newer ones.
Task<Status> WipeSuperblocks(Core& core) {
  const Buffer zeros = core.pool.GetZeroed(kSuperblockCopyBytes);
  TaskGroup group(core.loop);
  for (uint8_t i = 0; i < core.geometry.devices(); ++i) {
    for (const uint64_t offset : kSuperblockCopyOffset) {
      group.Start(
          core.members.WriteBytes(DeviceIndex(i), offset, zeros.span(), IoKind::kSuperblock));
    }
  }
  EPLOG_CO_AWAIT(group.Wait());
  Task<Status> flush = core.members.FlushMask(core.members.live_mask());
  co_return co_await flush;
}

Task<Status> DiscardWhole(Core& core, DeviceIndex device) {
  const uint64_t size = core.members.device(device)->size_bytes();
  for (uint64_t at = 0; at < size; at += kDiscardBytes) {
    Task<Status> discard = core.members.Discard(device, at, std::min(kDiscardBytes, size - at));
    const Status status = co_await discard;
    if (!status.ok()) {
      break;  // it is a hint; the device is as good without
    }
  }
  co_return OkStatus();
}

// A used SSD takes what it held before for needed until it is told or overwritten: it would move it
// about in every collection.
Task<Status> DiscardDevices(Core& core) {
  TaskGroup group(core.loop);
  for (uint8_t i = 0; i < core.geometry.devices(); ++i) {
    if (core.members.device(DeviceIndex(i))->capabilities().discard) {
      group.Start(DiscardWhole(core, DeviceIndex(i)));
    }
  }
  Task<Status> all = group.Wait();
  co_return co_await all;
}

Superblock NewSuperblock(const Geometry& geometry, const CreateOptions& options, Random& random) {
  Superblock superblock;
  superblock.version = options.format;
  superblock.array_uuid = RandomUuid(random);
  superblock.geometry = geometry;
  superblock.journal_mode = static_cast<uint8_t>(options.journal);
  superblock.name = options.name;
  superblock.epoch = {1, random.Next()};
  superblock.base = superblock.epoch;
  for (uint32_t i = 0; i < geometry.devices(); ++i) {
    superblock.members.push_back({RandomUuid(random), MemberState::kOk, 1});
  }
  return superblock;
}

// Two nodes of one storage (multipath, two loop devices over a file) have two identities, and what
// was written by the one is read by the other. Then nobody is a member of anything.
Task<Status> CheckEachIsItself(Core& core, const Superblock& superblock) {
  for (uint8_t i = 0; i < core.geometry.devices(); ++i) {
    Device& device = *core.members.device(DeviceIndex(i));
    Task<Result<Superblock>> reading = ReadSuperblock(device);
    const Result<Superblock> found = co_await reading;
    Status status = found.ok() ? OkStatus() : Status(Fail(found.error()));
    if (found.ok() && (found->array_uuid != superblock.array_uuid || found->index.value != i)) {
      const bool ours = found->array_uuid == superblock.array_uuid && !found->is_spare();
      status = Fail(ErrorCode::kInvalidArgument,
                    device.name() + " does not keep what is written to it" +
                        (ours ? ": what " + core.members.device(found->index)->name() +
                                    " was given is there, so that the two are one device"
                              : ""));
    }
    if (!status.ok()) {
      EPLOG_CO_AWAIT(WipeSuperblocks(core));
      co_return status;
    }
  }
  co_return OkStatus();
}

}  // namespace

Result<Geometry> PlanArray(uint64_t ssds, uint64_t ssd_bytes, uint64_t log_bytes,
                           const CreateOptions& options) {
  GeometryRequest request;
  request.n = static_cast<uint32_t>(std::min<uint64_t>(ssds, UINT32_MAX));
  request.m = options.parity;
  request.chunk_bytes = options.chunk_bytes;
  request.reserve_percent = options.reserve_percent;
  request.ssd_bytes = ssd_bytes;
  request.log_bytes = log_bytes;
  request.ring_bytes = options.ring_bytes;
  request.extent_stripes = options.extent_stripes;
  return PlanGeometry(request);
}

Task<Status> Array::Create(EventLoop& loop, std::vector<Device*> ssds, std::vector<Device*> logs,
                           CreateOptions options) {
  Status checked = CheckDevices(ssds, logs, options);
  EPLOG_CO_TRY(checked);
  Result<Geometry> geometry =
      PlanArray(ssds.size(), SmallestSize(ssds), SmallestSize(logs), options);
  EPLOG_CO_TRY(geometry);
  std::vector<Device*> devices = ssds;
  devices.insert(devices.end(), logs.begin(), logs.end());
  if (!options.force) {
    EPLOG_CO_AWAIT(RefuseMembers(devices));
  }
  Random random(options.entropy);
  const Superblock superblock = NewSuperblock(*geometry, options, random);
  OpenOptions open_options;
  open_options.entropy = random.Next();
  Core core(loop, devices, superblock, open_options);
  Appender appender(core);
  Flusher flusher(core, appender);
  Superblocks superblocks(core, superblock, std::vector<uint64_t>(devices.size(), 0), 0);
  Checkpointer checkpointer(core, appender, flusher, superblocks);

  EPLOG_CO_AWAIT(WipeSuperblocks(core));
  if (options.discard) {
    EPLOG_CO_AWAIT(DiscardDevices(core));
  }
  const Appender::Position start{superblock.epoch, 0, 0};
  EPLOG_CO_AWAIT(checkpointer.WriteAlone(start));
  for (int copy = 0; copy < 2; ++copy) {  // A and B
    EPLOG_CO_AWAIT(superblocks.Write());
  }
  Task<Status> checking = CheckEachIsItself(core, superblock);
  co_return co_await checking;
}

}  // namespace eplog
