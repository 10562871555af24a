// Members that were put back from an older copy of themselves: they bear an epoch that calls them
// live, or even the one that counts, and lack what was written since (P6).
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "eplog/examine.h"
#include "format/superblock.h"
#include "tests/engine/small_array.h"

namespace eplog {
namespace {

constexpr uint64_t kChunk = 4096;
constexpr uint32_t kSsdCount = 6;
constexpr uint32_t kParity = 2;
constexpr uint32_t kDevices = kSsdCount + kParity;
constexpr uint64_t kStripe = (kSsdCount - kParity) * kChunk;
constexpr uint64_t kChunks = 240;
constexpr uint64_t kSize = kChunks * kChunk;

using Images = std::vector<std::vector<std::byte>>;
using Set = std::set<uint32_t>;

Set AllBut(const Set& others) {
  Set set;
  for (uint32_t i = 0; i < kDevices; ++i) {
    if (!others.contains(i)) {
      set.insert(i);
    }
  }
  return set;
}

std::string NameOf(uint32_t i) {
  return i < kSsdCount ? "ssd" + std::to_string(i) : "log" + std::to_string(i - kSsdCount);
}

class OlderCopy : public ::testing::Test {
 protected:
  void SetUp() override {
    ArrayShape shape;
    shape.n = kSsdCount;
    shape.m = kParity;
    shape.ssd_bytes = uint64_t{4} << 20;
    shape.log_bytes = uint64_t{2} << 20;
    shape.ssd_delays = kSsdDelays;
    shape.log_delays = kLogDelays;
    test_ = std::make_unique<SmallArray>(shape);
    volume_ = test_->CreateVolume("v", kSize);
    model_.assign(kSize, std::byte{0});
    Write(0, 40 * kStripe);
    Update(20);
  }
  void Write(uint64_t offset, uint64_t length) {
    const std::vector<std::byte> data = RandomBytes(random_, length);
    ASSERT_TRUE(test_->Write(volume_, offset, data).ok());
    std::copy(data.begin(), data.end(), model_.begin() + static_cast<std::ptrdiff_t>(offset));
  }
  void Update(uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) {
      Write(random_.Below(kChunks) * kChunk, kChunk);
    }
    Flush();
  }
  void Flush() { ASSERT_TRUE(test_->Flush().ok()); }
  void Checkpoint() {
    ASSERT_TRUE(RunTask(test_->loop, test_->array->Checkpoint(CheckpointKind::kAuto)).ok());
  }
  Images Copy() {
    Images images;
    for (uint32_t i = 0; i < kDevices; ++i) {
      const auto bytes = test_->memory(i).bytes();
      images.emplace_back(bytes.begin(), bytes.end());
    }
    return images;
  }
  void PutBack(const Images& images, const Set& which) {
    for (const uint32_t i : which) {
      std::copy(images[i].begin(), images[i].end(), test_->memory(i).bytes().begin());
    }
  }
  std::vector<Device*> Without(const Set& without) {
    std::vector<Device*> devices;
    for (uint32_t i = 0; i < kDevices; ++i) {
      if (!without.contains(i)) {
        devices.push_back(test_->Devices()[i]);
      }
    }
    return devices;
  }
  Result<std::unique_ptr<Array>> Open(bool read_only, bool force = false, const Set& without = {}) {
    OpenOptions options;
    options.entropy = ++lives_ + 1000;
    options.read_only = read_only;
    options.force = force;
    return RunTask(test_->loop, Array::Open(test_->loop, Without(without), options));
  }
  void Adopt(Result<std::unique_ptr<Array>> opened) {
    ASSERT_TRUE(opened.ok()) << opened.error().ToString();
    test_->array = std::move(*opened);
  }
  DeviceStatus Shown(uint32_t device) { return test_->array->GetStatus().devices[device]; }
  void ExpectContent(const std::vector<std::byte>& model) {
    EXPECT_TRUE(test_->Read(volume_, 0, kSize) == model);
  }
  // Left out by name; and when the array is mended again, everything is on them.
  void ExpectLeftOutAndTakenBack(const Set& old) {
    for (const uint32_t i : old) {
      EXPECT_EQ(Shown(i).state, DeviceState::kFailed);
      EXPECT_NE(Shown(i).failed_because.find("older copy"), std::string::npos)
          << Shown(i).failed_because;
    }
    EXPECT_EQ(test_->array->GetStatus().state, ArrayState::kDegraded);
    ExpectContent(model_);
    Update(10);
    ASSERT_TRUE(test_->Close().ok());
    ASSERT_NO_FATAL_FAILURE(Adopt(Open(false)));
    ExpectContent(model_);
    for (int i = 0; i < 200 && test_->array->GetStatus().state == ArrayState::kRebuilding; ++i) {
      test_->Sleep(100'000);
    }
    const auto report = RunTask(test_->loop, test_->array->Check(Progress()));
    ASSERT_TRUE(report.ok());
    EXPECT_EQ(report->problems_found, 0U) << report->findings.front().Text();
    ASSERT_TRUE(test_->Close().ok());
    // What they have now is needed where two others are missing.
    Set others = AllBut(old);
    while (others.size() > kParity) {
      others.erase(std::prev(others.end()));
    }
    ASSERT_NO_FATAL_FAILURE(Adopt(Open(true, false, others)));
    ExpectContent(model_);
    ASSERT_TRUE(test_->Close().ok());
  }
  // Nothing old passes for what was written last: it is listed, or the end of the log is named.
  void ExpectNothingSilentlyOld(Array& array) {
    const auto report = RunTask(test_->loop, array.FindLost());
    ASSERT_TRUE(report.ok());
    EXPECT_FALSE(array.GetStatus().stopped_because.empty());
    for (uint64_t i = 0; i < kChunks && report->log_damage.empty(); ++i) {
      Buffer buffer = test_->pool.Get(kChunk);
      const Status read = RunTask(test_->loop, array.Read(volume_, i * kChunk, buffer.span()));
      EXPECT_TRUE(!read.ok() ||
                  std::equal(buffer.data(), buffer.data() + kChunk,
                             model_.begin() + static_cast<std::ptrdiff_t>(i * kChunk)))
          << i;
    }
  }

  Random random_{23};
  std::unique_ptr<SmallArray> test_;
  VolumeId volume_;
  std::vector<std::byte> model_;
  uint64_t lives_ = 0;
};

TEST_F(OlderCopy, OfUpToMMembersIsLeftOutByNameAndTakenBack) {
  ASSERT_TRUE(test_->Close().ok());
  const Images old = Copy();
  test_->Open();
  Update(60);
  ASSERT_TRUE(test_->Close().ok());
  const Images now = Copy();
  const auto model = model_;
  for (const Set& which : {Set{0}, Set{6}, Set{6, 7}, Set{0, 3}, Set{2, 7}}) {
    SCOPED_TRACE(NameOf(*which.begin()) + " " + NameOf(*which.rbegin()));
    for (const bool killed : {false, true}) {
      PutBack(now, AllBut({}));
      model_ = model;
      test_->Open();
      Update(30);
      if (killed) {
        test_->Kill();
      } else {
        ASSERT_TRUE(test_->Close().ok());
      }
      PutBack(old, which);
      const Examination found = RunTask(test_->loop,
                                        [](auto devices) -> Task<Result<Examination>> {
                                          Task<Examination> examining = ExamineDevices(devices);
                                          co_return co_await examining;
                                        }(Without({})))
                                    .value();
      for (uint32_t i = 0; i < kDevices; ++i) {
        EXPECT_EQ(found.devices[i].verdict,
                  which.contains(i) ? MemberVerdict::kStale : MemberVerdict::kPart)
            << found.devices[i].why;
      }
      ASSERT_NO_FATAL_FAILURE(Adopt(Open(true)));
      ExpectContent(model_);
      ASSERT_TRUE(test_->Close().ok());
      ASSERT_NO_FATAL_FAILURE(Adopt(Open(false)));
      ExpectLeftOutAndTakenBack(which);
    }
  }
}

// Each from another time; one of them was lost in between, and is live again.
TEST_F(OlderCopy, OfDifferentTimes) {
  ASSERT_TRUE(test_->Close().ok());
  const Images first = Copy();
  ASSERT_NO_FATAL_FAILURE(Adopt(Open(false, false, {1})));
  Update(20);
  ASSERT_TRUE(test_->Close().ok());
  const Images second = Copy();
  ASSERT_NO_FATAL_FAILURE(Adopt(Open(false)));
  for (int i = 0; i < 200 && test_->array->GetStatus().state == ArrayState::kRebuilding; ++i) {
    test_->Sleep(100'000);
  }
  ASSERT_EQ(Shown(1).state, DeviceState::kOk);
  Update(20);
  ASSERT_TRUE(test_->Close().ok());
  PutBack(first, {4});
  PutBack(second, {1});
  ASSERT_NO_FATAL_FAILURE(Adopt(Open(false)));
  ExpectLeftOutAndTakenBack({1, 4});
}

// More than m: what was written last may be on just these. Nobody goes back in time unasked.
TEST_F(OlderCopy, OfMoreThanMIsRefusedAndForceTellsWhatIsLost) {
  ASSERT_TRUE(test_->Close().ok());
  const Images old = Copy();
  const auto old_model = model_;
  test_->Open();
  Update(60);
  ASSERT_TRUE(test_->Close().ok());
  const Images now = Copy();
  for (const Set& which : {Set{0, 1, 2}, Set{0, 6, 7}, AllBut({3}), AllBut({6}), AllBut({2, 7}),
                           AllBut({0, 1, 2, 3}), AllBut({3, 5, 6})}) {
    PutBack(now, AllBut({}));
    PutBack(old, which);
    SCOPED_TRACE(NameOf(*AllBut(which).begin()) + " and " +
                 std::to_string(kDevices - which.size() - 1) + " are new");
    for (const bool read_only : {true, false}) {
      const auto refused = Open(read_only);
      ASSERT_FALSE(refused.ok());
      EXPECT_EQ(refused.error().code, ErrorCode::kTooManyFailures) << refused.error().ToString();
      for (const uint32_t i : which) {
        EXPECT_NE(refused.error().message.find(NameOf(i) + " (stale: "), std::string::npos)
            << refused.error().message;
      }
      // The few that are newer, in whose absence the others are one array.
      const bool may_go_back = kDevices - which.size() <= kParity;
      EXPECT_EQ(refused.error().message.find("leave out " + NameOf(*AllBut(which).begin())) !=
                    std::string::npos,
                may_go_back)
          << refused.error().message;
    }
    auto forced = Open(true, true);
    ASSERT_TRUE(forced.ok()) << forced.error().ToString();
    ExpectNothingSilentlyOld(**forced);
    EXPECT_TRUE(RunTask(test_->loop, (*forced)->Close()).ok());
    if (kDevices - which.size() <= kParity) {
      ASSERT_NO_FATAL_FAILURE(Adopt(Open(false, false, AllBut(which))));
      ExpectContent(old_model);
      ASSERT_TRUE(test_->Close().ok());
    }
  }
}

// Copied while the array was at work: of the epoch that counts. Two checkpoints tell it.
TEST_F(OlderCopy, OfTheSameEpochIsToldByTheCheckpointThatItNames) {
  for (const uint32_t which : {1U, 6U}) {
    for (const bool killed : {false, true}) {
      SetUp();
      const Images old = Copy();
      for (int i = 0; i < 2; ++i) {
        Update(30);
        Checkpoint();
      }
      Update(5);
      if (killed) {
        test_->Kill();
      } else {
        ASSERT_TRUE(test_->Close().ok());
      }
      PutBack(old, {which});
      ASSERT_NO_FATAL_FAILURE(Adopt(Open(false)));
      ExpectLeftOutAndTakenBack({which});
    }
  }
}

// One checkpoint behind is what a crash may leave: then checksums catch what it lacks.
TEST_F(OlderCopy, OfTheSameEpochThatCannotBeToldIsDecoded) {
  for (const Set& which : {Set{1}, Set{6}, Set{1, 4}, Set{1, 6}, Set{6, 7}}) {
    for (const uint32_t checkpoints : {0U, 1U}) {
      for (const bool killed : {false, true}) {
        SetUp();
        const Images old = Copy();
        Update(30);
        if (checkpoints != 0) {
          Checkpoint();
          Update(killed ? 10 : 0);
        }
        if (killed) {
          test_->Kill();
        } else {
          ASSERT_TRUE(test_->Close().ok());
        }
        PutBack(old, which);
        ASSERT_NO_FATAL_FAILURE(Adopt(Open(true)));
        ExpectContent(model_);
        ASSERT_TRUE(test_->Close().ok());
        ASSERT_NO_FATAL_FAILURE(Adopt(Open(false)));
        ExpectContent(model_);
        ASSERT_TRUE(test_->Close().ok());
      }
    }
  }
}

// All but one are older copies, of an epoch that called that one lost: among each other they agree.
// What was written since is on the one that is newer, and nobody forgets that unasked.
TEST_F(OlderCopy, OfAllThatHadLostTheNewerOneIsRefused) {
  ASSERT_TRUE(test_->Close().ok());
  ASSERT_NO_FATAL_FAILURE(Adopt(Open(false, false, {1})));
  Update(10);
  ASSERT_TRUE(test_->Close().ok());
  const Images old = Copy();
  const auto old_model = model_;
  ASSERT_NO_FATAL_FAILURE(Adopt(Open(false)));  // ssd1 is taken back
  test_->Sleep(60'000'000);
  ASSERT_EQ(Shown(1).state, DeviceState::kOk);
  Update(20);
  ASSERT_TRUE(test_->Close().ok());
  PutBack(old, AllBut({1}));
  const auto refused = Open(false);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("leave out ssd1"), std::string::npos)
      << refused.error().message;
  // That is what it says.
  ASSERT_NO_FATAL_FAILURE(Adopt(Open(false, false, {1})));
  ExpectContent(old_model);
  ASSERT_TRUE(test_->Close().ok());
}

// A log is not wiped when its device joins: what stands there of a later time than the others know
// must not pass for what they have lost.
TEST_F(OlderCopy, ANewerLogDeviceJoinsThoseThatWentBack) {
  ASSERT_TRUE(test_->Close().ok());
  const Images old = Copy();
  const auto old_model = model_;
  for (int i = 0; i < 6; ++i) {
    test_->Open();
    Update(20);
    ASSERT_TRUE(test_->Close().ok());
  }
  PutBack(old, AllBut({6}));
  model_ = old_model;
  EXPECT_FALSE(Open(false).ok()) << "nobody goes back unasked";
  ASSERT_NO_FATAL_FAILURE(Adopt(Open(false, false, {6})));
  Update(3);
  ASSERT_TRUE(test_->ReplaceByItself(6).ok());
  for (int i = 0; i < 3; ++i) {
    Update(3);
    if (i == 1) {
      test_->Kill();
    } else {
      ASSERT_TRUE(test_->Close().ok());
    }
    ASSERT_NO_FATAL_FAILURE(Adopt(Open(false)));
    ExpectContent(model_);
  }
  ASSERT_TRUE(test_->Close().ok());
}

// A crash while a checkpoint was being named, and then the newer of a device's superblocks reads as
// zeros: it may have named the newest.
TEST_F(OlderCopy, ASuperblockOfZerosMakesNoOlderDevice) {
  Update(5);
  Checkpoint();
  Update(5);
  Checkpoint();
  const Images before = Copy();
  Update(5);
  Checkpoint();
  test_->Kill();
  const auto bytes = test_->memory(1).bytes();
  uint64_t newest = 0;
  uint64_t newest_at = 0;
  for (const uint64_t at : kSuperblockCopyOffset) {
    std::copy_n(before[1].begin() + static_cast<std::ptrdiff_t>(at), kSuperblockCopyBytes,
                bytes.begin() + static_cast<std::ptrdiff_t>(at));
    const auto superblock = DecodeSuperblock(bytes.subspan(at, kSuperblockCopyBytes));
    ASSERT_TRUE(superblock.ok());
    newest_at = superblock->generation > newest ? at : newest_at;
    newest = std::max(newest, superblock->generation);
  }
  std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(newest_at), kSuperblockCopyBytes,
              std::byte{0});
  ASSERT_NO_FATAL_FAILURE(Adopt(Open(false, false, {0, 2})));
  ExpectContent(model_);
  ASSERT_TRUE(test_->Close().ok());
}

}  // namespace
}  // namespace eplog
