// Journal ring blocks: entry headers packed back to back behind a fixed head. It may not know why a
// header is here.
#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "format/entry.h"
#include "format/wire.h"

namespace eplog {
namespace {

tl::unexpected<Error> WrongBlock(const char* what) {
  return Fail(ErrorCode::kCorrupt, std::string("journal ring block: ") + what);
}

Status DecodeHeaders(std::span<const std::byte> payload, const Uuid& array,
                     const Geometry& geometry, RingBlock& block) {
  while (!payload.empty()) {
    size_t used = 0;
    auto header = DecodeEntryHeader(payload, array, geometry, &used);
    if (!header.ok()) {
      Error error = std::move(header).error();
      if (error.code == ErrorCode::kNotFound) {
        return WrongBlock("bytes that are no entry");
      }
      return Fail(std::move(error));
    }
    if (!block.headers.empty() && header->sequence <= block.headers.back().sequence) {
      return WrongBlock("entries out of order");
    }
    block.headers.push_back(std::move(*header));
    payload = payload.subspan(used);
  }
  return OkStatus();
}

}  // namespace

RingBlockBuilder::RingBlockBuilder(std::span<std::byte> block) : block_(block) {
  EPLOG_CHECK(block.size() == kBlockBytes, "a journal ring block has a fixed size");
}

bool RingBlockBuilder::Add(std::span<const std::byte> encoded_header, uint64_t sequence) {
  EPLOG_CHECK(encoded_header.size() >= sizeof(wire::EntryBytes), "an encoded header");
  EPLOG_CHECK(count_ == 0 || sequence > last_sequence_, "headers enter a ring block in log order");
  if (encoded_header.size() > block_.size() - used_) {
    return false;
  }
  std::memcpy(block_.data() + used_, encoded_header.data(), encoded_header.size());
  used_ += encoded_header.size();
  first_sequence_ = count_ == 0 ? sequence : first_sequence_;
  last_sequence_ = sequence;
  ++count_;
  return true;
}

void RingBlockBuilder::Finish(const Uuid& array, DeviceIndex ssd, uint64_t number) {
  EPLOG_CHECK(count_ != 0, "a ring block holds at least one header");
  wire::RingBytes head{};
  head.magic = wire::kRingMagic;
  head.array_uuid = array;
  head.ssd = ssd.value;
  head.payload_bytes = static_cast<uint16_t>(used_ - kRingBlockHeaderBytes);
  head.count = count_;
  head.number = number;
  head.first_sequence = first_sequence_;
  head.last_sequence = last_sequence_;
  wire::Store(head, block_);
  std::memset(block_.data() + used_, 0, block_.size() - used_);
  StoreLe(block_.data() + offsetof(wire::RingBytes, crc), Crc32c(block_));
}

Result<RingBlockHead> DecodeRingBlockHead(std::span<const std::byte> in, const Uuid& array,
                                          const Geometry& geometry, DeviceIndex ssd) {
  if (in.size() < kBlockBytes) {
    return Fail(ErrorCode::kNotFound, "no ring block");
  }
  in = in.first(kBlockBytes);
  const auto head = wire::Load<wire::RingBytes>(in);
  if (head.magic != wire::kRingMagic || head.array_uuid != array) {
    return Fail(ErrorCode::kNotFound, "no ring block");
  }
  if (wire::CrcAround(in, offsetof(wire::RingBytes, crc)) != head.crc) {
    return WrongBlock("wrong CRC");
  }
  if (head.number >= wire::kMostNumber) {
    return WrongBlock("a number that none is counted up to");
  }
  if (head.ssd != ssd.value || head.ssd >= geometry.n) {
    return WrongBlock("belongs to another SSD");
  }
  if (head.count == 0 || head.count > head.payload_bytes / sizeof(wire::EntryBytes) ||
      head.payload_bytes > kMaxEntryHeaderBytes) {
    return WrongBlock("impossible length");
  }
  return RingBlockHead{head.number, head.last_sequence};
}

Result<RingBlock> DecodeRingBlock(std::span<const std::byte> in, const Uuid& array,
                                  const Geometry& geometry, DeviceIndex ssd) {
  EPLOG_TRY(DecodeRingBlockHead(in, array, geometry, ssd));
  const auto head = wire::Load<wire::RingBytes>(in);
  RingBlock block;
  block.ssd = ssd;
  block.number = head.number;
  block.headers.reserve(head.count);
  EPLOG_TRY(DecodeHeaders(in.subspan(sizeof(head), head.payload_bytes), array, geometry, block));
  if (block.headers.size() != head.count || block.headers.front().sequence != head.first_sequence ||
      block.headers.back().sequence != head.last_sequence) {
    return WrongBlock("does not hold the entries that it names");
  }
  return block;
}

}  // namespace eplog
