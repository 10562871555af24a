// Result<T> and Status: how every room reports failure. No exception crosses a room.
//
// An Error carries a code that names the *reaction* a caller should have, plus the device, byte
// offset and errno where they are known. The message is one line for a person: what, where, the
// mend.
#pragma once

#include <cstdint>
#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace eplog {

enum class ErrorCode : uint8_t {
  kIo,            // the device answered with an error; the request may be decoded from redundancy
  kCorrupt,       // the bytes are there and are wrong (CRC, magic, reference)
  kDeviceFailed,  // the device is not to be used any more
  kTooManyFailures,  // more than m failures: what was asked cannot be given
  kNoSpace,          // no room, here or on the disk below
  kInvalidArgument,  // the request makes no sense; nothing was changed
  kBusy,             // somebody else holds it
  kUnsupported,      // a newer format, or something that this build or machine cannot do
  kNotFound,
  kExists,
  kReadOnly,
  kShutdown,  // the array is closing or has stopped
};

[[nodiscard]] const char* ErrorCodeName(ErrorCode code);

inline constexpr int kNoDevice = -1;
inline constexpr int64_t kNoOffset = -1;

struct Error {
  ErrorCode code = ErrorCode::kIo;
  std::string message;
  int device = kNoDevice;  // index in the array's device list (SSDs first, then log devices)
  int64_t offset_bytes = kNoOffset;  // on that device
  int errno_value = 0;

  // The one line that a person reads: message, then what is known of place and cause.
  [[nodiscard]] std::string ToString() const;
};

template <typename T>
class [[nodiscard]] Result : public tl::expected<T, Error> {
 public:
  using tl::expected<T, Error>::expected;
  [[nodiscard]] bool ok() const { return this->has_value(); }
};

using Status = Result<void>;

inline Status OkStatus() {
  return Status();
}

inline tl::unexpected<Error> Fail(ErrorCode code, std::string message) {
  Error error;
  error.code = code;
  error.message = std::move(message);
  return tl::unexpected<Error>(std::move(error));
}
inline tl::unexpected<Error> Fail(Error error) {
  return tl::unexpected<Error>(std::move(error));
}

// errno -> Error: ENOSPC and EDQUOT are kNoSpace, all else kIo.
tl::unexpected<Error> FailErrno(int errno_value, std::string message);

}  // namespace eplog

// Return early with the error of `expr`, a call or something that is there already. Not for use
// around co_await (see EPLOG_CO_TRY in eplog/task.h).
#define EPLOG_TRY(expr)                                             \
  do {                                                              \
    if (auto&& eplog_try_result = (expr); !eplog_try_result.ok()) { \
      return ::eplog::Fail(std::move(eplog_try_result).error());    \
    }                                                               \
  } while (false)
