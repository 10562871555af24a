// Fail the Nth I/O of a fixed scenario, N = 1, 2, ... until none fails. Every request must answer,
// an error or a success; whatever was flushed with success is there when the machine comes back
// without the fault.
#pragma once

#include <cstdint>

#include "tests/torture/machine.h"

namespace eplog::torture {

// `step`: every so many N only. Process exit code.
int RunNthIo(ArrayFactory& factory, uint64_t step);

}  // namespace eplog::torture
