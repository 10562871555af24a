// Runs one task to its end on a loop, from outside any coroutine.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <utility>

#include "base/check.h"
#include "eplog/event_loop.h"
#include "eplog/task.h"

namespace eplog::test {

template <typename T>
Task<void> StoreResult(Task<T> task, std::optional<T>* result) {
  T value = co_await task;
  result->emplace(std::move(value));
}

// Stops the test program if the task can never end.
template <typename T>
T Await(EventLoop& loop, Task<T> task) {
  std::optional<T> result;
  loop.Spawn(StoreResult(std::move(task), &result));
  const bool ended = loop.RunUntil([&] { return result.has_value(); });
  EPLOG_CHECK(ended, "the awaited task can never end");
  return std::move(*result);
}

inline Task<void> SetFlag(Task<void> task, bool* done) {
  co_await task;
  *done = true;
}

inline void Await(EventLoop& loop, Task<void> task) {
  bool done = false;
  loop.Spawn(SetFlag(std::move(task), &done));
  const bool ended = loop.RunUntil([&] { return done; });
  EPLOG_CHECK(ended, "the awaited task can never end");
}

// Turns until nothing can happen any more.
inline void RunDry(EventLoop& loop) {
  static_cast<void>(loop.RunUntil([] { return false; }));
}

}  // namespace eplog::test
