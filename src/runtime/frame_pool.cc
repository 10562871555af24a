// Free lists for coroutine frames, so that awaiting a Task allocates nothing in steady state.
// One pool a thread; a frame is freed on the thread that made it. Off under AddressSanitizer, which
// should see every use of a dead frame.

#include <array>
#include <cstdlib>
#include <new>

#include "eplog/task.h"

namespace eplog::internal {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kPooled = false;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
constexpr bool kPooled = false;
#else
constexpr bool kPooled = true;
#endif
#else
constexpr bool kPooled = true;
#endif

constexpr size_t kStep = 64;
constexpr size_t kClasses = 64;  // frames up to 4 KiB; larger ones go to the allocator

struct FreeFrameNode {
  FreeFrameNode* next;
};

struct Pool {
  std::array<FreeFrameNode*, kClasses> lists{};
  Pool() = default;
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  ~Pool() {
    for (FreeFrameNode*& head : lists) {
      while (head != nullptr) {
        FreeFrameNode* node = head;
        head = node->next;
        ::operator delete(node);
      }
    }
  }
};

Pool& ThreadPool() {
  thread_local Pool pool;
  return pool;
}

size_t ClassOf(size_t size) {
  return (size + kStep - 1) / kStep;
}

}  // namespace

void* AllocateFrame(size_t size) {
  const size_t index = ClassOf(size);
  if (!kPooled || index >= kClasses) {
    return ::operator new(size);
  }
  FreeFrameNode*& head = ThreadPool().lists[index];
  if (head == nullptr) {
    return ::operator new(index* kStep);
  }
  FreeFrameNode* node = head;
  head = node->next;
  return node;
}

void FreeFrame(void* frame, size_t size) noexcept {
  const size_t index = ClassOf(size);
  if (!kPooled || index >= kClasses) {
    ::operator delete(frame);
    return;
  }
  auto* node = static_cast<FreeFrameNode*>(frame);
  FreeFrameNode*& head = ThreadPool().lists[index];
  node->next = head;
  head = node;
}

}  // namespace eplog::internal
