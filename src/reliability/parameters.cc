#include "reliability/parameters.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

namespace eplog::reliability {
namespace {

tl::unexpected<Error> Refuse(std::string_view name, std::string_view must) {
  return Fail(ErrorCode::kInvalidArgument, std::string(name) + " " + std::string(must));
}

// NaN fails every comparison, so it is refused wherever a number is.
Status CheckRate(std::string_view name, double rate) {
  if (!(rate > 0)) {
    return Refuse(name, "must be a rate above 0 a year");
  }
  if (!(rate >= kLeastRate && rate <= kGreatestRate)) {
    return Refuse(name, "must lie between 1e-15 and 1e15 a year");
  }
  return OkStatus();
}

Status CheckRange(std::string_view name, double value, double low, double high,
                  std::string_view must) {
  return value >= low && value <= high ? OkStatus() : Status(Refuse(name, must));
}

Status CheckLatent(const LatentErrors& latent) {
  EPLOG_TRY(CheckRange("uber", latent.unreadable_per_bit, 0, 1e-3,
                       "must be a probability per bit between 0 and 1e-3, 1e-17 for example"));
  EPLOG_TRY(CheckRange("latent-rate", latent.new_per_ssd_year, 0, 1e12,
                       "must be a number of errors an SSD and year, 0 or more"));
  EPLOG_TRY(
      CheckRange("scrub", latent.scrub_years, 0, 1e3, "must be a time between 0 and 1000 years"));
  EPLOG_TRY(CheckRange("capacity", latent.ssd_bytes, 1, 1e20, "of an SSD must be given, in bytes"));
  return CheckRange("chunk", latent.chunk_bytes, 1, latent.ssd_bytes,
                    "must be at least a byte and fit an SSD");
}

Status CheckWear(const Wear& wear, double alpha) {
  EPLOG_TRY(CheckRange("tbw", wear.endurance_bytes, 1, 1e24, "must be above 0"));
  EPLOG_TRY(CheckRange("wear-shape", wear.shape, 1, 50,
                       "must lie between 1 (a constant rate) and 50 (all at once)"));
  EPLOG_TRY(CheckRange("daily-writes", wear.bytes_per_year, 1, 1e24, "must be above 0"));
  EPLOG_TRY(CheckRange("replace-at", wear.replace_after_bytes, 0, 1e24, "must not be negative"));
  // A millionth of a year, half a minute.
  const double least = 1e-6 * wear.bytes_per_year * std::max(1.0, alpha);
  return wear.replace_after_bytes == 0 || wear.replace_after_bytes >= least
             ? OkStatus()
             : Status(Refuse("replace-at", "must leave an SSD in use for half a minute or more"));
}

double* FindMuLog(Parameters& p) {
  return &p.mu_log;
}
double* FindAlpha(Parameters& p) {
  return &p.alpha;
}

constexpr std::array<Knob, 12> kKnobs = {{
    {"lambda-ssd", "the failure rate of an SSD", [](Parameters& p) { return &p.lambda_ssd; }},
    {"mu-ssd", "the rebuild rate of an SSD", [](Parameters& p) { return &p.mu_ssd; }},
    {"alpha", "the share of SSD writes that EPLOG leaves", FindAlpha},
    {"lambda-log", "the failure rate of a log device",
     [](Parameters& p) { return p.lambda_log > 0 ? &p.lambda_log : nullptr; }},
    {"mu-log", "the rebuild rate of a log device", FindMuLog},
    {"pending", "the time in which chunks rely on the log",
     [](Parameters& p) {
       return p.pending_fraction < 1 && p.pending_fraction > 0 ? &p.pending_fraction : nullptr;
     }},
    {"correlated", "the failure rate beside a failed SSD",
     [](Parameters& p) { return p.correlation > 1 ? &p.correlation : nullptr; }},
    {"uber", "the rate of unreadable bits",
     [](Parameters& p) {
       return p.latent && p.latent->unreadable_per_bit > 0 ? &p.latent->unreadable_per_bit
                                                           : nullptr;
     }},
    {"scrub", "the time between scrubs",
     [](Parameters& p) {
       return p.latent && p.latent->new_per_ssd_year > 0 && p.latent->scrub_years > 0
                  ? &p.latent->scrub_years
                  : nullptr;
     }},
    {"tbw", "the endurance of an SSD",
     [](Parameters& p) { return p.wear ? &p.wear->endurance_bytes : nullptr; }},
    {"daily-writes", "the writes to an SSD",
     [](Parameters& p) { return p.wear ? &p.wear->bytes_per_year : nullptr; }},
    {"replace-at", "the age at which SSDs are replaced",
     [](Parameters& p) {
       return p.wear && p.wear->replace_after_bytes > 0 ? &p.wear->replace_after_bytes : nullptr;
     }},
}};

}  // namespace

Status Validate(const Parameters& p) {
  if (p.ssds < 2 || p.ssds > kMaxSsds) {
    return Refuse("ssds", "must be a number from 2 to 100000");
  }
  if (p.parity < 1 || p.parity > kMaxParity) {
    return Refuse("parity", "must be a number from 1 to 4");
  }
  if (p.parity >= p.ssds) {
    return Refuse("parity", "must be less than the number of SSDs");
  }
  EPLOG_TRY(CheckRate("lambda-ssd", p.lambda_ssd));
  EPLOG_TRY(CheckRate("mu-ssd", p.mu_ssd));
  EPLOG_TRY(CheckRate("mu-log", p.mu_log));
  if (p.lambda_log != 0) {
    EPLOG_TRY(CheckRate("lambda-log", p.lambda_log));
  }
  EPLOG_TRY(
      CheckRange("alpha", p.alpha, 1e-6, 1e6,
                 "must lie between 1e-6 and 1e6: EPLOG's SSD writes over conventional RAID's"));
  EPLOG_TRY(CheckRange("pending", p.pending_fraction, 0, 1, "must lie between 0 and 1"));
  EPLOG_TRY(CheckRange("correlated", p.correlation, 1, 1e6,
                       "must be a factor between 1 (independent) and 1e6"));
  if (p.latent) {
    EPLOG_TRY(CheckLatent(*p.latent));
  }
  return p.wear ? CheckWear(*p.wear, p.alpha) : OkStatus();
}

bool ChainCanHold(const Parameters& parameters) {
  return !parameters.wear || parameters.wear->ages == SsdAges::kArray;
}

double SsdRate(System system, const Parameters& parameters) {
  return system == System::kEplog ? parameters.alpha * parameters.lambda_ssd
                                  : parameters.lambda_ssd;
}

double SsdBytesPerYear(System system, const Parameters& parameters) {
  if (!parameters.wear) {
    return 0;
  }
  return parameters.wear->bytes_per_year * (system == System::kEplog ? parameters.alpha : 1.0);
}

std::span<const Knob> Knobs() {
  return kKnobs;
}

}  // namespace eplog::reliability
