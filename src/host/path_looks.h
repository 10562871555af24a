// PathLooks: what is at several paths, seen by processes of their own. A file system in user space
// that hangs keeps whoever asks it, and no signal ends that: one thread kept so would keep its
// whole process, and whoever waits for that to end.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/file_descriptor.h"
#include "eplog/device.h"

namespace eplog {

class PathLooks {
 public:
  // Absolute ones. Whoever looks does so one after the other; who does not answer within kTurn
  // keeps nobody else waiting.
  explicit PathLooks(std::vector<std::string> paths);
  static constexpr std::chrono::milliseconds kTurn{200};

  struct Answer {
    size_t path = 0;  // which of them
    // Nothing: no file and no block device is there, or nobody may look.
    std::optional<DeviceIdentity> identity;
  };
  // The next answer, however long it takes; each path has one at most. Nothing: no more will come,
  // since all have, or since whoever looked has ended without one.
  std::optional<Answer> Next();

 private:
  struct Looker {
    FileDescriptor answers;
    size_t at;  // the path that it looks at
  };
  void StartLooker(size_t first);
  std::optional<Answer> Take(Looker& looker, bool& ended);
  [[nodiscard]] bool MoreBehindNewest() const;

  std::vector<std::string> paths_;
  std::vector<bool> answered_;
  std::vector<Looker> lookers_;  // the newest is the last
};

}  // namespace eplog
