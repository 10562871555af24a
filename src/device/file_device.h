// FileDevice: a regular file or a block device as a Device, through the ring of its loop.
//
// Opened O_DIRECT where the file system allows it. One owner (I10): flock on the descriptor that
// carries the I/O, taken before the first read. Requests that a killed process left in the kernel
// keep its descriptor, and so its lock, until they end: Open waits for them, and refuses at once
// what a living process holds.
//
// A failed flush is remembered: every later flush fails too (I7), since the kernel reports a lost
// write once. A file that has become shorter is a failed device (kDeviceFailed): a request beyond
// its end says so, and so does the next flush.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "eplog/device.h"
#include "eplog/result.h"
#include "runtime/io_uring_loop.h"
#include "runtime/places.h"

namespace eplog {

// Of a file or a block device. File systems are no devices with number 0, so that it is never that
// of something else.
[[nodiscard]] DeviceIdentity IdentityOf(const struct stat& file);
// That what a path leads to now is what was looked at there before: whatever took the name
// meanwhile is not to be overwritten. kBusy.
[[nodiscard]] Status CheckIdentity(const std::string& path, const DeviceIdentity& now,
                                   const DeviceIdentity& looked_at);

struct FileDeviceOptions {
  bool read_only = false;
  bool lock = true;  // shared if read-only, else exclusive
  // Punch holes in a regular file on Discard. Off by default: holes halve synchronous writes. A
  // block device that can discard does so in any case.
  bool discard = false;
  // What the path must lead to: anything else is refused as CheckIdentity does, and not locked.
  std::optional<DeviceIdentity> looked_at = {};
};

class FileDevice final : public Device {
 public:
  using Options = FileDeviceOptions;

  // kBusy: held by another (the message names the process), mounted, or part of something else.
  // kNotFound: no such file. Blocks while it waits for a dead owner's requests, up to 10 s, and for
  // as long as the device does not answer. On any thread: the loop is only touched by requests.
  static Result<std::unique_ptr<FileDevice>> Open(IoUringLoop& loop, const std::string& path,
                                                  Options options = {});
  ~FileDevice() override;
  FileDevice(const FileDevice&) = delete;
  FileDevice& operator=(const FileDevice&) = delete;

  Task<Status> Read(uint64_t offset_bytes, std::span<const iovec> into) override;
  Task<Status> Write(uint64_t offset_bytes, std::span<const iovec> from) override;
  Task<Status> Flush() override;
  Task<Status> Discard(uint64_t offset_bytes, uint64_t length_bytes) override;

  [[nodiscard]] uint64_t size_bytes() const override { return size_bytes_; }
  [[nodiscard]] const DeviceCapabilities& capabilities() const override { return capabilities_; }
  [[nodiscard]] DeviceIdentity identity() const override { return identity_; }
  [[nodiscard]] const std::string& name() const override { return path_; }
  [[nodiscard]] bool block_device() const { return block_device_; }
  [[nodiscard]] int fd() const { return fd_; }

 private:
  enum class Direction : uint8_t { kRead, kWrite };
  // In the kernel. A device that hangs keeps what the kernel has of it, a place of the ring and a
  // worker's thread for each: there have to be some for the others.
  static constexpr size_t kMostAtOnce = 256;
  class Place {
   public:
    explicit Place(Places& places) : places_(places) {}
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;
    ~Place() { places_.GiveBack(); }

   private:
    Places& places_;
  };

  FileDevice(IoUringLoop& loop, std::string path, Options options)
      : loop_(loop), path_(std::move(path)), options_(options), places_(loop, kMostAtOnce) {}
  Status OpenAndLock();
  Status FindGeometry();
  Status FindBlockGeometry();
  Status FindFileGeometry();
  [[nodiscard]] Status CheckSizeLimit() const;
  // Whether a direct read with this alignment is accepted.
  [[nodiscard]] bool DirectReadWorks(uint32_t alignment_bytes) const;
  void GoBuffered();

  Task<Status> Transfer(Direction direction, uint64_t offset_bytes, std::span<const iovec> parts);
  Task<Status> TransferInPieces(Direction direction, uint64_t offset_bytes,
                                std::span<const iovec> parts, uint64_t done_bytes);
  [[nodiscard]] uint64_t Progress(int moved) const;
  Task<Status> CheckSize();
  IoUringLoop::Operation Move(Direction direction, std::span<const iovec> parts,
                              uint64_t offset_bytes);
  // `result`: 0 (nothing was transferred) or -errno.
  [[nodiscard]] Error MakeError(const char* verb, uint64_t offset_bytes, int result) const;
  [[nodiscard]] uint64_t CurrentBytes() const;

  IoUringLoop& loop_;
  std::string path_;
  Options options_;
  int fd_ = -1;
  bool block_device_ = false;
  bool on_fuse_ = false;
  bool size_in_memory_ = false;
  DeviceIdentity identity_;
  uint64_t size_bytes_ = 0;
  DeviceCapabilities capabilities_;
  std::optional<Error> flush_failure_;
  Places places_;
};

struct CreateFileOptions {
  bool sparse =
      false;  // a hole instead of zeros: quick, but synchronous writes cost twice as much later
  bool overwrite = false;  // an existing file is emptied; otherwise refused with kExists
  std::optional<DeviceIdentity> looked_at = {};  // the only one that may be emptied
  std::function<void(uint64_t done_bytes, uint64_t total_bytes)> progress = {};
};

// Makes a member file of `size_bytes` (a multiple of 4 KiB): reserved first, so that a full disk is
// seen at once, then written out with zeros, fsynced, and its directory too. Which file it is. On
// failure the file is removed if this made it. kBusy: `overwrite` and another process holds it.
// kNoSpace: says how much was asked for.
Task<Result<DeviceIdentity>> CreateMemberFile(IoUringLoop& loop, std::string path,
                                              uint64_t size_bytes, CreateFileOptions options = {});

}  // namespace eplog
