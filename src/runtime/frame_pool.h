// Free lists for coroutine frames, so that awaiting a Task allocates nothing in steady state.
// One pool a thread; a frame is freed on the thread that made it. Off under AddressSanitizer, which
// should see every use of a dead frame.
#pragma once

#include <cstddef>

namespace eplog {

void* AllocateFrame(size_t size);
void FreeFrame(void* frame, size_t size) noexcept;

}  // namespace eplog
