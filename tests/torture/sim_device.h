// Simulated devices with a volatile write cache, on a VirtualLoop.
//
// A SimDevice keeps two images: what a read sees now, and what is durable; between them lies the
// ordered list of completed writes that no flush has covered, and beside it the writes in flight. A
// power cut keeps, drops or tears each of both at 512 B; a kill lets the writes in flight reach the
// cache in any order and keeps the cache.
//
// SimBus is what the devices of one machine share: clock, randomness, the planned crash, injected
// faults and the rolling hash of everything submitted. A crash point is a moment of one request:
// the bus then freezes the machine, so that nothing is submitted or completed any more until Thaw.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/random.h"
#include "engine/core/hooks.h"
#include "eplog/device.h"
#include "runtime/virtual_loop.h"

namespace eplog::torture {

enum class Moment : uint8_t { kBefore, kSubmitted, kCompleted };

// Crash at the `countdown`th request of `kind` (any but reads if empty), at that moment of it. With
// `after`, requests count from the `laps`th request of that kind on, and anew with each further
// one.
struct Strike {
  std::optional<IoKind> kind;
  Moment moment = Moment::kSubmitted;
  uint64_t countdown = 1;
  std::optional<IoKind> after = std::nullopt;
  uint64_t laps = 0;
};

enum class FaultStyle : uint8_t {
  kOnce,        // one request fails with kIo
  kDeviceDies,  // and from then on every request to that device
  kNoSpace,     // one write fails with kNoSpace
  kHangs,       // some devices answer nothing any more; see FaultPlan::hanging
};

// What a power cut does to the unflushed writes of a device. Any outcome is possible; those in
// which all writes of one age or kind fare alike show a broken order soonest.
struct CutStyle {
  enum class Fate : uint8_t {
    kKeep,      // all of them
    kDrop,      // all of them
    kEach,      // each its own: kept, dropped or torn
    kNewer,     // those submitted before `moment` are dropped
    kOlder,     // those submitted since `moment` are dropped
    kDropKind,  // those of `kind` are dropped
    kKeepKind,  // all others are dropped
    kAnswered,  // those still in flight are dropped
    kTorn,      // all of them
  } fate = Fate::kEach;
  uint64_t moment = 0;
  IoKind kind = IoKind::kData;
};
CutStyle RandomCutStyle(Random& random, uint64_t oldest, uint64_t newest);

// Fail the `nth` request (of the writes only, for kNoSpace), counted over all devices. 0: none.
struct FaultPlan {
  uint64_t nth = 0;
  FaultStyle style = FaultStyle::kOnce;
  // kHangs: that device and those after it, the first after the last. Their requests fail at a
  // deadline. What was written by them lands late, if at all, and with what its memory holds by
  // then: in the crash, never before it.
  uint32_t hanging = 1;
  uint32_t devices = 1;  // there are
};

// A device that fails while the machine runs: from the `countdown`th of its fitting requests on.
struct Doom {
  enum class Style : uint8_t {
    kDies,        // every request fails from then on
    kFailsWrite,  // one write fails
    kFailsFlush,  // one flush fails, and what it was to keep is lost in a power cut
    kReadsBadly,  // from then on now and then a read fails: no reason to lose the device
    kHangs,       // no request is answered before its deadline, which fails it
    kLies,        // now and then a write is lost, torn or misdirected, and succeeds
    kNoSpace,     // from then on every other write and flush finds no space below; nothing is lost
  } style = Style::kDies;
  uint8_t device = 0;
  uint64_t countdown = 1;
  uint64_t bad_of_four = 1;  // reads, of one that reads badly
  bool superblocks = false;  // what a liar loses, and nothing else
};

// What was written; it does not change any more.
using Written = std::shared_ptr<const std::vector<std::byte>>;

class SimBus {
 public:
  SimBus(VirtualLoop& loop, uint64_t seed);

  [[nodiscard]] VirtualLoop& loop() { return loop_; }
  [[nodiscard]] Random& random() { return random_; }

  // ---- the planned crash
  void Arm(const Strike& strike) {
    strike_ = strike;
    count_ = laps_ = 0;
  }
  void Disarm() { strike_.reset(); }
  [[nodiscard]] bool stricken() const { return stricken_; }
  [[nodiscard]] IoKind struck_kind() const { return struck_kind_; }
  // The machine runs again; for after the crash was applied to every device.
  void Thaw();

  // ---- kinds of requests. The engine names them just before it submits; unnamed writes are told
  // by their place.
  void Expect(uint8_t device, IoKind kind);
  void set_classify(std::function<IoKind(uint8_t, uint64_t)> classify) {
    classify_ = std::move(classify);
  }

