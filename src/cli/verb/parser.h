// What verbs declare their words on. The library behind it is for parser.cc and command_line.cc:
// what its header defines is compiled into every file that includes it, and took longer than all
// the rest.
//
// Both are handles: copied at will, valid as long as the command line's parser is.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "cli/verb/option_types.h"
#include "eplog/result.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library is called so
class App;
class Option;
}  // namespace CLI

namespace eplog::cli {

// A word that was declared: an option ("-o,--option") or an argument ("NAME").
class Option {
 public:
  explicit Option(CLI::Option& option) : option_(&option) {}

  Option Required() const;
  Option TypeName(const std::string& name) const;  // in the help
  Option Group(const std::string& name) const;     // in the help; "": not in it
  Option Needs(const Option& other) const;
  // What the variable holds if the option is not given: as it would be typed, read at once, and
  // shown in the help.
  Option Default(const std::string& typed) const;
  Option Within(uint64_t least, uint64_t most) const;
  Option WithinReals(double least, double most) const;
  Option OneOf(std::initializer_list<std::string> words) const;
  // Of several values: one at a time, the option repeated; with a delimiter, or several in a word.
  Option OneEach() const;
  Option Delimiter(char delimiter) const;

 private:
  CLI::Option* option_;
};

// Types that are read from one word.
template <typename T>
concept ReadFromWord = requires(const Word& word, T& value) {
  { ReadWord(word, value) } -> std::same_as<Status>;
};

class Parser {
 public:
  explicit Parser(CLI::App& app) : app_(&app) {}

  [[nodiscard]] Parser AddVerb(const std::string& name, const std::string& help) const;
  // One of the verbs below it must be given, and no more than one.
  void RequireVerb() const;
  // The variable outlives the parser; what is not given leaves it as it is.
  Option Add(const std::string& names, std::string& value, const std::string& help) const;
  Option Add(const std::string& names, uint32_t& value, const std::string& help) const;
  Option Add(const std::string& names, uint64_t& value, const std::string& help) const;
  Option Add(const std::string& names, double& value, const std::string& help) const;
  Option Add(const std::string& names, std::optional<uint32_t>& value,
             const std::string& help) const;
  Option Add(const std::string& names, std::optional<uint64_t>& value,
             const std::string& help) const;
  Option Add(const std::string& names, std::vector<std::string>& value,
             const std::string& help) const;
  template <ReadFromWord T>
  Option Add(const std::string& names, T& value, const std::string& help) const {
    return AddRead(
        names, [&value](const Word& word) { return ReadWord(word, value); }, help);
  }
  // An empty word, as of a script's variable that was never set, is as if the option was not given.
  template <ReadFromWord T>
  Option Add(const std::string& names, std::optional<T>& value, const std::string& help) const {
    const auto read = [&value](const Word& word) -> Status {
      T given{};
      if (!word.text.empty()) {
        EPLOG_TRY(ReadWord(word, given));
        value = given;
      }
      return OkStatus();
    };
    return AddRead(names, read, help);
  }
  // The words that are given take the place of what the variable holds.
  template <ReadFromWord T>
  Option Add(const std::string& names, std::vector<T>& values, const std::string& help) const {
    const auto read = [&values](const Word& word) -> Status {
      T given{};
      EPLOG_TRY(ReadWord(word, given));
      values.push_back(given);
      return OkStatus();
    };
    return AddReadEach(
        names, [&values] { values.clear(); }, read, help);
  }
  Option AddCall(const std::string& names, const std::function<void(const std::string&)>& take,
                 const std::string& help) const;
  Option AddFlag(const std::string& names, bool& value, const std::string& help) const;
  void Footer(const std::string& text) const;
  // Called when the command line has been read and chose this verb.
  void OnChosen(std::function<void()> chosen) const;
  [[nodiscard]] std::string name() const;

 private:
  using Read = std::function<Status(const Word&)>;
  [[nodiscard]] Option AddRead(const std::string& names, const Read& read,
                               const std::string& help) const;
  [[nodiscard]] Option AddReadEach(const std::string& names, const std::function<void()>& begin,
                                   const Read& read, const std::string& help) const;

  CLI::App* app_;
};

}  // namespace eplog::cli
