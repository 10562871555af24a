// What requests to a serving process carry, and what is said of those that lack it.
#pragma once

#include <cstdint>
#include <string>

#include "eplog/device.h"
#include "eplog/result.h"
#include "report/json.h"

namespace eplog {

// Empty if there is none.
std::string TextArgument(const Json& request, const char* key);
Result<std::string> NameArgument(const Json& request);  // "name": of a volume
Result<uint64_t> SizeArgument(const Json& request);     // "size_bytes"
Result<uint32_t> DeviceArgument(const Json& request);   // "device": a member, SSDs first
// "identity": {"block", "device", "inode"}, of the device that was looked at.
Result<DeviceIdentity> IdentityArgument(const Json& request);
tl::unexpected<Error> NoSuchVolume(const std::string& name);

}  // namespace eplog
