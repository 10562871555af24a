// OneWriter: an array is open for writing by one process of this machine, told by its UUID (I10). The
// locks of its devices do not meet where two nodes lead to one storage; nor are they the same where
// one array is a copy of another, which may be served from the same place once only. Who reads it is
// told in the same way, so that nobody takes its devices for others.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "eplog/result.h"
#include "host/array_file.h"

namespace eplog {

class OneWriter {
 public:
  // kBusy: another has it, who is named. Waits for a dead one's last requests as the locks of
  // devices do; `despite_dead`: and then takes it all the same, where they go to devices that are
  // not opened at all. Where its file cannot be made, there is no lock: those of the devices are
  // there.
  static Result<OneWriter> Take(const ArrayFile& file, bool despite_dead = false);
  // One of those who have it open to read, which keeps nobody out; where there is no lock to be had,
  // none.
  static OneWriter TakeToRead(const ArrayFile& file);
  // Who has the array of this UUID, as far as can be seen: "process 123 (eplog)". nullopt: nobody
  // has. Waits for a dead one's last requests, too. Bounded.
  static std::optional<std::string> Who(const std::string& uuid);
  OneWriter() = default;
  OneWriter(OneWriter&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), path_(std::exchange(other.path_, "")) {}
  OneWriter& operator=(OneWriter&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(path_, other.path_);
    return *this;
  }
  OneWriter(const OneWriter&) = delete;
  OneWriter& operator=(const OneWriter&) = delete;
  ~OneWriter();

  // -1: it has no lock.
  [[nodiscard]] int fd() const { return fd_; }

 private:
  int fd_ = -1;
  std::string path_;  // empty: it has no lock
};

}  // namespace eplog
