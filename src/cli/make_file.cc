#include "cli/make_file.h"

#include "cli/console.h"
#include "device/file_device.h"
#include "runtime/io_uring_loop.h"
#include "runtime/run_task.h"

namespace eplog::cli {

Status MakeMemberFile(std::string_view verb, const std::filesystem::path& path, uint64_t bytes) {
  auto loop = IoUringLoop::Create();
  if (!loop.ok()) {
    return Fail(std::move(loop).error());
  }
  ProgressBar bar(verb, "writing " + path.string(), ProgressBar::Unit::kBytes);
  CreateFileOptions options;
  options.progress = bar.Sink();
  Status made = RunTask(**loop, CreateMemberFile(**loop, path.string(), bytes, options));
  bar.Finish();
  return made;
}

}  // namespace eplog::cli
