// Another node of a device, which has another identity: what lies there is looked at on the device
// itself before it is overwritten. A copy of a member, made while it is open, stands for it.
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/read_text.h"
#include "host/file_spare_shelf.h"
#include "host/plan_change.h"
#include "report/plan_json.h"
#include "tests/host/file_array.h"

namespace eplog {
namespace {

class OtherNodes : public FileArrayTest {
 protected:
  void Serve(const MemberOptions& options = {}) {
    auto session = Open(file_, options);
    ASSERT_TRUE(session.ok()) << session.error().message;
    session_ = std::move(*session);
  }
  Array& array() { return session_->array(); }
  static DeviceIdentity Identity(const std::filesystem::path& path) {
    const auto identity = IdentifyDevice(path);
    EXPECT_TRUE(identity.ok());
    return identity.ok() ? *identity : DeviceIdentity();
  }
  Result<Device*> OpenDevice(const std::string& name) {
    return session_->Run(session_->OpenDevice(At(name).string(), Identity(At(name))));
  }
  // Every member is asked something.
  void Fill() {
    const auto volume = session_->Run(array().CreateVolume("v", kBytes / 4));
    ASSERT_TRUE(volume.ok());
    const std::vector<std::byte> content(kBytes / 4, std::byte{1});
    ASSERT_TRUE(session_->Run(array().Write(*volume, 0, content)).ok());
    ASSERT_TRUE(session_->Run(array().FlushAll()).ok());
  }
  // Its first SSD, which is lost by that.
  void ServeOneThatHangs() {
    MemberOptions options;
    options.io_deadline_us = 3'000'000;
    Serve(options);
    Injection hang;
    hang.hang = true;
    ASSERT_TRUE(session_->Inject(At("ssd0").string(), hang).ok());
    Fill();
    ASSERT_EQ(array().GetStatus().devices[0].state, DeviceState::kFailed);
  }
  FileSpareShelf Shelf() {
    return {*session_, session_->file(), *session_->Run(session_->AnyMember())};
  }

  std::unique_ptr<Session> session_;
};

// A member that is being rebuilt looks like a spare that was cut off when it stepped in.
TEST_F(OtherNodes, OfAMemberThatIsBeingRebuiltAreNotMadeSpareAgain) {
  Serve();
  Fill();
  ASSERT_TRUE(session_->Run(array().FailDevice(0, "by hand")).ok());
  array().SetRebuildPace({.yields = false, .bytes_per_second = 1});
  dir_.WriteSparse("new", kBytes);
  const auto fresh = OpenDevice("new");
  ASSERT_TRUE(fresh.ok());
  ASSERT_TRUE(session_->Run(array().ReplaceDevice(0, **fresh)).ok());
  ASSERT_EQ(array().GetStatus().devices[0].state, DeviceState::kRebuilding);
  std::filesystem::copy_file(At("new"), At("node"));
  const std::string bytes = ReadText(At("node"));
  {
    FileSpareShelf shelf = Shelf();
    const std::string path = At("node").string();
    const auto opened = session_->Run(shelf.Open(path));
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    EXPECT_TRUE(opened->wiped) << "it is taken for one that was cut off";
    const Status marked = session_->Run(shelf.PutBack(path));
    ASSERT_FALSE(marked.ok());
    EXPECT_EQ(marked.error().code, ErrorCode::kExists);
    shelf.Close(path);
  }
  EXPECT_EQ(ReadText(At("node")), bytes) << "a refusal wrote";
  session_->CloseDevice(**fresh);
  EXPECT_TRUE(session_->Close().ok());
}

// A dry run sees what the replacing would see.
TEST_F(OtherNodes, OfAMemberInUseAreNotPlanned) {
  Serve();
  Fill();
  ASSERT_TRUE(session_->Run(array().FailDevice(0, "by hand")).ok());
  std::filesystem::copy_file(At("ssd1"), At("node"));
  dir_.WriteSparse("new", kBytes);
  const auto plan = [&](const std::string& name, const DeviceIdentity& identity) {
    const Json request = {{"change", "replace"},
                          {"device", 0U},
                          {"path", At(name).string()},
                          {"size_bytes", kBytes},
                          {"identity", IdentityToJson(identity)}};
    return session_->Run(PlanWithDevices(*session_, array(), request));
  };
  const auto refused = plan("node", Identity(At("node")));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kExists);
  const auto planned = plan("new", Identity(At("new")));
  EXPECT_TRUE(planned.ok()) << planned.error().message;
  EXPECT_TRUE(plan("not there yet", DeviceIdentity()).ok());
  EXPECT_EQ(array().GetStatus().devices[0].state, DeviceState::kFailed);
}

// What it was asked before it hung may still be carried out.
TEST_F(OtherNodes, OfAMemberThatHangsAreNotTaken) {
  ServeOneThatHangs();
  std::filesystem::copy_file(At("ssd0"), At("node"));
  const auto refused = OpenDevice("node");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kBusy);
  EXPECT_NE(refused.error().message.find("is ssd0 by another path"), std::string::npos)
      << refused.error().message;
  std::filesystem::copy_file(At("ssd1"), At("another"));  // nobody whose requests are on their way
  EXPECT_TRUE(OpenDevice("another").ok());
  ASSERT_TRUE(session_->Inject("", Injection()).ok());  // they fail
  const auto then = OpenDevice("node");
  EXPECT_TRUE(then.ok()) << then.error().message;
  EXPECT_TRUE(session_->Close().ok());
}

// What hangs is compared with what was opened, which takes a while: the array may be gone by then.
TEST_F(OtherNodes, AreNotTakenWhenTheArrayIsGoneOnceTheyWereComparedWithWhatHangs) {
  ServeOneThatHangs();
  ASSERT_TRUE(session_->Run(array().Close()).ok());
  dir_.WriteSparse("new", kBytes);
  const size_t open = session_->open_devices();
  std::optional<Result<Device*>> opening;
  const auto begin = [](Task<Result<Device*>> task,
                        std::optional<Result<Device*>>* into) -> Task<void> {
    into->emplace(co_await task);
  };
  session_->loop().Start(
      begin(session_->OpenDevice(At("new").string(), Identity(At("new"))), &opening));
  ASSERT_TRUE(session_->loop().RunUntil([&] { return session_->open_devices() > open; }));
  ASSERT_FALSE(opening) << "it is not compared";
  session_->Release();
  ASSERT_TRUE(session_->loop().RunUntil([&] { return opening.has_value(); }));
  ASSERT_FALSE(opening->ok());
  EXPECT_EQ(opening->error().code, ErrorCode::kShutdown);
  EXPECT_NE(opening->error().message.find("is not taken"), std::string::npos)
      << opening->error().message;
}

}  // namespace
}  // namespace eplog
