#include "format/checkpoint.h"

#include <functional>

#include "tests/format/bytes_test_util.h"
#include "tests/format/content.h"

namespace eplog::format_test {
namespace {

std::vector<std::byte> Page(const PageHeader& header) {
  std::vector<std::byte> page(kBlockBytes, std::byte{0xEE});
  FinishPage(header, kArray, page);
  return page;
}

TEST(CheckpointPage, RandomContentComesBack) {
  Random random(41);
  for (int i = 0; i < 1000; ++i) {
    const PageHeader header = {random.OneIn(2) ? PageKind::kRoot : PageKind::kRun,
                               random.Next(),
                               random.Next(),
                               random.Next(),
                               Any32(random),
                               static_cast<uint32_t>(random.Between(0, kPagePayloadBytes))};
    const auto page = Page(header);
    const auto back = DecodePage(page, kArray);
    ASSERT_TRUE(back.ok());
    ASSERT_EQ(*back, header);
    // The payload stays, the rest is zero.
    for (size_t at = kPageHeaderBytes; at < page.size(); ++at) {
      ASSERT_EQ(page[at],
                at < kPageHeaderBytes + header.payload_bytes ? std::byte{0xEE} : std::byte{0});
    }
  }
}

TEST(CheckpointPage, EveryCorruptionIsRefused) {
  ExpectEveryCorruptionRefused(Page({PageKind::kRun, 1, 2, 3, 4, 100}),
                               [](auto bytes) { return DecodePage(bytes, kArray); });
}

TEST(CheckpointPage, OthersAndUnknownKindsAreRefused) {
  auto page = Page({PageKind::kRun, 1, 2, 3, 4, 100});
  EXPECT_TRUE(FailsWith(DecodePage(page, TestUuid(1)), ErrorCode::kNotFound));
  EXPECT_TRUE(FailsWith(DecodePage(std::span(page).first(4095), kArray), ErrorCode::kNotFound));
  for (const unsigned kind : {0U, 3U}) {
    page[54] = static_cast<std::byte>(kind);
    FixCrc(page, kCrcAt);
    EXPECT_TRUE(FailsWith(DecodePage(page, kArray), ErrorCode::kUnsupported));
  }
  page[54] = std::byte{2};
  StoreLe(page.data() + 52, uint16_t{4033});
  FixCrc(page, kCrcAt);
  EXPECT_TRUE(FailsWith(DecodePage(page, kArray), ErrorCode::kCorrupt));
}

TEST(CheckpointRoot, RandomContentComesBack) {
  Random random(42);
  for (int i = 0; i < 2000; ++i) {
    const CheckpointRoot root = AnyRoot(random);
    const auto back = DecodeRoot(EncodeRoot(root));
    ASSERT_TRUE(back.ok()) << back.error().message;
    ASSERT_EQ(*back, root);
  }
}

TEST(CheckpointRoot, AnyOtherLengthIsRefused) {
  Random random(43);
  auto bytes = EncodeRoot(AnyRoot(random));
  for (size_t size = 0; size < bytes.size(); ++size) {
    ASSERT_TRUE(FailsWith(DecodeRoot(std::span(bytes).first(size)), ErrorCode::kCorrupt));
  }
  bytes.push_back(std::byte{0});
  EXPECT_TRUE(FailsWith(DecodeRoot(bytes), ErrorCode::kCorrupt));
}

TEST(CheckpointRoot, ImpossibleContentIsRefused) {
  const std::pair<const char*, std::function<void(CheckpointRoot&)>> wrongs[] = {
      {"no run", [](auto& r) { r.runs.clear(); }},
      {"no full run", [](auto& r) { r.runs.back().full = false; }},
      {"no volume number left", [](auto& r) { r.next_volume_id = 0; }},
      {"on no SSD", [](auto& r) { r.runs[0].ssd_mask = 0; }},
      {"on SSD 32", [](auto& r) { r.runs[0].ssd_mask |= uint64_t{1} << 32; }},
      {"without blocks", [](auto& r) { r.runs[0].blocks = 0; }},
      {"empty", [](auto& r) { r.runs[0].stream_bytes = 0; }},
      {"more bytes than blocks",
       [](auto& r) { r.runs[0].stream_bytes = r.runs[0].blocks * kPagePayloadBytes + 1; }},
      {"bytes beyond all blocks", [](auto& r) { r.runs[0].stream_bytes = UINT64_MAX; }},
      {"beyond the end of numbers", [](auto& r) { r.runs[0].first_block = UINT64_MAX; }},
  };
  Random random(44);
  for (const auto& [what, change] : wrongs) {
    CheckpointRoot root = AnyRoot(random);
    change(root);
    EXPECT_TRUE(FailsWith(DecodeRoot(EncodeRoot(root)), ErrorCode::kCorrupt)) << what;
  }
  auto bytes = EncodeRoot(AnyRoot(random));
  bytes[40 + 52] |= std::byte{2};  // flags of the first run
  EXPECT_TRUE(FailsWith(DecodeRoot(bytes), ErrorCode::kUnsupported));
}

TEST(CheckpointRoot, OneRunAndAllCountersFitOnePage) {
  Random random(45);
  CheckpointRoot root = AnyRoot(random);
  root.lifetime_counters.resize(64);
  EXPECT_LE(EncodeRoot(root).size(), kPagePayloadBytes);
}

}  // namespace
}  // namespace eplog::format_test
