// The four public excerpts, against figures that another program, in another language, counted
// once.
#include <gtest/gtest.h>

#include "tests/trace/trace_util.h"

namespace eplog {
namespace {

struct Windows {
  uint64_t complete, sum, min, max, partial;
};

struct Golden {
  const char* file;
  const char* columns;  // empty: the format is detected
  const char* format;
  uint64_t reads, writes, flushes, fua;
  uint64_t read_bytes, written_bytes;
  uint64_t duration_us, max_bytes;
  uint64_t begin_bytes, end_bytes;
  uint64_t footprint_chunks, written_chunks, chunk_writes, chunk_updates;
  uint64_t touches_k6, touches_k4;
  Windows k6_1000, k4_1000, k6_10000, k4_10000;
};

const Golden kGolden[] = {{"cloudPhysicsIO.vscsi.xz",
                           "",
                           "vscsi1",
                           46974,
                           66898,
                           0,
                           0,
                           1797412352,
                           2408565760,
                           7200089885,
                           69632,
                           8162816,
                           33584938496,
                           269210,
                           208696,
                           656169,
                           447473,
                           165902,
                           214508,
                           {66, 104153, 168, 2802, 167},
                           {66, 151961, 225, 4202, 211},
                           {6, 80727, 2144, 19133, 4108},
                           {6, 119171, 2938, 28490, 5859}},
                          {"fin1.trace.xz",
                           "time_ms,disk,lba512,pages4k,op:0=w",
                           "columns",
                           29199,
                           20801,
                           0,
                           0,
                           222814208,
                           135282688,
                           853403229,
                           49152,
                           60416,
                           513494528,
                           31150,
                           8890,
                           51908,
                           43018,
                           25914,
                           27831,
                           {20, 4626, 136, 399, 116},
                           {20, 6041, 164, 537, 145},
                           {2, 1993, 983, 1010, 116},
                           {2, 2844, 1403, 1441, 145}},
                          {"msr.cut.per_10k.rw_20_80.105.trace",
                           "time_ms,disk,offset,size,op:1=r;0=w",
                           "columns",
                           2020,
                           7980,
                           0,
                           0,
                           3792896,
                           51017216,
                           242904693,
                           65536,
                           19668992,
                           14958249472,
                           7385,
                           5815,
                           14264,
                           8449,
                           9165,
                           9611,
                           {7, 2043, 184, 562, 259},
                           {7, 2488, 234, 663, 307},
                           {0, 0, 0, 0, 1529},
                           {0, 0, 0, 0, 1991}},
                          {"integrity-test.tr.xz",
                           "",
                           "nbd",
                           105,
                           67694,
                           1191,
                           1189,
                           119808,
                           324988928,
                           0,
                           130048,
                           0,
                           52428800,
                           7825,
                           7825,
                           130139,
                           122314,
                           78073,
                           83361,
                           {67, 13843, 42, 343, 165},
                           {67, 20274, 64, 511, 232},
                           {6, 2825, 327, 1065, 329},
                           {6, 4168, 479, 1587, 480}}};

void Expect(const WindowStripes& got, const Windows& want, const char* what) {
  EXPECT_EQ(got.complete, want.complete) << what;
  EXPECT_EQ(got.sum, want.sum) << what;
  EXPECT_EQ(got.min, want.min) << what;
  EXPECT_EQ(got.max, want.max) << what;
  EXPECT_EQ(got.partial, want.partial) << what;
}

class GoldenTrace : public ::testing::TestWithParam<Golden> {};

TEST_P(GoldenTrace, StatisticsAreExact) {
  const Golden& want = GetParam();
  const auto path = trace_test::TraceDirectory() / want.file;
  if (!std::filesystem::exists(path)) {
    GTEST_SKIP() << want.file << " is not at " << path.parent_path()
                 << ": set EPLOG_TRACES to where the public traces lie";
  }
  TraceOptions options;
  if (*want.columns != '\0') {
    options.format = TraceFormat::kColumns;
    options.columns = *ParseColumnLayout(want.columns);
  }
  auto source = OpenTrace(path, options);
  ASSERT_TRUE(source.ok()) << source.error().message;
  EXPECT_EQ((*source)->format(), want.format);
  const trace_test::Whole whole = trace_test::ReadAll(**source);
  ASSERT_TRUE(whole.status.ok()) << whole.status.error().message;
  EXPECT_EQ(whole.report.bad, 0U);
  TraceStatistics statistics{StatOptions{}};
  for (const TraceRequest& request : whole.requests) {
    statistics.Add(request);
  }
  const TraceSummary got = statistics.Summarise();
  const auto& read = got.ops[static_cast<size_t>(TraceOp::kRead)];
  const auto& write = got.ops[static_cast<size_t>(TraceOp::kWrite)];
  EXPECT_EQ(read.requests, want.reads);
  EXPECT_EQ(write.requests, want.writes);
  EXPECT_EQ(write.fua, want.fua);
  EXPECT_EQ(got.ops[static_cast<size_t>(TraceOp::kFlush)].requests, want.flushes);
  EXPECT_EQ(read.bytes, want.read_bytes);
  EXPECT_EQ(write.bytes, want.written_bytes);
  EXPECT_EQ(std::max(read.max_bytes, write.max_bytes), want.max_bytes);
  EXPECT_EQ(got.duration_us, want.duration_us);
  EXPECT_EQ(got.begin_bytes, want.begin_bytes);
  EXPECT_EQ(got.end_bytes, want.end_bytes);
  EXPECT_EQ(got.footprint_chunks, want.footprint_chunks);
  EXPECT_EQ(write.footprint_chunks, want.written_chunks);
  EXPECT_EQ(got.chunk_writes, want.chunk_writes);
  EXPECT_EQ(got.chunk_updates, want.chunk_updates);
  const LayoutSummary& k6 = got.layouts[0];
  const LayoutSummary& k4 = got.layouts[1];
  EXPECT_EQ(k6.stripe_touches, want.touches_k6);
  EXPECT_EQ(k4.stripe_touches, want.touches_k4);
  EXPECT_EQ(k6.md_ssd_bytes, (want.chunk_writes + 2 * want.touches_k6) * 4096);
  Expect(k6.windows[0], want.k6_1000, "6+2, 1,000");
  Expect(k4.windows[0], want.k4_1000, "4+1, 1,000");
  Expect(k6.windows[1], want.k6_10000, "6+2, 10,000");
  Expect(k4.windows[1], want.k4_10000, "4+1, 10,000");
}

INSTANTIATE_TEST_SUITE_P(Excerpts, GoldenTrace, ::testing::ValuesIn(kGolden),
                         [](const auto& param_info) {
                           return std::string(param_info.param.format) +
                                  std::to_string(param_info.index);
                         });

// Three column texts and two binary ones of the same kind must not be taken for each other.
TEST(GoldenDetection, ColumnTextsAskForTheirMeaning) {
  const auto path = trace_test::TraceDirectory() / "fin1.trace.xz";
  if (!std::filesystem::exists(path)) {
    GTEST_SKIP() << "fin1.trace.xz is not at " << path.parent_path()
                 << ": set EPLOG_TRACES to where the public traces lie";
  }
  const auto source = OpenTrace(path, TraceOptions{});
  ASSERT_FALSE(source.ok());
  EXPECT_EQ(source.error().code, ErrorCode::kCorrupt);
  EXPECT_NE(source.error().message.find("--columns"), std::string::npos) << source.error().message;
}

}  // namespace
}  // namespace eplog
