// Which process serves an array, and by which mount: written down beside its control socket. This
// can be read where nobody answers any more, and without a look at any path that may lie on a mount
// whose process is gone. Blocks for files of the control directory alone.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "eplog/result.h"

namespace eplog {

struct ServerMark {
  int pid = 0;
  uint64_t started = 0;  // in the kernel's clock: no later process with the same number has it
  dev_t mount = 0;       // the number of the file system; 0: it has none
  std::string socket_path;
};

// Of this process.
[[nodiscard]] Status WriteServerMark(const std::string& socket_path, dev_t mount);
void RemoveServerMark(const std::string& socket_path);

// nullopt: there is none.
[[nodiscard]] std::optional<ServerMark> ReadServerMark(const std::string& socket_path);
// All that are in this directory.
[[nodiscard]] std::vector<ServerMark> ReadServerMarks(const std::string& directory);

enum class ServerLife : uint8_t {
  kRuns,
  // It was killed and does not end: a thread of it waits in the kernel for something that waits for
  // it, or for a device that does not answer. Its descriptors stay open meanwhile.
  kDying,
  kGone,
};
[[nodiscard]] ServerLife LifeOf(const ServerMark& mark);

}  // namespace eplog
