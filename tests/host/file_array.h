// An array of files with an owner to open it, and a copy of it as another node of each device would
// show it.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "host/device_content.h"
#include "host/session.h"
#include "tests/support/temp_dir.h"

namespace eplog {

class FileArrayTest : public testing::Test {
 protected:
  static constexpr uint64_t kBytes = uint64_t{16} << 20;
  static inline const std::vector<std::string> kMembers = {"ssd0", "ssd1", "ssd2", "log0"};

  void SetUp() override {
    auto loop = IoUringLoop::Create();
    if (!loop.ok()) {
      GTEST_SKIP() << "needs io_uring";
    }
    file_ = FileIn(dir_);
    std::vector<std::unique_ptr<FileDevice>> devices;
    std::vector<Device*> members;
    for (const std::string& member : kMembers) {
      auto device = FileDevice::Open(**loop, dir_.WriteSparse(member, kBytes).string());
      ASSERT_TRUE(device.ok());
      members.push_back(device->get());
      devices.push_back(std::move(*device));
    }
    CreateOptions options;
    options.parity = 1;
    options.entropy = Entropy();
    ASSERT_TRUE(RunTask(**loop, Array::Create(**loop, {members.begin(), members.end() - 1},
                                              {members.back()}, options))
                    .ok());
    devices.clear();
    file_.uuid = UuidToString(ReadSuperblock(dir_.path() / "ssd0")->array_uuid);
    ASSERT_TRUE(WriteArrayFile(file_).ok());
  }
  static ArrayFile FileIn(const TempDir& dir) {
    ArrayFile file;
    file.file = dir.path() / kArrayFileName;
    file.name = "demo";
    for (const std::string& member : kMembers) {
      file.members.push_back({member, member});
    }
    return file;
  }
  static Result<std::unique_ptr<Session>> Open(const ArrayFile& file,
                                               const MemberOptions& options = {}) {
    return Session::Open("test", file, options);
  }
  [[nodiscard]] std::filesystem::path At(const std::string& name) const {
    return dir_.path() / name;
  }

  TempDir dir_;
  ArrayFile file_;
};

}  // namespace eplog
