// Counts what this test program takes from the heap.
#pragma once

#include <cstddef>

namespace eplog {

size_t HeapAllocations();
// Bytes that are allocated now.
size_t HeapBytes();

}  // namespace eplog
