// eplog replay: what EPLOG would do for a workload, against ordinary RAID, before any hardware is
// bought.
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "cli/replay/options.h"
#include "cli/replay/page.h"
#include "cli/replay/report.h"
#include "cli/trace/trace.h"
#include "cli/verb/verbs.h"
#include "host/array_file.h"
#include "host/session.h"
#include "host/typed_path.h"
#include "replay/replay.h"
#include "terminal/console.h"

namespace eplog::cli {
namespace {

constexpr char kVerb[] = "replay";

// The page, and the document from which another could be made.
Status WriteReport(const std::string& directory, const ReplayResult& result,
                   const ReplaySettings& settings) {
  EPLOG_TRY(WriteWholeFile(directory + "/index.html", ReplayPage(result, settings), true));
  const std::string document =
      ReplayToJson(result, settings).dump(1, ' ', false, Json::error_handler_t::replace);
  return WriteWholeFile(directory + "/result.json", document + "\n", true);
}

// Before long work begins.
Status MakeReportDirectory(const std::string& directory) {
  EPLOG_TRY(CheckAnswers(directory));
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) {
    return Fail(ErrorCode::kIo, fmt::format("--report {}: {}", directory, error.message()));
  }
  return OkStatus();
}

// What the array is and holds is its own: nothing of that can be chosen.
Result<ReplayResult> OnArray(const ReplayCommand& command, const std::vector<Policy>& policies,
                             ReplaySettings& settings, const ReplayProgress& progress) {
  if (policies != std::vector<Policy>{Policy::kEplog}) {
    return Fail(ErrorCode::kInvalidArgument,
                "on an array that is there only EPLOG can be replayed: --policy eplog");
  }
  auto typed = LookAtArray(command.devices.typed);
  EPLOG_TRY(typed);
  const auto& file = typed->array;
  EPLOG_TRY(file);
  auto session = Session::Open(kVerb, *file, MemberOptions(), OptionsFor(settings, false));
  if (!session.ok()) {
    return Fail(std::move(session).error());
  }
  auto result = ReplayOn((*session)->loop(), (*session)->array(), settings, progress);
  const Status closed = (*session)->Close();
  EPLOG_TRY(result);
  EPLOG_TRY(closed);
  return result;
}

Status RunReplay(const ReplayCommand& command) {
  auto settings = ReadSettings(command);
  EPLOG_TRY(settings);
  const std::vector<Policy> policies = PoliciesOf(command);
  if (!command.report.empty()) {
    EPLOG_TRY(MakeReportDirectory(command.report));
  }
  std::unique_ptr<ProgressBar> bar;
  std::string shown;
  const auto progress = [&](const std::string& what, uint64_t done, uint64_t total) {
    if (what != shown) {
      bar.reset();
      bar = std::make_unique<ProgressBar>(kVerb, what, ProgressBar::Unit::kCount);
      shown = what;
    }
    bar->Update(done, total);
  };
  const auto result = settings->devices == DeviceKind::kArray
                          ? OnArray(command, policies, *settings, progress)
                          : Replay(*settings, policies, progress);
  bar.reset();
  EPLOG_TRY(result);
  if (command.json) {
    PrintJson(ReplayToJson(*result, *settings));
  } else {
    Print(ReplayTable(*result, *settings));
  }
  return command.report.empty() ? OkStatus() : WriteReport(command.report, *result, *settings);
}

}  // namespace

void AddReplay(Parser app, Run& run) {
  auto command = std::make_shared<ReplayCommand>();
  Parser verb = app.AddVerb(
      kVerb, "Replay a trace: what EPLOG would write, and how fast, against ordinary RAID");
  AddReplayOptions(verb, *command);
  verb.OnChosen([command, &run] {
    run = [command]() -> Result<int> {
      EPLOG_TRY(RunReplay(*command));
      return kDone;
    };
  });
}

}  // namespace eplog::cli
