// Paths that a person typed. They may lie on a file system that does not answer, where any look
// lasts for ever; each of these ends, with kDeviceFailed then (see BoundedCall).
#pragma once

#include <filesystem>
#include <string_view>

#include "eplog/result.h"
#include "host/array_file.h"

namespace eplog {

// ResolveParent.
Result<std::filesystem::path> ResolveTyped(const std::filesystem::path& typed);
// The same for a device of an array. One that is typed just as array.toml lists it is not looked
// at: that it hangs may be why it is named.
Result<std::filesystem::path> ResolveDevice(const ArrayFile& file,
                                            const std::filesystem::path& typed);
// Something is there, as far as can be seen.
Result<bool> IsThere(const std::filesystem::path& path);

// What is there answers. For what is then read or written with no deadline, before that begins.
// That nothing is there is no error here.
Status CheckAnswers(const std::filesystem::path& path);

// What an ARRAY argument leads to.
struct TypedArray {
  std::filesystem::path file;  // ArrayFilePath
  Result<ArrayFile> array;     // LoadArrayFile
};
Result<TypedArray> LookAtArray(const std::filesystem::path& argument);

}  // namespace eplog
