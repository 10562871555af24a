// PathLooks: what is at several paths, seen by another process. A file system in user space that
// hangs keeps whoever asks it, and no signal ends that: one thread kept so would keep its whole
// process, and whoever waits for that to end.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/file_descriptor.h"
#include "eplog/device.h"
#include "eplog/result.h"

namespace eplog {

class PathLooks {
 public:
  using Clock = std::chrono::steady_clock;
  // Runs in a process of its own. Nothing: no file and no block device is there, or nobody may
  // look.
  using Look = std::optional<DeviceIdentity> (*)(const std::string& path);
  static std::optional<DeviceIdentity> LookAt(const std::string& path);

  // All are looked at at once. The paths are absolute. An error if no process can be had.
  static Result<PathLooks> Begin(std::vector<std::string> paths, Look look = LookAt);
  PathLooks(PathLooks&& other) noexcept;
  PathLooks& operator=(PathLooks&&) = delete;
  PathLooks(const PathLooks&) = delete;
  PathLooks& operator=(const PathLooks&) = delete;
  // Ends who looks, and does not wait for that: a look that not even SIGKILL ends stays behind, with
  // nothing of this process but its memory.
  ~PathLooks();

  struct Answer {
    size_t path = 0;  // which of them
    std::optional<DeviceIdentity> identity;
  };
  // The next answer, in any order; each path has one. Nothing: none has come until then, or all
  // have. kIo: who looked has ended without.
  Result<std::optional<Answer>> Next(Clock::time_point until);

 private:
  PathLooks(FileDescriptor answers, size_t count, pid_t looker)
      : answers_(std::move(answers)), left_(count), looker_(looker) {}

  FileDescriptor answers_;
  size_t left_;
  pid_t looker_;
};

}  // namespace eplog
