// A file that is to become a device of an array, with a progress bar.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

#include "eplog/result.h"
#include "host/array_file.h"
#include "host/device_content.h"

namespace eplog {

inline constexpr char kMakeFileHelp[] =
    "make a file if nothing is there, also outside the array's directory";

// In the directory of device nodes a file is a node mistyped: it takes memory, and is gone at the
// next boot.
[[nodiscard]] Result<bool> IsAmongDevices(const std::filesystem::path& path);

// A file that is made for a change of an array, and removed again if that was refused.
class MadeFile {
 public:
  // Absolute.
  explicit MadeFile(std::filesystem::path path) : path_(std::move(path)) {}
  MadeFile(const MadeFile&) = delete;
  MadeFile& operator=(const MadeFile&) = delete;
  // Removes it, unless somebody uses it, it is part of the array, or something else has its name.
  ~MadeFile();

  // Where the array makes files without being asked, or, if it was `asked`, elsewhere. kNotFound:
  // not there. `verb` is for the progress bar.
  Status MayMake(const ArrayFile& file, bool asked) const;
  // Written out and durable.
  Status Make(std::string_view verb, const ArrayFile& file, uint64_t bytes, bool asked);
  void Keep() { made_ = false; }
  // What was made.
  [[nodiscard]] const ProbedDevice& probed() const { return probed_; }

 private:
  std::filesystem::path path_;
  ProbedDevice probed_;
  bool made_ = false;
};

}  // namespace eplog
