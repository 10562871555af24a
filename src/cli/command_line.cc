#include "cli/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <exception>
#include <map>
#include <optional>

#include "cli/verb/wrong_value.h"
#include "terminal/console.h"
#include "text/suggest.h"

namespace eplog::cli {
namespace {

constexpr char kVersion[] = "eplog 0.1.0";

const std::map<std::string, std::string>& Aliases() {
  static const std::map<std::string, std::string> aliases = {{"ls", "list"},
                                                             {"rm", "delete"},
                                                             {"remove", "delete"},
                                                             {"unmount", "umount"},
                                                             {"new", "create"}};
  return aliases;
}

std::vector<std::string> VerbNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(verb->get_name());
  }
  return names;
}

const CLI::App* FindVerb(const CLI::App& app, const std::string& name) {
  const auto verbs =
      app.get_subcommands([&](const CLI::App* verb) { return verb->get_name() == name; });
  return verbs.empty() ? nullptr : verbs.front();
}

std::string FullName(const CLI::App& app, const std::string& typed) {
  const std::vector<std::string> names = VerbNames(app);
  const auto alias = Aliases().find(typed);
  if (alias != Aliases().end() &&
      std::find(names.begin(), names.end(), alias->second) != names.end()) {
    return alias->second;
  }
  return MatchName(typed, names).value_or(typed);
}

// A word where a verb should be that is none of `app`'s.
std::string UnknownVerb(const CLI::App& app, const std::string& typed) {
  const std::vector<std::string> names = VerbNames(app);
  const std::string nearest = NearestName(typed, names);
  const std::string hint = nearest.empty() ? "" : fmt::format("did you mean '{}'? ", nearest);
  return fmt::format("there is no verb '{}'; {}there are: {}", typed, hint, JoinNames(names));
}

std::vector<std::string> OptionNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      if (!option->get_group().empty()) {
        names.push_back("--" + name);
      }
    }
  }
  return names;
}

// What the parser did not understand, in our words.
std::string Explain(const CLI::App& verb, const std::string& name, const CLI::ParseError& error) {
  const std::string help = fmt::format("see 'eplog {}--help'", name.empty() ? "" : name + " ");
  const std::vector<std::string> extras = verb.remaining();
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr && !extras.empty()) {
    if (extras.front().starts_with("-")) {
      const std::string nearest = NearestName(extras.front(), OptionNames(verb));
      return fmt::format("there is no option '{}'; {}{}", extras.front(),
                         nearest.empty() ? "" : fmt::format("did you mean '{}'? ", nearest), help);
    }
    return fmt::format("'{}' is one argument too many; {}", extras.front(), help);
  }
  return fmt::format("{}; {}", error.what(), help);
}

// Values are read before the library looks whether help was asked for.
// At any verb of those that were chosen.
bool AsksForHelp(const CLI::App& app) {
  const bool here = app.get_help_ptr() != nullptr && app.get_help_ptr()->count() != 0;
  return here || (!app.get_subcommands().empty() && AsksForHelp(*app.get_subcommands().front()));
}

// The innermost verb that was chosen, and its name as typed in full.
const CLI::App* ChosenVerb(const CLI::App& app, std::string& name) {
  const CLI::App* verb = &app;
  while (!verb->get_subcommands().empty()) {
    verb = verb->get_subcommands().front();
    name += (name.empty() ? "" : " ") + verb->get_name();
  }
  return verb;
}

