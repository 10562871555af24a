// In a file of its own: seen by the compiler together with their callers, these look like a
// mismatch of new and free.
#include "tests/erasure/counting_new.h"

#include <cstdlib>
#include <new>

namespace {
size_t allocations = 0;
}  // namespace

void* operator new(size_t size) {
  ++allocations;
  void* memory = std::malloc(size);
  if (memory == nullptr) {
    std::abort();
  }
  return memory;
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}

namespace eplog {

size_t HeapAllocations() {
  return allocations;
}

}  // namespace eplog
