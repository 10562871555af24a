#include "reliability/monte_carlo.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "base/check.h"
#include "base/random.h"
#include "reliability/chain.h"

namespace eplog::reliability {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double Exponential(Random& random) {
  return -std::log1p(-random.Unit());
}

struct Device {
  bool ssd = false;
  bool down = false;
  double random_hazard_left = 0;  // until it fails by chance
  double wear_hazard_left = 0;    // until it has worn out
  double written = 0;             // bytes; SSDs only
  double work_left = 0;           // of its rebuild, in units of the mean
};

// One array, from new to loss.
class ArrayLife {
 public:
  ArrayLife(System system, const Parameters& p, const Simulation& simulation, Random& random)
      : p_(p),
        simulation_(simulation),
        random_(random),
        ssd_rate_(SsdRate(system, p)),
        bytes_per_year_(SsdBytesPerYear(system, p)),
        logs_(system == System::kEplog ? p.parity : 0) {}

  // Years to the loss, or Simulation::years if it was not met before. Adds to `events`; empty when
  // those are used up.
  std::optional<double> Live(uint64_t& events) {
    Begin();
    for (double now = 0; events < simulation_.most_events;) {
      const Next next = FindNext();
      if (now + next.years >= simulation_.years) {
        return simulation_.years;
      }
      now += next.years;
      Advance(next.years);
      ++events;
      if (!Happen(next)) {
        return now;
      }
    }
    return std::nullopt;
  }

 private:
  enum class Kind { kFailure, kRepair, kReplacement };
  struct Next {
    Kind kind = Kind::kFailure;
    size_t device = 0;
    double years = kInfinity;  // from now
  };

  void Begin() {
    devices_.assign(p_.ssds + logs_, Device{});
    down_.clear();
    ssds_down_ = logs_down_ = 0;
    array_written_ = 0;
    for (size_t i = 0; i < devices_.size(); ++i) {
      devices_[i].ssd = i < p_.ssds;
      Renew(devices_[i]);
      if (p_.wear && p_.wear->ages == SsdAges::kStaggered && devices_[i].ssd) {
        const double span = p_.wear->replace_after_bytes > 0 ? p_.wear->replace_after_bytes
                                                             : p_.wear->endurance_bytes;
        devices_[i].written = span * static_cast<double>(i) / p_.ssds;
      }
    }
  }

  void Renew(Device& device) {
    device.down = false;
    device.random_hazard_left = Exponential(random_);
    if (device.ssd && p_.wear) {
      device.wear_hazard_left = Exponential(random_);
      device.written = p_.wear->ages == SsdAges::kArray ? array_written_ : 0;
    }
  }

  [[nodiscard]] double Stress() const { return ssds_down_ > 0 ? p_.correlation : 1; }
  [[nodiscard]] double CumulativeWear(double written) const {
    return std::pow(written / p_.wear->endurance_bytes, p_.wear->shape);
  }

  // Years until an SSD that is up fails or is replaced.
  void ConsiderSsd(size_t index, Next& next) const {
    const Device& device = devices_[index];
    Take(next, Kind::kFailure, index, device.random_hazard_left / (Stress() * ssd_rate_));
    if (!p_.wear) {
      return;
    }
    const double survived = CumulativeWear(device.written) + device.wear_hazard_left / Stress();
    const double end = p_.wear->endurance_bytes * std::pow(survived, 1 / p_.wear->shape);
    Take(next, Kind::kFailure, index, std::max(0.0, end - device.written) / bytes_per_year_);
    if (p_.wear->replace_after_bytes > 0) {
      Take(next, Kind::kReplacement, index,
           std::max(0.0, p_.wear->replace_after_bytes - device.written) / bytes_per_year_);
    }
  }

  static void Take(Next& next, Kind kind, size_t device, double years) {
    if (years < next.years) {
      next = {kind, device, years};
    }
  }

  // Share of the repair effort that a failed device gets; `first` of its kind to have failed.
  [[nodiscard]] double Speed(const Device& device, bool first) const {
    if (p_.repair == RepairOrder::kParallel) {
      return 1;
    }
    if (!first) {
      return 0;
    }
    if (ssds_down_ == 0 || logs_down_ == 0) {
      return 1;
    }
    switch (p_.repair) {
      case RepairOrder::kSsdFirst:
        return device.ssd ? 1 : 0;
      case RepairOrder::kLogFirst:
        return device.ssd ? 0 : 1;
      default:
        return 0.5;
    }
  }

  // Calls visit(index, work done a year) for every failed device that is being rebuilt.
  template <typename Visit>
  void EachRebuild(const Visit& visit) {
    bool first_ssd = true;
    bool first_log = true;
    for (const size_t index : down_) {
      bool& first = devices_[index].ssd ? first_ssd : first_log;
      const double speed = Speed(devices_[index], first);
      first = false;
      if (speed > 0) {
        visit(index, speed * (devices_[index].ssd ? p_.mu_ssd : p_.mu_log));
      }
    }
  }

