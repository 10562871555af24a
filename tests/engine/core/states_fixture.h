// DeviceStates over so many SSDs and two log devices, all well at first.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "device/memory_device.h"
#include "engine/core/device_states.h"
#include "runtime/virtual_loop.h"

namespace eplog {

class StatesTest : public ::testing::Test {
 protected:
  explicit StatesTest(uint32_t ssds) : geometry_(AndTwoLogs(ssds)) {}
  void Lose(DeviceIndex device) {
    members_.Lose(device, Error());
    states_.Lost(device);
  }
  void Join(DeviceIndex device, uint64_t place) {
    members_.Join(device, memory_);
    states_.Joined(device, place);
  }

  VirtualLoop loop_;
  MemoryDevice memory_{"memory", 4096};
  Geometry geometry_;
  MemberSet members_{loop_, std::vector<Device*>(geometry_.devices(), &memory_)};
  DeviceStates states_{members_, geometry_};

 private:
  static Geometry AndTwoLogs(uint32_t ssds) {
    Geometry geometry;
    geometry.n = ssds;
    geometry.m = 2;
    return geometry;
  }
};

}  // namespace eplog
