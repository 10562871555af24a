#include "format/checkpoint.h"
#include "tests/format/bytes_test_util.h"
#include "tests/format/content.h"

namespace eplog::format_test {
namespace {

class RunOf : public ::testing::TestWithParam<int> {
 protected:
  const Geometry g_ = GeometryNumber(static_cast<uint64_t>(GetParam()));
};
INSTANTIATE_TEST_SUITE_P(Geometries, RunOf, ::testing::Range(0, 4));

TEST_P(RunOf, RandomContentComesBack) {
  Random random(51);
  for (int i = 0; i < 200; ++i) {
    const RunContent content = AnyRun(random, g_, 8);
    RunContent back;
    const Status status = DecodeRun(Encoded(content, g_), g_, back);
    ASSERT_TRUE(status.ok()) << status.error().message;
    ASSERT_EQ(back, content);
  }
}

TEST_P(RunOf, EveryTruncationAndAnythingAfterTheEndIsRefused) {
  Random random(52);
  auto stream = Encoded(AnyRun(random, g_, 2), g_);
  for (size_t size = 0; size < stream.size(); ++size) {
    RunContent ignored;
    ASSERT_TRUE(
        FailsWith(DecodeRun(std::span(stream).first(size), g_, ignored), ErrorCode::kCorrupt));
  }
  stream.push_back(std::byte{255});
  RunContent ignored;
  EXPECT_TRUE(FailsWith(DecodeRun(stream, g_, ignored), ErrorCode::kCorrupt));
}

// Nothing guards a run's bytes here but its structure (its CRC is in the root): whatever comes must
// stay in bounds.
class BoundsVisitor final : public RunVisitor {
 public:
  explicit BoundsVisitor(const Geometry& g) : g_(g) {}
  void RowGroup(uint32_t group, std::span<const RowWord> words) override {
    ASSERT_LT(group, g_.row_groups());
    ASSERT_EQ(words.size() / g_.n,
              std::min(kRowGroupStripes, g_.stripes - group * kRowGroupStripes));
    for (const RowWord& word : words) {
      ASSERT_TRUE(!word.word.has_slot() || word.word.slot().value < g_.slots);
      ASSERT_TRUE(!word.word.is_zero() || word.crc == 0);
    }
  }
  void Row(StripeIndex stripe, std::span<const RowWord> words) override {
    ASSERT_LT(stripe.value, g_.stripes);
    ASSERT_EQ(words.size(), g_.n);
    for (const RowWord& word : words) {
      ASSERT_TRUE(!word.word.has_slot() || word.word.slot().value < g_.slots);
      ASSERT_TRUE(!word.word.is_zero() || word.crc == 0);
    }
  }
  void ExtentFreed(ExtentIndex extent) override { ASSERT_LT(extent.value, g_.extents()); }
  void AllVolumes() override {}
  void LogStripe(const LogStripeItem& item) override {
    ASSERT_TRUE(!item.members.empty() && item.members.size() <= g_.n);
    ASSERT_EQ(item.log_crcs.size(), g_.m);
    for (const auto& member : item.members) {
      ASSERT_LT(member.chunk.value, g_.data_chunks());
      ASSERT_TRUE(!member.word.is_zero());
      ASSERT_TRUE(!member.word.has_slot() || member.word.slot().value < g_.slots);
    }
  }
  void Zeros(const ZerosItem& item) override {
    ASSERT_TRUE(item.count >= 1 && g_.IndexInStripe(item.first) + item.count <= g_.k());
    ASSERT_LT(item.first.value, g_.data_chunks());
    ASSERT_LT(item.superseded, uint64_t{1} << item.count);
  }
  void Volume(const VolumeItem& item) override {
    ASSERT_NE(item.id.value, 0U);
    ASSERT_TRUE(!item.name.empty() && item.name.size() <= 200);
  }
  void Extent(const ExtentItem& item) override { ASSERT_LT(item.extent.value, g_.extents()); }

