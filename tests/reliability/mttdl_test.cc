// Mean times against the paper's closed forms and against exact arithmetic; the paper's figures;
// what must never hurt.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "reliability/solver.h"
#include "tests/reliability/exact.h"

namespace eplog::reliability {
namespace {

constexpr double kTenDigits = 1e-10;
constexpr std::array kOrders = {RepairOrder::kRandomKind, RepairOrder::kParallel,
                                RepairOrder::kSsdFirst, RepairOrder::kLogFirst};

// n = 10, 1 / lambda' = 4 years, mu = 10^4 a year (supplement, section 2.2).
Parameters Paper(uint32_t parity, double log_over_ssd = 1, double alpha = 0.5) {
  Parameters p;
  p.parity = parity;
  p.lambda_log = log_over_ssd * p.lambda_ssd;
  p.alpha = alpha;
  return p;
}

TEST(MeanYearsToLoss, ClosedFormsOnTenThousandRandomSets) {
  Random random(20);
  double worst = 0;
  for (int i = 0; i < 10'000; ++i) {
    Parameters p = RandomParameters(random, 1);
    worst = std::max(worst, RelativeError(MttdlYears(System::kEplog, p), Equation4(p)));
    worst = std::max(worst, RelativeError(MttdlYears(System::kConventional, p), Equation5(p)));
    p.parity = 2;
    p.ssds = std::max(p.ssds, 3U);
    worst = std::max(worst, RelativeError(MttdlYears(System::kConventional, p), Equation6(p)));
    ASSERT_LT(worst, kTenDigits) << "set " << i;
  }
  std::printf("worst relative error %.2g\n", worst);
}

TEST(MeanYearsToLoss, ClosedFormsOfTheLibraryAreThoseOfThePaper) {
  Random random(21);
  for (int i = 0; i < 10'000; ++i) {
    Parameters p = RandomParameters(random, 1);
    ASSERT_LT(RelativeError(ClosedFormEplogRaid5(p), Equation4(p)), 1e-13);
    ASSERT_LT(RelativeError(ClosedFormRaid5(p), Equation5(p)), 1e-13);
    p.ssds = std::max(p.ssds, 3U);
    ASSERT_LT(RelativeError(ClosedFormRaid6(p), Equation6(p)), 1e-13);
  }
}

TEST(MeanYearsToLoss, ExactArithmeticAtEveryParityAndOrder) {
  Random random(22);
  double worst = 0;
  for (uint32_t parity = 1; parity <= 4; ++parity) {
    for (const RepairOrder order : kOrders) {
      for (int i = 0; i < (parity < 4 ? 60 : 20); ++i) {
        Parameters p = RandomParameters(random, parity);
        p.repair = order;
        for (const System system : {System::kEplog, System::kConventional}) {
          const double error =
              RelativeError(MttdlYears(system, p), ExactMean(ExactGenerator(system, p)));
          worst = std::max(worst, error);
          ASSERT_LT(error, kTenDigits) << parity << " parity, order " << static_cast<int>(order);
        }
      }
    }
  }
  std::printf("worst relative error %.2g\n", worst);
}

// The hardest: a thousand SSDs, rates 10^12 apart, each kind at either end.
TEST(MeanYearsToLoss, ExtremeRatesKeepTheirDigits) {
  double worst = 0;
  for (uint32_t parity = 1; parity <= 4; ++parity) {
    for (const double mu_log : {1e-3, 1.0, 1e9}) {
      for (const double lambda_log : {0.0, 1e-15, 1e-3, 1e9}) {
        Parameters p = Paper(parity);
        p.ssds = 1000;
        p.lambda_ssd = 1e-3;
        p.mu_ssd = 1e9;
        p.mu_log = mu_log;
        p.lambda_log = lambda_log;
        const double error = RelativeError(MttdlYears(System::kEplog, p),
                                           ExactMean(ExactGenerator(System::kEplog, p)));
        worst = std::max(worst, error);
        EXPECT_LT(error, kTenDigits) << parity << " " << mu_log << " " << lambda_log;
      }
    }
  }
  std::printf("worst relative error %.2g\n", worst);
}

TEST(MeanYearsToLoss, FiguresOfThePaper) {
  EXPECT_NEAR(MttdlYears(System::kConventional, Paper(1)), 1778.6, 0.05);
  EXPECT_NEAR(MttdlYears(System::kConventional, Paper(2)), 8.893e6, 500);
  EXPECT_NEAR(MttdlRatio(Paper(1)), 2.77, 0.005);
  EXPECT_NEAR(MttdlRatio(Paper(2)), 2.82, 0.005);
}

TEST(CrossingLogRate, WhereThePaperHasIt) {
  EXPECT_NEAR(CrossingLogRate(Paper(1)).value_or(0), 6.75, 0.005);
  EXPECT_NEAR(CrossingLogRate(Paper(2)).value_or(0), 2.86, 0.005);
  for (uint32_t parity = 1; parity <= 4; ++parity) {
    Parameters p = Paper(parity);
    p.lambda_log = CrossingLogRate(p).value_or(0) * p.lambda_ssd;
    EXPECT_NEAR(MttdlRatio(p), 1, 1e-9) << "it is where they cross";
  }
  EXPECT_FALSE(CrossingLogRate(Paper(1, 1, 1.0)).has_value())
      << "the same writes, and more devices: never ahead";
}

TEST(MeanYearsToLoss, MoreParityWithFailingLogDevicesMayHurt) {
  Parameters p;
  p.ssds = 13;
  p.alpha = 1;
  p.lambda_ssd = 0.155;
  p.lambda_log = 252;
  p.mu_ssd = 234;
  p.mu_log = 36.3;
  const double one = MttdlYears(System::kEplog, p);
  p.parity = 2;
  EXPECT_NEAR(MttdlYears(System::kEplog, p) / one, 0.986, 0.0005);
  p.lambda_log = 0.155;
  p.parity = 1;
  const double reliable_one = MttdlYears(System::kEplog, p);
  p.parity = 2;
  EXPECT_GT(MttdlYears(System::kEplog, p), 10 * reliable_one);
}

// A device more to fail, or a failure more often, cannot help; a faster rebuild cannot hurt.
TEST(MeanYearsToLoss, FasterRepairAndFewerWritesNeverHurt) {
  Random random(23);
  constexpr double kRounding = 1 - 1e-12;
  for (int i = 0; i < 20'000; ++i) {
    Parameters p = RandomParameters(random, static_cast<uint32_t>(random.Between(1, 4)));
    p.repair = kOrders[random.Below(kOrders.size())];
    const double before = MttdlYears(System::kEplog, p);
    const double conventional = MttdlYears(System::kConventional, p);
    const double factor = 1 + LogUniform(random, -3, 1);
    Parameters other = p;
    other.mu_ssd *= factor;
    ASSERT_GE(MttdlYears(System::kEplog, other), before * kRounding) << "mu-ssd, set " << i;
    ASSERT_GE(MttdlYears(System::kConventional, other), conventional * kRounding);
    other = p;
    other.mu_log *= factor;
    ASSERT_GE(MttdlYears(System::kEplog, other), before * kRounding) << "mu-log, set " << i;
    other = p;
    other.alpha /= factor;
    ASSERT_GE(MttdlYears(System::kEplog, other), before * kRounding) << "alpha, set " << i;
    other = p;
    other.lambda_log /= factor;
    ASSERT_GE(MttdlYears(System::kEplog, other), before * kRounding) << "lambda-log, set " << i;
  }
}

TEST(MeanYearsToLoss, WithoutFailingLogsAndSavingsItIsConventionalRaid) {
  Random random(24);
  for (int i = 0; i < 1000; ++i) {
    Parameters p = RandomParameters(random, static_cast<uint32_t>(random.Between(1, 4)));
    p.alpha = 1;
    p.lambda_log = 0;
    EXPECT_NEAR(MttdlRatio(p), 1, 1e-12);
    p.repair = RepairOrder::kSsdFirst;
    p.lambda_log = 1;
    p.pending_fraction = 0;
    EXPECT_NEAR(MttdlRatio(p), 1, 1e-10) << "log devices do not matter if nothing relies on them";
  }
}

TEST(MeanYearsToLoss, TheWindowEndsAtThePaper) {
  Random random(25);
  for (int i = 0; i < 300; ++i) {
    Parameters p = RandomParameters(random, static_cast<uint32_t>(random.Between(1, 4)));
    p.repair = kOrders[random.Below(kOrders.size())];
    const double paper = MttdlYears(System::kEplog, p);
    p.pending_fraction = std::nextafter(1.0, 0.0);
    EXPECT_NEAR(MttdlYears(System::kEplog, p) / paper, 1, 1e-10);
    double last = paper;
    for (const double w : {0.8, 0.5, 0.1, 0.0}) {
      p.pending_fraction = w;
      const double now = MttdlYears(System::kEplog, p);
      EXPECT_GE(now, last * (1 - 1e-12)) << "a shorter window never hurts";
      last = now;
    }
  }
}

// How long it takes is measured by bench/reliability_time.
TEST(MeanYearsToLoss, OfAThousandSsdsWithFourParitiesIsFound) {
  Parameters p = Paper(4);
  p.ssds = 1000;
  p.lambda_ssd = 1e-3;
  p.mu_ssd = p.mu_log = 1e9;
  for (const double w : {1.0, 0.5}) {
    p.pending_fraction = w;
    const std::array years = {1.0, 10.0, 1e6};
    const Outlook outlook = Foresee(System::kEplog, p, years);
    EXPECT_TRUE(outlook.mttdl_years > 0 && std::isfinite(outlook.mttdl_years)) << "w = " << w;
  }
}

TEST(Elasticities, AgreeWithTheFormulas) {
  // MTTDL of conventional RAID with m parities goes with mu^m / lambda^(m+1).
  Parameters p = Paper(3);
  p.mu_ssd = p.mu_log = 1e9;
  const auto all = Elasticities(p);
  ASSERT_EQ(all.size(), 5U);
  const auto of = [&](std::string_view name) {
    for (const Elasticity& e : all) {
      if (e.name == name) {
        return e;
      }
    }
    ADD_FAILURE() << name;
    return Elasticity{};
  };
  EXPECT_NEAR(of("lambda-ssd").conventional, -4, 1e-5);
  EXPECT_NEAR(of("mu-ssd").conventional, 3, 1e-5);
  EXPECT_EQ(of("alpha").conventional, 0);
  EXPECT_NEAR(of("lambda-ssd").eplog, of("alpha").eplog, 1e-9) << "only their product matters";
  EXPECT_NEAR(of("alpha").eplog + of("lambda-log").eplog, -4, 1e-4) << "all failures together";
  for (size_t i = 1; i < all.size(); ++i) {
    EXPECT_GE(std::abs(all[i - 1].eplog), std::abs(all[i].eplog)) << "the strongest first";
  }
}

TEST(Validate, RefusesNonsenseByName) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  const auto refused = [](const char* name, const auto& change) {
    Parameters p;
    change(p);
    const Status status = Validate(p);
    ASSERT_FALSE(status.ok()) << name;
    EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
    EXPECT_TRUE(status.error().message.starts_with(std::string(name) + " "))
        << status.error().message;
  };
  EXPECT_TRUE(Validate(Parameters{}).ok());
  for (const double bad : {-1.0, 0.0, nan, infinity, -infinity, 1e300, 1e-300}) {
    refused("lambda-ssd", [&](Parameters& p) { p.lambda_ssd = bad; });
    refused("mu-ssd", [&](Parameters& p) { p.mu_ssd = bad; });
    refused("mu-log", [&](Parameters& p) { p.mu_log = bad; });
    refused("alpha", [&](Parameters& p) { p.alpha = bad; });
  }
  for (const double bad : {-1.0, nan, infinity}) {
    refused("lambda-log", [&](Parameters& p) { p.lambda_log = bad; });
    refused("pending", [&](Parameters& p) { p.pending_fraction = bad; });
    refused("correlated", [&](Parameters& p) { p.correlation = bad; });
    refused("uber", [&](Parameters& p) { p.latent = LatentErrors{bad, 0, 0, 1e9, 4096}; });
    refused("scrub", [&](Parameters& p) { p.latent = LatentErrors{0, 1, bad, 1e9, 4096}; });
    refused("tbw", [&](Parameters& p) { p.wear = Wear{bad, 3, 1, 0}; });
    refused("wear-shape", [&](Parameters& p) { p.wear = Wear{1e12, bad, 1, 0}; });
  }
  refused("ssds", [](Parameters& p) { p.ssds = 1; });
  refused("ssds", [](Parameters& p) { p.ssds = 0; });
  refused("parity", [](Parameters& p) { p.parity = 0; });
  refused("parity", [](Parameters& p) { p.parity = 5; });
  refused("parity", [](Parameters& p) { p.ssds = p.parity = 3; });
}

}  // namespace
}  // namespace eplog::reliability
