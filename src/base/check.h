// A broken invariant stops the program, in release builds too. EPLOG_DCHECK is for checks that cost
// more than they may in release: whole-structure walks. Both name the invariant (I1 ... I11 of
// docs/design.md).
#pragma once

namespace eplog {
[[noreturn]] void CheckFailed(const char* file, int line, const char* what, const char* why);
}  // namespace eplog

#define EPLOG_CHECK(condition, why)                              \
  do {                                                           \
    if (!(condition)) [[unlikely]] {                             \
      ::eplog::CheckFailed(__FILE__, __LINE__, #condition, why); \
    }                                                            \
  } while (false)

#ifndef NDEBUG
#define EPLOG_DCHECK(condition, why) EPLOG_CHECK(condition, why)
#else
#define EPLOG_DCHECK(condition, why) \
  do {                               \
    if (false) {                     \
      static_cast<void>(condition);  \
    }                                \
  } while (false)
#endif
