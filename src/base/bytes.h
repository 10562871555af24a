// Little-endian encoding into and out of byte buffers: the only way that numbers reach a disk.
// ByteWriter never writes past its span and ByteReader never reads past its own: overrunning sets a
// sticky failure that the caller checks once at the end; what is read after it is 0. Varints are
// LEB128, at most 10 bytes.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace eplog {

static_assert(std::endian::native == std::endian::little, "the on-disk format is little-endian");

template <typename T>
inline void StoreLe(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof(T));
}

template <typename T>
inline T LoadLe(const std::byte* from) {
  T value{};
  std::memcpy(&value, from, sizeof(T));
  return value;
}

class ByteWriter {
 public:
  explicit ByteWriter(std::span<std::byte> out) : out_(out) {}

  void U8(uint8_t v) { Fixed(v); }
  void U16(uint16_t v) { Fixed(v); }
  void U32(uint32_t v) { Fixed(v); }
  void U64(uint64_t v) { Fixed(v); }
  void Varint(uint64_t v) {
    while (v >= 0x80) {
      U8(static_cast<uint8_t>(v | 0x80));
      v >>= 7;
    }
    U8(static_cast<uint8_t>(v));
  }
  void Bytes(std::span<const std::byte> bytes) {
    if (Room(bytes.size()) && !bytes.empty()) {
      std::memcpy(out_.data() + size_, bytes.data(), bytes.size());
      size_ += bytes.size();
    }
  }
  void Zeros(size_t count) {
    if (Room(count) && count != 0) {
      std::memset(out_.data() + size_, 0, count);
      size_ += count;
    }
  }

  [[nodiscard]] size_t size() const { return size_; }
  [[nodiscard]] bool ok() const { return ok_; }
  [[nodiscard]] std::span<std::byte> written() const { return out_.first(size_); }

 private:
  template <typename T>
  void Fixed(T v) {
    if (Room(sizeof(T))) {
      StoreLe(out_.data() + size_, v);
      size_ += sizeof(T);
    }
  }
  bool Room(size_t count) {
    ok_ = ok_ && count <= out_.size() - size_;
    return ok_;
  }

  std::span<std::byte> out_;
  size_t size_ = 0;
  bool ok_ = true;
};

class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> in) : in_(in) {}

  uint8_t U8() { return Fixed<uint8_t>(); }
  uint16_t U16() { return Fixed<uint16_t>(); }
  uint32_t U32() { return Fixed<uint32_t>(); }
  uint64_t U64() { return Fixed<uint64_t>(); }
  uint64_t Varint() {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 70; shift += 7) {
      const uint8_t byte = U8();
      if (shift == 63 && byte > 1) {
        break;
      }
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if ((byte & 0x80) == 0) {
        return ok_ ? value : 0;
      }
    }
    ok_ = false;
    return 0;
  }
  // A view into the input; empty on failure.
  std::span<const std::byte> Bytes(size_t count) {
    if (!Has(count)) {
      return {};
    }
    const auto view = in_.subspan(at_, count);
    at_ += count;
    return view;
  }
  void Fail() { ok_ = false; }

  [[nodiscard]] size_t position() const { return at_; }
  [[nodiscard]] size_t remaining() const { return ok_ ? in_.size() - at_ : 0; }
  [[nodiscard]] bool ok() const { return ok_; }

 private:
  template <typename T>
  T Fixed() {
    if (!Has(sizeof(T))) {
      return 0;
    }
    const T v = LoadLe<T>(in_.data() + at_);
    at_ += sizeof(T);
    return v;
  }
  bool Has(size_t count) {
    ok_ = ok_ && count <= in_.size() - at_;
    return ok_;
  }

  std::span<const std::byte> in_;
  size_t at_ = 0;
  bool ok_ = true;
};

}  // namespace eplog
