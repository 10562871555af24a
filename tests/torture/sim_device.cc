#include "tests/torture/sim_device.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/crc32c.h"
#include "layout/geometry.h"

namespace eplog::torture {
namespace {

// What a frozen machine waits on; only EventLoop::Abort ends it.
struct Never {
  [[nodiscard]] bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> /*handle*/) const noexcept {}
  void await_resume() const noexcept {}
};

bool IsWriteKind(IoKind kind) {
  return kind != IoKind::kRead && kind != IoKind::kFlush && kind != IoKind::kDiscard;
}

std::vector<std::byte> Gather(std::span<const iovec> parts) {
  std::vector<std::byte> all;
  all.reserve(TotalBytes(parts));
  for (const iovec& part : parts) {
    const auto* begin = static_cast<const std::byte*>(part.iov_base);
    all.insert(all.end(), begin, begin + part.iov_len);
  }
  return all;
}

// Bytes to where they belong in `parts`, from their byte `at` on.
void Scatter(std::span<const std::byte> bytes, size_t at, std::span<const iovec> parts) {
  for (const iovec& part : parts) {
    if (at < part.iov_len) {
      const size_t length = std::min(bytes.size(), part.iov_len - at);
      std::memcpy(static_cast<std::byte*>(part.iov_base) + at, bytes.data(), length);
      bytes = bytes.subspan(length);
      at += length;
      if (bytes.empty()) {
        return;
      }
    }
    at -= part.iov_len;
  }
}

}  // namespace

// ----------------------------------------------------------------------------------------------
// SimBus

SimBus::SimBus(VirtualLoop& loop, uint64_t seed) : loop_(loop), random_(seed) {
  static constexpr uint64_t kSpreads[] = {3, 40, 400, 4000};
  spread_us_ = kSpreads[random_.Below(4)];
}

void SimBus::Thaw() {
  stricken_ = false;
  strike_.reset();
  dooms_.clear();
  slow_in_flight_ = 0;
  for (auto& queue : expected_) {
    queue.clear();
  }
}

void SimBus::NoteSubmitted(IoKind kind) {
  slow_in_flight_ += kind == slow_kind_ ? 1 : 0;
}

void SimBus::NoteCompleted(IoKind kind) {
  if (kind == slow_kind_) {
    --slow_in_flight_;
  } else if (slow_in_flight_ != 0 && random_.OneIn(30)) {
    overtaken_ = true;
  }
}

void SimBus::Expect(uint8_t device, IoKind kind) {
  auto& queue = expected_[device];
  queue.push_back(kind);
  if (queue.size() > 256) {
    queue.pop_front();
  }
}

IoKind SimBus::TakeKind(uint8_t device, IoKind fallback, uint64_t offset_bytes) {
  auto& queue = expected_[device];
  const bool write = IsWriteKind(fallback);
  const auto found = std::find_if(queue.begin(), queue.end(), [&](IoKind kind) {
    return kind == fallback || (write && IsWriteKind(kind));
  });
  if (found != queue.end()) {
    const IoKind kind = *found;
    queue.erase(found);
    return kind;
  }
  return write && classify_ ? classify_(device, offset_bytes) : fallback;
}

bool SimBus::StrikeAt(IoKind kind, Moment moment) {
  if (!strike_ || stricken_) {
    return false;
  }
  if (strike_->after && moment == Moment::kSubmitted && kind == *strike_->after) {
    ++laps_;
    count_ = 0;
  }
  if (moment != strike_->moment ||
      (strike_->after && laps_ < std::max<uint64_t>(strike_->laps, 1))) {
    return false;
  }
  const bool fits = strike_->kind ? *strike_->kind == kind : kind != IoKind::kRead;
  if (!fits || ++count_ < strike_->countdown) {
    return false;
  }
  stricken_ = true;
  struck_kind_ = kind;
  strike_.reset();
  return true;
}

void SimBus::Inject(const FaultPlan& plan) {
  fault_ = plan;
  fault_fired_ = false;
  requests_ = 0;
  writes_ = 0;
  dead_device_ = -1;
  hung_device_ = -1;
}

