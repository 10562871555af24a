// From values as typed to the parameters of the model.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <utility>

#include "cli/mttdl/inputs.h"
#include "report/status_json.h"
#include "text/suggest.h"
#include "text/units.h"

namespace eplog::cli {
namespace {

using reliability::kSecondsPerYear;
using reliability::Parameters;
using reliability::RepairOrder;
using reliability::RepairTimes;
using reliability::SsdAges;

constexpr double kWornOut = 0.6321205588285577;  // 1 - 1/e
constexpr const char* kDefault = "default: the paper's example";
constexpr std::array kDefaultYears = {1.0, 5.0, 10.0};

template <typename T>
struct Choice {
  const char* name;
  T value;
};

class Resolver {
 public:
  explicit Resolver(const InputSet& set) : set_(set) {}

  Result<Inputs> Resolve() {
    // The order is that of the printed list.
    EPLOG_TRY(Array());
    EPLOG_TRY(Ssd());
    EPLOG_TRY(Log());
    EPLOG_TRY(Latent());
    EPLOG_TRY(Wear());
    EPLOG_TRY(Others());
    EPLOG_TRY(Question());
    EPLOG_TRY(reliability::Validate(p_));
    Explain();
    return std::move(out_);
  }

 private:
  using Parser = std::function<Result<double>(std::string_view)>;

  // The value of `name` if there is one; its errors begin with the name.
  Status Read(std::string_view name, const Parser& parse, double& value, std::string* origin,
              bool* found = nullptr) {
    const InputSet::Value* given = set_.Find(name);
    if (given == nullptr) {
      return OkStatus();
    }
    const auto parsed = parse(given->text);
    if (!parsed.ok()) {
      return Refuse(fmt::format("{}: {}", name, parsed.error().message));
    }
    value = *parsed;
    if (origin != nullptr) {
      *origin = given->origin;
    }
    if (found != nullptr) {
      *found = true;
    }
    return OkStatus();
  }

  template <typename T, size_t kCount>
  Status Choose(std::string_view name, const std::array<Choice<T>, kCount>& choices, T& value) {
    const InputSet::Value* given = set_.Find(name);
    if (given == nullptr) {
      return OkStatus();
    }
    std::vector<std::string> names;
    names.reserve(kCount);
    for (const auto& choice : choices) {
      names.emplace_back(choice.name);
    }
    const auto match = MatchName(given->text, names);
    for (const auto& choice : choices) {
      if (match && choice.name == *match) {
        value = choice.value;
        return OkStatus();
      }
    }
    return Refuse(fmt::format("{}: '{}' is none of {}", name, given->text, JoinNames(names)));
  }

  static Result<double> Size(std::string_view text) {
    const auto bytes = ParseSize(text);
    return bytes.ok() ? Result<double>(static_cast<double>(*bytes)) : Fail(bytes.error());
  }
  static Result<double> Count(std::string_view text) {
    const auto count = ParseCount(text);
    return count.ok() ? Result<double>(*count) : Fail(count.error());
  }
  static Result<double> Time(std::string_view text) { return ParseYears(text, "y"); }
  // Of a rebuild, which may not be given without a unit: hours and minutes are both usual.
  static Result<double> RateOfTime(std::string_view text) {
    const auto years = ParseYears(text, "?");
    EPLOG_TRY(years);
    return *years > 0 ? Result<double>(1 / *years)
                      : Refuse(fmt::format("'{}' is no time above 0", text));
  }

  void Fact(std::string key, std::string label, double value, std::string shown,
            std::string origin) {
    out_.facts.push_back(
        {std::move(key), std::move(label), value, std::move(shown), std::move(origin)});
  }

  Status Array() {
    std::string origin = kDefault;
    double count = p_.ssds;
    EPLOG_TRY(Read("ssds", Count, count, &origin));
    p_.ssds = static_cast<uint32_t>(count);
    Fact("ssds", "SSDs in the main array, n", count, fmt::format("{}", p_.ssds), origin);
    origin = kDefault;
    count = p_.parity;
    EPLOG_TRY(Read("parity", Count, count, &origin));
    p_.parity = static_cast<uint32_t>(count);
    Fact("parity", "parity chunks a stripe and log devices, m", count, fmt::format("{}", p_.parity),
         origin);
    origin = kDefault;
    EPLOG_TRY(Read("alpha", ParseShare, p_.alpha, &origin));
    Fact("alpha", "EPLOG's SSD writes over conventional RAID's, α", p_.alpha,
         fmt::format("{:.4g}", p_.alpha), origin);
    constexpr std::array<Choice<RepairOrder>, 4> kOrders = {
        {{"random", RepairOrder::kRandomKind},
         {"parallel", RepairOrder::kParallel},
         {"ssd-first", RepairOrder::kSsdFirst},
         {"log-first", RepairOrder::kLogFirst}}};
    return Choose("repair", kOrders, p_.repair);
  }

