// What this process may take of the machine: looked at before an array is served, so that it is
// said in time and in words.
#pragma once

#include <cstdint>

#include "eplog/result.h"
#include "host/array_file.h"

namespace eplog {

// A share of the machine's memory that write buffers may take: a quarter of what there is for this
// process, by the machine, its control group and ulimit -v.
uint64_t MostBufferBytes();

// Raises the limit of open files as far as it may be, and says if serving the array takes more.
Status MakeRoomForDescriptors(const ArrayFile& file);

// Says if this process may not write members to their ends (ulimit -f): it is not they that fail.
Status CheckFileSizes(const ArrayFile& file);

}  // namespace eplog
