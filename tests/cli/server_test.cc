// A process that served an array and was killed while a thread of it waits in the kernel, for a
// lock that somebody holds who waits for its answer.
#include "cli/server.h"

#define FUSE_USE_VERSION 314
#include <fcntl.h>
#include <fmt/format.h>
#include <fuse_lowlevel.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

#include "cli/mount_table.h"
#include "frontend/control.h"
#include "frontend/peer.h"
#include "tests/cli/temp_dir.h"

namespace eplog::cli {
namespace {

constexpr char kUuid[] = "0f0f0f0f-1111-4222-8333-444444444444";

// ---- the server: a directory in which whoever creates a file waits for ever

fuse_session* g_session = nullptr;

void GetAttributes(fuse_req_t request, fuse_ino_t /*inode*/, fuse_file_info* /*info*/) {
  struct stat attributes {};
  attributes.st_ino = FUSE_ROOT_ID;
  attributes.st_mode = S_IFDIR | 0755;
  attributes.st_nlink = 2;
  fuse_reply_attr(request, &attributes, 0);
}

void LookUp(fuse_req_t request, fuse_ino_t /*parent*/, const char* /*name*/) {
  fuse_reply_err(request, ENOENT);
}

// The kernel holds the directory's lock until this is answered, and a name is only taken back under
// that lock.
void Create(fuse_req_t /*request*/, fuse_ino_t /*parent*/, const char* /*name*/, mode_t /*mode*/,
            fuse_file_info* /*info*/) {
  std::thread([] { fuse_lowlevel_notify_inval_entry(g_session, FUSE_ROOT_ID, "x", 1); }).detach();
  while (true) {
    ::pause();
  }
}

[[noreturn]] void ServeForEver(const std::string& array, const std::string& directory) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, ControlSocketPath(kUuid).c_str(), sizeof(address.sun_path) - 1);
  const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      ::listen(socket, 16) != 0) {
    ::_exit(2);
  }
  const std::string options = fmt::format("fsname={},subtype=eplog", array);
  const char* words[] = {"server", "-o", options.c_str()};
  fuse_args arguments = FUSE_ARGS_INIT(3, const_cast<char**>(words));
  fuse_lowlevel_ops calls{};
  calls.getattr = GetAttributes;
  calls.lookup = LookUp;
  calls.create = Create;
  g_session = fuse_session_new(&arguments, &calls, sizeof(calls), nullptr);
  if (g_session == nullptr || fuse_session_mount(g_session, directory.c_str()) != 0) {
    ::_exit(3);
  }
  fuse_session_loop(g_session);
  ::_exit(0);
}

// ---- who looks at it

pid_t Fork(const std::function<void()>& body) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    body();
    ::_exit(0);
  }
  return pid;
}

bool Until(const std::function<bool()>& condition) {
  for (int i = 0; i < 60'000; ++i) {
    if (condition()) {
      return true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

bool AThreadHangs(pid_t process) {
  std::error_code error;
  const std::filesystem::path tasks = fmt::format("/proc/{}/task", process);
  for (std::filesystem::directory_iterator task(tasks, error), end; !error && task != end;
       task.increment(error)) {
    if (ProcessState(std::stoi(task->path().filename())) == 'D') {
      return true;
    }
  }
  return false;
}

TEST(DyingServer, IsCutOffFromItsMountAndEnds) {
  if (::geteuid() != 0 || ::access("/dev/fuse", W_OK) != 0) {
    GTEST_SKIP() << "needs root and /dev/fuse";
  }
  const TempDir dir;
  const std::string directory = dir.path() / "mnt";
  std::filesystem::create_directory(directory);
  dir.Write("array.toml", fmt::format("uuid = \"{}\"\nname = \"a\"\n[[member]]\nname = "
                                      "\"ssd0\"\npath = \"ssd0\"\n",
                                      kUuid));
  ASSERT_TRUE(PrepareControlDirectory(ControlSocketPath(kUuid)).ok());
  ::unlink(ControlSocketPath(kUuid).c_str());
  const pid_t server = Fork([&] { ServeForEver(dir.path(), directory); });
  ASSERT_TRUE(Until([&] { return FindMountOn(directory).has_value(); }));
  EXPECT_EQ(DyingServer(ControlSocketPath(kUuid)), std::nullopt) << "it lives";
  const pid_t client = Fork([&] {
    const int fd = ::open((directory + "/x").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    ::_exit(fd < 0 ? 1 : 0);
  });
  EXPECT_TRUE(Until([&] { return AThreadHangs(server); }));
  ASSERT_EQ(::kill(server, SIGKILL), 0);
  EXPECT_TRUE(Until([&] { return ProcessState(server) == 'Z'; }));
  // Its first thread is gone, and the other is not: nobody can wait for its end.
  EXPECT_EQ(::waitpid(server, nullptr, WNOHANG), 0);
  EXPECT_EQ(DyingServer(ControlSocketPath(kUuid)), server);
  EXPECT_EQ(ControlRequest(ControlSocketPath(kUuid), {{"verb", "status"}}).error().code,
            ErrorCode::kNotFound);

  CutMountsOfTheDying("test");
  const bool ended = Until([&] { return ::waitpid(server, nullptr, WNOHANG) == server; });
  EXPECT_TRUE(ended);
  int status = 0;
  EXPECT_TRUE(Until([&] { return ::waitpid(client, &status, WNOHANG) == client; }));
  EXPECT_EQ(WEXITSTATUS(status), 1) << "who waited for it gets an error";
  if (!ended) {
    ::umount2(directory.c_str(), MNT_FORCE);
  }
  EXPECT_TRUE(MountIsDead(directory));
  ::umount2(directory.c_str(), MNT_DETACH);
  ::unlink(ControlSocketPath(kUuid).c_str());
}

}  // namespace
}  // namespace eplog::cli
