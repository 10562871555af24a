// What a spare bears, and what becomes of what array.toml lists when it is taken from the list.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/read_text.h"
#include "host/file_spare_shelf.h"
#include "tests/host/file_array.h"

namespace eplog {
namespace {

class SpareMarks : public FileArrayTest {
 protected:
  void Serve() {
    auto session = Open(file_);
    ASSERT_TRUE(session.ok()) << session.error().message;
    session_ = std::move(*session);
  }
  void Close() {
    EXPECT_TRUE(session_->Close().ok());
    session_.reset();
  }
  // Of these spares.
  FileSpareShelf Shelf(const std::vector<std::string>& spares = {}) {
    ArrayFile file = file_;
    file.spares = spares;
    auto member = session_->Run(session_->AnyMember());
    EXPECT_TRUE(member.ok());
    return {*session_, std::move(file), std::move(*member)};
  }
  [[nodiscard]] uint64_t BytesOnDiskOf(const std::string& name) const {
    struct stat info {};
    EXPECT_EQ(::stat(At(name).c_str(), &info), 0);
    return static_cast<uint64_t>(info.st_blocks) * 512;
  }

  std::unique_ptr<Session> session_;
};

bool IsDash(size_t at) {
  return at == 8 || at == 13 || at == 18 || at == 23;
}

// Version 4, variant 1, and no other digit is always the same, or the same as another.
void ExpectAllAtRandom(const std::set<std::string>& uuids) {
  constexpr size_t kDigits = 36;
  constexpr size_t kVersion = 14;
  constexpr size_t kVariant = 19;
  for (size_t at = 0; at < kDigits; ++at) {
    std::set<char> digits;
    for (const std::string& uuid : uuids) {
      ASSERT_EQ(uuid.size(), kDigits);
      digits.insert(uuid[at]);
    }
    if (IsDash(at) || at == kVersion) {
      EXPECT_EQ(digits, std::set<char>{IsDash(at) ? '-' : '4'}) << at;
      continue;
    }
    EXPECT_GT(digits.size(), 1U) << at;
    if (at == kVariant) {
      const std::string all(digits.begin(), digits.end());
      EXPECT_EQ(all.find_first_not_of("89ab"), std::string::npos) << all;
    }
    for (size_t other = 0; other < at; ++other) {
      const auto same = [&](const std::string& uuid) { return uuid[at] == uuid[other]; };
      EXPECT_FALSE(std::all_of(uuids.begin(), uuids.end(), same)) << at << " and " << other;
    }
  }
}

// Two devices must not be taken for one.
TEST_F(SpareMarks, HaveRandomUuids) {
  constexpr size_t kRounds = 16;
  Serve();
  {
    FileSpareShelf shelf = Shelf();
    const std::string path = dir_.WriteSparse("s", kBytes);
    ASSERT_TRUE(session_->Run(shelf.Add(path, *IdentifyDevice(path))).ok());
    std::set<std::string> uuids;
    for (size_t round = 0; round < kRounds; ++round) {
      ASSERT_TRUE(session_->Run(shelf.PutBack(path)).ok());
      const auto spare = ReadSuperblock(path);
      ASSERT_TRUE(spare.ok());
      uuids.insert(UuidToString(spare->device_uuid));
    }
    EXPECT_EQ(uuids.size(), kRounds);
    ExpectAllAtRandom(uuids);
  }
  Close();
}

// It is somebody's by now, or nothing: there is no spare to be wiped.
TEST_F(SpareMarks, WhatIsListedAndIsNoneIsOnlyTakenFromTheList) {
  file_.spares = {"data", "blank", "gone"};
  const std::string data(size_t{1} << 20, 'x');
  dir_.Write("data", data);
  dir_.WriteSparse("blank", kBytes);
  ASSERT_TRUE(WriteArrayFile(file_).ok());
  Serve();
  {
    FileSpareShelf shelf = Shelf(file_.spares);
    ASSERT_EQ(shelf.Listed().size(), 3U);
    for (const std::string& spare : file_.spares) {
      const Status removed = session_->Run(shelf.Remove(At(spare)));
      EXPECT_TRUE(removed.ok()) << removed.error().ToString();
    }
    EXPECT_TRUE(shelf.Listed().empty());
    EXPECT_TRUE(LoadArrayFile(file_.file)->spares.empty());
    EXPECT_EQ(ReadText(At("data")) == data, true) << "it was written to";
    EXPECT_EQ(BytesOnDiskOf("blank"), 0U) << "it was written to";
    EXPECT_EQ(session_->open_devices(), 4U);
  }
  Close();
}

// It was taken from the list by hand: it is one still, and nobody else would take its mark away.
TEST_F(SpareMarks, WhatIsOneAndIsNotListedIsWipedAllTheSame) {
  Serve();
  const std::string path = dir_.WriteSparse("s", kBytes);
  {
    FileSpareShelf shelf = Shelf();
    ASSERT_TRUE(session_->Run(shelf.Add(path, *IdentifyDevice(path))).ok());
    shelf.Close(path);
  }
  ASSERT_TRUE(IsSpareOf(file_, path));
  {
    FileSpareShelf shelf = Shelf();
    EXPECT_TRUE(shelf.Listed().empty());
    const Status removed = session_->Run(shelf.Remove(path));
    EXPECT_TRUE(removed.ok()) << removed.error().ToString();
  }
  EXPECT_FALSE(IsSpareOf(file_, path));
  EXPECT_EQ(ReadSuperblock(path).error().code, ErrorCode::kNotFound) << "neither copy is left";
  Close();
}

// As one that was cut off: whoever wiped it meant it to step in.
TEST_F(SpareMarks, WhatIsBlankIsShownAsOneThatWillStepIn) {
  file_.spares = {"blank", "data"};
  dir_.WriteSparse("blank", kBytes);
  dir_.Write("data", "something");
  const auto shown = LookAtSpares(file_);
  ASSERT_EQ(shown.size(), 2U);
  EXPECT_EQ(shown[0].state, DeviceState::kOk) << "it is made one when the array is mounted";
  EXPECT_EQ(shown[0].failed_because, "");
  EXPECT_EQ(shown[0].size_bytes, kBytes);
  EXPECT_EQ(shown[1].state, DeviceState::kMissing);
}

}  // namespace
}  // namespace eplog
