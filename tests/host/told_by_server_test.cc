// What a process that serves an array tells of its shape and its devices, and where that counts
// more than what is written in array.toml, or less than what is on the disks.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/file_descriptor.h"
#include "control/control.h"
#include "eplog/status.h"
#include "host/member_name.h"
#include "host/removed.h"
#include "host/server.h"
#include "tests/support/temp_dir.h"

namespace eplog {
namespace {

namespace fs = std::filesystem;

constexpr char kToldUuid[] = "0f0f0f0f-3333-4222-8333-444444444444";

// Answers one connection after the other: to who it is and to `status`.
class Telling {
 public:
  Telling(Json who, Json status) : who_(std::move(who)), status_(std::move(status)) {
    const std::string path = ControlSocketPath(kToldUuid);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
    EXPECT_EQ(::bind(listener_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(::listen(listener_, 16), 0);
    thread_ = std::thread([this] {
      for (int fd = ::accept(listener_, nullptr, nullptr); fd >= 0;
           fd = ::accept(listener_, nullptr, nullptr)) {
        Answer(fd);
        ::close(fd);
      }
    });
  }
  ~Telling() {
    ::unlink(ControlSocketPath(kToldUuid).c_str());
    ::shutdown(listener_, SHUT_RDWR);
    thread_.join();
    ::close(listener_);
  }
  Telling(const Telling&) = delete;
  Telling& operator=(const Telling&) = delete;

 private:
  void Answer(int fd) const {
    std::string line;
    for (char c = 0; ::read(fd, &c, 1) == 1;) {
      line += c;
      if (c == '\n') {
        const bool who = Json::parse(line).value("verb", "") == "serving";
        const std::string text =
            Json({{"ok", true}, {"result", who ? who_ : status_}}).dump() + "\n";
        EXPECT_EQ(::write(fd, text.data(), text.size()), static_cast<ssize_t>(text.size()));
        line.clear();
      }
    }
  }

  const Json who_;
  const Json status_;
  const int listener_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  std::thread thread_;
};

class ToldByServer : public testing::Test {
 protected:
  ToldByServer() {
    EXPECT_TRUE(PrepareControlDirectory(ControlSocketPath(kToldUuid)).ok());
    ::unlink(ControlSocketPath(kToldUuid).c_str());
    file_.file = dir_.path() / kArrayFileName;
    file_.uuid = kToldUuid;
    file_.name = "demo";
  }
  ~ToldByServer() override { ::unlink(ControlSocketPath(kToldUuid).c_str()); }
  void Put(const std::vector<std::string>& members) {
    for (const std::string& name : members) {
      file_.members.push_back({name, name});
      dir_.Write(name, "x");
    }
  }
  [[nodiscard]] HeldMember Held(const std::string& name) const {
    struct stat info {};
    EXPECT_EQ(::stat((dir_.path() / name).c_str(), &info), 0);
    return {name, dir_.path() / name, {false, info.st_dev, info.st_ino}};
  }
  // What was there is elsewhere, and another file has its name.
  void Exchange(const std::string& name) const {
    fs::rename(dir_.path() / name, dir_.path() / (name + ".away"));
    dir_.Write(name, "a copy");
  }
  static std::string Said(const Result<ServerLink>& link) {
    return link.ok() ? "ok"
                     : std::string(ErrorCodeName(link.error().code)) + ": " + link.error().message;
  }
  static Json Devices(const std::vector<DeviceRole>& roles) {
    Json devices = Json::array();
    for (const DeviceRole role : roles) {
      devices.push_back({{"role", DeviceRoleName(role)}});
    }
    return {{"devices", std::move(devices)}};
  }
  // Its number, or why it has none.
  [[nodiscard]] std::string IndexOf(const std::string& device) const {
    const auto index = MemberIndex(file_, device);
    return index.ok() ? std::to_string(*index) : index.error().message;
  }

  TempDir dir_;
  ArrayFile file_;
};

// ---- the shape of an array

TEST_F(ToldByServer, MembersAreNumberedAsWhoServesCountsThem) {
  file_.members = {{"ssd2", "none2"}, {"ssd0", "none0"}};
  EXPECT_EQ(IndexOf("ssd2"), "2") << "the highest that is listed, whichever comes first";
  EXPECT_EQ(IndexOf("log0"), "'demo' has no member log0: there are ssd0 to ssd2");
  constexpr auto kSsd = DeviceRole::kSsd;
  constexpr auto kLog = DeviceRole::kLog;
  const Telling telling(Json(), Devices({kSsd, kSsd, kSsd, kSsd, kLog, kLog, DeviceRole::kSpare}));
  EXPECT_EQ(IndexOf("ssd3"), "3");
  EXPECT_EQ(IndexOf("log1"), "5");
  EXPECT_EQ(IndexOf("ssd4"), "'demo' has no member ssd4: there are ssd0 to log1");
  EXPECT_EQ(IndexOf("log2"), "'demo' has no member log2: there are ssd0 to log1");
  EXPECT_EQ(MemberName(file_, 3), "ssd3");
  EXPECT_EQ(MemberName(file_, 4), "log0");
}

// As an older one, or one that just opens it.
TEST_F(ToldByServer, WhereItTellsNoDevicesTheFileIsAllThereIs) {
  file_.members = {{"ssd0", "none0"}, {"ssd1", "none1"}, {"log0", "none2"}};
  for (const Json& status : {Json::object(), Devices({}), Devices({DeviceRole::kSpare})}) {
    const Telling telling(Json(), status);
    EXPECT_EQ(IndexOf("log0"), "2") << status.dump();
    EXPECT_EQ(IndexOf("ssd2"), "'demo' has no member ssd2: there are ssd0 to log0");
  }
}

// ---- which devices are its own

// What was there may have been moved away, and a copy put in its place.
TEST_F(ToldByServer, APathIsNoProofAgainstItsDevices) {
  Put({"ssd0", "ssd1", "log0"});
  const Telling telling(
      DescribeServing(file_, "/mnt", {Held("ssd0"), Held("ssd1"), Held("log0")}, {}), Json());
  EXPECT_EQ(Said(ConnectServer(file_)), "ok");
  Exchange("ssd1");
  EXPECT_EQ(Said(ConnectServer(file_)), "ok") << "most of them";
  Exchange("log0");
  EXPECT_EQ(Said(ConnectServer(file_)).rfind("busy: process ", 0), 0U)
      << Said(ConnectServer(file_));
  Exchange("ssd0");
  EXPECT_EQ(Said(ConnectServer(file_)).rfind("not found: nobody serves " + dir_.path().string(), 0),
            0U)
      << Said(ConnectServer(file_));
  EXPECT_TRUE(WhoAnswers(file_)->of_copy);
}

TEST_F(ToldByServer, NorIsItWhereAsManySaySoAsDoNot) {
  Put({"ssd0", "ssd1"});
  const Telling telling(DescribeServing(file_, "/mnt", {Held("ssd0"), Held("ssd1")}, {}), Json());
  Exchange("ssd1");
  EXPECT_EQ(Said(ConnectServer(file_)).rfind("busy: process ", 0), 0U)
      << Said(ConnectServer(file_));
  const auto answers = WhoAnswers(file_);
  ASSERT_TRUE(answers.ok());
  EXPECT_TRUE(answers->of_copy) << "it is not this one, whatever it shares with it";
  const auto server = FindServer(file_);
  ASSERT_TRUE(server.ok());
  EXPECT_FALSE(server->has_value());
}

// Neither one that comes before it in the alphabet nor one that comes after it.
TEST_F(ToldByServer, WhereNothingTellsThePathIsThatOfTheFile) {
  Put({"ssd0", "ssd1"});
  const Telling telling(DescribeServing(file_, "/mnt", {Held("ssd0"), Held("ssd1")}, {}), Json());
  fs::remove(dir_.path() / "ssd0");
  fs::remove(dir_.path() / "ssd1");
  EXPECT_EQ(Said(ConnectServer(file_)), "ok");
  for (const char* name : {"a.toml", "z.toml"}) {
    ArrayFile other = file_;
    other.file = dir_.path() / name;
    EXPECT_EQ(Said(ConnectServer(other)).rfind("not found: nobody serves ", 0), 0U) << name;
  }
}

// A device whose place was empty when the array was opened tells nothing, and that only of itself.
TEST_F(ToldByServer, WhatItNeverKnewIsNoExcuseForOthers) {
  Put({"log0", "ssd0", "ssd1"});
  const Telling telling(DescribeServing(file_, "/mnt", {Held("log0"), Held("ssd1")}, {}), Json());
  for (const char* name : {"log0", "ssd1"}) {  // before it in the alphabet, and after it
    ArrayFile file = file_;
    file.members = {{"ssd0", "ssd0"}, {name, name}};
    EXPECT_EQ(Said(ConnectServer(file)), "ok");
    Exchange(name);
    EXPECT_EQ(Said(ConnectServer(file)).rfind("not found: nobody serves ", 0), 0U) << name;
  }
}

// Each look at what hangs stays behind: who asked once is not held up again.
TEST_F(ToldByServer, WhatDidNotAnswerIsNotLookedAtAgain) {
  if (::geteuid() != 0 || ::access("/dev/fuse", W_OK) != 0) {
    GTEST_SKIP() << "needs root and /dev/fuse";
  }
  Put({"ssd0", "ssd1"});
  const std::string hangs = dir_.path() / "hangs";
  fs::create_directory(hangs);
  file_.members.push_back({"log0", "hangs/log0"});
  const HeldMember before = {"log0", hangs + "/log0", {true, 5, 0}};
  const Json who = DescribeServing(file_, "/mnt", {Held("ssd0"), Held("ssd1")}, {before});
  const pid_t child = ::fork();
  if (child == 0) {  // which sees its own mounts
    const FileDescriptor nobody_serves(::open("/dev/fuse", O_RDWR | O_NONBLOCK | O_CLOEXEC));
    const std::string options =
        "fd=" + std::to_string(nobody_serves.get()) + ",rootmode=40000,user_id=0,group_id=0";
    const bool mounted = ::unshare(CLONE_NEWNS) == 0 &&
                         ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                         ::mount("hangs", hangs.c_str(), "fuse.hangs", 0, options.c_str()) == 0;
    if (!mounted) {
      ::_exit(7);
    }
    const Telling telling(who, Json());
    EXPECT_EQ(Said(ConnectServer(file_)), "ok") << "the others are enough";
    EXPECT_EQ(::umount2(hangs.c_str(), MNT_DETACH), 0);
    dir_.Write("hangs/log0", "another's");
    ArrayFile only = file_;
    only.members = {{"log0", "hangs/log0"}};
    EXPECT_EQ(Said(ConnectServer(only)), "ok") << "by its path alone: it tells nothing";
    std::fflush(nullptr);
    ::_exit(HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// ---- where nobody serves it

TEST_F(ToldByServer, OnlyNotFoundMayMeanThatNobodyServesIt) {
  using enum ErrorCode;
  for (const ErrorCode code :
       {kIo, kCorrupt, kDeviceFailed, kTooManyFailures, kNoSpace, kInvalidArgument, kBusy,
        kUnsupported, kExists, kReadOnly, kShutdown}) {
    const auto nobody = NobodyServes({.code = code, .message = "x"}, file_);
    ASSERT_TRUE(nobody.ok()) << ErrorCodeName(code);
    EXPECT_FALSE(*nobody) << ErrorCodeName(code);
  }
  EXPECT_TRUE(*NobodyServes({.code = kNotFound, .message = "x"}, file_));
}

// Who serves one array does not say what another's array.toml held, wherever that lay.
TEST_F(ToldByServer, AnArrayTomlThatIsGoneIsToldByItsOwnServerAlone) {
  Put({"ssd0"});
  const Telling telling(DescribeServing(file_, "/mnt", {Held("ssd0")}, {}), Json());
  for (const char* folder : {"a", "z"}) {
    fs::create_directory(dir_.path() / folder);
    const auto found = FindArray("test", dir_.path() / folder);
    ASSERT_FALSE(found.ok()) << folder;
    EXPECT_EQ(found.error().code, ErrorCode::kNotFound) << folder;
  }
}

// ---- files that were removed

// However often it has them open.
TEST_F(ToldByServer, EachRemovedFileIsNamedOnceAndInOrder) {
  Put({"ssd0", "ssd1", "log0"});
  Server server;
  server.pid = ::getpid();
  server.held = {Held("ssd1"), Held("log0"), Held("ssd0")};
  std::vector<int> open;
  for (const char* name : {"ssd1", "ssd0", "ssd1", "log0", "ssd0", "ssd1"}) {
    open.push_back(::open((dir_.path() / name).c_str(), O_RDONLY | O_CLOEXEC));
    EXPECT_GE(open.back(), 0);
  }
  EXPECT_TRUE(FindRemoved(server).empty());
  fs::remove(dir_.path() / "ssd1");
  fs::remove(dir_.path() / "ssd0");
  EXPECT_EQ(FindRemoved(server), (std::vector<std::string>{"ssd0", "ssd1"}));
  fs::remove(dir_.path() / "log0");
  EXPECT_EQ(FindRemoved(server), (std::vector<std::string>{"log0", "ssd0", "ssd1"}));
  for (const int fd : open) {
    ::close(fd);
  }
}

}  // namespace
}  // namespace eplog