std::optional<ErrorCode> SimBus::FaultFor(uint8_t device, IoKind kind) {
  ++requests_;
  writes_ += IsWriteKind(kind) ? 1 : 0;
  if (dead_device_ == device || IsLate(device)) {
    return HangsUntil(device) ? ErrorCode::kDeviceFailed : ErrorCode::kIo;
  }
  if (const std::optional<ErrorCode> doom = DoomStrikes(device, kind)) {
    return *doom;
  }
  const bool only_writes = fault_.style == FaultStyle::kNoSpace;
  if (fault_.nth == 0 || fault_fired_ || (only_writes && !IsWriteKind(kind)) ||
      (only_writes ? writes_ : requests_) != fault_.nth) {
    return std::nullopt;
  }
  fault_fired_ = true;
  if (fault_.style == FaultStyle::kDeviceDies) {
    dead_device_ = device;
  }
  if (fault_.style == FaultStyle::kHangs) {
    hung_device_ = device;
    hung_us_ = loop_.NowUs();
    written_.clear();
    return ErrorCode::kDeviceFailed;
  }
  return only_writes ? ErrorCode::kNoSpace : ErrorCode::kIo;
}

std::optional<ErrorCode> SimBus::DoomStrikes(uint8_t device, IoKind kind) {
  bool fails = false;
  bool no_space = false;
  for (ArmedDoom& armed : dooms_) {
    Doom& doom = armed.doom;
    const bool writes = IsWriteKind(kind);
    const bool fits = doom.style == Doom::Style::kDies || doom.style == Doom::Style::kHangs ||
                      (doom.style == Doom::Style::kLies && writes) ||
                      (doom.style == Doom::Style::kFailsWrite && writes) ||
                      (doom.style == Doom::Style::kFailsFlush && kind == IoKind::kFlush) ||
                      (doom.style == Doom::Style::kReadsBadly && kind == IoKind::kRead) ||
                      (doom.style == Doom::Style::kNoSpace && (writes || kind == IoKind::kFlush));
    if (doom.device != device || !fits) {
      continue;
    }
    bool strikes = false;
    if (armed.met) {
      strikes = doom.style == Doom::Style::kDies || doom.style == Doom::Style::kHangs ||
                (doom.style == Doom::Style::kReadsBadly && random_.Below(4) < doom.bad_of_four) ||
                (doom.style == Doom::Style::kNoSpace && random_.OneIn(2));
    } else if (--doom.countdown == 0) {
      armed.met = true;
      armed.met_us = loop_.NowUs();
      strikes = doom.style != Doom::Style::kLies;
      on_doom_(doom);
    }
    (doom.style == Doom::Style::kNoSpace ? no_space : fails) |= strikes;
  }
  if (fails) {
    return HangsUntil(device) ? ErrorCode::kDeviceFailed : ErrorCode::kIo;
  }
  return no_space ? std::optional(ErrorCode::kNoSpace) : std::nullopt;
}

bool SimBus::SomeReadBadly() const {
  return std::any_of(dooms_.begin(), dooms_.end(), [](const ArmedDoom& armed) {
    return armed.doom.style == Doom::Style::kReadsBadly;
  });
}

bool SimBus::ReadsBadly(uint8_t device) const {
  return std::any_of(dooms_.begin(), dooms_.end(), [device](const ArmedDoom& armed) {
    return armed.doom.style == Doom::Style::kReadsBadly && armed.doom.device == device;
  });
}

bool SimBus::IsDead(uint8_t device) const {
  return std::any_of(dooms_.begin(), dooms_.end(), [device](const ArmedDoom& armed) {
    const bool ends =
        armed.doom.style == Doom::Style::kDies || armed.doom.style == Doom::Style::kHangs;
    return armed.met && ends && armed.doom.device == device;
  });
}

bool SimBus::LosesSuperblocks(uint8_t device) const {
  return std::any_of(dooms_.begin(), dooms_.end(), [device](const ArmedDoom& armed) {
    return armed.met && armed.doom.superblocks && armed.doom.device == device;
  });
}

bool SimBus::IsLate(uint8_t device) const {
  return hung_device_ >= 0 &&
         (device + fault_.devices - static_cast<uint32_t>(hung_device_)) % fault_.devices <
             fault_.hanging;
}

std::vector<std::byte> SimBus::Reused(Random& random, const std::vector<std::byte>& was,
                                      uint64_t since) const {
  std::vector<std::byte> now = was;
  if (random.OneIn(3)) {
    return now;
  }
  std::vector<const std::vector<std::byte>*> later;
  for (const auto& [submitted, data] : written_) {
    if (submitted >= since && data->size() == was.size()) {  // it is given out by size
      later.push_back(data.get());
    }
  }
  if (later.empty() || random.OneIn(3)) {  // something was read into it
    std::generate(now.begin(), now.end(), [&] { return static_cast<std::byte>(random.Next()); });
    return now;
  }
  return *later[random.Below(later.size())];
}

