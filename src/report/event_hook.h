// EventHook: a command of the owner's, run by /bin/sh.
//
// It is started by a process of its own, which comes to be with this, so before this process opens
// members. Whoever executes a program closes what it has inherited, and a file system that hangs
// (FUSE, NFS) lets nobody close a file: a command that inherits a member would not begin in just the
// moment when its owner is to be told, and whoever looks at processes meanwhile (`ps`) would hang
// as well. Standard input, output and error and the working directory are those of this process
// when the command is run, the environment is the one from the beginning. If that process is killed
// there is no other, which would inherit the members.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/file_descriptor.h"

namespace eplog {

class EventHook {
 public:
  // A command that takes longer than that is ended, with its children. Before members are opened.
  EventHook(std::string command, std::chrono::milliseconds longest);
  ~EventHook();
  EventHook(const EventHook&) = delete;
  EventHook& operator=(const EventHook&) = delete;

  // `variables`: NAME=VALUE. Returns when the command is gone: for a SideThread, and one at a time.
  // A command that hangs inside the kernel, in a read of the array's own mount say, ends when that
  // does, also when it was killed; nobody else may have to wait for it.
  void Run(const std::vector<std::string>& variables);
  // False: no process can be had, and no command is run.
  [[nodiscard]] bool ok() const { return runner_.ok(); }
  // Ends the one that runs, and begins no other. On any thread.
  void Stop() { stop_ = true; }

 private:
  [[nodiscard]] bool Send(const std::string& packet) const;
  [[nodiscard]] std::optional<char> Hear() const;

  const std::chrono::milliseconds longest_;
  std::atomic<bool> stop_ = false;
  const FileDescriptor null_;  // what is handed over where this process has nothing
  const FileDescriptor root_;
  FileDescriptor runner_;  // to the process that runs it
  pid_t process_ = 0;
};

}  // namespace eplog
