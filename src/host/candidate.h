// Whether a device may become one of an array's, by where it is. What it holds is not looked at.
#pragma once

#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

#include "eplog/device.h"
#include "eplog/result.h"
#include "host/array_file.h"
#include "host/device_content.h"

namespace eplog {

// kInvalidArgument, in a line: it is one of the files that the array keeps beside its members; or a
// loop device has it as its own; or it lies on the array itself, through whatever there is between:
// the array would wait for itself.
// kBusy: it is not what was looked at. It is not opened. Asks who serves the file, for a bounded
// time, which may be this very process: never on the thread that serves.
[[nodiscard]] Status CheckCandidate(const ArrayFile& file, const std::filesystem::path& path,
                                    const std::optional<DeviceIdentity>& looked_at = std::nullopt);

// kBusy: it bears the UUID of an array, or is a spare of one, that somebody has open for writing on
// this machine, who is named: it is in use by another node, or was copied from what is. Not where
// that is `own_uuid`: of itself an array sees that. Bounded.
[[nodiscard]] Status CheckNotServed(const std::filesystem::path& path, const ProbedDevice& probed,
                                    std::string_view own_uuid = {});

// kInvalidArgument: a loop device has the file at one of these paths as its own, or what is there is
// one that is not alone over its file. Bounded.
[[nodiscard]] Status CheckNoLoopOver(const std::vector<std::filesystem::path>& paths);

}  // namespace eplog
