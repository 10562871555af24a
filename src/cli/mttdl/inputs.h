// What `eplog mttdl` is told: one table of names, used alike by the command line, --sweep, scenario
// files and what is read from an array or a replay; and how it becomes the parameters of the model.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/mttdl/units.h"
#include "eplog/result.h"
#include "reliability/monte_carlo.h"
#include "reliability/parameters.h"

namespace eplog::cli {

// What was asked for cannot be.
[[nodiscard]] inline tl::unexpected<Error> Refuse(std::string message) {
  return Fail(ErrorCode::kInvalidArgument, std::move(message));
}

struct InputKey {
  const char* name;  // "lambda-ssd"
  const char* type;  // what --help shows for the value
  const char* group;
  const char* help;
  // Names of which one is enough: a later one replaces any of them. Empty: stands alone.
  const char* family;
};
[[nodiscard]] std::span<const InputKey> InputKeys();

// Values as text, each with where it came from.
class InputSet {
 public:
  struct Value {
    std::string text;
    std::string origin;  // "given", "replay.json", ...
  };

  // kInvalidArgument for a name that there is not (with the nearest), and for a second value of one
  // family under one origin. `_` may stand for `-`.
  Status Set(std::string_view name, std::string_view text, std::string_view origin);
  // These values over the ones here.
  void Overlay(const InputSet& above);
  [[nodiscard]] const Value* Find(std::string_view name) const;

 private:
  std::map<std::string, Value, std::less<>> values_;
};

// The full name, or kInvalidArgument with the nearest.
Result<std::string> InputName(std::string_view typed);

// One line of what was assumed.
struct InputFact {
  std::string key;  // of the JSON, with its unit
  std::string label;
  double value = 0;
  std::string shown;  // with its unit
  std::string origin;
};

struct Inputs {
  reliability::Parameters parameters;
  reliability::RepairTimes repair_times = reliability::RepairTimes::kExponential;
  std::vector<double> years;  // of which to tell the probability of loss; at least one
  double fleet = 1;           // arrays
  std::vector<InputFact> facts;
  // What is switched on beyond the paper, each a sentence.
  std::vector<std::string> beyond;
  // A chain can hold it all.
  [[nodiscard]] bool Solvable() const;
};

// Checks everything. kInvalidArgument names the input and what it must be.
Result<Inputs> ResolveInputs(const InputSet& set);

}  // namespace eplog::cli
