// What a person is told when an array is opened, and what its owner answers to the process that
// serves it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/read_text.h"
#include "host/ask_or_open.h"
#include "host/device_content.h"
#include "host/file_spare_shelf.h"
#include "host/session.h"
#include "report/plan_json.h"
#include "tests/support/temp_dir.h"

namespace eplog {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kSsdBytes = uint64_t{16} << 20;
constexpr uint64_t kLogBytes = uint64_t{8} << 20;

// A 2+1 array of files.
class Words : public testing::Test {
 protected:
  void SetUp() override {
    if (!IoUringLoop::Create().ok()) {
      GTEST_SKIP() << "needs io_uring";
    }
    file_ = Create(dir_, JournalMode::kFull);
  }
  static ArrayFile Create(const TempDir& dir, JournalMode journal) {
    auto loop = IoUringLoop::Create();
    ArrayFile file;
    file.file = dir.path() / kArrayFileName;
    file.name = "demo";
    std::vector<std::unique_ptr<FileDevice>> devices;
    std::vector<Device*> ssds;
    std::vector<Device*> logs;
    for (const char* member : {"ssd0", "ssd1", "ssd2", "log0"}) {
      const bool log = member[0] == 'l';
      const auto path = dir.WriteSparse(member, log ? kLogBytes : kSsdBytes);
      auto device = FileDevice::Open(**loop, path.string());
      EXPECT_TRUE(device.ok());
      (log ? logs : ssds).push_back(device->get());
      devices.push_back(std::move(*device));
      file.members.push_back({member, member});
    }
    CreateOptions options;
    options.name = "demo";
    options.parity = 1;
    options.journal = journal;
    options.entropy = Entropy();
    EXPECT_TRUE(RunTask(**loop, Array::Create(**loop, ssds, logs, options)).ok());
    devices.clear();
    file.uuid = UuidToString(ReadSuperblock(dir.path() / "ssd0")->array_uuid);
    EXPECT_TRUE(WriteArrayFile(file).ok());
    return file;
  }