  Next FindNext() {
    Next next;
    for (size_t i = 0; i < devices_.size(); ++i) {
      if (devices_[i].down) {
        continue;
      }
      if (devices_[i].ssd) {
        ConsiderSsd(i, next);
      } else if (p_.lambda_log > 0) {
        Take(next, Kind::kFailure, i, devices_[i].random_hazard_left / p_.lambda_log);
      }
    }
    EachRebuild([&](size_t index, double pace) {
      Take(next, Kind::kRepair, index, devices_[index].work_left / pace);
    });
    return next;
  }

  void Advance(double years) {
    for (Device& device : devices_) {
      if (device.down) {
        continue;
      }
      if (!device.ssd) {
        device.random_hazard_left -= years * p_.lambda_log;
        continue;
      }
      device.random_hazard_left -= years * Stress() * ssd_rate_;
      if (p_.wear) {
        const double written = device.written + years * bytes_per_year_;
        device.wear_hazard_left -=
            Stress() * (CumulativeWear(written) - CumulativeWear(device.written));
        device.written = written;
      }
    }
    EachRebuild([&](size_t index, double pace) { devices_[index].work_left -= years * pace; });
    array_written_ += years * bytes_per_year_;
  }

  // False: data is lost.
  bool Happen(const Next& next) {
    Device& device = devices_[next.device];
    if (next.kind == Kind::kReplacement) {
      if (p_.wear->ages != SsdAges::kArray) {
        device.written = 0;
        device.wear_hazard_left = Exponential(random_);
        return true;
      }
      // The chain takes the whole array back to new at once.
      array_written_ = 0;
      for (Device& ssd : devices_) {
        if (ssd.ssd && !ssd.down) {
          ssd.written = 0;
          ssd.wear_hazard_left = Exponential(random_);
        }
      }
      return true;
    }
    return next.kind == Kind::kFailure ? Failure(next.device) : Repair(next.device);
  }

  bool Failure(size_t index) {
    Device& device = devices_[index];
    const bool covered = ssds_down_ + logs_down_ <= p_.parity;
    device.down = true;
    device.work_left = simulation_.repair_times == RepairTimes::kFixed ? 1.0 : Exponential(random_);
    down_.push_back(index);
    ++(device.ssd ? ssds_down_ : logs_down_);
    if (ssds_down_ > p_.parity) {
      return false;
    }
    const bool runs_out = covered && ssds_down_ + logs_down_ > p_.parity;
    return !runs_out || !random_.Chance(p_.pending_fraction);
  }

  bool Repair(size_t index) {
    Device& device = devices_[index];
    if (device.ssd && p_.latent) {
      const uint32_t left = RedundancyLeft(p_, ssds_down_, logs_down_);
      if (random_.Chance(RebuildMeetsLatentErrors(p_, ssds_down_, left).loss)) {
        return false;
      }
    }
    --(device.ssd ? ssds_down_ : logs_down_);
    std::erase(down_, index);
    Renew(device);
    return true;
  }

  const Parameters& p_;
  const Simulation& simulation_;
  Random& random_;
  double ssd_rate_;
  double bytes_per_year_;
  uint32_t logs_;
  std::vector<Device> devices_;  // SSDs, then log devices
  std::vector<size_t> down_;     // in the order in which they failed
  uint32_t ssds_down_ = 0;
  uint32_t logs_down_ = 0;
  double array_written_ = 0;  // by an SSD that was there from the beginning or the last replacement
};

Estimate MeanOf(double sum, double sum_of_squares, uint64_t count) {
  const auto n = static_cast<double>(count);
  const double mean = sum / n;
  const double variance = std::max(0.0, sum_of_squares / n - mean * mean) * n / (n - 1);
  const double margin = kSigmas99 * std::sqrt(variance / n);
  return {mean, std::max(0.0, mean - margin), mean + margin};
}

// Wilson's score interval.
Estimate ShareOf(uint64_t hits, uint64_t count) {
  const auto n = static_cast<double>(count);
  const double p = static_cast<double>(hits) / n;
  const double z2 = kSigmas99 * kSigmas99;
  const double centre = (p + z2 / (2 * n)) / (1 + z2 / n);
  const double margin = kSigmas99 / (1 + z2 / n) * std::sqrt(p * (1 - p) / n + z2 / (4 * n * n));
  return {p, hits == 0 ? 0.0 : std::max(0.0, centre - margin),
          hits == count ? 1.0 : std::min(1.0, centre + margin)};
}

}  // namespace

Simulated Simulate(System system, const Parameters& parameters, const Simulation& simulation) {
  EPLOG_CHECK(Validate(parameters).ok(), "parameters were validated");
  Simulated result;
  double sum = 0;
  double squares = 0;
  for (uint64_t life = 0; life < simulation.lives; ++life) {
    // Each life has a sequence of its own, so that it does not depend on those before it.
    Random random(simulation.seed * 0x9E3779B97F4A7C15ULL + life);
    ArrayLife array(system, parameters, simulation, random);
    const std::optional<double> years = array.Live(result.events);
    if (!years) {
      result.stopped_early = true;
      break;
    }
    ++result.lives;
    result.losses += *years < simulation.years ? 1 : 0;
    sum += *years;
    squares += *years * *years;
  }
  if (result.lives > 1) {
    if (result.losses == result.lives) {
      result.mttdl_years = MeanOf(sum, squares, result.lives);
    }
    result.loss_probability = ShareOf(result.losses, result.lives);
  }
  return result;
}

}  // namespace eplog::reliability
