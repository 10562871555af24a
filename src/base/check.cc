#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace eplog {

void CheckFailed(const char* file, int line, const char* what, const char* why) {
  std::fprintf(stderr, "eplog: broken invariant: %s (%s) at %s:%d\n", why, what, file, line);
  std::fflush(stderr);
  std::abort();
}

}  // namespace eplog
