#include "host/device_content.h"

#include <blkid/blkid.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/file_descriptor.h"
#include "device/file_device.h"
#include "host/bounded_call.h"
#include "host/path_looks.h"

namespace eplog {
namespace {

constexpr uint64_t kLookBytes = uint64_t{1} << 20;  // at the beginning and at the end

Result<FileDescriptor> OpenForReading(const std::filesystem::path& path) {
  FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.ok()) {
    return FailErrno(errno, "cannot open " + path.string());
  }
  return fd;
}

tl::unexpected<Error> FailAt(int error, uint64_t offset, const std::filesystem::path& path) {
  auto failed = FailErrno(error, "cannot read " + path.string());
  failed.value().offset_bytes = static_cast<int64_t>(offset);
  return failed;
}

bool AllZero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

// As people call what libblkid names; what it has no common name for, by its name.
std::string CommonName(const std::string& type, const std::string& usage) {
  struct Name {
    std::string_view type;
    const char* what;
  };
  constexpr std::array<Name, 6> kNames = {{
      {"linux_raid_member", "a Linux MD member"},
      {"LVM2_member", "an LVM physical volume"},
      {"crypto_LUKS", "an encrypted (LUKS) volume"},
      {"zfs_member", "a ZFS member"},
      {"swap", "swap space"},
      {"bcache", "a bcache device"},
  }};
  for (const Name& name : kNames) {
    if (name.type == type) {
      return name.what;
    }
  }
  const bool vowel = std::string_view("aeioux").find(type.front()) != std::string_view::npos;
  return fmt::format("{} {}{}", vowel ? "an" : "a", type,
                     usage == "filesystem" ? " file system" : "");
}

// What libblkid finds on it; empty: nothing that it knows.
Result<std::string> KnownContent(int fd, const std::filesystem::path& path, uint64_t size_bytes) {
  const std::unique_ptr<std::remove_pointer_t<blkid_probe>, decltype(&blkid_free_probe)> probe(
      blkid_new_probe(), &blkid_free_probe);
  if (probe == nullptr ||
      blkid_probe_set_device(probe.get(), fd, 0, static_cast<blkid_loff_t>(size_bytes)) != 0) {
    return Fail(ErrorCode::kIo, "cannot look at what lies on " + path.string());
  }
  blkid_probe_enable_superblocks(probe.get(), 1);
  blkid_probe_set_superblocks_flags(probe.get(), BLKID_SUBLKS_TYPE | BLKID_SUBLKS_USAGE);
  blkid_probe_enable_partitions(probe.get(), 1);
  const auto value = [&probe](const char* name) {
    const char* text = nullptr;
    return blkid_probe_lookup_value(probe.get(), name, &text, nullptr) == 0 ? std::string(text)
                                                                            : std::string();
  };
  std::string found;
  while (found.empty()) {
    errno = 0;
    const int next = blkid_do_probe(probe.get());
    if (next < 0) {
      return FailErrno(errno != 0 ? errno : EIO, "cannot read " + path.string());
    }
    if (next != 0) {
      break;
    }
    const std::string type = value("TYPE");
    const std::string table = value("PTTYPE");
    found = !type.empty()    ? CommonName(type, value("USAGE"))
            : !table.empty() ? fmt::format("a partition table ({})", table)
                             : "";
  }
  return found;
}

tl::unexpected<Error> CannotLookAt(int error, const std::filesystem::path& path) {
  if (error == ENOENT || error == ENOTDIR) {
    return Fail(ErrorCode::kNotFound, fmt::format("there is no {}", path.string()));
  }
  return FailErrno(error, "cannot look at " + path.string());
}

Result<DeviceIdentity> IdentityFrom(const struct stat& info, const std::filesystem::path& path) {
  if (S_ISBLK(info.st_mode) || S_ISREG(info.st_mode)) {
    return IdentityOf(info);
  }
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("{} is neither a regular file nor a block device", path.string()));
}

Result<DeviceIdentity> Identify(const std::filesystem::path& path) {
  struct stat info = {};
  if (::stat(path.c_str(), &info) != 0) {
    return CannotLookAt(errno, path);
  }
  return IdentityFrom(info, path);
}

