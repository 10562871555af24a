#include "reliability/propagator.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace eplog::reliability {
namespace {

using Eigen::Index;

// Expected steps of the uniformised chain within the shortest span, and the terms summed over it:
// the first loss may need five steps, and the terms after the 16th are below 10^-17 of that one.
constexpr double kShortestSteps = 1.0 / 16;
constexpr int kTerms = 16;

void NormaliseRows(Matrix& p) {
  for (Index i = 0; i < p.rows(); ++i) {
    p.row(i) /= p.row(i).sum();
  }
}

// One step of the uniformised chain, as lists: few of its entries are not zero.
class SparseStep {
 public:
  // `pace` is twice the greatest rate of leaving a state, so that staying has at least probability
  // 1/2 and the subtraction that gives it cancels nothing.
  SparseStep(const Matrix& rates, double pace) : size_(rates.rows()) {
    for (Index i = 0; i < size_; ++i) {
      entries_.push_back({i, i, 1 - rates.row(i).sum() / pace});
      for (Index j = 0; j < size_; ++j) {
        if (rates(i, j) > 0) {
          entries_.push_back({i, j, rates(i, j) / pace});
        }
      }
    }
  }

  // step * right
  [[nodiscard]] Matrix Apply(const Matrix& right) const {
    Matrix product = Matrix::Zero(size_, right.cols());
    for (const auto& [row, column, value] : entries_) {
      product.row(row) += value * right.row(column);
    }
    return product;
  }

 private:
  struct Entry {
    Index row;
    Index column;
    double value;
  };
  Index size_;
  std::vector<Entry> entries_;
};

// Over a span of `steps` <= kShortestSteps expected steps.
Propagator Shortest(const SparseStep& step, Index states, double steps, double pace) {
  double weight = std::exp(-steps);  // Poisson probability of k steps
  Matrix power = Matrix::Identity(states, states);
  Vector kept = Vector::Ones(states);
  kept(states - 1) = 0;
  // Poisson probabilities of more than k steps, summed from the smallest.
  std::vector<double> weights(kTerms + 8);
  for (size_t k = 0; k < weights.size(); ++k) {
    weights[k] = weight;
    weight *= steps / static_cast<double>(k + 1);
  }
  std::vector<double> beyond(weights.size(), 0.0);
  for (size_t k = weights.size() - 1; k > 0; --k) {
    beyond[k - 1] = beyond[k] + weights[k];
  }
  Propagator span{Matrix::Zero(states, states), Vector::Zero(states)};
  for (size_t k = 0; k < kTerms; ++k) {
    span.probability += weights[k] * power;
    span.years_kept += beyond[k] / pace * kept;
    power = step.Apply(power);
    kept = step.Apply(kept);
    kept(states - 1) = 0;
  }
  NormaliseRows(span.probability);
  return span;
}

}  // namespace

Matrix RateMatrix(const Chain& chain) {
  const auto size = static_cast<Index>(chain.states.size());
  Matrix rates = Matrix::Zero(size, size);
  for (const Transition& transition : chain.transitions) {
    rates(static_cast<Index>(transition.from), static_cast<Index>(transition.to)) = transition.rate;
  }
  return rates;
}

SplitRateMatrix SplitRates(const Chain& chain) {
  const auto size = static_cast<Index>(chain.states.size());
  SplitRateMatrix split{Matrix::Zero(size, size), Matrix::Zero(size, size)};
  for (const Transition& transition : chain.transitions) {
    for (const Term& term : transition.terms) {
      double product = term.count;
      bool ssd = false;
      for (const size_t symbol : term.symbols) {
        ssd = ssd || symbol == kSsdRateSymbol;
        product *= symbol == kSsdRateSymbol ? 1 : chain.symbols[symbol].value;
      }
      Matrix& part = ssd ? split.per_ssd_rate : split.fixed;
      part(static_cast<Index>(transition.from), static_cast<Index>(transition.to)) += product;
    }
  }
  return split;
}

double RewardUntilLoss(const Matrix& rates, const Vector& reward) {
  const Index loss = rates.rows() - 1;
  Matrix q = rates;
  Vector r = reward;
  // State k goes: whoever went to it now goes on to where it led, after the time spent in it.
  for (Index k = loss - 1; k > 0; --k) {
    const double leaving = q.row(k).head(k).sum() + q(k, loss);
    for (Index i = 0; i < k; ++i) {
      if (q(i, k) == 0) {
        continue;
      }
      if (leaving == 0) {
        return std::numeric_limits<double>::infinity();
      }
      const double share = q(i, k) / leaving;
      for (Index j = 0; j < k; ++j) {
        q(i, j) += j == i ? 0 : share * q(k, j);
      }
      q(i, loss) += share * q(k, loss);
      r(i) += share * r(k);
    }
  }
  return q(0, loss) == 0 ? std::numeric_limits<double>::infinity() : r(0) / q(0, loss);
}

Propagator Standstill(Index states) {
  return {Matrix::Identity(states, states), Vector::Zero(states)};
}

Propagator Propagate(const Matrix& rates, double years) {
  const Index states = rates.rows();
  const double fastest = rates.rowwise().sum().maxCoeff();
  const double steps = 2 * fastest * years;
  if (!(steps > 0)) {
    return Standstill(states);
  }
  const int doublings = std::max(0, static_cast<int>(std::ceil(std::log2(steps / kShortestSteps))));
  const SparseStep step(rates, 2 * fastest);
  Propagator span = Shortest(step, states, std::ldexp(steps, -doublings), 2 * fastest);
  for (int i = 0; i < doublings; ++i) {
    span = Then(span, span);
  }
  return span;
}

Propagator Then(const Propagator& first, const Propagator& second) {
  Propagator both{first.probability * second.probability,
                  first.years_kept + first.probability * second.years_kept};
  NormaliseRows(both.probability);
  return both;
}

Propagator Repeat(const Propagator& span, uint64_t times) {
  Propagator result = Standstill(span.probability.rows());
  Propagator power = span;
  for (; times > 0; times /= 2) {
    if (times % 2 == 1) {
      result = Then(result, power);
    }
    if (times > 1) {
      power = Then(power, power);
    }
  }
  return result;
}

}  // namespace eplog::reliability
