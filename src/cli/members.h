// The members of an array as open, locked devices. Who is who is not decided here: the engine reads
// the superblocks.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/array_file.h"
#include "device/device.h"
#include "runtime/io_uring_loop.h"

namespace eplog::cli {

struct MemberOptions {
  bool read_only = false;
  // For crash tests: a volatile cache in the RAM of this process before every member, so that
  // killing it does what a power cut does; and flushes that are not passed on, so that the tests
  // can be seen to fail.
  bool volatile_cache = false;
  bool ignore_flush = false;
};

struct Members {
  std::vector<std::unique_ptr<Device>> devices;  // those that could be opened
  std::vector<std::string> missing;              // "ssd3 (/path): why", one a member that could not

  [[nodiscard]] std::vector<Device*> Pointers() const;
};

// Open everything that array.toml lists. A member that is not there or cannot be opened is reported
// in `missing`. Fails if one is held by another process (kBusy, naming it), if we may not open one,
// if two names lead to one device, or if there is none at all. Members must die before the loop.
Result<Members> OpenMembers(IoUringLoop& loop, const ArrayFile& array,
                            const MemberOptions& options);

// One that is to become a member.
Result<std::unique_ptr<Device>> OpenMember(IoUringLoop& loop, const std::string& path,
                                           const MemberOptions& options);

}  // namespace eplog::cli
