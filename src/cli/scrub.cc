// eplog scrub: read everything that an array's devices hold, name what is wrong, and heal it on
// request.
#include <fmt/format.h>

#include <memory>
#include <string>

#include "cli/array_file.h"
#include "cli/console.h"
#include "cli/print_report.h"
#include "cli/session.h"
#include "cli/verbs.h"
#include "frontend/report_json.h"

namespace eplog::cli {
namespace {

constexpr char kVerb[] = "scrub";

struct ScrubCommand {
  std::string array;
  bool repair = false;
  bool json = false;
};

int RunScrub(const ScrubCommand& command) {
  auto file = LoadArrayFile(command.array);
  if (!file.ok()) {
    return ReportError(kVerb, file.error());
  }
  ProgressBar bar(kVerb, command.repair ? "scrubbing and healing" : "scrubbing",
                  ProgressBar::Unit::kCount);
  const auto offline = [&](Session& session) -> Result<Json> {
    auto report = session.Run(session.array().Scrub(command.repair, bar.Sink()));
    EPLOG_TRY(report);
    return ReportToJson(*report);
  };
  const Json request = {{"verb", kVerb}, {"repair", command.repair}};
  const auto report = AskOrOpen(kVerb, *file, request, offline, bar.Sink());
  bar.Finish();
  if (!report.ok()) {
    return ReportError(kVerb, report.error());
  }
  const bool found = report->value("problems_found", uint64_t{0}) != 0;
  if (command.json) {
    PrintJson(*report);
  } else {
    PrintReport(*report, "scrubbed", file->name);
    if (found && !command.repair) {
      Print("nothing was changed: eplog scrub --repair heals what redundancy can replace");
    }
  }
  return found ? kDoneWithFindings : kDone;
}

}  // namespace

void AddScrub(CLI::App& app, Run& run) {
  auto command = std::make_shared<ScrubCommand>();
  CLI::App* verb = app.add_subcommand(
      kVerb, "read and verify everything, mounted or not; exit status 3 if anything is wrong");
  verb->add_option("ARRAY", command->array, kArrayHelp)->required();
  verb->add_flag("--repair", command->repair, "write what is wrong anew, from redundancy");
  verb->add_flag("--json", command->json, kJsonHelp);
  verb->footer("Example:\n  eplog scrub ./array --repair");
  verb->callback([command, &run] { run = [command] { return RunScrub(*command); }; });
}

}  // namespace eplog::cli
