#include "host/typed_path.h"

#include <fcntl.h>

#include <algorithm>
#include <system_error>

#include "base/file_descriptor.h"
#include "host/bounded_call.h"

namespace eplog {

using std::filesystem::path;

Result<path> ResolveTyped(const path& typed) {
  return Bounded<path>(typed, [typed]() -> Result<path> { return ResolveParent(typed); });
}

Result<path> ResolveDevice(const ArrayFile& file, const path& typed) {
  if (std::find(typed.begin(), typed.end(), "..") != typed.end()) {
    return ResolveTyped(typed);  // what is before it may be a link
  }
  std::error_code ignored;
  const path plain = std::filesystem::absolute(typed, ignored).lexically_normal();
  const bool listed = !file.MemberAt(plain).empty() || file.ListsSpare(plain);
  return listed ? plain : ResolveTyped(typed);
}

Result<bool> IsThere(const path& at) {
  return Bounded<bool>(at, [at]() -> Result<bool> {
    std::error_code ignored;
    return std::filesystem::exists(at, ignored);
  });
}

// The kernel may know what is there without asking; opening asks. Only what that does nothing to is
// opened: whoever writes into a pipe would take this for its reader.
Status CheckAnswers(const path& at) {
  return Bounded<void>(at, [at]() -> Status {
    std::error_code ignored;
    const std::filesystem::file_status found = std::filesystem::status(at, ignored);
    if (std::filesystem::is_regular_file(found) || std::filesystem::is_directory(found)) {
      const FileDescriptor opened(::open(at.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    }
    return OkStatus();
  });
}

Result<TypedArray> LookAtArray(const path& argument) {
  return Bounded<TypedArray>(argument, [argument]() -> Result<TypedArray> {
    return TypedArray{ArrayFilePath(argument), LoadArrayFile(argument)};
  });
}

}  // namespace eplog