  // ---- faults
  void Inject(const FaultPlan& plan);
  // Until the next Thaw. `met` is called when it begins.
  void AddDoom(const Doom& doom) { dooms_.push_back({doom, false}); }
  void ClearDooms() {
    dooms_.clear();
    told_of_no_space_ = false;
  }
  [[nodiscard]] bool SomeReadBadly() const;
  [[nodiscard]] bool ReadsBadly(uint8_t device) const;
  // No request of its is answered any more, or only with an error.
  [[nodiscard]] bool IsDead(uint8_t device) const;
  [[nodiscard]] bool LosesSuperblocks(uint8_t device) const;
  // Some request was answered so.
  [[nodiscard]] bool told_of_no_space() const { return told_of_no_space_; }
  void ClearDooms(uint8_t device) {
    std::erase_if(dooms_, [device](const ArmedDoom& armed) { return armed.doom.device == device; });
  }
  // Somebody is told that a flush of this device failed.
  void set_on_failed_flush(std::function<void(uint8_t device)> told) {
    on_failed_flush_ = std::move(told);
  }
  void TellFailedFlush(uint8_t device) const {
    if (on_failed_flush_) {
      on_failed_flush_(device);
    }
  }
  void set_on_doom(std::function<void(const Doom&)> met) { on_doom_ = std::move(met); }
  // Requests of this kind take long, so that others overtake them.
  void set_slow_kind(std::optional<IoKind> kind) { slow_kind_ = kind; }
  // Once in a while when a slow one has been overtaken: the moment to ask what a crash would leave.
  [[nodiscard]] bool TakeOvertaken() { return std::exchange(overtaken_, false); }
  [[nodiscard]] bool fault_fired() const { return fault_fired_; }
  [[nodiscard]] uint64_t requests() const { return requests_; }

  // ---- for the record
  void Mix(uint64_t value);
  [[nodiscard]] uint64_t hash() const { return hash_; }
  // A request that breaks the contract of Device. The first one counts.
  void Complain(std::string what);
  [[nodiscard]] const std::string& complaint() const { return complaint_; }

 private:
  friend class SimDevice;
  IoKind TakeKind(uint8_t device, IoKind fallback, uint64_t offset_bytes);
  bool StrikeAt(IoKind kind, Moment moment);
  void NoteSubmitted(IoKind kind);
  void NoteCompleted(IoKind kind);
  std::optional<ErrorCode> FaultFor(uint8_t device, IoKind kind);
  // When a hanging device's first request is given up: all that come later fail at once.
  [[nodiscard]] std::optional<uint64_t> HangsUntil(uint8_t device) const;
  // By the fault, not by a doom.
  [[nodiscard]] bool IsLate(uint8_t device) const;
  // What the memory of a write that was given up before that moment holds by now: it was others'.
  std::vector<std::byte> Reused(Random& random, const std::vector<std::byte>& was,
                                uint64_t since) const;
  bool Lies(uint8_t device, IoKind kind);
  std::optional<ErrorCode> DoomStrikes(uint8_t device, IoKind kind);
  uint64_t LatencyUs(uint8_t device, IoKind kind, uint64_t bytes);

  VirtualLoop& loop_;
  Random random_;
  std::optional<Strike> strike_;
  uint64_t count_ = 0;  // requests that fit the strike, and laps of it, so far
  uint64_t laps_ = 0;
  bool stricken_ = false;
  IoKind struck_kind_ = IoKind::kRead;
  std::array<std::deque<IoKind>, kMaxDevices> expected_;
  std::function<IoKind(uint8_t, uint64_t)> classify_;
  struct ArmedDoom {
    Doom doom;
    bool met = false;
    uint64_t met_us = 0;
  };
  std::vector<ArmedDoom> dooms_;
  std::function<void(const Doom&)> on_doom_;
  std::function<void(uint8_t)> on_failed_flush_;
  FaultPlan fault_;
  bool fault_fired_ = false;
  uint64_t requests_ = 0;
  uint64_t writes_ = 0;
  uint64_t submitted_ = 0;  // writes over all devices, ever
  int dead_device_ = -1;
  int hung_device_ = -1;  // the first of them
  uint64_t hung_us_ = 0;  // since then
  // Written anywhere since then, the latest last, by order of submission.
  std::deque<std::pair<uint64_t, Written>> written_;
  uint64_t spread_us_;  // how far latencies differ
  int slow_device_ = -1;
  std::optional<IoKind> slow_kind_;
  uint64_t slow_in_flight_ = 0;
  bool overtaken_ = false;
  bool told_of_no_space_ = false;
  uint64_t hash_ = 0x243F6A8885A308D3ULL;
  std::string complaint_;
};

// Bytes of a device in pages that exist once written. A page does not change, so that copies, and
// the image and what was written there, share it.
class PageImage {
 public:
  explicit PageImage(uint64_t size_bytes);
  void Read(uint64_t offset_bytes, std::span<std::byte> into) const;
  void Write(uint64_t offset_bytes, std::span<const std::byte> from);
  void Write(uint64_t offset_bytes, const Written& from);
  [[nodiscard]] bool HasPage(uint64_t page) const { return pages_[page] != nullptr; }
  [[nodiscard]] uint64_t pages() const { return pages_.size(); }

