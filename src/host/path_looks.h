// PathLooks: what is at several paths, seen by another process. A file system in user space that
// hangs keeps whoever asks it, and no signal ends that: one thread kept so would keep its whole
// process, and whoever waits for that to end.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/file_descriptor.h"
#include "eplog/device.h"
#include "eplog/result.h"

namespace eplog {

class PathLooks {
 public:
  using Clock = std::chrono::steady_clock;
  // Runs in a process of its own, which allocates no memory. Nothing: no file and no block device
  // is there, or nobody may look. What more it sees it writes to `content`, which is zero and
  // aligned to a page where that is what its size is a multiple of.
  using Look = std::optional<DeviceIdentity> (*)(const std::string& path,
                                                 std::span<std::byte> content);
  static std::optional<DeviceIdentity> LookAt(const std::string& path,
                                              std::span<std::byte> content);

  // All are looked at at once, with so many bytes of content for each. The paths are absolute. An
  // error if no process can be had, or no memory that it shares. Who looks has closed before that
  // what this process has open: nothing of it may lie on what hangs, but what is held as a path.
  static Result<PathLooks> Begin(std::vector<std::string> paths, Look look = LookAt,
                                 size_t content_bytes = 0);
  // What is at each, all looked at at once and until then; nothing where that does not answer.
  static Result<std::vector<std::optional<DeviceIdentity>>> At(std::vector<std::string> paths,
                                                               Clock::time_point until);
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
  // Of a path that has answered; valid as long as this.
  [[nodiscard]] std::span<const std::byte> content(size_t path) const;

 private:
  class SharedMemory;

  PathLooks(FileDescriptor answers, size_t count, pid_t looker,
            std::unique_ptr<SharedMemory> contents);

  FileDescriptor answers_;
  size_t left_;
  std::unique_ptr<SharedMemory> contents_;
  pid_t looker_;
};

}  // namespace eplog
