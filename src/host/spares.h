// Spares as they lie on the disks: what a device is that array.toml lists as one, and which members
// are found among them. Plain reads, no lock, nothing is changed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "eplog/result.h"
#include "eplog/status.h"
#include "format/superblock.h"
#include "host/array_file.h"
#include "host/device_content.h"
#include "report/json.h"

namespace eplog {

// The superblock of any member of the array. kNotFound: none can be read, or all are another's.
Result<Superblock> AnyMember(const ArrayFile& file);

// What a device of this size may step in for.
struct SpareRoles {
  bool ssd = false;
  bool log = false;
  [[nodiscard]] bool any() const { return ssd || log; }
};
SpareRoles RolesFor(const Geometry& geometry, uint64_t size_bytes);
// One line for a device that fits none.
std::string TooSmall(const Geometry& geometry, const std::string& path, uint64_t size_bytes);
// What to do about a device with less than that.
std::string HowToEnlarge(uint64_t needed_bytes, const std::string& path,
                         const ProbedDevice& probed);
// One line, with that, for one that does not fit this role ("ssd3"), which needs so much.
std::string TooSmallFor(const std::string& role, uint64_t needed_bytes, const std::string& path,
                        const ProbedDevice& probed);

// What a device that is listed as a spare really is.
enum class SpareKind : uint8_t {
  kSpare,   // of this array
  kCutOff,  // it was stepping in, or had, when the array went on without it
  kBlank,   // nothing at all: wiped to step in, and no more
  kOther,   // something else; see `what`
};
struct SpareFound {
  SpareKind kind = SpareKind::kOther;
  std::string what;  // one line
  // Which device that was, unless it is kOther.
  DeviceIdentity identity = {};
};
// `array_uuid` as in array.toml. A device that just is a member of the array may look cut off.
SpareFound IdentifySpare(const std::string& array_uuid, const std::filesystem::path& path);
SpareFound IdentifySpare(const std::string& array_uuid, const std::filesystem::path& path,
                         const ProbedDevice& probed);
// That array.toml does not list a member at this path: who is to be there is a replacement, and no
// spare.
Status CheckNotListed(const ArrayFile& file, const std::filesystem::path& path);
// That the device bears the superblock of a member of the array, in whatever state.
bool BearsMember(const ArrayFile& file, const std::filesystem::path& path);
// That its log holds no entries of epochs which this array has yet to reach: what a spare was
// before nobody knows any more when it steps in.
Status CheckNoLaterLog(const ArrayFile& file, const std::filesystem::path& path,
                       const ProbedDevice& probed);
bool IsSpareOf(const ArrayFile& file, const std::filesystem::path& path);

// The file as it should be: a spare that bears the superblock of a member is that member, if it
// joined later than what is listed as the member. So it is after a kill between the two steps of
// stepping in.
ArrayFile WithJoinedSpares(const ArrayFile& file);

// Rows of `status` for the spares of an array that nobody serves.
std::vector<DeviceStatus> LookAtSpares(const ArrayFile& file);
// Puts them into a status document that has none.
void AddSpares(const ArrayFile& file, Json& status);

}  // namespace eplog
