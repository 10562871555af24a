// One libFuzzer program for each target; EPLOG_FUZZ_TARGET names it.
#include <cstdint>

#include "base/check.h"
#include "tests/fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const eplog::fuzz::Target* const kTarget = eplog::fuzz::FindTarget(EPLOG_FUZZ_TARGET);
  EPLOG_CHECK(kTarget != nullptr, "the target exists");
  static_cast<void>(kTarget->run(std::as_bytes(std::span(data, size))));
  return 0;
}