 private:
  const Geometry& g_;
};

TEST_P(RunOf, DamagedStreamsStayInBounds) {
  Random random(53);
  for (int i = 0; i < 3000; ++i) {
    auto stream = Encoded(AnyRun(random, g_, 2), g_);
    for (uint64_t flips = random.Between(1, 8); flips != 0; --flips) {
      stream[random.Below(stream.size())] = static_cast<std::byte>(random.Next());
    }
    BoundsVisitor visitor(g_);
    static_cast<void>(DecodeRun(stream, g_, visitor));
    ASSERT_FALSE(HasFatalFailure());
  }
}

TEST_P(RunOf, PiecesOfAnySizeDecodeAlike) {
  Random random(57);
  for (int i = 0; i < 100; ++i) {
    const RunContent content = AnyRun(random, g_, 6);
    const auto stream = Encoded(content, g_);
    RunContent back;
    RunDecoder decoder(g_, back);
    std::span<const std::byte> rest(stream);
    while (!rest.empty()) {
      const size_t piece = std::min<size_t>(rest.size(), 1 + AnyBelow(random, rest.size()));
      ASSERT_TRUE(decoder.Feed(rest.first(piece)).ok());
      rest = rest.subspan(piece);
    }
    ASSERT_TRUE(decoder.Finish().ok());
    ASSERT_EQ(back, content);
  }
}

TEST(Run, ItemsOutOfRangeAreRefused) {
  const Geometry g = MakeGeometry(3, 1);
  Random random(54);
  const auto refused = [&](const RunContent& content) {
    RunContent ignored;
    return FailsWith(DecodeRun(Encoded(content, g), g, ignored), ErrorCode::kCorrupt);
  };
  RunContent base;
  base.log_stripes.push_back({9, 10, {{ChunkIndex(1), SlotWord::Absent(), 3, true}}, {4}});
  base.groups.emplace_back(1, AnyRowGroup(random, g, 1, 0));
  RunContent back;
  ASSERT_TRUE(DecodeRun(Encoded(base, g), g, back).ok());

  RunContent c = base;
  c.log_stripes[0].sequence = 0;
  EXPECT_TRUE(refused(c));
  c = base;
  c.log_stripes[0].members.clear();
  EXPECT_TRUE(refused(c));
  c = base;
  c.log_stripes[0].members[0].chunk = ChunkIndex(g.data_chunks());
  EXPECT_TRUE(refused(c));
  c = base;
  c.log_stripes[0].members[0].word = SlotWord::Zero();
  EXPECT_TRUE(refused(c));
  c = base;
  c.log_stripes[0].members[0].word = SlotWord::At(SlotIndex(g.slots));
  EXPECT_TRUE(refused(c));
  c = base;
  c.log_stripes[0].members.push_back({ChunkIndex(7), SlotWord::Absent(), 3, false});  // same SSD
  EXPECT_TRUE(refused(c));
  c = base;
  c.groups[0].second[5].word = SlotWord::At(SlotIndex(g.slots));
  EXPECT_TRUE(refused(c));
  c = base;  // a run of consecutive slots that leaves the last one
  for (size_t s = 0; s < 64; ++s) {
    for (size_t i = 0; i < 3; ++i) {
      const auto slot = g.slots - 63 + static_cast<uint32_t>(s);
      c.groups[0].second[s * 3 + i].word = SlotWord::At(SlotIndex(slot));
    }
  }
  EXPECT_TRUE(refused(c));
  c = base;
  c.volumes.push_back({VolumeId(0), 1, false, "v"});
  EXPECT_TRUE(refused(c));
  c = base;
  c.volumes.push_back({VolumeId(1), uint64_t{1} << 63, false, "v"});
  EXPECT_TRUE(refused(c));
  c = base;
  c.extents.push_back({ExtentIndex(g.extents()), VolumeId(1), 0});
  EXPECT_TRUE(refused(c));
  c = base;
  c.extents.push_back({ExtentIndex(0), VolumeId(0), 0});
  EXPECT_TRUE(refused(c));
}

TEST(Run, UnknownItemsAreUnsupportedAndUnknownModesAreNot) {
  const Geometry g = MakeGeometry(3, 1);
  RunContent ignored;
  for (const unsigned type : {0U, 9U, 254U}) {
    const std::vector<std::byte> stream = {static_cast<std::byte>(type), std::byte{255}};
    EXPECT_TRUE(FailsWith(DecodeRun(stream, g, ignored), ErrorCode::kUnsupported));
  }
  const std::vector<std::byte> mode = {std::byte{1}, std::byte{0}, std::byte{2}, std::byte{255}};
  EXPECT_TRUE(FailsWith(DecodeRun(mode, g, ignored), ErrorCode::kCorrupt));
}

size_t GroupBytes(const Geometry& g, const std::vector<RowWord>& words) {
  std::vector<std::byte> stream;
  RunWriter(g, stream).RowGroup(0, words);
  return stream.size();
}

TEST(Run, FreshStripesAndZerosAreSmall) {
  const Geometry g = MakeGeometry(8, 2);
  Random random(55);
  // Type, group; a column: mode, one run of three to four bytes, 64 CRCs.
  EXPECT_LE(GroupBytes(g, AnyRowGroup(random, g, 0, 0)), 2 + 8 * (6 + 64 * 4U));
  EXPECT_EQ(GroupBytes(g, std::vector<RowWord>(size_t{64} * 8)), 2 + 8 * 4U);
  // `absent` keeps its CRCs.
  EXPECT_EQ(GroupBytes(g, std::vector<RowWord>(size_t{64} * 8, {SlotWord::Absent(), 5})),
            2 + 8 * (4 + 64 * 4U));
  // No disorder takes more than raw words.
  for (int i = 0; i < 100; ++i) {
    EXPECT_LE(GroupBytes(g, AnyRowGroup(random, g, 0, static_cast<uint32_t>(random.Below(257)))),
              2 + 8 * (1 + 64 * 8U));
  }
}

// ---- the bound of a full checkpoint

// The largest stream that any content of an array gives: every index and number as long as it can
// be. Equal items add equal bytes, so that one of each kind is encoded and counted.
class WorstCase {
 public:
  explicit WorstCase(const Geometry& g) : g_(g) {}

