// eplog status: what the array tells about itself, from the process that serves it or, unmounted,
// from its disks.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>

#include "cli/verb/read_status.h"
#include "cli/verb/verbs.h"
#include "host/array_file.h"
#include "host/server.h"
#include "host/spares.h"
#include "report/status_json.h"
#include "terminal/console.h"

namespace eplog::cli {
namespace {

constexpr char kStatusVerb[] = "status";

struct StatusCommand {
  std::string array;
  bool json = false;
  bool lost = false;
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

// What a serving process has open and nobody else would find.
bool MarkRemoved(Json& status) {
  const std::vector<std::string> removed =
      status.value("files_removed", std::vector<std::string>());
  status.erase("files_removed");
  for (Json& device : status["devices"]) {
    if (std::find(removed.begin(), removed.end(), device.value("name", "")) != removed.end()) {
      device["file_removed"] = true;
    }
  }
  return !removed.empty();
}

constexpr size_t kRangesShown = 40;

// An older serving process does not say.
std::string UnsureOf(const Json& lost) {
  const auto found = lost.find("unsure");
  return found != lost.end() && found->is_string() ? found->get<std::string>() : "";
}

bool WasLeftBehind(const Json& lost) {
  return lost.value("left_behind", false);
}

void PrintLost(const ArrayFile& file, const Json& lost) {
  size_t shown = 0;
  for (const Json& range : lost["lost"]) {
    if (shown++ == kRangesShown) {
      Print(fmt::format("... and {} more ranges; --json lists all",
                        lost["lost"].size() - kRangesShown));
      break;
    }
    Print(
        fmt::format("lost: volume '{}' from {} to {}", range["volume"].get<std::string>(),
                    range["offset_bytes"].get<uint64_t>(),
                    range["offset_bytes"].get<uint64_t>() + range["length_bytes"].get<uint64_t>()));
  }
  if (lost["log_damage"].is_string()) {
    Print(Paint(Colour::kRed,
                "what was written last may read as its older content, or cannot be read: ") +
          lost["log_damage"].get<std::string>());
  }
  if (WasLeftBehind(lost)) {
    Print(Paint(Colour::kRed, "all of it may be old: ") +
          "so many devices are missing that they may have gone on without those that are here");
  }
  if (const std::string unsure = UnsureOf(lost); !unsure.empty()) {
    Print(fmt::format("{} missed something: what more cannot be read only a read tells", unsure));
  }
  const auto bytes = lost["lost_bytes"].get<uint64_t>();
  Print(bytes == 0 ? fmt::format("no range of '{}' is beyond repair by what is missing", file.name)
                   : fmt::format("{} of '{}' cannot be read with the members that are there",
                                 HumanBytes(bytes), file.name));
}

Result<int> RunLost(const ArrayFile& file, bool json) {
  const auto lost = ReadLost(kStatusVerb, file);
  EPLOG_TRY(lost);
  if (json) {
    PrintJson(*lost);
  } else {
    PrintLost(file, *lost);
  }
  const bool any = lost->at("lost_bytes") != 0 || lost->at("log_damage").is_string() ||
                   !UnsureOf(*lost).empty() || WasLeftBehind(*lost);
  return any ? kDoneWithFindings : kDone;
}

Result<int> RunStatus(const StatusCommand& command) {
  auto file = FindArray(kStatusVerb, command.array);
  EPLOG_TRY(file);
  if (command.lost) {
    return RunLost(*file, command.json);
  }
  auto status = ReadStatus(kStatusVerb, *file);
  EPLOG_TRY(status);
  FillPaths(*file, *status);
  AddSpares(*file, *status);
  const bool removed = MarkRemoved(*status);
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
  return (state == "clean" || state == "active") && !removed ? kDone : kDoneWithFindings;
}

}  // namespace

void AddStatus(Parser app, Run& run) {
  auto command = std::make_shared<StatusCommand>();
  Parser verb = app.AddVerb(kStatusVerb,
                            "state, devices, exposure and traffic; exit status 3 if degraded or a "
                            "member's file was removed");
  verb.Add("ARRAY", command->array, kArrayHelp).Required();
  verb.AddFlag("--json", command->json, kJsonHelp);
  verb.AddFlag("--lost", command->lost,
               "list the volumes' ranges that cannot be read since too many members are missing; "
               "exit status 3 if there are any");
  verb.Footer("Example:\n  eplog status ./array --json | jq .exposure");
  verb.OnChosen([command, &run] { run = [command] { return RunStatus(*command); }; });
}

}  // namespace eplog::cli
