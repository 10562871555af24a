// The distribution of the time to loss: against 600-bit arithmetic, against closed forms of the
// simplest chain, and against its own mean.
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "reliability/solver.h"
#include "tests/reliability/exact.h"

namespace eplog::reliability {
namespace {

TEST(LossProbability, WideArithmeticAtEveryParity) {
  Random random(30);
  double worst = 0;
  for (uint32_t parity = 1; parity <= 4; ++parity) {
    for (int i = 0; i < 24; ++i) {
      const Parameters p = RandomParameters(random, parity);
      // From less than a rebuild to a good part of the life.
      const double years = i % 3 == 0   ? LogUniform(random, -2, 2)
                           : i % 3 == 1 ? LogUniform(random, -3, 1) / p.mu_ssd
                                        : 0.5 * MttdlYears(System::kEplog, p);
      const Rows exact = ExactGenerator(System::kEplog, p);
      const double loss = LossProbability(BuildChain(System::kEplog, p), years);
      const double error = RelativeError(loss, ExactLoss(exact, years));
      worst = std::max(worst, error);
      ASSERT_LT(error, 1e-10) << parity << " parity, " << years << " years, " << loss;
    }
  }
  std::printf("worst relative error %.2g\n", worst);
}

TEST(LossProbability, RatesTenToTheTwelfthApart) {
  for (uint32_t parity = 1; parity <= 4; ++parity) {
    Parameters p;
    p.ssds = 1000;
    p.parity = parity;
    p.lambda_ssd = p.lambda_log = 1e-3;
    p.mu_ssd = p.mu_log = 1e9;
    for (const double years : {1e-12, 1e-6, 1.0, 50.0, 1e6}) {
      const double loss = LossProbability(BuildChain(System::kEplog, p), years);
      const Wide truth = ExactLoss(ExactGenerator(System::kEplog, p), years);
      EXPECT_LT(RelativeError(loss, truth), 1e-10) << parity << ", " << years << ": " << loss;
    }
  }
}

// RAID-5: with a, b the roots of x^2 - (mu + (2n-1) lambda) x + n (n-1) lambda^2, the survival is
// (a exp(-b t) - b exp(-a t)) / (a - b).
TEST(LossProbability, ClosedFormOfRaid5) {
  Parameters p;
  p.mu_ssd = 40;
  const double n = p.ssds;
  const double l = p.lambda_ssd;
  const double half = (p.mu_ssd + (2 * n - 1) * l) / 2;
  const double root = std::sqrt(half * half - n * (n - 1) * l * l);
  const double a = half + root;
  const double b = half - root;
  const Chain chain = BuildChain(System::kConventional, p);
  for (const double t : {0.1, 1.0, 5.0, 20.0, 100.0}) {
    const double survival = (a * std::exp(-b * t) - b * std::exp(-a * t)) / (a - b);
    EXPECT_NEAR(LossProbability(chain, t), 1 - survival, 1e-12) << t;
  }
}

TEST(LossProbability, IsADistribution) {
  Parameters p;
  p.parity = 2;
  p.mu_ssd = p.mu_log = 2;
  const Chain chain = BuildChain(System::kEplog, p);
  EXPECT_EQ(LossProbability(chain, 0), 0);
  double last = 0;
  for (double t = 1e-3; t < 1e5; t *= 3) {
    const double now = LossProbability(chain, t);
    EXPECT_TRUE(now > last || now > 1 - 1e-12) << t;
    EXPECT_LE(now, 1);
    last = now;
  }
  EXPECT_NEAR(last, 1, 1e-12);
  // Its mean, by Simpson's rule over the survival.
  const double mean = MeanYearsToLoss(chain);
  const int steps = 2000;
  const double end = 40 * mean;
  double sum = 0;
  for (int i = 0; i <= steps; ++i) {
    const double weight = i == 0 || i == steps ? 1 : i % 2 == 1 ? 4 : 2;
    sum += weight * (1 - LossProbability(chain, end * i / steps));
  }
  EXPECT_NEAR(sum * end / steps / 3 / mean, 1, 1e-6);
}

TEST(YearsInStates, AddUpToTheMean) {
  Random random(31);
  for (int i = 0; i < 200; ++i) {
    const Parameters p = RandomParameters(random, static_cast<uint32_t>(random.Between(1, 4)));
    const Chain chain = BuildChain(System::kEplog, p);
    double sum = 0;
    for (const double years : YearsInStates(chain)) {
      sum += years;
    }
    EXPECT_NEAR(sum / MeanYearsToLoss(chain), 1, 1e-12);
  }
}

TEST(Nines, CountNines) {
  EXPECT_DOUBLE_EQ(Nines(1e-3), 3);
  EXPECT_TRUE(std::isinf(Nines(0)));
  EXPECT_FALSE(std::signbit(Nines(1)));
}

}  // namespace
}  // namespace eplog::reliability
