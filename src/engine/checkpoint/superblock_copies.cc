#include "engine/checkpoint/superblock_copies.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/buffer.h"

namespace eplog {
namespace {

// Two members of one array in one place: one of the copies was meant for another device.
bool NamesTwo(const SuperblockCopies& copies) {
  const Result<Superblock>& a = copies.of[0];
  const Result<Superblock>& b = copies.of[1];
  return a.ok() && b.ok() && a->array_uuid == b->array_uuid && a->device_uuid != b->device_uuid;
}

bool IsBorneByOthers(const Uuid& uuid, const std::vector<SuperblockCopies>& all,
                     const SuperblockCopies& self) {
  return std::any_of(all.begin(), all.end(), [&](const SuperblockCopies& other) {
    return other.device != self.device &&
           std::any_of(other.of.begin(), other.of.end(), [&](const Result<Superblock>& copy) {
             return copy.ok() && copy->device_uuid == uuid;
           });
  });
}

// Of two copies that are not believed: a newer format is not to be touched; of one that cannot be
// read nobody knows what it holds; a damaged one was a superblock.
int TellsMore(const Result<Superblock>& copy) {
  if (copy.ok() || copy.error().code == ErrorCode::kNotFound) {
    return copy.ok() ? -1 : 0;
  }
  const ErrorCode code = copy.error().code;
  return code == ErrorCode::kUnsupported ? 3 : code == ErrorCode::kCorrupt ? 1 : 2;
}

}  // namespace

bool CannotBeRead(ErrorCode code) {
  return code == ErrorCode::kCorrupt || code == ErrorCode::kIo || code == ErrorCode::kDeviceFailed;
}

uint32_t SuperblockCopies::whole() const {
  return static_cast<uint32_t>(std::count_if(
      of.begin(), of.end(), [](const Result<Superblock>& copy) { return copy.ok(); }));
}

bool SuperblockCopies::doubtful() const {
  // Who has written more than once has written both: one without magic is damaged as well then.
  const bool both = std::any_of(of.begin(), of.end(), [](const Result<Superblock>& copy) {
    return copy.ok() && copy->generation > 1;
  });
  return std::any_of(of.begin(), of.end(), [both](const Result<Superblock>& copy) {
    return !copy.ok() &&
           (CannotBeRead(copy.error().code) || (both && copy.error().code == ErrorCode::kNotFound));
  });
}

Result<Superblock> SuperblockCopies::Newest() const {
  const Result<Superblock>& a = of[0];
  const Result<Superblock>& b = of[1];
  if (a.ok() && b.ok()) {
    return a->generation > b->generation ? a : b;
  }
  if (a.ok() || b.ok()) {
    // A torn copy is nothing; a copy of a newer format is not to be overwritten.
    const Result<Superblock>& other = a.ok() ? b : a;
    if (other.error().code != ErrorCode::kUnsupported) {
      return a.ok() ? a : b;
    }
  }
  Error error = TellsMore(a) >= TellsMore(b) ? a.error() : b.error();
  if (error.code == ErrorCode::kUnsupported) {
    error.message = device->name() + ": " + error.message;
  } else if (error.code != ErrorCode::kIo && error.code != ErrorCode::kDeviceFailed) {
    error.message = device->name() +
                    " is not a member of an array (any more): it bears no valid superblock; leave "
                    "it out to open the "
                    "array without it";
  }
  return Fail(std::move(error));
}

Task<Result<SuperblockCopies>> ReadCopies(Device& device) {
  if (device.size_bytes() < kSuperblockAreaBytes) {
    co_return Fail(ErrorCode::kInvalidArgument,
                   device.name() + " is too small to be a member of an array; leave it out");
  }
  BufferPool pool;
  Buffer buffer = pool.Get(kSuperblockCopyBytes);
  const iovec part{buffer.data(), kSuperblockCopyBytes};
  SuperblockCopies copies{&device, {}};
  for (const uint64_t offset : kSuperblockCopyOffset) {
    Task<Status> read = device.Read(offset, std::span(&part, 1));
    Status status = co_await read;
    if (status.ok()) {
      copies.of.push_back(DecodeSuperblock(buffer.span()));
    } else {
      copies.of.push_back(Fail(std::move(status).error()));
    }
  }
  co_return copies;
}

// Such a device is who nobody else is. Where that does not tell, it is not to be believed at all:
// it would be written to as if it were the other.
void DropStrays(std::vector<SuperblockCopies>& all) {
  const std::vector<SuperblockCopies> found = all;
  for (size_t i = 0; i < all.size(); ++i) {
    if (!NamesTwo(found[i])) {
      continue;
    }
    const bool first = IsBorneByOthers(found[i].of[0]->device_uuid, found, found[i]);
    const bool second = IsBorneByOthers(found[i].of[1]->device_uuid, found, found[i]);
    const auto stray = [] { return Fail(ErrorCode::kCorrupt, "superblock: another member's"); };
    if (first || !second) {
      all[i].of[0] = stray();
    }
    if (second || !first) {
      all[i].of[1] = stray();
    }
  }
}

Task<Result<Superblock>> ReadSuperblock(Device& device) {
  Task<Result<SuperblockCopies>> reading = ReadCopies(device);
  const Result<SuperblockCopies> copies = co_await reading;
  EPLOG_CO_TRY(copies);
  co_return copies->Newest();
}

}  // namespace eplog
