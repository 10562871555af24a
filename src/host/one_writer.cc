#include "host/one_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "base/file_descriptor.h"
#include "control/control.h"
#include "device/file_lock.h"
#include "host/bounded_call.h"

namespace eplog {
namespace {

constexpr const char* kReader = "reader";

// Whoever had it last took the file away; what was locked then is nobody's.
bool IsStillThere(int fd, const std::string& path) {
  struct stat open {};
  struct stat there {};
  return ::fstat(fd, &open) == 0 && ::stat(path.c_str(), &there) == 0 &&
         open.st_dev == there.st_dev && open.st_ino == there.st_ino;
}

std::string PathFor(const std::string& uuid, const char* role = "writer") {
  return std::filesystem::path(ControlSocketPath(uuid)).replace_extension(role).string();
}

// Who reads no more has it for himself for a moment.
bool LockToRead(int fd) {
  constexpr int kTries = 200;
  constexpr std::chrono::milliseconds kRest(5);
  for (int i = 0; i < kTries; ++i) {
    if (::flock(fd, LOCK_SH | LOCK_NB) == 0) {
      return true;
    }
    std::this_thread::sleep_for(kRest);
  }
  return false;
}

std::string TextOf(const LockHolder& holder) {
  return fmt::format("process {} ({})", holder.pid, holder.command);
}

// Empty: nobody.
Result<std::string> HolderOf(const std::string& uuid) {
  constexpr int kFlags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  struct stat file {};
  const FileDescriptor reads(::open(PathFor(uuid, kReader).c_str(), kFlags));
  const auto reader =
      reads.ok() && ::fstat(reads.get(), &file) == 0 ? FindLockHolder(file) : std::nullopt;
  if (reader) {
    return TextOf(*reader);
  }
  const FileDescriptor writes(::open(PathFor(uuid).c_str(), kFlags));
  if (!writes.ok() || ::fstat(writes.get(), &file) != 0) {
    return std::string();
  }
  // For the moment that it is locked so, who wants it for himself waits.
  const Status free = LockFile(writes.get(), "", /*shared=*/true, kDeadOwnerWaitMs / 2);
  if (free.ok() || free.error().code != ErrorCode::kBusy) {
    return std::string();
  }
  const auto holder = FindLockHolder(file);
  return holder ? TextOf(*holder)
                : "a process that cannot be seen from here, or requests of a dead one";
}

}  // namespace

std::optional<std::string> OneWriter::Who(const std::string& uuid) {
  const std::string socket = ControlSocketPath(uuid);
  if (!CheckControlDirectory(socket).ok()) {
    return std::nullopt;
  }
  // Who looks for a holder may have to ask what his files lie on.
  const auto who = Bounded<std::string>(socket, [uuid] { return HolderOf(uuid); });
  return !who.ok()      ? std::optional(std::string("somebody whose files do not answer"))
         : who->empty() ? std::nullopt
                        : std::optional(*who);
}

OneWriter OneWriter::TakeToRead(const ArrayFile& file) {
  OneWriter reader;
  if (!PrepareControlDirectory(ControlSocketPath(file.uuid)).ok()) {
    return reader;
  }
  const std::string path = PathFor(file.uuid, kReader);
  while (true) {
    OneWriter taken;
    taken.fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (taken.fd_ < 0 || !LockToRead(taken.fd_)) {
      return reader;
    }
    if (IsStillThere(taken.fd_, path)) {
      taken.path_ = path;
      return taken;
    }
  }
}

Result<OneWriter> OneWriter::Take(const ArrayFile& file, bool despite_dead) {
  if (!PrepareControlDirectory(ControlSocketPath(file.uuid)).ok()) {
    return OneWriter();
  }
  const std::string path = PathFor(file.uuid);
  while (true) {
    OneWriter writer;
    writer.fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (writer.fd_ < 0) {
      return OneWriter();
    }
    Status locked = LockFile(writer.fd_, "an array with the UUID of " + file.Argument().string(),
                             /*shared=*/false);
    if (!locked.ok() && locked.error().code != ErrorCode::kBusy) {
      return OneWriter();
    }
    struct stat there {};
    const bool lives = !locked.ok() && ::fstat(writer.fd_, &there) == 0 && FindLockHolder(there);
    if (!locked.ok() && !lives && despite_dead) {
      // What nobody waits for any more: another one takes its place.
      if (IsStillThere(writer.fd_, path) && ::unlink(path.c_str()) != 0) {
        return OneWriter();
      }
      continue;
    }
    if (!locked.ok()) {
      locked.error().message +=
          lives
              ? ", which writes to it: one is a copy of the other, or the same by other paths; end "
                "that first"
              : "; where that is a device that does not answer, --without it does not wait";
      return Fail(std::move(locked).error());
    }
    if (IsStillThere(writer.fd_, path)) {
      writer.path_ = path;
      return writer;
    }
  }
}

OneWriter::~OneWriter() {
  // Else another's is there by now; and of several who read the last one takes it away.
  if (!path_.empty() && IsStillThere(fd_, path_) && ::flock(fd_, LOCK_EX | LOCK_NB) == 0) {
    ::unlink(path_.c_str());
  }
  if (fd_ >= 0) {
    UnlockAndClose(fd_);
  }
}

}  // namespace eplog
