// Small files that are read as a whole: of /proc, of sysfs, what a person wrote.
#pragma once

#include <filesystem>
#include <string>

namespace eplog {

// What can be read of it; empty if there is no such file. A read may fail also after the file was
// opened, as in /proc when its process ends: then what was read until there.
std::string ReadText(const std::filesystem::path& path);

}  // namespace eplog