void DeclareVerbs(CLI::App& app, Run& run) {
  app.name("eplog");
  app.require_subcommand(1);  // one at most: later words are never taken for verbs
  app.set_help_flag("-h,--help", "print help and leave");
  app.set_version_flag("--version", kVersion, "print the version and leave");
  app.get_formatter()->column_width(36);
  app.footer(
      "Sizes: 4096, 64K, 1.5G, 2T (powers of 1024). 'eplog VERB --help' shows an example of each "
      "verb.\n"
      "Exit status: 0 done, 1 failed, 2 wrong usage, 3 done, but the array is degraded or "
      "something was found.");
  const Parser words(app);
  AddCreate(words, run);
  AddAssemble(words, run);
  AddMount(words, run);
  AddUmount(words, run);
  AddVolume(words, run);
  AddStatus(words, run);
  AddCommit(words, run);
  AddCheckpoint(words, run);
  AddDiscard(words, run);
  AddBuffers(words, run);
  AddFail(words, run);
  AddReplace(words, run);
  AddSpare(words, run);
  AddRebuild(words, run);
  AddCheck(words, run);
  AddScrub(words, run);
  AddInject(words, run);
  AddEvents(words, run);
  AddInspect(words, run);
  AddMttdl(words, run);
  AddTrace(words, run);
  AddReplay(words, run);
}

// A script's variable that was not set: the complaint.
std::optional<std::string> EmptyArgument(const CLI::App& verb) {
  for (const CLI::Option* option : verb.get_options()) {
    const auto& given = option->results();
    if (option->get_positional() && std::find(given.begin(), given.end(), "") != given.end()) {
      return fmt::format("{} is empty: nothing stands between its quotes", option->get_name(true));
    }
  }
  return std::nullopt;
}

// Where a verb is expected but none is given or known: the complaint.
std::optional<std::string> MissingVerb(const CLI::App& app, const std::vector<std::string>& args,
                                       size_t at) {
  const std::vector<std::string> names = VerbNames(app);
  if (names.empty() || (at < args.size() && args[at].starts_with("-"))) {
    return std::nullopt;
  }
  if (at >= args.size()) {
    return fmt::format("say what to do: {}; 'eplog --help' explains", JoinNames(names));
  }
  const CLI::App* next = FindVerb(app, args[at]);
  return next == nullptr ? UnknownVerb(app, args[at]) : MissingVerb(*next, args, at + 1);
}

}  // namespace

void ExpandVerbs(const CLI::App& app, std::vector<std::string>& args) {
  if (!args.empty() && args.front() == "help") {
    // "help VERB ..." is "VERB ... --help"
    args.erase(args.begin());
    args.emplace_back("--help");
  }
  const CLI::App* level = &app;
  for (std::string& arg : args) {
    if (arg.starts_with("-") || VerbNames(*level).empty()) {
      return;
    }
    arg = FullName(*level, arg);
    const CLI::App* next = FindVerb(*level, arg);
    if (next == nullptr) {
      return;
    }
    level = next;
  }
}

int RunCommandLine(std::vector<std::string> args) {
  CLI::App app("EPLOG: RAID-5/6 for SSDs with elastic parity logging");
  Run run;
  DeclareVerbs(app, run);
  ExpandVerbs(app, args);
  if (std::find(args.begin(), args.end(), "--json") != args.end()) {
    ReportErrorsAsJson();
  }
  if (const auto complaint = MissingVerb(app, args, 0)) {
    const bool below = !args.empty() && FindVerb(app, args.front()) != nullptr;
    return FinishOutput(ReportUsage(below ? args.front() : "", *complaint));
  }
  try {
    std::vector<std::string> reversed(args.rbegin(), args.rend());  // as the parser wants it
    app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    Print(app.help());
    return FinishOutput(kDone);
  } catch (const CLI::CallForVersion&) {
    Print(kVersion);
    return FinishOutput(kDone);
  } catch (const WrongValue& wrong) {
    if (AsksForHelp(app)) {
      Print(app.help());
      return FinishOutput(kDone);
    }
    std::string name;
    ChosenVerb(app, name);
    return FinishOutput(ReportUsage(name, wrong.what()));
  } catch (const CLI::ParseError& error) {
    std::string name;
    const CLI::App* verb = ChosenVerb(app, name);
    return FinishOutput(ReportUsage(name, Explain(*verb, name, error)));
  }
  std::string name;
  const CLI::App* verb = ChosenVerb(app, name);
  if (const auto complaint = EmptyArgument(*verb)) {
    return FinishOutput(ReportUsage(name, *complaint));
  }
  const Result<int> done = run();
  return FinishOutput(done.ok() ? *done : ReportError(name, done.error()));
}

}  // namespace eplog::cli
