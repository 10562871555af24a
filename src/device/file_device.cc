#include "device/file_device.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/types.h"
#include "device/file_lock.h"
#include "device/request_check.h"

namespace eplog {
namespace {

constexpr uint64_t kMaxPieceBytes = uint64_t{1} << 30;  // Linux transfers less than 2 GiB a request
constexpr uint32_t kMaxAlignment = kBlockBytes;

// Requests that are worth repeating.
bool Interrupted(int result) {
  return result == -EINTR || result == -EAGAIN;
}

bool DeviceGone(int error) {
  return error == ENODEV || error == ENXIO || error == ESHUTDOWN;
}

// The part of `parts` that begins at `done` bytes and fits one request.
void CutPiece(std::span<const iovec> parts, uint64_t done, std::vector<iovec>& piece) {
  piece.clear();
  uint64_t skip = done;
  uint64_t room = kMaxPieceBytes;
  for (const iovec& part : parts) {
    if (skip >= part.iov_len) {
      skip -= part.iov_len;
      continue;
    }
    const uint64_t take = std::min<uint64_t>(part.iov_len - skip, room);
    piece.push_back({static_cast<std::byte*>(part.iov_base) + skip, take});
    skip = 0;
    room -= take;
    if (room == 0 || piece.size() == IOV_MAX) {
      return;
    }
  }
}

constexpr long kXfsMagic = 0x58465342;  // not in linux/magic.h

// Of the file system that holds the file; one that cannot be asked asks somebody else.
long FileSystemType(int fd) {
  struct statfs system {};
  return fstatfs(fd, &system) == 0 ? static_cast<long>(system.f_type) : FUSE_SUPER_MAGIC;
}

// Then what a file is like is in memory while it is open. All others may ask a server.
bool KnowsItsFiles(long type) {
  return type == EXT4_SUPER_MAGIC || type == kXfsMagic || type == BTRFS_SUPER_MAGIC ||
         type == TMPFS_MAGIC;
}

// What the block layer lets a discard cover; 0 where there is none. A partition asks its disk.
uint64_t DiscardLimit(dev_t device) {
  const std::filesystem::path folder =
      "/sys/dev/block/" + std::to_string(major(device)) + ":" + std::to_string(minor(device));
  for (const char* place : {"queue", "../queue"}) {
    std::ifstream in(folder / place / "discard_max_bytes");
    uint64_t limit = 0;
    if (in >> limit) {
      return limit;
    }
  }
  return 0;
}

}  // namespace

DeviceIdentity IdentityOf(const struct stat& file) {
  return S_ISBLK(file.st_mode) ? DeviceIdentity{true, file.st_rdev, 0}
                               : DeviceIdentity{false, file.st_dev, file.st_ino};
}

Status CheckIdentity(const std::string& path, const DeviceIdentity& now,
                     const DeviceIdentity& looked_at) {
  return now == looked_at ? OkStatus()
                          : Status(Fail(ErrorCode::kBusy,
                                        path + " is not the device that was looked at: another has "
                                               "taken its place, and nothing was written to it"));
}

Result<std::unique_ptr<FileDevice>> FileDevice::Open(IoUringLoop& loop, const std::string& path,
                                                     Options options) {
  std::unique_ptr<FileDevice> device(new FileDevice(loop, path, options));
  EPLOG_TRY(device->OpenAndLock());
  EPLOG_TRY(device->FindGeometry());
  EPLOG_TRY(device->CheckSizeLimit());
  return device;
}

FileDevice::~FileDevice() {
  if (fd_ >= 0) {
    UnlockAndClose(fd_);
  }
}

Status FileDevice::OpenAndLock() {
  struct stat file {};
  if (stat(path_.c_str(), &file) != 0) {
    return errno == ENOENT ? Status(Fail(ErrorCode::kNotFound, path_ + " does not exist"))
                           : Status(FailErrno(errno, path_ + ": cannot be examined"));
  }
  block_device_ = S_ISBLK(file.st_mode);
  if (!block_device_ && !S_ISREG(file.st_mode)) {
    return Fail(ErrorCode::kInvalidArgument, path_ + " is neither a file nor a block device");
  }
  int flags = (options_.read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC | O_DIRECT;
  if (block_device_ && !options_.read_only) {
    flags |= O_EXCL;  // refused while it is mounted or part of something
  }
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(kDeadOwnerWaitMs);
  while ((fd_ = open(path_.c_str(), flags)) < 0) {
    const int error = errno;
    if (error == EINVAL && (flags & O_DIRECT) != 0) {
      flags &= ~O_DIRECT;
      capabilities_.direct = false;
    } else if (error == EBUSY) {
      bool passing = false;
      const std::string why = WhyBlockDeviceBusy(path_, file, passing);
      if ((!why.empty() && !passing) || std::chrono::steady_clock::now() >= deadline) {
        return Fail(ErrorCode::kBusy, why.empty() ? path_ + " is in use" : why);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    } else if (error != EINTR) {
      return FailErrno(error, path_ + ": cannot be opened");
    }
  }
  // Of what is open, which need not be what the path leads to by now.
  if (fstat(fd_, &file) != 0) {
    return FailErrno(errno, path_ + ": cannot be examined");
  }
  if (S_ISBLK(file.st_mode) != block_device_) {
    return Fail(ErrorCode::kBusy, path_ + " has become something else while it was opened");
  }
  identity_ = IdentityOf(file);
  if (options_.looked_at) {
    EPLOG_TRY(CheckIdentity(path_, identity_, *options_.looked_at));
  }
  if (!block_device_) {
    const long type = FileSystemType(fd_);
    on_fuse_ = type == FUSE_SUPER_MAGIC;
    size_in_memory_ = KnowsItsFiles(type);
  }
  if (!options_.lock) {
    return OkStatus();
  }
  EPLOG_TRY(LockFile(fd_, path_, options_.read_only));
  return block_device_ && options_.read_only ? CheckNotWritten(fd_, path_) : OkStatus();
}

Status FileDevice::FindGeometry() {
  EPLOG_TRY(block_device_ ? FindBlockGeometry() : FindFileGeometry());
  size_bytes_ = RoundDown(size_bytes_, capabilities_.alignment_bytes);
  return OkStatus();
}

Status FileDevice::FindBlockGeometry() {
  int sector = 0;
  if (ioctl(fd_, BLKGETSIZE64, &size_bytes_) != 0 || ioctl(fd_, BLKSSZGET, &sector) != 0) {
    return FailErrno(errno, path_ + ": cannot tell its size");
  }
  capabilities_.alignment_bytes = std::max(static_cast<uint32_t>(sector), kSectorBytes);
  if (capabilities_.alignment_bytes > kMaxAlignment) {
    return Fail(ErrorCode::kUnsupported,
                path_ + " has sectors of " + std::to_string(sector) + " bytes, more than 4096");
  }
  struct stat file {};
  if (fstat(fd_, &file) != 0) {
    return FailErrno(errno, path_ + ": cannot be examined");
  }
  capabilities_.discard = !options_.read_only && DiscardLimit(file.st_rdev) != 0;
  return OkStatus();
}

// Else the writes to its end would fail one day, and the device with them.
Status FileDevice::CheckSizeLimit() const {
  rlimit limit{};
  if (block_device_ || options_.read_only || ::getrlimit(RLIMIT_FSIZE, &limit) != 0 ||
      limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= size_bytes_) {
    return OkStatus();
  }
  return Fail(ErrorCode::kUnsupported, path_ + " has " + std::to_string(size_bytes_ >> 10) +
                                           " KiB, and this process may write files up to " +
                                           std::to_string(limit.rlim_cur >> 10) +
                                           " KiB only (ulimit -f): raise that");
}

Status FileDevice::FindFileGeometry() {
  struct statx file {};
  if (statx(fd_, "", AT_EMPTY_PATH, STATX_SIZE | STATX_DIOALIGN, &file) != 0) {
    return FailErrno(errno, path_ + ": cannot be examined");
  }
  size_bytes_ = file.stx_size;
  capabilities_.discard = options_.discard && !options_.read_only;
  capabilities_.alignment_bytes = kSectorBytes;
  if (!capabilities_.direct) {
    return OkStatus();
  }
  uint32_t wanted = kSectorBytes;
  if ((file.stx_mask & STATX_DIOALIGN) != 0) {
    wanted = std::max({wanted, file.stx_dio_mem_align, file.stx_dio_offset_align});
    if (file.stx_dio_offset_align == 0 || wanted > kMaxAlignment) {
      GoBuffered();  // the file system says that this file cannot be read directly
      return OkStatus();
    }
  }
  for (const uint32_t alignment : {wanted, kMaxAlignment}) {
    if (DirectReadWorks(alignment)) {
      capabilities_.alignment_bytes = alignment;
      return OkStatus();
    }
  }
  GoBuffered();
  return OkStatus();
}

bool FileDevice::DirectReadWorks(uint32_t alignment_bytes) const {
  // Memory and offset that have this alignment and no better one.
  const std::unique_ptr<void, decltype(&std::free)> memory(
      std::aligned_alloc(kMaxAlignment, size_t{2} * kMaxAlignment), &std::free);
  EPLOG_CHECK(memory != nullptr, "out of memory for a buffer");
  auto* into = static_cast<std::byte*>(memory.get()) + alignment_bytes % kMaxAlignment;
  const auto offset = static_cast<off_t>(alignment_bytes % kMaxAlignment);
  return pread(fd_, into, alignment_bytes, offset) >= 0 || errno != EINVAL;
}

void FileDevice::GoBuffered() {
  const int flags = fcntl(fd_, F_GETFL);
  static_cast<void>(fcntl(fd_, F_SETFL, flags & ~O_DIRECT));
  capabilities_.direct = false;
  capabilities_.alignment_bytes = kSectorBytes;
}

Error FileDevice::MakeError(const char* verb, uint64_t offset_bytes, int result) const {
  Error error;
  if (result == 0 || (result == -ENOSPC && block_device_ && CurrentBytes() < size_bytes_)) {
    // Nothing beyond will ever be there: no bad sector, but a device that is gone. Writes behind the
    // end of a block device are answered as if it had no space.
    error.code = ErrorCode::kDeviceFailed;
    error.message = path_ + ": " + verb + " ends early: it has become shorter";
  } else {
    error = FailErrno(-result, path_ + ": " + verb + " failed").value();
    error.code = DeviceGone(-result) ? ErrorCode::kDeviceFailed : error.code;
  }
  error.offset_bytes = static_cast<int64_t>(offset_bytes);
  return error;
}

Task<Status> FileDevice::Read(uint64_t offset_bytes, std::span<const iovec> into) {
  return Transfer(Direction::kRead, offset_bytes, into);
}

Task<Status> FileDevice::Write(uint64_t offset_bytes, std::span<const iovec> from) {
  return Transfer(Direction::kWrite, offset_bytes, from);
}

IoUringLoop::Operation FileDevice::Move(Direction direction, std::span<const iovec> parts,
                                        uint64_t offset_bytes) {
  const auto count = static_cast<unsigned>(parts.size());
  const auto first = on_fuse_ ? IoUringLoop::Try::kElsewhere : IoUringLoop::Try::kHere;
  return direction == Direction::kRead
             ? loop_.Readv(fd_, parts.data(), count, offset_bytes, first)
             : loop_.Writev(fd_, parts.data(), count, offset_bytes, first);
}

Task<Status> FileDevice::Transfer(Direction direction, uint64_t offset_bytes,
                                  std::span<const iovec> parts) {
  const char* verb = direction == Direction::kRead ? "read" : "write";
  Status checked = CheckRequest(*this, verb, offset_bytes, parts);
  EPLOG_CO_TRY(checked);
  if (direction == Direction::kWrite && options_.read_only) {
    co_return Fail(ErrorCode::kReadOnly, path_ + " is open for reading only");
  }
  if (!places_.TryTake()) {
    co_await places_.Wait();
  }
  const Place place(places_);
  const uint64_t total = TotalBytes(parts);
  uint64_t done = 0;
  if (parts.size() <= IOV_MAX && total <= kMaxPieceBytes) {
    const int moved = co_await Move(direction, parts, offset_bytes);
    if (moved >= 0 && static_cast<uint64_t>(moved) == total) {
      co_return OkStatus();
    }
    if (moved < 0 && !Interrupted(moved)) {
      co_return Fail(MakeError(verb, offset_bytes, moved));
    }
    done = moved < 0 ? 0 : Progress(moved);
  }
  Task<Status> rest = TransferInPieces(direction, offset_bytes, parts, done);
  co_return co_await rest;
}

// What is large, and what came back short.
Task<Status> FileDevice::TransferInPieces(Direction direction, uint64_t offset_bytes,
                                          std::span<const iovec> parts, uint64_t done_bytes) {
  const char* verb = direction == Direction::kRead ? "read" : "write";
  const uint64_t total = TotalBytes(parts);
  std::vector<iovec> piece;
  while (done_bytes < total) {
    CutPiece(parts, done_bytes, piece);
    const uint64_t at = offset_bytes + done_bytes;
    const int moved = co_await Move(direction, piece, at);
    if (Interrupted(moved)) {
      continue;
    }
    const uint64_t progress = moved < 0 ? 0 : Progress(moved);
    if (progress == 0) {
      co_return Fail(MakeError(verb, at, std::min(moved, 0)));
    }
    done_bytes += progress;
  }
  co_return OkStatus();
}

// A direct transfer goes on where the alignment allows; the odd bytes are moved again.
uint64_t FileDevice::Progress(int moved) const {
  const auto bytes = static_cast<uint64_t>(moved);
  return RoundDown(bytes, capabilities_.alignment_bytes);
}

Task<Status> FileDevice::Flush() {
  if (!places_.TryTake()) {
    co_await places_.Wait();
  }
  const Place place(places_);
  if (flush_failure_) {
    co_return Fail(*flush_failure_);
  }
  int result = -EINTR;
  while (Interrupted(result)) {
    result = co_await loop_.Fdatasync(fd_);
  }
  if (result < 0) {
    Error error = MakeError("flush", 0, result);
    error.offset_bytes = kNoOffset;
    if (error.code == ErrorCode::kIo) {
      error.code = ErrorCode::kDeviceFailed;  // what was lost is not told a second time (I7)
    }
    flush_failure_ = error;
    co_return Fail(std::move(error));
  }
  Task<Status> checking = CheckSize();
  co_return co_await checking;
}

// Of a block device, or of a file of which the kernel knows it by itself. What cannot be told counts
// as unchanged.
uint64_t FileDevice::CurrentBytes() const {
  uint64_t bytes = 0;
  if (block_device_) {
    return ioctl(fd_, BLKGETSIZE64, &bytes) == 0 ? bytes : size_bytes_;
  }
  struct statx file {};
  return statx(fd_, "", AT_EMPTY_PATH, STATX_SIZE, &file) == 0 ? file.stx_size : size_bytes_;
}

// A file that was cut short reads well where it still has bytes, and grows again with the next
// write beyond its end, with zeros between: what was there is gone all the same. Asking an open
// file for its size does no I/O on a disk's file system; others ask a server, as NFS does, or a
// process, as FUSE does.
Task<Status> FileDevice::CheckSize() {
  const bool known = block_device_ || size_in_memory_;
  struct statx file {};
  int asked = 0;
  if (!known) {
    asked = co_await loop_.Statx(fd_, STATX_SIZE, &file);
  }
  const uint64_t now = known ? CurrentBytes() : asked < 0 ? size_bytes_ : file.stx_size;
  if (now >= size_bytes_) {
    co_return OkStatus();
  }
  Error error;
  error.code = ErrorCode::kDeviceFailed;
  error.message = path_ + ": it has become shorter: " + std::to_string(now) + " bytes, it had " +
                  std::to_string(size_bytes_);
  flush_failure_ = error;
  co_return Fail(std::move(error));
}

Task<Status> FileDevice::Discard(uint64_t offset_bytes, uint64_t length_bytes) {
  Status checked = CheckRange(*this, "discard", offset_bytes, length_bytes);
  EPLOG_CO_TRY(checked);
  if (!capabilities_.discard || length_bytes == 0) {
    co_return OkStatus();
  }
  if (!places_.TryTake()) {
    co_await places_.Wait();
  }
  const Place place(places_);
  constexpr int kMode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
  int result = -EINTR;
  while (Interrupted(result)) {
    result = co_await loop_.Fallocate(fd_, kMode, offset_bytes, length_bytes);
  }
  if (result == -EOPNOTSUPP || result == -ENOSYS) {
    capabilities_.discard = false;  // a hint: never asked again
    co_return OkStatus();
  }
  if (result < 0) {
    co_return Fail(MakeError("discard", offset_bytes, result));
  }
  co_return OkStatus();
}

}  // namespace eplog
