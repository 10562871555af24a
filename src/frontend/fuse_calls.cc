#include "frontend/fuse_calls.h"

#include <fcntl.h>

#include <cerrno>
#include <utility>

namespace eplog {

// Left out, so that the kernel learns from ENOSYS once and does not ask again:
//   flush (close does not sync), access (default_permissions), xattrs, locks (the kernel's own are
//   enough for one host), ioctl, poll, bmap, lseek (no holes), copy_file_range.
fuse_lowlevel_ops FuseCalls::Table() {
  fuse_lowlevel_ops table{};
  table.init = &Init;
  table.lookup = &Lookup;
  table.forget = &Forget;
  table.forget_multi = &ForgetMany;
  table.getattr = &GetAttributes;
  table.setattr = &SetAttributes;
  table.mknod = &MakeNode;
  table.mkdir = &MakeDirectory;
  table.rmdir = &RemoveDirectory;
  table.symlink = &SymbolicLink;
  table.link = &HardLink;
  table.unlink = &Unlink;
  table.rename = &Rename;
  table.create = &Create;
  table.open = &Open;
  table.read = &Read;
  table.write = &Write;
  table.release = &Release;
  table.fsync = &Sync;
  table.fallocate = &Allocate;
  table.opendir = &OpenDirectory;
  table.readdir = &ReadDirectory;
  table.readdirplus = &ReadDirectoryPlus;
  table.releasedir = &ReleaseDirectory;
  table.fsyncdir = &SyncDirectory;
  table.statfs = &Statistics;
  return table;
}

FuseSession& FuseCalls::Session(fuse_req_t req) {
  return *static_cast<FuseSession*>(fuse_req_userdata(req));
}

void FuseCalls::Init(void* session, fuse_conn_info* connection) {
  static_cast<FuseSession*>(session)->Init(connection);
}

void FuseCalls::Lookup(fuse_req_t req, fuse_ino_t parent, const char* name) {
  FuseSession& session = Session(req);
  FuseRequest request(session, req);
  const auto info = parent == FUSE_ROOT_ID ? session.Find(name) : std::nullopt;
  if (!info) {
    request.Error(ENOENT);
    return;
  }
  session.ReplyEntry(std::move(request), session.NodeOf(*info));
}

// A node's life does not depend on what the kernel remembers; that of a volume without a name does.
void FuseCalls::Forget(fuse_req_t req, fuse_ino_t inode, uint64_t lookups) {
  FuseSession& session = Session(req);
  fuse_reply_none(req);
  session.Forget(inode, lookups);
}
void FuseCalls::ForgetMany(fuse_req_t req, size_t count, fuse_forget_data* forgets) {
  FuseSession& session = Session(req);
  for (size_t i = 0; i < count; ++i) {
    session.Forget(forgets[i].ino, forgets[i].nlookup);
  }
  fuse_reply_none(req);
}

void FuseCalls::GetAttributes(fuse_req_t req, fuse_ino_t inode, fuse_file_info* /*info*/) {
  FuseSession& session = Session(req);
  FuseRequest request(session, req);
  if (inode == FUSE_ROOT_ID) {
    request.Attributes(session.RootAttributes());
    return;
  }
  const FuseNodePtr node = session.NodeOf(inode);
  if (node == nullptr) {
    request.Error(ENOENT);
    return;
  }
  request.Attributes(session.AttributesOf(*node));
}

void FuseCalls::SetAttributes(fuse_req_t req, fuse_ino_t inode, struct stat* wanted, int which,
                              fuse_file_info* /*info*/) {
  FuseSession& session = Session(req);
  FuseRequest request(session, req);
  if (inode == FUSE_ROOT_ID) {
    request.Error(EPERM);  // the root is the mounting user's
    return;
  }
  FuseNodePtr node = session.NodeOf(inode);
  if (node == nullptr) {
    request.Error(ENOENT);
    return;
  }
  session.loop_.Start(session.SetAttributes(std::move(request), std::move(node), *wanted, which));
}

void FuseCalls::MakeNode(fuse_req_t req, fuse_ino_t /*parent*/, const char* name, mode_t mode,
                         dev_t /*device*/) {
  FuseSession& session = Session(req);
  FuseRequest request(session, req);
  if (!S_ISREG(mode)) {
    request.Error(EPERM);
    return;
  }
  session.loop_.Start(session.Create(std::move(request), name, mode, O_EXCL, /*open=*/false));
}

// An array holds volumes side by side and nothing else.
void FuseCalls::MakeDirectory(fuse_req_t req, fuse_ino_t, const char*, mode_t) {
  fuse_reply_err(req, EPERM);
}
void FuseCalls::RemoveDirectory(fuse_req_t req, fuse_ino_t, const char*) {
  fuse_reply_err(req, ENOTDIR);
}
void FuseCalls::SymbolicLink(fuse_req_t req, const char*, fuse_ino_t, const char*) {
  fuse_reply_err(req, EPERM);
}
void FuseCalls::HardLink(fuse_req_t req, fuse_ino_t, fuse_ino_t, const char*) {
  fuse_reply_err(req, EPERM);
}

void FuseCalls::Unlink(fuse_req_t req, fuse_ino_t /*parent*/, const char* name) {
  FuseSession& session = Session(req);
  session.loop_.Start(session.Unlink(FuseRequest(session, req), name));
}

void FuseCalls::Rename(fuse_req_t req, fuse_ino_t /*parent*/, const char* name,
                       fuse_ino_t /*new_parent*/, const char* new_name, unsigned flags) {
  FuseSession& session = Session(req);
  session.loop_.Start(session.Rename(FuseRequest(session, req), name, new_name, flags));
}

void FuseCalls::Create(fuse_req_t req, fuse_ino_t /*parent*/, const char* name, mode_t mode,
                       fuse_file_info* info) {
  FuseSession& session = Session(req);
  FuseRequest request(session, req);
  session.loop_.Start(session.Create(std::move(request), name, mode, info->flags, /*open=*/true));
}

void FuseCalls::Open(fuse_req_t req, fuse_ino_t inode, fuse_file_info* info) {
  FuseSession& session = Session(req);
  const FuseNodePtr node = session.NodeOf(inode);
  FuseRequest request(session, req);
  if (node == nullptr) {
    request.Error(ESTALE);  // the kernel looks the name up anew
    return;
  }
  session.Open(std::move(request), node, info->flags, nullptr);
}

void FuseCalls::Read(fuse_req_t req, fuse_ino_t inode, size_t size, off_t offset,
                     fuse_file_info* /*info*/) {
  FuseSession& session = Session(req);
  FuseNodePtr node = session.NodeOf(inode);
  FuseRequest request(session, req);
  if (node == nullptr || size > RequestBuffer::kPayloadBytes) {
    request.Error(EIO);
    return;
  }
  request.buffer = std::move(session.incoming_);
  session.loop_.Start(
      session.Read(std::move(request), std::move(node), static_cast<uint64_t>(offset), size));
}

void FuseCalls::Write(fuse_req_t req, fuse_ino_t inode, const char* data, size_t size, off_t offset,
                      fuse_file_info* info) {
  FuseSession& session = Session(req);
  FuseNodePtr node = session.NodeOf(inode);
  FuseRequest request(session, req);
  if (node == nullptr) {
    request.Error(EIO);
    return;
  }
  FuseSession::WriteCall call{};
  call.offset_bytes = static_cast<uint64_t>(offset);
  call.data = {reinterpret_cast<const std::byte*>(data), size};
  call.sync = (info->flags & (O_SYNC | O_DSYNC)) != 0;
  call.direct = info->fh == kDirectHandle;
  call.from_page_cache = info->writepage != 0;
  request.buffer = std::move(session.incoming_);  // `data` lies in it
  request.buffer.Touched(size);
  session.loop_.Start(session.Write(std::move(request), std::move(node), call));
}

void FuseCalls::Release(fuse_req_t req, fuse_ino_t inode, fuse_file_info* info) {
  FuseSession& session = Session(req);
  FuseNodePtr node = session.NodeOf(inode);
  FuseRequest request(session, req);
  if (node == nullptr) {
    request.Error(0);
    return;
  }
  const bool direct = info->fh == kDirectHandle;
  session.Release(std::move(request), node, direct);
}

void FuseCalls::Sync(fuse_req_t req, fuse_ino_t inode, int /*data_only*/,
                     fuse_file_info* /*info*/) {
  FuseSession& session = Session(req);
  FuseNodePtr node = session.NodeOf(inode);
  FuseRequest request(session, req);
  if (node == nullptr) {
    request.Error(EIO);
    return;
  }
  session.loop_.Start(session.Sync(std::move(request), std::move(node)));
}

void FuseCalls::Allocate(fuse_req_t req, fuse_ino_t inode, int mode, off_t offset, off_t length,
                         fuse_file_info* /*info*/) {
  FuseSession& session = Session(req);
  FuseNodePtr node = session.NodeOf(inode);
  FuseRequest request(session, req);
  constexpr int kPunch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
  const bool zero = (mode & ~FALLOC_FL_KEEP_SIZE) == FALLOC_FL_ZERO_RANGE;
  if (node == nullptr || (mode != 0 && mode != kPunch && !zero)) {
    request.Error(node == nullptr ? EIO : EOPNOTSUPP);
    return;
  }
  const auto begin = static_cast<uint64_t>(offset);
  const uint64_t end = begin + static_cast<uint64_t>(length);
  if (mode == kPunch || zero) {
    const bool grow = (mode & FALLOC_FL_KEEP_SIZE) == 0;
    session.loop_.Start(session.Trim(std::move(request), std::move(node), begin, end,
                                     zero ? TrimMode::kZero : TrimMode::kPunch, grow));
    return;
  }
  session.loop_.Start(session.Allocate(std::move(request), std::move(node), end));
}

void FuseCalls::OpenDirectory(fuse_req_t req, fuse_ino_t /*inode*/, fuse_file_info* info) {
  FuseSession& session = Session(req);
  session.OpenDirectory(FuseRequest(session, req), info);
}

void FuseCalls::ReadDirectory(fuse_req_t req, fuse_ino_t /*inode*/, size_t size, off_t offset,
                              fuse_file_info* info) {
  FuseSession& session = Session(req);
  session.ReadDirectory(FuseRequest(session, req), *info, size, static_cast<uint64_t>(offset),
                        /*plus=*/false);
}

void FuseCalls::ReadDirectoryPlus(fuse_req_t req, fuse_ino_t /*inode*/, size_t size, off_t offset,
                                  fuse_file_info* info) {
  FuseSession& session = Session(req);
  session.ReadDirectory(FuseRequest(session, req), *info, size, static_cast<uint64_t>(offset),
                        /*plus=*/true);
}

void FuseCalls::ReleaseDirectory(fuse_req_t req, fuse_ino_t /*inode*/, fuse_file_info* info) {
  Session(req).CloseDirectory(*info);
  fuse_reply_err(req, 0);
}

// Every change of the directory was durable when it was answered.
void FuseCalls::SyncDirectory(fuse_req_t req, fuse_ino_t, int, fuse_file_info*) {
  fuse_reply_err(req, 0);
}

void FuseCalls::Statistics(fuse_req_t req, fuse_ino_t /*inode*/) {
  FuseSession& session = Session(req);
  session.ReplyStatistics(FuseRequest(session, req));
}

}  // namespace eplog
