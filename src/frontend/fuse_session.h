// FuseSession: the inside of FuseServer. libfuse's session, the nodes behind its inodes, and one
// coroutine a request.
//
//   fuse_session.cc  life: mount, the reading loop, drain, invalidation
//   fuse_calls.cc    from libfuse's callbacks to coroutines
//   fuse_names.cc    lookup, create, unlink, rename, attributes, directory
//   fuse_io.cc       open, read, write, fsync, release
//
// Inodes: 1 is the root; a volume's is its id + kFirstInode, so it is stable over mounts and never
// reused.
#pragma once

#define FUSE_USE_VERSION 314
#include <fuse3/fuse_lowlevel.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "eplog/array.h"
#include "frontend/fuse_server.h"
#include "frontend/request_buffers.h"
#include "runtime/helper_thread.h"
#include "runtime/io_uring_loop.h"
#include "runtime/sync.h"

namespace eplog {

inline constexpr fuse_ino_t kFirstInode = 16;
// How long the kernel may believe names and attributes. What changes otherwise than through the
// mount is announced to it, so this only bounds how old st_blocks may be.
inline constexpr double kAttributeSeconds = 10;

[[nodiscard]] int ErrnoOf(const Error& error);

// What the session knows of a volume beyond the array: its size (the array is asked again when that
// turns out wrong), who has it open, and the attributes that live in RAM.
struct FuseNode {
  FuseNode(EventLoop& loop, VolumeId volume) : id(volume), size_lock(loop) {}
  [[nodiscard]] bool IsOpen() const { return cached_opens + direct_opens != 0; }
  [[nodiscard]] bool IsUnused() const { return unlinked && !gone && !IsOpen() && lookups == 0; }
  [[nodiscard]] fuse_ino_t inode() const { return id.value + kFirstInode; }

  VolumeId id;
  uint64_t size_bytes = 0;
  uint32_t cached_opens = 0;
  uint32_t direct_opens = 0;
  uint64_t lookups = 0;   // by which the kernel knows it, until it says FORGET: it may be opened
  bool unlinked = false;  // hidden; deleted when nobody can have or get it open any more
  bool gone = false;      // deleted or being deleted: no more opens
  bool cache_stale =
      false;  // written directly since the kernel's pages were last known to be right
  mode_t mode = S_IFREG | 0600;
  uid_t uid = 0;
  gid_t gid = 0;
  timespec atime{};
  timespec mtime{};
  timespec ctime{};
  AsyncMutex size_lock;     // held over a resize and over a write that extends
  uint64_t written_to = 0;  // what other writes reach since such a write began
};
using FuseNodePtr = std::shared_ptr<FuseNode>;

class FuseSession;

// A request in flight: replied to once, or abandoned with the whole session. Keeps its buffer, if
// it took one, until it is destroyed. Replies return false if nobody waits for the answer any more.
class FuseRequest {
 public:
  FuseRequest(FuseSession& session, fuse_req_t req);
  FuseRequest(FuseRequest&& other) noexcept;
  FuseRequest(const FuseRequest&) = delete;
  FuseRequest& operator=(FuseRequest&&) = delete;
  FuseRequest& operator=(const FuseRequest&) = delete;
  ~FuseRequest();

  bool Error(int error);
  bool Status(const eplog::Status& status);  // 0 or its error
  bool Bytes(const void* data, size_t size);
  bool Written(size_t size);
  bool Attributes(const struct stat& attributes);
  bool Entry(const fuse_entry_param& entry);
  bool Statistics(const struct statvfs& statistics);
  bool Opened(const fuse_file_info& info);

  // Its buffer is needed no more, though it is not answered yet.
  void GiveBackBuffer();

  [[nodiscard]] fuse_req_t raw() const { return req_; }
  RequestBuffer buffer;

 private:
  fuse_req_t Take();
  FuseSession* session_;
  fuse_req_t req_;
};

class FuseSession {
 public:
  FuseSession(IoUringLoop& loop, Array& array, FuseOptions options);
  ~FuseSession();
  FuseSession(const FuseSession&) = delete;
  FuseSession& operator=(const FuseSession&) = delete;

  [[nodiscard]] Status Mount();
  Task<void> Serve();
  Task<void> Drain();
  Task<Status> Unmount();
  Task<void> UnmountForced();
  Task<void> NotifyVolumeChanged(VolumeId volume);
  Task<Status> DeleteVolume(std::string name);
  [[nodiscard]] bool IsOpen(VolumeId volume) const;
  [[nodiscard]] const std::string& mountpoint() const { return options_.mountpoint; }
  [[nodiscard]] dev_t device() const { return device_; }

 private:
  friend class FuseRequest;
  friend struct FuseCalls;

