// eplog fail: from now on the array does without a device, as if it had failed.
#include <fmt/format.h>

#include <memory>
#include <string>

#include "cli/array_file.h"
#include "cli/console.h"
#include "cli/member_name.h"
#include "cli/session.h"
#include "cli/verbs.h"

namespace eplog::cli {
namespace {

constexpr char kVerb[] = "fail";

int RunFail(const std::string& argument, const std::string& device) {
  auto file = LoadArrayFile(argument);
  if (!file.ok()) {
    return ReportError(kVerb, file.error());
  }
  const auto index = MemberIndex(*file, device);
  if (!index.ok()) {
    return ReportError(kVerb, index.error());
  }
  const auto offline = [&](Session& session) -> Result<Json> {
    EPLOG_TRY(session.Run(session.array().FailDevice(*index, "failed by hand")));
    return Json();
  };
  const auto done = AskOrOpen(kVerb, *file, {{"verb", kVerb}, {"device", *index}}, offline);
  if (!done.ok()) {
    return ReportError(kVerb, done.error());
  }
  const std::string name = MemberName(*file, *index);
  Print(
      fmt::format("{} of '{}' is failed: what it holds does not count any more\nnext: eplog "
                  "replace {} {} NEW",
                  name, file->name, ShellWord(argument), name));
  return kDone;
}

}  // namespace

void AddFail(CLI::App& app, Run& run) {
  auto argument = std::make_shared<std::string>();
  auto device = std::make_shared<std::string>();
  CLI::App* verb = app.add_subcommand(kVerb, "take a device out of the array, as if it had failed");
  verb->add_option("ARRAY", *argument, kArrayHelp)->required();
  verb->add_option("DEVICE", *device, kDeviceHelp)->required();
  verb->footer("Example:\n  eplog fail ./array ssd3");
  verb->callback([argument, device, &run] {
    run = [argument, device] { return RunFail(*argument, *device); };
  });
}

}  // namespace eplog::cli
