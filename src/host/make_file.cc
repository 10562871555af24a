#include "host/make_file.h"

#include <fmt/format.h>

#include <system_error>

#include "device/file_device.h"
#include "host/bounded_call.h"
#include "host/candidate.h"
#include "host/typed_path.h"
#include "runtime/io_uring_loop.h"
#include "runtime/run_task.h"
#include "terminal/console.h"

namespace eplog {
namespace {

bool IsBelow(const std::filesystem::path& path, const std::filesystem::path& directory) {
  const std::filesystem::path relative = path.lexically_relative(directory);
  return !relative.empty() && *relative.begin() != "..";
}

Result<DeviceIdentity> MakeMemberFile(std::string_view verb, const std::filesystem::path& path,
                                      uint64_t bytes) {
  auto loop = IoUringLoop::Create();
  if (!loop.ok()) {
    return Fail(std::move(loop).error());
  }
  ProgressBar bar(verb, "writing " + path.string(), ProgressBar::Unit::kBytes);
  CreateFileOptions options;
  options.progress = bar.Sink();
  auto made = RunTask(**loop, CreateMemberFile(**loop, path.string(), bytes, options));
  bar.Finish();
  return made;
}

Result<bool> IsLink(const std::filesystem::path& path) {
  return Bounded<bool>(path, [path]() -> Result<bool> {
    std::error_code ignored;
    return std::filesystem::is_symlink(path, ignored);
  });
}

}  // namespace

Result<bool> IsAmongDevices(const std::filesystem::path& path) {
  return Bounded<bool>(path, [path]() -> Result<bool> {
    std::error_code ignored;
    const auto directory = std::filesystem::weakly_canonical(path.parent_path(), ignored);
    return IsBelow(directory, "/dev") && !IsBelow(directory, "/dev/shm");
  });
}

Status MadeFile::MayMake(const ArrayFile& file, bool asked) const {
  const auto link = IsLink(path_);
  EPLOG_TRY(link);
  if (*link) {
    return Fail(
        ErrorCode::kNotFound,
        fmt::format("{} is a link to nothing; give what it should lead to", path_.string()));
  }
  const auto device = IsAmongDevices(path_);
  EPLOG_TRY(device);
  if (*device) {
    return Fail(ErrorCode::kNotFound,
                fmt::format("there is no {}, and files are not made in /dev", path_.string()));
  }
  if (!asked && !IsBelow(path_, file.file.parent_path())) {
    return Fail(ErrorCode::kNotFound,
                fmt::format("there is no {}; --make-file makes a file there", path_.string()));
  }
  const std::filesystem::path folder = path_.parent_path();
  const auto there = IsThere(folder);
  EPLOG_TRY(there);
  return *there ? CheckCandidate(file, folder) : OkStatus();
}

Status MadeFile::Make(std::string_view verb, const ArrayFile& file, uint64_t bytes, bool asked) {
  EPLOG_TRY(MayMake(file, asked));
  const auto made = MakeMemberFile(verb, path_, bytes);
  EPLOG_TRY(made);
  auto probed = ProbeDevice(path_, *made);
  EPLOG_TRY(probed);
  probed_ = std::move(*probed);
  made_ = true;
  return OkStatus();
}

MadeFile::~MadeFile() {
  if (!made_) {
    return;
  }
  auto loop = IoUringLoop::Create();
  if (!loop.ok()) {
    return;
  }
  const FileDeviceOptions only{.looked_at = probed_.identity};
  const auto locked = FileDevice::Open(**loop, path_.string(), only);  // until it is removed
  if (!locked.ok()) {
    return;
  }
  const auto superblock = ReadSuperblock(path_, probed_);
  if (superblock.ok() || superblock.error().code != ErrorCode::kNotFound) {
    return;  // it may have become a member
  }
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
}

}  // namespace eplog
