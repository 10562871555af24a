// The devices of an array as bytes, for `inspect`: read without lock and without the engine, so
// that what recovery would refuse can be looked at too. While the array is mounted what is read may
// be changing.
//
// A second witness, on purpose: which pages a checkpoint has, and that any SSD's copy will do, is
// said once more in engine/checkpoint (checkpoint_pages.cc, checkpoint_loader.cc). Whoever shared
// that code would see what the engine sees, its mistakes too. tests/cli/inspect compares the two.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_descriptor.h"
#include "eplog/result.h"
#include "format/checkpoint.h"
#include "format/superblock.h"

namespace eplog::cli {

struct RawMember {
  std::string name;  // as its superblock says, else as array.toml does, else the path
  std::filesystem::path path;
  std::shared_ptr<const FileDescriptor> fd;
  std::string error;           // not empty: cannot be opened
  mutable bool hangs = false;  // a read did not end: no other is tried
  std::array<Result<Superblock>, 2> copies = {Fail(ErrorCode::kNotFound, "not read"),
                                              Fail(ErrorCode::kNotFound, "not read")};

  // The copy that holds, or null.
  [[nodiscard]] const Superblock* superblock() const;
};

class RawArray {
 public:
  // An ARRAY argument, or one device. kNotFound if it is neither; members that cannot be opened, or
  // do not answer, are among the others.
  static Result<RawArray> Open(const std::string& argument);

  [[nodiscard]] const std::vector<RawMember>& members() const { return members_; }
  [[nodiscard]] bool one_device() const { return one_device_; }
  // The superblock with the highest epoch: whose array this is. kNotFound: no member has one.
  [[nodiscard]] Result<const Superblock*> Identity() const;
  // The member of this array with an index, or null.
  [[nodiscard]] const RawMember* ByIndex(DeviceIndex index) const;

 private:
  std::vector<RawMember> members_;
  bool one_device_ = false;
};

// Exactly `length` bytes. kDeviceFailed: they do not come.
Result<std::vector<std::byte>> ReadBytes(const RawMember& member, uint64_t offset, uint64_t length);

// A checkpoint as it lies on the disks.
struct RawCheckpoint {
  CheckpointPointer pointer;
  CheckpointRoot root;
  std::vector<std::vector<std::byte>> streams;  // of root.runs, newest first
};

// The newest checkpoint that any member of the array points to. kNotFound: there is none.
Result<RawCheckpoint> LoadRawCheckpoint(const RawArray& array);

// ssd0, ssd2, ... of a mask.
std::string SsdNames(uint64_t mask);

}  // namespace eplog::cli