  uint64_t Blocks() const {
    CheckpointRoot root;
    root.runs.resize(1);
    root.lifetime_counters.resize(64);
    return DivideUp(Rows() + LogStripes() + Volumes() + 1, kPagePayloadBytes) +
           DivideUp(EncodeRoot(root).size(), kPagePayloadBytes);
  }

 private:
  template <typename Put>
  uint64_t SizeOf(Put put) const {
    std::vector<std::byte> stream;
    RunWriter writer(g_, stream);
    put(writer);
    return stream.size();
  }

  uint64_t GroupSize(uint32_t group) const {
    const uint32_t stripes = std::min(kRowGroupStripes, g_.stripes - group * kRowGroupStripes);
    std::vector<RowWord> words(size_t{stripes} * g_.n);
    for (uint32_t s = 0; s < stripes; ++s) {  // no two consecutive
      const RowWord word = {SlotWord::At(SlotIndex(g_.slots - 1 - s % 2 * 2)), 1};
      std::fill_n(words.begin() + static_cast<std::ptrdiff_t>(size_t{s} * g_.n), g_.n, word);
    }
    const uint64_t lone = SizeOf([&](RunWriter& writer) {
      writer.Rows(group, (uint64_t{1} << std::min<uint32_t>(RunWriter::kMostLoneRows, stripes)) - 1,
                  words);
    });
    return std::max(lone, SizeOf([&](RunWriter& writer) { writer.RowGroup(group, words); }));
  }

  uint64_t Rows() const {
    const uint32_t last = g_.row_groups() - 1;
    return GroupSize(last) + (last == 0 ? 0 : GroupSize(last - 1) * last);
  }

  // As many live log stripes as log and chunks allow; over them are spread all members that can
  // exist: one for each slot, and an `absent` one for each of m SSDs in each log stripe.
  uint64_t LogStripes() const {
    const uint64_t count = std::min(g_.log_blocks / g_.chunk_blocks(), g_.data_chunks());
    const uint64_t members = std::min(count * g_.n, uint64_t{g_.slots} * g_.n + count * g_.m);
    LogStripeItem item;
    item.sequence = UINT64_MAX;
    item.place = UINT64_MAX;
    item.log_crcs.resize(g_.m);
    const uint64_t bare = SizeOf([&](RunWriter& writer) { writer.LogStripe(item); });
    item.members.push_back(
        {ChunkIndex(g_.data_chunks() - 1), SlotWord::At(SlotIndex(g_.slots - 1)), 1, true});
    const uint64_t lone = SizeOf([&](RunWriter& writer) { writer.LogStripe(item); });
    return count * bare + members * (lone - bare);
  }

  uint64_t Volumes() const {
    const uint64_t volume = SizeOf([&](RunWriter& writer) {
      writer.Volume({VolumeId(UINT32_MAX), INT64_MAX, true, std::string(200, 'v')});
    });
    const uint64_t extent = SizeOf([&](RunWriter& writer) {
      writer.Extent({ExtentIndex(g_.extents() - 1), VolumeId(UINT32_MAX), UINT32_MAX});
    });
    return g_.max_volumes() * volume + g_.extents() * extent;
  }

  const Geometry& g_;
};

TEST(Run, AFullCheckpointNeverExceedsItsBound) {
  constexpr uint64_t kMiB = uint64_t{1} << 20;
  for (const auto& [n, m] : {std::pair{2U, 1U}, {3U, 1U}, {8U, 2U}, {5U, 4U}, {32U, 4U}}) {
    for (const uint32_t chunk : {4096U, 65536U, 1048576U}) {
      for (const uint64_t ssd : {32 * kMiB, 512 * kMiB, uint64_t{1} << 40, uint64_t{1} << 44}) {
        for (const uint64_t log : {MinLogBytes(chunk), 512 * kMiB, uint64_t{1} << 42}) {
          GeometryRequest request;
          request.n = n;
          request.m = m;
          request.chunk_bytes = chunk;
          request.ssd_bytes = ssd;
          request.log_bytes = log;
          const auto g = PlanGeometry(request);
          if (!g.ok()) {
            continue;  // does not fit so small an SSD
          }
          EXPECT_LE(WorstCase(*g).Blocks(), g->max_checkpoint_blocks())
              << n << ' ' << m << ' ' << chunk << ' ' << ssd << ' ' << log;
        }
      }
    }
  }
}

}  // namespace
}  // namespace eplog::format_test
