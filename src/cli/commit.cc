// eplog commit: parity catches up now with everything that is pending.
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

constexpr char kCommitVerb[] = "commit";

Result<int> RunCommit(const std::string& argument) {
  auto file = FindArray(kCommitVerb, argument);
  EPLOG_TRY(file);
  ProgressBar bar(kCommitVerb, "committing", ProgressBar::Unit::kCount);
  const auto offline = [&](Session& session) -> Result<Json> {
    EPLOG_TRY(session.Run(session.array().Commit(bar.Sink())));
    return Json();
  };
  const auto done = AskOrOpen(kCommitVerb, *file, {{"verb", kCommitVerb}}, offline, bar.Sink());
  bar.Finish();
  EPLOG_TRY(done);
  Print(fmt::format("committed '{}': the parity on its SSDs covers all data", file->name));
  return kDone;
}

}  // namespace

void AddCommit(Parser app, Run& run) {
  auto argument = std::make_shared<std::string>();
  Parser verb =
      app.AddVerb(kCommitVerb, "commit parity for all pending updates now; durable on return");
  verb.Add("ARRAY", *argument, kArrayHelp).Required();
  verb.Footer("Example:\n  eplog commit ./array");
  verb.OnChosen([argument, &run] { run = [argument] { return RunCommit(*argument); }; });
}

}  // namespace eplog::cli
