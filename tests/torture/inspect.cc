#include "tests/torture/inspect.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

namespace eplog::torture {
namespace {

// What it shows then, it may not have been able to keep: nobody was promised that.
bool HasStopped(const Array& array) {
  return array.GetStatus().state == ArrayState::kFailed;
}

// Read a whole volume in pieces and judge it.
Task<void> ReadBack(Oracle& oracle, BufferPool& pool, uint64_t piece_bytes,
                    const Oracle::Match& match, Inspection& inspection) {
  uint64_t at = 0;
  while (at < match.info.size_bytes && inspection.wrong.empty() && !inspection.failed) {
    const uint64_t length = std::min(piece_bytes, match.info.size_bytes - at);
    const Buffer buffer = pool.Get(length);
    std::memset(buffer.data(), 0xA5, length);
    Task<Status> task = inspection.array->Read(match.info.id, at, buffer.span());
    const Status status = co_await task;
    if (!status.ok() && inspection.tolerant) {
      inspection.failed = true;
      break;
    }
    if (!status.ok()) {
      inspection.wrong = "volume " + match.info.name + " cannot be read at " + std::to_string(at) +
                         ": " + ErrorCodeName(status.error().code) + ": " +
                         status.error().ToString();
      break;
    }
    inspection.wrong = oracle.JudgeFound(match, at, buffer.span(), inspection.weak);
    if (inspection.adopt && inspection.wrong.empty() && !HasStopped(*inspection.array)) {
      oracle.AdoptFound(match.key, at, buffer.span());
    }
    at += length;
  }
}

// The same chunk by chunk, whatever they hold.
Task<void> NoteHarm(Oracle& oracle, BufferPool& pool, const Oracle::Match& match,
                    Inspection& inspection) {
  Harm& harm = *inspection.harm;
  for (uint64_t at = 0; at < match.info.size_bytes; at += oracle.chunk_bytes()) {
    const uint64_t length = std::min(oracle.chunk_bytes(), match.info.size_bytes - at);
    const Buffer buffer = pool.Get(length);
    Task<Status> task = inspection.array->Read(match.info.id, at, buffer.span());
    const Status status = co_await task;
    const std::string wrong = status.ok()
                                  ? oracle.JudgeFound(match, at, buffer.span(), inspection.weak)
                                  : "volume " + match.info.name + " at " + std::to_string(at) +
                                        ": " + status.error().ToString();
    if (!status.ok()) {
      harm.unreadable_at.insert_or_assign(
          std::pair(match.info.name, at),
          Harm::Unreadable{status.error().ToString(), oracle.IsDurable(match, at)});
    }
    harm.unreadable += status.ok() ? 0 : 1;
    harm.old += status.ok() && !wrong.empty() ? 1 : 0;
    harm.first = harm.first.empty() ? wrong : harm.first;
  }
}

// What is there changes its places, not its content, and time passes.
Task<void> Rewrite(EventLoop& loop, const Oracle& oracle, BufferPool& pool,
                   const Oracle::Match& match, Inspection& inspection) {
  constexpr uint64_t kOneIn = 5;
  constexpr uint64_t kRestUs = 2'000;
  for (uint64_t at = 0; at < match.info.size_bytes; at += kOneIn * oracle.chunk_bytes()) {
    const Buffer buffer = pool.Get(std::min(oracle.chunk_bytes(), match.info.size_bytes - at));
    Task<Status> reading = inspection.array->Read(match.info.id, at, buffer.span());
    Status status = co_await reading;
    // What holds something has its place, however full the array is.
    const bool empty =
        std::ranges::all_of(buffer.span(), [](std::byte b) { return b == std::byte{0}; });
    if (status.ok()) {
      Task<Status> writing = inspection.array->Write(match.info.id, at, buffer.span());
      status = co_await writing;
    }
    if (!status.ok() && (!empty || status.error().code != ErrorCode::kNoSpace)) {
      inspection.wrong = "writing it again: " + status.error().ToString();
      co_return;
    }
  }
  Task<Status> flushing = inspection.array->FlushAll();
  Status status = co_await flushing;
  co_await loop.Sleep(kRestUs);
  if (status.ok()) {
    Task<Status> committing = inspection.array->Commit(Progress());
    status = co_await committing;
  }
  if (!status.ok() && status.error().code != ErrorCode::kNoSpace) {
    inspection.wrong = "flushing or committing it: " + status.error().ToString();
  }
}

// The devices that the array does not call ok.
std::string NotOk(const ArrayStatus& status) {
  std::string names;
  for (const DeviceStatus& device : status.devices) {
    if (device.state != DeviceState::kOk) {
      names += " " + device.name;
    }
  }
  return names;
}

// Of the volumes that are judged; the others are not what anybody knows.
void CompareLost(const LossReport& report, const Oracle& oracle,
                 const std::vector<Oracle::Match>& judged, Harm& harm) {
  std::set<std::pair<std::string, uint64_t>> named;
  for (const LostRange& range : report.ranges) {
    const bool known = std::ranges::any_of(
        judged, [&](const Oracle::Match& match) { return match.info.name == range.volume; });
    for (uint64_t at = 0; known && at < range.length_bytes; at += oracle.chunk_bytes()) {
      named.emplace(range.volume, range.offset_bytes + at);
    }
  }
  for (const auto& [where, unreadable] : harm.unreadable_at) {
    // Of what was never flushed nobody knows whether it was ever whole, and the tables of a log
    // that has lost its end are not the last ones: only a read tells.
    if (unreadable.durable && report.log_damage.empty() && !named.contains(where)) {
      harm.unnamed = where.first + " cannot be read at " + std::to_string(where.second) +
                     ", and is not named: " + unreadable.why;
    }
  }
  for (const auto& [volume, at] : named) {
    if (!harm.unreadable_at.contains({volume, at})) {
      harm.unnamed = volume + " is called lost at " + std::to_string(at) + ", and can be read";
    }
  }
}

Task<void> FindLost(Oracle& oracle, const std::vector<Oracle::Match>& judged,
                    Inspection& inspection) {
  Task<Result<LossReport>> finding = inspection.array->FindLost();
  const Result<LossReport> report = co_await finding;
  if (!report.ok()) {
    inspection.wrong = "what is lost cannot be found: " + report.error().ToString();
    co_return;
  }
  inspection.log_damaged = !report->log_damage.empty();
  CompareLost(*report, oracle, judged, *inspection.harm);
}

using Places = std::set<std::pair<std::string, uint64_t>>;  // volume, offset in bytes

// Of the volumes that have a name.
Places PlacesOf(const LossReport& report, const std::vector<VolumeInfo>& volumes,
                uint64_t chunk_bytes) {
  Places places;
  for (const LostRange& range : report.ranges) {
    const bool known = std::ranges::any_of(
        volumes, [&](const VolumeInfo& volume) { return volume.name == range.volume; });
    for (uint64_t at = 0; known && at < range.length_bytes; at += chunk_bytes) {
      places.emplace(range.volume, range.offset_bytes + at);
    }
  }
  return places;
}

Task<void> FullCheck(Inspection& inspection) {
  Task<Result<CheckReport>> task = inspection.array->Check(Progress());
  const Result<CheckReport> report = co_await task;
  if (!inspection.full_check) {
    co_return;  // a device has failed meanwhile
  }
  if (!report.ok()) {
    inspection.wrong = "the check failed: " + report.error().ToString();
    co_return;
  }
  for (const Finding& problem : report->findings) {
    inspection.wrong = "the check found " + std::to_string(report->problems_found) +
                       " problems, one of them: " + problem.Text();
    co_return;
  }
}

}  // namespace

Task<void> Inspect(ArrayFactory& factory, EventLoop& loop, Oracle& oracle, BufferPool& pool,
                   Inspection& inspection) {
  Task<Result<std::unique_ptr<Array>>> opening =
      factory.Open(loop, inspection.devices, inspection.options, inspection.hooks);
  Result<std::unique_ptr<Array>> result = co_await opening;
  if (!result.ok() && inspection.tolerant) {
    inspection.failed = inspection.done = true;
    co_return;
  }
  if (!result.ok() && inspection.may_refuse && result.error().code == ErrorCode::kTooManyFailures) {
    inspection.done = true;
    co_return;
  }
  if (!result.ok()) {
    inspection.wrong = std::string("refused to open: ") + ErrorCodeName(result.error().code) +
                       ": " + result.error().ToString();
    inspection.done = true;
    co_return;
  }
  inspection.array = std::move(*result);
  inspection.opened = true;
  Oracle::TableVerdict verdict = oracle.JudgeTable(inspection.array->Volumes(), inspection.weak);
  inspection.wrong = verdict.wrong;
  if (inspection.find_lost && !verdict.wrong.empty()) {
    Task<void> finding = FindLost(oracle, verdict.volumes, inspection);
    co_await finding;
    // Where the end of the log is lost, so may be what was done to the volumes.
    inspection.wrong = inspection.log_damaged ? "" : verdict.wrong;
  }
  if (inspection.adopt && inspection.wrong.empty() && !HasStopped(*inspection.array)) {
    oracle.AdoptTable(verdict);
  }
  for (const Oracle::Match& match : verdict.volumes) {
    if (inspection.wrong.empty() && !inspection.failed) {
      const uint64_t piece_bytes = std::max(uint64_t{128} << 10, oracle.chunk_bytes());
      Task<void> task = inspection.harm != nullptr
                            ? NoteHarm(oracle, pool, match, inspection)
                            : ReadBack(oracle, pool, piece_bytes, match, inspection);
      co_await task;
    }
  }
  for (const Oracle::Match& match : verdict.volumes) {
    if (inspection.rewrites && inspection.wrong.empty()) {
      Task<void> rewriting = Rewrite(loop, oracle, pool, match, inspection);
      co_await rewriting;
    }
  }
  if (inspection.find_lost && inspection.wrong.empty()) {
    Task<void> finding = FindLost(oracle, verdict.volumes, inspection);
    co_await finding;
  }
  const std::string lost = NotOk(inspection.array->GetStatus());
  if (inspection.whole && !lost.empty() && inspection.wrong.empty()) {
    inspection.wrong = "all devices are there, but these are not ok:" + lost;
  }
  if (inspection.full_check && lost.empty() && inspection.wrong.empty()) {
    Task<void> task = FullCheck(inspection);
    co_await task;
  }
  if (inspection.close) {
    Task<Status> task = inspection.array->Close();
    const Status status = co_await task;
    if (!status.ok() && inspection.wrong.empty()) {
      inspection.wrong = "closing failed: " + status.error().ToString();
    }
  }
  inspection.done = true;
}

Task<void> CompareLosses(Array& array, BufferPool& pool, uint64_t chunk_bytes,
                         LossComparison& comparison) {
  const std::vector<VolumeInfo> volumes = array.Volumes();
  Task<Result<LossReport>> before = array.FindLost();
  const Result<LossReport> first = co_await before;
  Places unreadable;
  for (const VolumeInfo& volume : volumes) {
    for (uint64_t at = 0; at < volume.size_bytes; at += chunk_bytes) {
      const Buffer buffer = pool.Get(std::min(chunk_bytes, volume.size_bytes - at));
      Task<Status> reading = array.Read(volume.id, at, buffer.span());
      const Status read = co_await reading;
      if (!read.ok()) {
        unreadable.emplace(volume.name, at);
      }
    }
  }
  Task<Result<LossReport>> after = array.FindLost();
  const Result<LossReport> last = co_await after;
  comparison.done = true;
  if (!first.ok() || !last.ok()) {
    comparison.wrong = "what is lost cannot be found";
    co_return;
  }
  const Places named = PlacesOf(*last, volumes, chunk_bytes);
  comparison.compared = named == PlacesOf(*first, volumes, chunk_bytes);
  comparison.lost_chunks = named.size();
  // Of rows on an SSD that is back, and not looked through yet, only a read tells.
  const bool right = last->unsure.empty() ? named == unreadable
                                          : std::includes(unreadable.begin(), unreadable.end(),
                                                          named.begin(), named.end());
  if (comparison.compared && !right) {
    comparison.wrong = std::to_string(unreadable.size()) + " chunks cannot be read, and " +
                       std::to_string(named.size()) + " are named";
  }
}

std::string StatusText(const ArrayStatus& s) {
  std::string text = "state " + std::to_string(static_cast<int>(s.state));
  const auto add = [&](const char* name, uint64_t value) {
    text += std::string(", ") + name + " " + std::to_string(value);
  };
  if (!s.stopped_because.empty()) {
    text += ", stopped because " + s.stopped_because;
  }
  add("pending chunks", s.pending_chunks);
  add("live log stripes", s.live_log_stripes);
  add("unstable bytes", s.unstable_bytes);
  add("fewest free slots", s.slots_free_min);
  add("reserved slots", s.slots_reserved);
  add("log used", s.log_used_bytes);
  add("log size", s.log_size_bytes);
  add("free bytes", s.free_bytes);
  add("commits", s.traffic.commits);
  add("checkpoints", s.traffic.checkpoints);
  add("appends", s.traffic.log_appends);
  return text;
}

}  // namespace eplog::torture
