#include "tests/damage/image.h"

#include <cstring>
#include <utility>

#include "device/request_check.h"

namespace eplog::damage {

ImageDevice::ImageDevice(std::string name, const Bytes& base)
    : name_(std::move(name)), base_(base), now_(base), changed_(base.size() / kBlockBytes) {}

Task<Status> ImageDevice::Read(uint64_t offset_bytes, std::span<const iovec> into) {
  Status checked = CheckRequest(*this, "read", offset_bytes, into);
  EPLOG_CO_TRY(checked);
  const std::byte* from = now_.data() + offset_bytes;
  for (const iovec& part : into) {
    std::memcpy(part.iov_base, from, part.iov_len);
    from += part.iov_len;
  }
  co_return OkStatus();
}

Task<Status> ImageDevice::Write(uint64_t offset_bytes, std::span<const iovec> from) {
  Status checked = CheckRequest(*this, "write", offset_bytes, from);
  EPLOG_CO_TRY(checked);
  ++writes_;
  Touch(offset_bytes, TotalBytes(from));
  std::byte* to = now_.data() + offset_bytes;
  for (const iovec& part : from) {
    std::memcpy(to, part.iov_base, part.iov_len);
    to += part.iov_len;
  }
  co_return OkStatus();
}

Task<Status> ImageDevice::Flush() {
  co_return OkStatus();
}

Task<Status> ImageDevice::Discard(uint64_t offset_bytes, uint64_t length_bytes) {
  co_return CheckRange(*this, "discard", offset_bytes, length_bytes);
}

std::span<std::byte> ImageDevice::Change(uint64_t block) {
  Touch(block * kBlockBytes, kBlockBytes);
  return std::span(now_).subspan(block * kBlockBytes, kBlockBytes);
}

void ImageDevice::Touch(uint64_t offset_bytes, uint64_t length_bytes) {
  for (uint64_t block = offset_bytes / kBlockBytes;
       block * kBlockBytes < offset_bytes + length_bytes; ++block) {
    if (!changed_[block]) {
      changed_[block] = true;
      changes_.push_back(block);
    }
  }
}

void ImageDevice::Restore() {
  for (const uint64_t block : changes_) {
    std::memcpy(now_.data() + block * kBlockBytes, base_.data() + block * kBlockBytes, kBlockBytes);
    changed_[block] = false;
  }
  changes_.clear();
  writes_ = 0;
}

}  // namespace eplog::damage