  Status TryOpen(const MemberOptions& options = {}) {
    testing::internal::CaptureStderr();
    auto session = Session::Open("test", file_, options);
    warned_ = testing::internal::GetCapturedStderr();
    if (!session.ok()) {
      return Fail(std::move(session).error());
    }
    session_ = std::move(*session);
    return OkStatus();
  }
  void Open(const MemberOptions& options = {}) {
    const Status opened = TryOpen(options);
    ASSERT_TRUE(opened.ok()) << opened.error().message;
  }
  void Close() {
    EXPECT_TRUE(session_->Close().ok());
    session_.reset();
  }
  static MemberOptions ReadOnly() {
    MemberOptions options;
    options.read_only = true;
    return options;
  }
  Result<Device*> OpenDevice(const std::string& path) {
    return session_->Run(session_->OpenDevice(path, *IdentifyDevice(path)));
  }
  template <typename Done>
  bool Becomes(Done done) {
    const auto sleeping = [](EventLoop& loop) -> Task<Status> {
      co_await loop.Sleep(10'000);
      co_return OkStatus();
    };
    for (int i = 0; i < 6000 && !done(); ++i) {
      EXPECT_TRUE(session_->Run(sleeping(session_->loop())).ok());
    }
    return done();
  }
  [[nodiscard]] std::string At(const std::string& name) const { return dir_.path() / name; }
  [[nodiscard]] FileSpareShelf Shelf() {
    auto member = session_->Run(session_->AnyMember());
    EXPECT_TRUE(member.ok());
    return {*session_, file_, std::move(*member)};
  }
  static std::vector<std::string> Names(const std::vector<HeldMember>& members) {
    std::vector<std::string> names;
    for (const HeldMember& member : members) {
      names.push_back(member.name);
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  TempDir dir_;
  ArrayFile file_;
  std::string warned_;
  std::unique_ptr<Session> session_;
};

// ---- what is said when it is opened

TEST_F(Words, AWholeArrayNeedsNone) {
  Open();
  EXPECT_EQ(warned_, "");
  EXPECT_EQ(EventsPath(file_), At("events.jsonl"));
  Close();
}

TEST_F(Words, WhatIsNoGoodMemberIsNamed) {
  const std::string warning = "eplog test: warning: ";
  fs::rename(At("ssd1"), At("away"));
  Open();
  EXPECT_EQ(warned_, warning + "ssd1 is missing: there is no " + At("ssd1") + "\n");
  Close();
  dir_.WriteSparse("ssd1", kSsdBytes);
  Open(ReadOnly());
  EXPECT_EQ(warned_.rfind(warning + "ssd1 (" + At("ssd1") + ") is no member and left out: ", 0), 0U)
      << warned_;
  session_.reset();
  Open();
  {
    FileSpareShelf shelf = Shelf();
    dir_.WriteSparse("s", kSsdBytes);
    ASSERT_TRUE(session_->Run(shelf.Add(At("s"), *IdentifyDevice(At("s")))).ok());
  }
  Close();
  fs::rename(At("s"), At("ssd1"));
  Open(ReadOnly());
  EXPECT_EQ(warned_,
            warning + "ssd1 (" + At("ssd1") + ") is a spare and left out: it is no member\n");
  session_.reset();
  const TempDir elsewhere;
  const ArrayFile other = Create(elsewhere, JournalMode::kFull);
  fs::copy_file(elsewhere.path() / "ssd1", At("ssd1"), fs::copy_options::overwrite_existing);
  Open(ReadOnly());
  EXPECT_EQ(warned_, warning + "ssd1 (" + At("ssd1") +
                         ") is foreign and left out: it belongs to another array ('demo', " +
                         other.uuid + ")\n");
  session_.reset();
}

TEST_F(Words, MembersOfAnotherArrayAreNotOpened) {
  const std::string theirs = file_.uuid;
  file_.uuid[0] = file_.uuid[0] == 'f' ? 'e' : 'f';
  const Status refused = TryOpen(ReadOnly());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(refused.error().message, file_.file.string() + " names the array " + file_.uuid +
                                         ", but its members belong to " + theirs +
                                         "; put the right members or the right uuid into it");
}

TEST_F(Words, WhyItDoesNotOpenIsOneLine) {
  fs::remove(At("ssd0"));
  fs::remove(At("ssd2"));
  const Status refused = TryOpen(ReadOnly());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kTooManyFailures);
  EXPECT_TRUE(refused.error().message.ends_with(" (ssd0 is missing: there is no " + At("ssd0") +
                                                "; ssd2 is missing: there is no " + At("ssd2") +
                                                ")"))
      << refused.error().message;
}

// Not they fail that may not be written to their ends.
TEST_F(Words, LimitsOfThisProcessAreSaidBeforeAnythingIsOpened) {
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit limit{kLogBytes, kLogBytes};
    const bool limited = ::setrlimit(RLIMIT_FSIZE, &limit) == 0;
    const auto refused = Session::Open("test", file_, MemberOptions());
    const bool said = !refused.ok() && refused.error().code == ErrorCode::kUnsupported;
    ::_exit(limited && said && Session::Open("test", file_, ReadOnly()).ok() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// Nor are they lost who cannot be written to: they are to be made writable, or only read.
TEST_F(Words, MembersThatCannotBeWrittenToAreNotGivenUp) {
  if (::geteuid() != 0) {
    GTEST_SKIP() << "only root mounts";
  }
  const std::string ro = At("ro");
  fs::create_directory(ro);
  for (MemberPath& member : file_.members) {
    if (member.name == "ssd0" || member.name == "ssd1") {
      fs::rename(At(member.name), ro + "/" + member.name);
      member.path = "ro/" + member.name;
    }
  }
  ASSERT_TRUE(WriteArrayFile(file_).ok());
  const pid_t child = ::fork();
  if (child == 0) {
    EXPECT_TRUE(::unshare(CLONE_NEWNS) == 0 &&
                ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                ::mount(ro.c_str(), ro.c_str(), nullptr, MS_BIND, nullptr) == 0 &&
                ::mount("none", ro.c_str(), nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY, nullptr) ==
                    0);
    const Status refused = TryOpen();
    EXPECT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kReadOnly);
    const std::string& said = refused.error().message;
    EXPECT_EQ(said.rfind("the members of 'demo' lie on a read-only file system: ", 0), 0U) << said;
    EXPECT_NE(said.find("(ssd0 cannot be written: "), std::string::npos) << said;
    EXPECT_NE(said.find("; ssd1 cannot be written: "), std::string::npos) << said;
    EXPECT_TRUE(TryOpen(ReadOnly()).ok());
    session_.reset();
    std::fflush(nullptr);
    ::_exit(HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// ---- members that have changed places

TEST_F(Words, PlacesAreWrittenDownAndToldOf) {
  const ArrayFile before = file_;
  fs::rename(At("ssd0"), At("x"));
  fs::rename(At("ssd1"), At("ssd0"));
  fs::rename(At("x"), At("ssd1"));
  Open(ReadOnly());
  EXPECT_EQ(warned_, "");
  EXPECT_EQ(session_->file().MemberAt(At("ssd1")), "ssd0");
  session_.reset();
  EXPECT_EQ(LoadArrayFile(file_.file)->members, before.members) << "only looked at";
  Open();
  EXPECT_EQ(warned_, "eplog test: warning: members are not where " + file_.file.string() +
                         " said; it says now where they are\n");
  EXPECT_EQ(LoadArrayFile(file_.file)->MemberAt(At("ssd1")), "ssd0");
  Close();
  Open();
  EXPECT_EQ(warned_, "");
  Close();
  fs::rename(At("ssd0"), At("x"));
  fs::rename(At("ssd1"), At("ssd0"));
  fs::rename(At("x"), At("ssd1"));
  file_ = *LoadArrayFile(file_.file);
  dir_.Write("array.toml", "garbled [[[");
  Open();
  EXPECT_EQ(warned_.rfind("eplog test: warning: members are not where " + file_.file.string() +
                              " says, and it could not be changed: " + file_.file.string() + ":1: ",
                          0),
            0U)
      << warned_;
  EXPECT_EQ(session_->file().MemberAt(At("ssd0")), "ssd0") << "it knows them all the same";
  Close();
}

// ---- the journal of an array on a log device that is gone

class LogGone : public Words {
 protected:
  void SetUp() override {
    Words::SetUp();
    if (IsSkipped()) {
      return;
    }
    file_ = Create(dir_, JournalMode::kLog);
    Open();
    const auto volume = session_->Run(session_->array().CreateVolume("v", 1 << 20));
    ASSERT_TRUE(volume.ok());
    const std::vector<std::byte> bytes(4096, std::byte{7});
    ASSERT_TRUE(session_->Run(session_->array().Write(*volume, 0, bytes)).ok());
    ASSERT_TRUE(session_->Run(session_->array().FlushAll()).ok());
    session_.reset();  // as if it were killed
    fs::rename(At("log0"), At("gone"));
  }
};

TEST_F(LogGone, IsGivenUpOnlyAsTold) {
  const Status refused = TryOpen(ReadOnly());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kTooManyFailures);
  MemberOptions options = ReadOnly();
  for (const std::string& other : {std::string("ssd0x"), At("ssd9"), std::string("log1")}) {
    options.without = {other};
    EXPECT_FALSE(TryOpen(options).ok()) << other;
  }
  for (const std::string& told : {std::string("log0"), At("log0")}) {
    options.without = {told};
    const Status opened = TryOpen(options);
    EXPECT_TRUE(opened.ok()) << told << ": " << opened.error().message;
    session_.reset();
  }
}

// ---- devices that are held

TEST_F(Words, WhatIsHeldAndWasHeldIsTold) {
  Open();
  EXPECT_EQ(Names(session_->Held()), (std::vector<std::string>{"log0", "ssd0", "ssd1", "ssd2"}));
  EXPECT_TRUE(session_->HeldBefore().empty());
  const DeviceIdentity lost = *IdentifyDevice(At("ssd1"));
  ASSERT_TRUE(session_->Run(session_->array().FailDevice(1, "by hand")).ok());
  EXPECT_EQ(Names(session_->Held()), (std::vector<std::string>{"log0", "ssd0", "ssd2"}));
  ASSERT_EQ(Names(session_->HeldBefore()), std::vector<std::string>{"ssd1"});
  EXPECT_EQ(session_->HeldBefore()[0].identity, lost);
  const Json told = session_->Describe("/mnt/x");
  EXPECT_EQ(told["mounted_on"], "/mnt/x");
  EXPECT_EQ(told["members"][1]["name"], "ssd1");
  EXPECT_FALSE(told["members"][1].contains("held"));
  EXPECT_EQ(told["members"][1]["identity"], IdentityToJson(lost));
  EXPECT_EQ(told["before"].size(), 1U);
  // The same device, which comes back, is held again.
  ASSERT_TRUE(Becomes([&] { return session_->open_devices() == 3; }));
  const auto back = OpenDevice(At("ssd1"));
  ASSERT_TRUE(back.ok()) << back.error().message;
  ASSERT_TRUE(session_->Run(session_->array().ReplaceDevice(1, **back)).ok());
  session_->CloseDevice(**back);
  EXPECT_TRUE(session_->HeldBefore().empty());
  EXPECT_EQ(session_->Held().size(), 4U);
  EXPECT_TRUE(session_->Run(session_->AnyMember()).ok());
  Close();
  Open(ReadOnly());
  session_->ForgetScrubMark();  // it has none
  session_.reset();
}

TEST_F(Words, OneThatIsOpenTwiceIsClosedByTheLast) {
  Open();
  dir_.WriteSparse("new", kSsdBytes);
  const auto one = OpenDevice(At("new"));
  const auto two = OpenDevice(At("new"));
  ASSERT_TRUE(one.ok() && two.ok());
  EXPECT_EQ(*one, *two);
  session_->CloseDevice(**one);
  ASSERT_TRUE(Becomes([] { return true; }));
  const auto third = OpenDevice(At("new"));  // which also closes what nobody needs
  ASSERT_TRUE(third.ok());
  EXPECT_EQ(*third, *two) << "somebody needs it";
  session_->CloseDevice(**third);
  session_->CloseDevice(**two);
  EXPECT_TRUE(Becomes([&] { return session_->open_devices() == 4; }));
  const auto member = OpenDevice(At("ssd0"));
  ASSERT_FALSE(member.ok());
  EXPECT_EQ(member.error().message, At("ssd0") + " is part of this array and in use");
  Close();
}

TEST_F(Words, FaultsAreForMembersThatAreOpen) {
  Open();
  EXPECT_TRUE(session_->Inject(At("ssd0"), Injection()).ok());
  EXPECT_TRUE(session_->Inject("", Injection()).ok());
  dir_.WriteSparse("new", kSsdBytes);
  ASSERT_TRUE(OpenDevice(At("new")).ok());
  for (const std::string& path : {At("none"), At("new")}) {
    const Status none = session_->Inject(path, Injection());
    ASSERT_FALSE(none.ok());
    EXPECT_EQ(none.error().code, ErrorCode::kNotFound);
    EXPECT_EQ(none.error().message, path + " is not open: is it missing?");
  }
  Close();
}

// ---- events

TEST_F(Words, EventsAreLoggedAndHeardAndSomeAreWarnings) {
  Open();
  std::vector<EventKind> heard;
  session_->Listen([&](const ArrayEvent& event) { heard.push_back(event.kind); });
  ASSERT_TRUE(session_->Run(session_->array().FailDevice(2, "by hand")).ok());
  EXPECT_NE(std::find(heard.begin(), heard.end(), EventKind::kDeviceFailed), heard.end());
  session_->Listen({});
  ArrayEvent event;
  event.kind = EventKind::kScrubFinished;
  event.text = "told by its owner";
  session_->Tell(event);
  Close();
  const std::string log = ReadText(EventsPath(file_));
  EXPECT_NE(log.find("\"device_failed\""), std::string::npos) << log;
  EXPECT_NE(log.find("told by its owner"), std::string::npos) << log;
  Open(ReadOnly());
  session_->Tell(event);
  session_.reset();
  EXPECT_EQ(ReadText(EventsPath(file_)), log) << "only looked at";
}

// ---- an array that nobody serves

TEST_F(Words, WhatNobodyServesIsOpenedHere) {
  const Json request = {{"verb", "v"}};
  const auto made = AskOrOpen("test", file_, request, [](Session& session) -> Result<Json> {
    const auto volume = session.Run(session.array().CreateVolume("v", 4096));
    return volume.ok() ? Result<Json>(Json("made")) : Fail(volume.error());
  });
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(*made, "made");
  const auto look = [](Session& session) -> Result<Json> {
    EXPECT_FALSE(session.Run(session.array().CreateVolume("w", 4096)).ok()) << "read-only";
    return Json(session.array().Volumes().size());
  };
  const auto seen = AskOrLook("test", file_, request, look);
  ASSERT_TRUE(seen.ok());
  EXPECT_EQ(*seen, 1);
  const auto failing = [](Session&) -> Result<Json> { return Fail(ErrorCode::kExists, "no"); };
  EXPECT_EQ(AskOrOpen("test", file_, request, failing).error().message, "no");
  EXPECT_EQ(AskOrLook("test", file_, request, failing).error().message, "no");
  for (const char* name : {"ssd0", "ssd1"}) {
    fs::remove(At(name));
  }
  EXPECT_EQ(AskOrOpen("test", file_, request, failing).error().code, ErrorCode::kTooManyFailures);
  EXPECT_EQ(AskOrLook("test", file_, request, failing).error().code, ErrorCode::kTooManyFailures);
}

// ---- spares

// Whatever it held is gone at both ends, and it is known by two copies.
TEST_F(Words, ASpareIsWipedAndMarkedTwiceAndBlankWhenItIsRemoved) {
  Open();
  {
    FileSpareShelf shelf = Shelf();
    dir_.Write("s", std::string(kSsdBytes + 1000, 'x'));  // no whole number of blocks
    const auto added = session_->Run(shelf.Add(At("s"), *IdentifyDevice(At("s"))));
    ASSERT_TRUE(added.ok());
    EXPECT_TRUE(added->fits_ssd && added->fits_log && !added->wiped);
    EXPECT_EQ(shelf.Listed(), std::vector<std::string>{At("s")});
    const std::string bytes = ReadText(At("s"));
    uint64_t generation = 0;
    std::vector<Uuid> uuids;
    for (const uint64_t offset : kSuperblockCopyOffset) {
      const auto copy =
          DecodeSuperblock(std::as_bytes(std::span(bytes.data() + offset, kSuperblockCopyBytes)));
      ASSERT_TRUE(copy.ok());
      EXPECT_TRUE(copy->is_spare());
      EXPECT_EQ(UuidToString(copy->array_uuid), file_.uuid);
      EXPECT_EQ(copy->generation, generation++);
      uuids.push_back(copy->device_uuid);
    }
    EXPECT_EQ(uuids[0], uuids[1]);
    const std::string uuid = UuidToString(uuids[0]);
    EXPECT_EQ(uuid[14], '4') << "a random one";
    EXPECT_NE(std::string("89ab").find(uuid[19]), std::string::npos) << uuid;
    constexpr size_t kMiB = size_t{1} << 20;
    EXPECT_EQ(bytes.substr(64 << 10, kMiB), std::string(kMiB, '\0'));
    EXPECT_EQ(bytes.substr(kSsdBytes - kMiB, kMiB), std::string(kMiB, '\0'));
    EXPECT_EQ(bytes[kSsdBytes / 2], 'x') << "not as a whole";
    ASSERT_TRUE(session_->Run(shelf.Remove(At("s"))).ok());
    EXPECT_TRUE(shelf.Listed().empty());
    EXPECT_EQ(ReadSuperblock(At("s")).error().code, ErrorCode::kNotFound);
  }
  Close();
}

TEST_F(Words, WhatIsNoSpareIsSaidToBe) {
  Open();
  {
    FileSpareShelf shelf = Shelf();
    dir_.Write("data", "something");
    dir_.WriteSparse("small", 1 << 20);
    dir_.WriteSparse("log", kLogBytes);
    const auto opened = session_->Run(shelf.Open(At("data")));
    ASSERT_FALSE(opened.ok());
    EXPECT_EQ(opened.error().code, ErrorCode::kNotFound);
    EXPECT_NE(opened.error().message.find("it holds data"), std::string::npos);
    const Status removed = session_->Run(shelf.Remove(At("data")));
    ASSERT_FALSE(removed.ok());
    EXPECT_EQ(removed.error().code, ErrorCode::kNotFound);
    EXPECT_EQ(removed.error().message, At("data") + " is no spare of 'demo'");
    const Status put_back = session_->Run(shelf.PutBack(At("data")));
    ASSERT_FALSE(put_back.ok());
    EXPECT_EQ(put_back.error().code, ErrorCode::kNotFound);
    EXPECT_EQ(put_back.error().message, At("data") + " is not open");
    const auto small = session_->Run(shelf.Add(At("small"), *IdentifyDevice(At("small"))));
    ASSERT_FALSE(small.ok());
    EXPECT_EQ(small.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(small.error().message.find(" is too small for every role: it has 1048576 bytes"),
              std::string::npos);
    EXPECT_EQ(ReadSuperblock(At("small")).error().code, ErrorCode::kNotFound) << "nor marked";
    const auto log = session_->Run(shelf.Add(At("log"), *IdentifyDevice(At("log"))));
    ASSERT_TRUE(log.ok());
    EXPECT_TRUE(log->fits_log && !log->fits_ssd);
    EXPECT_EQ(session_->open_devices(), 5U);
    shelf.Close(At("log"));
    shelf.Close(At("none"));
    EXPECT_TRUE(Becomes([&] { return session_->open_devices() == 4; }));
    EXPECT_EQ(shelf.Listed(), std::vector<std::string>{At("log")}) << "it stays listed";
  }
  Close();
}

TEST_F(Words, ASpareThatJoinedIsAMemberFromThenOn) {
  Open();
  {
    FileSpareShelf shelf = Shelf();
    dir_.WriteSparse("s", kSsdBytes);
    ASSERT_TRUE(session_->Run(shelf.Add(At("s"), *IdentifyDevice(At("s")))).ok());
    ASSERT_TRUE(session_->Run(shelf.Joined("ssd1", At("s"))).ok());
    EXPECT_TRUE(shelf.Listed().empty());
    const auto now = LoadArrayFile(file_.file);
    ASSERT_TRUE(now.ok());
    EXPECT_EQ(now->MemberAt(At("s")), "ssd1");
    EXPECT_EQ(session_->file().MemberAt(At("s")), "ssd1");
    EXPECT_TRUE(Becomes([&] { return session_->open_devices() == 4; })) << "nobody needs it here";
  }
  Close();
}

}  // namespace
}  // namespace eplog
