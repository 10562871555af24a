// eplog check: every structure, reference, CRC and parity of an array that is not mounted. Changes
// nothing.
#include <fmt/format.h>

#include <memory>
#include <string>

#include "cli/print_report.h"
#include "cli/verb/verbs.h"
#include "host/array_file.h"
#include "host/session.h"
#include "report/report_json.h"
#include "terminal/console.h"

namespace eplog::cli {
namespace {

constexpr char kCheckVerb[] = "check";

struct CheckCommand {
  std::string array;
  bool json = false;
};

struct Findings {
  CheckReport report;
  ArrayStatus status;
};

Result<Findings> Check(const ArrayFile& file) {
  const auto server = FindServer(file);
  EPLOG_TRY(server);
  if (*server) {
    return Fail(
        ErrorCode::kBusy,
        fmt::format(
            "{} is mounted at {} by process {}; a check needs it unmounted: eplog umount {}",
            file.Argument().string(), (*server)->directory, (*server)->pid,
            ShellWord(file.Argument().string())));
  }
  MemberOptions options;
  options.read_only = true;
  auto session = Session::Open(kCheckVerb, file, options);
  if (!session.ok()) {
    return Fail(std::move(session).error());
  }
  ProgressBar bar(kCheckVerb, "checking", ProgressBar::Unit::kCount);
  auto report = (*session)->Run((*session)->array().Check(bar.Sink()));
  if (!report.ok()) {
    return Fail(std::move(report).error());
  }
  return Findings{std::move(*report), (*session)->array().GetStatus()};
}

Json ToJson(const ArrayFile& file, const Findings& findings) {
  Json json = {{"array",
                {{"uuid", findings.status.uuid},
                 {"name", findings.status.name},
                 {"file", file.file.string()}}}};
  json.update(ReportToJson(findings.report, findings.status));
  return json;
}

Result<int> RunCheck(const CheckCommand& command) {
  auto file = FindArray(kCheckVerb, command.array);
  EPLOG_TRY(file);
  auto findings = Check(*file);
  EPLOG_TRY(findings);
  const Json json = ToJson(*file, *findings);
  if (command.json) {
    PrintJson(json);
  } else {
    PrintReport(json, "checked", findings->status.name);
  }
  return ReportStatus(json);
}

}  // namespace

void AddCheck(Parser app, Run& run) {
  auto command = std::make_shared<CheckCommand>();
  Parser verb = app.AddVerb(
      kCheckVerb, "check everything on an unmounted array; exit status 3 if it found any");
  verb.Add("ARRAY", command->array, kArrayHelp).Required();
  verb.AddFlag("--json", command->json, kJsonHelp);
  verb.Footer("Example:\n  eplog check ./array");
  verb.OnChosen([command, &run] { run = [command] { return RunCheck(*command); }; });
}

}  // namespace eplog::cli
