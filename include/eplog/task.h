// Task<T>: a lazy coroutine. It starts when awaited and its frame dies with the Task.
//
// A task that finishes without suspending returns to its awaiter without growing the stack:
// awaiting resumes the child in place, and the child's end only resumes the parent if the parent is
// suspended by then. So loops over tasks that complete at once are safe at any optimisation level
// (gcc 12 gives no guaranteed tail call).
//
// gcc 12 miscompiles some co_await expressions: give temporaries names, and keep co_await out of
// conditions, macros and argument lists.
#pragma once

#include <coroutine>
#include <cstddef>
#include <exception>
#include <optional>
#include <utility>

#include "eplog/result.h"

namespace eplog {

template <typename T>
class Task;

namespace internal {

// Frames of coroutines come and go by the million: they are kept for the next of their size.
void* AllocateFrame(size_t size);
void FreeFrame(void* frame, size_t size) noexcept;

struct TaskPromiseBase {
  std::coroutine_handle<> continuation;
  bool starting = false;  // the awaiting parent has not suspended (yet)

  static void* operator new(size_t size) { return AllocateFrame(size); }
  static void operator delete(void* frame, size_t size) noexcept { FreeFrame(frame, size); }

  struct FinalAwaiter {
    [[nodiscard]] bool await_ready() const noexcept { return false; }
    template <typename Promise>
    void await_suspend(std::coroutine_handle<Promise> self) const noexcept {
      TaskPromiseBase& promise = self.promise();
      if (!promise.starting && promise.continuation) {
        promise.continuation.resume();  // may destroy `self`: touch nothing after this
      }
    }
    void await_resume() const noexcept {}
  };

  std::suspend_always initial_suspend() noexcept { return {}; }
  FinalAwaiter final_suspend() noexcept { return {}; }
  void unhandled_exception() noexcept { std::terminate(); }
};

template <typename T>
struct TaskPromise : TaskPromiseBase {
  std::optional<T> value;
  Task<T> get_return_object() noexcept;
  template <typename U>
  void return_value(U&& v) {
    value.emplace(std::forward<U>(v));
  }
};

template <>
struct TaskPromise<void> : TaskPromiseBase {
  Task<void> get_return_object() noexcept;
  void return_void() noexcept {}
};

}  // namespace internal

template <typename T = void>
class [[nodiscard]] Task {
 public:
  using promise_type = internal::TaskPromise<T>;
  using Handle = std::coroutine_handle<promise_type>;

  Task() = default;
  explicit Task(Handle handle) : handle_(handle) {}
  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, {})) {}
  Task& operator=(Task&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;
  ~Task() {
    if (handle_) {
      handle_.destroy();
    }
  }

  struct Awaiter {
    Handle handle;
    [[nodiscard]] bool await_ready() const noexcept { return false; }
    bool await_suspend(std::coroutine_handle<> parent) const {
      internal::TaskPromiseBase& promise = handle.promise();
      promise.continuation = parent;
      promise.starting = true;
      handle.resume();
      if (handle.done()) {
        return false;  // finished in place: the parent goes on
      }
      promise.starting = false;
      return true;
    }
    T await_resume() const {
      if constexpr (!std::is_void_v<T>) {
        return std::move(*handle.promise().value);
      }
    }
  };
  Awaiter operator co_await() const& noexcept { return Awaiter{handle_}; }
  Awaiter operator co_await() const&& noexcept { return Awaiter{handle_}; }

 private:
  Handle handle_;
};

namespace internal {
template <typename T>
Task<T> TaskPromise<T>::get_return_object() noexcept {
  return Task<T>(std::coroutine_handle<TaskPromise<T>>::from_promise(*this));
}
inline Task<void> TaskPromise<void>::get_return_object() noexcept {
  return Task<void>(std::coroutine_handle<TaskPromise<void>>::from_promise(*this));
}
}  // namespace internal

}  // namespace eplog

// Leave a coroutine with the error of `result` (a named Status or Result, already awaited).
#define EPLOG_CO_TRY(result)                                  \
  do {                                                        \
    if (!(result).ok()) {                                     \
      ::eplog::Error eplog_error = std::move(result).error(); \
      co_return ::eplog::Fail(std::move(eplog_error));        \
    }                                                         \
  } while (false)

// Await what `expr` makes, a Task<Status>, and leave the coroutine with its error. The task has a
// name, since gcc 12 destroys temporaries of an awaited expression twice.
#define EPLOG_CO_AWAIT(expr)                 \
  do {                                       \
    auto eplog_task = (expr);                \
    auto eplog_status = co_await eplog_task; \
    EPLOG_CO_TRY(eplog_status);              \
  } while (false)
