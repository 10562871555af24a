// HeldClose: closing a certain file takes as long as the test likes, as on a file system that does
// not answer. This test program has a close() of its own for that.
#pragma once

#include <filesystem>

namespace eplog {

// One at a time. On the thread that made it, closing is only noted.
class HeldClose {
 public:
  // Of the descriptor that is open there now.
  explicit HeldClose(const std::filesystem::path& path);
  ~HeldClose() { Release(); }
  HeldClose(const HeldClose&) = delete;
  HeldClose& operator=(const HeldClose&) = delete;

  void Release();
  // Some thread closes it, or has.
  [[nodiscard]] bool begun() const;
  // It was the one that must not wait.
  [[nodiscard]] bool begun_here() const;
};

}  // namespace eplog
