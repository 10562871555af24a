#include "engine/assembly.h"

#include <algorithm>
#include <optional>

#include "base/buffer.h"
#include "runtime/task_group.h"

namespace eplog {
namespace {

struct Found {
  Device* device;
  Superblock superblock;
  bool doubtful = false;
};

// Or has another in its place.
bool CallsLost(const Superblock& candidate, const Superblock& other) {
  const MemberEntry& member = candidate.members[other.index.value];
  return member.state == MemberState::kLost || member.uuid != other.device_uuid;
}

// May a device that bears `b` be part of the epoch of `c`? It bears that epoch, or the one that it
// grew from, or one that never opened beside it.
bool Fits(const Superblock& c, const Superblock& b) {
  return b.epoch == c.epoch || b.epoch == c.base || (b.epoch != b.base && b.base == c.base);
}

bool IsValid(const Superblock& candidate, const std::vector<Found>& found) {
  return std::all_of(found.begin(), found.end(), [&](const Found& other) {
    return CallsLost(candidate, other.superblock) || Fits(candidate, other.superblock);
  });
}

bool IsBornByAll(const Superblock& candidate, const std::vector<Found>& found) {
  return std::all_of(found.begin(), found.end(), [&](const Found& other) {
    return CallsLost(candidate, other.superblock) || other.superblock.epoch == candidate.epoch;
  });
}

Result<Superblock> PickWinner(const std::vector<Found>& found) {
  std::vector<const Superblock*> valid;
  for (const Found& item : found) {
    if (IsValid(item.superblock, found)) {
      valid.push_back(&item.superblock);
    }
  }
  if (valid.empty()) {
    return Fail(ErrorCode::kCorrupt,
                "these devices do not belong to one life of the array: none of their epochs is "
                "valid; leave out the one that was away longest");
  }
  const auto number = [](const Superblock* s) { return s->epoch.number; };
  const uint64_t top = (*std::max_element(valid.begin(), valid.end(), [&](auto* a, auto* b) {
                         return number(a) < number(b);
                       }))->epoch.number;
  std::erase_if(valid, [&](const Superblock* s) { return s->epoch.number != top; });
  const bool tie = std::any_of(valid.begin(), valid.end(), [&](const Superblock* s) {
    return s->epoch != valid.front()->epoch;
  });
  if (tie) {
    // The one that every present device it calls live bears; if there is none, nothing was written
    // under any.
    Epoch best = valid.front()->epoch;
    std::optional<Epoch> born;
    size_t born_epochs = 0;
    for (const Superblock* s : valid) {
      best = std::max(best, s->epoch);
      if (IsBornByAll(*s, found) && born != s->epoch) {
        born = s->epoch;
        ++born_epochs;
      }
    }
    best = born_epochs == 1 ? *born : best;
    std::erase_if(valid, [&](const Superblock* s) { return s->epoch != best; });
  }
  return **std::max_element(valid.begin(), valid.end(),
                            [](auto* a, auto* b) { return a->base.number < b->base.number; });
}

Status CheckSameArray(const std::vector<Found>& found) {
  const Superblock& first = found.front().superblock;
  for (const Found& item : found) {
    const Superblock& s = item.superblock;
    const std::string who = item.device->name();
    if (s.array_uuid != first.array_uuid) {
      return Fail(ErrorCode::kInvalidArgument, who + " belongs to another array (" +
                                                   UuidToString(s.array_uuid) + ", while " +
                                                   found.front().device->name() + " is of " +
                                                   UuidToString(first.array_uuid) + ")");
    }
    if (!(s.geometry == first.geometry)) {
      return Fail(ErrorCode::kCorrupt,
                  who + " and " + found.front().device->name() + " disagree on the geometry");
    }
    const bool log = s.geometry.IsLog(s.index);
    const uint64_t need = log ? s.geometry.log_bytes() : s.geometry.ssd_bytes();
    if (item.device->size_bytes() < need) {
      return Fail(ErrorCode::kCorrupt,
                  who + " (" + s.geometry.DeviceName(s.index) + ") is truncated: it has " +
                      std::to_string(item.device->size_bytes()) + " bytes and needs " +
                      std::to_string(need) +
                      "; restore its size, or leave it out to open the array degraded");
    }
    for (const Found& other : found) {
      if (&other != &item && other.superblock.index == s.index) {
        return Fail(ErrorCode::kInvalidArgument, who + " and " + other.device->name() +
                                                     " are both " + s.geometry.DeviceName(s.index) +
                                                     " of this array; give one");
      }
    }
  }
  return OkStatus();
}

// Both copies torn, or a device that does not answer.
bool CannotBeRead(ErrorCode code) {
  return code == ErrorCode::kCorrupt || code == ErrorCode::kIo || code == ErrorCode::kDeviceFailed;
}

// Copy by copy. kNotFound if there is no magic in either.
Result<Superblock> NewerCopy(const Device& device, Result<Superblock> a, Result<Superblock> b) {
  if (a.ok() && b.ok()) {
    return a->generation > b->generation ? std::move(a) : std::move(b);
  }
  if (a.ok() || b.ok()) {
    // A torn copy is nothing; a copy of a newer format is not to be overwritten.
    const Result<Superblock>& other = a.ok() ? b : a;
    if (other.error().code != ErrorCode::kUnsupported) {
      return a.ok() ? std::move(a) : std::move(b);
    }
  }
  // Of both the one that tells more: a newer format, then a damaged copy.
  const auto says = [](const Result<Superblock>& copy, ErrorCode code) {
    return !copy.ok() && copy.error().code == code;
  };
  const bool second = a.ok() || says(b, ErrorCode::kUnsupported) ||
                      (says(b, ErrorCode::kCorrupt) && !says(a, ErrorCode::kUnsupported));
  Error error = second ? b.error() : a.error();
  if (error.code == ErrorCode::kUnsupported) {
    error.message = device.name() + ": " + error.message;
  } else if (error.code != ErrorCode::kIo && error.code != ErrorCode::kDeviceFailed) {
    error.message = device.name() +
                    " is not a member of an array (any more): it bears no valid superblock; leave "
                    "it out to open the "
                    "array without it";
  }
  return Fail(std::move(error));
}

}  // namespace

Task<Result<Superblock>> ReadSuperblock(Device& device, bool* doubtful) {
  if (device.size_bytes() < kSuperblockAreaBytes) {
    co_return Fail(ErrorCode::kInvalidArgument,
                   device.name() + " is too small to be a member of an array; leave it out");
  }
  BufferPool pool;
  Buffer buffer = pool.Get(kSuperblockCopyBytes);
  const iovec part{buffer.data(), kSuperblockCopyBytes};
  std::vector<Result<Superblock>> copies;
  for (const uint64_t offset : kSuperblockCopyOffset) {
    Task<Status> read = device.Read(offset, std::span(&part, 1));
    Status status = co_await read;
    if (status.ok()) {
      copies.push_back(DecodeSuperblock(buffer.span()));
    } else {
      copies.push_back(Fail(std::move(status).error()));
    }
  }
  if (doubtful != nullptr) {
    *doubtful = std::any_of(copies.begin(), copies.end(), [](const Result<Superblock>& copy) {
      return !copy.ok() && CannotBeRead(copy.error().code);
    });
  }
  co_return NewerCopy(device, std::move(copies[0]), std::move(copies[1]));
}

Task<Result<Assembly>> Assemble(std::vector<Device*> devices, Canary canary) {
  std::vector<Found> found;
  for (Device* device : devices) {
    bool doubtful = false;
    Task<Result<Superblock>> reading = ReadSuperblock(*device, &doubtful);
    Result<Superblock> superblock = co_await reading;
    if (!superblock.ok() && CannotBeRead(superblock.error().code)) {
      continue;  // counts as missing
    }
    EPLOG_CO_TRY(superblock);
    if (superblock->is_spare()) {
      co_return Fail(ErrorCode::kInvalidArgument, device->name() + " is a spare of the array " +
                                                      UuidToString(superblock->array_uuid) +
                                                      " and no member; leave it out");
    }
    found.push_back({device, std::move(*superblock), doubtful});
  }
  if (found.empty()) {
    co_return Fail(ErrorCode::kTooManyFailures, "no member of the array is there");
  }
  Status same = CheckSameArray(found);
  EPLOG_CO_TRY(same);
  Result<Superblock> winner = PickWinner(found);
  const bool any_doubt =
      std::any_of(found.begin(), found.end(), [](const Found& item) { return item.doubtful; });
  if (!winner.ok() && any_doubt) {
    // Who shows an older epoch since its newest copy is damaged counts as missing.
    std::erase_if(found, [](const Found& item) { return item.doubtful; });
    if (!found.empty()) {
      winner = PickWinner(found);
    }
  }
  EPLOG_CO_TRY(winner);

  Assembly assembly;
  assembly.winner = std::move(*winner);
  const Geometry& g = assembly.winner.geometry;
  assembly.devices.resize(g.devices(), nullptr);
  assembly.stale.resize(g.devices(), false);
  assembly.generations.resize(g.devices(), 0);
  CheckpointPointer newest;
  for (const Found& item : found) {
    const size_t index = item.superblock.index.value;
    assembly.highest_epoch = std::max(assembly.highest_epoch, item.superblock.epoch.number);
    const MemberEntry& member = assembly.winner.members[index];
    const bool stale =
        member.state == MemberState::kLost || member.uuid != item.superblock.device_uuid;
    if (stale && canary != Canary::kStaleTrusted) {
      assembly.stale[index] = true;
      continue;
    }
    assembly.devices[index] = item.device;
    assembly.generations[index] = item.superblock.generation;
    const CheckpointPointer& pointer = item.superblock.checkpoint;
    if (std::pair(pointer.generation, pointer.random) >
        std::pair(newest.generation, newest.random)) {
      newest = pointer;
    }
  }
  assembly.winner.checkpoint = newest;
  std::string missing;
  size_t count = 0;
  for (uint8_t i = 0; i < g.devices(); ++i) {
    if (assembly.devices[i] == nullptr) {
      ++count;
      missing += (missing.empty() ? "" : ", ") + g.DeviceName(DeviceIndex(i)) +
                 (assembly.stale[i] ? " (stale)" : "");
    }
  }
  if (count > g.m) {
    co_return Fail(ErrorCode::kTooManyFailures,
                   "more than " + std::to_string(g.m) + " members are missing: " + missing +
                       "; bring back at least " + std::to_string(count - g.m));
  }
  co_return assembly;
}

}  // namespace eplog
