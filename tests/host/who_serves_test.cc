// What is believed of a process that says which array it serves, and what is said where it is not.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/read_text.h"
#include "control/server_mark.h"
#include "host/ask_or_open.h"
#include "host/server.h"
#include "host/session.h"
#include "report/plan_json.h"
#include "tests/support/no_processes.h"
#include "tests/support/temp_dir.h"

namespace eplog {
namespace {

constexpr char kUuid[] = "0f0f0f0f-2222-4222-8333-444444444444";

// Answers every connection: to who it is with `told`, to all else with what was asked.
class Serving {
 public:
  explicit Serving(Json told) : told_(std::move(told)) {
    const std::string path = ControlSocketPath(kUuid);
    EXPECT_TRUE(PrepareControlDirectory(path).ok());
    ::unlink(path.c_str());
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
    EXPECT_EQ(::bind(listener_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(::listen(listener_, 16), 0);
    accepting_ = std::thread([this] { Accept(); });
  }
  ~Serving() {
    ::unlink(ControlSocketPath(kUuid).c_str());
    ::shutdown(listener_, SHUT_RDWR);
    accepting_.join();
    for (const int fd : connections_) {
      ::shutdown(fd, SHUT_RDWR);
    }
    for (std::thread& thread : threads_) {
      thread.join();
    }
    for (const int fd : connections_) {
      ::close(fd);
    }
    ::close(listener_);
  }
  Serving(const Serving&) = delete;
  Serving& operator=(const Serving&) = delete;

  // How many questions are sent away from now on.
  void SendAway(int questions) { away_ = questions; }
  [[nodiscard]] int away() const { return away_; }
  // On how many who ask it hangs up from now on.
  void HangUp(int questions) { hung_up_ = questions; }

 private:
  void Accept() {
    for (int fd = ::accept(listener_, nullptr, nullptr); fd >= 0;
         fd = ::accept(listener_, nullptr, nullptr)) {
      connections_.push_back(fd);
      threads_.emplace_back([this, fd] { Answer(fd); });
    }
  }
  void Answer(int fd) {
    std::string line;
    for (char c = 0; ::read(fd, &c, 1) == 1;) {
      if (c != '\n') {
        line += c;
        continue;
      }
      if (hung_up_ > 0) {
        --hung_up_;
        ::shutdown(fd, SHUT_RDWR);
        return;
      }
      const Json request = Json::parse(line);
      line.clear();
      const bool sent_away = away_ > 0;
      away_ -= sent_away ? 1 : 0;
      const std::string verb = request.value("verb", "");
      Json answer = {{"ok", true}, {"result", verb == "serving" ? told_ : request}};
      if (verb == "refuse") {
        answer = {{"ok", false}, {"error", "no volume is called v"}, {"code", "not found"}};
      }
      if (sent_away) {
        answer = {{"ok", false}, {"error", "too many"}, {"code", "busy"}, {"again", true}};
      }
      const std::string text = answer.dump() + "\n";
      EXPECT_EQ(::write(fd, text.data(), text.size()), static_cast<ssize_t>(text.size()));
    }
  }

  const Json told_;
  const int listener_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  std::atomic<int> away_ = 0;
  std::atomic<int> hung_up_ = 0;
  std::vector<int> connections_;
  std::vector<std::thread> threads_;
  std::thread accepting_;
};

class WhoServes : public testing::Test {
 protected:
  WhoServes() {
    EXPECT_TRUE(PrepareControlDirectory(ControlSocketPath(kUuid)).ok());
    ::unlink(ControlSocketPath(kUuid).c_str());
    file_.file = dir_.path() / "array.toml";
    file_.uuid = kUuid;
    file_.name = "demo";
    for (const char* name : {"ssd0", "ssd1", "log0"}) {
      file_.members.push_back({name, name});
      dir_.Write(name, "x");
    }
  }
  ~WhoServes() override { RemoveServerMark(ControlSocketPath(kUuid)); }

  [[nodiscard]] HeldMember Held(const std::string& name) const {
    struct stat info {};
    EXPECT_EQ(::stat((dir_.path() / name).c_str(), &info), 0);
    return {name, dir_.path() / name, {false, info.st_dev, info.st_ino}};
  }
  [[nodiscard]] Json Told(const std::vector<HeldMember>& held,
                          const std::vector<HeldMember>& before = {}) const {
    return DescribeServing(file_, "/mnt/a b", held, before);
  }
  [[nodiscard]] Json ToldOfAll() const { return Told({Held("ssd0"), Held("ssd1"), Held("log0")}); }
  // The same array.toml elsewhere, where these are.
  [[nodiscard]] ArrayFile CopyAt(const TempDir& other,
                                 const std::vector<std::string>& names) const {
    for (const std::string& name : names) {
      other.Write(name, "y");
    }
    ArrayFile copy = file_;
    copy.file = other.path() / "array.toml";
    return copy;
  }
  static std::string Said(const Result<ServerLink>& link) {
    return link.ok() ? "ok"
                     : std::string(ErrorCodeName(link.error().code)) + ": " + link.error().message;
  }
  static std::string Pid() { return std::to_string(::getpid()); }

  TempDir dir_;
  ArrayFile file_;
};

TEST_F(WhoServes, NobodyUnlessSomebodyAnswers) {
  EXPECT_EQ(Said(ConnectServer(file_)), "not found: nobody serves this array");
  EXPECT_EQ(*FindServer(file_), std::nullopt);
  EXPECT_EQ(WhoAnswers(file_).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(AskServer(file_, {{"verb", "v"}}).error().code, ErrorCode::kNotFound);
}

TEST_F(WhoServes, TellsOfItself) {
  Json told = Told({Held("ssd0"), Held("log0")}, {Held("ssd1")});
  told["pid"] = 1;  // by whatever number it knows itself
  told["mount_device"] = 4711;
  const Serving serving(told);
  const auto link = ConnectServer(file_);
  ASSERT_EQ(Said(link), "ok");
  const Server& server = link->server;
  EXPECT_EQ(server.pid, ::getpid()) << "as the kernel says";
  EXPECT_EQ(server.directory, "/mnt/a b");
  EXPECT_EQ(server.mount, 4711U);
  EXPECT_EQ(server.file, file_.file);
  EXPECT_EQ(server.name, "demo");
  ASSERT_EQ(server.held.size(), 2U);
  EXPECT_EQ(server.held[1].name, "log0");
  EXPECT_EQ(server.held[1].path, (dir_.path() / "log0").string());
  EXPECT_EQ(server.held[1].identity, Held("log0").identity);
  ASSERT_TRUE(FindServer(file_)->has_value());
  EXPECT_EQ((*FindServer(file_))->name, "demo");
}

// The whole of what others read: scripts, and versions before and after.
TEST_F(WhoServes, SaysSoInOneDocument) {
  file_.spares = {"s", "/dev/sdx"};
  const Json gone = IdentityToJson({true, 5, 0});
  const std::vector<HeldMember> before = {{"ssd1", "/old", {true, 4, 0}},
                                          {"ssd1", "/new", {true, 5, 0}}};
  HeldMember moved = Held("ssd0");
  moved.path = "/elsewhere";
  const HeldMember unlisted = {"ssd9", "/nine", {true, 9, 0}};
  const std::string at = dir_.path();
  const Json want = {
      {"pid", ::getpid()},
      {"mounted_on", "/mnt/a b"},
      {"file", at + "/array.toml"},
      {"uuid", kUuid},
      {"name", "demo"},
      {"members",
       {{{"name", "ssd0"},
         {"path", "/elsewhere"},
         {"identity", IdentityToJson(moved.identity)},
         {"held", true}},
        {{"name", "ssd1"}, {"path", at + "/ssd1"}, {"identity", gone}},
        {{"name", "log0"}, {"path", at + "/log0"}},
        {{"name", "ssd9"},
         {"path", "/nine"},
         {"identity", IdentityToJson({true, 9, 0})},
         {"held", true}}}},
      {"before", {{{"identity", IdentityToJson({true, 4, 0})}}, {{"identity", gone}}}},
      {"spares", {at + "/s", "/dev/sdx"}}};
  EXPECT_EQ(Told({moved, unlisted}, before).dump(), want.dump());
}

TEST_F(WhoServes, IsBelievedWhereItDoesNotSay) {
  for (const Json& told : {Json(), Json("text"), Json::object(), Json{{"file", ""}}}) {
    const Serving serving(told);
    const auto link = ConnectServer(file_);
    ASSERT_EQ(Said(link), "ok") << told.dump();
    EXPECT_EQ(link->server.pid, ::getpid());
    EXPECT_TRUE(link->server.held.empty());
  }
}

TEST_F(WhoServes, NonsenseIsSaidToBe) {
  for (const Json& told : {Json{{"pid", "x"}}, Json{{"mount_device", "x"}}}) {
    const Serving serving(told);
    const auto link = ConnectServer(file_);
    ASSERT_FALSE(link.ok()) << told.dump();
    EXPECT_EQ(link.error().code, ErrorCode::kCorrupt);
    EXPECT_EQ(link.error().message.rfind("the serving process says nonsense of itself: ", 0), 0U)
        << link.error().message;
  }
}

// ---- copies

TEST_F(WhoServes, ACopyIsNotServed) {
  const Serving serving(ToldOfAll());
  const TempDir other;
  const ArrayFile copy = CopyAt(other, {"ssd0", "ssd1", "log0"});
  EXPECT_EQ(Said(ConnectServer(copy)), "not found: nobody serves " + other.path().string() +
                                           ": process " + Pid() + " serves " + file_.file.string() +
                                           ", which has the same UUID; one is a copy of the other");
  EXPECT_EQ(*FindServer(copy), std::nullopt);
  const auto answers = WhoAnswers(copy);
  ASSERT_TRUE(answers.ok());
  EXPECT_TRUE(answers->of_copy);
  EXPECT_EQ(answers->server.file, file_.file);
  EXPECT_FALSE(WhoAnswers(file_)->of_copy);
}

// As many say so as do not.
TEST_F(WhoServes, HalfOfTheDevicesAreNoProof) {
  const Serving serving(Told({Held("ssd0"), Held("ssd1"), Held("log0")}));
  const TempDir other;
  ArrayFile copy = CopyAt(other, {"ssd1", "log0"});
  copy.members = {{"ssd0", Held("ssd0").path}, {"ssd1", "ssd1"}};
  EXPECT_EQ(Said(ConnectServer(copy)),
            "busy: process " + Pid() + " serves " + file_.file.string() + ", to which ssd0 of " +
                other.path().string() +
                " belongs, and not ssd1: give each copy devices of its own in its array.toml, or "
                "first eplog umount '/mnt/a b'");
  copy.members = {{"ssd0", Held("ssd0").path}, {"ssd1", "ssd1"}, {"log0", "log0"}};
  EXPECT_NE(Said(ConnectServer(copy)).find(" belongs, and not ssd1, log0: "), std::string::npos);
  copy.members = {{"ssd0", Held("ssd0").path}, {"ssd1", Held("ssd1").path}, {"log0", "log0"}};
  EXPECT_EQ(Said(ConnectServer(copy)), "ok") << "most of them";
}

// Where no device tells anything, the path of array.toml does.
TEST_F(WhoServes, ThePathCountsWhereNothingElseTells) {
  const Serving serving(ToldOfAll());
  const TempDir other;
  const ArrayFile copy = CopyAt(other, {});
  for (const MemberPath& member : file_.members) {
    std::filesystem::remove(file_.Locate(member));
  }
  EXPECT_EQ(Said(ConnectServer(file_)), "ok");
  EXPECT_EQ(Said(ConnectServer(copy)).rfind("not found: nobody serves", 0), 0U);
}

// Who serves may be somebody: that nobody does is not known then, and nothing is opened.
TEST_F(WhoServes, WhereNobodyCanLookItIsSaidSo) {
  const Serving serving(ToldOfAll());
  const auto says_so = [](const auto& answer) {
    ASSERT_FALSE(answer.ok());
    EXPECT_EQ(answer.error().code, ErrorCode::kIo);
    EXPECT_EQ(answer.error().message, "cannot look at the members: no process can be had");
  };
  WithoutProcesses([&] {
    says_so(FindServer(file_));
    says_so(WhoAnswers(file_));
    says_so(
        NobodyServes({.code = ErrorCode::kNotFound, .message = "no volume is called v"}, file_));
    says_so(AskOrOpen("test", file_, {{"verb", "v"}}, [](Session&) -> Result<Json> {
      ADD_FAILURE() << "it was opened";
      return Json();
    }));
  });
}

TEST_F(WhoServes, NotFoundIsNobodyOnlyWhereNobodyAnswers) {
  const Error not_found{.code = ErrorCode::kNotFound, .message = "no volume is called v"};
  EXPECT_TRUE(*NobodyServes(not_found, file_));
  EXPECT_FALSE(*NobodyServes({.code = ErrorCode::kBusy, .message = "x"}, file_));
  EXPECT_EQ(*FindServer(file_), std::nullopt);
  const Serving serving(ToldOfAll());
  EXPECT_FALSE(*NobodyServes(not_found, file_));
  EXPECT_EQ((*FindServer(file_))->name, "demo");
}

// ---- who serves what is mounted

TEST_F(WhoServes, AMountIsServedByWhoSaysSo) {
  const std::string socket = ControlSocketPath(kUuid);
  MountEntry mount;
  mount.device = 4711;
  mount.directory = "/mnt/x";
  const std::string nobody = "not found: nobody serves /mnt/x";
  EXPECT_EQ(Said(ConnectServerOf(mount)), nobody);
  ASSERT_TRUE(WriteServerMark(socket, 4711).ok());
  EXPECT_EQ(Said(ConnectServerOf(mount)), nobody) << "a mark without anybody";
  Json told = ToldOfAll();
  {
    const Serving serving(told);
    EXPECT_EQ(Said(ConnectServerOf(mount)), nobody) << "it does not say so itself";
  }
  told["mount_device"] = 4711;
  {
    const Serving serving(told);
    const auto link = ConnectServerOf(mount);
    ASSERT_EQ(Said(link), "ok");
    EXPECT_EQ(link->server.name, "demo");
    ASSERT_TRUE(WriteServerMark(socket, 4712).ok());
    EXPECT_EQ(Said(ConnectServerOf(mount)), nobody) << "the mark is of another mount";
  }
  ASSERT_TRUE(WriteServerMark(socket, 4711).ok());
  const Serving mad(Json{{"pid", "x"}});
  EXPECT_EQ(Said(ConnectServerOf(mount)).rfind("corrupt: ", 0), 0U) << "why it is not known";
}

// ---- questions

TEST_F(WhoServes, AnswersWhatItIsAsked) {
  const Serving serving(ToldOfAll());
  const Json request = {{"verb", "v"}, {"n", 7}};
  const auto answer = AskServer(file_, request);
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(*answer, request);
}

TEST_F(WhoServes, WhoIsSentAwayAsksAgain) {
  Serving serving(ToldOfAll());
  for (const int questions : {1, 2}) {
    serving.SendAway(questions);
    EXPECT_TRUE(AskServer(file_, {{"verb", "v"}}).ok());
    EXPECT_EQ(serving.away(), 0);
  }
}

// As one that ends does: whether somebody serves the array is known after that.
TEST_F(WhoServes, WhoIsHungUpOnAsksWhoServesAgain) {
  Serving serving(ToldOfAll());
  serving.HangUp(2);
  const auto server = FindServer(file_);
  ASSERT_TRUE(server.ok());
  EXPECT_TRUE(server->has_value());
}

// What the process itself cannot see is added to what it says.
TEST_F(WhoServes, RemovedFilesAreToldOnlyWhereTheyAreLookedFor) {
  const int open = ::open((dir_.path() / "ssd1").c_str(), O_RDONLY | O_CLOEXEC);
  const Serving serving(ToldOfAll());
  EXPECT_FALSE(AskServer(file_, {{"verb", "status"}})->contains("files_removed"));
  std::filesystem::remove(dir_.path() / "ssd1");
  const auto removed = [&](const std::string& verb) {
    return AskServer(file_, {{"verb", verb}})->value("files_removed", Json()).dump();
  };
  EXPECT_EQ(removed("status"), R"(["ssd1"])");
  EXPECT_EQ(removed("scrub"), R"(["ssd1"])");
  EXPECT_EQ(removed("other"), "null");
  ::close(open);
}

// `not found` may be what was asked about.
TEST_F(WhoServes, WhatIsServedIsNotOpened) {
  const Serving serving(ToldOfAll());
  const auto never = [](Session&) -> Result<Json> {
    ADD_FAILURE() << "it was opened";
    return Json();
  };
  const Json request = {{"verb", "v"}, {"path", "/x"}};
  EXPECT_EQ(*AskOrOpen("test", file_, request, never), request);
  EXPECT_EQ(*AskOrLook("test", file_, request, never), request);
  const Json refuse = {{"verb", "refuse"}};
  EXPECT_EQ(AskOrOpen("test", file_, refuse, never).error().message, "no volume is called v");
  EXPECT_EQ(AskOrLook("test", file_, refuse, never).error().message, "no volume is called v");
  const Json no_text = {{"verb", "v"}, {"path", "/a\xFF"}};
  for (const auto& untold :
       {AskOrOpen("test", file_, no_text, never), AskOrLook("test", file_, no_text, never)}) {
    ASSERT_FALSE(untold.ok());
    EXPECT_EQ(untold.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(untold.error().message,
              "/a\xFF is not UTF-8, and the process that serves 'demo' cannot be told such a path: "
              "give a link to it, or unmount the array first");
  }
}

// ---- an array.toml that is gone

TEST_F(WhoServes, WhatStoodInArrayTomlIsToldByWhoServes) {
  file_.spares = {"s", "/dev/sdx"};
  EXPECT_EQ(FindArray("test", dir_.path()).error().code, ErrorCode::kNotFound);
  const Serving serving(ToldOfAll());
  testing::internal::CaptureStderr();
  const auto found = FindArray("test", dir_.path());
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "eplog test: warning: " + file_.file.string() +
                                                        " is gone; going by process " + Pid() +
                                                        ", which serves the array\n");
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->file, file_.file);
  EXPECT_EQ(found->uuid, file_.uuid);
  EXPECT_EQ(found->name, file_.name);
  EXPECT_EQ(found->members, file_.members);
  EXPECT_EQ(found->spares, file_.spares);
  const TempDir other;
  EXPECT_EQ(FindArray("test", other.path()).error().code, ErrorCode::kNotFound) << "another's";
}

TEST_F(WhoServes, AnArrayTomlThatIsGarbledIsSaidToBe) {
  const Serving serving(ToldOfAll());
  dir_.Write("array.toml", "garbled [[[");
  testing::internal::CaptureStderr();
  const auto found = FindArray("test", dir_.path());
  const std::string warning = testing::internal::GetCapturedStderr();
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->members, file_.members);
  EXPECT_EQ(warning.rfind("eplog test: warning: " + file_.file.string() + ":1: ", 0), 0U)
      << warning;
  // One that can be read is what counts.
  ArrayFile other = file_;
  other.name = "as written";
  dir_.Write("array.toml", FormatArrayFile(other));
  EXPECT_EQ(FindArray("test", dir_.path())->name, "as written");
}

TEST_F(WhoServes, WhoTellsNoMembersIsNoHelp) {
  Json told = ToldOfAll();
  told["members"] = Json::array();
  const Serving serving(told);
  EXPECT_EQ(FindArray("test", dir_.path()).error().code, ErrorCode::kNotFound);
}

TEST_F(WhoServes, AChangeIsTriedBeforeItIsMade) {
  const auto add = [](ArrayFile& now) { now.AddSpare("/dev/sdx"); };
  EXPECT_TRUE(CheckChangeable(file_, add).ok()) << "it would be written anew";
  EXPECT_FALSE(std::filesystem::exists(file_.file));
  ArrayFile stepped_in = file_;
  stepped_in.spares = {"ssd1"};
  EXPECT_TRUE(CheckChangeable(stepped_in, add).ok());
  dir_.Write("array.toml", FormatArrayFile(file_));
  EXPECT_TRUE(CheckChangeable(file_, add).ok());
  EXPECT_EQ(ReadText(file_.file), FormatArrayFile(file_));
  const Status unreadable = CheckChangeable(file_, [](ArrayFile& now) { now.spares = {"./ssd0"}; });
  ASSERT_FALSE(unreadable.ok());
  EXPECT_EQ(unreadable.error().code, ErrorCode::kInvalidArgument);
  dir_.Write("array.toml", "garbled [[[");
  const Status garbled = CheckChangeable(file_, add);
  ASSERT_FALSE(garbled.ok());
  EXPECT_EQ(garbled.error().code, ErrorCode::kCorrupt);
  EXPECT_TRUE(
      garbled.error().message.ends_with("; mend it, or move it away: then it is written anew"))
      << garbled.error().message;
}

}  // namespace
}  // namespace eplog
