#include "text/picture_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <vector>

#include "base/file_descriptor.h"

extern char** environ;

namespace eplog {
namespace {

namespace fs = std::filesystem;

std::string Ending(const fs::path& file) {
  std::string ending = file.extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return ending;
}

Status WriteText(const fs::path& file, std::string_view text) {
  const FileDescriptor fd(::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (fd.get() < 0) {
    return FailErrno(errno, "cannot write " + file.string());
  }
  while (!text.empty()) {
    const ssize_t wrote = ::write(fd.get(), text.data(), text.size());
    if (wrote < 0 && errno != EINTR) {
      return FailErrno(errno, "cannot write " + file.string());
    }
    text.remove_prefix(wrote > 0 ? static_cast<size_t>(wrote) : 0);
  }
  return OkStatus();
}

// Runs `words` without a shell; its standard error is ours.
Status RunProgram(const std::vector<std::string>& words, const char* package) {
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (const std::string& word : words) {
    argv.push_back(const_cast<char*>(word.c_str()));
  }
  argv.push_back(nullptr);
  pid_t child = 0;
  const int failed = ::posix_spawnp(&child, argv[0], nullptr, nullptr, argv.data(), environ);
  if (failed == ENOENT) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("this picture needs the program {}: apt-get install {}, or name a file "
                            "that ends in .svg (graphs: .dot)",
                            words[0], package));
  }
  if (failed != 0) {
    return FailErrno(failed, "cannot run " + words[0]);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) {
      return FailErrno(errno, "cannot wait for " + words[0]);
    }
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    return Fail(ErrorCode::kIo, fmt::format("{} could not draw the picture", words[0]));
  }
  return OkStatus();
}

// A file beside the wanted one, gone at the end whatever happened.
class Temporary {
 public:
  Temporary(const fs::path& beside, const char* ending)
      : path_(fs::path(beside.string() + fmt::format(".{}", ::getpid()) + ending)) {}
  ~Temporary() {
    std::error_code ignored;
    fs::remove(path_, ignored);
  }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;
  [[nodiscard]] const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

// In the place of a file, or of nothing.
Status Install(const Temporary& from, const fs::path& to) {
  std::error_code error;
  const fs::file_status there = fs::status(to, error);
  if (fs::exists(there) && !fs::is_regular_file(there)) {
    return Fail(ErrorCode::kInvalidArgument,
                to.string() + " is no file: nothing was written there");
  }
  fs::rename(from.path(), to, error);
  return error ? Status(FailErrno(error.value(), "cannot write " + to.string())) : OkStatus();
}

}  // namespace

Status CheckPictureName(const fs::path& file) {
  if (Ending(file) == ".svg" || Ending(file) == ".png") {
    return OkStatus();
  }
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("'{}' is no picture's name; end it in .svg or .png", file.string()));
}

Status CheckGraphName(const fs::path& file) {
  if (Ending(file) == ".dot" || CheckPictureName(file).ok()) {
    return OkStatus();
  }
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("'{}' is no graph's name; end it in .dot, .svg or .png", file.string()));
}

Status WritePicture(const fs::path& file, std::string_view svg) {
  EPLOG_TRY(CheckPictureName(file));
  const Temporary drawing(file, ".svg");
  EPLOG_TRY(WriteText(drawing.path(), svg));
  if (Ending(file) == ".svg") {
    return Install(drawing, file);
  }
  const Temporary picture(file, ".png");
  // Twice the size in pixels: text stays sharp on today's screens.
  EPLOG_TRY(RunProgram(
      {"rsvg-convert", "--zoom=2", "--output", picture.path().string(), drawing.path().string()},
      "librsvg2-bin"));
  return Install(picture, file);
}

Status WriteGraph(const fs::path& file, std::string_view dot) {
  EPLOG_TRY(CheckGraphName(file));
  const Temporary graph(file, ".dot");
  EPLOG_TRY(WriteText(graph.path(), dot));
  if (Ending(file) == ".dot") {
    return Install(graph, file);
  }
  const bool png = Ending(file) == ".png";
  const Temporary picture(file, png ? ".png" : ".svg");
  EPLOG_TRY(RunProgram({"dot", png ? "-Tpng" : "-Tsvg", png ? "-Gdpi=150" : "-Gdpi=72", "-o",
                        picture.path().string(), graph.path().string()},
                       "graphviz"));
  return Install(picture, file);
}

}  // namespace eplog
