// Looking at a path that is to become, or is, a member: which device it really is, how large, and
// what it holds. Plain reads, no lock, nothing is changed. Each look ends: a device that does not
// answer within ten seconds is an error (kDeviceFailed).
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/file_descriptor.h"
#include "eplog/device.h"
#include "eplog/result.h"
#include "format/superblock.h"

namespace eplog {

struct ProbedDevice {
  DeviceIdentity identity;
  bool block = false;
  uint64_t size_bytes = 0;
  uint64_t disk_bytes = 0;  // a file: what it takes on its file system
  // It is open for as long as this is kept, so that nothing else gets its identity meanwhile (file
  // systems give numbers of deleted files away again): what is opened later as this device is what
  // was looked at. A file as a path (O_PATH): its file system is asked for nothing when that is
  // closed, by this process or by one that inherited it, and so may hang. Not to be read.
  std::shared_ptr<const FileDescriptor> held;
};

// The same for every path to one file (links) and for every node of one block device.
// kNotFound: no such path. kInvalidArgument: neither a regular file nor a block device.
Result<DeviceIdentity> IdentifyDevice(const std::filesystem::path& path);
Result<ProbedDevice> ProbeDevice(const std::filesystem::path& path);
// kBusy: it is another device.
Result<ProbedDevice> ProbeDevice(const std::filesystem::path& path, const DeviceIdentity& only);

// To read it, wherever the path leads by now.
Result<FileDescriptor> OpenProbed(const std::filesystem::path& path, const ProbedDevice& probed);
// What lies on it, wherever the path leads by now, in a few words ("an ext4 file system", "a member
// of the EPLOG array 'a'", "data"); empty if its beginning and end are all zero.
Result<std::string> FindContent(const std::filesystem::path& path, const ProbedDevice& probed);

// What is there of the range: short at the end of the file. kIo says at which byte. Blocks as long
// as the device does.
Result<std::vector<std::byte>> ReadRange(int fd, uint64_t offset, uint64_t length,
                                         const std::filesystem::path& path);

// Free bytes of the file system that holds a directory.
Result<uint64_t> FreeBytes(const std::filesystem::path& directory);

// The newest of the two superblock copies that is whole. kNotFound: neither is there. Errors of
// both copies are told apart as DecodeSuperblock does: a newer version or a damaged copy is not
// `not found`.
// Read by another process (PathLooks), so that this one can end whatever hangs there: for verbs,
// and not where much memory would be another's too.
Result<Superblock> ReadSuperblock(const std::filesystem::path& path);
// Of each path, all at once: several that hang take no longer than one. Once one of them is enough,
// the others have 200 ms.
using SuperblockIsEnough = std::function<bool(const Superblock&)>;
std::vector<Result<Superblock>> ReadSuperblocks(const std::vector<std::filesystem::path>& paths,
                                                const SuperblockIsEnough& is_enough = {});
// Of what was looked at, wherever the path leads by now.
Result<Superblock> ReadSuperblock(const std::filesystem::path& path, const ProbedDevice& probed);

}  // namespace eplog
