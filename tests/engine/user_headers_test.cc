// Log chunks are what users write, bare, and lie among the headers: what a user makes look like a
// header is none (I8). He may know the array, its geometry and where the log is just now; not the
// random part of an epoch.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "format/entry.h"
#include "format/superblock.h"
#include "format/wire.h"
#include "tests/engine/array_fixture.h"

namespace eplog {
namespace {

constexpr uint64_t kChunk = 4096;
constexpr uint32_t kSsdCount = 4;
constexpr uint64_t kChunks = 60;
constexpr Epoch kGuessed{0, 12345};

using Bytes = std::vector<std::byte>;

// With a flag, or a record at its end, that only a later version knows.
enum class Unknown : uint8_t { kNothing, kFlag, kRecord };

class UserHeaders : public ::testing::TestWithParam<Unknown> {
 protected:
  void SetUp() override {
    ArrayShape shape;
    shape.n = kSsdCount;
    shape.m = 1;  // the log chunk of a lone chunk is its content
    shape.ssd_bytes = uint64_t{4} << 20;
    shape.log_bytes = uint64_t{2} << 20;
    test_ = std::make_unique<TestArray>(shape);
    volume_ = test_->CreateVolume("v", kChunks * kChunk);
    ASSERT_TRUE(test_->Write(volume_, 0, RandomBytes(random_, kChunks * kChunk)).ok());
    g_ = Newest().geometry;
  }
  [[nodiscard]] Superblock Newest() const {
    Superblock newest;
    for (const uint64_t offset : kSuperblockCopyOffset) {
      const auto found =
          DecodeSuperblock(test_->memory(0).bytes().subspan(offset, kSuperblockCopyBytes));
      newest = found.ok() && found->generation > newest.generation ? *found : newest;
    }
    return newest;
  }
  // The newest entry's end: there the next write's header comes, and its log chunk behind it.
  [[nodiscard]] LogPosition End() const {
    LogPosition end;
    for (uint64_t block = 0; block < g_.log_blocks; ++block) {
      const auto header =
          DecodeEntryHeader(test_->memory(kSsdCount).bytes().subspan(g_.LogOffset(block), kChunk),
                            Newest().array_uuid, g_);
      if (header.ok() && header->epoch.random != kGuessed.random &&
          header->sequence > end.sequence && header->place % g_.log_blocks == block) {
        end = {header->epoch, header->sequence, header->place + header->length_blocks};
      }
    }
    return end;
  }
  [[nodiscard]] Bytes Block(const EntryHeader& header, Unknown unknown) const {
    Bytes block(kChunk);
    size_t used = EncodeEntryHeader(header, Newest().array_uuid, block);
    auto fixed = wire::Load<wire::EntryBytes>(block);
    if (unknown == Unknown::kFlag) {
      fixed.flags |= 2;
    }
    if (unknown == Unknown::kRecord) {
      block[used++] = std::byte{99};
      fixed.used_bytes = static_cast<uint16_t>(used);
    }
    wire::Store(fixed, block);
    fixed.crc = wire::CrcAround(std::span(block).first(used), offsetof(wire::EntryBytes, crc));
    wire::Store(fixed, block);
    return block;
  }
  // Lone chunks until the log has been written over twice, each claiming the place that its block
  // stands for when the log comes by the next time.
  template <typename Make>
  void FillLog(const Make& make) {
    const uint64_t laps = test_->hooks().log_wraps + 2;
    while (test_->hooks().log_wraps < laps) {
      const LogPosition end = End();
      EntryHeader header;
      header.epoch = kGuessed;
      header.place = end.place + 1 + g_.log_blocks;
      header.sequence = end.sequence + 1;
      make(header, end);
      const uint64_t chunk = random_.Below(kChunks);
      ASSERT_TRUE(test_->Write(volume_, chunk * kChunk, Block(header, GetParam())).ok());
      ++written_;
      if (written_ % 20 == 0) {
        ASSERT_TRUE(RunTask(test_->loop, test_->array->Commit(Progress())).ok());
      }
    }
  }
  void OpensAgainAndAgain() {
    for (int life = 0; life < 6; ++life) {
      const uint64_t epoch = Newest().epoch.number;
      if (life % 2 == 0) {
        test_->Kill();
      } else {
        ASSERT_TRUE(test_->Close().ok());
      }
      auto opened = test_->TryOpen();
      ASSERT_TRUE(opened.ok()) << opened.error().ToString();
      test_->array = std::move(*opened);
      EXPECT_EQ(Newest().epoch.number, epoch + 1);
      ASSERT_TRUE(test_->Write(volume_, 0, RandomBytes(random_, kChunk)).ok());
    }
    const auto report = RunTask(test_->loop, test_->array->Check(Progress()));
    ASSERT_TRUE(report.ok());
    EXPECT_EQ(report->problems_found, 0U);
  }

  Random random_{9};
  std::unique_ptr<TestArray> test_;
  VolumeId volume_;
  Geometry g_;
  uint64_t written_ = 0;
};

TEST_P(UserHeaders, AtAnyPlace) {
  FillLog([](EntryHeader& header, const LogPosition&) { header.place = 7; });
  OpensAgainAndAgain();
}

TEST_P(UserHeaders, AtTheirPlace) {
  FillLog([](EntryHeader&, const LogPosition&) {});
  OpensAgainAndAgain();
}

TEST_P(UserHeaders, ThatSayWhatIsStable) {
  FillLog([](EntryHeader& header, const LogPosition& end) {
    header.sequence = end.sequence + 5000;
    header.mark = end.sequence + 4000;
  });
  OpensAgainAndAgain();
}

TEST_P(UserHeaders, OfALaterEpoch) {
  FillLog([](EntryHeader& header, const LogPosition& end) {
    header.epoch.number = end.epoch.number + 1000;
  });
  OpensAgainAndAgain();
}

// Each of them the first of an epoch that follows on whatever the log ends with then, but for the
// random part.
TEST_P(UserHeaders, ThatFollow) {
  FillLog([](EntryHeader& header, const LogPosition& end) {
    header.epoch.number = end.epoch.number + 1;
    header.first_of_epoch = true;
    header.follows_epoch = {end.epoch.number, kGuessed.random};
    header.follows_sequence = end.sequence;
  });
  OpensAgainAndAgain();
}

INSTANTIATE_TEST_SUITE_P(With, UserHeaders,
                         ::testing::Values(Unknown::kNothing, Unknown::kFlag, Unknown::kRecord));

}  // namespace
}  // namespace eplog
