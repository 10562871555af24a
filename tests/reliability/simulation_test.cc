// The simulation of devices against the chains, wherever a chain can hold the assumptions; and what
// must be so where none can.
//
// Intervals are of 99 %, so one in a hundred misses by right: a seed that does is no reason to
// widen anything. Each comparison therefore takes fifteen seeds and allows for two misses; three
// come by chance once in 2,400 comparisons. Everything is seeded: what passes once passes always.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <string>

#include "reliability/monte_carlo.h"
#include "reliability/solver.h"

namespace eplog::reliability {
namespace {

constexpr int kSeeds = 15;
constexpr int kMisses = 2;

// Losses are not rare: there is something to see.
Parameters Frail(uint32_t parity) {
  Parameters p;
  p.ssds = 8;
  p.parity = parity;
  p.lambda_ssd = 0.6;
  p.lambda_log = 0.8;
  p.mu_ssd = 12;
  p.mu_log = 20;
  p.alpha = 0.6;
  return p;
}

struct Case {
  std::string name;
  std::function<void(Parameters&)> change;
};

std::vector<Case> Cases() {
  return {
      {"the paper", [](Parameters&) {}},
      {"parallel repair", [](Parameters& p) { p.repair = RepairOrder::kParallel; }},
      {"SSDs first", [](Parameters& p) { p.repair = RepairOrder::kSsdFirst; }},
      {"logs first", [](Parameters& p) { p.repair = RepairOrder::kLogFirst; }},
      {"pending window", [](Parameters& p) { p.pending_fraction = 0.3; }},
      {"correlated", [](Parameters& p) { p.correlation = 4; }},
      {"latent errors",
       [](Parameters& p) {
         p.latent = LatentErrors{1e-15, 200, 0.05, 4e12, 4096};
       }},
      {"all of these",
       [](Parameters& p) {
         p.pending_fraction = 0.5;
         p.correlation = 2;
         p.latent = LatentErrors{3e-15, 100, 0.1, 4e12, 65536};
         p.repair = RepairOrder::kParallel;
       }},
  };
}

bool Within(const Estimate& estimate, double truth) {
  return truth >= estimate.low && truth <= estimate.high;
}

void ExpectAgreement(const Parameters& p, System system, uint64_t lives, const std::string& name) {
  constexpr double kYears = 3;
  const std::array years = {kYears};
  const Outlook truth = Foresee(system, p, years);
  int mean_misses = 0;
  int share_misses = 0;
  double width = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    Simulation simulation;
    simulation.seed = seed;
    simulation.lives = lives;
    const Simulated lived = Simulate(system, p, simulation);
    ASSERT_EQ(lived.losses, lives);
    mean_misses += Within(lived.mttdl_years, truth.mttdl_years) ? 0 : 1;
    width += (lived.mttdl_years.high - lived.mttdl_years.low) / truth.mttdl_years / kSeeds;
    simulation.years = kYears;
    const Simulated mission = Simulate(system, p, simulation);
    share_misses += Within(mission.loss_probability, truth.loss_probability.front()) ? 0 : 1;
  }
  EXPECT_LE(mean_misses, kMisses) << name << ": MTTDL " << truth.mttdl_years;
  EXPECT_LE(share_misses, kMisses) << name << ": loss " << truth.loss_probability.front();
  EXPECT_LT(width, 0.2) << name << ": an interval this wide proves nothing";
}

TEST(Simulate, AgreesWithTheChains) {
  for (const Case& c : Cases()) {
    for (const uint32_t parity : {1U, 2U}) {
      Parameters p = Frail(parity);
      c.change(p);
      ExpectAgreement(p, System::kEplog, parity == 1 ? 800 : 800, c.name + ", EPLOG");
      ExpectAgreement(p, System::kConventional, 800, c.name + ", conventional");
    }
  }
}

TEST(Simulate, AgreesWithTheChainsAtThreeAndFourParities) {
  for (const uint32_t parity : {3U, 4U}) {
    Parameters p = Frail(parity);
    p.mu_ssd = p.mu_log = 5;
    ExpectAgreement(p, System::kEplog, 800, "the paper, more parity");
  }
}

TEST(Simulate, AgreesWithWearOfTheArraysAge) {
  for (const double replace_at : {0.0, 0.7}) {
    for (const uint32_t parity : {1U, 2U}) {
      Parameters p = Frail(parity);
      p.lambda_ssd = 0.2;
      p.wear = Wear{1e15, 3.5, 4e14, replace_at * 1e15, SsdAges::kArray};
      ExpectAgreement(p, System::kEplog, 800, "wear, EPLOG");
      ExpectAgreement(p, System::kConventional, 800, "wear, conventional");
      p.correlation = 2;
      p.pending_fraction = 0.5;
      ExpectAgreement(p, System::kEplog, 800, "wear, correlated, pending window");
    }
  }
}

TEST(Simulate, AWrongChainIsNoticed) {
  Parameters p = Frail(2);
  const double truth = MttdlYears(System::kEplog, p);
  p.lambda_log *= 1.2;
  int misses = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    Simulation simulation;
    simulation.seed = seed;
    simulation.lives = 2000;
    misses += Within(Simulate(System::kEplog, p, simulation).mttdl_years, truth) ? 0 : 1;
  }
  EXPECT_GT(misses, kMisses) << "a fifth more failures of the log must be seen";
}