std::optional<uint64_t> SimBus::HangsUntil(uint8_t device) const {
  constexpr uint64_t kDeadlineUs = 500'000;
  if (IsLate(device)) {
    return hung_us_ + kDeadlineUs;
  }
  for (const ArmedDoom& armed : dooms_) {
    if (armed.met && armed.doom.device == device && armed.doom.style == Doom::Style::kHangs) {
      return armed.met_us + kDeadlineUs;
    }
  }
  return std::nullopt;
}

// About superblocks, or about all else: a device without its newest superblock is a stale one,
// which is another case.
bool SimBus::Lies(uint8_t device, IoKind kind) {
  const bool superblock = kind == IoKind::kSuperblock;
  const bool liar = std::any_of(dooms_.begin(), dooms_.end(), [&](const ArmedDoom& armed) {
    return armed.met && armed.doom.device == device && armed.doom.style == Doom::Style::kLies &&
           armed.doom.superblocks == superblock;
  });
  return liar && random_.OneIn(superblock ? 2 : 3);
}

uint64_t SimBus::LatencyUs(uint8_t device, IoKind kind, uint64_t bytes) {
  if (random_.OneIn(50)) {
    // Now and then another device is slow for a while, so that devices drift apart.
    slow_device_ = random_.OneIn(3) ? -1 : static_cast<int>(random_.Below(14));
  }
  if (const auto until = HangsUntil(device)) {
    return std::max(*until, loop_.NowUs() + 1) - loop_.NowUs();
  }
  const uint64_t base = 5 + bytes / 4096 + random_.Below(spread_us_);
  if (kind == slow_kind_) {
    return 20 * spread_us_ + base;  // alike on all devices: as long as one is on its way, all are
  }
  return device == slow_device_ ? base * (5 + random_.Below(60)) : base;
}

void SimBus::Mix(uint64_t value) {
  hash_ = (hash_ ^ value) * 0x9E3779B97F4A7C15ULL;
  hash_ ^= hash_ >> 29;
}

void SimBus::Complain(std::string what) {
  if (complaint_.empty()) {
    complaint_ = std::move(what);
  }
}

// -------------------------------------------------------------------------------------------
// PageImage

PageImage::PageImage(uint64_t size_bytes) : pages_(DivideUp(size_bytes, kBlockBytes)) {}

void PageImage::Read(uint64_t offset_bytes, std::span<std::byte> into) const {
  while (!into.empty()) {
    const uint64_t within = offset_bytes % kBlockBytes;
    const size_t length = std::min<size_t>(into.size(), kBlockBytes - within);
    const auto& page = pages_[offset_bytes / kBlockBytes];
    if (page != nullptr) {
      std::memcpy(into.data(), page->data() + within, length);
    } else {
      std::memset(into.data(), 0, length);
    }
    offset_bytes += length;
    into = into.subspan(length);
  }
}

void PageImage::Write(uint64_t offset_bytes, std::span<const std::byte> from) {
  while (!from.empty()) {
    const uint64_t within = offset_bytes % kBlockBytes;
    const size_t length = std::min<size_t>(from.size(), kBlockBytes - within);
    auto& page = pages_[offset_bytes / kBlockBytes];
    auto changed = page == nullptr ? std::make_shared<Page>() : std::make_shared<Page>(*page);
    std::memcpy(changed->data() + within, from.data(), length);
    page = std::move(changed);
    offset_bytes += length;
    from = from.subspan(length);
  }
}

void PageImage::Write(uint64_t offset_bytes, const Written& from) {
  if (offset_bytes % kBlockBytes != 0 || from->size() % kBlockBytes != 0) {
    Write(offset_bytes, std::span(*from));
    return;
  }
  for (size_t at = 0; at < from->size(); at += kBlockBytes) {
    pages_[(offset_bytes + at) / kBlockBytes] = std::shared_ptr<const Page>(
        from, reinterpret_cast<const Page*>(from->data() + at));  // which keeps all of it
  }
}

// -------------------------------------------------------------------------------------------
// SimDevice

SimDevice::SimDevice(SimBus& bus, uint8_t index, std::string name, uint64_t size_bytes,
                     DeviceCapabilities capabilities)
    : bus_(bus),
      index_(index),
      name_(std::move(name)),
      size_bytes_(size_bytes),
      capabilities_(capabilities),
      visible_(size_bytes),
      durable_(size_bytes) {}

