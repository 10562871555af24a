// Examination: the assembly's judgement, told instead of acted upon.
#include "eplog/examine.h"

#include <algorithm>

#include "engine/open/assembly.h"

namespace eplog {
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
void SetAside(std::vector<FoundMember>& found, std::vector<ExaminedDevice>& devices) {
  const Geometry geometry = found.front().superblock.geometry;
  const uint32_t version = found.front().superblock.version;
  std::erase_if(found, [&](const FoundMember& item) {
    const std::string why = WhyTruncated(item);
    if (!(item.superblock.geometry == geometry) || item.superblock.version != version) {
      devices[item.at].verdict = MemberVerdict::kDamaged;
      devices[item.at].why = "it disagrees with the others on the geometry or format";
    } else if (!why.empty()) {
      devices[item.at].verdict = MemberVerdict::kTruncated;
      devices[item.at].why = why;
    } else {
      return false;
    }
    return true;
  });
  const std::vector<FoundMember> all = found;
  std::erase_if(found, [&](const FoundMember& item) {
    const auto twin = std::find_if(all.begin(), all.end(), [&](const FoundMember& other) {
      return other.at != item.at && AreTwins(item, other);
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
                           "; give one of them, or mount with --without and the path of the other";
    return true;
  });
}

void Explain(const std::vector<FoundMember>& found, std::vector<ExaminedDevice>& devices) {
  for (const FoundMember& item : found) {
    ExaminedDevice& device = devices[item.at];
    device.why = item.why_stale;
    device.verdict = device.why.empty() ? MemberVerdict::kPart : MemberVerdict::kStale;
    if (device.verdict == MemberVerdict::kPart && device.whole_copies < 2) {
      device.why =
          "one of the two copies of its superblock is damaged; the next opening for writing "
          "writes it anew";
    }
  }
}

void ExamineArray(std::vector<FoundMember> found, Examination& result, ExaminedArray& array) {
  if (!found.empty()) {
    SetAside(found, result.devices);
  }
  if (found.empty()) {
    array.why_not = "none of these devices can be used";
    return;
  }
  for (const FoundMember& item : found) {
    result.devices[item.at].verdict = MemberVerdict::kDamaged;
    result.devices[item.at].why = "the newer copy of its superblock is damaged, the other too old";
  }
  const Result<Assembly> assembly = Judge(found, Canary::kNone);
  if (!assembly.ok()) {
    array.why_not = assembly.error().message;
    for (const FoundMember& item : found) {
      result.devices[item.at].verdict = MemberVerdict::kStale;
      result.devices[item.at].why =
          "of epoch " + std::to_string(item.superblock.epoch.number) + "; no epoch counts";
    }
    return;
  }
  Explain(found, result.devices);
  const Superblock& winner = assembly->winner;
  array.epoch = winner.epoch.number;
  for (uint8_t i = 0; i < winner.members.size(); ++i) {
    const std::string name = winner.geometry.DeviceName(DeviceIndex(i));
    if (assembly->devices[i] == nullptr) {
      array.missing.push_back(name);
    } else if (winner.members[i].state == MemberState::kJoining ||
               winner.members[i].state == MemberState::kReturning) {
      array.joining.push_back(name);
    }
  }
  array.why_not = WhyNotEnough(*assembly, found, Canary::kNone);
  if (array.why_not.empty()) {
    array.why_not = WhyLogsAreNeeded(*assembly, 0);
  }
  if (array.why_not.empty()) {
    array.why_not = WhyNotWhole(*assembly);
  }
  const size_t not_ok = array.missing.size() + array.joining.size();
  array.further_losses_survived =
      winner.geometry.m - static_cast<uint32_t>(std::min<size_t>(not_ok, winner.geometry.m));
}

}  // namespace

namespace {

// Who is too small to be a member has no copies.
Task<std::vector<SuperblockCopies>> ReadAll(std::vector<Device*> devices) {
  std::vector<SuperblockCopies> all;
  for (Device* device : devices) {
    Task<Result<SuperblockCopies>> reading = ReadCopies(*device);
    Result<SuperblockCopies> copies = co_await reading;
    if (copies.ok()) {
      all.push_back(std::move(*copies));
    } else {
      const Error none{ErrorCode::kNotFound, "too small"};
      all.push_back({device, {Fail(Error(none)), Fail(Error(none))}});
    }
  }
  DropStrays(all);
  co_return all;
}

}  // namespace

Task<Examination> ExamineDevices(std::vector<Device*> devices) {
  Examination result;
  std::vector<std::vector<FoundMember>> found;  // by array
  Task<std::vector<SuperblockCopies>> reading = ReadAll(devices);
  const std::vector<SuperblockCopies> all = co_await reading;
  for (const SuperblockCopies& copies : all) {
    ExaminedDevice examined;
    examined.device = copies.device;
    examined.whole_copies = copies.whole();
    Result<Superblock> superblock = copies.Newest();
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
    if (superblock->is_spare()) {
      examined.member = "spare";
      examined.verdict = MemberVerdict::kSpare;
      result.devices.push_back(std::move(examined));
      continue;
    }
    examined.member = superblock->geometry.DeviceName(superblock->index);
    examined.epoch = superblock->epoch.number;
    found[examined.array].push_back(
        {copies.device, std::move(*superblock), copies.doubtful(), result.devices.size(), ""});
    result.devices.push_back(std::move(examined));
  }
  for (size_t i = 0; i < found.size(); ++i) {
    ExamineArray(std::move(found[i]), result, result.arrays[i]);
  }
  co_return result;
}

}  // namespace eplog
