#include "rings/log_ring.h"

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

Task<Status> WriteLog(MemberSet& members, const Geometry& geometry, LogWrite write) {
  const uint64_t before_wrap = BytesToWrap(geometry, write.place);
  bool header = true;
  const auto count = [&](uint64_t bytes) {
    if (write.counted != nullptr) {
      write.counted->headers += header ? kBlockBytes : 0;
      write.counted->chunks += bytes - (header ? kBlockBytes : 0);
    }
    header = false;
  };
  if (TotalBytes(write.parts) > before_wrap) {
    const std::vector<iovec> front = TakeFront(write.parts, before_wrap);
    EPLOG_CO_AWAIT(members.Write(write.log, geometry.LogOffset(write.place), front, write.kind));
    count(before_wrap);
    write.place += before_wrap / kBlockBytes;
  }
  Task<Status> rest =
      members.Write(write.log, geometry.LogOffset(write.place), write.parts, write.kind);
  Status status = co_await rest;
  if (status.ok()) {
    count(TotalBytes(write.parts));
  }
  co_return status;
}

Task<Status> ReadLog(MemberSet& members, const Geometry& geometry, DeviceIndex log, uint64_t place,
                     std::span<std::byte> into) {
  const uint64_t before_wrap = BytesToWrap(geometry, place);
  if (into.size() > before_wrap) {
    EPLOG_CO_AWAIT(members.ReadBytes(log, geometry.LogOffset(place), into.first(before_wrap)));
    place += before_wrap / kBlockBytes;
    into = into.subspan(before_wrap);
  }
  Task<Status> rest = members.ReadBytes(log, geometry.LogOffset(place), into);
  co_return co_await rest;
}

Task<Status> LogReader::Load(uint32_t j, Window& window) {
  const DeviceIndex log = geometry_.LogDevice(j);
  const auto into = window.buffer.span().first(window.blocks * kBlockBytes);
  Task<Status> read = members_.ReadBytes(log, geometry_.LogOffset(window.first), into);
  const Status status = co_await read;
  window.readable = status.ok();
  if (!status.ok() && window.blocks > 1) {
    // One bad block must not hide its neighbours.
    window.blocks = 1;
    Task<Status> single = members_.ReadBytes(log, geometry_.LogOffset(window.first),
                                             window.buffer.span().first(kBlockBytes));
    const Status again = co_await single;
    window.readable = again.ok();
  }
  window.done = true;
  co_return OkStatus();
}

void LogReader::StartRead(uint32_t j, uint64_t place) {
  auto window = std::make_unique<Window>();
  window->first = place;
  window->blocks = std::min(kWindowBlocks, geometry_.log_blocks - place % geometry_.log_blocks);
  window->buffer = pool_.Get(kWindowBlocks * kBlockBytes);
  copies_[j].windows.push_back(std::move(window));
  reads_.Start(Load(j, *copies_[j].windows.back()));
}

// Until the first window holds the place. Who goes on where a window ends has more read ahead each
// time; a jump begins anew.
Task<void> LogReader::MoveTo(uint32_t j, uint64_t place) {
  Copy& copy = copies_[j];
  while (true) {
    while (!copy.windows.empty() && !copy.windows.front()->done) {
      Task<void> below = reads_.WaitBelow(reads_.running());
      co_await below;
    }
    if (!copy.windows.empty() && copy.windows.front()->Holds(place)) {
      break;
    }
    const bool next = !copy.windows.empty() &&
                      place >= copy.windows.front()->first + copy.windows.front()->blocks &&
                      place < copy.windows.front()->first + 2 * kWindowBlocks;
    if (!next) {
      Task<void> drain = Drain();  // of all copies: buffers on their way go with their windows
      co_await drain;
      copy.windows.clear();
      copy.ahead = 0;
      StartRead(j, place);
      continue;
    }
    copy.ahead = std::min(copy.ahead + 1, kMostAhead);
    copy.windows.pop_front();
    if (copy.windows.empty()) {
      StartRead(j, place);
    }
  }
  while (copy.windows.size() <= copy.ahead) {
    const Window& last = *copy.windows.back();
    StartRead(j, last.first + last.blocks);
  }
}

Task<void> LogReader::Drain() {
  Task<Status> all = reads_.Wait();
  const Status status = co_await all;
  static_cast<void>(status);  // a window says for itself whether it could be read
}

Task<std::optional<EntryHeader>> LogReader::HeaderAt(uint32_t j, uint64_t place) {
  met_unknown_.reset();
  met_unreadable_ = false;
  if (!members_.live(geometry_.LogDevice(j))) {
    co_return std::nullopt;
  }
  Task<void> move = MoveTo(j, place);
  co_await move;
  const Window& window = *copies_[j].windows.front();
  if (!window.readable) {
    met_unreadable_ = true;
    co_return std::nullopt;
  }
  const auto block =
      window.buffer.span().subspan((place - window.first) * kBlockBytes, kBlockBytes);
  Result<EntryHeader> header = DecodeEntryHeader(block, array_, geometry_);
  if (header.ok() && header->place == place) {
    co_return std::move(*header);
  }
  if (!header.ok() && header.error().code == ErrorCode::kUnsupported) {
    Result<EntryHeader> fixed = DecodeEntryFixed(block, array_);
    if (fixed.ok() && fixed->place == place) {
      met_unknown_ = std::move(*fixed);
    }
  }
  co_return std::nullopt;
}

}  // namespace eplog