Result<FileDescriptor> OpenHeld(const FileDescriptor& held, const std::filesystem::path& path) {
  auto fd = OpenForReading(fmt::format("/proc/self/fd/{}", held.get()));
  if (!fd.ok()) {
    return FailErrno(fd.error().errno_value, "cannot open " + path.string());
  }
  return fd;
}

// Opened as a path first: what is no device may wait when it is opened.
Result<ProbedDevice> Probe(const std::filesystem::path& path) {
  FileDescriptor held(::open(path.c_str(), O_PATH | O_CLOEXEC));
  struct stat info = {};
  if (!held.ok() || ::fstat(held.get(), &info) != 0) {
    return CannotLookAt(errno, path);
  }
  const auto identity = IdentityFrom(info, path);
  EPLOG_TRY(identity);
  auto fd = OpenHeld(held, path);
  if (!fd.ok()) {
    return Fail(std::move(fd).error());
  }
  ProbedDevice probed;
  probed.identity = *identity;
  probed.block = identity->block;
  if (!probed.block) {
    probed.size_bytes = static_cast<uint64_t>(info.st_size);
    probed.disk_bytes = static_cast<uint64_t>(info.st_blocks) * 512;
  } else if (::ioctl(fd->get(), BLKGETSIZE64, &probed.size_bytes) != 0) {
    return FailErrno(errno, "cannot tell the size of " + path.string());
  }
  FileDescriptor& keeps = probed.block ? *fd : held;
  probed.held = std::make_shared<const FileDescriptor>(std::move(keeps));
  return probed;
}

constexpr size_t kCopies = std::size(kSuperblockCopyOffset);

// Both copies, as they were read: short at the end of a file.
using Copies = std::array<std::span<const std::byte>, kCopies>;

Result<Superblock> NewestOf(const Copies& copies, const std::filesystem::path& path) {
  std::optional<Superblock> newest;
  Error error;
  error.code = ErrorCode::kNotFound;
  error.message = fmt::format("{} has no EPLOG superblock", path.string());
  for (const std::span<const std::byte> bytes : copies) {
    if (bytes.size() < kSuperblockCopyBytes) {
      continue;
    }
    auto copy = DecodeSuperblock(bytes);
    if (copy.ok()) {
      if (!newest || copy->generation > newest->generation) {
        newest = std::move(*copy);
      }
    } else if (copy.error().code != ErrorCode::kNotFound) {
      error.code = copy.error().code;
      error.message = fmt::format("{}: {}", path.string(), copy.error().message);
    }
  }
  if (!newest) {
    return Fail(std::move(error));
  }
  return std::move(*newest);
}

Result<Superblock> ReadCopies(int fd, const std::filesystem::path& path) {
  std::array<std::vector<std::byte>, kCopies> read;
  Copies copies;
  for (size_t i = 0; i < kCopies; ++i) {
    auto bytes = ReadRange(fd, kSuperblockCopyOffset[i], kSuperblockCopyBytes, path);
    if (!bytes.ok()) {
      return Fail(std::move(bytes).error());
    }
    read[i] = std::move(*bytes);
    copies[i] = read[i];
  }
  return NewestOf(copies, path);
}

Result<Superblock> OpenAndReadCopies(const std::filesystem::path& path) {
  auto fd = OpenForReading(path);
  if (!fd.ok()) {
    return Fail(std::move(fd).error());
  }
  return ReadCopies(fd->get(), path);
}

// The same by another process, in memory that both share: zero at first.
struct CopiesSeen {
  int not_opened;  // errno, or 0
  int not_read;    // errno of the copy that could not be read, or 0
  uint64_t failed_at;
  std::array<uint64_t, kCopies> bytes;
  std::array<std::array<std::byte, kSuperblockCopyBytes>, kCopies> copies;
};
static_assert(std::is_trivial_v<CopiesSeen>);

