#include "tests/reliability/exact.h"

#include <cmath>
#include <map>

namespace eplog::reliability {
namespace {

using Place = std::pair<uint32_t, uint32_t>;  // SSDs down, log devices down

struct Repairs {
  Fraction ssd;
  Fraction log;
};

Repairs RepairRates(const Parameters& p, Place place) {
  const auto [s, h] = place;
  Repairs rates{s > 0 ? Fraction(p.mu_ssd) : Fraction(0), h > 0 ? Fraction(p.mu_log) : Fraction(0)};
  if (p.repair == RepairOrder::kParallel) {
    rates.ssd *= s;
    rates.log *= h;
  } else if (s > 0 && h > 0) {
    if (p.repair == RepairOrder::kRandomKind) {
      rates.ssd /= 2;
      rates.log /= 2;
    }
    if (p.repair == RepairOrder::kSsdFirst) {
      rates.log = 0;
    }
    if (p.repair == RepairOrder::kLogFirst) {
      rates.ssd = 0;
    }
  }
  return rates;
}

}  // namespace

Rows ExactGenerator(System system, const Parameters& p) {
  const uint32_t logs = system == System::kEplog ? p.parity : 0;
  const Fraction lambda =
      system == System::kEplog ? Fraction(p.alpha * p.lambda_ssd) : Fraction(p.lambda_ssd);
  std::map<Place, size_t> index;
  for (uint32_t s = 0; s <= p.parity; ++s) {
    for (uint32_t h = 0; h <= logs && s + h <= p.parity; ++h) {
      index.emplace(Place{s, h}, index.size());
    }
  }
  const size_t loss = index.size();
  Rows q(loss + 1, std::vector<Fraction>(loss + 1));
  const auto add = [&](size_t from, Place to, const Fraction& rate) {
    const auto found = index.find(to);
    q[from][found == index.end() ? loss : found->second] += rate;
    q[from][from] -= rate;
  };
  for (const auto& [place, from] : index) {
    const auto [s, h] = place;
    add(from, {s + 1, h}, lambda * (p.ssds - s));
    if (h < logs) {
      add(from, {s, h + 1}, Fraction(p.lambda_log) * (logs - h));
    }
    const Repairs repairs = RepairRates(p, place);
    if (s > 0) {
      add(from, {s - 1, h}, repairs.ssd);
    }
    if (h > 0) {
      add(from, {s, h - 1}, repairs.log);
    }
  }
  return q;
}

Fraction ExactMean(const Rows& generator) {
  // -Q T = 1 over the states but the last.
  const size_t size = generator.size() - 1;
  Rows a(size, std::vector<Fraction>(size + 1));
  for (size_t i = 0; i < size; ++i) {
    for (size_t j = 0; j < size; ++j) {
      a[i][j] = -generator[i][j];
    }
    a[i][size] = 1;
  }
  for (size_t pivot = 0; pivot < size; ++pivot) {
    for (size_t row = 0; row < size; ++row) {
      if (row == pivot || a[row][pivot] == 0) {
        continue;
      }
      const Fraction factor = a[row][pivot] / a[pivot][pivot];
      for (size_t column = pivot; column <= size; ++column) {
        a[row][column] -= factor * a[pivot][column];
      }
    }
  }
  return a[0][size] / a[0][0];
}

Wide ExactLoss(const Rows& generator, double years) {
  const size_t size = generator.size();
  const auto zero = WideRows(size, std::vector<Wide>(size, Wide(0, kBits)));
  const auto times = [&](const WideRows& a, const WideRows& b) {
    WideRows c = zero;
    for (size_t i = 0; i < size; ++i) {
      for (size_t k = 0; k < size; ++k) {
        for (size_t j = 0; a[i][k] != 0 && j < size; ++j) {
          c[i][j] += a[i][k] * b[k][j];
        }
      }
    }
    return c;
  };
  // exp(Q t) = exp(Q t / 2^k)^(2^k), the series to far beyond the precision.
  WideRows x = zero;
  Wide greatest(0, kBits);
  for (size_t i = 0; i < size; ++i) {
    for (size_t j = 0; j < size; ++j) {
      x[i][j] = Wide(generator[i][j], kBits) * Wide(years, kBits);
    }
    greatest = std::max(greatest, Wide(-x[i][i], kBits), [](auto& l, auto& r) { return l < r; });
  }
  int doublings = 0;
  for (; greatest > 0.25; ++doublings) {
    greatest /= 2;
  }
  WideRows sum = zero;
  WideRows term = zero;
  for (size_t i = 0; i < size; ++i) {
    sum[i][i] = term[i][i] = 1;
    for (size_t j = 0; j < size; ++j) {
      mpf_div_2exp(x[i][j].get_mpf_t(), x[i][j].get_mpf_t(), static_cast<unsigned>(doublings));
    }
  }
  for (unsigned k = 1; k < 110; ++k) {
    term = times(term, x);
    for (size_t i = 0; i < size; ++i) {
      for (size_t j = 0; j < size; ++j) {
        term[i][j] /= k;
        sum[i][j] += term[i][j];
      }
    }
  }
  for (int i = 0; i < doublings; ++i) {
    sum = times(sum, sum);
  }
  return sum[0][size - 1];
}

Fraction Equation4(const Parameters& p) {
  const Fraction n(p.ssds);
  const Fraction ls(p.alpha * p.lambda_ssd);
  const Fraction lh(p.lambda_log);
  const Fraction us(p.mu_ssd);
  const Fraction uh(p.mu_log);
  const Fraction top =
      ((2 * n - 1) * ls + us) + (2 * (lh + uh) + (lh + uh) * (lh - ls + us) / (n * ls));
  const Fraction bottom =
      n * (n - 1) * ls * ls + (n * ls * (2 * lh + uh) + (lh + uh) * (lh - ls) + lh * us);
  return top / bottom;
}

Fraction Equation5(const Parameters& p) {
  const Fraction n(p.ssds);
  const Fraction l(p.lambda_ssd);
  return (Fraction(p.mu_ssd) + (2 * n - 1) * l) / (n * (n - 1) * l * l);
}

Fraction Equation6(const Parameters& p) {
  const Fraction n(p.ssds);
  const Fraction l(p.lambda_ssd);
  const Fraction u(p.mu_ssd);
  return (u * u + 2 * (n - 1) * l * u + (3 * n * n - 6 * n + 2) * l * l) /
         (n * (n - 1) * (n - 2) * l * l * l);
}

double RelativeError(double value, const Fraction& truth) {
  return std::abs(Fraction(Fraction(value) / truth - 1).get_d());
}

double RelativeError(double value, const Wide& truth) {
  return std::abs(Wide(Wide(value, kBits) / truth - 1, kBits).get_d());
}

double LogUniform(Random& random, double low, double high) {
  return std::pow(10.0, low + (high - low) * random.Unit());
}

Parameters RandomParameters(Random& random, uint32_t parity) {
  Parameters p;
  p.parity = parity;
  const uint64_t most = random.OneIn(2) ? 1000 : 30;
  p.ssds = static_cast<uint32_t>(random.Between(parity + 1, most));
  p.lambda_ssd = LogUniform(random, -4, 1);
  p.lambda_log = p.lambda_ssd * LogUniform(random, -3, 3);
  p.mu_ssd = p.lambda_ssd * LogUniform(random, -1, 12);
  p.mu_log = p.lambda_ssd * LogUniform(random, -1, 12);
  p.alpha = LogUniform(random, -1.3, 0.2);
  return p;
}

}  // namespace eplog::reliability