SimDevice::SimDevice(SimBus& bus, const SimDevice& other)
    : bus_(bus),
      index_(other.index_),
      name_(other.name_),
      size_bytes_(other.size_bytes_),
      capabilities_(other.capabilities_),
      visible_(other.visible_),
      durable_(other.durable_),
      cached_(other.cached_),
      in_flight_(other.in_flight_),
      next_id_(other.next_id_),
      next_order_(other.next_order_),
      lately_(other.lately_),
      written_(other.written_),
      unreadable_(other.unreadable_) {}

Error SimDevice::Failure(ErrorCode code, const char* what, uint64_t offset_bytes) const {
  Error error;
  error.code = code;
  error.message = name_ + ": " + what + " failed";
  error.device = index_;
  error.offset_bytes = static_cast<int64_t>(offset_bytes);
  error.errno_value = code == ErrorCode::kNoSpace ? ENOSPC : EIO;
  return error;
}

bool SimDevice::Sane(const char* what, uint64_t offset_bytes, std::span<const iovec> parts) {
  const uint64_t align = capabilities_.alignment_bytes;
  bool aligned = offset_bytes % align == 0;
  for (const iovec& part : parts) {
    aligned = aligned && part.iov_len % align == 0 &&
              reinterpret_cast<uintptr_t>(part.iov_base) % align == 0;
  }
  const uint64_t length = TotalBytes(parts);
  const bool inside = offset_bytes <= size_bytes_ && length <= size_bytes_ - offset_bytes;
  if (!aligned || !inside || length == 0) {
    bus_.Complain(name_ + ": " + what + " of " + std::to_string(length) + " bytes at " +
                  std::to_string(offset_bytes) +
                  (length == 0 ? " is empty"
                   : aligned   ? " is past the end"
                               : " is not aligned"));
  }
  return inside;
}

uint64_t SimDevice::Submit(IoKind kind, uint64_t offset_bytes, std::vector<std::byte> data) {
  const uint64_t id = next_id_++;
  CachedWrite& write = in_flight_[id];
  bus_.NoteSubmitted(kind);
  write.kind = kind;
  write.submitted = bus_.submitted_++;
  write.offset_bytes = offset_bytes;
  write.data = std::make_shared<const std::vector<std::byte>>(std::move(data));
  if (bus_.hung_device_ >= 0) {
    constexpr size_t kRemembered = 64;
    bus_.written_.emplace_back(write.submitted, write.data);
    if (bus_.written_.size() > kRemembered) {
      bus_.written_.pop_front();
    }
  }
  return id;
}

void SimDevice::Complete(uint64_t id, std::span<const iovec> from) {
  const auto found = in_flight_.find(id);
  CachedWrite write = std::move(found->second);
  in_flight_.erase(found);
  bus_.NoteCompleted(write.kind);
  size_t at = 0;
  for (const iovec& part : from) {
    if (std::memcmp(part.iov_base, write.data->data() + at, part.iov_len) != 0) {
      bus_.Complain(name_ + ": memory of a write at " + std::to_string(write.offset_bytes) +
                    " changed while it was in flight");
    }
    at += part.iov_len;
  }
  visible_.Write(write.offset_bytes, write.data);
  NoteWritten(write.offset_bytes, write.data->size());
  write.order = next_order_++;
  cached_.push_back(std::move(write));
}

// A failed write leaves any of its sectors behind.
void SimDevice::CompleteBadly(uint64_t id) {
  const auto found = in_flight_.find(id);
  const CachedWrite write = std::move(found->second);
  in_flight_.erase(found);
  bus_.NoteCompleted(write.kind);
  auto mixed = std::make_shared<std::vector<std::byte>>(write.data->size());
  visible_.Read(write.offset_bytes, *mixed);
  for (size_t at = 0; at < mixed->size(); at += kSectorBytes) {
    if (bus_.random().OneIn(2)) {
      std::memcpy(mixed->data() + at, write.data->data() + at,
                  std::min<size_t>(kSectorBytes, mixed->size() - at));
    }
  }
  visible_.Write(write.offset_bytes, mixed);
  cached_.push_back(
      {write.offset_bytes, std::move(mixed), write.kind, write.submitted, next_order_++, false});
}

// It stays in flight; only a crash shows what became of it.
void SimDevice::GiveUp(uint64_t id) {
  CachedWrite& write = in_flight_.find(id)->second;
  write.late_since = bus_.submitted_;
  bus_.NoteCompleted(write.kind);
}

