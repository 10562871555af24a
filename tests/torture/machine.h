// One simulated machine: clock, bus and devices. A copy is a what-if: crash it, open it, throw it
// away.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/random.h"
#include "eplog/array.h"
#include "tests/torture/plan.h"
#include "tests/torture/sim_device.h"

namespace eplog::torture {

// Who makes arrays: the engine, or a toy that proves the harness.
class ArrayFactory {
 public:
  virtual ~ArrayFactory() = default;
  virtual Task<Status> Create(EventLoop& loop, std::vector<Device*> ssds, std::vector<Device*> logs,
                              CreateOptions options) = 0;
  virtual Task<Result<std::unique_ptr<Array>>> Open(EventLoop& loop, std::vector<Device*> devices,
                                                    OpenOptions options, EngineHooks* hooks) = 0;
  [[nodiscard]] virtual uint64_t min_ssd_bytes() const { return 0; }
  // Its arrays go on when devices fail.
  [[nodiscard]] virtual bool survives_failures() const { return false; }
  // A new world begins: forget what is kept outside of devices.
  virtual void Reset() {}
};

using DeviceSet = std::set<uint8_t>;

enum class Driven : uint8_t { kDone, kStricken, kStalled };

class Machine {
 public:
  Machine(const SeedPlan& plan, uint64_t seed);
  Machine(const Machine& other, uint64_t seed);
  ~Machine() { loop_.Abort(); }
  Machine& operator=(const Machine&) = delete;

  [[nodiscard]] VirtualLoop& loop() { return loop_; }
  [[nodiscard]] SimBus& bus() { return bus_; }
  [[nodiscard]] SimDevice& device(size_t index) { return *devices_[index]; }
  [[nodiscard]] const SimDevice& device(size_t index) const { return *devices_[index]; }
  [[nodiscard]] size_t devices() const { return devices_.size(); }
  // Another device in its place: an empty one, or one that holds what this one holds. What is in
  // flight on the old one goes on.
  SimDevice& Renew(uint8_t index, bool empty);
  [[nodiscard]] std::vector<Device*> Except(const DeviceSet& withheld);

  // Run until `done`, a crash point, or `limit_us` of simulated time without `progress_us` moving
  // on.
  Driven Drive(const std::function<bool()>& done, const uint64_t* progress_us = nullptr);

  // After the frames are gone: what the crash does to every device. `unplugged` have no power
  // either way.
  void Crash(Random& random, bool power, const DeviceSet& unplugged = {});
  // A power cut that tears everything that was not flushed.
  void CrashTearing(Random& random);
  // A power cut after which only these have what was not flushed.
  void CrashKeeping(Random& random, const DeviceSet& devices);
  [[nodiscard]] uint64_t WritesSubmitted() const;
  [[nodiscard]] size_t InFlight() const;

 private:
  void Classify(const Geometry& geometry);

  VirtualLoop loop_;
  SimBus bus_;
  Geometry geometry_;
  std::vector<std::unique_ptr<SimDevice>> devices_;
  std::vector<std::unique_ptr<SimDevice>> replaced_;
};

std::string Names(const SeedPlan& plan, const DeviceSet& devices);

}  // namespace eplog::torture
