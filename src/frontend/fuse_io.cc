// Data: open, read, write, sync, release. Sizes: the node's is what the kernel believes; the
// array's is the truth, asked again whenever the array refuses a range.
#include <fcntl.h>
#include <linux/fuse.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <utility>

#include "frontend/fuse_calls.h"
#include "frontend/fuse_session.h"

namespace eplog {
namespace {

void Touch(FuseNode& node) {
  ::clock_gettime(CLOCK_REALTIME_COARSE, &node.mtime);
  node.ctime = node.mtime;
}

bool RangeRefused(const Status& status) {
  return !status.ok() && status.error().code == ErrorCode::kInvalidArgument;
}

// The reply to CREATE begins with this; libfuse has no way to send it together with our open flags.
fuse_entry_out WireEntry(const fuse_entry_param& entry) {
  fuse_entry_out out{};
  out.nodeid = entry.ino;
  out.generation = entry.generation;
  out.entry_valid = static_cast<uint64_t>(entry.entry_timeout);
  out.attr_valid = static_cast<uint64_t>(entry.attr_timeout);
  const struct stat& from = entry.attr;
  out.attr.ino = from.st_ino;
  out.attr.size = static_cast<uint64_t>(from.st_size);
  out.attr.blocks = static_cast<uint64_t>(from.st_blocks);
  out.attr.atime = static_cast<uint64_t>(from.st_atim.tv_sec);
  out.attr.mtime = static_cast<uint64_t>(from.st_mtim.tv_sec);
  out.attr.ctime = static_cast<uint64_t>(from.st_ctim.tv_sec);
  out.attr.atimensec = static_cast<uint32_t>(from.st_atim.tv_nsec);
  out.attr.mtimensec = static_cast<uint32_t>(from.st_mtim.tv_nsec);
  out.attr.ctimensec = static_cast<uint32_t>(from.st_ctim.tv_nsec);
  out.attr.mode = from.st_mode;
  out.attr.nlink = static_cast<uint32_t>(from.st_nlink);
  out.attr.uid = from.st_uid;
  out.attr.gid = from.st_gid;
  out.attr.blksize = static_cast<uint32_t>(from.st_blksize);
  return out;
}

}  // namespace

bool FuseSession::RefreshSize(FuseNode& node) {
  const auto info = array_.GetVolume(node.id);
  if (!info) {
    return false;
  }
  node.size_bytes = info->size_bytes;
  return true;
}

// The reply is raw, since libfuse 3.14.0 has no field for FOPEN_PARALLEL_DIRECT_WRITES. `created`:
// answer CREATE.
void FuseSession::Open(FuseRequest request, const FuseNodePtr& node, int flags,
                       const fuse_entry_param* created) {
  if (node->gone) {
    request.Error(ESTALE);  // the kernel looks the name up anew
    return;
  }
  if (options_.read_only && (flags & O_ACCMODE) != O_RDONLY) {
    request.Error(EROFS);
    return;
  }
  const bool direct = (flags & O_DIRECT) != 0;
  fuse_open_out open{};
  open.fh = direct ? kDirectHandle : kCachedHandle;
  if (direct) {
    open.open_flags = FOPEN_DIRECT_IO | FOPEN_PARALLEL_DIRECT_WRITES;
  } else if (!std::exchange(node->cache_stale, false)) {
    open.open_flags = FOPEN_KEEP_CACHE;
  }
  std::array<std::byte, sizeof(fuse_entry_out) + sizeof(fuse_open_out)> reply{};
  size_t size = 0;
  if (created != nullptr) {
    const fuse_entry_out entry = WireEntry(*created);
    std::memcpy(reply.data(), &entry, sizeof(entry));
    size = sizeof(entry);
  }
  std::memcpy(reply.data() + size, &open, sizeof(open));
  uint32_t& opens = direct ? node->direct_opens : node->cached_opens;
  const uint64_t lookups = created != nullptr ? 1 : 0;
  ++opens;
  node->lookups += lookups;
  if (!request.Bytes(reply.data(), size + sizeof(open))) {
    --opens;  // the caller was interrupted: no RELEASE will come
    ForgetLookups(node, lookups);
  }
}

void FuseSession::Release(FuseRequest request, const FuseNodePtr& node, bool direct) {
  uint32_t& opens = direct ? node->direct_opens : node->cached_opens;
  --opens;
  RemoveIfUnused(node);
  request.Error(0);
}

Task<void> FuseSession::Read(FuseRequest request, FuseNodePtr node, uint64_t offset_bytes,
                             size_t size) {
  std::byte* into = request.buffer.payload();
  for (int attempt = 0;; ++attempt) {
    const uint64_t rest = node->size_bytes - std::min(node->size_bytes, offset_bytes);
    const size_t count = std::min<uint64_t>(size, rest);
    if (count == 0) {
      request.Bytes(nullptr, 0);
      co_return;
    }
    request.buffer.Touched(count);
    const Status status = co_await array_.Read(node->id, offset_bytes, {into, count});
    if (status.ok()) {
      request.Bytes(into, count);
      co_return;
    }
    // The volume may have shrunk meanwhile, by another front end.
    const bool again = attempt == 0 && RangeRefused(status) && RefreshSize(*node);
    if (!again) {
      request.Status(status);
      co_return;
    }
  }
}

Task<void> FuseSession::Write(FuseRequest request, FuseNodePtr node, WriteCall call) {
  if (call.offset_bytes < kMaxVolumeBytes) {  // as far as there can be room, as every file system
    const uint64_t room = kMaxVolumeBytes - call.offset_bytes;
    call.data = call.data.first(std::min<uint64_t>(call.data.size(), room));
  }
  const size_t size = call.data.size();
  Status status = co_await WriteRange(*node, call);
  if (status.ok() && call.sync) {
    status = co_await FlushRange(*node, call.offset_bytes, call.data.size());
  }
  if (!status.ok()) {
    request.Status(status);
    co_return;
  }
  Touch(*node);
  if (call.direct) {
    if (node->cached_opens == 0) {
      node->cache_stale = true;  // pages that outlived their opener; the next one drops them
    } else {
      // A cached reader may have fetched the old content while we wrote. The kernel may answer only
      // after it got the pages that it waits for, and their reads need buffers: with as many
      // writers here as there are buffers it would wait for ever.
      request.GiveBackBuffer();
      Task<bool> invalidate = Invalidate(node->inode(), call.offset_bytes, size);
      const bool forgotten = co_await invalidate;
      if (!forgotten) {
        // Nobody is told that it is written while who has the file open may go on reading what was
        // there before. As to all others when the connection ends.
        request.Error(ECONNABORTED);
        co_return;
      }
    }
  }
  request.Written(size);
}

Task<Status> FuseSession::WriteRange(FuseNode& node, WriteCall call) {
  bool asked_again = false;
  while (true) {
    const uint64_t end = call.offset_bytes + call.data.size();
    if (end > node.size_bytes) {
      if (!call.from_page_cache) {
        const Status extended = co_await ExtendAndWrite(node, call);
        co_return extended;
      }
      // Dirty pages of a part that was cut off since: as if they had been written before the cut.
      if (call.offset_bytes >= node.size_bytes) {
        co_return OkStatus();
      }
      call.data = call.data.first(node.size_bytes - call.offset_bytes);
    }
    node.written_to = std::max(node.written_to, call.offset_bytes + call.data.size());
    Status status = co_await array_.Write(node.id, call.offset_bytes, call.data);
    if (asked_again || !RangeRefused(status)) {
      co_return status;
    }
    asked_again = true;
    if (!RefreshSize(node)) {
      co_return status;
    }
  }
}

// A write past the end. If its data finds no room, the size goes back, as a file's would; but not
// behind what others have written meanwhile in what it had grown by.
Task<Status> FuseSession::ExtendAndWrite(FuseNode& node, WriteCall call) {
  const uint64_t end = call.offset_bytes + call.data.size();
  if (end > kMaxVolumeBytes) {
    Error error;
    error.code = ErrorCode::kInvalidArgument;
    error.errno_value = EFBIG;
    error.message = "larger than a volume can be";
    co_return Fail(std::move(error));
  }
  const AsyncMutex::Guard guard = co_await node.size_lock.Lock();
  if (!RefreshSize(node)) {
    co_return Fail(ErrorCode::kNotFound, "the volume is gone");
  }
  const uint64_t before = node.size_bytes;
  node.written_to = before;
  if (end > before) {
    Status resized = co_await array_.ResizeVolume(node.id, end);
    EPLOG_CO_TRY(resized);
    node.size_bytes = end;
  }
  Status status = co_await array_.Write(node.id, call.offset_bytes, call.data);
  if (!status.ok() && end > before && node.size_bytes == end) {
    const uint64_t back_to = std::min(end, node.written_to);
    const Status undone = co_await array_.ResizeVolume(node.id, back_to);
    if (undone.ok()) {
      node.size_bytes = back_to;
    }
  }
  co_return status;
}

Task<Status> FuseSession::Resize(FuseNode& node, uint64_t size_bytes, bool only_grow) {
  const AsyncMutex::Guard guard = co_await node.size_lock.Lock();
  if (!RefreshSize(node)) {
    co_return Fail(ErrorCode::kNotFound, "the volume is gone");
  }
  if (node.size_bytes == size_bytes || (only_grow && node.size_bytes > size_bytes)) {
    co_return OkStatus();
  }
  Status status = co_await array_.ResizeVolume(node.id, size_bytes);
  if (status.ok()) {
    node.size_bytes = size_bytes;
    Touch(node);
  }
  co_return status;
}

Task<Status> FuseSession::FlushRange(FuseNode& node, uint64_t offset_bytes, uint64_t length_bytes) {
  const uint64_t rest = node.size_bytes - std::min(node.size_bytes, offset_bytes);
  const uint64_t length = std::min(length_bytes, rest);
  if (length == 0) {
    co_return OkStatus();
  }
  Task<Status> flush = array_.Flush(node.id, offset_bytes, length);
  co_return co_await flush;
}

// FSYNC names no range.
Task<void> FuseSession::Sync(FuseRequest request, FuseNodePtr node) {
  if (options_.read_only) {
    request.Error(0);
    co_return;
  }
  const Status status = co_await FlushRange(*node, 0, UINT64_MAX);
  request.Status(status);
}

Task<void> FuseSession::Allocate(FuseRequest request, FuseNodePtr node, uint64_t end_bytes) {
  if (end_bytes > kMaxVolumeBytes) {
    request.Error(EFBIG);
    co_return;
  }
  Status status = OkStatus();
  RefreshSize(*node);
  if (end_bytes > node->size_bytes) {
    status = co_await Resize(*node, end_bytes, /*only_grow=*/true);
  }
  request.Status(status);
}

// Punches a hole or zeroes a range; what lies beyond the size is zero anyway.
Task<void> FuseSession::Trim(FuseRequest request, FuseNodePtr node, uint64_t begin_bytes,
                             uint64_t end_bytes, TrimMode mode, bool grow) {
  if (options_.read_only || end_bytes > kMaxVolumeBytes) {
    request.Error(options_.read_only ? EROFS : EFBIG);
    co_return;
  }
  Status status = OkStatus();
  if (grow) {
    RefreshSize(*node);  // another front end may have shrunk it
  }
  if (grow && end_bytes > node->size_bytes) {
    status = co_await Resize(*node, end_bytes, /*only_grow=*/true);
  }
  for (int attempt = 0; attempt < 2 && status.ok(); ++attempt) {
    const uint64_t end = std::min(end_bytes, node->size_bytes);
    if (begin_bytes >= end) {
      break;
    }
    status = co_await array_.Trim(node->id, begin_bytes, end - begin_bytes, mode);
    if (attempt != 0 || !RangeRefused(status) || !RefreshSize(*node)) {
      break;
    }
    status = OkStatus();
  }
  request.Status(status);
}

void FuseSession::ReplyStatistics(FuseRequest request) {
  const ArrayStatus status = array_.GetStatus();
  struct statvfs statistics {};
  statistics.f_bsize = kBlockBytes;
  statistics.f_frsize = kBlockBytes;
  statistics.f_blocks = status.capacity_bytes / kBlockBytes;
  statistics.f_bfree = status.free_bytes / kBlockBytes;
  statistics.f_bavail = statistics.f_bfree;
  statistics.f_namemax = kMaxVolumeNameBytes;
  request.Statistics(statistics);
}

}  // namespace eplog
