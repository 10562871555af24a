#include "eplog/result.h"

#include <cerrno>
#include <system_error>

namespace eplog {

const char* ErrorCodeName(ErrorCode code) {
  switch (code) {
    case ErrorCode::kIo:
      return "io";
    case ErrorCode::kCorrupt:
      return "corrupt";
    case ErrorCode::kDeviceFailed:
      return "device failed";
    case ErrorCode::kTooManyFailures:
      return "too many failures";
    case ErrorCode::kNoSpace:
      return "no space";
    case ErrorCode::kInvalidArgument:
      return "invalid argument";
    case ErrorCode::kBusy:
      return "busy";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kNotFound:
      return "not found";
    case ErrorCode::kExists:
      return "exists";
    case ErrorCode::kReadOnly:
      return "read-only";
    case ErrorCode::kShutdown:
      return "shut down";
  }
  return "unknown";
}

std::string Error::ToString() const {
  std::string text = message;
  if (offset_bytes != kNoOffset) {
    text += " at byte " + std::to_string(offset_bytes);
  }
  if (errno_value != 0) {
    text += ": " + std::generic_category().message(errno_value);
  }
  return text;
}

tl::unexpected<Error> FailErrno(int errno_value, std::string message) {
  Error error;
  error.code =
      (errno_value == ENOSPC || errno_value == EDQUOT) ? ErrorCode::kNoSpace : ErrorCode::kIo;
  error.message = std::move(message);
  error.errno_value = errno_value;
  return tl::unexpected<Error>(std::move(error));
}

}  // namespace eplog
