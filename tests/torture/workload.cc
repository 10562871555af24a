#include "tests/torture/workload.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "tests/torture/content.h"

namespace eplog::torture {
namespace {

using Kind = VolumeChange::Kind;

// Of simulated time, for a write, trim, read or flush: ten times the longest that was met.
constexpr uint64_t kLongestUs = 20'000'000;

std::string Place(uint64_t offset_bytes, uint64_t length_bytes) {
  return std::to_string(offset_bytes) + "+" + std::to_string(length_bytes);
}

}  // namespace

Workload::Workload(Scene& scene, Array& array, EventLoop& loop, bool tolerant)
    : scene_(scene),
      oracle_(scene.oracle),
      array_(array),
      loop_(loop),
      tolerant_(tolerant),
      progress_us_(loop.NowUs()) {}

void Workload::Trace(const std::string& text) {
  if (scene_.trace) {
    scene_.trace(std::to_string(loop_.NowUs()) + " " + text);
  }
}

void Workload::Answer(const char* what, const Status& status, bool excused) {
  progress_us_ = loop_.NowUs();
  ++scene_.coverage.operations;
  scene_.Mix(status.ok() ? 1 : 2 + static_cast<uint64_t>(status.error().code));
  if (status.ok()) {
    return;
  }
  Trace(std::string(what) + " failed: " + status.error().ToString());
  const bool shut = closing_ && status.error().code == ErrorCode::kShutdown;
  if (!tolerant_ && !excused && !shut) {
    scene_.Violate(std::string(what) + " failed: " + ErrorCodeName(status.error().code) + ": " +
                   status.error().ToString());
  }
}

// More than m devices are lost, as far as the array knows.
bool Workload::Stopped() const {
  return tolerant_ && array_.GetStatus().state == ArrayState::kFailed;
}

void Workload::ExpectRefused(const char* what, bool stopped, const Status& status) {
  if (stopped && status.ok()) {
    scene_.Violate(std::string("P7: ") + what + " was answered though the array had stopped");
  }
}

// Others are answered all the time, and this one is not: that is no stall, and as bad.
void Workload::ExpectInTime(const char* what, uint64_t begun_us) {
  const uint64_t waited_us = loop_.NowUs() - begun_us;
  if (waited_us > kLongestUs) {
    scene_.Violate(std::string(what) + " took " + std::to_string(waited_us / 1000) + " ms");
  }
}

void Workload::EndUse(VolumeKey key) {
  if (VolumeModel* volume = oracle_.Find(key); volume != nullptr) {
    --volume->users;
  }
}

// Bytes that the volumes may come to need.
uint64_t Workload::Promised() const {
  uint64_t sum = 0;
  for (const auto& [key, volume] : oracle_.volumes()) {
    sum += RoundUp(volume->size_bytes, scene_.plan.geometry.extent_data_bytes());
  }
  return sum;
}

bool Workload::Overcommitted() const {
  return Promised() > scene_.plan.geometry.capacity_bytes();
}

// ----------------------------------------------------------------------------------------- single
// requests

Task<void> Workload::Write(VolumeKey key, uint64_t offset_bytes, uint64_t length_bytes,
                           uint64_t write_id) {
  VolumeModel* volume = oracle_.Find(key);
  const VolumeId id = *volume->id;
  ++volume->users;
  ++scene_.coverage.writes;
  // Aligned memory mostly, and sometimes none of that.
  const size_t skew = scene_.random.OneIn(4) ? scene_.random.Below(64) : 0;
  const Buffer buffer = scene_.pool.Get(length_bytes + skew);
  const auto data = buffer.span().subspan(skew);
  FillPattern(write_id, offset_bytes, scene_.plan.create.format > 1, data);
  Trace("write w" + std::to_string(write_id) + " " + volume->name + " " +
        Place(offset_bytes, length_bytes));
  bool full = Overcommitted();
  // What it overwrites has its place, however full the array is; unless that is given back
  // meanwhile.
  const uint64_t extent = scene_.plan.geometry.extent_data_bytes();
  bool has_place = oracle_.IsOverwrite(key, offset_bytes, length_bytes, extent);
  const uint64_t freed = freeing_;
  const Oracle::WriteToken token = oracle_.BeginWrite(key, offset_bytes, data);
  freeing_ += write_id == 0 ? 1 : 0;
  const bool stopped = Stopped();
  const uint64_t begun_us = loop_.NowUs();
  Task<Status> task = array_.Write(id, offset_bytes, data);
  const Status status = co_await task;
  ExpectInTime("a write", begun_us);
  oracle_.EndWrite(token, status.ok());
  ExpectRefused("a write", stopped, status);
  full = full || Overcommitted() || change_running_;
  has_place = has_place && freed == freeing_;
  scene_.coverage.overwrites_when_full += full && has_place ? 1 : 0;
  EndUse(key);
  const VolumeModel* after = oracle_.Find(key);
  bool excused = after == nullptr || after->doomed;
  if (!status.ok() && status.error().code == ErrorCode::kNoSpace && full && !has_place) {
    ++scene_.coverage.no_space;
    excused = true;
  }
  Trace("wrote w" + std::to_string(write_id));
  Answer("a write", status, excused);
}

// To the oracle a trim is a write of zeros.
Task<void> Workload::Trim(VolumeKey key, uint64_t offset_bytes, uint64_t length_bytes,
                          TrimMode mode) {
  VolumeModel* volume = oracle_.Find(key);
  const VolumeId id = *volume->id;
  ++volume->users;
  ++scene_.coverage.trims;
  ++freeing_;
  Trace("trim " + volume->name + " " + Place(offset_bytes, length_bytes));
  const std::vector<std::byte> zeros(length_bytes);
  const Oracle::WriteToken token = oracle_.BeginWrite(key, offset_bytes, zeros);
  const uint64_t begun_us = loop_.NowUs();
  Task<Status> task = array_.Trim(id, offset_bytes, length_bytes, mode);
  const Status status = co_await task;
  ExpectInTime("a trim", begun_us);
  oracle_.EndWrite(token, status.ok());
  EndUse(key);
  Trace("trimmed " + Place(offset_bytes, length_bytes));
  const VolumeModel* after = oracle_.Find(key);
  Answer("a trim", status, after == nullptr || after->doomed);
}

Task<void> Workload::Read(VolumeKey key, uint64_t offset_bytes, uint64_t length_bytes) {
  VolumeModel* volume = oracle_.Find(key);
  const VolumeId id = *volume->id;
  ++volume->users;
  ++scene_.coverage.reads;
  const size_t skew = scene_.random.OneIn(4) ? scene_.random.Below(64) : 0;
  const Buffer buffer = scene_.pool.Get(length_bytes + skew);
  const auto into = buffer.span().subspan(skew);
  Trace("read " + volume->name + " " + Place(offset_bytes, length_bytes));
  const uint64_t since = oracle_.BeginRead();
  const uint64_t begun_us = loop_.NowUs();
  Task<Status> task = array_.Read(id, offset_bytes, into);
  const Status status = co_await task;
  ExpectInTime("a read", begun_us);
  Trace(std::string("read of ") + Place(offset_bytes, length_bytes) +
        (status.ok() ? "" : " failed"));
  const std::string wrong = oracle_.EndRead(since, key, offset_bytes, into, !status.ok());
  if (!wrong.empty()) {
    scene_.Violate(wrong);
  }
  EndUse(key);
  const VolumeModel* after = oracle_.Find(key);
  Answer("a read", status, after == nullptr || after->doomed);
}

// What is answered at once was durable before, and has waited for no device: it says nothing of
// what the array has written down since.
void Workload::NoteFlushed(uint64_t begun_us) {
  if (loop_.NowUs() != begun_us) {
    scene_.flush_begun_us = std::max(scene_.flush_begun_us, begun_us);
  }
}

Task<void> Workload::Flush(VolumeKey key, uint64_t offset_bytes, uint64_t length_bytes) {
  VolumeModel* volume = oracle_.Find(key);
  const VolumeId id = *volume->id;
  ++volume->users;
  ++scene_.coverage.flushes;
  Trace("flush " + volume->name + " " + Place(offset_bytes, length_bytes));
  const uint64_t begun_us = loop_.NowUs();
  const Oracle::FlushToken token = oracle_.BeginFlush(key, offset_bytes, length_bytes);
  Task<Status> task = array_.Flush(id, offset_bytes, length_bytes);
  const Status status = co_await task;
  ExpectInTime("a flush", begun_us);
  if (status.ok()) {
    NoteFlushed(begun_us);
    oracle_.EndFlush(token, false);
  }
  EndUse(key);
  Trace("flushed " + Place(offset_bytes, length_bytes));
  const VolumeModel* after = oracle_.Find(key);
  Answer("a flush", status, after == nullptr || after->doomed);
}

Task<void> Workload::FlushAll() {
  ++scene_.coverage.flushes;
  Trace("flush all");
  const uint64_t begun_us = loop_.NowUs();
  const bool stopped = Stopped();
  const Oracle::FlushToken token = oracle_.BeginFlush(kAllVolumes, 0, 0);
  Task<Status> task = array_.FlushAll();
  const Status status = co_await task;
  ExpectInTime("a flush of everything", begun_us);
  ExpectRefused("a flush", stopped, status);
  if (status.ok()) {
    NoteFlushed(begun_us);
    oracle_.EndFlush(token, false);
  }
  Trace("flushed all");
  Answer("a flush of everything", status, false);
}

Task<void> Workload::Commit() {
  ++scene_.coverage.commits;
  Trace("commit");
  Task<Status> task = array_.Commit(Progress());
  const Status status = co_await task;
  Trace("committed");
  Answer("a commit", status, false);
}

// Within m nothing is lost, and only who may lie is blamed. What was healed must be found right.
Task<void> Workload::Scrub() {
  ++scene_.coverage.scrubs;
  Trace("scrub");
  const uint64_t begun = scene_.lies;
  const uint64_t begun_us = loop_.NowUs();
  Task<Result<CheckReport>> scrubbing = array_.Scrub(true, Progress());
  const Result<CheckReport> report = co_await scrubbing;
  const bool busy = !report.ok() && report.error().code == ErrorCode::kBusy;
  Answer("a scrub", report.ok() ? OkStatus() : Status(Fail(report.error())), busy);
  if (!report.ok()) {
    co_return;
  }
  Trace("scrubbed: " + std::to_string(report->problems_found) + " problems, " +
        std::to_string(report->healed) + " healed");
  scene_.coverage.scrub_findings += report->problems_found;
  scene_.coverage.healed += report->healed;
  const ArrayStatus status = array_.GetStatus();
  for (const Finding& finding : report->findings) {
    const auto device =
        std::find_if(status.devices.begin(), status.devices.end(),
                     [&finding](const auto& each) { return each.name == finding.device; });
    const auto index = static_cast<size_t>(device - status.devices.begin());
    if (!tolerant_ && scene_.suspect && !scene_.suspect(index, begun_us)) {
      scene_.Violate("a scrub blames who did nothing: " + finding.Text());
    }
  }
  for (size_t i = 0; i < status.devices.size(); ++i) {
    const DeviceStatus& device = status.devices[i];
    // What is counted began anew when it joined, if it did.
    constexpr uint64_t kJoining = UINT64_MAX - 1;
    if (!tolerant_ && device.corrupt_chunks != 0 && scene_.suspect &&
        !scene_.suspect(i, kJoining)) {
      scene_.Violate(device.name + ", which did nothing, has wrong chunks counted: " +
                     std::to_string(device.corrupt_chunks));
    }
  }
  if (report->lost != 0 && !tolerant_) {
    scene_.Violate("a scrub found data that is lost: " + report->findings.front().Text());
  }
  Task<Result<CheckReport>> again = array_.Scrub(false, Progress());
  const Result<CheckReport> second = co_await again;
  if (!second.ok() || second->problems_found != 0) {
    co_return;
  }
  // Journal and metadata are made anew by this.
  Task<Status> task = array_.Checkpoint(CheckpointKind::kFull);
  const Status checkpoint = co_await task;
  if (checkpoint.ok() && scene_.whole && scene_.lies == begun) {
    scene_.whole();
  }
}

Task<void> Workload::Checkpoint(CheckpointKind kind) {
  ++scene_.coverage.checkpoints;
  Trace("checkpoint");
  // A checkpoint of the state when called, which counts on return: more than a flush of everything.
  const uint64_t begun_us = loop_.NowUs();
  const Oracle::FlushToken token = oracle_.BeginFlush(kAllVolumes, 0, 0);
  Task<Status> task = array_.Checkpoint(kind);
  const Status status = co_await task;
  if (status.ok()) {
    NoteFlushed(begun_us);
    oracle_.EndFlush(token, true);
  }
  Trace("checkpoint counts");
  Answer("a checkpoint", status, false);
}

Task<void> Workload::CreateVolume(std::string name, uint64_t size_bytes) {
  ++scene_.coverage.volume_changes;
  change_running_ = true;
  Trace("create " + name + " of " + std::to_string(size_bytes));
  oracle_.BeginChange({Kind::kCreate, 0, name, size_bytes, 0});
  Task<Result<VolumeId>> task = array_.CreateVolume(std::move(name), size_bytes);
  const Result<VolumeId> created = co_await task;
  Status status;
  std::optional<VolumeId> id;
  if (created.ok()) {
    id = *created;
  } else {
    status = Fail(created.error());
  }
  const std::string wrong = oracle_.EndChange(created.ok(), id);
  if (!wrong.empty()) {
    scene_.Violate(wrong);
  }
  change_running_ = false;
  Trace("created #" + (id ? std::to_string(id->value) : std::string("none")));
  Answer("a creation of a volume", status, false);
}

Task<void> Workload::ResizeVolume(VolumeKey key, uint64_t size_bytes) {
  ++scene_.coverage.volume_changes;
  VolumeModel* volume = oracle_.Find(key);
  const VolumeId id = *volume->id;
  const bool cut = size_bytes < volume->size_bytes;
  EPLOG_CHECK(!cut || volume->users == 0, "a volume is cut while nobody uses it");
  volume->changing = cut;
  change_running_ = true;
  ++freeing_;
  Trace("resize " + volume->name + " from " + std::to_string(volume->size_bytes) + " to " +
        std::to_string(size_bytes));
  oracle_.BeginChange({Kind::kResize, key, "", size_bytes, 0});
  Task<Status> task = array_.ResizeVolume(id, size_bytes);
  const Status status = co_await task;
  oracle_.EndChange(status.ok());
  volume->changing = !status.ok();
  change_running_ = false;
  Trace("resized");
  Answer("a resize", status, false);
}

Task<void> Workload::RenameVolume(VolumeKey key, std::string name, VolumeKey victim) {
  ++scene_.coverage.volume_changes;
  VolumeModel* volume = oracle_.Find(key);
  const VolumeId id = *volume->id;
  if (VolumeModel* other = oracle_.Find(victim); other != nullptr) {
    other->changing = other->doomed = true;
  }
  change_running_ = true;
  ++freeing_;
  Trace("rename " + volume->name + " to " + name + (victim != 0 ? ", replacing" : ""));
  oracle_.BeginChange({Kind::kRename, key, name, 0, victim});
  Task<Status> task = array_.RenameVolume(id, std::move(name), victim != 0);
  const Status status = co_await task;
  oracle_.EndChange(status.ok());
  change_running_ = false;
  Trace("renamed");
  Answer("a rename", status, false);
  // What took the place of another is all that there is of either.
  probe_wanted_ = probe_wanted_ || (victim != 0 && status.ok());
}

Task<void> Workload::DeleteVolume(VolumeKey key, bool under_users) {
  ++scene_.coverage.volume_changes;
  VolumeModel* volume = oracle_.Find(key);
  const VolumeId id = *volume->id;
  EPLOG_CHECK(under_users || volume->users == 0, "a volume is deleted while nobody uses it");
  volume->changing = volume->doomed = true;
  change_running_ = true;
  ++freeing_;
  Trace("delete " + volume->name);
  oracle_.BeginChange({Kind::kDelete, key, "", 0, 0});
  Task<Status> task = array_.DeleteVolume(id);
  const Status status = co_await task;
  oracle_.EndChange(status.ok());
  change_running_ = false;
  Trace("deleted");
  Answer("a deletion", status, false);
}

Task<void> Workload::Close() {
  Trace("close");
  const uint64_t begun_us = loop_.NowUs();
  const Oracle::FlushToken token = oracle_.BeginFlush(kAllVolumes, 0, 0);
  closing_ = true;
  Task<Status> task = array_.Close();
  const Status status = co_await task;
  if (status.ok()) {
    NoteFlushed(begun_us);
    oracle_.EndFlush(token, true);
  }
  closed_ = true;
  close_ok_ = status.ok();
  Trace("closed");
  Answer("a close", status, false);
}

}  // namespace eplog::torture
