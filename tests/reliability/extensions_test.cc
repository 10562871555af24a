// Beyond the paper: wear against an integration of its own, latent errors against sums by hand, and
// which way each of them must pull.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "reliability/solver.h"
#include "reliability/wear.h"

namespace eplog::reliability {
namespace {

Parameters Worn(double shape) {
  Parameters p;
  p.ssds = 6;
  p.mu_ssd = p.mu_log = 50;
  p.lambda_ssd = 0.1;
  p.lambda_log = 0.1;
  p.wear = Wear{8e14, shape, 2e14, 0, SsdAges::kArray};
  return p;
}

struct Integral {
  double loss = 0;  // at the end
  double mean = 0;  // years kept until the end
};

// The forward equations of EPLOG with one parity, written out for this test, by Runge and Kutta's
// fourth-order method in small steps. State: all well, log down, SSD down.
Integral RungeKutta(const Parameters& p, double years, int steps) {
  using State = std::array<double, 4>;  // and the years kept
  const auto hazard = [&](double t) {
    const double scale = p.wear->endurance_bytes / (p.alpha * p.wear->bytes_per_year);
    double age = t;
    if (p.wear->replace_after_bytes > 0) {
      age = std::fmod(t, p.wear->replace_after_bytes / (p.alpha * p.wear->bytes_per_year));
    }
    return p.alpha * p.lambda_ssd +
           p.wear->shape / scale * std::pow(age / scale, p.wear->shape - 1);
  };
  const auto slope = [&](double t, const State& x) {
    const double l = hazard(t);
    const double n = p.ssds;
    return State{-(n * l + p.lambda_log) * x[0] + p.mu_log * x[1] + p.mu_ssd * x[2],
                 p.lambda_log * x[0] - (p.mu_log + n * l) * x[1],
                 n * l * x[0] - (p.mu_ssd + (n - 1) * l + p.lambda_log) * x[2], x[0] + x[1] + x[2]};
  };
  const auto plus = [](const State& a, const State& b, double f) {
    return State{a[0] + f * b[0], a[1] + f * b[1], a[2] + f * b[2], a[3] + f * b[3]};
  };
  State x = {1, 0, 0, 0};
  const double h = years / steps;
  for (int i = 0; i < steps; ++i) {
    // A replacement in the middle of a step would be smeared: callers put steps on its edges, and
    // the last stage looks just before its end.
    const double t = i * h;
    const State k1 = slope(t, x);
    const State k2 = slope(t + h / 2, plus(x, k1, h / 2));
    const State k3 = slope(t + h / 2, plus(x, k2, h / 2));
    const State k4 = slope(t + h * (1 - 1e-9), plus(x, k3, h));
    x = plus(plus(plus(plus(x, k1, h / 6), k2, h / 3), k3, h / 3), k4, h / 6);
  }
  return {1 - x[0] - x[1] - x[2], x[3]};
}

TEST(Wear, AgreesWithRungeKutta) {
  // (shape, means after which next to nothing is left, steps a year)
  const std::array<std::array<double, 3>, 4> cases = {
      {{1, 25, 500}, {2, 8, 1000}, {3.5, 4, 2000}, {10, 2.5, 4000}}};
  for (const auto& [shape, means, steps] : cases) {
    const Parameters p = Worn(shape);
    const std::array years = {0.5, 4.0, 8.0, 12.0};
    const Outlook outlook = Foresee(System::kEplog, p, years);
    for (size_t i = 0; i < years.size(); ++i) {
      const double truth = RungeKutta(p, years[i], 40'000).loss;
      EXPECT_NEAR(outlook.loss_probability[i] / truth, 1, 1e-6) << shape << ", " << years[i];
    }
    const double end = means * outlook.mttdl_years;
    const Integral whole = RungeKutta(p, end, static_cast<int>(end * steps));
    ASSERT_GT(whole.loss, 1 - 1e-8) << shape;
    EXPECT_NEAR(outlook.mttdl_years / whole.mean, 1, 1e-6) << shape;
  }
}

TEST(Wear, PlannedReplacementAgreesWithRungeKutta) {
  Parameters p = Worn(3);
  p.wear->replace_after_bytes = 6e14;  // each 6 years of EPLOG's writing
  ASSERT_NEAR(ReplacementYears(System::kEplog, p), 6, 1e-12);
  const std::array years = {5.0, 6.0, 18.0, 20.0};
  const Outlook outlook = Foresee(System::kEplog, p, years);
  for (size_t i = 0; i < years.size(); ++i) {
    const double truth = RungeKutta(p, years[i], static_cast<int>(years[i] * 6000)).loss;
    EXPECT_NEAR(outlook.loss_probability[i] / truth, 1, 1e-6) << years[i];
  }
  const double end = 6 * std::round(25 * outlook.mttdl_years / 6);
  const Integral whole = RungeKutta(p, end, static_cast<int>(end * 500));
  ASSERT_GT(whole.loss, 1 - 1e-8);
  EXPECT_NEAR(outlook.mttdl_years / whole.mean, 1, 1e-6);
}

TEST(Wear, ShapeOneIsAConstantRate) {
  Parameters p = Worn(1);
  p.parity = 2;
  p.mu_ssd = 1e6;
  Parameters constant = p;
  constant.wear.reset();
  // alpha * (lambda + bytes a year / endurance)
  constant.lambda_ssd += p.wear->bytes_per_year / p.wear->endurance_bytes;
  for (const System system : {System::kEplog, System::kConventional}) {
    EXPECT_NEAR(MttdlYears(system, p) / MttdlYears(system, constant), 1, 1e-7);
  }
}

TEST(Wear, FewerWritesAndEarlierReplacementHelp) {
  Parameters p = Worn(3);
  p.mu_ssd = p.mu_log = 1e4;
  const double before = MttdlYears(System::kEplog, p);
  p.alpha *= 0.9;
  EXPECT_GT(MttdlYears(System::kEplog, p), before);
  double last = MttdlYears(System::kEplog, p);
  for (const double replace_at : {0.9, 0.6, 0.3}) {
    p.wear->replace_after_bytes = replace_at * p.wear->endurance_bytes;
    const double now = MttdlYears(System::kEplog, p);
    EXPECT_GT(now, last) << replace_at;
    last = now;
  }
}

// How long it takes is measured by bench/reliability_time.
TEST(Wear, ALargeChainComesToAnEnd) {
  Parameters p = Worn(3);
  p.ssds = 1000;
  p.parity = 4;
  p.lambda_ssd = 1e-3;
  p.mu_ssd = p.mu_log = 1e9;
  // Without replacement it lives for thousands of years on worn SSDs: the hardest integral there
  // is.
  for (const double replace_at : {0.8, 0.0}) {
    p.wear->replace_after_bytes = replace_at * p.wear->endurance_bytes;
    const double years = MttdlYears(System::kEplog, p);
    EXPECT_TRUE(std::isfinite(years) && years > 0) << "replaced at " << replace_at;
  }
}

// SSDs that are worn out before they are mounted, and such as never wear: an answer, and soon.
TEST(Wear, ExtremesComeToAnEnd) {
  const std::array years = {1e-9, 1.0, 1e6};
  const auto expect_figures = [&](const Parameters& p) {
    ASSERT_TRUE(Validate(p).ok()) << Validate(p).error().message;
    for (const System system : {System::kEplog, System::kConventional}) {
      const Outlook outlook = Foresee(system, p, years);
      EXPECT_TRUE(outlook.mttdl_years > 0 && std::isfinite(outlook.mttdl_years));
      for (const double loss : outlook.loss_probability) {
        EXPECT_TRUE(loss >= 0 && loss <= 1) << loss;
      }
    }
  };
  Parameters p;
  for (const uint32_t parity : {1U, 4U}) {
    p.parity = parity;
    for (const double shape : {1.0, 3.0, 50.0}) {
      p.wear = Wear{1, shape, 1e24, 0};
      expect_figures(p);
      p.wear = Wear{1e12, shape, 1e12, 2e6};
      expect_figures(p);
    }
    p.wear = Wear{1e24, 1, 1, 0};
    expect_figures(p);
  }
  p.wear = Wear{1e12, 3, 1e12, 1};
  EXPECT_FALSE(Validate(p).ok()) << "replaced each microsecond";
}

TEST(LatentErrors, ByHand) {
  Parameters p;
  p.ssds = 10;
  p.latent = LatentErrors{1e-16, 0, 0, 1e12, 4096};
  // Nine SSDs of 8e12 bits are read, each bit unreadable once in 1e16, and nothing may be missed.
  const RebuildOutcome one = RebuildMeetsLatentErrors(p, 1, 0);
  EXPECT_NEAR(one.loss, -std::expm1(-9 * 8e12 * 1e-16), 1e-12);
  EXPECT_NEAR(one.loss + one.success, 1, 1e-15);
  // One more may be missed in every stripe: a pair of unreadable chunks in one of 1e12 / 4096.
  const double chunk = 8 * 4096 * 1e-16;
  EXPECT_NEAR(RebuildMeetsLatentErrors(p, 1, 1).loss / (36 * chunk * chunk * 1e12 / 4096), 1, 1e-6);
  // Standing errors: 3 a year, scrubbed each 0.2 years: 0.3 an SSD.
  p.latent = LatentErrors{0, 3, 0.2, 1e12, 4096};
  EXPECT_NEAR(RebuildMeetsLatentErrors(p, 1, 0).loss, -std::expm1(-9 * 0.3), 1e-9);
  p.latent = LatentErrors{0, 1e12, 1000, 1e12, 4096};
  EXPECT_EQ(RebuildMeetsLatentErrors(p, 1, 0).loss, 1) << "everything is unreadable";
}

TEST(LatentErrors, TheMoreTheWorse) {
  Parameters p;
  p.parity = 2;
  double last = std::numeric_limits<double>::infinity();
  for (const double uber : {0.0, 1e-18, 1e-17, 1e-16, 1e-15, 1e-14}) {
    p.latent = LatentErrors{uber, 0, 0, 4e12, 4096};
    const double now = MttdlYears(System::kEplog, p);
    EXPECT_LT(now, last) << uber;
    last = now;
  }
  p.latent = LatentErrors{0, 0, 0, 4e12, 4096};
  const double none = MttdlYears(System::kEplog, p);
  p.latent.reset();
  EXPECT_NEAR(none / MttdlYears(System::kEplog, p), 1, 1e-14);
}

TEST(Correlated, PullsBothDown) {
  Parameters p;
  p.parity = 2;
  const double eplog = MttdlYears(System::kEplog, p);
  const double conventional = MttdlYears(System::kConventional, p);
  p.correlation = 10;
  // Two of the three failures happen beside a failed SSD.
  EXPECT_NEAR(conventional / MttdlYears(System::kConventional, p), 100, 1);
  EXPECT_LT(MttdlYears(System::kEplog, p), eplog);
}

}  // namespace
}  // namespace eplog::reliability
