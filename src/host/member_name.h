// How people name a member of an array: ssd3, log0, or its path.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "eplog/result.h"
#include "host/array_file.h"
#include "layout/geometry.h"

namespace eplog {

inline constexpr char kDeviceHelp[] = "a member: ssd0 ..., log0 ..., or its path";

// From the superblock of any member that array.toml lists: kNotFound if none can be read.
Result<Geometry> GeometryOf(const ArrayFile& file);

// Its number as the engine counts: SSDs first. kNotFound says which there are. array.toml need not
// list it: one that was missing when the file was written is not in it. kInvalidArgument: it is a
// path, and which member is meant cannot be told for sure.
Result<uint32_t> MemberIndex(const ArrayFile& file, std::string_view device);
// That it is one at all. At a path that array.toml lists for a member nothing is opened.
Status CheckMember(const ArrayFile& file, std::string_view device);
// ssd3, log0
std::string MemberName(const ArrayFile& file, uint32_t index);

}  // namespace eplog
