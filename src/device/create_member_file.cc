// CreateMemberFile of device/file_device.h.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/check.h"
#include "base/types.h"
#include "device/file_device.h"
#include "device/file_lock.h"
#include "runtime/task_group.h"

namespace eplog {
namespace {

constexpr uint64_t kPieceBytes = uint64_t{1} << 20;
constexpr int kWriters = 8;

// The file in the making: closed in any case, and removed unless it was kept or was there before.
class NewFile {
 public:
  explicit NewFile(std::string path) : path_(std::move(path)) {}
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;
  ~NewFile() {
    if (fd_ >= 0) {
      UnlockAndClose(fd_);
    }
    if (made_ && !kept_) {
      unlink(path_.c_str());
    }
  }

  Status Open(const CreateFileOptions& options) {
    constexpr int kFlags = O_RDWR | O_CREAT | O_CLOEXEC;
    fd_ = open(path_.c_str(), kFlags | O_EXCL, 0600);
    made_ = fd_ >= 0;
    if (fd_ < 0 && errno == EEXIST) {
      if (!options.overwrite) {
        return Fail(ErrorCode::kExists, path_ + " exists already");
      }
      fd_ = open(path_.c_str(), kFlags, 0600);
    }
    if (fd_ < 0) {
      return FailErrno(errno, path_ + ": cannot be created");
    }
    EPLOG_TRY(LockFile(fd_, path_, false));
    struct stat file {};
    if (fstat(fd_, &file) != 0 || !S_ISREG(file.st_mode)) {
      return Fail(ErrorCode::kInvalidArgument, path_ + " is not a regular file");
    }
    identity_ = IdentityOf(file);
    if (!made_ && options.looked_at) {
      EPLOG_TRY(CheckIdentity(path_, identity_, *options.looked_at));
    }
    // O_DIRECT is set once the file is ours: an open with it creates the file even where it is then
    // refused.
    if (ftruncate(fd_, 0) != 0) {
      return FailErrno(errno, path_ + ": cannot be emptied");
    }
    direct_ = fcntl(fd_, F_SETFL, fcntl(fd_, F_GETFL) | O_DIRECT) == 0;
    return OkStatus();
  }

  void GoBuffered() {
    static_cast<void>(fcntl(fd_, F_SETFL, fcntl(fd_, F_GETFL) & ~O_DIRECT));
    direct_ = false;
  }
  void Keep() { kept_ = true; }

  [[nodiscard]] int fd() const { return fd_; }
  [[nodiscard]] bool direct() const { return direct_; }
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] const DeviceIdentity& identity() const { return identity_; }

 private:
  std::string path_;
  DeviceIdentity identity_;
  int fd_ = -1;
  bool made_ = false;
  bool kept_ = false;
  bool direct_ = false;
};

tl::unexpected<Error> FailWrite(const NewFile& file, uint64_t size_bytes, int error) {
  std::string message =
      file.path() + ": cannot be written out to " + std::to_string(size_bytes) + " bytes";
  struct statvfs room {};
  if (error == ENOSPC && fstatvfs(file.fd(), &room) == 0) {
    message += " (" + std::to_string(room.f_bavail * room.f_frsize) + " are free)";
  }
  return FailErrno(error, std::move(message));
}

// Zeros from `next` to the end, as one of several writers.
struct WriteOut {
  IoUringLoop& loop;
  NewFile& file;
  uint64_t size_bytes = 0;
  const CreateFileOptions& options;
  void* zeros = nullptr;
  uint64_t next = 0;
  uint64_t done = 0;

  Task<Status> Writer() {
    while (next < size_bytes) {
      uint64_t at = next;
      const uint64_t end = std::min(at + kPieceBytes, size_bytes);
      next = end;
      while (at < end) {
        const iovec part{zeros, end - at};
        const int moved = co_await loop.Writev(file.fd(), &part, 1, at);
        if (moved == -EINTR || moved == -EAGAIN) {
          continue;
        }
        if (moved == -EINVAL && file.direct()) {
          file.GoBuffered();  // accepted at open, refused at the first write
          continue;
        }
        if (moved <= 0) {
          next = size_bytes;  // the other writers stop too
          co_return FailWrite(file, size_bytes, moved == 0 ? EIO : -moved);
        }
        at += file.direct() ? RoundDown(static_cast<uint64_t>(moved), kBlockBytes)
                            : static_cast<uint64_t>(moved);
        done += static_cast<uint64_t>(moved);
      }
      if (options.progress) {
        options.progress(std::min(done, size_bytes), size_bytes);
      }
    }
    co_return OkStatus();
  }
};

Task<Status> Fill(IoUringLoop& loop, NewFile& file, uint64_t size_bytes,
                  const CreateFileOptions& options) {
  // Reserved first: a full disk is seen at once, and the writers need not extend the file one after
  // the other.
  const int reserved = co_await loop.Fallocate(file.fd(), 0, 0, size_bytes);
  if (reserved < 0 && reserved != -EOPNOTSUPP) {
    co_return FailWrite(file, size_bytes, -reserved);
  }
  const std::unique_ptr<void, decltype(&std::free)> zeros(
      std::aligned_alloc(kBlockBytes, kPieceBytes), &std::free);
  EPLOG_CHECK(zeros != nullptr, "out of memory for a buffer of zeros");
  std::memset(zeros.get(), 0, kPieceBytes);
  WriteOut work{loop, file, size_bytes, options, zeros.get()};
  TaskGroup writers(loop);
  for (int i = 0; i < kWriters; ++i) {
    writers.Start(work.Writer());
  }
  Task<Status> all = writers.Wait();
  co_return co_await all;
}

Task<Status> SyncFolderOf(IoUringLoop& loop, std::string path) {
  std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (folder.empty()) {
    folder = ".";
  }
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) {
    co_return FailErrno(errno, folder.string() + ": cannot be opened");
  }
  const int result = co_await loop.Fsync(fd);
  close(fd);
  if (result < 0 && result != -EINVAL) {  // EINVAL: a file system without such a thing
    co_return FailErrno(-result, folder.string() + ": cannot be synced");
  }
  co_return OkStatus();
}

}  // namespace

Task<Result<DeviceIdentity>> CreateMemberFile(IoUringLoop& loop, std::string path,
                                              uint64_t size_bytes, CreateFileOptions options) {
  if (size_bytes == 0 || size_bytes % kBlockBytes != 0) {
    co_return Fail(ErrorCode::kInvalidArgument,
                   path + ": a member's size is a multiple of 4096 bytes and not 0");
  }
  NewFile file(path);
  Status opened = file.Open(options);
  EPLOG_CO_TRY(opened);
  if (options.sparse) {
    if (ftruncate(file.fd(), static_cast<off_t>(size_bytes)) != 0) {
      co_return FailErrno(errno, path + ": cannot be given its size");
    }
  } else {
    EPLOG_CO_AWAIT(Fill(loop, file, size_bytes, options));
  }
  const int synced = co_await loop.Fsync(file.fd());
  if (synced < 0) {
    co_return FailWrite(file, size_bytes, -synced);
  }
  EPLOG_CO_AWAIT(SyncFolderOf(loop, path));
  file.Keep();
  co_return file.identity();
}

}  // namespace eplog
