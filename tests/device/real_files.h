// Real files for tests: folders that clean up after themselves, small file systems, processes that
// hold a lock. What the machine does not allow is reported, so that the test can skip by name.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace eplog::test {

// A folder under `parent`, removed with its files at the end.
class TempFolder {
 public:
  explicit TempFolder(const std::string& parent);
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder();
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string File(const std::string& name) const { return path_ + "/" + name; }
  // An empty or sparse file.
  [[nodiscard]] std::string MakeFile(const std::string& name, uint64_t size_bytes) const;

 private:
  std::string path_;
};

// A file system of `kind` ("tmpfs", "ramfs") on a folder of its own.
class SmallFileSystem {
 public:
  SmallFileSystem(const std::string& kind, const std::string& options);
  SmallFileSystem(const SmallFileSystem&) = delete;
  SmallFileSystem& operator=(const SmallFileSystem&) = delete;
  ~SmallFileSystem();
  // Empty if it is mounted; else why not.
  [[nodiscard]] const std::string& trouble() const { return trouble_; }
  [[nodiscard]] const TempFolder& folder() const { return folder_; }

 private:
  TempFolder folder_;
  std::string trouble_;
};

// A loop device over a file.
class LoopDevice {
 public:
  explicit LoopDevice(const std::string& file);
  LoopDevice(const LoopDevice&) = delete;
  LoopDevice& operator=(const LoopDevice&) = delete;
  ~LoopDevice();
  [[nodiscard]] const std::string& trouble() const { return trouble_; }
  [[nodiscard]] const std::string& path() const { return path_; }
  // It is as large as its file is by now.
  [[nodiscard]] bool FollowFile() const;

 private:
  int fd_ = -1;
  std::string path_;
  std::string trouble_;
};

// A process that runs `body` and then stays until it is killed. The constructor returns when `body`
// has.
class OtherProcess {
 public:
  explicit OtherProcess(const std::function<void()>& body);
  OtherProcess(const OtherProcess&) = delete;
  OtherProcess& operator=(const OtherProcess&) = delete;
  ~OtherProcess();
  // SIGKILL, without waiting for it: it becomes a zombie.
  void Kill();
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
};

// Bytes that the file occupies.
[[nodiscard]] uint64_t OccupiedBytes(const std::string& path);

}  // namespace eplog::test
