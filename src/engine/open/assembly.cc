#include "engine/open/assembly.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "eplog/options.h"

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

// Of two epochs of one number, or that grew from the same one, at most one was borne by all that it
// calls live: before that nothing is written under an epoch, and the numbers tell only what each
// knew of the other.
bool AreRivals(const Superblock& a, const Superblock& b) {
  const bool unopened = a.epoch != a.base && b.epoch != b.base;
  return a.epoch.number == b.epoch.number || (unopened && a.base == b.base);
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
                "valid");
  }
  const Superblock& newest = **std::max_element(
      valid.begin(), valid.end(),
      [](const Superblock* a, const Superblock* b) { return a->epoch < b->epoch; });
  std::erase_if(valid, [&newest](const Superblock* s) { return !AreRivals(*s, newest); });
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

// Why the epoch that counts goes on without a device, as it says itself.
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

// More than m bear newer epochs and know nothing of this one having opened: those who knew were
// away or damaged when the others went on, and it is these that count.
bool IsPassedBy(const Epoch& opened, const std::vector<FoundMember>& found) {
  const auto newer = std::count_if(found.begin(), found.end(), [&](const FoundMember& item) {
    return item.superblock.epoch.number > opened.number && item.superblock.base < opened;
  });
  return newer > found.front().superblock.geometry.m;
}

// An epoch opened when all that it calls live had borne it: one of these that bears neither it nor
// one that grew from it has gone back in time. The newest is the one to look at; of two of one
// number, that of more devices.
Epoch NewestOpened(const std::vector<FoundMember>& found) {
  const auto rank = [&](const FoundMember& item) {
    const Epoch& base = item.superblock.base;
    const auto same = std::count_if(found.begin(), found.end(), [&](const FoundMember& other) {
      return other.superblock.base == base;
    });
    return std::tuple(!IsPassedBy(base, found), base.number, same, base);
  };
  return std::max_element(
             found.begin(), found.end(),
             [&](const FoundMember& a, const FoundMember& b) { return rank(a) < rank(b); })
      ->superblock.base;
}

// It bears the epoch that opened, or one that grew from it. Or it went on without any that knew
// that it had opened, and calls these lost.
bool IsOfAfter(const Superblock& s, const Epoch& opened, const std::vector<FoundMember>& found) {
  const auto is_lost_or_knows_less = [&](const FoundMember& other) {
    return other.superblock.base != opened || CallsLost(s, other.superblock);
  };
  return s.epoch == opened || s.base == opened ||
         (s.epoch.number > opened.number &&
          std::all_of(found.begin(), found.end(), is_lost_or_knows_less));
}

std::string WhyOlder(const Superblock& its, const Epoch& opened) {
  if (its.epoch.number >= opened.number) {
    return "it is a copy that went on by itself: its epoch " + std::to_string(its.epoch.number) +
           " is not that of the array";
  }
  return "it is an older copy of itself: of epoch " + std::to_string(its.epoch.number) +
         ", while the array has opened " + std::to_string(opened.number);
}

// An epoch that looks as if it had not opened, while some say that it has, has not been borne by
// all that it calls live: some are older copies, and what grows from it must not name an older
// base.
bool IsPast(const Superblock& winner, const Epoch& opened) {
  return winner.epoch == opened ? winner.base == opened : winner.epoch.number >= opened.number;
}

// Which epoch counts. Where none is valid, some are older copies of themselves: they have no say
// and are told so. The same where one has opened that is newer than the one that is valid: older
// copies of an epoch that calls all newer ones lost agree among each other. But those whose newest
// superblock is damaged only look as if, and count as missing.
Result<Superblock> PickEpoch(std::vector<FoundMember>& found, Canary canary) {
  Result<Superblock> winner = PickWinner(found, canary);
  const Epoch opened = NewestOpened(found);
  if (canary == Canary::kTieRefused || canary == Canary::kOlderRefused ||
      (winner.ok() && IsPast(*winner, opened))) {
    return winner;
  }
  std::vector<FoundMember> others;
  std::vector<FoundMember> judged;
  for (FoundMember& item : found) {
    if (IsOfAfter(item.superblock, opened, found)) {
      others.push_back(item);
    } else if (item.doubtful) {
      continue;
    } else {
      item.why_stale = WhyOlder(item.superblock, opened);
    }
    judged.push_back(item);
  }
  found = std::move(judged);
  return PickWinner(others, canary);
}

