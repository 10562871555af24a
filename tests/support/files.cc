#include "tests/support/files.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/check.h"
#include "base/random.h"
#include "base/types.h"

namespace eplog {

int AwaitExit(pid_t& child) {
  int status = 0;
  if (::waitpid(child, &status, 0) != child) {
    return -1;
  }
  child = 0;
  return WIFSIGNALED(status) ? 1000 + WTERMSIG(status) : WEXITSTATUS(status);
}

TemporaryDirectory::TemporaryDirectory() {
  std::array<char, 64> name{"/tmp/eplog-frontend-XXXXXX"};
  EPLOG_CHECK(::mkdtemp(name.data()) != nullptr, "no temporary directory");
  path_ = name.data();
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

File::File(const std::string& path, int flags, unsigned mode)
    : fd_(::open(path.c_str(), flags | O_CLOEXEC, mode)) {
  EXPECT_GE(fd_, 0) << path << ": " << std::strerror(errno);
}

void File::Close() {
  if (fd_ >= 0) {
    ::close(std::exchange(fd_, -1));
  }
}

AlignedBytes::AlignedBytes(size_t size, uint64_t seed)
    : data_(static_cast<std::byte*>(std::aligned_alloc(4096, RoundUp(size, 4096)))), size_(size) {
  FillPattern(span(), seed);
}

AlignedBytes::~AlignedBytes() {
  std::free(data_);
}

void FillPattern(std::span<std::byte> bytes, uint64_t seed) {
  Random random(seed);
  for (size_t i = 0; i < bytes.size(); i += sizeof(uint64_t)) {
    const uint64_t word = random.Next();
    std::memcpy(bytes.data() + i, &word, std::min(sizeof(word), bytes.size() - i));
  }
}

}  // namespace eplog
