// SimSsd: a Device whose requests take as long as an SSD's, on the loop's clock.
//
//   VirtualLoop loop;
//   auto drive = sim::LoadDrive("samsung-pm9a3");
//   sim::SimSsd ssd(loop, "ssd 0", *drive->ssd, uint64_t{8} << 30);
//   ssd.Precondition(seed, 100);
//
// A Flush returns when everything that was acknowledged before it is programmed; at once, but for
// the command itself, if the drive has capacitors. Discard is TRIM: whole pages of the range are
// forgotten and read as zeros.
//
// The same requests at the same times give the same times and counters, to the last bit. Errors are
// those of requests that are unaligned or out of range (device/request_check.h); nothing fails.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "sim/sim_device.h"
#include "sim/ssd_model.h"

namespace eplog::sim {

class SimSsd final : public SimDevice {
 public:
  SimSsd(EventLoop& loop, std::string name, const SsdParameters& parameters, uint64_t size_bytes);

  Task<Status> Read(uint64_t offset_bytes, std::span<const iovec> into) override;
  Task<Status> Write(uint64_t offset_bytes, std::span<const iovec> from) override;
  Task<Status> Flush() override;
  Task<Status> Discard(uint64_t offset_bytes, uint64_t length_bytes) override;
  // As Flush, for a range: its pages leave the buffer first, and only they are waited for.
  Task<Status> FlushRange(uint64_t offset_bytes, uint64_t length_bytes);

  // Before first use: every page was written once, then `overwrite_percent` of the user pages at
  // random. No time passes, the content stays (zeros), counters and wear begin at zero.
  void Precondition(uint64_t seed, uint64_t overwrite_percent) {
    model_.Precondition(seed, overwrite_percent);
  }
  void ResetCounters() { model_.ResetCounters(); }

  // SsdCounters, FtlCounters and Wear are in there.
  [[nodiscard]] const SsdModel& model() const { return model_; }

 private:
  Task<void> WaitForRoom(uint64_t offset_bytes, uint64_t length_bytes);
  Task<void> WaitForFlush(SsdModel::Flush flush);

  SsdModel model_;
};

}  // namespace eplog::sim
