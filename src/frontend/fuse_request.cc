// FuseRequest: answers, and what ends with a request; errors as errno.
#include <cerrno>
#include <utility>

#include "frontend/fuse_session.h"

namespace eplog {

int ErrnoOf(const Error& error) {
  if (error.code == ErrorCode::kInvalidArgument && error.errno_value == EFBIG) {
    return EFBIG;
  }
  switch (error.code) {
    case ErrorCode::kNoSpace:
      return ENOSPC;
    case ErrorCode::kInvalidArgument:
      return EINVAL;
    case ErrorCode::kBusy:
      return EBUSY;
    case ErrorCode::kUnsupported:
      return EOPNOTSUPP;
    case ErrorCode::kNotFound:
      return ENOENT;
    case ErrorCode::kExists:
      return EEXIST;
    case ErrorCode::kReadOnly:
      return EROFS;
    case ErrorCode::kIo:
    case ErrorCode::kCorrupt:
    case ErrorCode::kDeviceFailed:
    case ErrorCode::kTooManyFailures:
    case ErrorCode::kShutdown:
      return EIO;
  }
  return EIO;
}

FuseRequest::FuseRequest(FuseSession& session, fuse_req_t req) : session_(&session), req_(req) {
  session_->in_flight_.Add();
}

FuseRequest::FuseRequest(FuseRequest&& other) noexcept
    : buffer(std::move(other.buffer)),
      session_(std::exchange(other.session_, nullptr)),
      req_(std::exchange(other.req_, nullptr)) {}

FuseRequest::~FuseRequest() {
  if (session_ == nullptr) {
    return;
  }
  GiveBackBuffer();
  session_->in_flight_.Done();
}

void FuseRequest::GiveBackBuffer() {
  if (buffer) {
    buffer = RequestBuffer();
    session_->buffer_free_.NotifyOne();
  }
}

fuse_req_t FuseRequest::Take() {
  return std::exchange(req_, nullptr);
}

// libfuse returns -ENOENT if the caller was interrupted and the kernel dropped the request.
bool FuseRequest::Error(int error) {
  return fuse_reply_err(Take(), error) != -ENOENT;
}

bool FuseRequest::Status(const eplog::Status& status) {
  return Error(status.ok() ? 0 : ErrnoOf(status.error()));
}

bool FuseRequest::Bytes(const void* data, size_t size) {
  return fuse_reply_buf(Take(), static_cast<const char*>(data), size) != -ENOENT;
}

bool FuseRequest::Written(size_t size) {
  return fuse_reply_write(Take(), size) != -ENOENT;
}

bool FuseRequest::Attributes(const struct stat& attributes) {
  return fuse_reply_attr(Take(), &attributes, kAttributeSeconds) != -ENOENT;
}

bool FuseRequest::Entry(const fuse_entry_param& entry) {
  return fuse_reply_entry(Take(), &entry) != -ENOENT;
}

bool FuseRequest::Statistics(const struct statvfs& statistics) {
  return fuse_reply_statfs(Take(), &statistics) != -ENOENT;
}

bool FuseRequest::Opened(const fuse_file_info& info) {
  return fuse_reply_open(Take(), &info) != -ENOENT;
}

}  // namespace eplog
