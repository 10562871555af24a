#include "tests/torture/toy_array.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "base/buffer.h"
#include "base/crc32c.h"
#include "runtime/sync.h"
#include "tests/torture/toy_state.h"

namespace eplog::torture {
namespace {

constexpr uint64_t kHalfBytes = uint64_t{4} << 20;
constexpr uint64_t kMagic = 0x544F59524F4F5431ULL;

struct Root {
  uint64_t magic = kMagic;
  uint64_t generation = 0;
  uint64_t epoch = 0;
  uint64_t half = 0;
  uint64_t snapshot_bytes = 0;
  uint64_t first_seq = 0;
  uint32_t mirrors = 0;
  uint32_t snapshot_crc = 0;
  uint32_t crc = 0;
  uint32_t unused = 0;

  [[nodiscard]] uint64_t base() const { return kBlockBytes * 2 + half * kHalfBytes; }
  [[nodiscard]] uint32_t Sum() const {
    return Crc32c(std::as_bytes(std::span(this, 1)).first(offsetof(Root, crc)));
  }
};

struct RecordHeader {
  uint64_t epoch = 0;
  uint64_t seq = 0;
  uint32_t bytes = 0;
  uint32_t crc = 0;  // of the payload, seeded by the fields above
};

uint32_t RecordSum(const RecordHeader& header, std::span<const std::byte> payload) {
  return Crc32c(payload, Crc32c(std::as_bytes(std::span(&header, 1)).first(20)));
}

uint64_t RecordSpan(uint64_t payload_bytes) {
  return RoundUp(sizeof(RecordHeader) + payload_bytes, kBlockBytes);
}

class ToyArray final : public Array {
 public:
  ToyArray(EventLoop& loop, std::vector<Device*> mirrors, ToyMembers& members, bool read_only)
      : loop_(loop),
        mirrors_(std::move(mirrors)),
        members_(members),
        read_only_(read_only),
        turn_(loop),
        moved_(loop) {}

  Task<Status> Format();
  Task<Status> Recover();

  Task<Status> Close() override;
  Task<Result<VolumeId>> CreateVolume(std::string name, uint64_t size_bytes) override;
  Task<Status> ResizeVolume(VolumeId volume, uint64_t size_bytes) override;
  Task<Status> RenameVolume(VolumeId volume, std::string new_name, bool replace) override;
  Task<Result<VolumeId>> RenameVolumeOver(VolumeId /*volume*/, std::string /*name*/) override {
    co_return Fail(ErrorCode::kUnsupported, "no hiding of volumes");
  }
  Task<Status> HideVolume(VolumeId /*volume*/) override {
    co_return Fail(ErrorCode::kUnsupported, "no hiding of volumes");
  }
  Task<Status> DeleteVolume(VolumeId volume) override;
  Task<Status> DeleteVolumeNamed(VolumeId /*volume*/, std::string /*name*/) override {
    co_return Fail(ErrorCode::kUnsupported, "the toy deletes whatever it is called");
  }
  [[nodiscard]] std::vector<VolumeInfo> Volumes() const override { return state_.Infos(); }
  [[nodiscard]] std::optional<VolumeInfo> FindVolume(std::string_view name) const override {
    for (const VolumeInfo& info : state_.Infos()) {
      if (info.name == name) {
        return info;
      }
    }
    return std::nullopt;
  }
  [[nodiscard]] std::optional<VolumeInfo> GetVolume(VolumeId volume) const override {
    for (const VolumeInfo& info : state_.Infos()) {
      if (info.id == volume) {
        return info;
      }
    }
    return std::nullopt;
  }
  Task<Status> Read(VolumeId volume, uint64_t offset_bytes, std::span<std::byte> into) override;
  Task<Status> Write(VolumeId volume, uint64_t offset_bytes,
                     std::span<const std::byte> from) override;
  Task<Status> Trim(VolumeId volume, uint64_t offset_bytes, uint64_t length_bytes,
                    TrimMode mode) override;
  Task<Status> Flush(VolumeId volume, uint64_t offset_bytes, uint64_t length_bytes) override;
  Task<Status> FlushAll() override;
  Task<Status> Commit(Progress progress) override;
  Task<Status> Checkpoint(CheckpointKind kind) override;
  Task<Result<uint64_t>> DiscardFree(Progress /*progress*/) override { co_return uint64_t{0}; }
  Task<Result<CheckReport>> Check(Progress progress) override;
  Task<Result<LossReport>> FindLost() override { co_return LossReport(); }
  Task<Result<CheckReport>> Scrub(bool /*heal*/, Progress progress) override {
    return Check(std::move(progress));
  }
  [[nodiscard]] ArrayStatus GetStatus() const override;
  Task<Status> FailDevice(uint32_t /*device*/, std::string /*reason*/) override {
    co_return Fail(ErrorCode::kUnsupported, "no failing of devices");
  }
  Task<Status> CheckNotInUse(Device& /*device*/) override { co_return OkStatus(); }
  Task<Status> ReplaceDevice(uint32_t /*device*/, Device& /*replacement*/) override {
    co_return Fail(ErrorCode::kUnsupported, "no replacing of devices");
  }
  [[nodiscard]] bool Holds(const Device& /*device*/) const override { return true; }
  Task<Result<ChangePlan>> Plan(Change /*change*/) override {
    co_return Fail(ErrorCode::kUnsupported, "a toy makes no plans");
  }
  Status SetBuffers(const BufferSizes& /*sizes*/) override { return OkStatus(); }
  void SetRebuildPace(const RebuildPace& /*pace*/) override {}

