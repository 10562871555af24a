#include "device/inject_device.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/buffer.h"

namespace eplog {
namespace {

constexpr uint64_t kResolution = uint64_t{1} << 32;
constexpr uint64_t kMisdirectedBytes = uint64_t{1} << 20;

}  // namespace

void InjectDevice::Set(const Injection& injection) {
  now_ = injection;
  any_ = injection.read_error_rate > 0 || injection.write_error_rate > 0 ||
         injection.corrupt != 0 || injection.misdirect != 0 || injection.slow_us != 0 ||
         injection.hang || injection.drop;
  if (!now_.hang) {
    cleared_.NotifyAll();
  }
}

Error InjectDevice::Struck(ErrorCode code, int errno_value, const char* what) const {
  Error error;
  error.code = code;
  error.errno_value = errno_value;
  error.message = name() + ": injected: " + what;
  return error;
}

Task<Status> InjectDevice::Before(double error_rate, const char* what) {
  if (now_.slow_us != 0) {
    co_await loop_.Sleep(now_.slow_us);
    if (abandoned_) {
      co_return Fail(Struck(ErrorCode::kDeviceFailed, ETIMEDOUT, "the device was slow"));
    }
  }
  if (now_.hang) {
    ++struck_;
    while (now_.hang) {
      co_await cleared_.Wait();
    }
    // By now nobody may wait for it, and its memory may be in other use.
    co_return Fail(Struck(ErrorCode::kDeviceFailed, ETIMEDOUT, "the device hung"));
  }
  if (now_.drop) {
    ++struck_;
    co_return Fail(Struck(ErrorCode::kDeviceFailed, ENODEV, "the device is gone"));
  }
  const auto bound = static_cast<uint64_t>(error_rate * static_cast<double>(kResolution));
  if (bound != 0 && random_.Below(kResolution) < bound) {
    ++struck_;
    co_return Fail(Struck(ErrorCode::kIo, EIO, what));
  }
  co_return OkStatus();
}

Task<Status> InjectDevice::Read(uint64_t offset_bytes, std::span<const iovec> into) {
  return any_ ? StruckRead(offset_bytes, into) : below().Read(offset_bytes, into);
}

Task<Status> InjectDevice::Write(uint64_t offset_bytes, std::span<const iovec> from) {
  return any_ ? StruckWrite(offset_bytes, from) : below().Write(offset_bytes, from);
}

Task<Status> InjectDevice::Flush() {
  return any_ ? StruckFlush() : below().Flush();
}

Task<Status> InjectDevice::Discard(uint64_t offset_bytes, uint64_t length_bytes) {
  return any_ ? StruckDiscard(offset_bytes, length_bytes)
              : below().Discard(offset_bytes, length_bytes);
}

Task<Status> InjectDevice::StruckRead(uint64_t offset_bytes, std::span<const iovec> into) {
  EPLOG_CO_AWAIT(Before(now_.read_error_rate, "a read error"));
  Task<Status> read = below().Read(offset_bytes, into);
  co_return co_await read;
}

Task<Status> InjectDevice::StruckWrite(uint64_t offset_bytes, std::span<const iovec> from) {
  EPLOG_CO_AWAIT(Before(now_.write_error_rate, "a write error"));
  if (now_.corrupt != 0 || now_.misdirect != 0) {
    const bool misdirected = now_.corrupt == 0;
    --(misdirected ? now_.misdirect : now_.corrupt);
    ++struck_;
    Task<Status> wrong = WriteWrong(offset_bytes, from, misdirected);
    co_return co_await wrong;
  }
  Task<Status> write = below().Write(offset_bytes, from);
  co_return co_await write;
}

Task<Status> InjectDevice::WriteWrong(uint64_t offset_bytes, std::span<const iovec> from,
                                      bool misdirected) {
  BufferPool pool;
  const Buffer copy = pool.Get(TotalBytes(from));
  size_t at = 0;
  for (const iovec& part : from) {
    std::memcpy(copy.data() + at, part.iov_base, part.iov_len);
    at += part.iov_len;
  }
  if (misdirected) {
    const bool back = offset_bytes >= kMisdirectedBytes;
    offset_bytes = back ? offset_bytes - kMisdirectedBytes : offset_bytes + kMisdirectedBytes;
  } else {
    const uint64_t bit = random_.Below(copy.size() * 8);
    copy.data()[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
  }
  const iovec part{copy.data(), copy.size()};
  Task<Status> write = below().Write(offset_bytes, std::span(&part, 1));
  co_return co_await write;
}

Task<Status> InjectDevice::StruckFlush() {
  EPLOG_CO_AWAIT(Before(now_.write_error_rate, "a failed flush"));
  Task<Status> flush = below().Flush();
  co_return co_await flush;
}

Task<Status> InjectDevice::StruckDiscard(uint64_t offset_bytes, uint64_t length_bytes) {
  EPLOG_CO_AWAIT(Before(0, ""));
  Task<Status> discard = below().Discard(offset_bytes, length_bytes);
  co_return co_await discard;
}

}  // namespace eplog
