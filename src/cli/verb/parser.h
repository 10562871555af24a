// What verbs declare their words on. The library behind it is for parser.cc and command_line.cc:
// what its header defines is compiled into every file that includes it, and took longer than all
// the rest.
//
// Both are handles: copied at will, valid as long as the command line's parser is.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

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
  Option ShowDefault() const;  // what the variable holds now
  Option Within(uint64_t least, uint64_t most) const;
  Option WithinReals(double least, double most) const;
  Option OneOf(std::initializer_list<std::string> words) const;
  // Of several values: one at a time, the option repeated; with a delimiter, or several in a word.
  Option OneEach() const;
  Option Delimiter(char delimiter) const;

 private:
  CLI::Option* option_;
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
  Option AddCall(const std::string& names, const std::function<void(const std::string&)>& take,
                 const std::string& help) const;
  Option AddFlag(const std::string& names, bool& value, const std::string& help) const;
  void Footer(const std::string& text) const;
  // Called when the command line has been read and chose this verb.
  void OnChosen(std::function<void()> chosen) const;
  [[nodiscard]] std::string name() const;

 private:
  CLI::App* app_;
};

}  // namespace eplog::cli
