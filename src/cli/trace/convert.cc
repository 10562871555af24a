// eplog trace convert, eplog trace generate: requests into a file of any format.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/trace/trace.h"
#include "terminal/console.h"
#include "text/suggest.h"
#include "text/units.h"
#include "trace/byte_source.h"
#include "trace/compact.h"
#include "trace/profile.h"
#include "trace/writer.h"

namespace eplog::cli {
namespace {

constexpr char kVerbConvert[] = "trace convert";
constexpr char kVerbGenerate[] = "trace generate";
constexpr size_t kWriteAt = size_t{1} << 20;

// Where requests go, as it was typed.
struct OutputArguments {
  std::string file = "-";
  std::string format = "fio3";
  std::string columns;
  bool force = false;
};

void AddOutputArguments(Parser verb, OutputArguments& output) {
  verb.Add("-o,--output", output.file,
           "the file; .gz, .xz and .zst are packed; standard output without it");
  verb.Add("--to", output.format,
           fmt::format("its format: {} (fio3)", fmt::join(TraceFormatNames(), ", ")));
  verb.Add("--to-columns", output.columns, "with --to columns (time_us,disk,offset,size,op)");
  verb.AddFlag("--force", output.force, "replace the file");
}

// A writer and the file behind it.
class Output {
 public:
  static Result<Output> Open(const OutputArguments& arguments) {
    const std::vector<std::string> names = TraceFormatNames();
    auto format = ParseTraceFormat(MatchName(arguments.format, names).value_or(arguments.format));
    EPLOG_TRY(format);
    Output output;
    output.format_ = *format;
    ColumnLayout layout;
    if (!arguments.columns.empty()) {
      if (*format != TraceFormat::kColumns) {
        return Fail(ErrorCode::kInvalidArgument, "--to-columns is for --to columns only");
      }
      auto parsed = ParseColumnLayout(arguments.columns);
      EPLOG_TRY(parsed);
      layout = *parsed;
    }
    EPLOG_TRY(CheckTraceAnswers(arguments.file));
    auto sink = OpenByteSink(arguments.file, arguments.force);
    if (!sink.ok()) {
      return Fail(std::move(sink).error());
    }
    output.sink_ = std::move(*sink);
    output.writer_ = MakeTraceWriter(*format, layout);
    return output;
  }

  Status Add(const TraceRequest& request, const std::vector<std::string>& volumes) {
    EPLOG_TRY(writer_->Add(request, volumes, text_));
    if (text_.size() >= kWriteAt) {
      EPLOG_TRY(sink_->Write(text_));
      text_.clear();
    }
    return OkStatus();
  }
  Status Close() {
    writer_->End(text_);
    EPLOG_TRY(sink_->Write(text_));
    return sink_->Close();
  }
  void WarnAboutLosses(std::string_view verb) const {
    const WriteReport& report = writer_->report();
    const char* const name = TraceFormatName(format_);
    if (report.dropped != 0) {
      Warn(verb,
           fmt::format("left out {} flushes or trims, which {} cannot say", report.dropped, name));
    }
    if (report.fua_lost != 0) {
      Warn(verb, fmt::format("wrote {} FUA writes as ordinary ones: {} does not know FUA",
                             report.fua_lost, name));
    }
    if (report.widened != 0) {
      Warn(verb, fmt::format("widened {} requests to the units of {}", report.widened, name));
    }
  }
  [[nodiscard]] uint64_t requests() const { return writer_->report().requests; }

