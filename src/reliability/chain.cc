#include "reliability/chain.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace eplog::reliability {
namespace {

// "n", "n-1", "3", "": how many devices, in the words of the paper.
std::string SsdCount(uint32_t down) {
  return down == 0 ? "n" : "n-" + std::to_string(down);
}
std::string Plain(uint32_t count) {
  return count == 1 ? "" : std::to_string(count);
}

class Builder {
 public:
  Builder(System system, const Parameters& parameters, double wear_rate) : p_(parameters) {
    chain_.system = system;
    chain_.parameters = parameters;
    logs_ = system == System::kEplog ? p_.parity : 0;
    // Only with log devices is there anything that relies on them.
    window_ = logs_ > 0 && p_.pending_fraction < 1;
    AddSymbols(wear_rate);
    AddStates();
  }

  Chain Build() {
    for (size_t from = 0; from < chain_.loss(); ++from) {
      AddFailures(from);
      AddRepairs(from);
    }
    for (Transition& transition : chain_.transitions) {
      for (const Term& term : transition.terms) {
        double product = term.count;
        for (const size_t symbol : term.symbols) {
          product *= chain_.symbols[symbol].value;
        }
        transition.rate += product;
      }
    }
    // What cannot happen is no transition (a log device that never fails, say).
    std::erase_if(chain_.transitions, [](const Transition& t) { return t.rate == 0; });
    std::sort(chain_.transitions.begin(), chain_.transitions.end(),
              [](const Transition& a, const Transition& b) {
                return std::pair(a.from, a.to) < std::pair(b.from, b.to);
              });
    return std::move(chain_);
  }

 private:
  size_t AddSymbol(std::string name, std::string meaning, std::string unit, double value) {
    for (size_t i = 0; i < chain_.symbols.size(); ++i) {
      if (chain_.symbols[i].name == name) {
        return i;
      }
    }
    chain_.symbols.push_back({std::move(name), std::move(meaning), std::move(unit), value});
    return chain_.symbols.size() - 1;
  }

  void AddSymbols(double wear_rate) {
    const bool eplog = chain_.system == System::kEplog;
    const std::string wear = wear_rate > 0 ? ", wear included" : "";
    const std::string alpha = eplog ? " in EPLOG: α λ's" : " in conventional RAID";
    AddSymbol(eplog ? "λs" : "λ's", "failure rate of an SSD" + alpha + wear, "a year",
              SsdRate(chain_.system, p_) + wear_rate);
    mu_ssd_ = AddSymbol("μs", "rebuild rate of an SSD", "a year", p_.mu_ssd);
    if (eplog) {
      lambda_log_ = AddSymbol("λh", "failure rate of a log device", "a year", p_.lambda_log);
      mu_log_ = AddSymbol("μh", "rebuild rate of a log device", "a year", p_.mu_log);
    }
    if (p_.correlation > 1) {
      correlation_ = AddSymbol("c", "factor on the failure rate of SSDs beside a failed one", "",
                               p_.correlation);
    }
    if (window_) {
      pending_ = AddSymbol("w", "probability that chunks are pending", "", p_.pending_fraction);
      settled_ = AddSymbol("(1-w)", "probability that none is", "", 1 - p_.pending_fraction);
    }
  }

  void AddStates() {
    const uint32_t most = window_ ? p_.parity + logs_ : p_.parity;
    for (uint32_t down = 0; down <= most; ++down) {
      for (uint32_t ssds = 0; ssds <= std::min(down, p_.parity); ++ssds) {
        if (down - ssds <= logs_) {
          chain_.states.push_back({ssds, down - ssds, false});
        }
      }
    }
    chain_.states.push_back({0, 0, true});
  }

  [[nodiscard]] size_t StateOf(uint32_t ssds, uint32_t logs) const {
    for (size_t i = 0; i < chain_.loss(); ++i) {
      if (chain_.states[i].ssds_down == ssds && chain_.states[i].logs_down == logs) {
        return i;
      }
    }
    return chain_.loss();
  }

  void Add(size_t from, size_t to, Term term) {
    for (Transition& transition : chain_.transitions) {
      if (transition.from == from && transition.to == to) {
        transition.terms.push_back(std::move(term));
        return;
      }
    }
    chain_.transitions.push_back({from, to, {std::move(term)}, 0});
  }

  // A failure that leads to (ssds, logs). Pending chunks lose their last redundancy when more than
  // m devices are down for the first time; what is committed, when more than m SSDs are.
  void AddFailure(size_t from, uint32_t ssds, uint32_t logs, const Term& term) {
    const State& before = chain_.states[from];
    const bool runs_out =
        before.ssds_down + before.logs_down <= p_.parity && ssds + logs > p_.parity;
    if (!window_ || !runs_out || ssds > p_.parity) {
      Add(from, StateOf(ssds, logs), term);
      return;
    }
    Term lost = term;
    lost.symbols.push_back(pending_);
    Add(from, chain_.loss(), std::move(lost));
    Term kept = term;
    kept.symbols.push_back(settled_);
    Add(from, StateOf(ssds, logs), std::move(kept));
  }

