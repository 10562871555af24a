#include "host/one_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "control/control.h"
#include "device/file_lock.h"

namespace eplog {
namespace {

// Whoever had it last took the file away; what was locked then is nobody's.
bool IsStillThere(int fd, const std::string& path) {
  struct stat open {};
  struct stat there {};
  return ::fstat(fd, &open) == 0 && ::stat(path.c_str(), &there) == 0 &&
         open.st_dev == there.st_dev && open.st_ino == there.st_ino;
}

}  // namespace

Result<OneWriter> OneWriter::Take(const ArrayFile& file) {
  const std::string socket = ControlSocketPath(file.uuid);
  if (!PrepareControlDirectory(socket).ok()) {
    return OneWriter();
  }
  const std::string path = std::filesystem::path(socket).replace_extension("writer").string();
  while (true) {
    OneWriter writer;
    writer.fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (writer.fd_ < 0) {
      return OneWriter();
    }
    Status locked = LockFile(writer.fd_, "an array with the UUID of " + file.Argument().string(),
                             /*shared=*/false);
    if (!locked.ok() && locked.error().code != ErrorCode::kBusy) {
      return OneWriter();
    }
    if (!locked.ok()) {
      locked.error().message +=
          ", which writes to it: one is a copy of the other, or the same by other paths; end that "
          "first";
      return Fail(std::move(locked).error());
    }
    if (IsStillThere(writer.fd_, path)) {
      writer.path_ = path;
      return writer;
    }
  }
}

OneWriter::~OneWriter() {
  if (!path_.empty() && IsStillThere(fd_, path_)) {  // else another's is there by now
    ::unlink(path_.c_str());
  }
  if (fd_ >= 0) {
    UnlockAndClose(fd_);
  }
}

}  // namespace eplog
