// How far a scrub has come, in a file beside array.toml, so that the next one goes on there if it
// was cut short. A file that cannot be read or written costs only that.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "eplog/options.h"
#include "host/array_file.h"
#include "runtime/side_thread.h"

namespace eplog {

std::filesystem::path ScrubMarkPath(const ArrayFile& file);

// The mark of an array that is open: read once, and then the array's. It is written on a thread of
// its own, since the file may lie on a file system on this very array. While the file hangs, only
// the newest mark waits.
class ScrubMarkFile {
 public:
  // Reads the file.
  explicit ScrubMarkFile(const ArrayFile& file);
  // Waits for the last mark to be written, for a bounded time.
  ~ScrubMarkFile();
  ScrubMarkFile(const ScrubMarkFile&) = delete;
  ScrubMarkFile& operator=(const ScrubMarkFile&) = delete;

  // None of these waits for the file.
  [[nodiscard]] std::optional<ScrubMark> newest() const;
  void Keep(const std::optional<ScrubMark>& mark);
  // For the array; refers to this.
  [[nodiscard]] ScrubMarkKeeper Keeper();

 private:
  struct Shared;
  static void WriteNewest(Shared& shared);

  std::shared_ptr<Shared> shared_;
  SideThread writing_{1};
};

// The next scrub begins at the beginning: of an array that nobody serves.
void ForgetScrubMark(const ArrayFile& file);

}  // namespace eplog
