// How people name a member of an array: ssd3, log0, or its path.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "cli/array_file.h"

namespace eplog::cli {

inline constexpr char kDeviceHelp[] = "a member: ssd0 ..., log0 ..., or its path";

// Its number as the engine counts: SSDs first. kNotFound says which there are.
Result<uint32_t> MemberIndex(const ArrayFile& file, std::string_view device);
// ssd3, log0
std::string MemberName(const ArrayFile& file, uint32_t index);

}  // namespace eplog::cli
