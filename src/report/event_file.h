// Lines that go to the end of a file, which does not grow without bound. May block for as long as
// the file's file system does: for a SideThread.
#pragma once

#include <cstdint>
#include <string>

namespace eplog {

// At `max_bytes` the file becomes PATH.1, in place of the one before. A file that cannot be written
// is as if there were none.
void AppendEventLine(const std::string& path, const std::string& line, uint64_t max_bytes);

}  // namespace eplog