  // A failure rate, given in one of three ways.
  Status FailureRate(const std::string& kind, double& rate, std::string& origin) {
    EPLOG_TRY(Read("lambda-" + kind, ParseRate, rate, &origin));
    EPLOG_TRY(Read("afr-" + kind, ParseAfr, rate, &origin));
    return Read("mttf-" + kind, ParseMttf, rate, &origin);
  }

  struct RebuildNames {
    const char* kind;
    const char* speed;
    const char* capacity;
  };
  Status RebuildRate(const RebuildNames& names, double& rate, std::string& origin,
                     double& capacity) {
    const std::string kind = names.kind;
    EPLOG_TRY(Read("mu-" + kind, ParseRate, rate, &origin));
    EPLOG_TRY(Read("rebuild-time-" + kind, RateOfTime, rate, &origin));
    EPLOG_TRY(Read(names.capacity, Size, capacity, nullptr));
    double speed = 0;
    bool found = false;
    EPLOG_TRY(Read(names.speed, ParseSpeed, speed, &origin, &found));
    if (!found) {
      return OkStatus();
    }
    if (!(capacity > 0)) {
      return Refuse(
          fmt::format("{} says how fast a rebuild is, but not how much it writes; add "
                      "--{}",
                      names.speed, names.capacity));
    }
    if (!(speed > 0)) {
      return Refuse(fmt::format("{} must be above 0 bytes a second", names.speed));
    }
    rate = speed / capacity * kSecondsPerYear;
    return OkStatus();
  }

  static std::string RateShown(double rate) {
    return rate > 0 ? fmt::format("{} a year (mean time {}, AFR {})", HumanNumber(rate),
                                  HumanYears(1 / rate), HumanProbability(-std::expm1(-rate)))
                    : "0 a year (never)";
  }
  static std::string RebuildShown(double rate) {
    return fmt::format("{} a year (mean time {})", HumanNumber(rate), HumanYears(1 / rate));
  }

  Status Ssd() {
    std::string origin = kDefault;
    EPLOG_TRY(FailureRate("ssd", p_.lambda_ssd, origin));
    Fact("lambda_ssd_per_year", "failures of an SSD, conventional, λ's", p_.lambda_ssd,
         RateShown(p_.lambda_ssd), origin);
    Fact("lambda_ssd_eplog_per_year", "failures of an SSD, EPLOG, λs = α λ's",
         p_.alpha * p_.lambda_ssd, RateShown(p_.alpha * p_.lambda_ssd), "equation (1)");
    origin = kDefault;
    EPLOG_TRY(RebuildRate({"ssd", "rebuild-rate", "capacity"}, p_.mu_ssd, origin, capacity_));
    Fact("mu_ssd_per_year", "rebuilds of an SSD, μs", p_.mu_ssd, RebuildShown(p_.mu_ssd), origin);
    return OkStatus();
  }

  Status Log() {
    std::string origin = kDefault;
    EPLOG_TRY(FailureRate("log", p_.lambda_log, origin));
    Fact("lambda_log_per_year", "failures of a log device, λh", p_.lambda_log,
         RateShown(p_.lambda_log), origin);
    origin = kDefault;
    double capacity = 0;
    EPLOG_TRY(
        RebuildRate({"log", "log-rebuild-rate", "log-capacity"}, p_.mu_log, origin, capacity));
    Fact("mu_log_per_year", "rebuilds of a log device, μh", p_.mu_log, RebuildShown(p_.mu_log),
         origin);
    return OkStatus();
  }

  // `names` mean nothing without `needed`.
  Status NeedsWith(std::initializer_list<const char*> names, bool there, const char* needed) {
    for (const char* name : names) {
      if (!there && set_.Find(name) != nullptr) {
        return Refuse(fmt::format("{} means nothing by itself; add {}", name, needed));
      }
    }
    return OkStatus();
  }