bool IsTrusted(const FoundMember& item, const Superblock& winner) {
  return item.why_stale.empty() && WhyStale(winner, item.superblock).empty();
}

// Within one epoch the checkpoints tell it: each is named by every superblock before the next one
// is. With one copy of its superblock damaged a device may look as old as that and be well.
void LeaveOutOlder(std::vector<FoundMember>& found, const Superblock& winner) {
  uint64_t newest = 0;
  for (const FoundMember& item : found) {
    newest =
        IsTrusted(item, winner) ? std::max(newest, item.superblock.checkpoint.generation) : newest;
  }
  for (FoundMember& item : found) {
    const uint64_t named = item.superblock.checkpoint.generation;
    if (IsTrusted(item, winner) && !item.doubtful && named + 1 < newest) {
      item.why_stale = "it is an older copy of itself: it names checkpoint " +
                       std::to_string(named) + ", and the others are at " + std::to_string(newest);
    }
  }
}

}  // namespace

std::string WhyTruncated(const FoundMember& item) {
  const Superblock& s = item.superblock;
  const uint64_t need = s.geometry.IsLog(s.index) ? s.geometry.log_bytes() : s.geometry.ssd_bytes();
  return item.device->size_bytes() >= need ? ""
                                           : "it has " + std::to_string(item.device->size_bytes()) +
                                                 " bytes and needs " + std::to_string(need);
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
      std::string message = who + " (" + Name(item);
      message += ") is truncated: " + why;
      message += "; restore its size, or leave it out to open the array degraded";
      return Fail(ErrorCode::kCorrupt, std::move(message));
    }
    for (const FoundMember& other : found) {
      if (&other != &item && AreTwins(item, other)) {
        return Fail(ErrorCode::kInvalidArgument, who + " and " + other.device->name() +
                                                     " are both " + Name(item) +
                                                     " of this array; give one of them, or mount "
                                                     "with --without and the path of the other");
      }
    }
  }
  return OkStatus();
}

// Those that the assembly goes without, though they are there.
void SetStale(Assembly& assembly, const FoundMember& item) {
  const size_t index = item.superblock.index.value;
  assembly.stale[index] = true;
  assembly.why_stale[index] = item.device->name() + ": " + item.why_stale;
  if (assembly.winner.members[index].uuid == item.superblock.device_uuid) {
    assembly.away[index] = {item.device, item.superblock.generation, item.doubtful};
  }
}

// Of one that was replaced nothing is gone on from: it does not come back as it is.
void NoteNumbers(Assembly& assembly, const FoundMember& item) {
  const Superblock& s = item.superblock;
  if (assembly.winner.members[s.index.value].uuid != s.device_uuid) {
    return;
  }
  assembly.highest_epoch = std::max(assembly.highest_epoch, s.epoch.number);
  if (std::max({s.epoch.number, s.generation, s.checkpoint.generation}) >= kLastToGoOnFrom) {
    assembly.miscounted = Name(item) + " (" + item.device->name() + ")";
  }
}

void SetTrusted(Assembly& assembly, const FoundMember& item) {
  const size_t index = item.superblock.index.value;
  assembly.settled = assembly.settled && item.superblock.epoch == assembly.winner.epoch;
  assembly.devices[index] = item.device;
  assembly.generations[index] = item.superblock.generation;
  assembly.damaged |= item.doubtful ? uint64_t{1} << index : 0;
  const CheckpointPointer& pointer = item.superblock.checkpoint;
  if (std::find(assembly.checkpoints.begin(), assembly.checkpoints.end(), pointer) ==
      assembly.checkpoints.end()) {
    assembly.checkpoints.push_back(pointer);
  }
}

}  // namespace

