// What is printed is what is computed.
#include "reliability/explain.h"

#include <gtest/gtest.h>

namespace eplog::reliability {
namespace {

using Cells = std::vector<std::vector<std::string>>;

TEST(GeneratorSymbols, EquationThreeOfThePaper) {
  EXPECT_EQ(GeneratorSymbols(BuildChain(System::kEplog, Parameters{})),
            (Cells{{"-(λh + nλs)", "λh", "nλs", "0"},
                   {"μh", "-(μh + nλs)", "0", "nλs"},
                   {"μs", "0", "-(μs + (n-1)λs + λh)", "(n-1)λs + λh"},
                   {"0", "0", "0", "0"}}));
}

TEST(BuildChain, FigureThreeOfThePaper) {
  Parameters p;
  p.parity = 2;
  const Chain chain = BuildChain(System::kEplog, p);
  ASSERT_EQ(chain.states.size(), 7U) << "S0 ... S6";
  EXPECT_EQ(StateName(chain, 4), "S4 (2,1)");
  EXPECT_EQ(StateWords(chain, 4), "1 SSD, 1 log device down");
  EXPECT_EQ(StateName(chain, 6), "S6 (3,*)");
  const Cells q = GeneratorSymbols(chain);
  EXPECT_EQ(q[4],
            (std::vector<std::string>{"0", "1/2 μs", "1/2 μh", "0",
                                      "-(1/2 μs + 1/2 μh + (n-1)λs + λh)", "0", "(n-1)λs + λh"}))
      << "a failed device is chosen by chance";
  EXPECT_EQ(q[0][1], "2λh");
  EXPECT_EQ(q[3][1], "μh") << "one at a time";
  EXPECT_EQ(q[3][6], "nλs") << "no third log device may fail";
}

TEST(BuildChain, OrdersOfRepair) {
  Parameters p;
  p.parity = 2;
  const auto repairs = [&](RepairOrder order) {
    p.repair = order;
    const Cells q = GeneratorSymbols(BuildChain(System::kEplog, p));
    return std::array{q[4][1], q[4][2], q[5][2]};
  };
  EXPECT_EQ(repairs(RepairOrder::kParallel), (std::array<std::string, 3>{"μs", "μh", "2μs"}));
  EXPECT_EQ(repairs(RepairOrder::kSsdFirst), (std::array<std::string, 3>{"μs", "0", "μs"}));
  EXPECT_EQ(repairs(RepairOrder::kLogFirst), (std::array<std::string, 3>{"0", "μh", "μs"}));
}

TEST(BuildChain, RowsAddUp) {
  Parameters p;
  p.parity = 4;
  p.pending_fraction = 0.25;
  p.correlation = 3;
  p.latent = LatentErrors{1e-16, 0, 0, 1e12, 4096};
  const Chain chain = BuildChain(System::kEplog, p);
  EXPECT_EQ(chain.states.size(), 26U) << "0 ... 4 SSDs, 0 ... 4 log devices, and the loss";
  // However a failure or repair ends, its probabilities add up: the rates are those of the devices.
  for (size_t from = 0; from < chain.loss(); ++from) {
    const auto [ssds, logs, loss] = chain.states[from];
    double expected =
        (p.ssds - ssds) * p.alpha * p.lambda_ssd * (ssds > 0 ? 3 : 1) + (4 - logs) * p.lambda_log;
    const double share = ssds > 0 && logs > 0 ? 0.5 : 1;
    expected += ssds > 0 ? share * p.mu_ssd : 0;
    expected += logs > 0 ? share * p.mu_log : 0;
    double sum = 0;
    for (const Transition& transition : chain.transitions) {
      EXPECT_GT(transition.rate, 0);
      sum += transition.from == from ? transition.rate : 0;
    }
    EXPECT_NEAR(sum / expected, 1, 1e-14) << StateName(chain, from);
  }
}

TEST(ExplainText, SaysItAll) {
  const std::string text = ExplainText(BuildChain(System::kEplog, Parameters{}));
  for (const char* part : {"EPLOG: 4 states", "S2 (1,1)", "1 SSD down", "S2 -> S3", "(n-1)λs + λh",
                           "= 1.375 a year", "failure rate of an SSD in EPLOG", "-10001.4"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
}

TEST(ExplainDot, OneNodeAStateOneEdgeATransition) {
  Parameters p;
  p.parity = 2;
  const Chain chain = BuildChain(System::kEplog, p);
  const std::string dot = ExplainDot(std::span(&chain, 1));
  size_t edges = 0;
  for (size_t at = dot.find(" -> "); at != std::string::npos; at = dot.find(" -> ", at + 1)) {
    ++edges;
  }
  EXPECT_EQ(edges, chain.transitions.size());
  EXPECT_NE(dot.find("A_S4 [label=\"S4 (2,1)"), std::string::npos);
}

}  // namespace
}  // namespace eplog::reliability
