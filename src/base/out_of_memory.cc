#include "base/out_of_memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <system_error>

namespace eplog {
namespace {

// Without allocating anything, and without what others may have locked.
[[noreturn]] void SayAndEnd(const char* line, int length, size_t size) {
  const size_t shown = length < 0 ? 0 : std::min(static_cast<size_t>(length), size - 1);
  const ssize_t ignored = ::write(STDERR_FILENO, line, shown);
  static_cast<void>(ignored);
  ::_exit(EXIT_FAILURE);
}

// The limit of this process, where it has one.
void LimitText(char* into, size_t size) {
  rlimit space{};
  rlimit data{};
  const bool few = ::getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY;
  const bool less = ::getrlimit(RLIMIT_DATA, &data) == 0 && data.rlim_cur != RLIM_INFINITY &&
                    (!few || data.rlim_cur < space.rlim_cur);
  if (few || less) {
    std::snprintf(into, size, "; it may have %llu MiB of %s: raise that",
                  static_cast<unsigned long long>((less ? data : space).rlim_cur >> 20),
                  less ? "data (ulimit -d)" : "address space (ulimit -v)");
  } else {
    std::snprintf(into, size, "; the machine has no more");
  }
}

[[noreturn]] void NoMemory() {
  OutOfMemory("its tables", 0);
}

std::terminate_handler otherwise = nullptr;

[[noreturn]] void Terminated() {
  if (const std::exception_ptr current = std::current_exception()) {
    try {
      std::rethrow_exception(current);
    } catch (const std::bad_alloc&) {
      NoMemory();
    } catch (const std::system_error& error) {
      char line[300];
      SayAndEnd(line,
                std::snprintf(line, sizeof line, "eplog: no further thread can be started: %s\n",
                              error.what()),
                sizeof line);
    } catch (...) {  // a mistake: as without this
    }
  }
  if (otherwise != nullptr) {
    otherwise();
  }
  std::abort();
}

}  // namespace

void OutOfMemory(const char* what, size_t bytes) {
  char limit[120];
  LimitText(limit, sizeof limit);
  char line[300];
  const int length =
      bytes == 0 ? std::snprintf(line, sizeof line, "eplog: out of memory for %s%s\n", what, limit)
                 : std::snprintf(line, sizeof line, "eplog: out of memory for %s, %zu KiB%s\n",
                                 what, bytes >> 10, limit);
  SayAndEnd(line, length, sizeof line);
}

void SayWhenOutOfMemory() {
  std::set_new_handler(NoMemory);
  otherwise = std::set_terminate(Terminated);
}

}  // namespace eplog