 private:
  [[nodiscard]] bool Has(ToyBug bug) const { return members_.bug == bug; }
  [[nodiscard]] bool Rarely(uint64_t n) { return ++ticks_ % n == 0; }
  Status Usable() const;
  Task<void> WriteOne(Device* device, uint64_t offset, const iovec* part, WaitGroup* group);
  Task<void> FlushOne(Device* device, WaitGroup* group);
  Task<Status> WriteEverywhere(uint64_t offset, std::span<const std::byte> bytes);
  Task<Status> FlushEverywhere();
  Task<Status> Append(std::vector<std::byte> payload);
  Task<Status> Snapshot();
  Task<Status> Settle();
  Task<Status> LoadRoots();
  Task<bool> LoadSnapshot(Root root);
  Task<bool> ReplayOne();

  EventLoop& loop_;
  std::vector<Device*> mirrors_;
  ToyMembers& members_;
  bool read_only_;
  BufferPool pool_;
  AsyncMutex turn_;  // appending
  Event moved_;
  std::set<uint64_t> writing_;  // records in flight
  ToyState state_;
  ToyState before_;  // the last write; for kStaleRead
  Root root_;
  uint64_t position_ = 0;
  uint64_t seq_ = 0;
  uint64_t users_ = 0;
  uint64_t ticks_ = 0;
  bool closing_ = false;
  bool failed_ = false;
  std::vector<Root> found_;
};

// Counts a request for Close, as long as it runs.
class Use {
 public:
  Use(uint64_t& users, Event& event) : users_(users), event_(event) { ++users_; }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  ~Use() {
    --users_;
    event_.NotifyAll();
  }

