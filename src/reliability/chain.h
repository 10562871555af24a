// The continuous-time Markov chain of an array: one description of states and transitions, from
// which the generator matrix, its printed forms and every figure are made.
//
// States are (i, j) as in the paper: i devices are down, j of them SSDs; ordered by i, then j; the
// last state is the loss of data. For one parity EPLOG's chain is figure 2 and its generator
// equation (3); for two it is figure 3 (S0 ... S6). Conventional RAID has no log devices: i = j.
//
// Every rate is a sum of terms, each a count times symbols, all of them non-negative: nothing is
// ever subtracted to make a rate, so rates keep full relative accuracy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "reliability/parameters.h"

namespace eplog::reliability {

struct Symbol {
  std::string name;     // "λs"
  std::string meaning;  // "failure rate of an SSD in EPLOG"
  std::string unit;     // "a year"; empty: a pure number
  double value = 0;
};

// count * the product of symbols.
struct Term {
  std::string count_text;  // "n-1"; empty for 1
  double count = 1;
  std::vector<size_t> symbols;  // indexes into Chain::symbols
};

// Chain::symbols[kSsdRateSymbol] is the failure rate of one SSD.
inline constexpr size_t kSsdRateSymbol = 0;

struct State {
  uint32_t ssds_down = 0;
  uint32_t logs_down = 0;
  bool loss = false;
};

// At most one from one state to another.
struct Transition {
  size_t from = 0;
  size_t to = 0;
  std::vector<Term> terms;
  double rate = 0;  // a year
};

struct Chain {
  System system = System::kEplog;
  Parameters parameters;  // it was made from
  std::vector<Symbol> symbols;
  std::vector<State> states;  // [0]: all devices are well; last: data is lost
  std::vector<Transition> transitions;

  [[nodiscard]] size_t loss() const { return states.size() - 1; }
};

// `parameters` must have passed Validate(). `wear_rate` is added to the failure rate of every SSD:
// the hazard of wear at some age; latent errors and the rest follow from `parameters`.
[[nodiscard]] Chain BuildChain(System system, const Parameters& parameters, double wear_rate = 0);

// Probability that rebuilding one SSD, `ssds_down` being down and `redundancy_left` further ones
// bearable, meets a stripe that cannot be decoded: more than `redundancy_left` of its n - ssds_down
// chunks are unreadable. 0 without latent errors.
struct RebuildOutcome {
  double loss = 0;
  double success = 1;  // not computed as 1 - loss
};
[[nodiscard]] RebuildOutcome RebuildMeetsLatentErrors(const Parameters& parameters,
                                                      uint32_t ssds_down, uint32_t redundancy_left);

// What a rebuild may still miss in a state. Without the window of pending chunks every device that
// is down counts, as in the paper; with it, log devices do not: what is committed does not need
// them.
[[nodiscard]] uint32_t RedundancyLeft(const Parameters& parameters, uint32_t ssds_down,
                                      uint32_t logs_down);

}  // namespace eplog::reliability
