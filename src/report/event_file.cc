#include "report/event_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>

namespace eplog {

void AppendEventLine(const std::string& path, const std::string& line, uint64_t max_bytes) {
  struct stat file {};
  if (::stat(path.c_str(), &file) == 0 &&
      static_cast<uint64_t>(file.st_size) + line.size() > max_bytes) {
    static_cast<void>(std::rename(path.c_str(), (path + ".1").c_str()));
  }
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) {
    return;
  }
  const ssize_t written = ::write(fd, line.data(), line.size());
  static_cast<void>(written);
  ::close(fd);
}

}  // namespace eplog
