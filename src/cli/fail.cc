// eplog fail: from now on the array does without a device, as if it had failed.
#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "cli/dry_run.h"
#include "cli/verb/verbs.h"
#include "host/array_file.h"
#include "host/ask_or_open.h"
#include "host/member_name.h"
#include "host/session.h"
#include "report/status_json.h"
#include "terminal/console.h"

namespace eplog::cli {
namespace {

constexpr char kFailVerb[] = "fail";

struct FailCommand {
  std::string array;
  std::string device;
  bool dry_run = false;
  bool json = false;
};

std::string FailPlanText(const ArrayFile& file, const Json& plan) {
  const std::string name = plan.value("device", "");
  const auto chunks = plan.value("chunks_losing_copy", uint64_t{0});
  const auto commit = plan.value("commit_chunks", uint64_t{0});
  std::vector<PlanNote> notes = {
      {"copies", fmt::format("{} chunks on it would no longer count{}", chunks,
                             chunks == 0 ? "" : "; their content stays in the others")}};
  if (commit != 0) {
    notes.push_back({"commit", fmt::format("{} chunks that its log protects, at once", commit)});
  }
  notes.push_back(
      {"afterwards", fmt::format("what {} holds is stale: it could only come back as an "
                                 "empty device, rebuilt as a whole",
                                 name)});
  return ChangePlanText(fmt::format("would fail {} of '{}'", name, file.name), plan, notes);
}

// What parity replaces counts members as they are open now.
void WarnOfRemoved(const Json& answer) {
  const auto removed = answer.find("files_removed");
  if (removed != answer.end()) {
    Warn(kFailVerb, fmt::format("the files of {} were removed, though the mounted array has them "
                                "open: the next mount will be without them, too",
                                fmt::join(removed->get<std::vector<std::string>>(), ", ")));
  }
}

Result<int> DryRun(const FailCommand& command, const ArrayFile& file, uint32_t index) {
  const auto plan = PlanChange(kFailVerb, file, {{"change", kFailVerb}, {"device", index}});
  EPLOG_TRY(plan);
  WarnOfRemoved(*plan);
  if (command.json) {
    PrintJson(*plan);
  } else {
    Print(FailPlanText(file, *plan));
  }
  return kDone;
}

Result<int> RunFail(const FailCommand& command) {
  auto file = FindArray(kFailVerb, command.array);
  EPLOG_TRY(file);
  const auto index = MemberIndex(*file, command.device);
  EPLOG_TRY(index);
  if (command.dry_run) {
    return DryRun(command, *file, *index);
  }
  const auto offline = [&](Session& session) -> Result<Json> {
    EPLOG_TRY(session.Run(session.array().FailDevice(*index, "failed by hand")));
    return Json();
  };
  const auto done = AskOrOpen(kFailVerb, *file, {{"verb", kFailVerb}, {"device", *index}}, offline);
  EPLOG_TRY(done);
  WarnOfRemoved(*done);
  const std::string name = MemberName(*file, *index);
  Print(
      fmt::format("{} of '{}' is failed: what it holds does not count any more\nnext: eplog "
                  "replace {} {} NEW",
                  name, file->name, ShellWord(command.array), name));
  return kDone;
}

}  // namespace

void AddFail(Parser app, Run& run) {
  auto command = std::make_shared<FailCommand>();
  Parser verb = app.AddVerb(kFailVerb, "take a device out of the array, as if it had failed");
  verb.Add("ARRAY", command->array, kArrayHelp).Required();
  verb.Add("DEVICE", command->device, kDeviceHelp).Required();
  AddDryRun(verb, command->dry_run, command->json);
  verb.Footer(
      "Examples:\n  eplog fail ./array ssd3 --dry-run     what would be left of the redundancy\n"
      "  eplog fail ./array ssd3");
  verb.OnChosen([command, &run] { run = [command] { return RunFail(*command); }; });
}

}  // namespace eplog::cli