std::optional<DeviceIdentity> LookAtCopies(const std::string& path, std::span<std::byte> content) {
  auto& seen = *new (content.data()) CopiesSeen{};
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  seen.not_opened = fd < 0 ? errno : 0;
  for (size_t i = 0; i < kCopies && fd >= 0 && seen.not_read == 0; ++i) {
    ssize_t n = 1;
    while (n > 0 && seen.bytes[i] < kSuperblockCopyBytes) {
      const uint64_t at = kSuperblockCopyOffset[i] + seen.bytes[i];
      n = ::pread(fd, seen.copies[i].data() + seen.bytes[i], kSuperblockCopyBytes - seen.bytes[i],
                  static_cast<off_t>(at));
      seen.bytes[i] += n > 0 ? static_cast<uint64_t>(n) : 0;
      if (n < 0 && errno == EINTR) {
        n = 1;
      } else if (n < 0) {
        seen.not_read = errno;
        seen.failed_at = at;
      }
    }
  }
  return std::nullopt;  // which device that is nobody asks
}

Result<Superblock> SuperblockOf(std::span<const std::byte> content,
                                const std::filesystem::path& path) {
  CopiesSeen seen{};
  std::memcpy(&seen, content.data(), sizeof seen);
  if (seen.not_opened != 0) {
    return FailErrno(seen.not_opened, "cannot open " + path.string());
  }
  if (seen.not_read != 0) {
    return FailAt(seen.not_read, seen.failed_at, path);
  }
  Copies copies;
  for (size_t i = 0; i < kCopies; ++i) {
    copies[i] = std::span(seen.copies[i]).first(seen.bytes[i]);
  }
  return NewestOf(copies, path);
}

Result<std::string> Content(const std::filesystem::path& path, const ProbedDevice& probed) {
  const auto open = OpenHeld(*probed.held, path);
  if (!open.ok()) {
    return Fail(open.error());
  }
  const int fd = open->get();
  const uint64_t size_bytes = probed.size_bytes;
  auto superblock = ReadCopies(fd, path);
  if (superblock.ok()) {
    const std::string what =
        superblock->is_spare() ? "a spare" : fmt::format("a member ({})", superblock->DeviceName());
    return fmt::format("{} of the EPLOG array '{}', {}", what, superblock->name,
                       UuidToString(superblock->array_uuid));
  }
  if (superblock.error().code == ErrorCode::kUnsupported) {
    return std::string("a member of an EPLOG array of a newer version");
  }
  auto known = KnownContent(fd, path, size_bytes);
  if (!known.ok() || !known->empty()) {
    return known;
  }
  auto head = ReadRange(fd, 0, std::min(kLookBytes, size_bytes), path);
  EPLOG_TRY(head);
  const uint64_t tail_at = size_bytes > kLookBytes ? size_bytes - kLookBytes : 0;
  auto tail = ReadRange(fd, tail_at, std::min(kLookBytes, size_bytes), path);
  if (!tail.ok()) {
    return Fail(std::move(tail).error());
  }
  return std::string(AllZero(*head) && AllZero(*tail) ? "" : "data");
}

}  // namespace

Result<std::vector<std::byte>> ReadRange(int fd, uint64_t offset, uint64_t length,
                                         const std::filesystem::path& path) {
  std::vector<std::byte> bytes(length);
  size_t got = 0;
  while (got < length) {
    const ssize_t n =
        ::pread(fd, bytes.data() + got, length - got, static_cast<off_t>(offset + got));
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n < 0) {
      return FailAt(errno, offset + got, path);
    }
    if (n == 0) {
      break;
    }
    got += static_cast<size_t>(n);
  }
  bytes.resize(got);
  return bytes;
}

Result<DeviceIdentity> IdentifyDevice(const std::filesystem::path& path) {
  return Bounded<DeviceIdentity>(path, [path] { return Identify(path); });
}

Result<ProbedDevice> ProbeDevice(const std::filesystem::path& path) {
  return Bounded<ProbedDevice>(path, [path] { return Probe(path); });
}

Result<ProbedDevice> ProbeDevice(const std::filesystem::path& path, const DeviceIdentity& only) {
  auto probed = ProbeDevice(path);
  EPLOG_TRY(probed);
  EPLOG_TRY(CheckIdentity(path.string(), probed->identity, only));
  return probed;
}

