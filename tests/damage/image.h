// Devices of an array that was made once and is opened thousands of times: each case works on the
// bytes of the base and takes back only the blocks that it changed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/types.h"
#include "eplog/device.h"

namespace eplog::damage {

using Bytes = std::vector<std::byte>;

class ImageDevice final : public Device {
 public:
  // `base` outlives this.
  ImageDevice(std::string name, const Bytes& base);

  Task<Status> Read(uint64_t offset_bytes, std::span<const iovec> into) override;
  Task<Status> Write(uint64_t offset_bytes, std::span<const iovec> from) override;
  Task<Status> Flush() override;
  Task<Status> Discard(uint64_t offset_bytes, uint64_t length_bytes) override;

  [[nodiscard]] uint64_t size_bytes() const override { return now_.size(); }
  [[nodiscard]] const DeviceCapabilities& capabilities() const override { return capabilities_; }
  [[nodiscard]] const std::string& name() const override { return name_; }

  // To damage a block: whatever is changed there is taken back too.
  [[nodiscard]] std::span<std::byte> Change(uint64_t block);
  // As in the base again.
  void Restore();
  [[nodiscard]] uint64_t writes() const { return writes_; }

 private:
  void Touch(uint64_t offset_bytes, uint64_t length_bytes);

  std::string name_;
  const Bytes& base_;
  Bytes now_;
  std::vector<bool> changed_;      // by block
  std::vector<uint64_t> changes_;  // the same as a list
  uint64_t writes_ = 0;
  DeviceCapabilities capabilities_;
};

}  // namespace eplog::damage
