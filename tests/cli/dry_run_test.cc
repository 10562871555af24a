#include "cli/dry_run.h"

#include <gtest/gtest.h>

namespace eplog::cli {
namespace {

Json Standing(const char* state, uint64_t ssds, uint64_t logs, uint64_t pending) {
  return {{"state", state},
          {"further_ssd_losses_survived", ssds},
          {"further_log_losses_survived", logs},
          {"pending_chunks", pending},
          {"allocated_bytes", uint64_t{3} << 20},
          {"free_bytes", uint64_t{5} << 20}};
}

TEST(ChangePlanText, WhatChangesHasAnArrowAndTheRestSaysSo) {
  const Json plan = {{"before", Standing("active", 2, 2, 1)},
                     {"after", Standing("degraded", 1, 2, 1)}};
  EXPECT_EQ(ChangePlanText("would fail ssd1 of 'a'", plan, {{"copies", "7 chunks"}}),
            "would fail ssd1 of 'a', changing nothing now:\n"
            "  state      active -> degraded\n"
            "  survives   any 2 further losses -> 1 SSD or 2 log devices\n"
            "  pending    1 chunk that parity does not cover, as now\n"
            "  space      3.0 MiB allocated, 5.0 MiB free, as now\n"
            "  copies     7 chunks");
}

}  // namespace
}  // namespace eplog::cli