// It succeeds, and what is on the device afterwards is wrong. Nothing lands where superblocks are.
void SimDevice::CompleteWithALie(uint64_t id) {
  const auto found = in_flight_.find(id);
  const uint64_t style = found->second.kind == IoKind::kSuperblock ? 1 : bus_.random().Below(3);
  if (style == 0) {
    CompleteBadly(id);
    return;
  }
  CachedWrite write = std::move(found->second);
  in_flight_.erase(found);
  bus_.NoteCompleted(write.kind);
  if (style == 1) {
    return;  // lost
  }
  const uint64_t first = kSuperblockAreaBytes / kBlockBytes;
  const uint64_t blocks = (size_bytes_ - write.data->size()) / kBlockBytes;
  write.offset_bytes = bus_.random().Between(first, blocks) * kBlockBytes;
  visible_.Write(write.offset_bytes, write.data);
  write.order = next_order_++;
  cached_.push_back(std::move(write));
}

// What a read gets: the completed writes, and any sectors of those in flight.
void SimDevice::Deliver(uint64_t offset_bytes, std::span<const iovec> into) {
  uint64_t at = offset_bytes;
  for (const iovec& part : into) {
    visible_.Read(at, std::span(static_cast<std::byte*>(part.iov_base), part.iov_len));
    at += part.iov_len;
  }
  for (const auto& [id, write] : in_flight_) {
    const uint64_t begin = std::max(offset_bytes, write.offset_bytes);
    const uint64_t end = std::min(at, write.offset_bytes + write.data->size());
    for (uint64_t sector = begin; sector < end; sector += kSectorBytes) {
      if (bus_.random().OneIn(2)) {
        const size_t length = std::min<uint64_t>(kSectorBytes, end - sector);
        Scatter(std::span(*write.data).subspan(sector - write.offset_bytes, length),
                sector - offset_bytes, into);
      }
    }
  }
}

// What was durable there after it cannot be undone by it: of an orphan only what `newer` leaves.
void SimDevice::Outlive(std::deque<CachedWrite>& writes, const CachedWrite& newer) {
  std::deque<CachedWrite> left;
  const uint64_t from = newer.offset_bytes;
  const uint64_t to = from + newer.data->size();
  const auto keep = [&left](const CachedWrite& write, uint64_t begin, uint64_t end) {
    if (begin < end) {
      CachedWrite part = write;
      const auto first =
          write.data->begin() + static_cast<std::ptrdiff_t>(begin - write.offset_bytes);
      part.offset_bytes = begin;
      part.data = std::make_shared<const std::vector<std::byte>>(
          first, first + static_cast<std::ptrdiff_t>(end - begin));
      left.push_back(std::move(part));
    }
  };
  for (const CachedWrite& write : writes) {
    const uint64_t begin = write.offset_bytes;
    const uint64_t end = begin + write.data->size();
    if (!write.orphan || write.order > newer.order || end <= from || to <= begin) {
      left.push_back(write);
      continue;
    }
    keep(write, begin, std::min(end, from));
    keep(write, std::max(begin, to), end);
  }
  writes = std::move(left);
}

void SimDevice::Covered(uint64_t upto_order, bool failed) {
  if (failed) {
    for (CachedWrite& write : cached_) {
      write.orphan = write.orphan || write.order <= upto_order;
    }
    return;
  }
  std::deque<CachedWrite> left;
  for (CachedWrite& write : cached_) {
    if (write.order <= upto_order && !write.orphan) {
      durable_.Write(write.offset_bytes, write.data);
      Outlive(left, write);
    } else {
      left.push_back(std::move(write));
    }
  }
  cached_ = std::move(left);
}

bool SimDevice::IsForgetful() const {
  return std::any_of(cached_.begin(), cached_.end(),
                     [](const CachedWrite& write) { return write.orphan; });
}

Task<Status> SimDevice::Read(uint64_t offset_bytes, std::span<const iovec> into) {
  const IoKind kind = bus_.TakeKind(index_, IoKind::kRead, offset_bytes);
  if (bus_.stricken() || bus_.StrikeAt(kind, Moment::kBefore)) {
    co_await Never{};
  }
  const uint64_t length = TotalBytes(into);
  const auto fault = bus_.FaultFor(index_, kind);
  const bool inside = Sane("a read", offset_bytes, into);
  bus_.Mix(index_ * 64U + static_cast<uint64_t>(kind));
  bus_.Mix(offset_bytes * 31 + length);
  ++others_in_flight_;
  const bool early = inside && bus_.random().OneIn(4);
  if (early) {
    Deliver(offset_bytes, into);
  }
  if (bus_.StrikeAt(kind, Moment::kSubmitted)) {
    co_await Never{};
  }
  co_await bus_.loop().Sleep(bus_.LatencyUs(index_, kind, length));
  if (bus_.stricken()) {
    co_await Never{};
  }
  --others_in_flight_;
  bus_.StrikeAt(kind, Moment::kCompleted);
  if (fault || !inside || !Readable(offset_bytes, length)) {
    co_return Fail(Failure(fault.value_or(ErrorCode::kIo), "read", offset_bytes));
  }
  if (!early) {
    Deliver(offset_bytes, into);
  }
  co_return OkStatus();
}

