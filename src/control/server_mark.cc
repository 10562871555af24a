#include "control/server_mark.h"

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "base/process_life.h"
#include "control/peer.h"

namespace eplog {
namespace {

constexpr char kSuffix[] = ".server";
constexpr char kSocketSuffix[] = ".sock";

std::string MarkPath(const std::string& socket_path) {
  return std::filesystem::path(socket_path).replace_extension(kSuffix).string();
}

std::optional<ServerMark> Read(const std::filesystem::path& path) {
  std::ifstream in(path);
  ServerMark mark;
  uint64_t mount = 0;
  if (!(in >> mark.pid >> mark.started >> mount) || mark.pid <= 0) {
    return std::nullopt;
  }
  mark.mount = mount;
  mark.socket_path = std::filesystem::path(path).replace_extension(kSocketSuffix).string();
  return mark;
}

}  // namespace

Status WriteServerMark(const std::string& socket_path, dev_t mount) {
  const std::string path = MarkPath(socket_path);
  const std::string unfinished = path + "." + std::to_string(::getpid());
  std::ofstream out(unfinished, std::ios::trunc);
  out << ::getpid() << ' ' << ProcessStarted(::getpid()) << ' ' << uint64_t{mount} << '\n';
  out.close();
  std::error_code error;
  if (out) {
    std::filesystem::rename(unfinished, path, error);
  }
  if (!out || error) {
    ::unlink(unfinished.c_str());
    return Fail(ErrorCode::kIo, "cannot write " + path);
  }
  return OkStatus();
}

void RemoveServerMark(const std::string& socket_path) {
  ::unlink(MarkPath(socket_path).c_str());
}

std::optional<ServerMark> ReadServerMark(const std::string& socket_path) {
  return Read(MarkPath(socket_path));
}

std::vector<ServerMark> ReadServerMarks(const std::string& directory) {
  std::vector<ServerMark> marks;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().extension() == kSuffix) {
      if (const auto mark = Read(entry->path())) {
        marks.push_back(*mark);
      }
    }
  }
  return marks;
}

ServerLife LifeOf(const ServerMark& mark) {
  const char state = ProcessState(mark.pid);
  if (state == 0 || ProcessStarted(mark.pid) != mark.started) {
    return ServerLife::kGone;
  }
  return ProcessActs(mark.pid) ? ServerLife::kRuns : ServerLife::kDying;
}

}  // namespace eplog
