// eplog scrub: read everything that an array's devices hold, name what is wrong, and heal it on
// request.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "cli/dry_run.h"
#include "cli/print_report.h"
#include "cli/verb/verbs.h"
#include "host/array_file.h"
#include "host/ask_or_open.h"
#include "host/scrub_mark.h"
#include "host/session.h"
#include "report/report_json.h"
#include "report/status_json.h"
#include "terminal/console.h"

namespace eplog::cli {
namespace {

constexpr char kScrubVerb[] = "scrub";

struct ScrubCommand {
  std::string array;
  bool repair = false;
  bool restart = false;
  bool dry_run = false;
  bool json = false;
};

// When the last one ended, from the array's events; null if they do not say.
Json LastScrub(const ArrayFile& file) {
  Json last;
  for (const char* suffix : {".1", ""}) {
    std::ifstream in(EventsPath(file) + suffix, std::ios::binary);
    for (std::string line; std::getline(in, line);) {
      const Json event = Json::parse(line, nullptr, false);
      if (event.is_object() && event.value("event", "") == "scrub_finished") {
        last = {{"time", event.value("time", "")}, {"text", event.value("text", "")}};
      }
    }
  }
  return last;
}

Result<int> DryRun(const ScrubCommand& command, const ArrayFile& file) {
  auto plan = PlanChange(kScrubVerb, file, {{"change", kScrubVerb}});
  EPLOG_TRY(plan);
  (*plan)["last"] = LastScrub(file);
  if (command.json) {
    PrintJson(*plan);
    return kDone;
  }
  const Json& last = plan->at("last");
  Print(ChangePlanText(
      fmt::format("would scrub '{}' and heal what is wrong", file.name), *plan,
      {{"reads", HumanBytes(plan->value("read_bytes", uint64_t{0})) +
                     ": every chunk, parity and log chunk, resting while there are requests"},
       {"writes", "only what is wrong or unreadable, decoded from the others, to new places"},
       {"last", last.is_object()
                    ? fmt::format("{}: {}", last.value("time", ""), last.value("text", ""))
                    : "unknown: eplog events tells of none"}}));
  return kDone;
}

// Nothing is written to the devices; only how far it came is kept, beside array.toml.
Result<Json> Look(const ArrayFile& file, const Json& request,
                  const std::function<Result<Json>(Session&)>& offline, ProgressBar& bar) {
  std::optional<ScrubMarkFile> mark;  // read only where the array is opened here
  OpenOptions open;
  open.scrub_mark.load = [&] { return mark.emplace(file).newest(); };
  open.scrub_mark.save = [&](const std::optional<ScrubMark>& newest) {
    if (mark) {
      mark->Keep(newest);
    }
  };
  return AskOrLook(kScrubVerb, file, request, offline, open, bar.Sink());
}

Result<int> RunScrub(const ScrubCommand& command) {
  auto file = FindArray(kScrubVerb, command.array);
  EPLOG_TRY(file);
  if (command.dry_run) {
    return DryRun(command, *file);
  }
  if (command.restart) {
    ForgetScrubMark(*file);
  }
  ProgressBar bar(kScrubVerb, command.repair ? "scrubbing and healing" : "scrubbing",
                  ProgressBar::Unit::kCount);
  const auto offline = [&](Session& session) -> Result<Json> {
    auto report = session.Run(session.array().Scrub(command.repair, bar.Sink()));
    EPLOG_TRY(report);
    return ReportToJson(*report, session.array().GetStatus());
  };
  const Json request = {
      {"verb", kScrubVerb}, {"repair", command.repair}, {"restart", command.restart}};
  const auto report = command.repair ? AskOrOpen(kScrubVerb, *file, request, offline, bar.Sink())
                                     : Look(*file, request, offline, bar);
  bar.Finish();
  EPLOG_TRY(report);
  if (const auto removed = report->find("files_removed"); removed != report->end()) {
    const auto names = removed->get<std::vector<std::string>>();
    Warn(kScrubVerb, fmt::format("the files of {} were removed, though the mounted array has them "
                                 "open; replace them while it is mounted",
                                 fmt::join(names, ", ")));
  }
  const bool mendable =
      report->value("problems_found", uint64_t{0}) > report->value("lost", uint64_t{0});
  if (command.json) {
    PrintJson(*report);
  } else {
    if (const auto first = report->value("first_stripe", uint64_t{0}); first != 0) {
      const auto before = report->value("problems_found_before", uint64_t{0});
      Print(
          fmt::format("went on at stripe {}, where the last scrub was cut short{}; --restart "
                      "begins anew",
                      first,
                      before == 0 ? ""
                                  : fmt::format(": what it had found ({} problems) was not "
                                                "looked at again and is not listed",
                                                before)));
    }
    PrintReport(*report, "scrubbed", file->name);
    PrintNotWhole(*report, ShellWord(command.array));
    if (mendable && !command.repair) {
      Print("nothing was changed: eplog scrub --repair heals what redundancy can replace");
    }
  }
  return ReportStatus(*report);
}

}  // namespace

void AddScrub(Parser app, Run& run) {
  auto command = std::make_shared<ScrubCommand>();
  Parser verb = app.AddVerb(
      kScrubVerb, "read and verify everything, mounted or not; exit status 3 if anything is wrong");
  verb.Add("ARRAY", command->array, kArrayHelp).Required();
  Option repair =
      verb.AddFlag("--repair", command->repair, "write what is wrong anew, from redundancy");
  verb.AddFlag("--restart", command->restart,
               "from the beginning, also if the last scrub was cut short");
  verb.AddFlag("--dry-run", command->dry_run,
               "with --repair: print what would be read and when that was done last; read nothing")
      .Needs(repair);
  verb.AddFlag("--json", command->json, kJsonHelp);
  verb.Footer(
      "Examples:\n  eplog scrub ./array --repair\n  eplog scrub ./array --repair --dry-run");
  verb.OnChosen([command, &run] { run = [command] { return RunScrub(*command); }; });
}

}  // namespace eplog::cli
