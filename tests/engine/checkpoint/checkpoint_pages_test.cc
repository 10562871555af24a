// Where the pages of a checkpoint lie, round the end of their area, and which of them are not what
// belongs there.
#include "engine/checkpoint/checkpoint_pages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "tests/engine/parts_fixture.h"

namespace eplog {
namespace {

class CheckpointPages : public ::testing::Test {
 protected:
  // A run that goes round the end of the area.
  CheckpointPages() {
    RunDescriptor run;
    run.generation = 7;
    run.random = 8;
    run.first_block = parts_.g().metadata_blocks - 3;
    run.blocks = 5;
    run.ssd_mask = 0b101;
    pages_ = PagesOf(run);
    for (uint64_t i = 0; i < pages_.blocks; ++i) {
      Put(i);
    }
  }
  std::span<std::byte> Page(uint64_t index) {
    const uint64_t block = HeaderOf(parts_.g(), pages_, index).block;
    return parts_.memory(kSsd).bytes().subspan(parts_.g().MetadataOffset(block), kBlockBytes);
  }
  void Put(uint64_t index) {
    PageHeader header = HeaderOf(parts_.g(), pages_, index);
    header.payload_bytes = 10;
    Finish(header, Page(index));
  }
  void Finish(const PageHeader& header, std::span<std::byte> into) {
    const Buffer page = parts_.core.pool.GetZeroed(kBlockBytes);
    std::memset(page.data() + kPageHeaderBytes, 0x3C, header.payload_bytes);
    FinishPage(header, parts_.core.identity.array_uuid, page.span());
    std::ranges::copy(page.span(), into.begin());
  }
  std::vector<uint64_t> Wrong(uint64_t stop_after = UINT64_MAX) {
    std::vector<uint64_t> wrong;
    checked_ = parts_.Run(CheckPages(
        parts_.core, kSsd, pages_, [&] { return wrong.size() >= stop_after; },
        [&](uint64_t block) { wrong.push_back(block); }));
    return wrong;
  }

  static constexpr DeviceIndex kSsd{0};
  EngineParts parts_;
  Pages pages_;
  uint64_t checked_ = 0;
};

TEST_F(CheckpointPages, OfARootAndOfARunAreWhatTheirDescriptorsSay) {
  const Pages root = PagesOf(CheckpointPointer{3, 4, 5, 1, 0, 0b11});
  EXPECT_EQ(root.first, (PageHeader{PageKind::kRoot, 3, 4, 5, 0, 0}));
  EXPECT_EQ(root.blocks, 1U);
  EXPECT_EQ(root.ssd_mask, 0b11U);
  EXPECT_EQ(pages_.first.kind, PageKind::kRun);
  EXPECT_EQ(pages_.blocks, 5U);
}

TEST_F(CheckpointPages, GoOnAtTheBeginningBehindTheEnd) {
  const uint64_t area = parts_.g().metadata_blocks;
  const std::vector<uint64_t> blocks = {area - 3, area - 2, area - 1, 0, 1};
  for (uint64_t i = 0; i < blocks.size(); ++i) {
    EXPECT_EQ(HeaderOf(parts_.g(), pages_, i).block, blocks[i]);
    EXPECT_EQ(HeaderOf(parts_.g(), pages_, i).index, i);
  }
}

TEST_F(CheckpointPages, OutsideOfTheAreaOrLongerThanItAreNone) {
  const uint64_t area = parts_.g().metadata_blocks;
  const auto in = [&](uint64_t first, uint64_t blocks) {
    Pages pages = pages_;
    pages.first.block = first;
    pages.blocks = blocks;
    return InArea(parts_.g(), pages);
  };
  EXPECT_TRUE(in(0, 1) && in(area - 1, 1) && in(area - 1, area));
  EXPECT_FALSE(in(0, 0));
  EXPECT_FALSE(in(area, 1));
  EXPECT_FALSE(in(0, area + 1));
}

TEST_F(CheckpointPages, APageIsOneOnlyWhereItBelongs) {
  const PageHeader expected = HeaderOf(parts_.g(), pages_, 1);
  const auto payload = Payload(parts_.core, Page(1), expected);
  ASSERT_TRUE(payload);
  EXPECT_EQ(payload->size(), 10U);
  EXPECT_EQ(payload->front(), std::byte{0x3C});
  PageHeader other = expected;
  other.kind = PageKind::kRoot;
  EXPECT_FALSE(Payload(parts_.core, Page(1), other));
  for (const auto field : {&PageHeader::generation, &PageHeader::random, &PageHeader::block}) {
    other = expected;
    ++(other.*field);
    EXPECT_FALSE(Payload(parts_.core, Page(1), other));
  }
  other = expected;
  ++other.index;
  EXPECT_FALSE(Payload(parts_.core, Page(1), other));
  Page(1)[kBlockBytes - 1] ^= std::byte{1};
  EXPECT_FALSE(Payload(parts_.core, Page(1), expected)) << "behind the payload, too";
}

TEST_F(CheckpointPages, AllAreLookedAtAndThoseThatAreWrongAreNamed) {
  EXPECT_TRUE(Wrong().empty());
  EXPECT_EQ(checked_, 5U);
  const uint64_t area = parts_.g().metadata_blocks;
  Page(2)[80] ^= std::byte{1};
  PageHeader older = HeaderOf(parts_.g(), pages_, 3);
  --older.generation;
  Finish(older, Page(3));
  EXPECT_EQ(Wrong(), (std::vector<uint64_t>{area - 1, 0}));
  EXPECT_EQ(checked_, 5U);
}

// One that cannot be read hides no neighbour.
TEST_F(CheckpointPages, UnreadableOnesAreReadOneByOne) {
  const uint64_t block = HeaderOf(parts_.g(), pages_, 1).block;
  parts_.faulty(kSsd).Add({.kinds = MaskOf(RequestKind::kRead),
                           .from_then_on = true,
                           .range_offset_bytes = parts_.g().MetadataOffset(block),
                           .range_length_bytes = kSectorBytes});
  EXPECT_EQ(Wrong(), std::vector<uint64_t>{block});
  EXPECT_EQ(checked_, 5U);
}

TEST_F(CheckpointPages, NoneIsLookedAtOnceThatIsToStop) {
  EXPECT_TRUE(Wrong(0).empty());
  EXPECT_EQ(checked_, 0U);
  Page(0)[80] ^= std::byte{1};
  EXPECT_EQ(Wrong(1).size(), 1U);
  EXPECT_EQ(checked_, 3U) << "those up to the end of the area were read with it";
}

}  // namespace
}  // namespace eplog