 private:
  uint64_t& users_;
  Event& event_;
};

Status ToyArray::Usable() const {
  if (closing_ || failed_) {
    return Fail(ErrorCode::kShutdown, closing_ ? "the toy closes" : "the toy has stopped");
  }
  return read_only_ ? Status(Fail(ErrorCode::kReadOnly, "read-only")) : OkStatus();
}

Task<void> ToyArray::WriteOne(Device* device, uint64_t offset, const iovec* part,
                              WaitGroup* group) {
  Task<Status> task = device->Write(offset, std::span(part, 1));
  const Status status = co_await task;
  failed_ = failed_ || !status.ok();
  group->Done();
}

Task<void> ToyArray::FlushOne(Device* device, WaitGroup* group) {
  Task<Status> task = device->Flush();
  const Status status = co_await task;
  failed_ = failed_ || !status.ok();
  group->Done();
}

Task<Status> ToyArray::WriteEverywhere(uint64_t offset, std::span<const std::byte> bytes) {
  const Buffer buffer = pool_.GetZeroed(RoundUp(bytes.size(), kBlockBytes));
  std::memcpy(buffer.data(), bytes.data(), bytes.size());
  const iovec part{buffer.data(), buffer.size()};
  if (Has(ToyBug::kErrorAcked)) {
    Task<Status> task = mirrors_[0]->Write(offset, std::span(&part, 1));
    const Status status = co_await task;
    if (!status.ok()) {
      co_return OkStatus();
    }
  }
  WaitGroup group(loop_);
  group.Add(mirrors_.size());
  for (Device* device : mirrors_) {
    loop_.Spawn(WriteOne(device, offset, &part, &group));
  }
  Task<void> all = group.Wait();
  co_await all;
  Event never(loop_);
  while (failed_ && Has(ToyBug::kErrorHangs)) {
    co_await never.Wait();
  }
  if (Has(ToyBug::kTardy) && Rarely(60)) {
    co_await loop_.Sleep(60'000'000);
  }
  co_return failed_ ? Status(Fail(ErrorCode::kIo, "a mirror failed")) : OkStatus();
}

Task<Status> ToyArray::FlushEverywhere() {
  WaitGroup group(loop_);
  size_t count = Has(ToyBug::kNoFlush) ? 0 : Has(ToyBug::kFlushOne) ? 1 : mirrors_.size();
  for (size_t i = 0; i < count; ++i) {
    group.Add();
    loop_.Spawn(FlushOne(mirrors_[i], &group));
  }
  Task<void> all = group.Wait();
  co_await all;
  co_return failed_ ? Status(Fail(ErrorCode::kIo, "a mirror failed")) : OkStatus();
}

// The whole state into the other half, then the root that names it.
Task<Status> ToyArray::Snapshot() {
  const std::vector<std::byte> bytes = state_.Encode();
  Root next = root_;
  next.generation += 1;
  next.half = 1 - root_.half;
  next.snapshot_bytes = bytes.size();
  next.snapshot_crc = Crc32c(bytes);
  next.first_seq = seq_ + 1;
  next.crc = next.Sum();
  Task<Status> body = WriteEverywhere(next.base(), bytes);
  Status status = co_await body;
  EPLOG_CO_TRY(status);
  Task<Status> first = FlushEverywhere();
  status = co_await first;
  EPLOG_CO_TRY(status);
  Task<Status> head =
      WriteEverywhere(next.generation % 2 * kBlockBytes, std::as_bytes(std::span(&next, 1)));
  status = co_await head;
  EPLOG_CO_TRY(status);
  Task<Status> second = FlushEverywhere();
  status = co_await second;
  EPLOG_CO_TRY(status);
  root_ = next;
  position_ = next.base() + RoundUp(next.snapshot_bytes, kBlockBytes);
  co_return OkStatus();
}

Task<Status> ToyArray::Append(std::vector<std::byte> payload) {
  Task<AsyncMutex::Guard> lock = turn_.Lock();
  AsyncMutex::Guard guard = co_await lock;
  if (failed_) {
    co_return Fail(ErrorCode::kShutdown, "the toy has stopped");
  }
  const uint64_t span = RecordSpan(payload.size());
  if (position_ + span > root_.base() + kHalfBytes) {
    while (!writing_.empty()) {
      co_await moved_.Wait();
    }
    Task<Status> task = Snapshot();
    const Status status = co_await task;
    EPLOG_CO_TRY(status);
  }
  RecordHeader header{root_.epoch, ++seq_, static_cast<uint32_t>(payload.size()), 0};
  header.crc = RecordSum(header, payload);
  std::vector<std::byte> record(sizeof(header) + payload.size());
  std::memcpy(record.data(), &header, sizeof(header));
  std::memcpy(record.data() + sizeof(header), payload.data(), payload.size());
  const uint64_t offset = std::exchange(position_, position_ + span);
  if (Has(ToyBug::kStaleRead)) {
    before_ = state_;
  }
  state_.Apply(payload, Has(ToyBug::kDirtyVolume), Has(ToyBug::kTailKept));
  writing_.insert(header.seq);
  guard.Release();
  Task<Status> task = WriteEverywhere(offset, record);
  const Status status = co_await task;
  writing_.erase(header.seq);
  moved_.NotifyAll();
  co_return status;
}

// Everything appended so far is written and flushed.
Task<Status> ToyArray::Settle() {
  const uint64_t target = seq_;
  while (!writing_.empty() && *writing_.begin() <= target) {
    co_await moved_.Wait();
  }
  Task<Status> task = FlushEverywhere();
  const Status status = co_await task;
  co_return status;
}

// -------------------------------------------------------------------------------------------
// recovery

Task<Status> ToyArray::Format() {
  root_.epoch = 1;
  root_.mirrors = static_cast<uint32_t>(mirrors_.size());
  Task<Status> task = Snapshot();
  const Status status = co_await task;
  co_return status;
}

Task<Status> ToyArray::LoadRoots() {
  const Buffer buffer = pool_.Get(kBlockBytes);
  const iovec part{buffer.data(), buffer.size()};
  for (Device* device : mirrors_) {
    for (uint64_t copy = 0; copy < 2; ++copy) {
      Task<Status> task = device->Read(copy * kBlockBytes, std::span(&part, 1));
      const Status status = co_await task;
      Root root;
      std::memcpy(&root, buffer.data(), sizeof(root));
      if (status.ok() && root.magic == kMagic && root.crc == root.Sum()) {
        found_.push_back(root);
      }
    }
  }
  std::sort(found_.begin(), found_.end(),
            [](const Root& a, const Root& b) { return a.generation > b.generation; });
  co_return found_.empty() ? Status(Fail(ErrorCode::kCorrupt, "no root")) : OkStatus();
}

Task<bool> ToyArray::LoadSnapshot(Root root) {
  const Buffer buffer = pool_.Get(RoundUp(std::max<uint64_t>(root.snapshot_bytes, 1), kBlockBytes));
  const iovec part{buffer.data(), buffer.size()};
  for (Device* device : mirrors_) {
    Task<Status> task = device->Read(root.base(), std::span(&part, 1));
    const Status status = co_await task;
    const auto bytes = std::span<const std::byte>(buffer.span()).first(root.snapshot_bytes);
    if (status.ok() && Crc32c(bytes) == root.snapshot_crc) {
      state_.Decode(bytes);
      root_ = root;
      seq_ = root.first_seq - 1;
      position_ = root.base() + RoundUp(root.snapshot_bytes, kBlockBytes);
      co_return true;
    }
  }
  co_return false;
}

Task<bool> ToyArray::ReplayOne() {
  for (Device* device : mirrors_) {
    const uint64_t room = root_.base() + kHalfBytes - position_;
    if (room == 0) {
      break;
    }
    const Buffer head = pool_.Get(kBlockBytes);
    const iovec first{head.data(), head.size()};
    Task<Status> look = device->Read(position_, std::span(&first, 1));
    const Status looked = co_await look;
    RecordHeader header;
    std::memcpy(&header, head.data(), sizeof(header));
    if (!looked.ok() || header.epoch != root_.epoch || header.seq != seq_ + 1 ||
        RecordSpan(header.bytes) > room) {
      continue;
    }
    const Buffer whole = pool_.Get(RecordSpan(header.bytes));
    const iovec all{whole.data(), whole.size()};
    Task<Status> read = device->Read(position_, std::span(&all, 1));
    const Status status = co_await read;
    const auto payload =
        std::span<const std::byte>(whole.span()).subspan(sizeof(header), header.bytes);
    if (status.ok() && (header.crc == RecordSum(header, payload) || Has(ToyBug::kTornAccepted))) {
      state_.Apply(payload, false, false);
      ++seq_;
      position_ += RecordSpan(header.bytes);
      co_return true;
    }
  }
  co_return false;
}

Task<Status> ToyArray::Recover() {
  Task<Status> roots = LoadRoots();
  Status status = co_await roots;
  EPLOG_CO_TRY(status);
  bool loaded = false;
  for (size_t i = 0; i < found_.size() && !loaded; ++i) {
    Task<bool> task = LoadSnapshot(found_[i]);
    loaded = co_await task;
  }
  if (!loaded) {
    co_return Fail(ErrorCode::kCorrupt, "no snapshot");
  }
  for (bool more = true; more;) {
    Task<bool> task = ReplayOne();
    more = co_await task;
  }
  if (!read_only_ || Has(ToyBug::kWritesReadOnly)) {
    Task<Status> spread =
        WriteEverywhere(root_.generation % 2 * kBlockBytes, std::as_bytes(std::span(&root_, 1)));
    status = co_await spread;
    EPLOG_CO_TRY(status);
  }
  if (read_only_ || Has(ToyBug::kUnstableOpen)) {
    co_return OkStatus();
  }
  Task<Status> flush = FlushEverywhere();
  status = co_await flush;
  EPLOG_CO_TRY(status);
  ++root_.epoch;
  Task<Status> snapshot = Snapshot();
  status = co_await snapshot;
  co_return status;
}

// -------------------------------------------------------------------------------------------
// requests

Task<Status> ToyArray::Read(VolumeId volume, uint64_t offset_bytes, std::span<std::byte> into) {
  const Use use(users_, moved_);
  if (closing_) {
    co_return Fail(ErrorCode::kShutdown, "the toy closes");
  }
  const bool stale = Has(ToyBug::kStaleRead) && Rarely(16);
  const bool ok = stale && before_.Read(volume, offset_bytes, into)
                      ? true
                      : state_.Read(volume, offset_bytes, into);
  co_await loop_.Sleep(10);
  co_return ok ? OkStatus() : Status(Fail(ErrorCode::kNotFound, "no such volume or range"));
}

Task<Status> ToyArray::Write(VolumeId volume, uint64_t offset_bytes,
                             std::span<const std::byte> from) {
  const Use use(users_, moved_);
  const Status usable = Usable();
  EPLOG_CO_TRY(usable);
  if (!state_.Holds(volume, offset_bytes, from.size())) {
    co_return Fail(ErrorCode::kNotFound, "no such volume or range");
  }
  if (Has(ToyBug::kLostWrite) && Rarely(97)) {
    co_return OkStatus();
  }
  std::vector<std::byte> payload;
  if (Has(ToyBug::kUnserialised) && from.size() < 4096) {
    const uint64_t begin = RoundDown(offset_bytes, 4096);
    std::vector<std::byte> merged(4096);
    if (state_.Read(volume, begin, merged) && offset_bytes + from.size() <= begin + 4096) {
      std::memcpy(merged.data() + (offset_bytes - begin), from.data(), from.size());
      co_await loop_.Sleep(200);
      payload = ToyState::WriteRecord(volume, begin, merged);
    }
  }
  if (payload.empty()) {
    payload = ToyState::WriteRecord(volume, offset_bytes, from);
  }
  Task<Status> task = Append(std::move(payload));
  const Status status = co_await task;
  co_return status;
}

Task<Status> ToyArray::Trim(VolumeId volume, uint64_t offset_bytes, uint64_t length_bytes,
                            TrimMode /*mode*/) {
  const std::vector<std::byte> zeros(length_bytes);
  Task<Status> write = Write(volume, offset_bytes, zeros);
  co_return co_await write;
}

Task<Status> ToyArray::Flush(VolumeId volume, uint64_t offset_bytes, uint64_t length_bytes) {
  const Use use(users_, moved_);
  const Status usable = Usable();
  EPLOG_CO_TRY(usable);
  if (!state_.Holds(volume, offset_bytes, length_bytes)) {
    co_return Fail(ErrorCode::kNotFound, "no such volume or range");
  }
  Event never(loop_);
  while (Has(ToyBug::kHang) && Rarely(60)) {
    co_await never.Wait();
  }
  Task<Status> task = Settle();
  const Status status = co_await task;
  co_return status;
}

Task<Status> ToyArray::FlushAll() {
  const Use use(users_, moved_);
  const Status usable = Usable();
  EPLOG_CO_TRY(usable);
  Task<Status> task = Settle();
  const Status status = co_await task;
  co_return status;
}

Task<Status> ToyArray::Commit(Progress /*progress*/) {
  Task<Status> task = FlushAll();
  const Status status = co_await task;
  co_return status;
}

Task<Status> ToyArray::Checkpoint(CheckpointKind /*kind*/) {
  Task<Status> task = FlushAll();
  const Status status = co_await task;
  co_return status;
}

Task<Result<VolumeId>> ToyArray::CreateVolume(std::string name, uint64_t size_bytes) {
  const VolumeId id = state_.NextId();
  Task<Status> task = Append(ToyState::CreateRecord(id, name, size_bytes));
  Status status = co_await task;
  EPLOG_CO_TRY(status);
  if (!Has(ToyBug::kVolumeNotDurable)) {
    Task<Status> flush = FlushAll();
    status = co_await flush;
    EPLOG_CO_TRY(status);
  }
  co_return id;
}

Task<Status> ToyArray::ResizeVolume(VolumeId volume, uint64_t size_bytes) {
  Task<Status> task = Append(ToyState::ResizeRecord(volume, size_bytes));
  Status status = co_await task;
  EPLOG_CO_TRY(status);
  Task<Status> flush = FlushAll();
  status = co_await flush;
  co_return status;
}

Task<Status> ToyArray::RenameVolume(VolumeId volume, std::string new_name, bool replace) {
  Task<Status> task = Append(ToyState::RenameRecord(volume, new_name, replace));
  Status status = co_await task;
  EPLOG_CO_TRY(status);
  Task<Status> flush = FlushAll();
  status = co_await flush;
  co_return status;
}

Task<Status> ToyArray::DeleteVolume(VolumeId volume) {
  Task<Status> task = Append(ToyState::DeleteRecord(volume));
  Status status = co_await task;
  EPLOG_CO_TRY(status);
  Task<Status> flush = FlushAll();
  status = co_await flush;
  co_return status;
}

Task<Status> ToyArray::Close() {
  closing_ = true;
  while (users_ != 0) {
    co_await moved_.Wait();
  }
  if (read_only_) {
    co_return OkStatus();
  }
  if (failed_) {
    co_return Fail(ErrorCode::kIo, "the toy has stopped");
  }
  Task<Status> task = Settle();
  const Status status = co_await task;
  co_return status;
}

Task<Result<CheckReport>> ToyArray::Check(Progress /*progress*/) {
  co_return CheckReport();
}

ArrayStatus ToyArray::GetStatus() const {
  ArrayStatus status;
  status.stopped_because = failed_ ? "a mirror failed" : "";
  status.read_only = read_only_;
  return status;
}

std::vector<Device*> Mirrors(const std::vector<Device*>& devices, const ToyMembers& members) {
  std::vector<Device*> mirrors;
  for (Device* device : devices) {
    const bool ssd = device->name().starts_with("ssd");
    if (ssd && (!members.dropped.contains(device->name()) || members.bug == ToyBug::kTrustsStale)) {
      mirrors.push_back(device);
    }
  }
  if (members.bug == ToyBug::kTrustsStale) {
    const auto first =
        std::min_element(mirrors.begin(), mirrors.end(),
                         [](const Device* a, const Device* b) { return a->name() < b->name(); });
    mirrors = {*first};
  }
  return mirrors;
}

}  // namespace

const char* ToyBugName(ToyBug bug) {
  static constexpr const char* kNames[kToyBugs] = {
      "none",         "no-flush",           "flush-one",    "torn-accepted",    "stale-read",
      "lost-write",   "volume-not-durable", "dirty-volume", "tail-kept",        "hang",
      "unserialised", "unstable-open",      "trusts-stale", "writes-read-only", "tardy",
      "error-acked",  "error-hangs"};
  return kNames[static_cast<size_t>(bug)];
}

uint64_t ToyFactory::min_ssd_bytes() const {
  return 2 * kBlockBytes + 2 * kHalfBytes;
}

Task<Status> ToyFactory::Create(EventLoop& loop, std::vector<Device*> ssds,
                                std::vector<Device*> /*logs*/, CreateOptions /*options*/) {
  ToyArray array(loop, std::move(ssds), members_, false);
  Task<Status> task = array.Format();
  const Status status = co_await task;
  co_return status;
}

Task<Result<std::unique_ptr<Array>>> ToyFactory::Open(EventLoop& loop, std::vector<Device*> devices,
                                                      OpenOptions options, EngineHooks* /*hooks*/) {
  if (!options.read_only) {
    // Who is not here now has missed something for good.
    std::set<std::string> present;
    uint32_t most = 0;
    for (const Device* device : devices) {
      present.insert(device->name());
      most = std::max(most, kMaxSsds);
    }
    for (uint32_t i = 0; i < most; ++i) {
      const std::string name = "ssd" + std::to_string(i);
      if (!present.contains(name)) {
        members_.dropped.insert(name);
      }
    }
  }
  auto array =
      std::make_unique<ToyArray>(loop, Mirrors(devices, members_), members_, options.read_only);
  Task<Status> task = array->Recover();
  const Status status = co_await task;
  EPLOG_CO_TRY(status);
  co_return std::unique_ptr<Array>(std::move(array));
}

}  // namespace eplog::torture
