// Opens a damaged array and judges what comes of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/core/hooks.h"
#include "eplog/array.h"
#include "runtime/virtual_loop.h"
#include "tests/damage/base.h"
#include "tests/damage/image.h"

namespace eplog::damage {

struct Verdict {
  std::string wrong;      // not empty: a bug
  std::string refusal;    // not empty: the array did not open, and why
  uint64_t problems = 0;  // that the scrub found
  bool degraded = false;  // it opened without a device that the base has
  // Work of the engine: that the damage was met, and what it met was mended.
  uint64_t decoded_chunks = 0;
  uint64_t recovery_repairs = 0;
  uint64_t recovery_cuts = 0;
};

struct JudgeOptions {
  uint64_t entropy = 0;
  bool look = false;  // open read-only first
  bool lose = false;  // when all is mended: open without as many devices as may be missing
  Canary canary = Canary::kNone;
};

// `devices` hold the damaged bytes.
Verdict Judge(const Base& base, std::vector<ImageDevice>& devices, const JudgeOptions& options);

}  // namespace eplog::damage