  void AddFailures(size_t from) {
    const auto [ssds, logs, loss] = chain_.states[from];
    Term ssd{SsdCount(ssds), static_cast<double>(p_.ssds - ssds), {kSsdRateSymbol}};
    if (ssds > 0 && p_.correlation > 1) {
      ssd.symbols.push_back(correlation_);
    }
    AddFailure(from, ssds + 1, logs, ssd);
    if (logs < logs_) {
      AddFailure(from, ssds, logs + 1,
                 {Plain(logs_ - logs), static_cast<double>(logs_ - logs), {lambda_log_}});
    }
  }

  void AddRepairs(size_t from) {
    const auto [ssds, logs, loss] = chain_.states[from];
    const bool both = ssds > 0 && logs > 0;
    const bool shared = both && p_.repair == RepairOrder::kRandomKind;
    const bool parallel = p_.repair == RepairOrder::kParallel;
    const auto term = [&](uint32_t down, size_t mu) {
      return shared ? Term{"1/2", 0.5, {mu}}
                    : Term{parallel ? Plain(down) : "",
                           parallel ? static_cast<double>(down) : 1.0,
                           {mu}};
    };
    if (ssds > 0 && !(both && p_.repair == RepairOrder::kLogFirst)) {
      AddSsdRepair(from, term(ssds, mu_ssd_));
    }
    if (logs > 0 && !(both && p_.repair == RepairOrder::kSsdFirst)) {
      Add(from, StateOf(ssds, logs - 1), term(logs, mu_log_));
    }
  }

  void AddSsdRepair(size_t from, Term term) {
    const auto [ssds, logs, loss] = chain_.states[from];
    const size_t to = StateOf(ssds - 1, logs);
    if (!p_.latent) {
      Add(from, to, std::move(term));
      return;
    }
    const uint32_t left = RedundancyLeft(p_, ssds, logs);
    const RebuildOutcome outcome = RebuildMeetsLatentErrors(p_, ssds, left);
    const std::string place = std::to_string(ssds + logs) + std::to_string(ssds);
    Term failed = term;
    failed.symbols.push_back(
        AddSymbol("q" + place,
                  "probability that a rebuild in (" + std::to_string(ssds + logs) + "," +
                      std::to_string(ssds) + ") meets a stripe beyond decoding",
                  "", outcome.loss));
    term.symbols.push_back(
        AddSymbol("(1-q" + place + ")", "that it meets none", "", outcome.success));
    Add(from, to, std::move(term));
    Add(from, chain_.loss(), std::move(failed));
  }

  const Parameters& p_;
  Chain chain_;
  uint32_t logs_ = 0;
  bool window_ = false;
  size_t mu_ssd_ = 0;
  size_t lambda_log_ = 0;
  size_t mu_log_ = 0;
  size_t correlation_ = 0;
  size_t pending_ = 0;
  size_t settled_ = 0;
};

}  // namespace

Chain BuildChain(System system, const Parameters& parameters, double wear_rate) {
  EPLOG_CHECK(Validate(parameters).ok(), "parameters were validated");
  return Builder(system, parameters, wear_rate).Build();
}

uint32_t RedundancyLeft(const Parameters& parameters, uint32_t ssds_down, uint32_t logs_down) {
  const uint32_t down = parameters.pending_fraction < 1 ? ssds_down : ssds_down + logs_down;
  return down < parameters.parity ? parameters.parity - down : 0;
}

RebuildOutcome RebuildMeetsLatentErrors(const Parameters& parameters, uint32_t ssds_down,
                                        uint32_t redundancy_left) {
  if (!parameters.latent) {
    return {};
  }
  const LatentErrors& latent = *parameters.latent;
  // Errors expected in one chunk: those met in reading it now, and those that arose since the last
  // scrub, half an interval ago on average.
  const double standing = latent.new_per_ssd_year * latent.scrub_years / 2;
  const double expected = 8 * latent.chunk_bytes * latent.unreadable_per_bit +
                          standing * latent.chunk_bytes / latent.ssd_bytes;
  const double unreadable = -std::expm1(-expected);
  const double readable = std::exp(-expected);
  // Binomial tail of a stripe, summed upwards from its first term: nothing is subtracted.
  const uint32_t chunks = parameters.ssds - ssds_down;
  double term = 1;
  for (uint32_t k = 1; k <= redundancy_left + 1; ++k) {
    term *= unreadable * static_cast<double>(chunks - k + 1) / k;
  }
  double stripe = 0;
  for (uint32_t k = redundancy_left + 1; k <= chunks; ++k) {
    const double next = term * std::pow(readable, static_cast<double>(chunks - k));
    stripe += next;
    if (next < stripe * 1e-18) {
      break;
    }
    term *= unreadable * static_cast<double>(chunks - k) / (k + 1);
  }
  const double stripes = latent.ssd_bytes / latent.chunk_bytes;
  const double log_success = stripes * std::log1p(-std::min(stripe, 1.0));
  return {-std::expm1(log_success), std::exp(log_success)};
}

}  // namespace eplog::reliability
