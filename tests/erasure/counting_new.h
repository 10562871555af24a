// Counts what this test program takes from the heap.
#pragma once

#include <cstddef>

namespace eplog {

size_t HeapAllocations();

}  // namespace eplog
