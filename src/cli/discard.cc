// eplog discard: tell the SSDs of all free slots (TRIM).
#include <fmt/format.h>

#include <memory>
#include <string>

#include "cli/verb/verbs.h"
#include "host/array_file.h"
#include "host/ask_or_open.h"
#include "host/session.h"
#include "report/status_json.h"
#include "terminal/console.h"

namespace eplog::cli {
namespace {

constexpr char kDiscardVerb[] = "discard";

Result<int> RunDiscard(const std::string& argument) {
  auto file = FindArray(kDiscardVerb, argument);
  EPLOG_TRY(file);
  ProgressBar bar(kDiscardVerb, "discarding free slots", ProgressBar::Unit::kCount);
  const auto offline = [&](Session& session) -> Result<Json> {
    auto bytes = session.Run(session.array().DiscardFree(bar.Sink()));
    EPLOG_TRY(bytes);
    return Json{{"bytes", *bytes}};
  };
  const auto done = AskOrOpen(kDiscardVerb, *file, {{"verb", kDiscardVerb}}, offline, bar.Sink());
  bar.Finish();
  EPLOG_TRY(done);
  const uint64_t bytes = done->value("bytes", uint64_t{0});
  Print(bytes == 0
            ? fmt::format("nothing to discard: no SSD of '{}' takes TRIM (member files never "
                          "do), or nothing is free",
                          file->name)
            : fmt::format("told the SSDs of '{}' of {} that hold nothing", file->name,
                          HumanBytes(bytes)));
  return kDone;
}

}  // namespace

void AddDiscard(Parser app, Run& run) {
  auto argument = std::make_shared<std::string>();
  Parser verb = app.AddVerb(kDiscardVerb, "tell the SSDs of all free slots (TRIM)");
  verb.Add("ARRAY", *argument, kArrayHelp).Required();
  verb.Footer("Example:\n  eplog discard ./array");
  verb.OnChosen([argument, &run] { run = [argument] { return RunDiscard(*argument); }; });
}

}  // namespace eplog::cli
