// SSDs with so many slots each, and slots that an entry gives back.
#pragma once

#include <cstdint>

#include "base/types.h"
#include "layout/geometry.h"

namespace eplog {

struct Freed {
  DeviceIndex ssd;
  SlotIndex slot;
};

inline Geometry Ssds(uint32_t n, uint32_t slots) {
  Geometry g;
  g.n = n;
  g.m = 1;
  g.chunk_bytes = 4096;
  g.slots = slots;
  g.stripes = slots / 2;
  g.extent_stripes = 1;
  return g;
}

inline Geometry TwoSsds(uint32_t slots) {
  return Ssds(2, slots);
}

}  // namespace eplog
