// vscsi records and the transaction log of an NBD server.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/bytes.h"
#include "trace/decoder.h"

namespace eplog::internal {
namespace {

const std::byte* BytesOf(std::string_view bytes) {
  return reinterpret_cast<const std::byte*>(bytes.data());
}

// What a SCSI command does, as far as a trace is concerned.
std::optional<TraceOp> OpOfScsi(uint16_t command) {
  switch (command) {
    case 0x08:
    case 0x28:
    case 0xA8:
    case 0x88:
      return TraceOp::kRead;
    case 0x0A:
    case 0x2A:
    case 0xAA:
    case 0x8A:
    case 0x2E:  // write and verify
    case 0xAE:
    case 0x8E:
      return TraceOp::kWrite;
    case 0x35:
    case 0x91:
      return TraceOp::kFlush;
    default:
      return std::nullopt;
  }
}

// Little-endian. Version 1: u32 serial, u32 bytes, u32 nSG, u16 command, u16 version, u64 LBN, u64
// time us. Version 2: u16 command, u16 version, u32 serial, u32 bytes, u32 nSG, u64 LBN, u64 time,
// u64 response time. The version stands in the high byte of its field.
class VscsiDecoder final : public Decoder {
 public:
  explicit VscsiDecoder(int version) : version_(version), record_bytes_(version == 1 ? 32 : 40) {}
  [[nodiscard]] bool is_text() const override { return false; }

  Step Next(std::string_view bytes, bool last) override {
    if (bytes.size() < record_bytes_) {
      if (bytes.empty() || !last) {
        return {Kind::kMore, 0};
      }
      ++number_;
      return Bad(bytes.size(), fmt::format("the file ends {} bytes into a record of {}: it was cut "
                                           "off",
                                           bytes.size(), record_bytes_));
    }
    ++number_;
    const std::byte* const at = BytesOf(bytes);
    const bool one = version_ == 1;
    const auto command = LoadLe<uint16_t>(at + (one ? 12 : 0));
    const auto version = LoadLe<uint16_t>(at + (one ? 14 : 2));
    if (version >> 8 != version_) {
      return Bad(record_bytes_, fmt::format("it says version {}, not {}", version >> 8, version_));
    }
    const auto op = OpOfScsi(command);
    if (!op) {
      return {Kind::kOther, record_bytes_};
    }
    return Take(*op, LoadLe<uint32_t>(at + (one ? 4 : 8)), LoadLe<uint64_t>(at + 16),
                LoadLe<uint64_t>(at + 24));
  }

 private:
  Step Take(TraceOp op, uint32_t length, uint64_t sector, uint64_t time_us) {
    request_ = TraceRequest{};
    request_.op = op;
    request_.time_us = time_us;
    request_.volume = *volumes_.Find("disk");
    if (op != TraceOp::kFlush) {
      if (sector > kMaxTraceOffsetBytes / kSectorBytesOfTraces) {
        return Bad(record_bytes_, fmt::format("sector {} is on no disk", sector));
      }
      request_.offset_bytes = sector * kSectorBytesOfTraces;
      request_.length_bytes = length;
    }
    return {Kind::kRequest, record_bytes_};
  }

  int version_;
  size_t record_bytes_;
};

// Big-endian. Request: 0x25609513, u32 type (low half the operation, bit 16 FUA), u64 handle, u64
// offset, u32 length. Reply: 0x67446698, u32 error, u64 handle. No data, no times.
class NbdDecoder final : public Decoder {
 public:
  [[nodiscard]] bool is_text() const override { return false; }
  [[nodiscard]] bool has_times() const override { return false; }

  Step Next(std::string_view bytes, bool last) override {
    constexpr size_t kRequestBytes = 28;
    constexpr size_t kReplyBytes = 16;
    const uint64_t magic = bytes.size() >= 4 ? Big(bytes, 0, 4) : 0;
    const bool reply = magic == 0x67446698;
    if (bytes.size() >= 4 && !reply && magic != 0x25609513) {
      return Resync(bytes, last, magic);
    }
    const size_t size = reply ? kReplyBytes : kRequestBytes;
    if (bytes.size() < size) {
      if (bytes.empty() || !last) {
        return {Kind::kMore, 0};
      }
      ++number_;
      return Bad(bytes.size(), fmt::format("the file ends {} bytes into a record of {}: it was cut "
                                           "off",
                                           bytes.size(), size));
    }
    ++number_;
    return reply ? Step{Kind::kNothing, size} : Request(bytes, size);
  }

 private:
  static uint64_t Big(std::string_view bytes, size_t at, size_t width) {
    uint64_t value = 0;
    for (size_t i = 0; i < width; ++i) {
      value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
    }
    return value;
  }

  Step Request(std::string_view bytes, size_t size) {
    const uint64_t type = Big(bytes, 4, 4);
    request_ = TraceRequest{};
    request_.volume = *volumes_.Find("disk");
    request_.offset_bytes = Big(bytes, 16, 8);
    request_.length_bytes = Big(bytes, 24, 4);
    switch (type & 0xFFFF) {
      case 0:
        request_.op = TraceOp::kRead;
        break;
      case 1:
        request_.op = TraceOp::kWrite;
        request_.fua = (type >> 16 & 1) != 0;
        break;
      case 3:
        request_.op = TraceOp::kFlush;
        request_.offset_bytes = 0;
        request_.length_bytes = 0;
        break;
      case 4:  // trim
      case 6:  // write zeroes
        request_.op = TraceOp::kTrim;
        break;
      default:  // disconnect, cache, block status
        return {Kind::kOther, size};
    }
    return {Kind::kRequest, size};
  }

  // Goes on at the next thing that looks like the beginning of a record.
  Step Resync(std::string_view bytes, bool last, uint64_t magic) {
    constexpr std::array<char, 4> kRequestMagic = {0x25, 0x60, static_cast<char>(0x95), 0x13};
    constexpr std::array<char, 4> kReplyMagic = {0x67, 0x44, 0x66, static_cast<char>(0x98)};
    const size_t found =
        std::min(bytes.find({kRequestMagic.data(), 4}, 1), bytes.find({kReplyMagic.data(), 4}, 1));
    size_t skip = found;
    if (found == std::string_view::npos) {
      skip = last ? bytes.size() : bytes.size() - 3;
    }
    ++number_;
    return Bad(skip, fmt::format("0x{:08x} begins neither a request nor a reply", magic));
  }
};

}  // namespace

std::unique_ptr<Decoder> MakeVscsiDecoder(int version) {
  return std::make_unique<VscsiDecoder>(version);
}
std::unique_ptr<Decoder> MakeNbdDecoder() {
  return std::make_unique<NbdDecoder>();
}

}  // namespace eplog::internal
