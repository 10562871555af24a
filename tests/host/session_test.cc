// An array of files, opened as a verb or the serving process opens it: which members are left out,
// and what becomes of devices that are replaced.
#include "host/session.h"

#include <gtest/gtest.h>
#include <sys/inotify.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/random.h"
#include "base/read_text.h"
#include "host/device_content.h"
#include "host/file_spare_shelf.h"
#include "host/make_file.h"
#include "tests/host/hanging_file.h"
#include "tests/host/held_close.h"
#include "tests/support/temp_dir.h"

namespace eplog {
namespace {

constexpr uint64_t kSsdBytes = uint64_t{16} << 20;
constexpr uint64_t kLogBytes = uint64_t{8} << 20;
constexpr size_t kContentBytes = size_t{1} << 20;
// Of those that are to hang; who is well meets it on a busy machine, too.
constexpr uint64_t kDeadlineUs = 3'000'000;

size_t OpenDescriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

uint64_t BytesOnDisk(const std::filesystem::path& path) {
  struct stat file {};
  EXPECT_EQ(::stat(path.c_str(), &file), 0);
  return static_cast<uint64_t>(file.st_blocks) * 512;
}

// A 2+1 array of files with a volume.
class Sessions : public testing::Test {
 protected:
  Sessions() : content_(kContentBytes) {
    Random random(1);
    std::generate(content_.begin(), content_.end(),
                  [&] { return static_cast<std::byte>(random.Next()); });
    file_ = Create(dir_, "demo");
    Open();
    const auto volume = session_->Run(session_->array().CreateVolume("v", kContentBytes));
    EXPECT_TRUE(volume.ok());
    volume_ = *volume;
    EXPECT_TRUE(session_->Run(session_->array().Write(volume_, 0, content_)).ok());
    Close();
  }

  static ArrayFile Create(const TempDir& dir, const std::string& name) {
    auto loop = IoUringLoop::Create();
    EXPECT_TRUE(loop.ok());
    ArrayFile file;
    file.file = dir.path() / kArrayFileName;
    file.name = name;
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
    options.name = name;
    options.parity = 1;
    options.entropy = Entropy();
    EXPECT_TRUE(RunTask(**loop, Array::Create(**loop, ssds, logs, options)).ok());
    devices.clear();
    file.uuid = UuidToString(ReadSuperblock(dir.path() / "ssd0")->array_uuid);
    EXPECT_TRUE(WriteArrayFile(file).ok());
    return file;
  }

