// Who serves an array. And a process that served one and was killed while a thread of it waits in
// the kernel, for a lock that somebody holds who waits for its answer.
#include "host/server.h"

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
#include <utility>
#include <vector>

#include "base/file_descriptor.h"
#include "control/control.h"
#include "control/peer.h"
#include "control/server_mark.h"
#include "host/fuse_mount.h"
#include "host/mount_table.h"
#include "host/removed.h"
#include "tests/support/temp_dir.h"

namespace eplog {
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

constexpr int kQueue = 4;

[[noreturn]] void ServeForEver(const std::string& uuid, const std::string& array,
                               const std::string& directory) {
  const std::string path = ControlSocketPath(uuid);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
  const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      ::listen(socket, kQueue) != 0) {
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
  if (g_session == nullptr || fuse_session_mount(g_session, directory.c_str()) != 0 ||
      !WriteServerMark(path, MountedDevice(directory)).ok()) {
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

// As that process itself would write it.
void WriteMarkOf(const ServerMark& server, dev_t mount) {
  std::ofstream(std::filesystem::path(server.socket_path).replace_extension(".server"))
      << server.pid << ' ' << server.started << ' ' << uint64_t{mount} << '\n';
}

// An array's directory with its array.toml, and one to mount on.
struct Place {
  explicit Place(std::string with_uuid) : uuid(std::move(with_uuid)), mount(dir.path() / "mnt") {
    std::filesystem::create_directory(mount);
    Name(uuid);
    EXPECT_TRUE(PrepareControlDirectory(socket()).ok());
    ::unlink(socket().c_str());
    RemoveServerMark(socket());
  }
  ~Place() {
    ::umount2(mount.c_str(), MNT_FORCE);
    ::umount2(mount.c_str(), MNT_DETACH);
    ::unlink(socket().c_str());
    RemoveServerMark(socket());
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
  void Name(const std::string& in_array_toml) const {
    dir.Write("array.toml", fmt::format("uuid = \"{}\"\nname = \"a\"\n[[member]]\nname = "
                                        "\"ssd0\"\npath = \"ssd0\"\n",
                                        in_array_toml));
  }
  [[nodiscard]] std::string socket() const { return ControlSocketPath(uuid); }
  [[nodiscard]] ServerLife life() const {
    const auto mark = ReadServerMark(socket());
    return mark ? LifeOf(*mark) : ServerLife::kGone;
  }
  // Serves it, until it is killed.
  [[nodiscard]] pid_t Serve() const {
    const pid_t server = Fork([&] { ServeForEver(uuid, dir.path(), mount); });
    EXPECT_TRUE(Until([&] { return life() == ServerLife::kRuns; }));
    return server;
  }
  [[nodiscard]] pid_t CreateFile() const {
    return Fork([&] {
      const int fd = ::open((mount + "/x").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
      ::_exit(fd < 0 ? 1 : 0);
    });
  }

  TempDir dir;
  std::string uuid;
  std::string mount;
};

std::string WhyNotHere() {
  return ::geteuid() != 0 || ::access("/dev/fuse", W_OK) != 0 ? "needs root and /dev/fuse" : "";
}

// Served, killed while somebody waits for it, and not ended.
class Dying {
 public:
  Dying() : server_(place_.Serve()), client_(place_.CreateFile()) {
    EXPECT_TRUE(Until([&] { return AThreadHangs(server_); }));
    EXPECT_EQ(::kill(server_, SIGKILL), 0);
    EXPECT_TRUE(Until([&] { return ProcessState(server_) == 'Z'; }));
    // Its first thread is gone, and the other is not: nobody can wait for its end.
    EXPECT_EQ(::waitpid(server_, nullptr, WNOHANG), 0);
  }
  ~Dying() {
    if (!ended_) {
      ::umount2(place_.mount.c_str(), MNT_FORCE);
      EXPECT_TRUE(Ends());
    }
  }
  Dying(const Dying&) = delete;
  Dying& operator=(const Dying&) = delete;

  [[nodiscard]] bool Ends() {
    ended_ = Until([&] { return ::waitpid(server_, nullptr, WNOHANG) == server_; });
    int status = 0;
    EXPECT_TRUE(Until([&] { return ::waitpid(client_, &status, WNOHANG) == client_; }));
    EXPECT_EQ(WEXITSTATUS(status), 1) << "who waited for it gets an error";
    return ended_;
  }
  [[nodiscard]] const Place& place() const { return place_; }

 private:
  Place place_{kUuid};
  pid_t server_;
  pid_t client_;
  bool ended_ = false;
};

TEST(DyingServer, IsCutOffFromItsMountAndEnds) {
  if (!WhyNotHere().empty()) {
    GTEST_SKIP() << WhyNotHere();
  }
  Dying dying;
  EXPECT_EQ(dying.place().life(), ServerLife::kDying);
  EXPECT_EQ(ControlRequest(dying.place().socket(), {{"verb", "status"}}).error().code,
            ErrorCode::kNotFound);
  CutMountsOfTheDying("test");
  EXPECT_TRUE(dying.Ends());
  EXPECT_EQ(dying.place().life(), ServerLife::kGone);
  EXPECT_TRUE(FindMountOn(dying.place().mount).has_value()) << "umount takes it away, and says so";
  EXPECT_TRUE(MountIsDead(dying.place().mount));
}

// Each that connects stays in its queue.
TEST(DyingServer, IsCutOffWhenItsQueueIsFull) {
  if (!WhyNotHere().empty()) {
    GTEST_SKIP() << WhyNotHere();
  }
  Dying dying;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, dying.place().socket().c_str(), sizeof(address.sun_path) - 1);
  int error = 0;
  for (int i = 0; i < 10 * kQueue && error == 0; ++i) {
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    error = ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0
                ? 0
                : errno;
    ::close(fd);
  }
  ASSERT_EQ(error, EAGAIN);
  EXPECT_EQ(ControlRequest(dying.place().socket(), {{"verb", "status"}}).error().code,
            ErrorCode::kNotFound);
  CutMountsOfTheDying("test");
  EXPECT_TRUE(dying.Ends());
}

// Another array was put where it was mounted from, and it where another was mounted from.
TEST(DyingServer, IsCutOffFromItsOwnMountAlone) {
  if (!WhyNotHere().empty()) {
    GTEST_SKIP() << WhyNotHere();
  }
  Dying dying;
  const Place other("0f0f0f0f-1111-4222-8333-555555555555");
  const pid_t server = other.Serve();
  other.Name(kUuid);
  dying.place().Name(other.uuid);
  CutMountsOfTheDying("test");
  EXPECT_TRUE(dying.Ends());
  struct stat info {};
  EXPECT_EQ(::stat(other.mount.c_str(), &info), 0) << std::strerror(errno);
  EXPECT_FALSE(MountIsDead(other.mount));
  ::kill(server, SIGKILL);
  EXPECT_EQ(::waitpid(server, nullptr, 0), server);
}

// One that mounts says so a moment later, and may have been given the number of a mount that is
// gone, whose process still dies.
TEST(DyingServer, AMountThatGotItsNumberAndSaysSoALittleLaterIsNotCutOff) {
  if (!WhyNotHere().empty()) {
    GTEST_SKIP() << WhyNotHere();
  }
  Dying dying;
  const Place other("0f0f0f0f-1111-4222-8333-555555555555");
  const pid_t server = other.Serve();
  const ServerMark of_dying = *ReadServerMark(dying.place().socket());
  RemoveServerMark(other.socket());
  WriteMarkOf(of_dying, MountedDevice(other.mount));
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    WriteMarkOf({.pid = server,
                 .started = ProcessStarted(server),
                 .mount = 0,
                 .socket_path = other.socket()},
                MountedDevice(other.mount));
  });
  CutMountsOfTheDying("test");
  later.join();
  EXPECT_EQ(other.life(), ServerLife::kRuns);
  EXPECT_FALSE(MountIsDead(other.mount));
  WriteMarkOf(of_dying, of_dying.mount);
  CutMountsOfTheDying("test");
  EXPECT_TRUE(dying.Ends());
  EXPECT_FALSE(MountIsDead(other.mount));
  ::kill(server, SIGKILL);
  EXPECT_EQ(::waitpid(server, nullptr, 0), server);
}

TEST(DyingServer, ItsNumbersAreNoProofOnceTheyWereGivenAway) {
  ServerMark mark;
  mark.pid = ::getpid();
  mark.started = ProcessStarted(::getpid());
  EXPECT_EQ(LifeOf(mark), ServerLife::kRuns);
  ++mark.started;
  EXPECT_EQ(LifeOf(mark), ServerLife::kGone);
}

// ---- which array it is

// Answers one connection, and listens no more once it is there.
class OneConnection {
 public:
  explicit OneConnection(const std::string& path)
      : listener_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
    EXPECT_EQ(::bind(listener_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(::listen(listener_, 1), 0);
  }
  ~OneConnection() { thread_.join(); }
  OneConnection(const OneConnection&) = delete;
  OneConnection& operator=(const OneConnection&) = delete;

  void Answer(const Json& serving) {
    thread_ = std::thread([this, serving] {
      const int fd = ::accept(listener_, nullptr, nullptr);
      ::close(listener_);
      std::string lines;
      for (char c = 0; ::read(fd, &c, 1) == 1;) {
        lines += c;
        if (c == '\n') {
          const bool who = lines.find("serving") != std::string::npos;
          const std::string answer =
              Json({{"ok", true}, {"result", who ? serving : Json("done")}}).dump() + "\n";
          EXPECT_EQ(::write(fd, answer.data(), answer.size()), ssize_t(answer.size()));
          lines.clear();
        }
      }
      ::close(fd);
    });
  }

 private:
  int listener_;
  std::thread thread_;
};

struct Listed {
  Listed() {
    EXPECT_TRUE(PrepareControlDirectory(ControlSocketPath(kUuid)).ok());
    ::unlink(ControlSocketPath(kUuid).c_str());
    file.file = dir.path() / "array.toml";
    file.uuid = kUuid;
    file.name = "a";
    for (const char* name : {"ssd0", "ssd1", "log0"}) {
      file.members.push_back({name, name});
      dir.Write(name, "x");
    }
  }
  ~Listed() { ::unlink(ControlSocketPath(kUuid).c_str()); }
  [[nodiscard]] HeldMember Member(const std::string& name) const {
    struct stat info {};
    EXPECT_EQ(::stat((dir.path() / name).c_str(), &info), 0);
    return {name, dir.path() / name, {false, info.st_dev, info.st_ino}};
  }
  // What a process says that opened this, and holds and held so.
  [[nodiscard]] Result<Json> Ask(const ArrayFile& asked, const std::vector<HeldMember>& held,
                                 const std::vector<HeldMember>& before) const {
    OneConnection server(ControlSocketPath(kUuid));
    server.Answer(DescribeServing(file, "/mnt", held, before));
    auto answer = AskServer(asked, {{"verb", "status"}});
    ::unlink(ControlSocketPath(kUuid).c_str());
    return answer;
  }
  // The same array.toml elsewhere.
  [[nodiscard]] ArrayFile At(const TempDir& other) const {
    ArrayFile copy = file;
    copy.file = other.path() / "array.toml";
    return copy;
  }

  TempDir dir;
  ArrayFile file;
};

TEST(AskServer, SaysWhoItIsAndAnswersOnOneConnection) {
  const Listed array;
  const auto answer =
      array.Ask(array.file, {array.Member("ssd0"), array.Member("ssd1"), array.Member("log0")}, {});
  ASSERT_TRUE(answer.ok()) << answer.error().ToString();
  EXPECT_EQ(*answer, "done");
}

TEST(AskServer, LostDevicesAreStillItsOwn) {
  const Listed array;
  const std::vector<HeldMember> lost = {array.Member("ssd0"), array.Member("ssd1"),
                                        array.Member("log0")};
  EXPECT_TRUE(array.Ask(array.file, {}, lost).ok());
  const TempDir other;
  for (const char* name : {"ssd0", "ssd1", "log0"}) {
    other.Write(name, "x");
  }
  EXPECT_EQ(array.Ask(array.At(other), {}, lost).error().code, ErrorCode::kNotFound);
}

TEST(AskServer, OneSharedDeviceIsNotTheArray) {
  const Listed array;
  const TempDir other;
  other.Write("ssd0", "x");
  other.Write("ssd1", "x");
  std::filesystem::create_hard_link(array.dir.path() / "log0", other.path() / "log0");
  const auto answer = array.Ask(
      array.At(other), {array.Member("ssd0"), array.Member("ssd1"), array.Member("log0")}, {});
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code, ErrorCode::kBusy);
  EXPECT_NE(answer.error().message.find("to which log0 of"), std::string::npos)
      << answer.error().message;
}

// Left out when it was opened, or put there since.
TEST(AskServer, WhatItNeverKnewSaysNothing) {
  const Listed array;
  EXPECT_TRUE(array.Ask(array.file, {array.Member("ssd0")}, {}).ok());
  EXPECT_TRUE(array.Ask(array.file, {}, {}).ok());
}

// array.toml may be made of this one day.
TEST(DescribeServing, TellsOfAHeldMemberThatIsNotListed) {
  const Listed array;
  ArrayFile file = array.file;
  std::erase_if(file.members, [](const MemberPath& member) { return member.name == "ssd1"; });
  const Json told = DescribeServing(file, "/mnt", {array.Member("ssd0"), array.Member("ssd1")}, {});
  std::vector<std::string> names;
  for (const Json& member : told.at("members")) {
    names.push_back(member.at("name").get<std::string>());
  }
  EXPECT_EQ(names, (std::vector<std::string>{"ssd0", "log0", "ssd1"}));
  EXPECT_EQ(told.at("members").back().at("path"), array.Member("ssd1").path);
  EXPECT_TRUE(told.at("members").back().contains("identity"));
}

// ---- members whose files were removed

class Removed : public testing::Test {
 protected:
  // Of this process, which has them open.
  [[nodiscard]] std::vector<std::string> Find() { return Find(told_); }
  [[nodiscard]] std::vector<std::string> Find(const Json& told) {
    OneConnection server(ControlSocketPath(kUuid));
    server.Answer(told);
    auto link = ConnectServer(array_.file);
    EXPECT_TRUE(link.ok());
    ::unlink(ControlSocketPath(kUuid).c_str());
    return link.ok() ? FindRemoved(link->server) : std::vector<std::string>();
  }
  [[nodiscard]] std::filesystem::path At(const char* name) const {
    return array_.dir.path() / name;
  }

  Listed array_;
  const FileDescriptor open_{::open(At("ssd0").c_str(), O_RDONLY | O_CLOEXEC)};
  const FileDescriptor lost_{::open(At("log0").c_str(), O_RDONLY | O_CLOEXEC)};
  const Json told_ = DescribeServing(
      array_.file, "/mnt", {array_.Member("ssd0"), array_.Member("ssd1")}, {array_.Member("log0")});
};

TEST_F(Removed, NobodyWhileAllAreThere) {
  EXPECT_TRUE(Find().empty());
}

TEST_F(Removed, AFileWithoutAName) {
  std::filesystem::remove(At("ssd0"));
  EXPECT_EQ(Find(), std::vector<std::string>{"ssd0"});
}

TEST_F(Removed, AlsoWhereAnotherTookItsName) {
  array_.dir.Write("other", "x");
  std::filesystem::rename(At("other"), At("ssd0"));
  EXPECT_EQ(Find(), std::vector<std::string>{"ssd0"});
}

TEST_F(Removed, NotOneThatWasMoved) {
  std::filesystem::rename(At("ssd0"), At("elsewhere"));
  EXPECT_TRUE(Find().empty());
}

TEST_F(Removed, NotOneThatHasAnotherName) {
  std::filesystem::create_hard_link(At("ssd0"), At("kept"));
  std::filesystem::remove(At("ssd0"));
  EXPECT_TRUE(Find().empty());
}

TEST_F(Removed, NorOneThatIsOnlyCalledSo) {
  std::filesystem::rename(At("ssd0"), At("ssd0 (deleted)"));
  EXPECT_TRUE(Find().empty());
}

TEST_F(Removed, WhatTheArrayHoldsNoMoreIsNotAskedFor) {
  std::filesystem::remove(At("log0"));
  EXPECT_TRUE(Find().empty());
}

TEST_F(Removed, AnOlderProcessDoesNotSay) {
  std::filesystem::remove(At("ssd0"));
  Json told = told_;
  for (Json& member : told["members"]) {
    member.erase("held");
  }
  EXPECT_TRUE(Find(told).empty());
}

}  // namespace
}  // namespace eplog