 private:
  using Page = std::array<std::byte, kBlockBytes>;
  std::vector<std::shared_ptr<const Page>> pages_;
};

class SimDevice final : public Device {
 public:
  SimDevice(SimBus& bus, uint8_t index, std::string name, uint64_t size_bytes,
            DeviceCapabilities capabilities);
  // The same device on another machine: bytes, cache and what is in flight.
  SimDevice(SimBus& bus, const SimDevice& other);

  Task<Status> Read(uint64_t offset_bytes, std::span<const iovec> into) override;
  Task<Status> Write(uint64_t offset_bytes, std::span<const iovec> from) override;
  Task<Status> Flush() override;
  Task<Status> Discard(uint64_t offset_bytes, uint64_t length_bytes) override;

  [[nodiscard]] uint64_t size_bytes() const override { return size_bytes_; }
  [[nodiscard]] const DeviceCapabilities& capabilities() const override { return capabilities_; }
  [[nodiscard]] const std::string& name() const override { return name_; }

  // ---- what the simulation does to it. Nothing of it may run: after EventLoop::Abort.
  void PowerCut(Random& random, const CutStyle& style);
  // Widens the range to hold the orders of submission of its unflushed writes.
  void AgeRange(uint64_t& oldest, uint64_t& newest) const;
  void Kill(Random& random);
  // Flip bytes in about one of `one_in` written sectors from `from_bytes` on. Returns how many.
  uint64_t Corrupt(Random& random, uint64_t from_bytes, uint64_t one_in);
  // One written sector of the range, the newest or any, and often one of the last that were
  // written, holds something else, or cannot be read until it is written. Where its block begins;
  // nothing: none was found.
  struct RotPlan {
    uint64_t from_bytes = 0;
    uint64_t to_bytes = 0;
    bool newest = false;
    bool unreadable = false;
  };
  std::optional<uint64_t> Rot(Random& random, const RotPlan& plan);

  // It has been left alone for long: nothing is in flight, and what is there is durable.
  void Settle() {
    in_flight_.clear();
    cached_.clear();
    durable_ = visible_;
  }

  // What is on it; and an older copy of it in its place.
  [[nodiscard]] const PageImage& content() const { return visible_; }
  void GoBackTo(const PageImage& older) {
    visible_ = older;
    unreadable_.clear();
    Settle();
  }

  [[nodiscard]] uint8_t index() const { return index_; }
  // Something that a failed flush covered is here, and a power cut will lose it.
  [[nodiscard]] bool IsForgetful() const;
  [[nodiscard]] uint64_t writes_submitted() const { return writes_submitted_; }
  [[nodiscard]] size_t in_flight() const { return in_flight_.size() + others_in_flight_; }

 private:
  struct CachedWrite {
    uint64_t offset_bytes = 0;
    Written data;
    IoKind kind = IoKind::kData;
    uint64_t submitted = 0;   // order of submission, over all devices
    uint64_t order = 0;       // of completion
    bool orphan = false;      // a failed flush covered it: no later one makes it durable
    uint64_t late_since = 0;  // not 0: nobody has waited for it from that submission on
  };

  bool Sane(const char* what, uint64_t offset_bytes, std::span<const iovec> parts);
  uint64_t Submit(IoKind kind, uint64_t offset_bytes, std::vector<std::byte> data);
  void Complete(uint64_t id, std::span<const iovec> from);
  void CompleteBadly(uint64_t id);
  void CompleteWithALie(uint64_t id);
  void GiveUp(uint64_t id);
  void LateOnesLand(Random& random);
  static void Outlive(std::deque<CachedWrite>& writes, const CachedWrite& newer);
  void Deliver(uint64_t offset_bytes, std::span<const iovec> into);
  void FlipBytes(Random& random, uint64_t sector_at);
  [[nodiscard]] bool Readable(uint64_t offset_bytes, uint64_t length_bytes) const;
  void NoteWritten(uint64_t offset_bytes, uint64_t length_bytes);
  void Covered(uint64_t upto_order, bool failed);
  void ApplyFate(Random& random, const CachedWrite& write, const CutStyle& style);
  Error Failure(ErrorCode code, const char* what, uint64_t offset_bytes) const;

  SimBus& bus_;
  uint8_t index_;
  std::string name_;
  uint64_t size_bytes_;
  DeviceCapabilities capabilities_;
  PageImage visible_;
  PageImage durable_;
  std::deque<CachedWrite> cached_;             // completed, not durable, in order of completion
  std::map<uint64_t, CachedWrite> in_flight_;  // by order of submission
  size_t others_in_flight_ = 0;                // reads and flushes
  uint64_t next_id_ = 0;
  uint64_t next_order_ = 1;
  uint64_t writes_submitted_ = 0;
  static constexpr uint64_t kLately = 64;
  struct Range {
    uint64_t offset_bytes = 0;
    uint64_t length_bytes = 0;
  };
  std::array<Range, kLately> lately_{};  // the newest writes, in a ring
  uint64_t written_ = 0;
  std::set<uint64_t> unreadable_;  // sectors, by number
};

}  // namespace eplog::torture
