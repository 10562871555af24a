// A small array, and in one word each what many tests do to one by hand.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tests/engine/array_fixture.h"

namespace eplog {

// Large enough for all that is tested, small enough to be made for every test.
inline ArrayShape SmallShape(uint32_t n, uint32_t m) {
  ArrayShape shape;
  shape.n = n;
  shape.m = m;
  shape.ssd_bytes = uint64_t{8} << 20;
  shape.log_bytes = uint64_t{4} << 20;
  return shape;
}

class SmallArray : public TestArray {
 public:
  using TestArray::TestArray;

  [[nodiscard]] Status Fail(uint32_t device) {
    return RunTask(loop, array->FailDevice(device, "by hand"));
  }
  [[nodiscard]] Status Replace(uint32_t device, Device& by) {
    return RunTask(loop, array->ReplaceDevice(device, by));
  }
  // By the device that is there, whatever it holds.
  [[nodiscard]] Status ReplaceByItself(uint32_t device) {
    return Replace(device, *Devices()[device]);
  }
  // The same, and it holds nothing any more.
  [[nodiscard]] Status ReplaceByItselfBlank(uint32_t device) {
    std::ranges::fill(memory(device).bytes(), std::byte{0});
    return ReplaceByItself(device);
  }
  [[nodiscard]] DeviceState State(uint32_t device) {
    return array->GetStatus().devices[device].state;
  }
  [[nodiscard]] Status Flush() { return RunTask(loop, array->FlushAll()); }
  [[nodiscard]] Status Commit() { return RunTask(loop, array->Commit(Progress())); }
  [[nodiscard]] Status Checkpoint() {
    return RunTask(loop, array->Checkpoint(CheckpointKind::kFull));
  }
  [[nodiscard]] Result<CheckReport> Scrub(bool heal) {
    return RunTask(loop, array->Scrub(heal, Progress()));
  }
};

}  // namespace eplog
