// SimHdd: a Device whose requests take as long as a hard disk's, on the loop's clock. As SimSsd in
// everything that is not said here (sim/sim_ssd.h).
//
// A Flush returns when everything that was acknowledged before it is on the disk. Discard does
// nothing.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "sim/hdd_model.h"
#include "sim/sim_device.h"

namespace eplog::sim {

class SimHdd final : public SimDevice {
 public:
  SimHdd(EventLoop& loop, std::string name, const HddParameters& parameters, uint64_t size_bytes);

  Task<Status> Read(uint64_t offset_bytes, std::span<const iovec> into) override;
  Task<Status> Write(uint64_t offset_bytes, std::span<const iovec> from) override;
  Task<Status> Flush() override;
  Task<Status> Discard(uint64_t offset_bytes, uint64_t length_bytes) override;

  void ResetCounters() { model_.ResetCounters(); }
  [[nodiscard]] const HddModel& model() const { return model_; }

 private:
  Task<void> WaitForRoom(uint64_t length_bytes);

  HddModel model_;
};

}  // namespace eplog::sim
