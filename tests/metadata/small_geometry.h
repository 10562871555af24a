// A 3+1 array of 64 stripes.
#pragma once

#include "layout/geometry.h"

namespace eplog::test {

inline Geometry SmallGeometry() {
  Geometry g;
  g.n = 4;
  g.m = 1;
  g.chunk_bytes = 4096;
  g.stripes = 64;
  g.slots = 128;
  g.extent_stripes = 4;
  g.log_blocks = 256;
  g.ring_blocks = 64;
  return g;
}

}  // namespace eplog::test
