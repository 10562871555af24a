// VolatileCacheDevice: the write cache of a disk without power-loss protection, in RAM. Test builds
// of the daemon put it in front of each member, so that SIGKILL does what a power cut would: what
// was not flushed is gone.
//
// A write goes to RAM only and completes at once. A flush takes the writes completed before it was
// made, writes them below, flushes below, and only then succeeds; writes go on meanwhile and belong
// to the next flush. Reads see RAM over the device. Should more than `limit_bytes` be unflushed,
// writes first push older ones below, as a real cache evicts: those may or may not survive. A
// discard takes effect at once.
//
// After a write-back or flush has failed every later flush fails the same way (I7).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "device/forwarding_device.h"
#include "eplog/event_loop.h"
#include "runtime/sync.h"

namespace eplog {

class VolatileCacheDevice final : public ForwardingDevice {
 public:
  static constexpr uint64_t kDefaultLimitBytes = uint64_t{128} << 20;

  VolatileCacheDevice(EventLoop& loop, Device& below, uint64_t limit_bytes = kDefaultLimitBytes)
      : ForwardingDevice(below), loop_(loop), limit_bytes_(limit_bytes), write_back_(loop) {}
  VolatileCacheDevice(EventLoop& loop, std::unique_ptr<Device> below_device,
                      uint64_t limit_bytes = kDefaultLimitBytes)
      : ForwardingDevice(std::move(below_device)),
        loop_(loop),
        limit_bytes_(limit_bytes),
        write_back_(loop) {}

  Task<Status> Read(uint64_t offset_bytes, std::span<const iovec> into) override;
  Task<Status> Write(uint64_t offset_bytes, std::span<const iovec> from) override;
  Task<Status> Flush() override;
  Task<Status> Discard(uint64_t offset_bytes, uint64_t length_bytes) override;

  // The power cut: everything that is still in RAM is gone. Nothing may be in flight (after
  // EventLoop::Abort, nothing is).
  void DropCache();

  // Held in RAM, whole pages.
  [[nodiscard]] uint64_t cached_bytes() const { return cached_pages_ * kPageBytes; }

 private:
  static constexpr uint64_t kPageBytes = 4096;

  struct alignas(kPageBytes) PageData {
    std::array<std::byte, kPageBytes> bytes;
  };
  struct Page {
    std::unique_ptr<PageData> data;
    uint8_t valid = 0;  // a bit a sector
  };
  // Writes between two flushes, by page number. Immutable once a newer generation exists. Shared
  // with the reads that were made while it was there: it may leave the cache before they complete.
  struct Generation {
    uint64_t sequence = 0;
    std::unordered_map<uint64_t, Page> pages;
  };
  // Consecutive valid sectors over one or more pages, for one write below.
  struct Run {
    uint64_t offset_bytes = 0;
    std::vector<iovec> parts;
  };

  enum class Coverage : uint8_t { kNone, kPart, kWhole };

  Generation& Active();
  // Makes the active generation immutable; the newest sequence that holds a completed write.
  uint64_t Seal();
  [[nodiscard]] uint8_t ValidSectors(uint64_t page_number) const;
  // How much of the range RAM holds.
  [[nodiscard]] Coverage CoverageOf(uint64_t offset_bytes, std::span<const iovec> parts) const;
  Task<Status> EvictOverLimit();
  // Writes generations up to `sequence` below and takes them out of RAM. The caller holds
  // `write_back_`.
  Task<Status> WriteBack(uint64_t sequence);
  Task<Status> WriteRuns(const std::vector<Run>& runs, size_t& next);
  static std::vector<Run> CollectRuns(const Generation& generation);

  EventLoop& loop_;
  uint64_t limit_bytes_;
  AsyncMutex write_back_;  // one write-back or flush at a time, in order
  // Oldest first; the last still takes writes while `active_open_`.
  std::deque<std::shared_ptr<Generation>> generations_;
  bool active_open_ = false;
  uint64_t cached_pages_ = 0;
  uint64_t last_sequence_ = 0;     // of the newest generation ever made
  uint64_t written_sequence_ = 0;  // all up to here are below
  uint64_t durable_sequence_ = 0;  // and flushed there
  std::optional<Error> failure_;
};

}  // namespace eplog
