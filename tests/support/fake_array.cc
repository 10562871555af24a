#include "tests/support/fake_array.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/crc32c.h"
#include "base/types.h"
#include "base/utf8.h"

namespace eplog {
namespace {

bool GoodName(std::string_view name) {
  return !name.empty() && name.size() <= kMaxVolumeNameBytes && name != "." && name != ".." &&
         IsUtf8(name) && !name.starts_with(kReservedVolumePrefix) &&
         std::none_of(name.begin(), name.end(),
                      [](char c) { return c == '/' || (c >= 0 && c < ' ') || c == 127; });
}

tl::unexpected<Error> NoVolume() {
  return Fail(ErrorCode::kNotFound, "no such volume");
}

bool Aligned(const void* memory) {
  return reinterpret_cast<uintptr_t>(memory) % 4096 == 0;
}

}  // namespace

FakeArray::FakeArray(EventLoop& loop, uint64_t capacity_bytes)
    : loop_(loop), capacity_bytes_(capacity_bytes), in_flight_(loop) {}

Task<Status> FakeArray::Begin(Call call) {
  if (closed) {
    co_return Fail(ErrorCode::kShutdown, "the array is closed");
  }
  if (call.op != Op::kRead && call.op != Op::kWrite) {
    calls.push_back(call);
  }
  if (max_delay_us != 0) {
    co_await loop_.Sleep(random_.Below(max_delay_us + 1));
  }
  while (hold && hold(call)) {
    co_await loop_.Sleep(1000);
  }
  if (before) {
    Status status = before(call);
    co_return status;
  }
  co_return OkStatus();
}

// A change is seen before it is durable.
Task<Status> FakeArray::Settle() {
  if (max_delay_us != 0) {
    co_await loop_.Sleep(random_.Below(max_delay_us + 1));
  }
  co_return OkStatus();
}

FakeArray::Volume* FakeArray::Find(VolumeId id) {
  const auto found = volumes_.find(id.value);
  return found == volumes_.end() ? nullptr : &found->second;
}

uint64_t FakeArray::Count(Op op) const {
  return static_cast<uint64_t>(
      std::count_if(calls.begin(), calls.end(), [op](const Call& call) { return call.op == op; }));
}

std::vector<std::byte> FakeArray::Content(std::string_view name) const {
  for (const auto& [id, volume] : volumes_) {
    if (volume.name == name) {
      std::vector<std::byte> content(volume.size_bytes);
      Load(volume, 0, content);
      return content;
    }
  }
  return {};
}

void FakeArray::AddVolume(std::string name, std::span<const std::byte> content) {
  Volume& volume = volumes_[next_id_++];
  volume.name = std::move(name);
  volume.size_bytes = content.size();
  const Status stored = Store(volume, 0, content);
  EPLOG_CHECK(stored.ok(), "the fake array is too small for its test");
}

// ---- volumes

Task<Result<VolumeId>> FakeArray::CreateVolume(std::string name, uint64_t size_bytes) {
  const Running running(in_flight_);
  Status begun = co_await Begin({Op::kCreate, VolumeId(0), 0, size_bytes});
  EPLOG_CO_TRY(begun);
  if (!GoodName(name) || size_bytes > kMaxVolumeBytes) {
    co_return Fail(ErrorCode::kInvalidArgument, "no good name or size");
  }
  if (FindVolume(name)) {
    co_return Fail(ErrorCode::kExists, "a volume " + name + " exists");
  }
  const VolumeId id(next_id_++);
  volumes_[id.value] = Volume{std::move(name), size_bytes, {}};
  co_return id;
}

Task<Status> FakeArray::ResizeVolume(VolumeId id, uint64_t size_bytes) {
  const Running running(in_flight_);
  Status begun = co_await Begin({Op::kResize, id, 0, size_bytes});
  EPLOG_CO_TRY(begun);
  Volume* volume = Find(id);
  if (volume == nullptr) {
    co_return NoVolume();
  }
  if (size_bytes > kMaxVolumeBytes) {
    co_return Fail(ErrorCode::kInvalidArgument, "too large");
  }
  Resize(*volume, size_bytes);
  co_return OkStatus();
}

void FakeArray::Resize(Volume& volume, uint64_t size_bytes) {
  volume.size_bytes = size_bytes;
  const uint64_t whole = size_bytes / kPage;
  const auto cut = volume.pages.find(whole);
  if (cut != volume.pages.end()) {
    const auto keep = static_cast<std::ptrdiff_t>(size_bytes % kPage);
    std::fill(cut->second.begin() + keep, cut->second.end(), std::byte{0});
  }
  volume.pages.erase(volume.pages.lower_bound(DivideUp(size_bytes, kPage)), volume.pages.end());
}

void FakeArray::SetSize(std::string_view name, uint64_t size_bytes) {
  Resize(*Find(InfoOf(name)->id), size_bytes);
}

void FakeArray::Drop(std::string_view name) {
  volumes_.erase(InfoOf(name)->id.value);
}

Task<Status> FakeArray::RenameVolume(VolumeId id, std::string new_name, bool replace) {
  const Running running(in_flight_);
  Status begun = co_await Begin({Op::kRename, id, 0, 0});
  EPLOG_CO_TRY(begun);
  Volume* volume = Find(id);
  if (volume == nullptr) {
    co_return NoVolume();
  }
  if (!GoodName(new_name)) {
    co_return Fail(ErrorCode::kInvalidArgument, "no good name");
  }
  const std::optional<VolumeInfo> other = FindVolume(new_name);
  if (other && other->id != id) {
    if (!replace) {
      co_return Fail(ErrorCode::kExists, "a volume " + new_name + " exists");
    }
    volumes_.erase(other->id.value);
  }
  volume->name = std::move(new_name);
  co_return OkStatus();
}

void FakeArray::Hide(Volume& volume) {
  volume.name.clear();
  volume.hidden = true;
}

Task<Result<VolumeId>> FakeArray::RenameVolumeOver(VolumeId id, std::string new_name) {
  const Running running(in_flight_);
  Status begun = co_await Begin({Op::kRename, id, 0, 0});
  EPLOG_CO_TRY(begun);
  Volume* volume = Find(id);
  if (volume == nullptr) {
    co_return NoVolume();
  }
  if (!GoodName(new_name)) {
    co_return Fail(ErrorCode::kInvalidArgument, "no good name");
  }
  const std::optional<VolumeInfo> other = FindVolume(new_name);
  const bool hides = other && other->id != id;
  if (hides) {
    Hide(*Find(other->id));
  }
  volume->name = std::move(new_name);
  Status settled = co_await Settle();
  EPLOG_CO_TRY(settled);
  co_return hides ? other->id : VolumeId(0);
}

Task<Status> FakeArray::HideVolume(VolumeId id) {
  const Running running(in_flight_);
  Status begun = co_await Begin({Op::kRename, id, 0, 0});
  EPLOG_CO_TRY(begun);
  Volume* volume = Find(id);
  if (volume == nullptr) {
    co_return NoVolume();
  }
  Hide(*volume);
  co_return OkStatus();
}

Task<Status> FakeArray::DeleteVolume(VolumeId id) {
  const Running running(in_flight_);
  Status begun = co_await Begin({Op::kDelete, id, 0, 0});
  EPLOG_CO_TRY(begun);
  if (volumes_.erase(id.value) == 0) {
    co_return NoVolume();
  }
  co_return OkStatus();
}

Task<Status> FakeArray::DeleteVolumeNamed(VolumeId id, std::string name) {
  const Running running(in_flight_);
  Status begun = co_await Begin({Op::kDelete, id, 0, 0});
  EPLOG_CO_TRY(begun);
  const Volume* volume = Find(id);
  if (volume == nullptr || volume->name != name) {
    co_return NoVolume();
  }
  volumes_.erase(id.value);
  co_return OkStatus();
}

VolumeInfo FakeArray::InfoOf(uint32_t id, const Volume& volume) const {
  return {VolumeId(id), volume.name, volume.size_bytes, volume.pages.size() * kPage};
}

std::vector<VolumeInfo> FakeArray::Volumes() const {
  std::vector<VolumeInfo> list;
  for (const auto& [id, volume] : volumes_) {
    if (!volume.hidden) {
      list.push_back(InfoOf(id, volume));
    }
  }
  std::sort(list.begin(), list.end(),
            [](const VolumeInfo& a, const VolumeInfo& b) { return a.name < b.name; });
  return list;
}

std::optional<VolumeInfo> FakeArray::FindVolume(std::string_view name) const {
  std::optional<VolumeInfo> found = InfoOf(name);
  if (looked_up) {
    looked_up(name);
  }
  return found;
}

std::optional<VolumeInfo> FakeArray::InfoOf(std::string_view name) const {
  for (const auto& [id, volume] : volumes_) {
    if (volume.name == name && !volume.hidden) {
      return InfoOf(id, volume);
    }
  }
  return std::nullopt;
}

std::optional<VolumeInfo> FakeArray::GetVolume(VolumeId id) const {
  const auto found = volumes_.find(id.value);
  if (found == volumes_.end()) {
    return std::nullopt;
  }
  return InfoOf(id.value, found->second);
}

// ---- data

void FakeArray::Load(const Volume& volume, uint64_t offset_bytes, std::span<std::byte> into) {
  while (!into.empty()) {
    const size_t in_page = offset_bytes % kPage;
    const size_t count = std::min<size_t>(into.size(), kPage - in_page);
    const auto page = volume.pages.find(offset_bytes / kPage);
    if (page == volume.pages.end()) {
      std::memset(into.data(), 0, count);
    } else {
      std::memcpy(into.data(), page->second.data() + in_page, count);
    }
    into = into.subspan(count);
    offset_bytes += count;
  }
}

Status FakeArray::Store(Volume& volume, uint64_t offset_bytes, std::span<const std::byte> from) {
  while (!from.empty()) {
    const size_t in_page = offset_bytes % kPage;
    const size_t count = std::min<size_t>(from.size(), kPage - in_page);
    auto page = volume.pages.find(offset_bytes / kPage);
    if (page == volume.pages.end()) {
      if (AllocatedBytes() + kPage > capacity_bytes_) {
        return Fail(ErrorCode::kNoSpace, "the array is full");
      }
      page = volume.pages.emplace(offset_bytes / kPage, Page(kPage)).first;
    }
    std::memcpy(page->second.data() + in_page, from.data(), count);
    from = from.subspan(count);
    offset_bytes += count;
  }
  return OkStatus();
}

Task<Status> FakeArray::Read(VolumeId id, uint64_t offset_bytes, std::span<std::byte> into) {
  const Running running(in_flight_);
  ++reads;
  unaligned_buffers += Aligned(into.data()) ? 0 : 1;
  Status begun = co_await Begin({Op::kRead, id, offset_bytes, into.size()});
  EPLOG_CO_TRY(begun);
  const Volume* volume = Find(id);
  if (volume == nullptr) {
    co_return NoVolume();
  }
  if (offset_bytes + into.size() > volume->size_bytes) {
    co_return Fail(ErrorCode::kInvalidArgument, "beyond the volume");
  }
  if (keep_data) {
    Load(*volume, offset_bytes, into);
  }
  co_return OkStatus();
}

Task<Status> FakeArray::Write(VolumeId id, uint64_t offset_bytes, std::span<const std::byte> from) {
  const Running running(in_flight_);
  ++writes;
  unaligned_buffers += Aligned(from.data()) ? 0 : 1;
  overlapping_writes += writes_in_flight_ != 0 ? 1 : 0;
  const uint32_t crc = keep_data ? Crc32c(from) : 0;
  ++writes_in_flight_;
  Status begun = co_await Begin({Op::kWrite, id, offset_bytes, from.size()});
  --writes_in_flight_;
  if (keep_data && Crc32c(from) != crc) {
    ++changed_buffers;
  }
  EPLOG_CO_TRY(begun);
  Volume* volume = Find(id);
  if (volume == nullptr) {
    co_return NoVolume();
  }
  if (offset_bytes + from.size() > volume->size_bytes) {
    co_return Fail(ErrorCode::kInvalidArgument, "beyond the volume");
  }
  if (!keep_data) {
    co_return OkStatus();
  }
  co_return Store(*volume, offset_bytes, from);
}

Task<Status> FakeArray::Trim(VolumeId id, uint64_t offset_bytes, uint64_t length_bytes,
                             TrimMode mode) {
  const Running running(in_flight_);
  Status begun = co_await Begin({Op::kTrim, id, offset_bytes, length_bytes, mode});
  EPLOG_CO_TRY(begun);
  Volume* volume = Find(id);
  if (volume == nullptr) {
    co_return NoVolume();
  }
  if (offset_bytes + length_bytes > volume->size_bytes) {
    co_return Fail(ErrorCode::kInvalidArgument, "beyond the volume");
  }
  const std::vector<std::byte> zeros(length_bytes);
  co_return Store(*volume, offset_bytes, zeros);
}

Task<Status> FakeArray::Flush(VolumeId id, uint64_t offset_bytes, uint64_t length_bytes) {
  const Running running(in_flight_);
  Status begun = co_await Begin({Op::kFlush, id, offset_bytes, length_bytes});
  EPLOG_CO_TRY(begun);
  co_return Find(id) != nullptr ? OkStatus() : NoVolume();
}

Task<Status> FakeArray::FlushAll() {
  const Running running(in_flight_);
  Status begun = co_await Begin({Op::kFlush, VolumeId(0), 0, 0});
  co_return begun;
}

// ---- the rest

Task<Status> FakeArray::Close() {
  Status begun = co_await Begin({Op::kClose, VolumeId(0), 0, 0});
  closed = true;
  Task<void> rest = in_flight_.Wait();
  co_await rest;
  co_return begun;
}

Task<Status> FakeArray::Commit(Progress progress) {
  const Running running(in_flight_);
  Status begun = co_await Begin({Op::kCommit, VolumeId(0), 0, 0});
  EPLOG_CO_TRY(begun);
  constexpr uint64_t kSteps = 4;
  for (uint64_t step = 1; step <= kSteps; ++step) {
    if (progress) {
      progress(step, kSteps);
    }
    co_await loop_.Yield();
  }
  co_return OkStatus();
}

Task<Status> FakeArray::Checkpoint(CheckpointKind /*kind*/) {
  const Running running(in_flight_);
  Status begun = co_await Begin({Op::kCheckpoint, VolumeId(0), 0, 0});
  co_return begun;
}

Task<Result<CheckReport>> FakeArray::Check(Progress /*progress*/) {
  co_return CheckReport();
}

uint64_t FakeArray::AllocatedBytes() const {
  uint64_t pages = 0;
  for (const auto& [id, volume] : volumes_) {
    pages += volume.pages.size();
  }
  return pages * kPage;
}

ArrayStatus FakeArray::GetStatus() const {
  ArrayStatus status;
  status.uuid = "00000000-0000-4000-8000-0000000000fa";
  status.name = "fake";
  status.level = 6;
  status.data_chunks = 6;
  status.parity_chunks = 2;
  status.chunk_bytes = 4096;
  status.state = ArrayState::kActive;
  status.capacity_bytes = capacity_bytes_;
  status.allocated_bytes = AllocatedBytes();
  status.free_bytes = capacity_bytes_ - AllocatedBytes();
  status.devices = devices;
  status.traffic.user_writes = writes;
  status.traffic.user_reads = reads;
  return status;
}

}  // namespace eplog
