// FileSpareShelf: the spares of an open array: their devices are the session's, their list is in
// array.toml.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "host/array_file.h"
#include "host/session.h"
#include "host/spare_shelf.h"
#include "host/spares.h"
#include "runtime/helper_thread.h"

namespace eplog {

class FileSpareShelf final : public SpareShelf {
 public:
  // `member`: the superblock of any of the array's.
  FileSpareShelf(Session& session, ArrayFile file, Superblock member);

  [[nodiscard]] std::vector<std::string> Listed() const override;
  Task<Result<SpareDevice>> Open(std::string path) override;
  Task<Result<SpareDevice>> Add(std::string path, DeviceIdentity looked_at) override;
  void Close(const std::string& path) override { Drop(path); }
  Task<Status> PutBack(std::string path) override;
  Task<Status> Remove(std::string path) override;
  Task<Status> Joined(std::string member, std::string path) override;

 private:
  // What may block runs on the helper's thread: the array goes on meanwhile, and it may itself be
  // below the file system that holds array.toml.
  Task<SpareFound> Identify(std::string path);
  // Opens what is at the path now, if it is what was looked at; what was open there before, and is
  // not that, is closed.
  Task<Result<Device*>> Take(std::string path, DeviceIdentity looked_at);
  void Drop(const std::string& path);
  Task<Result<SpareDevice>> MakeSpare(std::string path, Device& device);
  // Gives up when the file system of array.toml does not answer. `change` may then be made later,
  // or not: it refers to nothing that may be gone by then.
  Task<Status> Change(std::function<void(ArrayFile&)> change);
  Task<Status> Mark(Device& device);
  [[nodiscard]] Result<SpareDevice> Describe(Device& device) const;

  Session& session_;
  ArrayFile file_;  // as it was written last from here
  Superblock member_;
  // No spares until they are added by hand: what array.toml lists is read anew at each change, and
  // may list them.
  std::vector<std::filesystem::path> left_out_;
  std::map<std::string, Device*> open_;  // by the path under which it is listed
  HelperThread helper_;
};

}  // namespace eplog
