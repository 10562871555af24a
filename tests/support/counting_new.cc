// In a file of its own: seen by the compiler together with their callers, these look like a
// mismatch of new and free.
#include "tests/support/counting_new.h"

#include <malloc.h>

#include <cstdlib>
#include <new>

namespace {
size_t allocations = 0;
size_t bytes_now = 0;
}  // namespace

void* operator new(size_t size) {
  ++allocations;
  void* memory = std::malloc(size);
  if (memory == nullptr) {
    std::abort();
  }
  bytes_now += malloc_usable_size(memory);
  return memory;
}
void* operator new(size_t size, const std::nothrow_t& /*tag*/) noexcept {
  return operator new(size);
}
void operator delete(void* memory) noexcept {
  bytes_now -= malloc_usable_size(memory);
  std::free(memory);
}
void operator delete(void* memory, size_t) noexcept {
  bytes_now -= malloc_usable_size(memory);
  std::free(memory);
}

namespace eplog {

size_t HeapAllocations() {
  return allocations;
}

size_t HeapBytes() {
  return bytes_now;
}

}  // namespace eplog
