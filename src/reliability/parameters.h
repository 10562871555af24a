// What the reliability of an array depends on, and what of it makes sense.
//
// The model is that of the EPLOG paper, supplement section 2: n SSDs in the main array, m parity
// chunks a stripe, m log devices; devices fail and are repaired at rates, and data is lost when
// more than m devices are down at once. Conventional RAID is the same array without log devices.
// What goes beyond the paper is off unless its field is set; docs/reliability.md explains each.
//
// Units: rates are events a year, times are years, sizes are bytes. A year has 365.25 days.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "eplog/result.h"

namespace eplog::reliability {

inline constexpr uint32_t kMaxParity = 4;
inline constexpr uint32_t kMaxSsds = 100'000;
inline constexpr double kHoursPerYear = 8766;
inline constexpr double kSecondsPerYear = kHoursPerYear * 3600;
// Rates outside of this have no meaning and would overflow a product of five.
inline constexpr double kLeastRate = 1e-15;
inline constexpr double kGreatestRate = 1e15;

enum class System { kEplog, kConventional };

// Who is repaired when devices of both kinds are down. All but kParallel repair one device at a
// time.
enum class RepairOrder {
  kRandomKind,  // the paper: either kind with probability 1/2, so each at half its rate
  kParallel,    // every failed device at once
  kSsdFirst,
  kLogFirst,
};

// Sectors that turn out unreadable while an SSD is rebuilt from the others.
struct LatentErrors {
  double unreadable_per_bit = 0;  // probability that reading a bit fails for good (UBER)
  double new_per_ssd_year = 0;    // latent errors that arise on an SSD, unseen until read
  double scrub_years = 0;         // between two readings of everything, which mend what they find
  double ssd_bytes = 0;           // capacity of one SSD
  double chunk_bytes = 4096;
};

// Which SSD ages how. Only kArray makes a Markov chain (with rates that change in time).
enum class SsdAges {
  kArray,      // every SSD is as old as the array: a replacement takes over the age
  kOwn,        // all are new at first, each replacement is new again
  kStaggered,  // as kOwn, but the first ones come in with ages spread evenly over the endurance
};

// SSDs that wear out: on top of the constant failure rate a Weibull hazard in bytes written.
struct Wear {
  double endurance_bytes = 0;      // written by the time that 1 - 1/e of the SSDs have worn out
  double shape = 3;                // Weibull; 1: no wear, a constant rate; at least 1
  double bytes_per_year = 0;       // on one SSD of conventional RAID; EPLOG writes alpha times that
  double replace_after_bytes = 0;  // planned replacement; 0: only when failed
  SsdAges ages = SsdAges::kArray;
};

struct Parameters {
  uint32_t ssds = 10;   // n
  uint32_t parity = 1;  // m, also the number of EPLOG's log devices
  double lambda_ssd =
      0.25;  // lambda'_s: of an SSD in conventional RAID; EPLOG's is alpha times that
  double mu_ssd = 1e4;
  double alpha = 0.5;        // EPLOG's writes to the SSDs over conventional RAID's: equation (1)
  double lambda_log = 0.25;  // lambda_h; may be 0
  double mu_log = 1e4;
  RepairOrder repair = RepairOrder::kRandomKind;
  // Probability that chunks are pending, relying on the log, at a moment when their redundancy runs
  // out. The paper counts every such moment as a loss: 1.
  double pending_fraction = 1;
  // Factor on the failure rate of the other SSDs while one is down: they are of one age and load.
  double correlation = 1;
  std::optional<LatentErrors> latent;
  std::optional<Wear> wear;
};

// kInvalidArgument names the parameter (by its option's name) and what it must be.
[[nodiscard]] Status Validate(const Parameters& parameters);

// A chain can hold it: everything but SSDs with ages of their own.
[[nodiscard]] bool ChainCanHold(const Parameters& parameters);

// Failure rate of one SSD before wear: alpha lambda'_s or lambda'_s.
[[nodiscard]] double SsdRate(System system, const Parameters& parameters);
// Bytes written to one SSD in a year; 0 without wear.
[[nodiscard]] double SsdBytesPerYear(System system, const Parameters& parameters);

// A number among the parameters that may be turned up and down, for sensitivities.
struct Knob {
  std::string_view name;     // the option's
  std::string_view meaning;  // for a sentence
  // Null if this parameter is not in use.
  double* (*find)(Parameters& parameters);
};
[[nodiscard]] std::span<const Knob> Knobs();

}  // namespace eplog::reliability