  Status Latent() {
    reliability::LatentErrors latent;
    bool on = false;
    bool arising = false;
    bool scrubbed = false;
    EPLOG_TRY(Read("uber", ParseNumber, latent.unreadable_per_bit, nullptr, &on));
    EPLOG_TRY(Read("latent-rate", ParseRate, latent.new_per_ssd_year, nullptr, &arising));
    EPLOG_TRY(Read("scrub", Time, latent.scrub_years, nullptr, &scrubbed));
    EPLOG_TRY(Read("chunk", Size, latent.chunk_bytes, nullptr));
    EPLOG_TRY(NeedsWith({"scrub"}, arising, "--latent-rate: how many latent errors arise"));
    EPLOG_TRY(NeedsWith({"latent-rate"}, scrubbed, "--scrub: how long they stay"));
    EPLOG_TRY(NeedsWith({"chunk"}, on || arising, "--uber or --latent-rate"));
    if (!on && !arising) {
      return OkStatus();
    }
    if (!(capacity_ > 0)) {
      return Refuse("latent errors depend on how much a rebuild reads; add --capacity");
    }
    latent.ssd_bytes = capacity_;
    p_.latent = latent;
    Fact("capacity_bytes", "capacity of an SSD", capacity_,
         HumanBytes(static_cast<uint64_t>(capacity_)), set_.Find("capacity")->origin);
    if (on) {
      Fact("uber_per_bit", "bits lost of those read", latent.unreadable_per_bit,
           fmt::format("{:.3g}", latent.unreadable_per_bit), set_.Find("uber")->origin);
    }
    if (arising) {
      Fact("latent_errors_per_ssd_year", "latent errors that arise on an SSD",
           latent.new_per_ssd_year, fmt::format("{:.4g} a year", latent.new_per_ssd_year),
           set_.Find("latent-rate")->origin);
      Fact("scrub_years", "time between scrubs", latent.scrub_years, HumanYears(latent.scrub_years),
           set_.Find("scrub")->origin);
    }
    return OkStatus();
  }

  Status Endurance(double& rated_bytes, bool& on) {
    EPLOG_TRY(Read("tbw", ParseEndurance, rated_bytes, nullptr, &on));
    double dwpd = 0;
    double warranty = 5;
    bool by_days = false;
    EPLOG_TRY(Read("dwpd", ParseNumber, dwpd, nullptr, &by_days));
    EPLOG_TRY(Read("warranty", Time, warranty, nullptr));
    EPLOG_TRY(NeedsWith({"warranty"}, by_days, "--dwpd"));
    if (by_days) {
      if (!(capacity_ > 0)) {
        return Refuse("dwpd counts in capacities of an SSD; add --capacity");
      }
      rated_bytes = dwpd * capacity_ * warranty * kSecondsPerYear / 86400;
      on = true;
    }
    if (on && !(rated_bytes > 0)) {
      return Refuse(fmt::format("{} must be above 0", by_days ? "dwpd" : "tbw"));
    }
    return OkStatus();
  }

  Status Wear() {
    bool on = false;
    double rated = 0;
    EPLOG_TRY(Endurance(rated, on));
    EPLOG_TRY(NeedsWith({"daily-writes", "wear-shape", "wear-failed", "replace-at", "ages"}, on,
                        "--tbw or --dwpd: the endurance of an SSD"));
    if (!on) {
      return OkStatus();
    }
    reliability::Wear wear;
    double daily = 0;
    double failed = kWornOut;
    double replace_at = 0;
    bool planned = false;
    EPLOG_TRY(Read("daily-writes", Size, daily, nullptr));
    EPLOG_TRY(Read("wear-shape", ParseNumber, wear.shape, nullptr));
    EPLOG_TRY(Read("wear-failed", ParseShare, failed, nullptr));
    EPLOG_TRY(Read("replace-at", ParseShare, replace_at, nullptr, &planned));
    constexpr std::array<Choice<SsdAges>, 3> kAges = {
        {{"array", SsdAges::kArray}, {"own", SsdAges::kOwn}, {"staggered", SsdAges::kStaggered}}};
    EPLOG_TRY(Choose("ages", kAges, wear.ages));
    if (!(daily > 0)) {
      return Refuse(
          "wear needs what is written: add --daily-writes, above 0, for one SSD of "
          "conventional RAID");
    }
    if (!(failed > 0 && failed < 1)) {
      return Refuse("wear-failed must lie between 0 and 1 (0 % and 100 %)");
    }
    if (planned && !(replace_at > 0)) {
      return Refuse("replace-at must be a share of the endurance above 0");
    }
    // 1 - exp(-(rated / endurance)^shape) = failed
    wear.endurance_bytes = rated / std::pow(-std::log1p(-failed), 1 / wear.shape);
    wear.bytes_per_year = daily * kSecondsPerYear / 86400;
    wear.replace_after_bytes = replace_at * rated;
    p_.wear = wear;
    Fact("endurance_bytes", "rated endurance of an SSD", rated,
         fmt::format("{} TB written", HumanNumber(rated / 1e12)),
         set_.Find("tbw") != nullptr ? set_.Find("tbw")->origin : set_.Find("dwpd")->origin);
    Fact("daily_writes_bytes", "written to an SSD a day, conventional", daily,
         fmt::format("{} (EPLOG: α times that)", HumanBytes(static_cast<uint64_t>(daily))),
         set_.Find("daily-writes")->origin);
    return OkStatus();
  }