Result<Assembly> Judge(std::vector<FoundMember>& found, Canary canary) {
  for (FoundMember& item : found) {
    item.why_stale.clear();
  }
  Result<Superblock> winner = PickEpoch(found, canary);
  EPLOG_TRY(winner);
  LeaveOutOlder(found, *winner);

  Assembly assembly;
  assembly.winner = std::move(*winner);
  const Geometry& g = assembly.winner.geometry;
  assembly.devices.resize(g.devices(), nullptr);
  assembly.stale.resize(g.devices(), false);
  assembly.why_stale.resize(g.devices());
  assembly.away.resize(g.devices());
  assembly.generations.resize(g.devices(), 0);
  for (FoundMember& item : found) {
    NoteNumbers(assembly, item);
    assembly.epochs.push_back(item.superblock.epoch);
    assembly.epochs.push_back(item.superblock.base);
    const std::string why = WhyStale(assembly.winner, item.superblock);
    item.why_stale = why.empty() ? item.why_stale : why;
    if (item.why_stale.empty() || canary == Canary::kStaleTrusted) {
      SetTrusted(assembly, item);
    } else {
      SetStale(assembly, item);
    }
  }
  for (size_t i = 0; i < assembly.devices.size(); ++i) {
    if (assembly.devices[i] != nullptr) {  // the one that it replaced may be there too
      assembly.stale[i] = false;
      assembly.why_stale[i].clear();
    }
  }
  std::sort(assembly.checkpoints.begin(), assembly.checkpoints.end(),
            [](const CheckpointPointer& a, const CheckpointPointer& b) {
              return std::pair(a.generation, a.random) > std::pair(b.generation, b.random);
            });
  if (!assembly.checkpoints.empty()) {
    assembly.winner.checkpoint = assembly.checkpoints.front();
  }
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

namespace {

bool IsPartOf(const Assembly& assembly, const FoundMember& item) {
  return assembly.devices[item.superblock.index.value] == item.device;
}

// What the others are without those that this one trusts. These are named as left out.
std::optional<Assembly> OlderLife(const Assembly& newer, std::vector<FoundMember>& found,
                                  Canary canary) {
  std::vector<FoundMember> left_out;
  std::vector<FoundMember> others;
  for (FoundMember& item : found) {
    (IsPartOf(newer, item) ? left_out : others).push_back(item);
  }
  found = std::move(others);
  if (found.empty() || left_out.empty()) {
    return std::nullopt;
  }
  Result<Assembly> judged = Judge(found, canary);
  if (!judged.ok()) {
    return std::nullopt;
  }
  for (FoundMember& item : left_out) {
    if (judged->devices[item.superblock.index.value] == nullptr) {
      item.why_stale = "it is of epoch " + std::to_string(item.superblock.epoch.number) +
                       ", and what is shown is older";
      SetStale(*judged, item);
    }
  }
  return std::move(*judged);
}

// What leaving out those that are newest would do; the owner has to say so himself.
std::string HowToGoBack(const Assembly& assembly, std::vector<FoundMember> found, Canary canary) {
  std::string names;
  const Assembly* newer = &assembly;
  std::optional<Assembly> older;
  do {
    for (const FoundMember& item : found) {
      names += IsPartOf(*newer, item) ? (names.empty() ? "" : ", ") + Name(item) : "";
    }
    std::optional<Assembly> next = OlderLife(*newer, found, canary);
    older = std::move(next);
    newer = older ? &*older : nullptr;
  } while (older && !CheckEnough(*older).ok());
  return !older ? ""
                : ", or leave out " + names + " (--without) to go back to epoch " +
                      std::to_string(older->winner.epoch.number) + ", which the others agree on";
}

}  // namespace

std::string WhyNotEnough(const Assembly& assembly, const std::vector<FoundMember>& found,
                         Canary canary) {
  const Status enough = CheckEnough(assembly);
  return enough.ok() ? "" : enough.error().message + HowToGoBack(assembly, found, canary);
}

std::string WhyNotWhole(const Assembly& assembly) {
  const Geometry& g = assembly.winner.geometry;
  std::string names;
  size_t missing = 0;
  size_t not_whole = 0;
  for (uint8_t i = 0; i < g.devices(); ++i) {
    const MemberState state = assembly.winner.members[i].state;
    const bool there = assembly.devices[i] != nullptr;
    if (there && state == MemberState::kOk) {
      continue;
    }
    const bool comes_back = assembly.away[i].device != nullptr && state == MemberState::kLost;
    ++not_whole;
    missing += there || comes_back ? 0 : 1;
    names += (names.empty() ? "" : ", ") + g.DeviceName(DeviceIndex(i)) +
             (there || comes_back  ? " (there, and not rebuilt yet)"
              : !assembly.stale[i] ? ""
                                   : " (stale: " + assembly.why_stale[i] + ")");
  }
  if (missing == 0 || not_whole <= g.m) {
    return "";
  }
  return "more than " + std::to_string(g.m) + " members are missing or not rebuilt: " + names +
         "; bring back at least " + std::to_string(std::min(missing, not_whole - g.m)) +
         " of those that are missing";
}

// While a log device is not `ok`, and that was written down, flushes wait for the rings too, and
// these had before what was flushed until then. An epoch that has not opened may have called it
// lost before recovery wrote to the rings what they lacked: what counts is what was true of the
// epoch under which the array ran until then.
bool MayBeOnLogsAlone(const Assembly& assembly) {
  const Superblock& winner = assembly.winner;
  return winner.journal_mode == static_cast<uint8_t>(JournalMode::kLog) && !winner.base_on_rings;
}

std::string WhyLogsAreNeeded(const Assembly& assembly, uint64_t given_up) {
  const Superblock& winner = assembly.winner;
  const Geometry& g = winner.geometry;
  std::string relied_on;
  bool all_given_up = true;
  bool joined = false;
  for (uint32_t j = 0; j < g.m; ++j) {
    const DeviceIndex log = g.LogDevice(j);
    if (assembly.devices[log.value] != nullptr) {
      if (winner.members[log.value].state == MemberState::kOk) {
        return "";
      }
      joined = true;  // what was flushed before that, it does not have
      continue;
    }
    if (winner.members[log.value].is_live()) {
      relied_on += (relied_on.empty() ? "" : ", ") + g.DeviceName(log);
      all_given_up = all_given_up && (given_up >> j & 1) != 0;
    }
  }
  if (all_given_up || !MayBeOnLogsAlone(assembly)) {
    return "";
  }
  return "in journal mode 'log' what was flushed last may be only on the log devices, and " +
         std::string(joined ? "those that had it are not there: " : "none is there: ") +
         "bring back " + relied_on;
}

namespace {

// What force may try when an assembly cannot be opened: older checkpoints that some still name,
// then what the others are without those that are newest.
void AddFallbacks(Assembly& assembly, std::vector<FoundMember> found, Canary canary) {
  std::vector<Assembly> lives;
  lives.push_back(assembly);
  while (std::optional<Assembly> older = OlderLife(lives.back(), found, canary)) {
    older->beyond = assembly.beyond;
    older->why_older = "what is shown is of epoch " + std::to_string(older->winner.epoch.number) +
                       ", since what is newer cannot be opened";
    lives.push_back(std::move(*older));
  }
  for (const Assembly& life : lives) {
    for (size_t i = &life == &lives.front() ? 1 : 0; i < life.checkpoints.size(); ++i) {
      Assembly& fallback = assembly.fallbacks.emplace_back(life);
      fallback.winner.checkpoint = life.checkpoints[i];
      if (fallback.why_older.empty()) {
        fallback.why_older =
            "the newest checkpoint cannot be read: what is shown goes on from an older one";
      }
    }
  }
}

Task<Result<std::vector<FoundMember>>> Find(std::vector<Device*> devices) {
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
    found.push_back({copies.device, std::move(*superblock), copies.doubtful(), 0, ""});
  }
  if (found.empty()) {
    co_return Fail(ErrorCode::kTooManyFailures, "no member of the array is there");
  }
  co_return found;
}

}  // namespace

Task<Result<Assembly>> Assemble(std::vector<Device*> devices, Canary canary, bool force) {
  Task<Result<std::vector<FoundMember>>> finding = Find(std::move(devices));
  Result<std::vector<FoundMember>> found = co_await finding;
  EPLOG_CO_TRY(found);
  Status same = CheckSameArray(*found);
  EPLOG_CO_TRY(same);
  Result<Assembly> assembly = Judge(*found, canary);
  EPLOG_CO_TRY(assembly);
  assembly->beyond = WhyNotEnough(*assembly, *found, canary);
  if (assembly->beyond.empty() && canary != Canary::kUnwholeCounts) {
    assembly->beyond = WhyNotWhole(*assembly);
  }
  if (!assembly->beyond.empty() && !force) {
    co_return Fail(ErrorCode::kTooManyFailures,
                   assembly->beyond + ", or mount with --read-only --force to read what is left");
  }
  if (force && assembly->beyond.empty()) {
    assembly->beyond = WhyLogsAreNeeded(*assembly, 0);
  }
  if (force) {
    AddFallbacks(*assembly, *found, canary);
  }
  co_return assembly;
}

}  // namespace eplog
