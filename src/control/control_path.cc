// Where control sockets live, and who may look into that directory.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <string>

#include "control/control.h"

namespace eplog {
namespace {

std::string SocketDirectory() {
  if (::geteuid() == 0) {
    return "/run/eplog";
  }
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");  // NOLINT(concurrency-mt-unsafe)
  if (runtime != nullptr && runtime[0] == '/') {
    return std::string(runtime) + "/eplog";
  }
  return "/tmp/eplog-" + std::to_string(::geteuid());
}

}  // namespace

std::string ControlSocketPath(const std::string& array_uuid) {
  return SocketDirectory() + "/" + array_uuid + ".sock";
}

std::string ControlDirectory(const std::string& socket_path) {
  const size_t slash = socket_path.rfind('/');
  return slash == std::string::npos ? "." : socket_path.substr(0, std::max<size_t>(slash, 1));
}

Status PrepareControlDirectory(const std::string& socket_path) {
  const std::string directory = ControlDirectory(socket_path);
  if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) {
    return FailErrno(errno, "cannot make " + directory + " for the control socket");
  }
  // In /tmp somebody else may have been there first.
  struct stat info {};
  if (::lstat(directory.c_str(), &info) != 0) {
    return FailErrno(errno, "control directory " + directory);
  }
  if (!S_ISDIR(info.st_mode) || info.st_uid != ::geteuid() || (info.st_mode & 0022) != 0) {
    return Fail(ErrorCode::kInvalidArgument,
                "control directory " + directory +
                    " must be a directory of yours that others cannot write; remove it");
  }
  return OkStatus();
}

}  // namespace eplog
