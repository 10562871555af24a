// What the tests of this room share: aligned memory with a recognisable content, plain requests run
// to their end.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "base/random.h"
#include "eplog/device.h"
#include "eplog/event_loop.h"
#include "tests/runtime/await.h"

namespace eplog::test {

inline BufferPool& Pool() {
  static BufferPool pool;
  return pool;
}

inline Buffer Filled(size_t length, uint64_t seed) {
  Buffer buffer = Pool().Get(length);
  Random random(seed);
  for (size_t i = 0; i + 8 <= length; i += 8) {
    const uint64_t word = random.Next();
    std::memcpy(buffer.data() + i, &word, 8);
  }
  return buffer;
}

inline iovec PartOf(const Buffer& buffer) {
  return {buffer.data(), buffer.size()};
}

inline bool Same(const Buffer& a, const Buffer& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0;
}

// Coroutines that own their iovec, so that several may run at once.
inline Task<Status> WriteTask(Device& device, uint64_t offset, const Buffer& from) {
  const iovec part = PartOf(from);
  Task<Status> write = device.Write(offset, std::span(&part, 1));
  co_return co_await write;
}

inline Task<Status> ReadTask(Device& device, uint64_t offset, const Buffer& into) {
  const iovec part = PartOf(into);
  Task<Status> read = device.Read(offset, std::span(&part, 1));
  co_return co_await read;
}

inline Status Write(EventLoop& loop, Device& device, uint64_t offset, const Buffer& from) {
  return Await(loop, WriteTask(device, offset, from));
}

inline Status Read(EventLoop& loop, Device& device, uint64_t offset, const Buffer& into) {
  return Await(loop, ReadTask(device, offset, into));
}

// Whether the device holds `Filled(length, seed)` there.
inline ::testing::AssertionResult Holds(EventLoop& loop, Device& device, uint64_t offset,
                                        size_t length, uint64_t seed) {
  const Buffer got = Pool().GetZeroed(length);
  const Status status = Read(loop, device, offset, got);
  if (!status.ok()) {
    return ::testing::AssertionFailure() << status.error().ToString();
  }
  if (!Same(got, Filled(length, seed))) {
    return ::testing::AssertionFailure() << "other content at byte " << offset;
  }
  return ::testing::AssertionSuccess();
}

}  // namespace eplog::test
