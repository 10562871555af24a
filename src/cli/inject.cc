// eplog inject: faults on a member of a mounted array, to rehearse a failure before it comes.
#include <fmt/format.h>

#include <memory>
#include <string>

#include "cli/verb/verbs.h"
#include "host/array_file.h"
#include "host/member_name.h"
#include "host/session.h"
#include "terminal/console.h"
#include "text/units.h"

namespace eplog::cli {
namespace {

constexpr char kInjectVerb[] = "inject";

struct InjectCommand {
  std::string array;
  std::string device;  // or "clear"
  double read_error = 0;
  double write_error = 0;
  uint64_t corrupt = 0;
  uint64_t misdirect = 0;
  uint64_t slow_ms = 0;
  bool hang = false;
  bool drop = false;
};

Result<Json> RequestOf(const InjectCommand& command, const ArrayFile& file) {
  Json request = {{"verb", kInjectVerb}};
  if (command.device == "clear") {
    return request;
  }
  const auto index = MemberIndex(file, command.device);
  EPLOG_TRY(index);
  const bool any = command.read_error > 0 || command.write_error > 0 || command.corrupt != 0 ||
                   command.misdirect != 0 || command.slow_ms != 0 || command.hang || command.drop;
  if (!any) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("which fault? For example: eplog inject {} {} --read-error 0.01; "
                            "'eplog inject {} clear' ends all",
                            ShellWord(command.array), command.device, ShellWord(command.array)));
  }
  request["device"] = *index;
  request["read_error_rate"] = command.read_error;
  request["write_error_rate"] = command.write_error;
  request["corrupt"] = command.corrupt;
  request["misdirect"] = command.misdirect;
  request["slow_us"] = command.slow_ms * 1000;
  request["hang"] = command.hang;
  request["drop"] = command.drop;
  return request;
}

Result<int> RunInject(const InjectCommand& command) {
  auto file = FindArray(kInjectVerb, command.array);
  EPLOG_TRY(file);
  const auto request = RequestOf(command, *file);
  EPLOG_TRY(request);
  const auto done = AskServer(*file, *request);
  if (!done.ok()) {
    Error error = done.error();
    const auto nobody = NobodyServes(error, *file);
    EPLOG_TRY(nobody);
    if (*nobody) {
      error.message = fmt::format(
          "'{}' is not mounted, and faults live in the process that serves "
          "it: eplog mount {} DIR first",
          file->name, ShellWord(command.array));
    }
    return Fail(std::move(error));
  }
  Print(command.device == "clear"
            ? fmt::format("'{}' has no injected faults any more", file->name)
            : fmt::format("{} of '{}' now fails as told; 'eplog inject {} clear' ends that",
                          command.device, file->name, ShellWord(command.array)));
  return kDone;
}

}  // namespace

void AddInject(Parser app, Run& run) {
  auto command = std::make_shared<InjectCommand>();
  Parser verb = app.AddVerb(
      kInjectVerb, "faults on a member of a mounted array, to rehearse a failure before it comes");
  verb.Add("ARRAY", command->array, kArrayHelp).Required();
  verb.Add("DEVICE", command->device, std::string(kDeviceHelp) + "; or 'clear'").Required();
  verb.Add("--read-error", command->read_error, "share of reads that fail")
      .TypeName("RATE")
      .WithinReals(0.0, 1.0);
  verb.Add("--write-error", command->write_error, "share of writes and flushes that fail")
      .TypeName("RATE")
      .WithinReals(0.0, 1.0);
  verb.Add("--corrupt", command->corrupt, "so many next writes are stored with a bit wrong")
      .TypeName("N");
  verb.Add("--misdirect", command->misdirect, "so many next writes land 1 MiB beside their place")
      .TypeName("N");
  verb.Add("--slow", command->slow_ms, "each request takes so much longer").TypeName("MS");
  verb.AddFlag("--hang", command->hang, "requests are not answered any more");
  verb.AddFlag("--drop", command->drop, "the device is gone");
  verb.Footer(
      "Each call replaces what was set for the device.\n"
      "Example:\n  eplog inject ./array ssd3 --read-error 0.01\n  eplog inject ./array clear");
  verb.OnChosen([command, &run] { run = [command] { return RunInject(*command); }; });
}

}  // namespace eplog::cli