Task<Status> SimDevice::Write(uint64_t offset_bytes, std::span<const iovec> from) {
  const IoKind kind = bus_.TakeKind(index_, IoKind::kData, offset_bytes);
  if (bus_.stricken() || bus_.StrikeAt(kind, Moment::kBefore)) {
    co_await Never{};
  }
  if (!Sane("a write", offset_bytes, from)) {
    co_return Fail(Failure(ErrorCode::kIo, "write", offset_bytes));
  }
  const auto fault = bus_.FaultFor(index_, kind);
  ++writes_submitted_;
  std::vector<std::byte> data = Gather(from);
  const size_t length = data.size();
  bus_.Mix(index_ * 64U + static_cast<uint64_t>(kind));
  bus_.Mix(offset_bytes * 31 + length);
  bus_.Mix(Crc32c(data));
  const uint64_t id = Submit(kind, offset_bytes, std::move(data));
  if (bus_.StrikeAt(kind, Moment::kSubmitted)) {
    co_await Never{};
  }
  co_await bus_.loop().Sleep(bus_.LatencyUs(index_, kind, length));
  if (bus_.stricken()) {
    co_await Never{};
  }
  if (fault) {
    bus_.IsLate(index_) ? GiveUp(id) : CompleteBadly(id);
    bus_.told_of_no_space_ |= *fault == ErrorCode::kNoSpace;
    co_return Fail(Failure(*fault, "write", offset_bytes));
  }
  if (bus_.Lies(index_, kind)) {
    CompleteWithALie(id);
  } else {
    Complete(id, from);
  }
  bus_.StrikeAt(kind, Moment::kCompleted);
  co_return OkStatus();
}

Task<Status> SimDevice::Flush() {
  const IoKind kind = bus_.TakeKind(index_, IoKind::kFlush, 0);
  if (bus_.stricken() || bus_.StrikeAt(kind, Moment::kBefore)) {
    co_await Never{};
  }
  const auto fault = bus_.FaultFor(index_, kind);
  bus_.Mix(index_ * 64U + static_cast<uint64_t>(kind));
  ++others_in_flight_;
  const uint64_t upto = next_order_ - 1;  // only what has completed by now
  if (bus_.StrikeAt(kind, Moment::kSubmitted)) {
    co_await Never{};
  }
  co_await bus_.loop().Sleep(bus_.LatencyUs(index_, kind, 4096));
  if (bus_.stricken()) {
    co_await Never{};
  }
  --others_in_flight_;
  if (fault != ErrorCode::kNoSpace) {
    Covered(upto, fault.has_value());
  }
  bus_.StrikeAt(kind, Moment::kCompleted);
  if (fault == ErrorCode::kNoSpace) {
    bus_.told_of_no_space_ = true;
    co_return Fail(Failure(*fault, "flush", 0));
  }
  if (fault) {
    bus_.TellFailedFlush(index_);
    co_return Fail(Failure(*fault, "flush", 0));
  }
  co_return OkStatus();
}

Task<Status> SimDevice::Discard(uint64_t offset_bytes, uint64_t length_bytes) {
  const IoKind kind = bus_.TakeKind(index_, IoKind::kDiscard, offset_bytes);
  if (bus_.stricken() || bus_.StrikeAt(kind, Moment::kBefore)) {
    co_await Never{};
  }
  if (offset_bytes > size_bytes_ || length_bytes > size_bytes_ - offset_bytes ||
      !capabilities_.discard) {
    bus_.Complain(name_ + ": a discard that is past the end or not offered");
    co_return Fail(Failure(ErrorCode::kIo, "discard", offset_bytes));
  }
  const auto fault = bus_.FaultFor(index_, kind);
  bus_.Mix(index_ * 64U + static_cast<uint64_t>(kind));
  bus_.Mix(offset_bytes * 31 + length_bytes);
  // Undefined afterwards: garbage, which a crash may tear like any write.
  std::vector<std::byte> garbage(length_bytes);
  for (std::byte& byte : garbage) {
    byte = static_cast<std::byte>(bus_.random().Next());
  }
  const uint64_t id = Submit(kind, offset_bytes, std::move(garbage));
  if (bus_.StrikeAt(kind, Moment::kSubmitted)) {
    co_await Never{};
  }
  co_await bus_.loop().Sleep(bus_.LatencyUs(index_, kind, 4096));
  if (bus_.stricken()) {
    co_await Never{};
  }
  Complete(id, {});
  bus_.StrikeAt(kind, Moment::kCompleted);
  if (fault) {
    co_return Fail(Failure(*fault, "discard", offset_bytes));
  }
  co_return OkStatus();
}

