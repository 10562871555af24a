#include "log/log_ring.h"

#include <algorithm>

namespace eplog {
namespace {

// Moves the first `bytes` of `parts` to a list of their own.
std::vector<iovec> TakeFront(std::vector<iovec>& parts, uint64_t bytes) {
  std::vector<iovec> front;
  size_t i = 0;
  while (bytes != 0) {
    iovec part = parts[i];
    if (part.iov_len <= bytes) {
      ++i;
    } else {
      parts[i].iov_base = static_cast<std::byte*>(part.iov_base) + bytes;
      parts[i].iov_len -= bytes;
      part.iov_len = bytes;
    }
    bytes -= part.iov_len;
    front.push_back(part);
  }
  parts.erase(parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(i));
  return front;
}

uint64_t BytesToWrap(const Geometry& geometry, uint64_t place) {
  return (geometry.log_blocks - place % geometry.log_blocks) * kBlockBytes;
}

}  // namespace

Task<Status> WriteLog(MemberSet& members, const Geometry& geometry, DeviceIndex log, uint64_t place,
                      std::vector<iovec> parts, IoKind kind) {
  const uint64_t before_wrap = BytesToWrap(geometry, place);
  if (TotalBytes(parts) > before_wrap) {
    const std::vector<iovec> front = TakeFront(parts, before_wrap);
    Task<Status> first = members.Write(log, geometry.LogOffset(place), front, kind);
    Status status = co_await first;
    EPLOG_CO_TRY(status);
    place += before_wrap / kBlockBytes;
  }
  Task<Status> rest = members.Write(log, geometry.LogOffset(place), parts, kind);
  co_return co_await rest;
}

Task<Status> ReadLog(MemberSet& members, const Geometry& geometry, DeviceIndex log, uint64_t place,
                     std::span<std::byte> into) {
  const uint64_t before_wrap = BytesToWrap(geometry, place);
  if (into.size() > before_wrap) {
    Task<Status> first = members.ReadBytes(log, geometry.LogOffset(place), into.first(before_wrap));
    Status status = co_await first;
    EPLOG_CO_TRY(status);
    place += before_wrap / kBlockBytes;
    into = into.subspan(before_wrap);
  }
  Task<Status> rest = members.ReadBytes(log, geometry.LogOffset(place), into);
  co_return co_await rest;
}

Task<void> LogReader::Load(uint32_t j, uint64_t place) {
  Window& window = windows_[j];
  window.first = place;
  window.blocks = std::min(kWindowBlocks, geometry_.log_blocks - place % geometry_.log_blocks);
  if (!window.buffer) {
    window.buffer = pool_.Get(kWindowBlocks * kBlockBytes);
  }
  const auto into = window.buffer.span().first(window.blocks * kBlockBytes);
  Task<Status> read = members_.ReadBytes(geometry_.LogDevice(j), geometry_.LogOffset(place), into);
  const Status status = co_await read;
  window.readable = status.ok();
  if (!status.ok() && window.blocks > 1) {
    // One bad block must not hide its neighbours.
    window.blocks = 1;
    Task<Status> single = members_.ReadBytes(geometry_.LogDevice(j), geometry_.LogOffset(place),
                                             window.buffer.span().first(kBlockBytes));
    const Status again = co_await single;
    window.readable = again.ok();
  }
}

Task<std::optional<EntryHeader>> LogReader::HeaderAt(uint32_t j, uint64_t place) {
  met_unknown_ = false;
  if (!members_.live(geometry_.LogDevice(j))) {
    co_return std::nullopt;
  }
  Window& window = windows_[j];
  if (!window.buffer || place < window.first || place >= window.first + window.blocks) {
    Task<void> load = Load(j, place);
    co_await load;
  }
  if (!window.readable) {
    co_return std::nullopt;
  }
  const auto block =
      window.buffer.span().subspan((place - window.first) * kBlockBytes, kBlockBytes);
  Result<EntryHeader> header = DecodeEntryHeader(block, array_, geometry_);
  met_unknown_ = !header.ok() && header.error().code == ErrorCode::kUnsupported;
  if (!header.ok() || header->place != place) {
    co_return std::nullopt;
  }
  co_return std::move(*header);
}

}  // namespace eplog
