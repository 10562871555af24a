#include "cli/mttdl/inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "text/suggest.h"

namespace eplog::cli {
namespace {

constexpr const char* kArray = "Array";
constexpr const char* kSsd = "SSDs";
constexpr const char* kLog = "Log devices";
constexpr const char* kBeyond = "Beyond the paper";
constexpr const char* kQuestion = "Question";

constexpr std::array<InputKey, 35> kKeys = {{
    {"ssds", "N", kArray, "SSDs in the main array", ""},
    {"parity", "M", kArray, "parity chunks a stripe, and log devices: 1 to 4", ""},
    {"alpha", "A", kArray, "EPLOG's writes to the SSDs over those of conventional RAID", ""},
    {"repair", "ORDER", kArray, "who is rebuilt first: random, parallel, ssd-first, log-first", ""},
    {"lambda-ssd", "RATE", kSsd, "failures of an SSD a year, in conventional RAID", "lambda-ssd"},
    {"afr-ssd", "PERCENT", kSsd, "the same as a yearly failure rate", "lambda-ssd"},
    {"mttf-ssd", "TIME", kSsd, "the same as mean time to failure: 1.2Mh, 4y", "lambda-ssd"},
    {"mu-ssd", "RATE", kSsd, "rebuilds of an SSD a year", "mu-ssd"},
    {"rebuild-time-ssd", "TIME", kSsd, "the same as mean time: 2h, 50m", "mu-ssd"},
    {"rebuild-rate", "SPEED", kSsd, "the same as bytes a second (100M), with --capacity", "mu-ssd"},
    {"capacity", "SIZE", kSsd, "of one SSD", ""},
    {"lambda-log", "RATE", kLog, "failures of a log device a year", "lambda-log"},
    {"afr-log", "PERCENT", kLog, "the same as a yearly failure rate", "lambda-log"},
    {"mttf-log", "TIME", kLog, "the same as mean time to failure", "lambda-log"},
    {"mu-log", "RATE", kLog, "rebuilds of a log device a year", "mu-log"},
    {"rebuild-time-log", "TIME", kLog, "the same as mean time", "mu-log"},
    {"log-rebuild-rate", "SPEED", kLog, "the same as bytes a second, with --log-capacity",
     "mu-log"},
    {"log-capacity", "SIZE", kLog, "of one log device", ""},
    {"uber", "P", kBeyond, "latent errors: probability that a bit read is lost (1e-17)", ""},
    {"latent-rate", "RATE", kBeyond, "latent errors: new ones on an SSD a year", ""},
    {"scrub", "TIME", kBeyond, "latent errors: time between scrubs (7d)", ""},
    {"chunk", "SIZE", kBeyond, "latent errors: unit of striping (4K)", ""},
    {"tbw", "TB", kBeyond, "wear: endurance of an SSD in TB written", "tbw"},
    {"dwpd", "N", kBeyond, "wear: endurance as drive writes a day over --warranty", "tbw"},
    {"warranty", "TIME", kBeyond, "wear: for --dwpd (5y)", ""},
    {"daily-writes", "SIZE", kBeyond, "wear: written to one SSD of conventional RAID a day", ""},
    {"wear-shape", "K", kBeyond, "wear: Weibull shape, 1 none, 3 usual (3)", ""},
    {"wear-failed", "SHARE", kBeyond, "wear: worn out when the endurance is written (63.2%)", ""},
    {"replace-at", "SHARE", kBeyond, "wear: replace SSDs at this share of the endurance", ""},
    {"ages", "WHICH", kBeyond,
     "wear: array (all of one age), own, staggered; the last two are "
     "simulated",
     ""},
    {"pending", "SHARE", kBeyond, "share of the time in which chunks rely on the log (1)", ""},
    {"correlated", "FACTOR", kBeyond, "more failures of SSDs beside a failed one (1)", ""},
    {"repair-times", "KIND", kBeyond, "exponential, or fixed: simulated", ""},
    {"years", "T,...", kQuestion, "times to tell the probability of loss for (1y,5y,10y)", ""},
    {"fleet", "N", kQuestion, "arrays of this kind, for the number of losses to expect", ""},
}};

const InputKey& KeyOf(std::string_view name) {
  return *std::find_if(kKeys.begin(), kKeys.end(),
                       [&](const InputKey& key) { return key.name == name; });
}

}  // namespace

std::span<const InputKey> InputKeys() {
  return kKeys;
}

Result<std::string> InputName(std::string_view typed) {
  std::string name(typed);
  std::replace(name.begin(), name.end(), '_', '-');
  while (name.starts_with('-')) {
    name.erase(0, 1);
  }
  std::vector<std::string> names;
  for (const InputKey& key : kKeys) {
    names.emplace_back(key.name);
    if (key.name == name) {
      return name;
    }
  }
  const std::string nearest = NearestName(name, names);
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("there is no input '{}'; {}", typed,
                          nearest.empty() ? "see eplog mttdl --help"
                                          : fmt::format("did you mean '{}'?", nearest)));
}

Status InputSet::Set(std::string_view typed, std::string_view text, std::string_view origin) {
  auto name = InputName(typed);
  if (!name.ok()) {
    return Fail(std::move(name).error());
  }
  const std::string_view family = KeyOf(*name).family;
  for (const auto& [other, value] : values_) {
    if (value.origin == origin &&
        (other == *name || (!family.empty() && KeyOf(other).family == family))) {
      return Fail(ErrorCode::kInvalidArgument,
                  other == *name
                      ? fmt::format("{} is given twice; once is enough", *name)
                      : fmt::format("{} and {} say the same; give one of them", other, *name));
    }
  }
  InputSet one;
  one.values_[*name] = {std::string(text), std::string(origin)};
  Overlay(one);
  return OkStatus();
}

void InputSet::Overlay(const InputSet& above) {
  for (const auto& [name, value] : above.values_) {
    const std::string_view family = KeyOf(name).family;
    std::erase_if(values_, [&](const auto& entry) {
      return !family.empty() && KeyOf(entry.first).family == family;
    });
    values_[name] = value;
  }
}

const InputSet::Value* InputSet::Find(std::string_view name) const {
  const auto found = values_.find(name);
  return found == values_.end() ? nullptr : &found->second;
}

bool Inputs::Solvable() const {
  return reliability::ChainCanHold(parameters) &&
         repair_times == reliability::RepairTimes::kExponential;
}

}  // namespace eplog::cli
