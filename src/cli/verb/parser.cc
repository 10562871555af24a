#include "cli/verb/parser.h"

#include <CLI/CLI.hpp>
#include <utility>

#include "cli/verb/wrong_value.h"
#include "text/words.h"

namespace eplog::cli {
namespace {

// "-o,--output" -> "--output"
std::string LongName(const std::string& names) {
  return names.substr(names.rfind(',') + 1);
}

void OrThrow(const Status& read) {
  if (!read.ok()) {
    throw WrongValue(read.error());
  }
}

// The library takes -1 for the largest number there is, and 010 for eight.
Option Whole(CLI::Option* option) {
  const auto read = [](std::string& text) -> std::string {
    const auto value = ParseWhole(text);
    if (text.empty() || value) {
      text = value ? std::to_string(*value) : text;
      return "";
    }
    return "needs a whole number, not " + text;
  };
  option->transform(CLI::Validator(read, ""));
  return Option(*option);
}

}  // namespace

Option Option::Required() const {
  option_->required();
  return *this;
}

Option Option::TypeName(const std::string& name) const {
  option_->type_name(name);
  return *this;
}

Option Option::Group(const std::string& name) const {
  option_->group(name);
  return *this;
}

Option Option::Needs(const Option& other) const {
  option_->needs(other.option_);
  return *this;
}

Option Option::Default(const std::string& typed) const {
  option_->run_callback_for_default();
  option_->default_val(typed);
  return *this;
}

Option Option::Within(uint64_t least, uint64_t most) const {
  option_->check(CLI::Range(least, most));
  return *this;
}

Option Option::WithinReals(double least, double most) const {
  option_->check(CLI::Range(least, most));
  return *this;
}

Option Option::OneOf(std::initializer_list<std::string> words) const {
  option_->check(CLI::IsMember(std::vector<std::string>(words)));
  return *this;
}

Option Option::OneEach() const {
  option_->allow_extra_args(false);
  return *this;
}

Option Option::Delimiter(char delimiter) const {
  option_->delimiter(delimiter);
  return *this;
}

Parser Parser::AddVerb(const std::string& name, const std::string& help) const {
  return Parser(*app_->add_subcommand(name, help));
}

void Parser::RequireVerb() const {
  app_->require_subcommand(1);
}

Option Parser::Add(const std::string& names, std::string& value, const std::string& help) const {
  return Option(*app_->add_option(names, value, help));
}

Option Parser::Add(const std::string& names, uint32_t& value, const std::string& help) const {
  return Whole(app_->add_option(names, value, help));
}

Option Parser::Add(const std::string& names, uint64_t& value, const std::string& help) const {
  return Whole(app_->add_option(names, value, help));
}

Option Parser::Add(const std::string& names, double& value, const std::string& help) const {
  return Option(*app_->add_option(names, value, help));
}

Option Parser::Add(const std::string& names, std::optional<uint32_t>& value,
                   const std::string& help) const {
  return Whole(app_->add_option(names, value, help));
}

Option Parser::Add(const std::string& names, std::optional<uint64_t>& value,
                   const std::string& help) const {
  return Whole(app_->add_option(names, value, help));
}

Option Parser::Add(const std::string& names, std::vector<std::string>& value,
                   const std::string& help) const {
  return Option(*app_->add_option(names, value, help));
}

Option Parser::AddCall(const std::string& names,
                       const std::function<void(const std::string&)>& take,
                       const std::string& help) const {
  return Option(*app_->add_option_function<std::string>(names, take, help));
}

Option Parser::AddRead(const std::string& names, const Read& read, const std::string& help) const {
  const auto take = [name = LongName(names), read](const std::string& text) {
    OrThrow(read({name, text}));
  };
  return AddCall(names, take, help);
}

Option Parser::AddReadEach(const std::string& names, const std::function<void()>& begin,
                           const Read& read, const std::string& help) const {
  const auto take = [name = LongName(names), begin, read](const std::vector<std::string>& words) {
    begin();
    for (const std::string& text : words) {
      OrThrow(read({name, text}));
    }
  };
  return Option(*app_->add_option_function<std::vector<std::string>>(names, take, help));
}

Option Parser::AddFlag(const std::string& names, bool& value, const std::string& help) const {
  return Option(*app_->add_flag(names, value, help));
}

void Parser::Footer(const std::string& text) const {
  app_->footer(text);
}

void Parser::OnChosen(std::function<void()> chosen) const {
  app_->callback(std::move(chosen));
}

std::string Parser::name() const {
  return app_->get_name();
}

}  // namespace eplog::cli
