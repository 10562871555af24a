// Files in memory behind libfuse and nothing else: how fast a file system in user space can be on
// this machine, for `bench/peers`.
//
//   fuse_memory MOUNTPOINT      in the foreground, until it is unmounted
//
// One thread, as EPLOG has one for an array. Names are created and looked up, data is written and
// read; whatever else is asked for is not there.
#define FUSE_USE_VERSION 314
#include <fuse3/fuse_lowlevel.h>
#include <linux/fuse.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <deque>
#include <string>

namespace {

constexpr size_t kMostBytes = size_t{1} << 36;  // of a file; taken as it is written
constexpr fuse_ino_t kFirst = FUSE_ROOT_ID + 1;
constexpr double kForEver = 1e6;

struct File {
  std::string name;
  std::byte* data = nullptr;
  size_t bytes = 0;
};

// By inode, from kFirst on.
std::deque<File>& Files() {
  static std::deque<File> files;
  return files;
}

struct stat AttributesOf(fuse_ino_t inode) {
  struct stat attributes {};
  const bool root = inode == FUSE_ROOT_ID;
  attributes.st_ino = inode;
  attributes.st_mode = root ? S_IFDIR | 0755 : S_IFREG | 0600;
  attributes.st_nlink = root ? 2 : 1;
  attributes.st_size = root ? 0 : static_cast<off_t>(Files()[inode - kFirst].bytes);
  return attributes;
}

fuse_entry_param EntryOf(fuse_ino_t inode) {
  fuse_entry_param entry{};
  entry.ino = inode;
  entry.attr = AttributesOf(inode);
  entry.attr_timeout = entry.entry_timeout = kForEver;
  return entry;
}

void Lookup(fuse_req_t request, fuse_ino_t /*parent*/, const char* name) {
  const auto found = std::find_if(Files().begin(), Files().end(),
                                  [name](const File& file) { return file.name == name; });
  if (found == Files().end()) {
    fuse_reply_err(request, ENOENT);
    return;
  }
  const auto entry = EntryOf(kFirst + static_cast<fuse_ino_t>(found - Files().begin()));
  fuse_reply_entry(request, &entry);
}

void GetAttributes(fuse_req_t request, fuse_ino_t inode, fuse_file_info* /*info*/) {
  const struct stat attributes = AttributesOf(inode);
  fuse_reply_attr(request, &attributes, kForEver);
}

void SetAttributes(fuse_req_t request, fuse_ino_t inode, struct stat* wanted, int which,
                   fuse_file_info* /*info*/) {
  if (inode != FUSE_ROOT_ID && (which & FUSE_SET_ATTR_SIZE) != 0) {
    Files()[inode - kFirst].bytes = std::min(static_cast<size_t>(wanted->st_size), kMostBytes);
  }
  const struct stat attributes = AttributesOf(inode);
  fuse_reply_attr(request, &attributes, kForEver);
}

// As it is sent to the kernel: libfuse 3.14 has no field for parallel writes.
void Open(fuse_req_t request, fuse_ino_t /*inode*/, fuse_file_info* /*info*/) {
  fuse_open_out open{};
  open.open_flags = FOPEN_DIRECT_IO | FOPEN_PARALLEL_DIRECT_WRITES;
  fuse_reply_buf(request, reinterpret_cast<const char*>(&open), sizeof open);
}

void Create(fuse_req_t request, fuse_ino_t /*parent*/, const char* name, mode_t /*mode*/,
            fuse_file_info* info) {
  void* memory = ::mmap(nullptr, kMostBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    fuse_reply_err(request, ENOSPC);
    return;
  }
  Files().push_back({name, static_cast<std::byte*>(memory), 0});
  info->direct_io = 1;  // whoever opens it after that writes in parallel
  const auto entry = EntryOf(kFirst + Files().size() - 1);
  fuse_reply_create(request, &entry, info);
}

void Read(fuse_req_t request, fuse_ino_t inode, size_t bytes, off_t at, fuse_file_info* /*info*/) {
  const File& file = Files()[inode - kFirst];
  const size_t begin = std::min(static_cast<size_t>(at), file.bytes);
  fuse_reply_buf(request, reinterpret_cast<const char*>(file.data + begin),
                 std::min(bytes, file.bytes - begin));
}

void Write(fuse_req_t request, fuse_ino_t inode, const char* data, size_t bytes, off_t at,
           fuse_file_info* /*info*/) {
  File& file = Files()[inode - kFirst];
  const auto begin = static_cast<size_t>(at);
  if (begin + bytes > kMostBytes) {
    fuse_reply_err(request, EFBIG);
    return;
  }
  std::memcpy(file.data + begin, data, bytes);
  file.bytes = std::max(file.bytes, begin + bytes);
  fuse_reply_write(request, bytes);
}

void Sync(fuse_req_t request, fuse_ino_t /*inode*/, int /*only_data*/, fuse_file_info* /*info*/) {
  fuse_reply_err(request, 0);
}

void Init(void* /*user*/, fuse_conn_info* connection) {
  connection->max_write = 1U << 20;
  connection->max_background = 256;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) {
    std::fputs("usage: fuse_memory MOUNTPOINT\n", stderr);
    return 2;
  }
  fuse_lowlevel_ops calls{};
  calls.init = Init;
  calls.lookup = Lookup;
  calls.getattr = GetAttributes;
  calls.setattr = SetAttributes;
  calls.open = Open;
  calls.create = Create;
  calls.read = Read;
  calls.write = Write;
  calls.fsync = Sync;
  fuse_args options = FUSE_ARGS_INIT(1, arguments);
  fuse_session* session = fuse_session_new(&options, &calls, sizeof calls, nullptr);
  if (session == nullptr || fuse_session_mount(session, arguments[1]) != 0) {
    return 1;
  }
  const int ended = fuse_session_loop(session);
  fuse_session_unmount(session);
  fuse_session_destroy(session);
  return ended == 0 ? 0 : 1;
}
