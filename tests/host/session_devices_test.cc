// The devices of an open array, and what its owner is asked for: each by itself, whatever becomes
// of the others.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/read_text.h"
#include "host/ask_or_open.h"
#include "tests/host/file_array.h"

namespace eplog {
namespace {

class SessionDevices : public FileArrayTest {
 protected:
  void Serve(const MemberOptions& options = {}) {
    auto session = Open(file_, options);
    ASSERT_TRUE(session.ok()) << session.error().message;
    session_ = std::move(*session);
    Turn();  // what an opening leaves to be done
  }
  Result<Device*> OpenDevice(const std::string& name) {
    const auto identity = IdentifyDevice(At(name));
    EXPECT_TRUE(identity.ok());
    return session_->Run(session_->OpenDevice(At(name).string(), *identity));
  }
  // What waits for a moment is done meanwhile.
  void Turn() {
    const auto sleeping = [](EventLoop& loop) -> Task<Status> {
      co_await loop.Sleep(10'000);
      co_return OkStatus();
    };
    EXPECT_TRUE(session_->Run(sleeping(session_->loop())).ok());
  }
  template <typename Done>
  bool Becomes(Done done) {
    for (int i = 0; i < 3000 && !done(); ++i) {
      Turn();
    }
    return done();
  }
  // One of the copies of the superblock on every member.
  void Damage(size_t copy) const {
    for (const std::string& member : kMembers) {
      std::fstream file(At(member), std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(static_cast<std::streamoff>(kSuperblockCopyOffset[copy]));
      file << std::string(kSuperblockCopyBytes, 'x');
    }
  }

  std::unique_ptr<Session> session_;
};

TEST_F(SessionDevices, ClosingOneLeavesTheOthersOpen) {
  Serve();
  for (const char* name : {"one", "two", "three"}) {
    dir_.WriteSparse(name, kBytes);
  }
  const auto one = OpenDevice("one");
  const auto two = OpenDevice("two");
  const auto three = OpenDevice("three");
  ASSERT_TRUE(one.ok() && two.ok() && three.ok());
  ASSERT_EQ(session_->open_devices(), 7U);
  session_->CloseDevice(**two);
  EXPECT_TRUE(Becomes([&] { return session_->open_devices() < 7; }));
  EXPECT_EQ(session_->open_devices(), 6U);
  for (const auto& [name, open] : {std::pair("one", one), std::pair("three", three)}) {
    const auto again = OpenDevice(name);
    ASSERT_TRUE(again.ok()) << name;
    EXPECT_EQ(*again, *open) << name;
    session_->CloseDevice(**again);
  }
  Turn();
  session_->CloseDevice(**one);
  session_->CloseDevice(**three);
  EXPECT_TRUE(Becomes([&] { return session_->open_devices() == 4; }));
  EXPECT_TRUE(session_->Close().ok());
}

// As an SSD that failed: whoever takes it out may use it for something else at once.
TEST_F(SessionDevices, ALogDeviceThatIsLostIsClosed) {
  Serve();
  ASSERT_TRUE(session_->Run(session_->array().FailDevice(3, "by hand")).ok());
  EXPECT_TRUE(Becomes([&] { return session_->open_devices() == 3; }));
  EXPECT_TRUE(
      Becomes([&] { return FileDevice::Open(session_->loop(), At("log0").string()).ok(); }));
  EXPECT_TRUE(session_->Close().ok());
}

// Spares too: who opened it read array.toml before somebody else changed the list.
TEST_F(SessionDevices, WhatIsListedUnderTheLocksCounts) {
  const ArrayFile read_before = file_;
  dir_.WriteSparse("s", kBytes);
  ASSERT_TRUE(ChangeArrayFile(file_, [&](ArrayFile& now) { now.AddSpare(At("s")); }).ok());
  file_ = read_before;
  Serve();
  EXPECT_EQ(session_->file().spares, std::vector<std::string>{"s"});
  EXPECT_TRUE(session_->Close().ok());
}

// By its own path or by another of its nodes.
TEST_F(SessionDevices, WhatStillHangsIsToldWithTheMend) {
  MemberOptions options;
  options.io_deadline_us = 3'000'000;
  Serve(options);
  Injection hang;
  hang.hang = true;
  ASSERT_TRUE(session_->Inject(At("ssd0").string(), hang).ok());
  const auto volume = session_->Run(session_->array().CreateVolume("v", kBytes / 4));
  ASSERT_TRUE(volume.ok());
  const std::vector<std::byte> content(kBytes / 4, std::byte{1});
  ASSERT_TRUE(session_->Run(session_->array().Write(*volume, 0, content)).ok());
  ASSERT_TRUE(session_->Run(session_->array().FlushAll()).ok());
  ASSERT_EQ(session_->array().GetStatus().devices[0].state, DeviceState::kFailed);
  std::filesystem::copy_file(At("ssd0"), At("node"));
  const std::string mend = "did not answer: unmount, and mount again when it is well";
  for (const char* name : {"ssd0", "node"}) {
    const auto refused = OpenDevice(name);
    ASSERT_FALSE(refused.ok()) << name;
    EXPECT_EQ(refused.error().code, ErrorCode::kBusy) << name;
    const std::string& said = refused.error().message;
    EXPECT_TRUE(said.starts_with(At(name).string())) << said;
    EXPECT_TRUE(said.ends_with(mend)) << said;
  }
  ASSERT_TRUE(session_->Inject("", Injection()).ok());
  EXPECT_TRUE(session_->Close().ok());
}

// As it is when the unmount answers who still asks: nobody takes a copy for it.
TEST_F(SessionDevices, WhatItHeldIsToldAlsoWhenTheArrayIsGone) {
  Serve();
  const DeviceIdentity ssd0 = *IdentifyDevice(At("ssd0"));
  ASSERT_TRUE(session_->Run(session_->array().Close()).ok());
  session_->Release();
  EXPECT_TRUE(session_->Held().empty());
  std::vector<std::string> names;
  for (const HeldMember& member : session_->HeldBefore()) {
    names.push_back(member.name);
    EXPECT_EQ(member.identity == ssd0, member.name == "ssd0") << member.name;
  }
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{"log0", "ssd0", "ssd1", "ssd2"}));
  const Json told = session_->Describe("/mnt/x");
  ASSERT_EQ(told["members"].size(), 4U);
  for (const Json& member : told["members"]) {
    EXPECT_FALSE(member.contains("held")) << member.dump();
    EXPECT_TRUE(member.contains("identity")) << member.dump();
  }
}

// On all of them the one that is written first, or the other.
TEST_F(SessionDevices, ASuperblockIsReadFromEitherCopy) {
  Serve();
  EXPECT_TRUE(session_->Close().ok());
  Serve();  // each opening leaves its mark: both are there
  Damage(0);
  const auto second = session_->Run(session_->AnyMember());
  ASSERT_TRUE(second.ok()) << second.error().message;
  EXPECT_EQ(UuidToString(second->array_uuid), file_.uuid);
  EXPECT_FALSE(second->is_spare());
  Damage(1);
  const auto none = session_->Run(session_->AnyMember());
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(none.error().message, "no superblock can be read");
  session_.reset();
}

TEST_F(SessionDevices, AScrubBeginsAnewOnlyWhereItWasToldTo) {
  const std::string mark = Json({{"uuid", file_.uuid},
                                 {"heal", true},
                                 {"next_stripe", 5},
                                 {"problems_found", 0},
                                 {"healed", 0},
                                 {"lost", 0}})
                               .dump();
  const auto path = dir_.Write("scrub.json", mark);
  Serve();
  EXPECT_TRUE(session_->Close().ok());
  session_.reset();
  EXPECT_EQ(ReadText(path), mark) << "nobody said so";
  Serve();
  session_->ForgetScrubMark();
  EXPECT_TRUE(session_->Close().ok());
  session_.reset();
  EXPECT_FALSE(std::filesystem::exists(path));
}

// A change that may not be on the devices is none, whatever was said of it before.
TEST_F(SessionDevices, WhatCouldNotBeClosedWasNotDone) {
  const Json request = {{"verb", "v"}};
  Injection gone;
  gone.drop = true;
  const auto lose_all = [&](Session& session) {
    EXPECT_TRUE(session.Inject("", gone).ok());
    EXPECT_FALSE(session.Run(session.array().CreateVolume("v", kBytes / 4)).ok());
  };
  const auto done = AskOrOpen("test", file_, request, [&](Session& session) -> Result<Json> {
    lose_all(session);
    return Json("done");
  });
  EXPECT_FALSE(done.ok());
  const auto refused = AskOrOpen("test", file_, request, [&](Session& session) -> Result<Json> {
    lose_all(session);
    return Fail(ErrorCode::kExists, "no");
  });
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message, "no") << "what came first";
  const auto well =
      AskOrOpen("test", file_, request, [](Session&) -> Result<Json> { return Json("done"); });
  ASSERT_TRUE(well.ok()) << well.error().message;
  EXPECT_EQ(*well, "done");
}

}  // namespace
}  // namespace eplog
