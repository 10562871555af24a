// The calibration of fin, web, usr and mds: whole profiles against the figures of the EPLOG
// supplement that they were calibrated on (tables 4 and 5: average per SSD times the number of
// SSDs), and nothing else. MD totals within 5 %, stripes at 6+2 within 10 %.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/trace/trace_util.h"

namespace eplog {
namespace {

struct Total {
  StripeLayout layout;
  double md_gb;      // RAID in place
  double parity_gb;  // what commits each 10,000 requests write beyond the user's chunks
};

struct Target {
  const char* name;
  uint64_t writes;
  double mean_kb;
  double working_set_gb;
  std::vector<Total> totals;  // 6+2 first
};

const Target kTargets[] = {{"fin",
                            4'100'000,
                            7.0,
                            3.5,
                            {{{6, 2}, 8 * 8.14, 8 * (4.23 - 3.61)},
                             {{4, 1}, 5 * 9.60, 5 * (6.30 - 5.77)},
                             {{6, 1}, 7 * 6.71, 7 * (4.40 - 4.12)},
                             {{4, 2}, 6 * 11.19, 6 * (5.80 - 4.81)}}},
                           {"web", 1'420'000, 12.2, 7.4, {{{6, 2}, 8 * 4.02, 8 * (2.50 - 2.18)}}},
                           {"usr", 1'330'000, 10.2, 2.5, {{{6, 2}, 8 * 3.39, 8 * (1.95 - 1.70)}}},
                           {"mds", 1'070'000, 7.3, 2.9, {{{6, 2}, 8 * 2.19, 8 * (1.16 - 0.98)}}}};

class Calibration : public ::testing::TestWithParam<Target> {};

TEST_P(Calibration, WholeProfileMeetsItsTargets) {
  const Target& target = GetParam();
  StatOptions options;
  options.layouts.clear();
  for (const Total& total : target.totals) {
    options.layouts.push_back(total.layout);
  }
  auto source = OpenTrace(target.name, TraceOptions{});
  ASSERT_TRUE(source.ok());
  TraceStatistics statistics(options);
  std::vector<TraceRequest> batch(4096);
  for (;;) {
    const auto count = (*source)->Read(batch);
    ASSERT_TRUE(count.ok());
    if (*count == 0) {
      break;
    }
    for (size_t i = 0; i < *count; ++i) {
      statistics.Add(batch[i]);
    }
  }
  const TraceSummary got = statistics.Summarise();
  const OpSummary& writes = got.ops[static_cast<size_t>(TraceOp::kWrite)];
  EXPECT_EQ(writes.requests, target.writes);
  EXPECT_NEAR(writes.mean_bytes() / 1000, target.mean_kb, target.mean_kb * 0.02);
  const double footprint_gb = static_cast<double>(got.footprint_chunks * got.chunk_bytes) / 1e9;
  EXPECT_NEAR(footprint_gb, target.working_set_gb, target.working_set_gb * 0.01);
  EXPECT_EQ((*source)->working_set_bytes(), got.footprint_chunks * got.chunk_bytes);
  for (size_t i = 0; i < target.totals.size(); ++i) {
    const Total& total = target.totals[i];
    EXPECT_NEAR(static_cast<double>(got.layouts[i].md_ssd_bytes) / 1e9, total.md_gb,
                total.md_gb * 0.05)
        << total.layout.data_chunks << "+" << total.layout.parity_chunks;
  }
  // Parity written at commits: m chunks for each different stripe of a window.
  const double windows = static_cast<double>(target.writes) / 10'000;
  const double stripes = target.totals[0].parity_gb * 1e9 / (2 * 4096) / windows;
  EXPECT_NEAR(got.layouts[0].windows[1].mean(), stripes, stripes * 0.10);
}

INSTANTIATE_TEST_SUITE_P(Profiles, Calibration, ::testing::ValuesIn(kTargets),
                         [](const auto& param_info) { return std::string(param_info.param.name); });

}  // namespace
}  // namespace eplog
