// Memory for FUSE requests in flight: a fixed number of large slots, reserved once as address space
// and backed by RAM only as far as requests touched them. A slot belongs to one request from before
// it is read until after it is answered; it is never shared, and never reused before the answer.
//
// A slot is laid out so that the payload of a WRITE, which follows 80 bytes of headers, starts on a
// page, and so that a READ can be answered from the same payload area.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/types.h"

namespace eplog {

class RequestBuffers;

class RequestBuffer {
 public:
  static constexpr size_t kPayloadBytes = size_t{1} << 20;
  static constexpr size_t kHeaderBytes = 80;  // fuse_in_header and fuse_write_in
  // What a message may take from message() on: libfuse reads up to the payload and a page.
  static constexpr size_t kMessageBytes = kPayloadBytes + kBlockBytes;

  RequestBuffer() = default;
  RequestBuffer(RequestBuffer&& other) noexcept { Swap(other); }
  RequestBuffer& operator=(RequestBuffer&& other) noexcept {
    Swap(other);
    return *this;
  }
  RequestBuffer(const RequestBuffer&) = delete;
  RequestBuffer& operator=(const RequestBuffer&) = delete;
  ~RequestBuffer();

  [[nodiscard]] explicit operator bool() const { return pool_ != nullptr; }
  [[nodiscard]] std::byte* message() const { return payload() - kHeaderBytes; }
  [[nodiscard]] std::byte* payload() const;
  // Tell how much of the payload was used, so that RAM of rare large requests is given back.
  void Touched(size_t payload_bytes);

 private:
  friend class RequestBuffers;
  RequestBuffer(RequestBuffers* pool, uint32_t slot) : pool_(pool), slot_(slot) {}
  void Swap(RequestBuffer& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(slot_, other.slot_);
  }

  RequestBuffers* pool_ = nullptr;
  uint32_t slot_ = 0;
};

class RequestBuffers {
 public:
  explicit RequestBuffers(uint32_t slots);
  ~RequestBuffers();
  RequestBuffers(const RequestBuffers&) = delete;
  RequestBuffers& operator=(const RequestBuffers&) = delete;

  // Empty if every slot is in use. The slot used last comes first.
  [[nodiscard]] RequestBuffer TryGet();
  [[nodiscard]] size_t free_slots() const { return free_.size(); }

 private:
  friend class RequestBuffer;
  static constexpr size_t kStride = kBlockBytes + RequestBuffer::kMessageBytes;
  // A slot is fat once a request touched more than this of it; so many may stay fat.
  static constexpr size_t kThinBytes = size_t{128} << 10;
  static constexpr uint32_t kKeepFat = 64;

  [[nodiscard]] std::byte* SlotAt(uint32_t slot) const { return memory_ + slot * kStride; }
  void MarkFat(uint32_t slot);
  void Put(uint32_t slot) noexcept;

  uint32_t slots_;
  std::byte* memory_ = nullptr;
  std::vector<uint32_t> free_;  // a stack
  std::vector<bool> fat_;
  uint32_t fat_count_ = 0;
};

}  // namespace eplog