CutStyle RandomCutStyle(Random& random, uint64_t oldest, uint64_t newest) {
  using Fate = CutStyle::Fate;
  static constexpr Fate kFates[] = {
      Fate::kKeep,     Fate::kDrop,     Fate::kDrop,     Fate::kEach,     Fate::kEach,
      Fate::kEach,     Fate::kEach,     Fate::kNewer,    Fate::kOlder,    Fate::kOlder,
      Fate::kDropKind, Fate::kKeepKind, Fate::kAnswered, Fate::kAnswered, Fate::kTorn};
  static constexpr IoKind kKinds[] = {
      IoKind::kData,   IoKind::kParity,         IoKind::kEntry,      IoKind::kRing,
      IoKind::kRepair, IoKind::kCheckpointPage, IoKind::kSuperblock, IoKind::kCheckpointRoot};
  CutStyle style;
  style.fate = kFates[random.Below(std::size(kFates))];
  style.moment = oldest <= newest ? random.Between(oldest, newest) : newest;
  style.kind = kKinds[random.Below(std::size(kKinds))];
  return style;
}

void SimDevice::ApplyFate(Random& random, const CachedWrite& write, const CutStyle& style) {
  uint64_t fate = 0;  // kept
  switch (style.fate) {
    case CutStyle::Fate::kKeep:
      break;
    case CutStyle::Fate::kDrop:
      fate = 1;
      break;
    case CutStyle::Fate::kEach:
      fate = random.Below(4);
      break;
    case CutStyle::Fate::kNewer:
      fate = write.submitted < style.moment ? 1 : 0;
      break;
    case CutStyle::Fate::kOlder:
      fate = write.submitted < style.moment ? 0 : 1;
      break;
    case CutStyle::Fate::kDropKind:
      fate = write.kind == style.kind ? 1 : 0;
      break;
    case CutStyle::Fate::kKeepKind:
      fate = write.kind == style.kind ? 0 : 1;
      break;
    case CutStyle::Fate::kAnswered:
      fate = write.order == 0 ? 1 : 0;
      break;
    case CutStyle::Fate::kTorn:
      fate = random.Between(2, 3);
      break;
  }
  if (fate == 0) {
    durable_.Write(write.offset_bytes, write.data);
    return;
  }
  if (fate == 1) {
    return;
  }
  const std::span<const std::byte> data(*write.data);
  const uint64_t sectors = DivideUp(data.size(), kSectorBytes);
  const uint64_t cut = random.Below(sectors + 1);
  const bool from_front = random.OneIn(2);
  for (uint64_t i = 0; i < sectors; ++i) {
    const bool kept = fate == 2 ? random.OneIn(2) : (i < cut) == from_front;
    if (kept) {
      const size_t at = i * kSectorBytes;
      const size_t length = std::min<size_t>(kSectorBytes, data.size() - at);
      durable_.Write(write.offset_bytes + at, data.subspan(at, length));
    }
  }
  if (random.OneIn(3)) {
    // The sector that was being written when the power went has neither content.
    const uint64_t at = random.Below(sectors) * kSectorBytes;
    std::array<std::byte, kSectorBytes> garbage{};
    for (std::byte& byte : garbage) {
      byte = static_cast<std::byte>(random.Below(256));
    }
    const size_t length = std::min<size_t>(kSectorBytes, data.size() - at);
    durable_.Write(write.offset_bytes + at, std::span(garbage).first(length));
  }
}

void SimDevice::AgeRange(uint64_t& oldest, uint64_t& newest) const {
  for (const CachedWrite& write : cached_) {
    oldest = std::min(oldest, write.submitted);
    newest = std::max(newest, write.submitted);
  }
  for (const auto& [id, write] : in_flight_) {
    oldest = std::min(oldest, write.submitted);
    newest = std::max(newest, write.submitted);
  }
}

// Those that were given up land now, as whatever they are by now.
void SimDevice::LateOnesLand(Random& random) {
  for (auto& [id, write] : in_flight_) {
    if (write.late_since != 0) {
      write.data = std::make_shared<const std::vector<std::byte>>(
          bus_.Reused(random, *write.data, write.late_since));
    }
  }
}