 private:
  TraceFormat format_ = TraceFormat::kDetect;
  std::unique_ptr<ByteSink> sink_;
  std::unique_ptr<TraceWriter> writer_;
  std::string text_;
};

void Tell(const Output& output, const OutputArguments& arguments) {
  if (arguments.file != "-") {
    Print(fmt::format("wrote {} requests to {}", output.requests(), arguments.file));
  }
}

// ---- convert

struct ConvertCommand {
  TraceArguments arguments;
  OutputArguments output;
  std::string begin;
  std::string end;
  std::vector<std::string> volumes;
  uint64_t limit = 0;
  bool compact = false;
  bool merge = false;
};

// Which requests of a trace are taken.
struct Selection {
  uint64_t begin_us = 0;
  uint64_t end_us = UINT64_MAX;
  std::vector<std::string> volumes;  // all, if empty
  uint64_t limit = UINT64_MAX;
};

Result<Selection> ReadSelection(const ConvertCommand& command) {
  Selection selection;
  for (const auto& [text, value] : {std::pair{&command.begin, &selection.begin_us},
                                    std::pair{&command.end, &selection.end_us}}) {
    if (!text->empty()) {
      const auto parsed = ParseDuration(*text);
      EPLOG_TRY(parsed);
      *value = *parsed;
    }
  }
  if (selection.begin_us >= selection.end_us) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("--begin {} is not before --end {}", command.begin, command.end));
  }
  selection.volumes = command.volumes;
  selection.limit = command.limit == 0 ? UINT64_MAX : command.limit;
  return selection;
}

// One pass over the trace: the selected requests, their times from the first of them, go to `take`.
Status Pass(
    const ConvertCommand& command, const TraceOptions& options, const Selection& selection,
    const char* what, bool warn,
    const std::function<Status(const TraceRequest&, const std::vector<std::string>&)>& take) {
  EPLOG_TRY(CheckTraceAnswers(command.arguments.trace));
  auto source = OpenTrace(command.arguments.trace, options);
  if (!source.ok()) {
    return Fail(std::move(source).error());
  }
  if (!(*source)->has_times() && (selection.begin_us != 0 || selection.end_us != UINT64_MAX)) {
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format("{} has no times: --begin and --end mean nothing for it", (*source)->format()));
  }
  uint64_t taken = 0;
  uint64_t first_us = 0;
  std::vector<bool> chosen;  // by volume
  EPLOG_TRY(ForEachRequest(
      kVerbConvert, what, **source, [&](const TraceRequest& request) -> Result<bool> {
        const auto& names = (*source)->volumes();
        while (chosen.size() <= request.volume) {
          chosen.push_back(selection.volumes.empty() ||
                           std::find(selection.volumes.begin(), selection.volumes.end(),
                                     names[chosen.size()]) != selection.volumes.end());
        }
        if (request.time_us >= selection.end_us || taken == selection.limit) {
          return false;
        }
        if (request.time_us < selection.begin_us || !chosen[request.volume]) {
          return true;
        }
        TraceRequest out = request;
        first_us = taken++ == 0 ? request.time_us : first_us;
        out.time_us -= first_us;
        if (Status done = take(out, names); !done.ok()) {
          return Fail(std::move(done).error());
        }
        return true;
      }));
  if (warn) {
    WarnAboutRecords(kVerbConvert, command.arguments.trace, **source);
  }
  if (taken == 0) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("nothing is selected; the trace has volumes {}",
                            fmt::join((*source)->volumes(), ", ")));
  }
  return OkStatus();
}

Status RunConvert(const ConvertCommand& command) {
  const auto options = ReadTraceArguments(command.arguments);
  EPLOG_TRY(options);
  const auto selection = ReadSelection(command);
  EPLOG_TRY(selection);
  std::optional<Compactor> compactor;
  if (command.compact || command.merge) {
    if (command.arguments.trace == "-") {
      return Fail(ErrorCode::kInvalidArgument,
                  "--compact and --merge read the trace twice, standard input can be read once: "
                  "save it to a file first");
    }
    compactor.emplace(command.merge);
    EPLOG_TRY(
        Pass(command, *options, *selection, "looking for extents", false,
             [&](const TraceRequest& request, const auto&) { return compactor->Note(request); }));
    compactor->Seal();
  }
  auto output = Output::Open(command.output);
  if (!output.ok()) {
    return Fail(std::move(output).error());
  }
  const std::vector<std::string> merged = {"disk"};
  EPLOG_TRY(Pass(command, *options, *selection, "converting", true,
                 [&](const TraceRequest& request, const std::vector<std::string>& names) {
                   if (!compactor) {
                     return output->Add(request, names);
                   }
                   const auto moved = compactor->Map(request);
                   return moved ? output->Add(*moved, command.merge ? merged : names) : OkStatus();
                 }));
  EPLOG_TRY(output->Close());
  output->WarnAboutLosses(kVerbConvert);
  Tell(*output, command.output);
  return OkStatus();
}

