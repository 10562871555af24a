#include "engine/assembly.h"

#include <algorithm>
#include <optional>

#include "base/buffer.h"
#include "eplog/examine.h"
#include "runtime/task_group.h"

namespace eplog {
namespace {

struct Found {
  Device* device;
  Superblock superblock;
  SuperblockCopies copies;
  size_t at = 0;  // among the devices that were given
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

std::string Name(const Found& item) {
  return item.superblock.geometry.DeviceName(item.superblock.index);
}

// Why a device cannot hold what its superblock says; empty if it can.
std::string WhyTruncated(const Found& item) {
  const Superblock& s = item.superblock;
  const uint64_t need = s.geometry.IsLog(s.index) ? s.geometry.log_bytes() : s.geometry.ssd_bytes();
  return item.device->size_bytes() >= need ? ""
                                           : "it has " + std::to_string(item.device->size_bytes()) +
                                                 " bytes and needs " + std::to_string(need);
}

// Why the epoch that counts goes on without a device; empty if it does not.
std::string WhyStale(const Superblock& winner, const Superblock& its) {
  const MemberEntry& member = winner.members[its.index.value];
  if (member.uuid != its.device_uuid) {
    return "another device has had its place since epoch " + std::to_string(member.joined);
  }
  if (member.state == MemberState::kLost) {
    return "it failed or was away while the others went on: it is of epoch " +
           std::to_string(its.epoch.number) + ", they are at " +
           std::to_string(winner.epoch.number);
  }
  return "";
}

// The array that most of them belong to: who is of another is the one to blame.
const Found& OfMost(const std::vector<Found>& found) {
  const auto alike = [&](const Found& item) {
    return std::count_if(found.begin(), found.end(), [&](const Found& other) {
      return other.superblock.array_uuid == item.superblock.array_uuid;
    });
  };
  return *std::max_element(found.begin(), found.end(),
                           [&](const Found& a, const Found& b) { return alike(a) < alike(b); });
}

Status CheckSameArray(const std::vector<Found>& found) {
  const Found& first = OfMost(found);
  for (const Found& item : found) {
    const Superblock& s = item.superblock;
    const std::string who = item.device->name();
    if (s.array_uuid != first.superblock.array_uuid) {
      return Fail(ErrorCode::kInvalidArgument, who + " belongs to another array (" +
                                                   UuidToString(s.array_uuid) + ", while " +
                                                   first.device->name() + " is of " +
                                                   UuidToString(first.superblock.array_uuid) + ")");
    }
    if (!(s.geometry == first.superblock.geometry)) {
      return Fail(ErrorCode::kCorrupt,
                  who + " and " + first.device->name() + " disagree on the geometry");
    }
    if (const std::string why = WhyTruncated(item); !why.empty()) {
      return Fail(ErrorCode::kCorrupt,
                  who + " (" + Name(item) + ") is truncated: " + why +
                      "; restore its size, or leave it out to open the array degraded");
    }
    for (const Found& other : found) {
      if (&other != &item && other.superblock.index == s.index) {
        return Fail(ErrorCode::kInvalidArgument, who + " and " + other.device->name() +
                                                     " are both " + Name(item) +
                                                     " of this array; give one");
      }
    }
  }
  return OkStatus();
}

// Which epoch counts, and who belongs to it. Of devices of one array, each another member. Who
// cannot be judged is taken out of `found` and counts as missing.
Result<Assembly> Judge(std::vector<Found>& found, Canary canary) {
  Result<Superblock> winner = PickWinner(found);
  const bool any_doubt = std::any_of(found.begin(), found.end(),
                                     [](const Found& item) { return item.copies.doubtful; });
  if (!winner.ok() && any_doubt) {
    // Who shows an older epoch since its newest copy is damaged counts as missing.
    std::erase_if(found, [](const Found& item) { return item.copies.doubtful; });
    if (!found.empty()) {
      winner = PickWinner(found);
    }
  }
  EPLOG_TRY(winner);

  Assembly assembly;
  assembly.winner = std::move(*winner);
  const Geometry& g = assembly.winner.geometry;
  assembly.devices.resize(g.devices(), nullptr);
  assembly.stale.resize(g.devices(), false);
  assembly.why_stale.resize(g.devices());
  assembly.generations.resize(g.devices(), 0);
  CheckpointPointer newest;
  for (const Found& item : found) {
    const size_t index = item.superblock.index.value;
    assembly.highest_epoch = std::max(assembly.highest_epoch, item.superblock.epoch.number);
    const std::string why = WhyStale(assembly.winner, item.superblock);
    if (!why.empty() && canary != Canary::kStaleTrusted) {
      assembly.stale[index] = true;
      assembly.why_stale[index] = item.device->name() + ": " + why;
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

Task<Result<Superblock>> ReadSuperblock(Device& device, SuperblockCopies* copies_found) {
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
  if (copies_found != nullptr) {
    for (const Result<Superblock>& copy : copies) {
      copies_found->whole += copy.ok() ? 1 : 0;
      copies_found->doubtful |= !copy.ok() && CannotBeRead(copy.error().code);
    }
  }
  co_return NewerCopy(device, std::move(copies[0]), std::move(copies[1]));
}

Task<Result<Assembly>> Assemble(std::vector<Device*> devices, Canary canary) {
  std::vector<Found> found;
  for (Device* device : devices) {
    SuperblockCopies copies;
    Task<Result<Superblock>> reading = ReadSuperblock(*device, &copies);
    Result<Superblock> superblock = co_await reading;
    if (!superblock.ok() && CannotBeRead(superblock.error().code)) {
      continue;  // counts as missing
    }
    EPLOG_CO_TRY(superblock);
    found.push_back({device, std::move(*superblock), copies});
  }
  if (found.empty()) {
    co_return Fail(ErrorCode::kTooManyFailures, "no member of the array is there");
  }
  Status same = CheckSameArray(found);
  EPLOG_CO_TRY(same);
  Result<Assembly> assembly = Judge(found, canary);
  EPLOG_CO_TRY(assembly);
  Status enough = CheckEnough(*assembly);
  EPLOG_CO_TRY(enough);
  co_return assembly;
}

// ------------------------------------------------------------------------------------ examination

namespace {

// What is left of the superblock of a device that bears none that is valid.
void ExplainUnknown(const Error& error, ExaminedDevice& device) {
  switch (error.code) {
    case ErrorCode::kCorrupt:
      device.verdict = MemberVerdict::kDamaged;
      device.why = "no copy of its superblock is whole";
      break;
    case ErrorCode::kIo:
    case ErrorCode::kDeviceFailed:
      device.verdict = MemberVerdict::kUnreadable;
      device.why = error.ToString();
      break;
    case ErrorCode::kUnsupported:
      device.verdict = MemberVerdict::kNewer;
      device.why = "written by a newer version of eplog; use that one";
      break;
    default:
      device.verdict = MemberVerdict::kNoMember;
      device.why = "it bears no superblock";
      break;
  }
}

ExaminedArray Introduce(const Superblock& superblock) {
  const Geometry& g = superblock.geometry;
  ExaminedArray array;
  array.uuid = UuidToString(superblock.array_uuid);
  array.name = superblock.name;
  array.data_chunks = g.k();
  array.parity_chunks = g.m;
  array.chunk_bytes = g.chunk_bytes;
  array.journal = static_cast<JournalMode>(superblock.journal_mode);
  array.capacity_bytes = g.capacity_bytes();
  return array;
}

// Generations are a device's own: they only tell copies of one device apart.
std::pair<uint64_t, uint64_t> Age(const Superblock& superblock) {
  return {superblock.epoch.number, superblock.generation};
}

// Those that the assembly would refuse, whatever the others are, are explained and taken out.
void SetAside(std::vector<Found>& found, std::vector<ExaminedDevice>& devices) {
  const Geometry geometry = found.front().superblock.geometry;
  std::erase_if(found, [&](const Found& item) {
    const std::string why = WhyTruncated(item);
    if (!(item.superblock.geometry == geometry)) {
      devices[item.at].verdict = MemberVerdict::kDamaged;
      devices[item.at].why = "it disagrees with the others on the geometry";
    } else if (!why.empty()) {
      devices[item.at].verdict = MemberVerdict::kTruncated;
      devices[item.at].why = why;
    } else {
      return false;
    }
    return true;
  });
  const std::vector<Found> all = found;
  std::erase_if(found, [&](const Found& item) {
    const auto twin = std::find_if(all.begin(), all.end(), [&](const Found& other) {
      return other.at != item.at && other.superblock.index == item.superblock.index;
    });
    if (twin == all.end()) {
      return false;
    }
    const auto age = Age(item.superblock);
    const auto other = Age(twin->superblock);
    devices[item.at].verdict = MemberVerdict::kDoubled;
    devices[item.at].why = twin->device->name() + " says that too, with " +
                           (other == age  ? "a superblock of the same age"
                            : other > age ? "a newer superblock"
                                          : "an older superblock") +
                           "; give one of them";
    return true;
  });
}

void Explain(const Assembly& assembly, const std::vector<Found>& found,
             std::vector<ExaminedDevice>& devices) {
  for (const Found& item : found) {
    ExaminedDevice& device = devices[item.at];
    device.why = WhyStale(assembly.winner, item.superblock);
    device.verdict = device.why.empty() ? MemberVerdict::kPart : MemberVerdict::kStale;
    if (device.verdict == MemberVerdict::kPart && device.whole_copies < 2) {
      device.why =
          "one of the two copies of its superblock is damaged; the next opening for writing "
          "writes it anew";
    }
  }
}

void ExamineArray(std::vector<Found> found, Examination& result, ExaminedArray& array) {
  SetAside(found, result.devices);
  if (found.empty()) {
    array.why_not = "none of these devices can be used";
    return;
  }
  for (const Found& item : found) {
    result.devices[item.at].verdict = MemberVerdict::kDamaged;
    result.devices[item.at].why = "the newer copy of its superblock is damaged, the other too old";
  }
  const Result<Assembly> assembly = Judge(found, Canary::kNone);
  if (!assembly.ok()) {
    array.why_not = assembly.error().message;
    for (const Found& item : found) {
      result.devices[item.at].verdict = MemberVerdict::kStale;
      result.devices[item.at].why =
          "of epoch " + std::to_string(item.superblock.epoch.number) + "; no epoch counts";
    }
    return;
  }
  Explain(*assembly, found, result.devices);
  const Superblock& winner = assembly->winner;
  array.epoch = winner.epoch.number;
  for (uint8_t i = 0; i < winner.members.size(); ++i) {
    const std::string name = winner.geometry.DeviceName(DeviceIndex(i));
    if (assembly->devices[i] == nullptr) {
      array.missing.push_back(name);
    } else if (winner.members[i].state == MemberState::kJoining) {
      array.joining.push_back(name);
    }
  }
  const Status enough = CheckEnough(*assembly);
  array.why_not = enough.ok() ? "" : enough.error().message;
  const size_t not_ok = array.missing.size() + array.joining.size();
  array.further_losses_survived =
      winner.geometry.m - static_cast<uint32_t>(std::min<size_t>(not_ok, winner.geometry.m));
}

}  // namespace

Task<Examination> ExamineDevices(std::vector<Device*> devices) {
  Examination result;
  std::vector<std::vector<Found>> found;  // by array
  for (Device* device : devices) {
    ExaminedDevice examined;
    examined.device = device;
    SuperblockCopies copies;
    Task<Result<Superblock>> reading = ReadSuperblock(*device, &copies);
    Result<Superblock> superblock = co_await reading;
    examined.whole_copies = copies.whole;
    if (!superblock.ok()) {
      ExplainUnknown(superblock.error(), examined);
      result.devices.push_back(std::move(examined));
      continue;
    }
    const std::string uuid = UuidToString(superblock->array_uuid);
    const auto known = std::find_if(result.arrays.begin(), result.arrays.end(),
                                    [&](const ExaminedArray& array) { return array.uuid == uuid; });
    examined.array = static_cast<size_t>(known - result.arrays.begin());
    if (known == result.arrays.end()) {
      result.arrays.push_back(Introduce(*superblock));
      found.emplace_back();
    }
    examined.member = superblock->geometry.DeviceName(superblock->index);
    examined.epoch = superblock->epoch.number;
    found[examined.array].push_back(
        {device, std::move(*superblock), copies, result.devices.size()});
    result.devices.push_back(std::move(examined));
  }
  for (size_t i = 0; i < found.size(); ++i) {
    ExamineArray(std::move(found[i]), result, result.arrays[i]);
  }
  co_return result;
}

}  // namespace eplog