void SimDevice::PowerCut(Random& random, const CutStyle& style) {
  LateOnesLand(random);
  std::vector<CachedWrite> writes(cached_.begin(), cached_.end());
  const size_t completed = writes.size();
  for (auto& [id, write] : in_flight_) {
    writes.push_back(std::move(write));
  }
  for (size_t i = writes.size(); i > completed + 1; --i) {
    std::swap(writes[i - 1], writes[completed + random.Below(i - completed)]);
  }
  for (const CachedWrite& write : writes) {
    ApplyFate(random, write, style);
  }
  cached_.clear();
  in_flight_.clear();
  others_in_flight_ = 0;
  visible_ = durable_;
}

void SimDevice::Kill(Random& random) {
  LateOnesLand(random);
  std::vector<CachedWrite> flying;
  for (auto& [id, write] : in_flight_) {
    flying.push_back(std::move(write));
  }
  in_flight_.clear();
  others_in_flight_ = 0;
  for (size_t i = flying.size(); i > 0; --i) {
    std::swap(flying[i - 1], flying[random.Below(i)]);
    CachedWrite& write = flying[i - 1];
    visible_.Write(write.offset_bytes, write.data);
    write.order = next_order_++;
    cached_.push_back(std::move(write));
  }
}

uint64_t SimDevice::Corrupt(Random& random, uint64_t from_bytes, uint64_t one_in) {
  uint64_t hits = 0;
  for (uint64_t page = from_bytes / kBlockBytes; page < visible_.pages(); ++page) {
    if (!visible_.HasPage(page) || !random.OneIn(one_in)) {
      continue;
    }
    FlipBytes(random, page * kBlockBytes + random.Below(kBlockBytes / kSectorBytes) * kSectorBytes);
    ++hits;
  }
  return hits;
}

void SimDevice::FlipBytes(Random& random, uint64_t sector_at) {
  std::array<std::byte, kSectorBytes> sector{};
  visible_.Read(sector_at, sector);
  for (size_t i = random.Below(8); i < sector.size(); i += 1 + random.Below(100)) {
    sector[i] ^= static_cast<std::byte>(1 + random.Below(255));
  }
  visible_.Write(sector_at, sector);
  durable_.Write(sector_at, sector);
}

std::optional<uint64_t> SimDevice::Rot(Random& random, const RotPlan& plan) {
  const auto rot = [&](uint64_t at) {
    const uint64_t page = at / kBlockBytes;
    const uint64_t sector_at =
        page * kBlockBytes + random.Below(kBlockBytes / kSectorBytes) * kSectorBytes;
    if (plan.unreadable) {
      unreadable_.insert(sector_at / kSectorBytes);
    } else {
      FlipBytes(random, sector_at);
    }
    return page * kBlockBytes;
  };
  const auto fits = [&](uint64_t at) {
    return at >= plan.from_bytes && at < plan.to_bytes && visible_.HasPage(at / kBlockBytes);
  };
  const uint64_t known = std::min(written_, kLately);
  const auto any_of = [&](const Range& range) {
    const uint64_t blocks = DivideUp(range.length_bytes, kBlockBytes);
    return range.offset_bytes + random.Below(blocks) * kBlockBytes;
  };
  for (uint64_t back = 0; plan.newest && back < known; ++back) {
    const uint64_t at = any_of(lately_[(written_ - 1 - back) % kLately]);
    if (fits(at)) {
      return rot(at);
    }
  }
  constexpr int kTries = 12;
  for (int i = 0; i < kTries && !plan.newest; ++i) {
    const uint64_t at = known != 0 && !random.OneIn(3)
                            ? any_of(lately_[(written_ - 1 - random.Below(known)) % kLately])
                            : plan.from_bytes + random.Below(plan.to_bytes - plan.from_bytes);
    if (fits(at)) {
      return rot(at);
    }
  }
  return std::nullopt;
}

bool SimDevice::Readable(uint64_t offset_bytes, uint64_t length_bytes) const {
  const auto first = unreadable_.lower_bound(offset_bytes / kSectorBytes);
  return first == unreadable_.end() ||
         *first >= DivideUp(offset_bytes + length_bytes, kSectorBytes);
}

void SimDevice::NoteWritten(uint64_t offset_bytes, uint64_t length_bytes) {
  lately_[written_++ % kLately] = {offset_bytes, length_bytes};
  unreadable_.erase(unreadable_.lower_bound(offset_bytes / kSectorBytes),
                    unreadable_.lower_bound((offset_bytes + length_bytes) / kSectorBytes));
}

}  // namespace eplog::torture
