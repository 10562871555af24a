#include "base/vector_unit.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace eplog {

#if defined(__x86_64__)

namespace {

__attribute__((target("avx"))) void ZeroUpperHalves() {
  _mm256_zeroupper();
}

}  // namespace

void ReleaseVectorUnit() {
  if (__builtin_cpu_supports("avx") != 0) {
    ZeroUpperHalves();
  }
}

#else

void ReleaseVectorUnit() {}

#endif

}  // namespace eplog
