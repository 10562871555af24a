#include "engine/assembly.h"

#include <algorithm>
#include <optional>

namespace eplog {
namespace {

// Or has another in its place.
bool CallsLost(const Superblock& candidate, const Superblock& other) {
  const MemberEntry& member = candidate.members[other.index.value];
  return !member.is_live() || member.uuid != other.device_uuid;
}

// May a device that bears `b` be part of the epoch of `c`? It bears that epoch, or the one that it
// grew from, or one that never opened beside it.
bool Fits(const Superblock& c, const Superblock& b) {
  return b.epoch == c.epoch || b.epoch == c.base || (b.epoch != b.base && b.base == c.base);
}

bool IsValid(const Superblock& candidate, const std::vector<FoundMember>& found) {
  return std::all_of(found.begin(), found.end(), [&](const FoundMember& other) {
    return CallsLost(candidate, other.superblock) || Fits(candidate, other.superblock);
  });
}

bool IsBornByAll(const Superblock& candidate, const std::vector<FoundMember>& found) {
  return std::all_of(found.begin(), found.end(), [&](const FoundMember& other) {
    return CallsLost(candidate, other.superblock) || other.superblock.epoch == candidate.epoch;
  });
}

Result<Superblock> PickWinner(const std::vector<FoundMember>& found, Canary canary) {
  std::vector<const Superblock*> valid;
  for (const FoundMember& item : found) {
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
  if (tie && canary == Canary::kTieRefused) {
    return Fail(ErrorCode::kCorrupt, "a tie of epochs");
  }
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

std::string Name(const FoundMember& item) {
  return item.superblock.geometry.DeviceName(item.superblock.index);
}

}  // namespace

std::string WhyTruncated(const FoundMember& item) {
  const Superblock& s = item.superblock;
  const uint64_t need = s.geometry.IsLog(s.index) ? s.geometry.log_bytes() : s.geometry.ssd_bytes();
  return item.device->size_bytes() >= need ? ""
                                           : "it has " + std::to_string(item.device->size_bytes()) +
                                                 " bytes and needs " + std::to_string(need);
}

std::string WhyStale(const Superblock& winner, const Superblock& its) {
  const MemberEntry& member = winner.members[its.index.value];
  if (member.uuid != its.device_uuid) {
    return "another device has had its place since epoch " + std::to_string(member.joined);
  }
  if (!member.is_live()) {
    return "it failed or was away while the others went on: it is of epoch " +
           std::to_string(its.epoch.number) + ", they are at " +
           std::to_string(winner.epoch.number);
  }
  return "";
}

// A replaced device and its replacement are none: one of them is stale.
bool AreTwins(const FoundMember& a, const FoundMember& b) {
  return a.superblock.index == b.superblock.index &&
         a.superblock.device_uuid == b.superblock.device_uuid;
}

namespace {

// The array that most of them belong to: who is of another is the one to blame.
const FoundMember& OfMost(const std::vector<FoundMember>& found) {
  const auto alike = [&](const FoundMember& item) {
    return std::count_if(found.begin(), found.end(), [&](const FoundMember& other) {
      return other.superblock.array_uuid == item.superblock.array_uuid;
    });
  };
  return *std::max_element(
      found.begin(), found.end(),
      [&](const FoundMember& a, const FoundMember& b) { return alike(a) < alike(b); });
}

Status CheckSameArray(const std::vector<FoundMember>& found) {
  const FoundMember& first = OfMost(found);
  for (const FoundMember& item : found) {
    const Superblock& s = item.superblock;
    const std::string who = item.device->name();
    if (s.array_uuid != first.superblock.array_uuid) {
      return Fail(ErrorCode::kInvalidArgument, who + " belongs to another array (" +
                                                   UuidToString(s.array_uuid) + ", while " +
                                                   first.device->name() + " is of " +
                                                   UuidToString(first.superblock.array_uuid) + ")");
    }
    if (!(s.geometry == first.superblock.geometry) || s.version != first.superblock.version) {
      return Fail(ErrorCode::kCorrupt,
                  who + " and " + first.device->name() + " disagree on the geometry or format");
    }
    if (const std::string why = WhyTruncated(item); !why.empty()) {
      return Fail(ErrorCode::kCorrupt,
                  who + " (" + Name(item) + ") is truncated: " + why +
                      "; restore its size, or leave it out to open the array degraded");
    }
    for (const FoundMember& other : found) {
      if (&other != &item && AreTwins(item, other)) {
        return Fail(ErrorCode::kInvalidArgument, who + " and " + other.device->name() +
                                                     " are both " + Name(item) +
                                                     " of this array; give one");
      }
    }
  }
  return OkStatus();
}

}  // namespace

Result<Assembly> Judge(std::vector<FoundMember>& found, Canary canary) {
  Result<Superblock> winner = PickWinner(found, canary);
  const bool any_doubt = std::any_of(found.begin(), found.end(),
                                     [](const FoundMember& item) { return item.doubtful; });
  if (!winner.ok() && any_doubt) {
    // Who shows an older epoch since its newest copy is damaged counts as missing.
    std::erase_if(found, [](const FoundMember& item) { return item.doubtful; });
    if (!found.empty()) {
      winner = PickWinner(found, canary);
    }
  }
  EPLOG_TRY(winner);

  Assembly assembly;
  assembly.winner = std::move(*winner);
  const Geometry& g = assembly.winner.geometry;
  assembly.devices.resize(g.devices(), nullptr);
  assembly.stale.resize(g.devices(), false);
  assembly.why_stale.resize(g.devices());
  assembly.away.resize(g.devices());
  assembly.generations.resize(g.devices(), 0);
  CheckpointPointer newest;
  for (const FoundMember& item : found) {
    const size_t index = item.superblock.index.value;
    assembly.highest_epoch = std::max(assembly.highest_epoch, item.superblock.epoch.number);
    const std::string why = WhyStale(assembly.winner, item.superblock);
    if (!why.empty() && canary != Canary::kStaleTrusted) {
      assembly.stale[index] = true;
      assembly.why_stale[index] = item.device->name() + ": " + why;
      if (assembly.winner.members[index].uuid == item.superblock.device_uuid) {
        assembly.away[index] = {item.device, item.superblock.generation};
      }
      continue;
    }
    assembly.settled = assembly.settled && item.superblock.epoch == assembly.winner.epoch;
    assembly.devices[index] = item.device;
    assembly.generations[index] = item.superblock.generation;
    const CheckpointPointer& pointer = item.superblock.checkpoint;
    if (std::pair(pointer.generation, pointer.random) >
        std::pair(newest.generation, newest.random)) {
      newest = pointer;
    }
  }
  for (size_t i = 0; i < assembly.devices.size(); ++i) {
    if (assembly.devices[i] != nullptr) {  // the one that it replaced may be there too
      assembly.stale[i] = false;
      assembly.why_stale[i].clear();
    }
  }
  assembly.winner.checkpoint = newest;
  return assembly;
}

Status CheckEnough(const Assembly& assembly) {
  const Geometry& g = assembly.winner.geometry;
  std::string missing;
  size_t count = 0;
  for (uint8_t i = 0; i < g.devices(); ++i) {
    if (assembly.devices[i] == nullptr) {
      ++count;
      missing += (missing.empty() ? "" : ", ") + g.DeviceName(DeviceIndex(i)) +
                 (assembly.stale[i] ? " (stale: " + assembly.why_stale[i] + ")" : "");
    }
  }
  if (count > g.m) {
    return Fail(ErrorCode::kTooManyFailures,
                "more than " + std::to_string(g.m) + " members are missing: " + missing +
                    "; bring back at least " + std::to_string(count - g.m));
  }
  return OkStatus();
}

Task<Result<Assembly>> Assemble(std::vector<Device*> devices, Canary canary, bool force) {
  std::vector<SuperblockCopies> read;
  for (Device* device : devices) {
    Task<Result<SuperblockCopies>> reading = ReadCopies(*device);
    Result<SuperblockCopies> copies = co_await reading;
    EPLOG_CO_TRY(copies);
    read.push_back(std::move(*copies));
  }
  DropStrays(read);
  std::vector<FoundMember> found;
  for (const SuperblockCopies& copies : read) {
    Result<Superblock> superblock = copies.Newest();
    if (!superblock.ok() && CannotBeRead(superblock.error().code)) {
      continue;  // counts as missing
    }
    EPLOG_CO_TRY(superblock);
    if (superblock->is_spare()) {
      co_return Fail(ErrorCode::kInvalidArgument,
                     copies.device->name() + " is a spare of the array " +
                         UuidToString(superblock->array_uuid) + " and no member; leave it out");
    }
    found.push_back({copies.device, std::move(*superblock), copies.doubtful(), 0});
  }
  if (found.empty()) {
    co_return Fail(ErrorCode::kTooManyFailures, "no member of the array is there");
  }
  Status same = CheckSameArray(found);
  EPLOG_CO_TRY(same);
  Result<Assembly> assembly = Judge(found, canary);
  EPLOG_CO_TRY(assembly);
  Status enough = CheckEnough(*assembly);
  if (!enough.ok() && force) {
    assembly->beyond = enough.error().message;
  } else if (!enough.ok()) {
    co_return Fail(
        ErrorCode::kTooManyFailures,
        enough.error().message + ", or mount with --read-only --force to read what is left");
  }
  co_return assembly;
}

}  // namespace eplog
