// By force the newest that can be opened is shown, and why it is not the newest that there was: an
// older checkpoint, or an older epoch without those that bear a newer one.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "eplog/report.h"
#include "format/superblock.h"
#include "tests/engine/small_array.h"

namespace eplog {
namespace {

constexpr uint64_t kChunk = 4096;
constexpr uint32_t kSsdCount = 4;
constexpr uint32_t kDevices = kSsdCount + 1;
constexpr uint64_t kSize = 60 * kChunk;

using Bytes = std::vector<std::byte>;

class OlderLife : public ::testing::Test {
 protected:
  void Write(uint64_t offset, uint64_t length) {
    const Bytes data = RandomBytes(random_, length);
    ASSERT_TRUE(test_.Write(volume_, offset, data).ok());
    std::copy(data.begin(), data.end(), model_.begin() + static_cast<std::ptrdiff_t>(offset));
  }
  Superblock Newest(uint32_t device) {
    Superblock newest;
    for (const uint64_t offset : kSuperblockCopyOffset) {
      const auto found =
          DecodeSuperblock(test_.memory(device).bytes().subspan(offset, kSuperblockCopyBytes));
      newest = found.ok() && found->generation > newest.generation ? *found : newest;
    }
    return newest;
  }
  std::vector<Bytes> Copy(uint64_t length) {
    std::vector<Bytes> images;
    for (uint32_t i = 0; i < kDevices; ++i) {
      const auto bytes = test_.memory(i).bytes();
      const auto end = bytes.begin() + static_cast<std::ptrdiff_t>(std::min(length, bytes.size()));
      images.emplace_back(bytes.begin(), end);
    }
    return images;
  }
  void PutBack(const Bytes& image, uint32_t device) {
    std::copy(image.begin(), image.end(), test_.memory(device).bytes().begin());
  }
  Status Open(bool force) {
    OpenOptions options;
    options.entropy = 99;
    options.read_only = true;
    options.force = force;
    auto opened = RunTask(test_.loop, Array::Open(test_.loop, test_.Devices(), options));
    if (!opened.ok()) {
      return Fail(std::move(opened).error());
    }
    test_.array = std::move(*opened);
    return OkStatus();
  }
  LossReport FindLost() {
    const auto report = RunTask(test_.loop, test_.array->FindLost());
    EXPECT_TRUE(report.ok());
    return report.ok() ? *report : LossReport();
  }

  SmallArray test_{SmallShape(kSsdCount, 1)};
  VolumeId volume_ = test_.CreateVolume("v", kSize);
  Random random_{43};
  Bytes model_ = Bytes(kSize);
};

// All SSDs were put back; what the log device goes on from is nowhere.
TEST_F(OlderLife, OfAnOlderEpochIsNamedAndWhoIsNewer) {
  Write(0, kSize);
  ASSERT_TRUE(test_.Close().ok());
  const std::vector<Bytes> old = Copy(UINT64_MAX);
  const uint64_t then = Newest(0).epoch.number;
  const Bytes model = model_;
  test_.Open();
  Write(0, kSize);
  ASSERT_TRUE(test_.Close().ok());
  const uint64_t now = Newest(kSsdCount).epoch.number;
  ASSERT_GT(now, then);
  for (uint32_t ssd = 0; ssd < kSsdCount; ++ssd) {
    PutBack(old[ssd], ssd);
  }
  const Status refused = Open(false);
  ASSERT_FALSE(refused.ok());
  const Status forced = Open(true);
  ASSERT_TRUE(forced.ok()) << forced.error().ToString();
  EXPECT_TRUE(test_.Read(volume_, 0, kSize) == model);
  EXPECT_EQ(FindLost().log_damage.find("what is shown is of epoch " + std::to_string(then) +
                                       ", since what is newer cannot be opened"),
            0U)
      << FindLost().log_damage;
  const ArrayStatus status = test_.array->GetStatus();
  EXPECT_EQ(status.state, ArrayState::kFailed);
  EXPECT_EQ(status.devices[kSsdCount].failed_because,
            "log0: it is of epoch " + std::to_string(now) + ", and what is shown is older");
  for (uint32_t ssd = 0; ssd < kSsdCount; ++ssd) {
    EXPECT_EQ(status.devices[ssd].failed_because, "") << ssd;
  }
  // Why it was refused is why it acknowledges nothing.
  const std::string missing = refused.error().message.substr(0, refused.error().message.find(';'));
  EXPECT_NE(status.stopped_because.find(missing), std::string::npos) << status.stopped_because;
  EXPECT_TRUE(RunTask(test_.loop, test_.array->Close()).ok());
  test_.array.reset();
}

// A crash while the newest was being named, and its root is nowhere. The log goes on from the one
// before: nothing is lost.
TEST_F(OlderLife, OfAnOlderCheckpointIsAllThatTheLogHasSince) {
  Write(0, kSize);
  ASSERT_TRUE(test_.Checkpoint().ok());
  for (uint64_t i = 0; i < 8; ++i) {
    Write(i * 5 * kChunk, kChunk);
  }
  ASSERT_TRUE(test_.Flush().ok());
  const std::vector<Bytes> before = Copy(kSuperblockAreaBytes);
  ASSERT_TRUE(RunTask(test_.loop, test_.array->Checkpoint(CheckpointKind::kIncremental)).ok());
  test_.Kill();
  for (uint32_t i = 1; i < kDevices; ++i) {
    PutBack(before[i], i);
  }
  const Superblock newest = Newest(0);
  ASSERT_EQ(newest.checkpoint.generation, Newest(1).checkpoint.generation + 1);
  for (uint32_t ssd = 0; ssd < kSsdCount; ++ssd) {
    const uint64_t root = newest.geometry.MetadataOffset(newest.checkpoint.root_block);
    std::ranges::fill(test_.memory(ssd).bytes().subspan(root, kBlockBytes), std::byte{0x5A});
  }
  ASSERT_FALSE(Open(false).ok());
  const Status forced = Open(true);
  ASSERT_TRUE(forced.ok()) << forced.error().ToString();
  EXPECT_EQ(FindLost().log_damage,
            "the newest checkpoint cannot be read: what is shown goes on from an older one");
  EXPECT_TRUE(test_.Read(volume_, 0, kSize) == model_);
  EXPECT_EQ(test_.array->GetStatus().state, ArrayState::kFailed) << "it is no array to go on with";
  EXPECT_TRUE(RunTask(test_.loop, test_.array->Close()).ok());
  test_.array.reset();
}

}  // namespace
}  // namespace eplog