TEST(Simulate, SameSeedSameResult) {
  Parameters p = Frail(2);
  p.wear = Wear{1e15, 3, 4e14, 0, SsdAges::kOwn};
  const auto run = [&](uint64_t seed) {
    Simulation simulation;
    simulation.seed = seed;
    simulation.lives = 50;
    return Simulate(System::kEplog, p, simulation);
  };
  EXPECT_EQ(run(7).mttdl_years.value, run(7).mttdl_years.value);
  EXPECT_EQ(run(7).events, run(7).events);
  EXPECT_NE(run(7).mttdl_years.value, run(8).mttdl_years.value);
}

TEST(Simulate, StopsWhereItIsTold) {
  Parameters p;  // loss takes thousands of years
  p.parity = 3;
  Simulation simulation;
  simulation.lives = 10;
  simulation.most_events = 10'000;
  const Simulated cut = Simulate(System::kEplog, p, simulation);
  EXPECT_TRUE(cut.stopped_early);
  EXPECT_EQ(cut.events, 10'000U);
  EXPECT_EQ(cut.mttdl_years.value, 0) << "no mean of lives that were cut off";
  simulation.years = 1;
  const Simulated mission = Simulate(System::kEplog, p, simulation);
  EXPECT_FALSE(mission.stopped_early);
  EXPECT_EQ(mission.losses, 0U);
  EXPECT_EQ(mission.loss_probability.low, 0);
  EXPECT_GT(mission.loss_probability.high, 0) << "none seen does not mean none possible";
}

// What no chain can hold.
TEST(Simulate, SsdsThatAgeTogetherFailTogether) {
  Parameters p = Frail(1);
  p.lambda_ssd = 0.01;
  p.wear = Wear{1e15, 12, 5e14, 0, SsdAges::kOwn};  // all wear out near the end of the second year
  Simulation simulation;
  simulation.lives = 4000;
  simulation.years = 2.2;
  const Simulated together = Simulate(System::kConventional, p, simulation);
  p.wear->ages = SsdAges::kStaggered;
  const Simulated apart = Simulate(System::kConventional, p, simulation);
  EXPECT_GT(together.loss_probability.low, apart.loss_probability.high);
  // A replacement that is new lives on; one as old as the array soon fails too.
  p.wear->ages = SsdAges::kOwn;
  p.mu_ssd = 400;
  simulation.years = 4;
  const Simulated own = Simulate(System::kConventional, p, simulation);
  p.wear->ages = SsdAges::kArray;
  const Simulated array = Simulate(System::kConventional, p, simulation);
  EXPECT_GT(array.loss_probability.low, own.loss_probability.high);
}

// Two SSDs, one parity, no random failures, and a replacement is too young to wear out before the
// end (its share is below 10^-5): both first SSDs fail within one rebuild of each other, or nothing
// is lost. By quadrature over the first to fail: P = 2 * integral of f(t) [F(t + r) - F(t)].
TEST(Simulate, FixedRebuildsOfWornSsdsAgainstQuadrature) {
  Parameters p;
  p.ssds = 2;
  p.lambda_ssd = 1e-9;
  p.mu_ssd = 20;
  p.wear = Wear{1e15, 12, 1e15, 0, SsdAges::kOwn};  // within a few months of a year
  const double rebuild = 1 / p.mu_ssd;
  const auto worn = [](double t) { return -std::expm1(-std::pow(t, 12)); };
  double expected = 0;
  constexpr int kSteps = 200'000;
  constexpr double kEnd = 1.2;
  for (int i = 0; i < kSteps; ++i) {
    const double t = (i + 0.5) * kEnd / kSteps;
    const double density = 12 * std::pow(t, 11) * std::exp(-std::pow(t, 12));
    expected += 2 * density * (worn(std::min(t + rebuild, kEnd)) - worn(t)) * kEnd / kSteps;
  }
  int misses = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    Simulation simulation;
    simulation.seed = seed;
    simulation.lives = 10'000;
    simulation.years = kEnd;
    simulation.repair_times = RepairTimes::kFixed;
    const Simulated lived = Simulate(System::kConventional, p, simulation);
    misses += Within(lived.loss_probability, expected) ? 0 : 1;
  }
  EXPECT_LE(misses, kMisses) << expected;
}

TEST(SimulateRareLoss, AgreesWithTheChainsAtThePapersRates) {
  for (const uint32_t parity : {1U, 2U, 3U}) {
    Parameters p;
    p.parity = parity;
    for (const System system : {System::kEplog, System::kConventional}) {
      const double truth = MttdlYears(system, p);
      int misses = 0;
      double width = 0;
      for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
        const Estimate estimate = SimulateRareLoss(system, p, seed, 40'000);
        misses += Within(estimate, truth) ? 0 : 1;
        width += (estimate.high - estimate.low) / truth / kSeeds;
      }
      EXPECT_LE(misses, kMisses) << parity << " parity, MTTDL " << truth;
      EXPECT_LT(width, 0.25) << "an interval this wide proves nothing";
    }
  }
}

TEST(SimulateRareLoss, AgreesWithTheChainsBeyondThePaper) {
  for (const Case& c : Cases()) {
    Parameters p;
    p.parity = 2;
    p.mu_ssd = 2000;
    c.change(p);
    const double truth = MttdlYears(System::kEplog, p);
    int misses = 0;
    for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
      misses += Within(SimulateRareLoss(System::kEplog, p, seed, 40'000), truth) ? 0 : 1;
    }
    EXPECT_LE(misses, kMisses) << c.name << ": MTTDL " << truth;
  }
}

}  // namespace
}  // namespace eplog::reliability
