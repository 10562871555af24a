// The table of libfuse callbacks. Each one runs inside fuse_session_process_buf, copies what it
// needs out of the message and starts the session's coroutine for it.
#pragma once

#include "frontend/fuse_session.h"

namespace eplog {

struct FuseCalls {
  static fuse_lowlevel_ops Table();

 private:
  static FuseSession& Session(fuse_req_t req);

  static void Init(void* session, fuse_conn_info* connection);
  static void Lookup(fuse_req_t req, fuse_ino_t parent, const char* name);
  static void Forget(fuse_req_t req, fuse_ino_t inode, uint64_t lookups);
  static void ForgetMany(fuse_req_t req, size_t count, fuse_forget_data* forgets);
  static void GetAttributes(fuse_req_t req, fuse_ino_t inode, fuse_file_info* info);
  static void SetAttributes(fuse_req_t req, fuse_ino_t inode, struct stat* wanted, int which,
                            fuse_file_info* info);
  static void MakeNode(fuse_req_t req, fuse_ino_t parent, const char* name, mode_t mode,
                       dev_t device);
  static void MakeDirectory(fuse_req_t req, fuse_ino_t parent, const char* name, mode_t mode);
  static void RemoveDirectory(fuse_req_t req, fuse_ino_t parent, const char* name);
  static void SymbolicLink(fuse_req_t req, const char* target, fuse_ino_t parent, const char* name);
  static void HardLink(fuse_req_t req, fuse_ino_t inode, fuse_ino_t parent, const char* name);
  static void Unlink(fuse_req_t req, fuse_ino_t parent, const char* name);
  static void Rename(fuse_req_t req, fuse_ino_t parent, const char* name, fuse_ino_t new_parent,
                     const char* new_name, unsigned flags);
  static void Create(fuse_req_t req, fuse_ino_t parent, const char* name, mode_t mode,
                     fuse_file_info* info);
  static void Open(fuse_req_t req, fuse_ino_t inode, fuse_file_info* info);
  static void Read(fuse_req_t req, fuse_ino_t inode, size_t size, off_t offset,
                   fuse_file_info* info);
  static void Write(fuse_req_t req, fuse_ino_t inode, const char* data, size_t size, off_t offset,
                    fuse_file_info* info);
  static void Release(fuse_req_t req, fuse_ino_t inode, fuse_file_info* info);
  static void Sync(fuse_req_t req, fuse_ino_t inode, int data_only, fuse_file_info* info);
  static void Allocate(fuse_req_t req, fuse_ino_t inode, int mode, off_t offset, off_t length,
                       fuse_file_info* info);
  static void OpenDirectory(fuse_req_t req, fuse_ino_t inode, fuse_file_info* info);
  static void ReadDirectory(fuse_req_t req, fuse_ino_t inode, size_t size, off_t offset,
                            fuse_file_info* info);
  static void ReadDirectoryPlus(fuse_req_t req, fuse_ino_t inode, size_t size, off_t offset,
                                fuse_file_info* info);
  static void ReleaseDirectory(fuse_req_t req, fuse_ino_t inode, fuse_file_info* info);
  static void SyncDirectory(fuse_req_t req, fuse_ino_t inode, int data_only, fuse_file_info* info);
  static void Statistics(fuse_req_t req, fuse_ino_t inode);
};

// What a file handle remembers: whether it was opened with O_DIRECT (F_SETFL may change that
// later).
inline constexpr uint64_t kCachedHandle = 0;
inline constexpr uint64_t kDirectHandle = 1;

}  // namespace eplog
