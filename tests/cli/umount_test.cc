// Several who unmount at the same time.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <string>

#include "cli/command_line.h"
#include "control/control.h"
#include "report/json.h"
#include "terminal/console.h"
#include "tests/support/temp_dir.h"

namespace eplog::cli {
namespace {

constexpr char kUuid[] = "0f0f0f0f-1111-4222-8333-666666666666";
// Of no file system: what this process served is not mounted any more.
constexpr uint64_t kMountOfNobody = 987654321;

int Listen(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
  const int listener = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  EXPECT_EQ(::bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_EQ(::listen(listener, 1), 0);
  return listener;
}

std::string ReadLine(int fd) {
  std::string line;
  for (char c = 0; ::read(fd, &c, 1) == 1 && c != '\n';) {
    line += c;
  }
  return line;
}

void WriteLine(int fd, const Json& answer) {
  const std::string line = answer.dump() + "\n";
  if (::write(fd, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
    ::_exit(2);
  }
}

// Sends who asks for the end away, since others ask, too; and ends, as they wished.
[[noreturn]] void EndForAnother(const std::string& path, int listens) {
  const int listener = Listen(path);
  ::close(listens);
  const int fd = ::accept(listener, nullptr, nullptr);
  ReadLine(fd);  // `serving`
  const Json serving = {
      {"name", "a"}, {"mounted_on", "/nowhere"}, {"mount_device", kMountOfNobody}};
  WriteLine(fd, {{"ok", true}, {"result", serving}});
  ReadLine(fd);  // `umount`
  ::unlink(path.c_str());
  WriteLine(fd, {{"ok", false}, {"code", "busy"}, {"error", "too many ask"}, {"again", true}});
  ::close(listener);
  ::close(fd);
  ::usleep(500'000);
  ::_exit(0);
}

TEST(Umount, WhatAnotherUmountEndedMeanwhileIsUnmounted) {
  const TempDir dir;
  dir.Write("array.toml", fmt::format("uuid = \"{}\"\nname = \"a\"\n[[member]]\nname = \"ssd0\"\n"
                                      "path = \"ssd0\"\n",
                                      kUuid));
  const std::string path = ControlSocketPath(kUuid);
  ASSERT_TRUE(PrepareControlDirectory(path).ok());
  ::unlink(path.c_str());
  std::array<int, 2> listens{};
  ASSERT_EQ(::pipe2(listens.data(), O_CLOEXEC), 0);
  const pid_t server = ::fork();
  if (server == 0) {
    ::close(listens[0]);
    EndForAnother(path, listens[1]);
  }
  ::close(listens[1]);
  char byte = 0;
  EXPECT_EQ(::read(listens[0], &byte, 1), 0);
  ::close(listens[0]);

  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(RunCommandLine({"umount", dir.path().string()}), kDone);
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "unmounted 'a' from /nowhere\n");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  int status = -1;
  EXPECT_EQ(::waitpid(server, &status, WNOHANG), server) << "it was waited for";
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace eplog::cli