  Status TryOpen(const MemberOptions& options = {}, const OpenOptions& open = {}) {
    auto session = Session::Open("test", file_, options, open);
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
  [[nodiscard]] std::filesystem::path At(const std::string& name) const {
    return dir_.path() / name;
  }
  // Everything that is due, and what waits for a moment.
  void Turn(uint64_t us = 300'000) {
    const auto sleeping = [us](EventLoop& loop) -> Task<Status> {
      co_await loop.Sleep(us);
      co_return OkStatus();
    };
    EXPECT_TRUE(session_->Run(sleeping(session_->loop())).ok());
  }
  static DeviceIdentity Identity(const std::filesystem::path& path) {
    const auto identity = IdentifyDevice(path);
    EXPECT_TRUE(identity.ok());
    return identity.value_or(DeviceIdentity());
  }
  // What is there now is what was looked at.
  Result<Device*> OpenDevice(const std::filesystem::path& path) {
    return session_->Run(session_->OpenDevice(path.string(), Identity(path)));
  }
  Status Replace(uint32_t device, const std::filesystem::path& path) {
    auto opened = OpenDevice(path);
    if (!opened.ok()) {
      return Fail(std::move(opened).error());
    }
    Status replaced = session_->Run(session_->array().ReplaceDevice(device, **opened));
    session_->CloseDevice(**opened);
    return replaced;
  }
  // Beside all else.
  template <typename T>
  void Begin(Task<T> task, std::optional<T>& result) {
    const auto store = [](Task<T> running, std::optional<T>* into) -> Task<void> {
      into->emplace(co_await running);
    };
    session_->loop().Start(store(std::move(task), &result));
  }
  template <typename T>
  void WaitFor(const std::optional<T>& result) {
    ASSERT_TRUE(session_->loop().RunUntil([&] { return result.has_value(); }));
  }
  [[nodiscard]] DeviceState StateOf(uint32_t device) const {
    return session_->array().GetStatus().devices[device].state;
  }
  void WaitUntilRebuilt() {
    const auto whole = [&] {
      const ArrayState state = session_->array().GetStatus().state;
      return state == ArrayState::kClean || state == ArrayState::kActive;
    };
    for (int i = 0; i < 600 && !whole(); ++i) {
      Turn(100'000);
    }
    ASSERT_TRUE(whole());
  }
  // On a thread of its own, some day.
  template <typename Done>
  bool Becomes(Done done) {
    for (int i = 0; i < 6000 && !done(); ++i) {
      Turn(10'000);
    }
    return done();
  }
  bool BecomesUnlocked(const std::filesystem::path& path) {
    return Becomes([&] { return FileDevice::Open(session_->loop(), path.string()).ok(); });
  }
  void ExpectContent() {
    std::vector<std::byte> got(kContentBytes);
    ASSERT_TRUE(session_->Run(session_->array().Read(volume_, 0, got)).ok());
    EXPECT_EQ(got == content_, true);
  }

  TempDir dir_;
  ArrayFile file_;
  std::vector<std::byte> content_;
  VolumeId volume_;
  std::unique_ptr<Session> session_;
};

// The file of a failed member is deleted, and the replacement is made where it was: what is at the
// path counts, not what was open under it.
TEST_F(Sessions, ReplacementAtThePathOfTheFailedMemberIsTheNewFile) {
  Open();
  ASSERT_TRUE(session_->Run(session_->array().FailDevice(0, "by hand")).ok());
  std::filesystem::remove(At("ssd0"));
  dir_.WriteSparse("ssd0", kSsdBytes);
  ASSERT_TRUE(Replace(0, At("ssd0")).ok());
  WaitUntilRebuilt();
  EXPECT_GT(BytesOnDisk(At("ssd0")), kContentBytes / 2);
  Close();
  // With the redundancy used up elsewhere, it is all there.
  std::filesystem::remove(At("ssd1"));
  Open();
  EXPECT_EQ(StateOf(0), DeviceState::kOk);
  ExpectContent();
  Close();
}

// Who opens it read array.toml before somebody else, who had it open, had written down another
// place.
TEST_F(Sessions, WhatArrayTomlSaysUnderTheLocksCounts) {
  const ArrayFile read_before = file_;
  Open();
  ASSERT_TRUE(session_->Run(session_->array().FailDevice(0, "by hand")).ok());
  dir_.WriteSparse("new", kSsdBytes);
  ASSERT_TRUE(Replace(0, At("new")).ok());
  WaitUntilRebuilt();
  ASSERT_TRUE(
      ChangeArrayFile(file_, [&](ArrayFile& now) { now.MoveMember("ssd0", At("new")); }).ok());
  Close();
  file_ = read_before;
  Open();
  EXPECT_EQ(StateOf(0), DeviceState::kOk);
  EXPECT_EQ(session_->file().MemberAt(At("new")), "ssd0");
  ExpectContent();
  Close();
}

// It was read before the locks were taken, and cannot be read under them any more: what was read
// counts, and nobody waits for ever.
TEST_F(Sessions, ArrayFileThatHangsIsNotWaitedForForEver) {
  HangingFile hangs(file_.file);
  EPLOG_NEEDS_HANGING(hangs);
  Open();
  ASSERT_NE(session_, nullptr);
  EXPECT_TRUE(hangs.waited_for());
  ExpectContent();
  hangs.LetGo();
  Close();
}

TEST_F(Sessions, MembersThatAreOutAreClosed) {
  Open();
  const size_t before = OpenDescriptors();
  for (int round = 0; round < 20; ++round) {
    ASSERT_TRUE(session_->Run(session_->array().FailDevice(0, "by hand")).ok());
    std::filesystem::remove(At("ssd0"));
    dir_.WriteSparse("ssd0", kSsdBytes);
    const Status replaced = Replace(0, At("ssd0"));
    ASSERT_TRUE(replaced.ok()) << replaced.error().message;
    WaitUntilRebuilt();
  }
  Turn();
  EXPECT_EQ(session_->open_devices(), 4U);
  EXPECT_TRUE(Becomes([&] { return OpenDescriptors() == before; })) << OpenDescriptors();
  ExpectContent();
  Close();
}

// Whatever took the name of what was looked at, even a spare that is open already, is somebody's.
TEST_F(Sessions, OnlyWhatWasLookedAtIsOpened) {
  Open();
  dir_.WriteSparse("new", kSsdBytes);
  dir_.WriteSparse("precious", kSsdBytes);
  const DeviceIdentity looked_at = Identity(At("new"));
  const auto opened = OpenDevice(At("precious"));
  ASSERT_TRUE(opened.ok());
  std::filesystem::rename(At("new"), At("away"));
  std::filesystem::rename(At("precious"), At("new"));
  for (int round = 0; round < 2; ++round) {  // while it is open, and when it is not
    const auto refused = session_->Run(session_->OpenDevice(At("new").string(), looked_at));
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kBusy);
    EXPECT_NE(refused.error().message.find("not the device that was looked at"), std::string::npos);
    EXPECT_EQ(session_->open_devices(), round == 0 ? 5U : 4U);
    if (round == 0) {
      session_->CloseDevice(**opened);
      Turn();
    }
  }
  std::filesystem::rename(At("new"), At("precious"));
  std::filesystem::rename(At("away"), At("new"));
  EXPECT_TRUE(session_->Run(session_->OpenDevice(At("new").string(), looked_at)).ok());
  Close();
}

TEST_F(Sessions, DeviceThatHangsDelaysNoOther) {
  Open();
  HangingFile hangs(dir_.WriteSparse("hangs", kSsdBytes));
  EPLOG_NEEDS_HANGING(hangs);
  dir_.WriteSparse("well", kSsdBytes);
  std::optional<Result<Device*>> hanging;
  Begin(session_->OpenDevice(At("hangs").string(), Identity(At("hangs"))), hanging);
  EXPECT_TRUE(OpenDevice(At("well")).ok());
  EXPECT_FALSE(hanging) << "it was waited for";
  hangs.LetGo();
  WaitFor(hanging);
  EXPECT_TRUE(hanging->ok());
  Close();
}

// As when an unmount overtakes a replacement: there is no array for it any more.
TEST_F(Sessions, DeviceThatComesOpenWhenTheArrayIsGoneIsLetGo) {
  Open();
  HangingFile late(dir_.WriteSparse("late", kSsdBytes));
  EPLOG_NEEDS_HANGING(late);
  std::optional<Result<Device*>> opening;
  Begin(session_->OpenDevice(At("late").string(), Identity(At("late"))), opening);
  while (!late.waited_for()) {
    Turn(1000);
  }
  ASSERT_TRUE(session_->Run(session_->array().Close()).ok());
  session_->Release();
  late.LetGo();
  WaitFor(opening);
  ASSERT_FALSE(opening->ok());
  EXPECT_EQ(opening->error().code, ErrorCode::kShutdown);
  EXPECT_EQ(session_->open_devices(), 0U);
  EXPECT_TRUE(FileDevice::Open(session_->loop(), At("late").string()).ok()) << "it is held still";
}

// Its lock too: whoever takes a failed device out may use it for something else at once.
TEST_F(Sessions, FailedMemberIsUnlocked) {
  Open();
  ASSERT_TRUE(session_->Run(session_->array().FailDevice(2, "by hand")).ok());
  Turn();
  EXPECT_EQ(session_->open_devices(), 3U);
  EXPECT_TRUE(BecomesUnlocked(At("ssd2")));
  const DeviceStatus failed = session_->array().GetStatus().devices[2];
  EXPECT_EQ(failed.path, At("ssd2").string()) << "where it was is still told";
  EXPECT_EQ(failed.size_bytes, kSsdBytes);
  // And may come back as an empty one.
  ASSERT_TRUE(Replace(2, At("ssd2")).ok());
  WaitUntilRebuilt();
  ExpectContent();
  Close();
}

TEST_F(Sessions, MemberIsKnownByEveryPath) {
  Open();
  ASSERT_TRUE(session_->Run(session_->array().FailDevice(0, "by hand")).ok());
  std::filesystem::create_symlink("ssd1", At("link"));
  std::filesystem::create_hard_link(At("ssd1"), At("hard"));
  for (const char* name : {"ssd1", "link", "hard"}) {
    const auto opened = OpenDevice(At(name));
    ASSERT_FALSE(opened.ok()) << name;
    EXPECT_EQ(opened.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(opened.error().message.find("in use"), std::string::npos) << opened.error().message;
  }
  Close();
}

// While a request to it is on its way, the device that was a member stays, and is not used again.
TEST_F(Sessions, HungMemberIsClosedWhenItHasAnswered) {
  MemberOptions options;
  options.io_deadline_us = kDeadlineUs;
  Open(options);
  Injection hang;
  hang.hang = true;
  ASSERT_TRUE(session_->Inject(At("ssd1").string(), hang).ok());
  ASSERT_TRUE(session_->Run(session_->array().Write(volume_, 0, content_)).ok());
  ASSERT_TRUE(session_->Run(session_->array().FlushAll()).ok());
  Turn();
  EXPECT_EQ(StateOf(1), DeviceState::kFailed);
  EXPECT_EQ(session_->open_devices(), 4U);
  const auto again = OpenDevice(At("ssd1"));
  ASSERT_FALSE(again.ok());
  EXPECT_NE(again.error().message.find("did not answer"), std::string::npos);
  // Another device may have its path by now.
  std::filesystem::rename(At("ssd1"), At("old"));
  dir_.WriteSparse("ssd1", kSsdBytes);
  ASSERT_TRUE(Replace(1, At("ssd1")).ok());
  WaitUntilRebuilt();
  ASSERT_TRUE(session_->Inject("", Injection()).ok());
  Turn();
  EXPECT_EQ(session_->open_devices(), 4U);
  EXPECT_TRUE(BecomesUnlocked(At("old")));
  ExpectContent();
  Close();
}

// Not even without a deadline: it is lost, and its part of what is on its way counts as done.
TEST_F(Sessions, NobodyWaitsForAMemberThatHangsOnceItWasFailedByHand) {
  MemberOptions options;
  options.io_deadline_us = 0;
  Open(options);
  Injection hang;
  hang.hang = true;
  ASSERT_TRUE(session_->Inject(At("ssd1").string(), hang).ok());
  std::optional<Status> written;
  const auto write = [](Array& array, VolumeId volume, std::span<const std::byte> content,
                        std::optional<Status>& into) -> Task<void> {
    Task<Status> writing = array.Write(volume, 0, content);
    Status status = co_await writing;
    if (status.ok()) {
      Task<Status> flushing = array.FlushAll();
      status = co_await flushing;
    }
    into = std::move(status);
  };
  session_->loop().Spawn(write(session_->array(), volume_, content_, written));
  Turn();
  ASSERT_FALSE(written) << "it was waited for";
  ASSERT_TRUE(session_->Run(session_->array().FailDevice(1, "by hand")).ok());
  ASSERT_TRUE(session_->loop().RunUntil([&] { return written.has_value(); }));
  EXPECT_TRUE(written->ok()) << written->error().message;
  EXPECT_EQ(StateOf(1), DeviceState::kFailed);
  dir_.WriteSparse("new", kSsdBytes);
  ASSERT_TRUE(Replace(1, At("new")).ok());
  WaitUntilRebuilt();
  ExpectContent();
  ASSERT_TRUE(session_->Inject("", Injection()).ok());
  Close();
}

// As on a file system that does not answer. The same device may come back, and waits for its old
// self.
TEST_F(Sessions, AMemberWhoseCloseHangsHoldsUpOnlyItself) {
  Open();
  HeldClose held(At("ssd2"));
  ASSERT_TRUE(session_->Run(session_->array().FailDevice(2, "by hand")).ok());
  ASSERT_TRUE(Becomes([&] { return held.begun(); }));
  ASSERT_FALSE(held.begun_here()) << "the thread that serves the array would wait";
  ExpectContent();
  std::optional<Result<Device*>> opened;
  Begin(session_->OpenDevice(At("ssd2").string(), Identity(At("ssd2"))), opened);
  Turn();
  held.Release();
  ASSERT_TRUE(session_->loop().RunUntil([&] { return opened.has_value(); }));
  ASSERT_TRUE(opened->ok()) << opened->error().message;
  EXPECT_TRUE(session_->Run(session_->array().ReplaceDevice(2, ***opened)).ok());
  session_->CloseDevice(***opened);
  WaitUntilRebuilt();
  ExpectContent();
  Close();
}

TEST_F(Sessions, AMemberWhoseCloseHangsDoesNotKeepTheArrayFromClosing) {
  const size_t before = OpenDescriptors();
  Open();
  HeldClose held(At("ssd0"));
  Close();
  EXPECT_TRUE(held.begun());
  EXPECT_FALSE(held.begun_here());
  held.Release();
  for (int i = 0; i < 6000 && OpenDescriptors() != before; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(OpenDescriptors(), before);
}

// The array that more than m devices hang of has stopped, and the next opening trusts them again:
// what they may still write has to be over by then.
TEST_F(Sessions, HungMembersOfAClosedArrayStayLockedUntilTheyHaveAnswered) {
  MemberOptions options;
  options.io_deadline_us = kDeadlineUs;
  Open(options);
  Injection hang;
  hang.hang = true;
  for (const char* name : {"ssd0", "ssd1"}) {
    ASSERT_TRUE(session_->Inject(At(name).string(), hang).ok());
  }
  EXPECT_FALSE(session_->Run(session_->array().Write(volume_, 0, content_)).ok());
  EXPECT_EQ(session_->array().GetStatus().state, ArrayState::kFailed);
  const Status closed = session_->Close();
  static_cast<void>(closed);
  EXPECT_EQ(session_->open_devices(), 2U);
  for (const char* name : {"ssd0", "ssd1"}) {
    const auto opened = FileDevice::Open(session_->loop(), At(name).string());
    ASSERT_FALSE(opened.ok()) << name;
    EXPECT_EQ(opened.error().code, ErrorCode::kBusy);
  }
  EXPECT_TRUE(FileDevice::Open(session_->loop(), At("ssd2").string()).ok());
  session_.reset();  // none of them can be answered any more
  Open();
  ASSERT_NE(session_, nullptr);
  ExpectContent();
  Close();
}

// ------------------------------------------------------------------- what is no good member

class LeftOut : public Sessions {
 protected:
  // Opens without this member, which is not written to, and takes what is at its path in its place.
  void ExpectLeftOut(uint32_t device, const std::string& name, bool usable = true) {
    const std::string before = Read(name);
    Open();
    ASSERT_NE(session_, nullptr);
    EXPECT_EQ(session_->array().GetStatus().state, ArrayState::kDegraded);
    EXPECT_EQ(StateOf(device), DeviceState::kMissing);
    ExpectContent();
    ASSERT_TRUE(session_->Run(session_->array().Write(volume_, 0, content_)).ok());
    Turn();
    EXPECT_EQ(session_->open_devices(), 3U);
    EXPECT_EQ(Read(name) == before, true) << "written to while it was out";
    if (usable) {
      ASSERT_TRUE(Replace(device, At(name)).ok());
      WaitUntilRebuilt();
      ExpectContent();
    }
    Close();
  }
  [[nodiscard]] std::string Read(const std::string& name) const {
    std::ifstream in(At(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }
};

TEST_F(LeftOut, BlankDiskInItsPlace) {
  std::filesystem::remove(At("ssd1"));
  dir_.WriteSparse("ssd1", kSsdBytes);
  ExpectLeftOut(1, "ssd1");
}

TEST_F(LeftOut, BlankLogDeviceInItsPlace) {
  std::filesystem::remove(At("log0"));
  dir_.WriteSparse("log0", kLogBytes);
  ExpectLeftOut(3, "log0");
}

TEST_F(LeftOut, SomethingElse) {
  dir_.Write("ssd0", std::string(kSsdBytes, 'x'));
  ExpectLeftOut(0, "ssd0");
}

TEST_F(LeftOut, Truncated) {
  std::filesystem::resize_file(At("ssd2"), kSsdBytes / 2);
  ExpectLeftOut(2, "ssd2", false);
}

TEST_F(LeftOut, Empty) {
  std::filesystem::resize_file(At("ssd2"), 0);
  ExpectLeftOut(2, "ssd2", false);
}

TEST_F(LeftOut, ForeignAlsoWhereItComesFirst) {
  const TempDir elsewhere;
  const ArrayFile other = Create(elsewhere, "other");
  std::filesystem::copy_file(elsewhere.path() / "ssd0", At("ssd0"),
                             std::filesystem::copy_options::overwrite_existing);
  ExpectLeftOut(0, "ssd0");
}

// Neither of two that say that they are the same member; which is one member, in any case.
TEST_F(LeftOut, CopyOfAnotherMember) {
  file_.members[0].path = "gone";
  std::filesystem::copy_file(At("ssd1"), At("gone"));
  ASSERT_TRUE(WriteArrayFile(file_).ok());
  const Status opened = TryOpen();
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().code, ErrorCode::kTooManyFailures) << "ssd0 is not there either";
  for (const std::string& path : {At("gone").string(), At("ssd1").string()}) {
    EXPECT_NE(opened.error().message.find("(" + path + ") is doubled and left out"),
              std::string::npos)
        << opened.error().message;
  }
}

TEST_F(LeftOut, SameDeviceUnderTwoNames) {
  std::filesystem::remove(At("ssd1"));
  std::filesystem::create_symlink("ssd0", At("ssd1"));
  Open();
  EXPECT_EQ(StateOf(1), DeviceState::kMissing);
  EXPECT_EQ(StateOf(0), DeviceState::kOk);
  ExpectContent();
  Close();
}

TEST_F(LeftOut, CannotBeOpened) {
  std::filesystem::remove(At("ssd1"));
  std::filesystem::create_directory(At("ssd1"));
  Open();
  EXPECT_EQ(StateOf(1), DeviceState::kMissing);
  ExpectContent();
  Close();
}

// It is not waited for for ever, though it is the first, and what comes open late is closed.
TEST_F(LeftOut, HangsWhenItIsOpened) {
  HangingFile hangs(At("ssd0"));
  EPLOG_NEEDS_HANGING(hangs);
  Open();
  ASSERT_NE(session_, nullptr);
  EXPECT_TRUE(hangs.waited_for());
  EXPECT_EQ(StateOf(0), DeviceState::kMissing);
  EXPECT_EQ(session_->open_devices(), 3U);
  ExpectContent();
  ASSERT_TRUE(session_->Run(session_->array().Write(volume_, 0, content_)).ok());
  hangs.LetGo();
  EXPECT_TRUE(BecomesUnlocked(At("ssd0")));
  Close();
  Open();  // it is back
  WaitUntilRebuilt();
  ExpectContent();
  Close();
}

TEST_F(LeftOut, AsTold) {
  MemberOptions options;
  options.without = {"ssd2"};
  const std::string before = Read("ssd2");
  Open(options);
  EXPECT_EQ(StateOf(2), DeviceState::kMissing);
  EXPECT_EQ(session_->open_devices(), 3U);
  ExpectContent();
  Close();
  EXPECT_EQ(Read("ssd2") == before, true);
  Open();  // it is back, and gets what it missed
  WaitUntilRebuilt();
  Close();
}

// Whatever array.toml says of it: members may have changed places.
TEST_F(LeftOut, AsToldByPathItIsNotEvenOpened) {
  std::filesystem::rename(At("ssd0"), At("x"));
  std::filesystem::rename(At("ssd1"), At("ssd0"));
  std::filesystem::rename(At("x"), At("ssd1"));
  MemberOptions options;
  options.without = {At("ssd1").string()};  // ssd0 by now
  const HangingFile hangs(At("ssd1"));
  EPLOG_NEEDS_HANGING(hangs);
  Open(options);
  ASSERT_NE(session_, nullptr);
  EXPECT_FALSE(hangs.waited_for());
  EXPECT_EQ(StateOf(0), DeviceState::kMissing);
  EXPECT_EQ(StateOf(1), DeviceState::kOk);
  EXPECT_EQ(session_->open_devices(), 3U);
  ExpectContent();
  Close();
}

TEST_F(LeftOut, AsToldByNameIsWhoSaysSoOfItself) {
  std::filesystem::rename(At("ssd0"), At("x"));
  std::filesystem::rename(At("ssd1"), At("ssd0"));
  std::filesystem::rename(At("x"), At("ssd1"));
  MemberOptions options;
  options.without = {"ssd1"};
  Open(options);
  ASSERT_NE(session_, nullptr);
  EXPECT_EQ(StateOf(0), DeviceState::kOk);
  EXPECT_EQ(StateOf(1), DeviceState::kMissing);
  EXPECT_EQ(session_->open_devices(), 3U);
  Close();
}

// A spare that has become ssd1, which array.toml does not say yet.
TEST_F(LeftOut, AsToldASpareThatBecameAMember) {
  std::filesystem::rename(At("ssd1"), At("s"));
  file_.spares = {"s"};
  for (const std::string& device : {At("s").string(), std::string("ssd1")}) {
    MemberOptions options;
    options.read_only = true;
    options.without = {device};
    Open(options);
    ASSERT_NE(session_, nullptr);
    EXPECT_EQ(StateOf(1), DeviceState::kMissing) << device;
    EXPECT_EQ(session_->open_devices(), 3U) << device;
    session_.reset();
  }
}

TEST_F(LeftOut, MoreThanParityAreRefusedByName) {
  std::filesystem::resize_file(At("ssd0"), kSsdBytes / 2);
  std::filesystem::remove(At("ssd1"));
  dir_.WriteSparse("ssd1", kSsdBytes);
  const Status opened = TryOpen();
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().code, ErrorCode::kTooManyFailures);
  for (const char* part : {"ssd0 (", "is truncated and left out", "ssd1 (", "is no member"}) {
    EXPECT_NE(opened.error().message.find(part), std::string::npos) << opened.error().message;
  }
  // By force it can be read.
  MemberOptions options;
  options.read_only = true;
  OpenOptions open;
  open.force = true;
  EXPECT_TRUE(TryOpen(options, open).ok());
}

TEST_F(LeftOut, HeldByAnotherIsRefused) {
  auto loop = IoUringLoop::Create();
  ASSERT_TRUE(loop.ok());
  const auto held = FileDevice::Open(**loop, At("ssd1").string());
  ASSERT_TRUE(held.ok());
  const Status opened = TryOpen();
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().code, ErrorCode::kBusy);
}

// ------------------------------------------------------------------- spares and array.toml

class SpareShelves : public Sessions {
 protected:
  FileSpareShelf Shelf() {
    auto member = session_->Run(session_->AnyMember());
    EXPECT_TRUE(member.ok());
    return {*session_, file_, std::move(*member)};
  }
};

TEST_F(SpareShelves, NoSpareWhereAMemberIsListed) {
  Open();
  ASSERT_TRUE(session_->Run(session_->array().FailDevice(0, "by hand")).ok());
  std::filesystem::remove(At("ssd0"));
  dir_.WriteSparse("ssd0", kSsdBytes);
  {
    FileSpareShelf shelf = Shelf();
    const auto added = session_->Run(shelf.Add(At("ssd0").string(), Identity(At("ssd0"))));
    ASSERT_FALSE(added.ok());
    EXPECT_EQ(added.error().code, ErrorCode::kExists);
    EXPECT_NE(added.error().message.find("eplog replace"), std::string::npos);
  }
  EXPECT_TRUE(LoadArrayFile(file_.file).ok());
  EXPECT_EQ(BytesOnDisk(At("ssd0")), 0U) << "a refusal wrote";
  Close();
}

// As another node of its storage would be, which has another identity.
TEST_F(SpareShelves, NoSpareIsMadeOfWhatSaysThatItIsADeviceInUse) {
  Open();
  std::filesystem::copy_file(At("ssd0"), At("node"));
  const auto content = ReadText(At("node"));
  {
    FileSpareShelf shelf = Shelf();
    const auto added = session_->Run(shelf.Add(At("node").string(), Identity(At("node"))));
    ASSERT_FALSE(added.ok());
    EXPECT_EQ(added.error().code, ErrorCode::kExists);
    EXPECT_NE(added.error().message.find("is ssd0 by another path"), std::string::npos);
  }
  EXPECT_EQ(ReadText(At("node")), content) << "a refusal wrote";
  EXPECT_TRUE(session_->file().spares.empty());
  Close();
}

// What the session says stood in array.toml, for when it is gone.
TEST_F(SpareShelves, TheSessionIsToldWhatIsListed) {
  Open();
  dir_.WriteSparse("a", kSsdBytes);
  dir_.WriteSparse("b", kSsdBytes);
  const std::string a = At("a").string();
  const std::string b = At("b").string();
  {
    FileSpareShelf shelf = Shelf();
    ASSERT_TRUE(session_->Run(shelf.Add(a, Identity(a))).ok());
    ASSERT_TRUE(session_->Run(shelf.Add(b, Identity(b))).ok());
    EXPECT_EQ(session_->file().spares, (std::vector<std::string>{"a", "b"}));
    ASSERT_TRUE(session_->Run(shelf.Remove(a)).ok());
    EXPECT_EQ(session_->file().spares, std::vector<std::string>{"b"});
    // Also what could not be written down.
    dir_.Write("array.toml", "no array");
    EXPECT_FALSE(session_->Run(shelf.Joined("ssd1", b)).ok());
    EXPECT_TRUE(session_->file().spares.empty());
    EXPECT_EQ(session_->file().MemberAt(b), "ssd1");
    std::filesystem::remove(file_.file);
    ASSERT_TRUE(session_->Run(shelf.Add(a, Identity(a))).ok());
    const auto anew = LoadArrayFile(file_.file);
    ASSERT_TRUE(anew.ok());
    EXPECT_EQ(anew->MemberAt(b), "ssd1");
    EXPECT_EQ(anew->spares, std::vector<std::string>{"a"});
  }
  EXPECT_TRUE(session_->Close().ok());
}

TEST_F(SpareShelves, ASpareThatHadJoinedIsNoneAlsoReadOnly) {
  std::filesystem::rename(At("ssd1"), At("s"));
  file_.spares = {"s"};
  ASSERT_TRUE(WriteArrayFile(file_).ok());
  MemberOptions options;
  options.read_only = true;
  Open(options);
  EXPECT_TRUE(session_->file().spares.empty());
  EXPECT_EQ(session_->file().MemberAt(At("s")), "ssd1");
  session_.reset();
}

// One that nobody waits for any more may still come: until then no other is begun.
TEST_F(SpareShelves, PlacesThatAreWrittenLateAreNotOvertaken) {
  std::filesystem::rename(At("ssd0"), At("x"));
  std::filesystem::rename(At("ssd1"), At("ssd0"));
  std::filesystem::rename(At("x"), At("ssd1"));
  dir_.WriteSparse("a", kSsdBytes);
  dir_.WriteSparse("b", kSsdBytes);
  HangingFile hangs(file_.file);
  EPLOG_NEEDS_HANGING(hangs);
  Open();
  {
    FileSpareShelf shelf = Shelf();
    EXPECT_FALSE(session_->Run(shelf.Add(At("a").string(), Identity(At("a")))).ok());
    hangs.LetGo();
    auto now = LoadArrayFile(file_.file);
    while (now.ok() && now->members[0].path == "ssd0") {
      Turn(1000);
      now = LoadArrayFile(file_.file);
    }
    EXPECT_TRUE(session_->Run(shelf.Add(At("b").string(), Identity(At("b")))).ok());
    EXPECT_EQ(LoadArrayFile(file_.file)->spares, std::vector<std::string>{"b"});
  }
  Close();
}

TEST_F(SpareShelves, OpenedAgainItIsWhatIsThereNow) {
  Open();
  dir_.WriteSparse("spare", kSsdBytes);
  {
    FileSpareShelf shelf = Shelf();
    const std::string path = At("spare").string();
    const auto added = session_->Run(shelf.Add(path, Identity(path)));
    ASSERT_TRUE(added.ok());
    const auto same = session_->Run(shelf.Open(path));
    ASSERT_TRUE(same.ok());
    EXPECT_EQ(same->device, added->device);
    const DeviceIdentity before = added->device->identity();
    std::filesystem::rename(path, At("away"));  // keeps its inode from being used again
    dir_.WriteSparse("spare", kSsdBytes);
    const auto now = session_->Run(shelf.Open(path));
    ASSERT_TRUE(now.ok());
    EXPECT_NE(now->device->identity() == before, true);
    Turn();
    EXPECT_EQ(session_->open_devices(), 5U);
    ASSERT_TRUE(session_->Run(shelf.Remove(path)).ok());
    Turn();
    EXPECT_EQ(session_->open_devices(), 4U);
  }
  Close();
}

TEST_F(SpareShelves, OnlyWhatWasLookedAtIsMadeASpare) {
  Open();
  dir_.WriteSparse("spare", kSsdBytes);
  dir_.WriteSparse("precious", kSsdBytes);
  {
    FileSpareShelf shelf = Shelf();
    const DeviceIdentity looked_at = Identity(At("spare"));
    std::filesystem::rename(At("spare"), At("away"));
    std::filesystem::rename(At("precious"), At("spare"));
    const auto refused = session_->Run(shelf.Add(At("spare").string(), looked_at));
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find("not the device that was looked at"), std::string::npos);
    EXPECT_TRUE(shelf.Listed().empty());
  }
  EXPECT_EQ(BytesOnDisk(At("spare")), 0U) << "a refusal wrote";
  Turn();
  EXPECT_EQ(session_->open_devices(), 4U);
  Close();
}

TEST_F(SpareShelves, SpareThatIsTooSmallIsClosed) {
  Open();
  dir_.WriteSparse("spare", kSsdBytes);
  const std::string path = At("spare").string();
  {
    FileSpareShelf shelf = Shelf();
    ASSERT_TRUE(session_->Run(shelf.Add(path, Identity(path))).ok());
  }
  Close();
  std::filesystem::resize_file(path, uint64_t{1} << 20);
  Open();
  {
    FileSpareShelf shelf = Shelf();
    const auto opened = session_->Run(shelf.Open(path));
    ASSERT_FALSE(opened.ok());
    EXPECT_NE(opened.error().message.find("too small"), std::string::npos);
    Turn();
    EXPECT_EQ(session_->open_devices(), 4U);
  }
  Close();
}

TEST_F(SpareShelves, SpareThatCannotBeListedIsClosed) {
  Open();
  dir_.WriteSparse("spare", kSsdBytes);
  dir_.Write("array.toml", "no array");
  {
    FileSpareShelf shelf = Shelf();
    const std::string path = At("spare").string();
    ASSERT_FALSE(session_->Run(shelf.Add(path, Identity(path))).ok());
    EXPECT_TRUE(IsSpareOf(file_, path)) << "it was taken, and marked";
    Turn();
    EXPECT_EQ(session_->open_devices(), 4U);
  }
  Close();
}

// It is not listed any more then: nobody would close it.
TEST_F(SpareShelves, SpareThatCannotBeWipedIsClosedWhenItIsRemoved) {
  Open();
  dir_.WriteSparse("spare", kSsdBytes);
  const std::string path = At("spare").string();
  {
    FileSpareShelf shelf = Shelf();
    ASSERT_TRUE(session_->Run(shelf.Add(path, Identity(path))).ok());
    std::filesystem::resize_file(path, uint64_t{1} << 20);
    const Status removed = session_->Run(shelf.Remove(path));
    ASSERT_FALSE(removed.ok());
    EXPECT_NE(removed.error().message.find("shorter"), std::string::npos);
    EXPECT_TRUE(shelf.Listed().empty());
    Turn();
    EXPECT_EQ(session_->open_devices(), 4U);
  }
  Close();
}

TEST_F(SpareShelves, SpareThatHangsDelaysNoOther) {
  file_.spares = {"hangs", "well"};
  HangingFile hangs(dir_.WriteSparse("hangs", kSsdBytes));
  EPLOG_NEEDS_HANGING(hangs);
  dir_.WriteSparse("well", kSsdBytes);
  Open();
  {
    FileSpareShelf shelf = Shelf();
    std::optional<Result<SpareDevice>> hanging;
    Begin(shelf.Open(At("hangs").string()), hanging);
    EXPECT_TRUE(session_->Run(shelf.Open(At("well").string())).ok());
    EXPECT_FALSE(hanging) << "it was waited for";
    hangs.LetGo();
    WaitFor(hanging);
    EXPECT_TRUE(hanging->ok());
  }
  Close();
}

// As on a file system that hangs: who waits is told, and of several changes that come meanwhile one
// at most is made later.
TEST_F(SpareShelves, ArrayFileThatHangsIsNotWaitedForForEver) {
  Open();
  dir_.WriteSparse("a", kSsdBytes);
  dir_.WriteSparse("b", kSsdBytes);
  {
    FileSpareShelf shelf = Shelf();
    HangingFile hangs(file_.file);
    EPLOG_NEEDS_HANGING(hangs);
    std::optional<Result<SpareDevice>> a;
    std::optional<Result<SpareDevice>> b;
    Begin(shelf.Add(At("a").string(), Identity(At("a"))), a);
    Begin(shelf.Add(At("b").string(), Identity(At("b"))), b);
    WaitFor(a);
    WaitFor(b);
    for (const auto& added : {*a, *b}) {
      ASSERT_FALSE(added.ok());
      EXPECT_EQ(added.error().code, ErrorCode::kDeviceFailed);
      EXPECT_NE(added.error().message.find("array.toml could not be changed within 10 s"),
                std::string::npos)
          << added.error().message;
    }
    Turn();
    EXPECT_EQ(session_->open_devices(), 4U);
    hangs.LetGo();
    auto now = LoadArrayFile(file_.file);
    while (now.ok() && now->spares.empty()) {
      Turn(1000);
      now = LoadArrayFile(file_.file);
    }
    EXPECT_TRUE(session_->Run(shelf.Remove(At("a").string())).ok());
    EXPECT_TRUE(session_->Run(shelf.Remove(At("b").string())).ok());
    EXPECT_EQ(now->spares.size(), 1U);
    EXPECT_TRUE(LoadArrayFile(file_.file)->spares.empty());
  }
  Close();
}

// What is only looked at is not written to, whatever becomes of it.
TEST_F(SpareShelves, BlankSpareIsMarkedWhenItIsPutBack) {
  file_.spares = {"blank"};
  dir_.WriteSparse("blank", kSsdBytes);
  Open();
  {
    FileSpareShelf shelf = Shelf();
    const std::string path = At("blank").string();
    const auto opened = session_->Run(shelf.Open(path));
    ASSERT_TRUE(opened.ok());
    EXPECT_TRUE(opened->wiped);
    EXPECT_EQ(BytesOnDisk(path), 0U);
    ASSERT_TRUE(session_->Run(shelf.PutBack(path)).ok());
    EXPECT_TRUE(IsSpareOf(file_, path));
    const auto again = session_->Run(shelf.Open(path));
    ASSERT_TRUE(again.ok());
    EXPECT_FALSE(again->wiped);
  }
  Close();
}

TEST_F(Sessions, EventsAreNotWrittenWhereAnotherArrayIsByNow) {
  const auto told = [&](const std::string& text) {
    std::ifstream in(EventsPath(file_));
    return std::string(std::istreambuf_iterator<char>(in), {}).find(text) != std::string::npos;
  };
  ArrayEvent event;
  event.text = "the first";
  Open();
  session_->Tell(event);
  Close();
  EXPECT_TRUE(told("the first"));
  Open();
  ArrayFile other = file_;
  other.uuid[0] = other.uuid[0] == 'f' ? 'e' : 'f';
  ASSERT_TRUE(WriteArrayFile(other).ok());
  event.text = "the second";
  session_->Tell(event);
  Close();
  EXPECT_FALSE(told("the second"));
}

TEST_F(SpareShelves, ArrayFileThatCouldNotBeReadIsNotWritten) {
  const std::string before = FormatArrayFile(file_);
  const Status changed =
      ChangeArrayFile(file_, [](ArrayFile& now) { now.spares.emplace_back("ssd1"); });
  EXPECT_FALSE(changed.ok());
  const auto now = LoadArrayFile(file_.file);
  ASSERT_TRUE(now.ok());
  EXPECT_EQ(FormatArrayFile(*now), before);
}

// ------------------------------------------------------------------- files that are made

TEST_F(Sessions, FilesAreMadeInTheDirectoryOfTheArrayUnlessAsked) {
  const TempDir elsewhere;
  EXPECT_TRUE(MadeFile(At("new")).MayMake(file_, false).ok());
  EXPECT_TRUE(MadeFile(At("below") / "new").MayMake(file_, false).ok());
  EXPECT_FALSE(MadeFile(elsewhere.path() / "new").MayMake(file_, false).ok());
  EXPECT_TRUE(MadeFile(elsewhere.path() / "new").MayMake(file_, true).ok());
  EXPECT_FALSE(MadeFile("/dev/loop99").MayMake(file_, true).ok());
  EXPECT_FALSE(MadeFile("/dev/disk/by-id/none").MayMake(file_, true).ok());
  EXPECT_TRUE(MadeFile("/dev/shm/new").MayMake(file_, true).ok());
}

TEST_F(Sessions, FileThatWasMadeForNothingIsRemoved) {
  {
    MadeFile made(At("new"));
    ASSERT_TRUE(made.Make("test", file_, 1 << 20, false).ok());
    EXPECT_TRUE(std::filesystem::exists(At("new")));
  }
  EXPECT_FALSE(std::filesystem::exists(At("new")));
  {
    MadeFile made(At("new"));
    ASSERT_TRUE(made.Make("test", file_, 1 << 20, false).ok());
    made.Keep();
  }
  EXPECT_TRUE(std::filesystem::exists(At("new")));
}

// Else somebody could take it in between, and it would be removed under him.
TEST_F(Sessions, FileThatWasMadeForNothingIsRemovedWhileItIsLocked) {
  const int events = ::inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
  ASSERT_GE(events, 0);
  {
    MadeFile made(At("new"));
    ASSERT_TRUE(made.Make("test", file_, 1 << 20, false).ok());
    ASSERT_GE(::inotify_add_watch(events, At("new").c_str(), IN_ATTRIB | IN_CLOSE_WRITE), 0);
  }
  // Unlocked is what is closed, and an inode tells of its name's removal.
  std::vector<uint32_t> seen;
  inotify_event event{};
  while (::read(events, &event, sizeof(event)) == ssize_t{sizeof(event)}) {
    seen.push_back(event.mask & (IN_ATTRIB | IN_CLOSE_WRITE));
  }
  ::close(events);
  const auto removed = std::find(seen.begin(), seen.end(), uint32_t{IN_ATTRIB});
  ASSERT_NE(removed, seen.end());
  EXPECT_EQ(std::count(seen.begin(), removed, uint32_t{IN_CLOSE_WRITE}), 0);
  EXPECT_EQ(std::count(removed, seen.end(), uint32_t{IN_CLOSE_WRITE}), 1);
}

TEST_F(Sessions, WhatTookTheNameOfAMadeFileIsNotRemoved) {
  dir_.Write("precious", "something");
  {
    MadeFile made(At("new"));
    ASSERT_TRUE(made.Make("test", file_, 1 << 20, false).ok());
    EXPECT_EQ(made.probed().identity == Identity(At("new")), true);
    std::filesystem::rename(At("precious"), At("new"));
  }
  EXPECT_TRUE(std::filesystem::exists(At("new")));
}

}  // namespace
}  // namespace eplog
