// eplog trace stat: what a trace is like, as a table, a document, a picture.
#include <fmt/format.h>

#include <bit>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "cli/trace/trace.h"
#include "terminal/console.h"
#include "text/units.h"
#include "trace/picture.h"

namespace eplog::cli {
namespace {

constexpr char kVerb[] = "trace stat";

struct StatCommand {
  TraceArguments arguments;
  std::string chunk;
  std::vector<std::string> layouts;
  std::string picture;
  uint64_t limit = 0;
  bool json = false;
  bool force = false;
};

Result<StatOptions> ReadOptions(const StatCommand& command) {
  StatOptions options;
  if (!command.chunk.empty()) {
    const auto chunk = ParseSize(command.chunk);
    EPLOG_TRY(chunk);
    if (!std::has_single_bit(*chunk) || *chunk < 512 || *chunk > (1U << 20)) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("--chunk {} is no power of two from 512 to 1M", command.chunk));
    }
    options.chunk_bytes = *chunk;
  }
  if (!command.layouts.empty()) {
    options.layouts.clear();
    for (const std::string& text : command.layouts) {
      const auto layout = ParseStripeLayout(text);
      EPLOG_TRY(layout);
      options.layouts.push_back(*layout);
    }
  }
  return options;
}

Status RunStat(const StatCommand& command) {
  const auto options = ReadOptions(command);
  EPLOG_TRY(options);
  const auto reading = ReadTraceArguments(command.arguments);
  EPLOG_TRY(reading);
  const std::string& name = command.arguments.trace;
  EPLOG_TRY(CheckTraceAnswers(name));
  EPLOG_TRY(CheckTraceAnswers(command.picture));
  auto source = OpenTrace(name, *reading);
  if (!source.ok()) {
    return Fail(std::move(source).error());
  }
  TraceStatistics statistics(*options);
  uint64_t taken = 0;
  EPLOG_TRY(
      ForEachRequest(kVerb, "reading", **source, [&](const TraceRequest& request) -> Result<bool> {
        statistics.Add(request);
        return command.limit == 0 || ++taken < command.limit;
      }));
  const TraceSummary summary = statistics.Summarise();
  WarnAboutRecords(kVerb, name, **source);
  if (!command.picture.empty()) {
    EPLOG_TRY(WriteWholeFile(command.picture,
                             TracePicture(summary, std::filesystem::path(name).filename().string()),
                             command.force));
  }
  if (command.json) {
    PrintJson(SummaryToJson(summary, **source, name));
  } else {
    Print(SummaryTable(summary, **source, name));
  }
  return OkStatus();
}

}  // namespace

void AddTraceStat(Parser trace, Run& run) {
  auto command = std::make_shared<StatCommand>();
  Parser verb = trace.AddVerb(
      "stat", "requests, sizes, footprint, updates, randomness, reuse, stripes per commit");
  AddTraceArguments(verb, command->arguments);
  verb.Add("--chunk", command->chunk, "count in chunks of this size (4K)");
  verb.Add("--layout", command->layouts,
           "data+parity chunks of a stripe, may be given more than once (6+2 4+1 6+1 4+2)");
  verb.Add("--limit", command->limit, "look at so many requests from the beginning")
      .Within(uint64_t{1}, UINT64_MAX);
  verb.Add("--picture", command->picture, "draw an SVG file");
  verb.AddFlag("--force", command->force, "replace the picture's file");
  verb.AddFlag("--json", command->json, kJsonHelp);
  verb.Footer(
      "Examples:\n  eplog trace stat web_0.csv.gz --picture web_0.svg\n"
      "  eplog trace stat fin1.trace.xz --columns time_ms,disk,lba512,pages4k,op:0=w --json\n"
      "  zcat trace.gz | eplog trace stat -");
  verb.OnChosen([command, &run] {
    run = [command]() -> Result<int> {
      EPLOG_TRY(RunStat(*command));
      return kDone;
    };
  });
}

}  // namespace eplog::cli
