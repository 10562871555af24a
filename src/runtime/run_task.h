// RunTask: for who is no coroutine: turn the loop until a task has ended, and take its result.
#pragma once

#include <optional>
#include <utility>

#include "base/check.h"
#include "eplog/event_loop.h"

namespace eplog {

template <typename T>
T RunTask(EventLoop& loop, Task<T> task) {
  std::optional<T> result;
  loop.Spawn([](Task<T> inner, std::optional<T>& out) -> Task<void> {
    T value = co_await inner;
    out.emplace(std::move(value));
  }(std::move(task), result));
  const bool ended = loop.RunUntil([&result] { return result.has_value(); });
  EPLOG_CHECK(ended, "a task waits for something that cannot happen");
  return std::move(*result);
}

}  // namespace eplog
