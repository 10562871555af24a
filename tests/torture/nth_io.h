// Fail the Nth I/O of a fixed scenario, N = 1, 2, ... until none fails. Every request must answer,
// an error or a success; whatever was flushed with success is there when the machine comes back
// without the fault.
#pragma once

#include <cstdint>

#include "tests/torture/machine.h"

namespace eplog::torture {

struct NthIoOptions {
  uint64_t step = 1;         // every so many N only
  uint64_t stop_after = 10;  // failures
  bool quiet = false;
};

// The number of failed runs.
uint64_t RunNthIo(ArrayFactory& factory, const NthIoOptions& options);

}  // namespace eplog::torture
