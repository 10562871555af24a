// Opens a damaged array and judges what comes of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "eplog/array.h"
#include "runtime/virtual_loop.h"
#include "tests/damage/base.h"
#include "tests/damage/image.h"

namespace eplog::damage {

struct Verdict {
  std::string wrong;      // not empty: a bug
  std::string refusal;    // not empty: the array did not open, and why
  uint64_t problems = 0;  // that the scrub found
  bool degraded = false;  // it opened without a device
};

// Read-only first with `look`. `devices` hold the damaged bytes.
Verdict Judge(const Base& base, std::vector<ImageDevice>& devices, uint64_t entropy, bool look);

}  // namespace eplog::damage