Result<FileDescriptor> OpenProbed(const std::filesystem::path& path, const ProbedDevice& probed) {
  return Bounded<FileDescriptor>(path, [path, probed] { return OpenHeld(*probed.held, path); });
}

Result<std::string> FindContent(const std::filesystem::path& path, const ProbedDevice& probed) {
  return Bounded<std::string>(path, [path, probed] { return Content(path, probed); });
}

Result<Superblock> ReadSuperblock(const std::filesystem::path& path) {
  return std::move(ReadSuperblocks({path}).front());
}

namespace {

// What they hold, where no process can be had that looks.
void ReadHere(std::span<const std::filesystem::path> paths, PathLooks::Clock::time_point until,
              std::span<std::optional<Result<Superblock>>> superblocks) {
  std::vector<std::optional<BoundedCall<Result<Superblock>>>> reads(paths.size());
  for (size_t i = 0; i < paths.size(); ++i) {
    if (!superblocks[i]) {
      reads[i].emplace([path = paths[i]] { return OpenAndReadCopies(path); });
    }
  }
  for (size_t i = 0; i < paths.size(); ++i) {
    if (reads[i]) {
      superblocks[i] = reads[i]->Wait(until);
    }
  }
}

// A process for each. Those that have not answered by then stay empty.
void ReadAtOnce(std::span<const std::filesystem::path> paths, const SuperblockIsEnough& is_enough,
                PathLooks::Clock::time_point until,
                std::span<std::optional<Result<Superblock>>> superblocks) {
  constexpr std::chrono::milliseconds kGrace(200);
  std::vector<std::string> absolute;
  for (const std::filesystem::path& path : paths) {
    std::error_code error;  // where this process is, is no more: nor is what it names from there
    const std::filesystem::path there = std::filesystem::absolute(path, error);
    absolute.push_back(error ? "" : there.string());
  }
  auto looks = PathLooks::Begin(std::move(absolute), LookAtCopies, sizeof(CopiesSeen));
  while (looks.ok()) {
    const auto answer = looks->Next(until);
    if (!answer.ok()) {
      break;
    }
    if (!*answer) {
      return;
    }
    const size_t path = (*answer)->path;
    superblocks[path] = SuperblockOf(looks->content(path), paths[path]);
    if (is_enough && superblocks[path]->ok() && is_enough(**superblocks[path])) {
      until = std::min(until, PathLooks::Clock::now() + kGrace);
    }
  }
  ReadHere(paths, until, superblocks);
}

}  // namespace

std::vector<Result<Superblock>> ReadSuperblocks(const std::vector<std::filesystem::path>& paths,
                                                const SuperblockIsEnough& is_enough) {
  constexpr size_t kAtOnce = 128;
  const auto until = PathLooks::Clock::now() + kPatience;
  std::vector<std::optional<Result<Superblock>>> read(paths.size());
  for (size_t first = 0; first < paths.size(); first += kAtOnce) {
    const size_t count = std::min(kAtOnce, paths.size() - first);
    ReadAtOnce(std::span(paths).subspan(first, count), is_enough, until,
               std::span(read).subspan(first, count));
  }
  std::vector<Result<Superblock>> superblocks;
  for (size_t i = 0; i < paths.size(); ++i) {
    superblocks.push_back(read[i] ? std::move(*read[i]) : DoesNotAnswer(paths[i]));
  }
  return superblocks;
}

Result<Superblock> ReadSuperblock(const std::filesystem::path& path, const ProbedDevice& probed) {
  return Bounded<Superblock>(path, [path, probed]() -> Result<Superblock> {
    const auto fd = OpenHeld(*probed.held, path);
    if (!fd.ok()) {
      return Fail(fd.error());
    }
    return ReadCopies(fd->get(), path);
  });
}

Result<uint64_t> FreeBytes(const std::filesystem::path& directory) {
  return Bounded<uint64_t>(directory, [directory]() -> Result<uint64_t> {
    struct statvfs info = {};
    if (::statvfs(directory.c_str(), &info) != 0) {
      return FailErrno(errno, "cannot tell the free space of " + directory.string());
    }
    return uint64_t{info.f_bavail} * info.f_frsize;
  });
}

}  // namespace eplog