// ---- generate

struct GenerateCommand {
  std::string profile;
  OutputArguments output;
  std::optional<uint64_t> seed;
  uint64_t limit = 0;
  bool list = false;
};

Status List() {
  for (const std::string& name : BuiltInProfiles()) {
    const auto profile = LoadProfile(name);
    EPLOG_TRY(profile);
    Print(fmt::format("{:<12}{}", name, profile->about));
  }
  return OkStatus();
}

Status RunGenerate(const GenerateCommand& command) {
  if (command.list) {
    return List();
  }
  if (command.profile.empty()) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("name a profile: {}; or a file of your own, NAME.toml",
                            fmt::join(BuiltInProfiles(), ", ")));
  }
  EPLOG_TRY(CheckTraceAnswers(command.profile));
  auto profile =
      LoadProfile(MatchName(command.profile, BuiltInProfiles()).value_or(command.profile));
  EPLOG_TRY(profile);
  profile->seed = command.seed.value_or(profile->seed);
  const auto source = MakeGenerator(std::move(*profile));
  auto output = Output::Open(command.output);
  if (!output.ok()) {
    return Fail(std::move(output).error());
  }
  uint64_t made = 0;
  EPLOG_TRY(ForEachRequest(
      kVerbGenerate, "generating", *source, [&](const TraceRequest& request) -> Result<bool> {
        if (Status done = output->Add(request, source->volumes()); !done.ok()) {
          return Fail(std::move(done).error());
        }
        return command.limit == 0 || ++made < command.limit;
      }));
  EPLOG_TRY(output->Close());
  output->WarnAboutLosses(kVerbGenerate);
  Tell(*output, command.output);
  return OkStatus();
}

}  // namespace

void AddTraceConvert(Parser trace, Run& run) {
  auto command = std::make_shared<ConvertCommand>();
  Parser verb = trace.AddVerb("convert", "write a trace, or a part of it, in another format");
  AddTraceArguments(verb, command->arguments);
  AddOutputArguments(verb, command->output);
  verb.Add("--begin", command->begin, "leave out what comes before: 10m");
  verb.Add("--end", command->end, "leave out what comes then and later: 2h");
  verb.Add("--volume", command->volumes, "take this disk; may be given more than once");
  verb.Add("--limit", command->limit, "take so many requests").Within(uint64_t{1}, UINT64_MAX);
  verb.AddFlag("--compact", command->compact,
               "number the touched extents of 1M in their order: no holes are left");
  verb.AddFlag("--merge", command->merge, "compact all disks into one, one behind the other");
  verb.Footer(
      "Examples:\n  eplog trace convert web_0.csv.gz --to fio3 -o web_0.fio\n"
      "  eplog trace convert Financial1.spc --volume 0 --volume 1 --merge --begin 1h --end 2h "
      "-o part.csv.zst --to msr");
  verb.OnChosen([command, &run] {
    run = [command]() -> Result<int> {
      EPLOG_TRY(RunConvert(*command));
      return kDone;
    };
  });
}

void AddTraceGenerate(Parser trace, Run& run) {
  auto command = std::make_shared<GenerateCommand>();
  Parser verb = trace.AddVerb("generate", "make a trace from a profile, the same every time");
  verb.Add("PROFILE", command->profile, "a name (see --list), or a .toml file");
  AddOutputArguments(verb, command->output);
  verb.Add("--seed", command->seed, "another trace of the same kind");
  verb.Add("--limit", command->limit, "so many requests from the beginning")
      .Within(uint64_t{1}, UINT64_MAX);
  verb.AddFlag("--list", command->list, "tell the profiles that there are");
  verb.Footer(
      "Examples:\n  eplog trace generate fin -o fin.fio.zst\n"
      "  eplog trace generate oltp --seed 7 --limit 10000 --to columns");
  verb.OnChosen([command, &run] {
    run = [command]() -> Result<int> {
      EPLOG_TRY(RunGenerate(*command));
      return kDone;
    };
  });
}

}  // namespace eplog::cli
