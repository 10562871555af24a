// The members of an array as open, locked devices. Who is who is not decided here: the engine reads
// the superblocks.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "device/deadline_device.h"
#include "device/file_device.h"
#include "device/inject_device.h"
#include "eplog/result.h"
#include "host/array_file.h"
#include "runtime/io_uring_loop.h"

namespace eplog {

struct MemberOptions {
  bool read_only = false;
  bool lock = true;  // without it others may be at work on the device: only to look at it
  // For crash tests: a volatile cache in the RAM of this process before every member, so that
  // killing it does what a power cut does; and flushes that are not passed on, so that the tests
  // can be seen to fail.
  bool volatile_cache = false;
  bool ignore_flush = false;
  // A request that takes longer means that its device has failed; 0 = none ever does.
  uint64_t io_deadline_us = 30'000'000;
  std::string event_hook;  // a command; empty: none
  // Members that are left out, as typed: by a path that array.toml lists, which is not even opened
  // then, or by the name that a device bears. They are no spares meanwhile, either.
  std::vector<std::string> without;
};

struct Member {
  std::string name;  // under which array.toml lists it; empty: it is another device
  std::unique_ptr<Device> device;
  InjectDevice* inject = nullptr;      // inside of it
  DeadlineDevice* deadline = nullptr;  // the same
  uint32_t users = 0;                  // besides the array
};

struct Members {
  std::vector<Member> opened;         // those that could be
  std::vector<std::string> left_out;  // one line a member that could not: which one, and why
  // Where those are that MemberOptions::without named. One may be listed as a spare still, and must
  // not be taken for one.
  std::vector<std::filesystem::path> as_told;
  bool read_only_below = false;  // some could not, since what they lie on is read-only

  [[nodiscard]] std::vector<Device*> Pointers() const;
};

// Open every member that array.toml lists, or that a spare has become. A member that is not there,
// cannot be opened, does not answer, or is the same device as another is reported in `left_out`.
// Fails if one is held by another process (kBusy, naming it), if this process may open no more, or
// if there is none at all (kReadOnly: to be written). Blocks, but not for ever. The loop may die
// before Members, not while requests are on their way.
Result<Members> OpenMembers(IoUringLoop& loop, const ArrayFile& file, const MemberOptions& options);

// kReadOnly, with what to do.
tl::unexpected<Error> FailReadOnlyBelow(const ArrayFile& file,
                                        const std::vector<std::string>& left_out);

// One device, with these options: OpenFile, which blocks as long as that and may be called on any
// thread, and what belongs in front of it. kDeviceFailed: it does not answer.
Result<Member> OpenMember(IoUringLoop& loop, const std::string& path, const MemberOptions& options);
Result<std::unique_ptr<FileDevice>> OpenFile(
    IoUringLoop& loop, const std::string& path, const MemberOptions& options,
    const std::optional<DeviceIdentity>& looked_at = std::nullopt);
Member WrapFile(IoUringLoop& loop, std::unique_ptr<FileDevice> file, const MemberOptions& options);

}  // namespace eplog