  Status Others() {
    EPLOG_TRY(Read("pending", ParseShare, p_.pending_fraction, nullptr));
    EPLOG_TRY(Read("correlated", ParseNumber, p_.correlation, nullptr));
    constexpr std::array<Choice<RepairTimes>, 2> kTimes = {
        {{"exponential", RepairTimes::kExponential}, {"fixed", RepairTimes::kFixed}}};
    return Choose("repair-times", kTimes, out_.repair_times);
  }

  Status Question() {
    out_.years.assign(kDefaultYears.begin(), kDefaultYears.end());
    if (const InputSet::Value* given = set_.Find("years")) {
      out_.years.clear();
      std::string_view rest = given->text;
      while (true) {
        const size_t comma = rest.find(',');
        const auto years = Time(rest.substr(0, comma));
        if (!years.ok() || !(*years > 0 && *years <= 1e6)) {
          return Refuse(
              fmt::format("years: '{}' is not a time above 0; write 5y or 1y,5y,10y", given->text));
        }
        out_.years.push_back(*years);
        if (comma == std::string_view::npos) {
          break;
        }
        rest.remove_prefix(comma + 1);
      }
    }
    EPLOG_TRY(Read("fleet", ParseNumber, out_.fleet, nullptr));
    if (!(out_.fleet >= 1)) {
      return Refuse("fleet must be a number of arrays, 1 or more");
    }
    return OkStatus();
  }

  // A sentence for everything that the paper does not have.
  void Explain() {
    const auto say = [&](std::string text) { out_.beyond.push_back(std::move(text)); };
    if (p_.repair == RepairOrder::kParallel) {
      say("parallel repair: every failed device is rebuilt at once");
    } else if (p_.repair != RepairOrder::kRandomKind) {
      say(fmt::format("repair order: {} go first where both kinds have failed",
                      p_.repair == RepairOrder::kSsdFirst ? "SSDs" : "log devices"));
    }
    if (p_.latent) {
      say("latent errors: a rebuild of an SSD also loses data where it meets a stripe with more "
          "unreadable chunks than are still redundant");
    }
    if (p_.wear) {
      ExplainWear(say);
    }
    if (p_.pending_fraction < 1) {
      say(fmt::format(
          "pending window: log devices matter only while chunks are pending, {:.4g} % of "
          "the time",
          100 * p_.pending_fraction));
    }
    if (p_.correlation > 1) {
      say(
          fmt::format("correlated failures: SSDs fail {:.4g} times as often while another one is "
                      "down",
                      p_.correlation));
    }
    if (out_.repair_times == RepairTimes::kFixed) {
      say("fixed rebuilds: each takes its mean time; no chain can hold that, so it is simulated");
    }
    out_.parameters = p_;
  }

  template <typename Say>
  void ExplainWear(const Say& say) {
    const reliability::Wear& wear = *p_.wear;
    say(fmt::format(
        "wear: on top of the constant rate a Weibull hazard of shape {:.4g} in bytes written; "
        "EPLOG reaches the rated endurance in {}, conventional RAID in {}",
        wear.shape,
        HumanYears(out_.facts[FactIndex("endurance_bytes")].value / p_.alpha / wear.bytes_per_year),
        HumanYears(out_.facts[FactIndex("endurance_bytes")].value / wear.bytes_per_year)));
    if (wear.replace_after_bytes > 0) {
      say(fmt::format("planned replacement of SSDs after {} TB written",
                      HumanNumber(wear.replace_after_bytes / 1e12)));
    }
    say(wear.ages == SsdAges::kArray
            ? "ages: every SSD is as old as the array (a replacement takes over the age)"
        : wear.ages == SsdAges::kOwn
            ? "ages: all SSDs begin new, a replacement is new; no chain can hold that, so it is "
              "simulated"
            : "ages: the first SSDs come in at staggered ages, a replacement is new; no chain can "
              "hold that, so it is simulated");
  }

  [[nodiscard]] size_t FactIndex(std::string_view key) const {
    size_t i = 0;
    while (out_.facts[i].key != key) {
      ++i;
    }
    return i;
  }

  const InputSet& set_;
  Parameters p_;
  Inputs out_;
  double capacity_ = 0;
};

}  // namespace

Result<Inputs> ResolveInputs(const InputSet& set) {
  return Resolver(set).Resolve();
}

}  // namespace eplog::cli
