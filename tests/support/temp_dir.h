// A directory of its own for one test, gone at its end.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>

namespace eplog {

class TempDir {
 public:
  TempDir() {
    std::string name = (std::filesystem::temp_directory_path() / "eplog-cli-XXXXXX").string();
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    path_ = std::filesystem::canonical(name);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  // What a call that hung is let go of may still be at work here, so names come and go
  // while they are removed; that is no error, and what it leaves is removed after it.
  ~TempDir() {
    std::error_code error;
    for (int i = 0; i < 100 && std::filesystem::exists(path_, error); ++i) {
      std::filesystem::remove_all(path_, error);
    }
  }

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  std::filesystem::path Write(std::string_view name, std::string_view text) const {
    std::ofstream(path_ / name, std::ios::binary) << text;
    return path_ / name;
  }
  // A file of zeros, without taking room.
  std::filesystem::path WriteSparse(std::string_view name, uint64_t bytes) const {
    const auto file = Write(name, "");
    std::filesystem::resize_file(file, bytes);
    return file;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace eplog
