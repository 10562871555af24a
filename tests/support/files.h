// Directories, descriptors and page aligned memory for tests that use real files, and their
// children.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace eplog {

// Waits for a child, and sets it to 0. Its exit status; 1000 + signal if it died of one.
int AwaitExit(pid_t& child);

// A directory that is removed at the end.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// A descriptor.
class File {
 public:
  File(const std::string& path, int flags, unsigned mode = 0600);
  explicit File(int fd) : fd_(fd) {}  // takes it
  File(File&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~File() { Close(); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  File& operator=(File&&) = delete;
  [[nodiscard]] int fd() const { return fd_; }
  void Close();

 private:
  int fd_;
};

// Page aligned memory with content that depends on `seed` in every byte.
class AlignedBytes {
 public:
  AlignedBytes(size_t size, uint64_t seed);
  ~AlignedBytes();
  AlignedBytes(const AlignedBytes&) = delete;
  AlignedBytes& operator=(const AlignedBytes&) = delete;
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] size_t size() const { return size_; }
  [[nodiscard]] std::span<std::byte> span() const { return {data_, size_}; }

 private:
  std::byte* data_;
  size_t size_;
};
void FillPattern(std::span<std::byte> bytes, uint64_t seed);

}  // namespace eplog
