// Names and attributes: lookup, create, unlink, rename, directory. The array makes each change of
// names durable.
#include <fcntl.h>
#include <linux/fs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <utility>

#include "base/utf8.h"
#include "frontend/fuse_session.h"
#include "report/arguments.h"

namespace eplog {
namespace {

// What a file system says of a name that no volume may be given; 0 if it is for the array to say.
int NameError(std::string_view name) {
  if (name.size() > kMaxVolumeNameBytes) {
    return ENAMETOOLONG;
  }
  return !IsUtf8(name) ? EILSEQ : name.starts_with(kReservedVolumePrefix) ? EPERM : 0;
}

}  // namespace

std::optional<VolumeInfo> FuseSession::Find(std::string_view name) const {
  std::optional<VolumeInfo> info = array_.FindVolume(name);
  const auto node = info ? nodes_.find(info->id.value) : nodes_.end();
  return node != nodes_.end() && node->second->gone ? std::nullopt : info;
}

FuseNodePtr FuseSession::NodeOf(const VolumeInfo& info) {
  FuseNodePtr& node = nodes_[info.id.value];
  if (node == nullptr) {
    node = std::make_shared<FuseNode>(loop_, info.id);
    node->uid = ::geteuid();
    node->gid = ::getegid();
    node->atime = node->mtime = node->ctime = mounted_at_;
  }
  node->size_bytes = info.size_bytes;
  return node;
}

FuseNodePtr FuseSession::NodeOf(fuse_ino_t inode) {
  if (inode < kFirstInode || inode - kFirstInode > UINT32_MAX) {
    return nullptr;
  }
  const auto id = static_cast<uint32_t>(inode - kFirstInode);
  const auto found = nodes_.find(id);
  if (found != nodes_.end()) {
    return found->second;
  }
  const auto info = array_.GetVolume(VolumeId(id));
  return info ? NodeOf(*info) : nullptr;
}

struct stat FuseSession::RootAttributes() const {
  struct stat attributes {};
  attributes.st_ino = FUSE_ROOT_ID;
  attributes.st_mode = S_IFDIR | (options_.allow_other ? 0755 : 0700);
  attributes.st_nlink = 2;
  attributes.st_uid = ::geteuid();
  attributes.st_gid = ::getegid();
  attributes.st_blksize = kBlockBytes;
  attributes.st_atim = attributes.st_mtim = attributes.st_ctim = mounted_at_;
  return attributes;
}

struct stat FuseSession::AttributesOf(const FuseNode& node) const {
  struct stat attributes {};
  const auto info = array_.GetVolume(node.id);
  attributes.st_ino = node.inode();
  attributes.st_mode = node.mode;
  attributes.st_nlink = node.unlinked || node.gone ? 0 : 1;
  attributes.st_uid = node.uid;
  attributes.st_gid = node.gid;
  attributes.st_size = static_cast<off_t>(node.size_bytes);
  attributes.st_blksize = kBlockBytes;
  attributes.st_blocks = info ? static_cast<blkcnt_t>(info->allocated_bytes / 512) : 0;
  attributes.st_atim = node.atime;
  attributes.st_mtim = node.mtime;
  attributes.st_ctim = node.ctime;
  return attributes;
}

fuse_entry_param FuseSession::EntryOf(const FuseNode& node) const {
  fuse_entry_param entry{};
  entry.ino = node.inode();
  entry.attr = AttributesOf(node);
  entry.attr_timeout = kAttributeSeconds;
  // Names are asked for each time. To take one back that the kernel keeps means to wait for the
  // lock of the directory, which somebody may hold who waits for us: killed then, a thread of ours
  // would hold the connection open for ever, and nobody would get an answer (or an error).
  entry.entry_timeout = 0;
  return entry;
}

void FuseSession::SetInRam(FuseNode& node, const struct stat& wanted, int which) {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  if ((which & FUSE_SET_ATTR_MODE) != 0) {
    node.mode = S_IFREG | (wanted.st_mode & 07777);
  }
  if ((which & FUSE_SET_ATTR_UID) != 0) {
    node.uid = wanted.st_uid;
  }
  if ((which & FUSE_SET_ATTR_GID) != 0) {
    node.gid = wanted.st_gid;
  }
  if ((which & FUSE_SET_ATTR_ATIME) != 0) {
    node.atime = (which & FUSE_SET_ATTR_ATIME_NOW) != 0 ? now : wanted.st_atim;
  }
  if ((which & FUSE_SET_ATTR_MTIME) != 0) {
    node.mtime = (which & FUSE_SET_ATTR_MTIME_NOW) != 0 ? now : wanted.st_mtim;
  }
  node.ctime = now;
}

Task<void> FuseSession::SetAttributes(FuseRequest request, FuseNodePtr node, struct stat wanted,
                                      int which) {
  if (options_.read_only) {
    request.Error(EROFS);
    co_return;
  }
  if ((which & FUSE_SET_ATTR_SIZE) != 0) {
    const auto size = static_cast<uint64_t>(wanted.st_size);
    if (size > kMaxVolumeBytes) {
      request.Error(EFBIG);
      co_return;
    }
    const Status resized = co_await Resize(*node, size, /*only_grow=*/false);
    if (!resized.ok()) {
      request.Status(resized);
      co_return;
    }
  }
  SetInRam(*node, wanted, which);
  request.Attributes(AttributesOf(*node));
}

Task<void> FuseSession::Create(FuseRequest request, std::string name, mode_t mode, int flags,
                               bool open) {
  if (options_.read_only) {
    request.Error(EROFS);
    co_return;
  }
  std::optional<VolumeInfo> info = array_.FindVolume(name);
  if (const int error = NameError(name); error != 0 && !info) {
    request.Error(error);
    co_return;
  }
  if (info && (flags & O_EXCL) != 0) {
    request.Error(EEXIST);
    co_return;
  }
  if (!info) {
    Task<Result<VolumeId>> creating = array_.CreateVolume(name, 0);
    const Result<VolumeId> created = co_await creating;
    if (!created.ok()) {
      request.Error(ErrnoOf(created.error()));
      co_return;
    }
    info = array_.GetVolume(*created);
    if (!info) {
      request.Error(ENOENT);  // deleted again by another front end
      co_return;
    }
    const FuseNodePtr fresh = NodeOf(*info);
    fresh->mode = S_IFREG | (mode & 07777);
    const fuse_ctx* caller = fuse_req_ctx(request.raw());
    fresh->uid = caller->uid;
    fresh->gid = caller->gid;
    ::clock_gettime(CLOCK_REALTIME, &fresh->mtime);
    fresh->atime = fresh->ctime = fresh->mtime;
  }
  const FuseNodePtr node = NodeOf(*info);
  if ((flags & O_TRUNC) != 0 && node->size_bytes != 0) {
    const Status cut = co_await Resize(*node, 0, /*only_grow=*/false);
    if (!cut.ok()) {
      request.Status(cut);
      co_return;
    }
  }
  if (!open) {
    ReplyEntry(std::move(request), node);
    co_return;
  }
  const fuse_entry_param entry = EntryOf(*node);
  Open(std::move(request), node, flags, &entry);
}

// The kernel knows the node from now on.
void FuseSession::ReplyEntry(FuseRequest request, const FuseNodePtr& node) {
  ++node->lookups;
  if (!request.Entry(EntryOf(*node))) {
    ForgetLookups(node, 1);  // the caller was interrupted
  }
}

void FuseSession::Forget(fuse_ino_t inode, uint64_t lookups) {
  const auto found = nodes_.find(static_cast<uint32_t>(inode - kFirstInode));
  if (inode >= kFirstInode && inode - kFirstInode <= UINT32_MAX && found != nodes_.end()) {
    const FuseNodePtr node = found->second;
    ForgetLookups(node, lookups);
  }
}

void FuseSession::ForgetLookups(const FuseNodePtr& node, uint64_t lookups) {
  node->lookups -= std::min(node->lookups, lookups);
  RemoveIfUnused(node);
}

Task<Status> FuseSession::RemoveNode(FuseNodePtr node, std::optional<std::string> only_if_named) {
  node->gone = true;
  Task<Status> deleting = only_if_named
                              ? array_.DeleteVolumeNamed(node->id, std::move(*only_if_named))
                              : array_.DeleteVolume(node->id);
  Status status = co_await deleting;
  if (status.ok()) {
    nodes_.erase(node->id.value);
  } else {
    node->gone = false;
  }
  co_return status;
}

Task<Status> FuseSession::DeleteVolume(std::string name) {
  const std::optional<VolumeInfo> info = Find(name);
  if (!info) {
    co_return NoSuchVolume(name);
  }
  if (IsOpen(info->id)) {
    co_return Fail(ErrorCode::kBusy,
                   "volume " + name + " is open in " + mountpoint() + ": close it first");
  }
  const FuseNodePtr node = NodeOf(*info);
  Task<Status> removing = RemoveNode(node, name);
  Status removed = co_await removing;
  if (!removed.ok()) {
    RemoveIfUnused(node);  // a rename may have hidden it meanwhile, and left it to us
    co_return removed;
  }
  co_return OkStatus();
}

void FuseSession::RemoveIfUnused(const FuseNodePtr& node) {
  if (node->IsUnused()) {
    in_flight_.Add();
    loop_.Start(RemoveUnused(node));
  }
}

Task<void> FuseSession::RemoveUnused(FuseNodePtr node) {
  // Should it fail, the next opening of the array deletes it.
  Task<Status> removing = RemoveNode(std::move(node));
  const Status removed = co_await removing;
  static_cast<void>(removed);
  in_flight_.Done();
}

Task<void> FuseSession::Unlink(FuseRequest request, std::string name) {
  const std::optional<VolumeInfo> info = Find(name);
  if (options_.read_only || !info) {
    request.Error(options_.read_only ? EROFS : ENOENT);
    co_return;
  }
  const FuseNodePtr node = NodeOf(*info);
  if (!node->IsOpen()) {
    const Status removed = co_await RemoveNode(node);
    request.Status(removed);
    co_return;
  }
  Task<Status> hiding = array_.HideVolume(info->id);
  const Status status = co_await hiding;
  node->unlinked =
      status.ok();  // not before: what is closed meanwhile would go, whatever comes of it
  RemoveIfUnused(node);
  request.Status(status);
}

Task<void> FuseSession::Rename(FuseRequest request, std::string from, std::string to,
                               unsigned flags) {
  if ((flags & ~static_cast<unsigned>(RENAME_NOREPLACE)) != 0) {
    request.Error(EINVAL);
    co_return;
  }
  const std::optional<VolumeInfo> source = Find(from);
  if (options_.read_only || !source) {
    request.Error(options_.read_only ? EROFS : ENOENT);
    co_return;
  }
  if (const int error = NameError(to); error != 0) {
    request.Error(error);
    co_return;
  }
  if ((flags & RENAME_NOREPLACE) != 0) {
    Task<Status> renaming = array_.RenameVolume(source->id, std::move(to), /*replace=*/false);
    const Status status = co_await renaming;
    request.Status(status);
    co_return;
  }
  Task<Result<VolumeId>> renaming = array_.RenameVolumeOver(source->id, std::move(to));
  const Result<VolumeId> replaced = co_await renaming;
  if (!replaced.ok()) {
    request.Error(ErrnoOf(replaced.error()));
    co_return;
  }
  // Whoever has looked the old volume up by this name may open it still, and one who has it open
  // keeps it.
  if (const FuseNodePtr node = NodeOf(replaced->value + kFirstInode); node != nullptr) {
    node->unlinked = true;
    RemoveIfUnused(node);
  }
  request.Error(0);
}

void FuseSession::OpenDirectory(FuseRequest request, fuse_file_info* info) {
  info->fh = next_directory_++;
  directories_[info->fh] = {};
  if (!request.Opened(*info)) {
    directories_.erase(info->fh);  // the caller was interrupted: no RELEASEDIR will come
  }
}

void FuseSession::ReadDirectory(FuseRequest request, const fuse_file_info& info, size_t size,
                                uint64_t from, bool plus) {
  std::vector<VolumeInfo>& volumes = directories_[info.fh];
  if (from == 0) {
    volumes = array_.Volumes();
  }
  // The message lies before the payload area and was taken apart: the area is free for the answer.
  char* out = reinterpret_cast<char*>(incoming_.payload());
  size = std::min(size, RequestBuffer::kPayloadBytes);
  size_t used = 0;
  std::vector<FuseNodePtr> shown;  // with attributes: the kernel knows them from now on
  const uint64_t entries = volumes.size() + 2;
  for (uint64_t i = from; i < entries; ++i) {
    fuse_entry_param entry{};
    FuseNodePtr node;
    const char* name = i == 0 ? "." : "..";
    entry.attr.st_mode = S_IFDIR;
    entry.attr.st_ino = FUSE_ROOT_ID;
    if (i >= 2) {
      const VolumeInfo& volume = volumes[i - 2];
      name = volume.name.c_str();
      entry.attr.st_mode = S_IFREG;
      entry.attr.st_ino = volume.id.value + kFirstInode;
      // The attributes as they are now; what was deleted or renamed since is listed without them
      // (inode 0), or the kernel would take the name for the volume's.
      if (const auto now = array_.GetVolume(volume.id); plus && now && now->name == volume.name) {
        node = NodeOf(entry.attr.st_ino);
        entry = EntryOf(*node);
      }
    }
    const auto next = static_cast<off_t>(i + 1);
    const size_t rest = size - used;
    const size_t length =
        plus ? fuse_add_direntry_plus(request.raw(), out + used, rest, name, &entry, next)
             : fuse_add_direntry(request.raw(), out + used, rest, name, &entry.attr, next);
    if (length > rest) {
      break;
    }
    used += length;
    if (node != nullptr) {
      ++node->lookups;
      shown.push_back(std::move(node));
    }
  }
  if (!request.Bytes(out, used)) {
    for (const FuseNodePtr& node : shown) {
      ForgetLookups(node, 1);  // the caller was interrupted
    }
  }
}

}  // namespace eplog
