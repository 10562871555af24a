// A spare that was stepping in when the array was killed, and that array.toml still lists as one: who
// mounts without it has it left alone, also by what looks after spares.
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/read_text.h"
#include "host/device_content.h"
#include "host/file_spare_shelf.h"
#include "tests/host/file_array.h"

namespace eplog {
namespace {

class LeftOutSpares : public FileArrayTest {
 protected:
  void SetUp() override {
    FileArrayTest::SetUp();
    if (IsSkipped()) {
      return;
    }
    JoinAndDie();
    ASSERT_EQ(IdentifySpare(file_.uuid, At("s")).kind, SpareKind::kCutOff);
    ASSERT_EQ(ReadSuperblock(At("s"))->DeviceName(), "ssd1");
    before_ = ReadText(At("s"));
  }
  // "s" steps in for ssd1, array.toml is not written, and the process ends before it is rebuilt.
  void JoinAndDie() {
    Serve({});
    Array& array = session_->array();
    const auto volume = session_->Run(array.CreateVolume("v", 1 << 20));
    ASSERT_TRUE(volume.ok());
    const std::vector<std::byte> content(1 << 20, std::byte{7});
    ASSERT_TRUE(session_->Run(array.Write(*volume, 0, content)).ok());
    ASSERT_TRUE(session_->Run(array.FailDevice(1, "by hand")).ok());
    const std::string path = dir_.WriteSparse("s", kBytes);
    auto device = session_->Run(session_->OpenDevice(path, *IdentifyDevice(path)));
    ASSERT_TRUE(device.ok()) << device.error().message;
    ASSERT_TRUE(session_->Run(array.ReplaceDevice(1, **device)).ok());
    session_.reset();
    file_.spares = {"s", "other"};
    ASSERT_TRUE(WriteArrayFile(file_).ok());
  }
  void Serve(const std::vector<std::string>& without) {
    MemberOptions options;
    options.without = without;
    auto session = Open(file_, options);
    ASSERT_TRUE(session.ok()) << session.error().message;
    session_ = std::move(*session);
  }
  // As mount does it.
  FileSpareShelf Shelf() {
    auto member = session_->Run(session_->AnyMember());
    EXPECT_TRUE(member.ok());
    return {*session_, session_->file(), std::move(*member)};
  }
  void Close() {
    EXPECT_TRUE(session_->Close().ok());
    session_.reset();
  }
  void ExpectLeftAlone(const std::string& without) {
    Serve({without});
    {
      FileSpareShelf shelf = Shelf();
      EXPECT_EQ(shelf.Listed(), std::vector<std::string>{At("other")});
      // array.toml is read anew, and lists it still.
      const std::string third = dir_.WriteSparse("third", kBytes);
      ASSERT_TRUE(session_->Run(shelf.Add(third, *IdentifyDevice(third))).ok());
      EXPECT_EQ(shelf.Listed(), (std::vector<std::string>{At("other"), third}));
      EXPECT_TRUE(LoadArrayFile(file_.file)->ListsSpare(At("s"))) << "it is not forgotten";
    }
    Close();
    EXPECT_EQ(ReadText(At("s")) == before_, true) << "it was written to";
  }

  std::unique_ptr<Session> session_;
  std::string before_;
};

TEST_F(LeftOutSpares, AsToldByPathItIsNoSpareEither) {
  ExpectLeftAlone(At("s"));
}

TEST_F(LeftOutSpares, AsToldByNameItIsNoSpareEither) {
  ExpectLeftAlone("ssd1");
}

// The array has gone on without it since: what array.toml lists is that member again, and "s" only
// says so of itself.
TEST_F(LeftOutSpares, AsToldByTheNameOfOneThatWasCutOffItIsNoSpareEither) {
  Serve({At("s").string()});
  {
    Array& array = session_->array();
    const std::string path = dir_.WriteSparse("new", kBytes);
    auto device = session_->Run(session_->OpenDevice(path, *IdentifyDevice(path)));
    ASSERT_TRUE(device.ok()) << device.error().message;
    ASSERT_TRUE(session_->Run(array.ReplaceDevice(1, **device)).ok());
  }
  Close();
  file_.MoveMember("ssd1", At("new"));
  ASSERT_TRUE(WriteArrayFile(file_).ok());
  ASSERT_LT(ReadSuperblock(At("s"))->epoch, ReadSuperblock(At("new"))->epoch);
  ExpectLeftAlone("ssd1");
}

TEST_F(LeftOutSpares, SeveralMayBeNamedEachInItsWay) {
  Serve({"ssd1", At("other").string()});
  EXPECT_TRUE(Shelf().Listed().empty());
  Close();
}

// What somebody asks for since is done.
TEST_F(LeftOutSpares, ByHandItMayBeMadeASpareAgain) {
  Serve({At("s")});
  {
    FileSpareShelf shelf = Shelf();
    ASSERT_TRUE(session_->Run(shelf.Add(At("s"), *IdentifyDevice(At("s")))).ok());
    EXPECT_EQ(shelf.Listed(), (std::vector<std::string>{At("s"), At("other")}));
  }
  EXPECT_TRUE(IsSpareOf(file_, At("s")));
  Close();
}

}  // namespace
}  // namespace eplog
