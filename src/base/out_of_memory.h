// What becomes of a process that gets no more memory, or no more threads: it says so in one line
// and ends with status 1. To an array that is like a crash, after which it recovers.
#pragma once

#include <cstddef>

namespace eplog {

// `what` is what the memory was for.
[[noreturn]] void OutOfMemory(const char* what, size_t bytes);

// From now on also where the language runs out of memory, or a thread cannot be started.
void SayWhenOutOfMemory();

}  // namespace eplog
