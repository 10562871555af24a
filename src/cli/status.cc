// eplog status: what the array tells about itself, from the process that serves it or, unmounted,
// from its disks.
#include <memory>
#include <string>

#include "cli/array_file.h"
#include "cli/console.h"
#include "cli/read_status.h"
#include "cli/spares.h"
#include "cli/verbs.h"
#include "frontend/status_json.h"

namespace eplog::cli {
namespace {

constexpr char kVerb[] = "status";

struct StatusCommand {
  std::string array;
  bool json = false;
};

// A missing member has no device that could tell its path; array.toml has.
void FillPaths(const ArrayFile& file, Json& status) {
  for (Json& device : status["devices"]) {
    if (!device.value("path", "").empty()) {
      continue;
    }
    for (const MemberPath& member : file.members) {
      if (member.name == device.value("name", "")) {
        device["path"] = file.Locate(member).string();
      }
    }
  }
}

int RunStatus(const StatusCommand& command) {
  auto file = LoadArrayFile(command.array);
  if (!file.ok()) {
    return ReportError(kVerb, file.error());
  }
  auto status = ReadStatus(kVerb, *file);
  if (!status.ok()) {
    return ReportError(kVerb, status.error());
  }
  FillPaths(*file, *status);
  AddSpares(*file, *status);
  if (command.json) {
    PrintJson(*status);
  } else {
    std::string table = StatusTable(*status);
    if (table.ends_with('\n')) {
      table.pop_back();
    }
    Print(table);
  }
  const std::string state = status->at("array").value("state", "");
  return state == "clean" || state == "active" ? kDone : kDoneWithFindings;
}

}  // namespace

void AddStatus(CLI::App& app, Run& run) {
  auto command = std::make_shared<StatusCommand>();
  CLI::App* verb =
      app.add_subcommand(kVerb, "state, devices, exposure and traffic; exit status 3 if degraded");
  verb->add_option("ARRAY", command->array, kArrayHelp)->required();
  verb->add_flag("--json", command->json, kJsonHelp);
  verb->footer("Example:\n  eplog status ./array --json | jq .exposure");
  verb->callback([command, &run] { run = [command] { return RunStatus(*command); }; });
}

}  // namespace eplog::cli