  // ---- fuse_session.cc
  enum class Received : uint8_t { kNothingMore, kEnough, kNoBuffer, kMountGone };
  Received ReceiveSome();
  void StopServing();
  void WakeServe();
  void CloseChannel();
  void Init(fuse_conn_info* connection) const;
  Task<void> DeleteUnlinked();
  Task<void> WriteBackAll();
  // False: serving ends, and the kernel was not told.
  Task<bool> Invalidate(fuse_ino_t inode, uint64_t offset_bytes, uint64_t length_bytes);

  // ---- fuse_names.cc
  FuseNodePtr NodeOf(const VolumeInfo& info);
  [[nodiscard]] FuseNodePtr NodeOf(fuse_ino_t inode);  // null: no such volume
  [[nodiscard]] std::optional<VolumeInfo> Find(std::string_view name) const;
  struct stat RootAttributes() const;
  struct stat AttributesOf(const FuseNode& node) const;
  fuse_entry_param EntryOf(const FuseNode& node) const;
  Task<void> SetAttributes(FuseRequest request, FuseNodePtr node, struct stat wanted, int which);
  static void SetInRam(FuseNode& node, const struct stat& wanted, int which);
  Task<void> Create(FuseRequest request, std::string name, mode_t mode, int flags, bool open);
  Task<void> Unlink(FuseRequest request, std::string name);
  Task<Status> RemoveNode(FuseNodePtr node, std::optional<std::string> only_if_named = {});
  void RemoveIfUnused(const FuseNodePtr& node);
  Task<void> RemoveUnused(FuseNodePtr node);
  void ReplyEntry(FuseRequest request, const FuseNodePtr& node);
  void Forget(fuse_ino_t inode, uint64_t lookups);
  void ForgetLookups(const FuseNodePtr& node, uint64_t lookups);
  Task<void> Rename(FuseRequest request, std::string from, std::string to, unsigned flags);
  void OpenDirectory(FuseRequest request, fuse_file_info* info);
  void ReadDirectory(FuseRequest request, const fuse_file_info& info, size_t size, uint64_t from,
                     bool plus);
  void CloseDirectory(const fuse_file_info& info) { directories_.erase(info.fh); }

  // ---- fuse_io.cc
  struct WriteCall {
    uint64_t offset_bytes;
    std::span<const std::byte> data;
    bool sync;             // O_SYNC or O_DSYNC: stable before the reply
    bool direct;           // by an O_DIRECT open
    bool from_page_cache;  // written back from dirty pages: never extends
  };
  void Open(FuseRequest request, const FuseNodePtr& node, int flags,
            const fuse_entry_param* created);
  void Release(FuseRequest request, const FuseNodePtr& node, bool direct);
  Task<void> Read(FuseRequest request, FuseNodePtr node, uint64_t offset_bytes, size_t size);
  Task<void> Write(FuseRequest request, FuseNodePtr node, WriteCall call);
  Task<Status> WriteRange(FuseNode& node, WriteCall call);
  Task<Status> ExtendAndWrite(FuseNode& node, WriteCall call);
  Task<Status> Resize(FuseNode& node, uint64_t size_bytes, bool only_grow);
  Task<Status> FlushRange(FuseNode& node, uint64_t offset_bytes, uint64_t length_bytes);
  Task<void> Sync(FuseRequest request, FuseNodePtr node);
  Task<void> Allocate(FuseRequest request, FuseNodePtr node, uint64_t end_bytes);
  Task<void> Trim(FuseRequest request, FuseNodePtr node, uint64_t begin_bytes, uint64_t end_bytes,
                  TrimMode mode, bool grow);
  void ReplyStatistics(FuseRequest request);
  // Ask the array for the size again. False: the volume is gone.
  bool RefreshSize(FuseNode& node);

  IoUringLoop& loop_;
  Array& array_;
  FuseOptions options_;
  fuse_session* session_ = nullptr;
  int epoll_fd_ =
      -1;  // watches the session's descriptor and stop_fd_, without keeping the former alive
  int stop_fd_ = -1;     // wakes Serve
  int closed_end_ = -1;  // of a pipe that nobody reads; made early, while there are descriptors
  bool stop_ = false;
  int invalidations_ = 0;    // that the kernel may be waiting in
  bool mount_gone_ = false;  // not ours to unmount any more
  bool channel_open_ = false;
  dev_t device_ = 0;  // the number of the file system, which tells our mount from all others
  timespec mounted_at_{};

  RequestBuffers buffers_;
  RequestBuffer incoming_;  // what the message being processed lies in; a handler may take it
  Event buffer_free_;
  WaitGroup in_flight_;
  HelperThread helper_;
  std::unordered_map<uint32_t, FuseNodePtr> nodes_;
  // By handle: the volumes as they were when reading began, so that each is seen once whatever
  // changes meanwhile.
  std::unordered_map<uint64_t, std::vector<VolumeInfo>> directories_;
  uint64_t next_directory_ = 1;
};

}  // namespace eplog
