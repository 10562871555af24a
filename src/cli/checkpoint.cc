// eplog checkpoint: write the metadata to the SSDs now, so that the next recovery is short.
#include <fmt/format.h>

#include <memory>
#include <string>

#include "cli/verb/verbs.h"
#include "host/array_file.h"
#include "host/ask_or_open.h"
#include "host/session.h"
#include "terminal/console.h"

namespace eplog::cli {
namespace {

constexpr char kCheckpointVerb[] = "checkpoint";

Result<int> RunCheckpoint(const std::string& argument) {
  auto file = FindArray(kCheckpointVerb, argument);
  EPLOG_TRY(file);
  ProgressBar bar(kCheckpointVerb, "writing a checkpoint", ProgressBar::Unit::kCount);
  const auto offline = [](Session& session) -> Result<Json> {
    EPLOG_TRY(session.Run(session.array().Checkpoint(CheckpointKind::kAuto)));
    return Json();
  };
  const auto done =
      AskOrOpen(kCheckpointVerb, *file, {{"verb", kCheckpointVerb}}, offline, bar.Sink());
  bar.Finish();
  EPLOG_TRY(done);
  Print(fmt::format("wrote a checkpoint of '{}'", file->name));
  return kDone;
}

}  // namespace

void AddCheckpoint(Parser app, Run& run) {
  auto argument = std::make_shared<std::string>();
  Parser verb =
      app.AddVerb(kCheckpointVerb, "write a checkpoint of the metadata now; durable on return");
  verb.Add("ARRAY", *argument, kArrayHelp).Required();
  verb.Footer("Example:\n  eplog checkpoint ./array");
  verb.OnChosen([argument, &run] { run = [argument] { return RunCheckpoint(*argument); }; });
}

}  // namespace eplog::cli
