// eplog trace stat|convert|generate: what the three share.
#include "cli/trace/trace.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <vector>

#include "host/typed_path.h"
#include "terminal/console.h"
#include "text/suggest.h"
#include "text/units.h"
#include "trace/byte_source.h"
#include "trace/profile.h"

namespace eplog::cli {
namespace {

constexpr size_t kBatch = 4096;

// "1%", "0.5", "0": percent, as parts of a million.
Result<uint64_t> ParseBadShare(const std::string& text) {
  std::string number = text;
  if (number.ends_with('%')) {
    number.pop_back();
  }
  size_t used = 0;
  double percent = -1;
  if (!number.empty() && number.find_first_not_of("0123456789.") == std::string::npos &&
      number != ".") {
    percent = std::stod(number, &used);
  }
  if (used != number.size() || !(percent >= 0) || percent > 100) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("--max-bad '{}' is no percentage; write 1% or 0.5", text));
  }
  return static_cast<uint64_t>(std::llround(percent * 10'000));
}

Result<TraceFormat> ReadFormat(const TraceArguments& arguments) {
  if (arguments.format.empty()) {
    return arguments.columns.empty() ? TraceFormat::kDetect : TraceFormat::kColumns;
  }
  const std::vector<std::string> names = TraceFormatNames();
  auto format = ParseTraceFormat(MatchName(arguments.format, names).value_or(arguments.format));
  EPLOG_TRY(format);
  if ((*format == TraceFormat::kColumns) == arguments.columns.empty()) {
    return Fail(ErrorCode::kInvalidArgument, arguments.columns.empty()
                                                 ? "--format columns needs to know them: --columns "
                                                   "time_ms,disk,lba512,pages4k,op:0=w"
                                                 : "--columns is for --format columns only");
  }
  return format;
}

}  // namespace

void AddTraceArguments(Parser verb, TraceArguments& arguments) {
  verb.Add("TRACE", arguments.trace,
           "a trace file, plain, .gz, .xz or .zst; - for standard input; or a profile: its "
           "name or its .toml")
      .Required();
  AddReadingArguments(verb, arguments);
}

void AddReadingArguments(Parser verb, TraceArguments& arguments) {
  verb.Add(
      "--format", arguments.format,
      fmt::format("what TRACE is, if not seen from it: {}", fmt::join(TraceFormatNames(), ", ")));
  verb.Add("--columns", arguments.columns,
           "what the columns of a text are: time_ms,disk,lba512,pages4k,op:0=w");
  verb.Add("--max-bad", arguments.max_bad,
           "stop when more than this part of the records is bad (1%)");
  verb.AddFlag("--unordered", arguments.unordered, "take requests whose time goes back");
  verb.Add("--volume-size", arguments.volume_size, "a request that goes past this is bad: 10G");
  verb.Add("--action", arguments.action, "of blkparse: what counts as a request (Q), D, C");
}

Status CheckTraceAnswers(const std::string& name) {
  return name.empty() || name == "-" ? OkStatus() : CheckAnswers(name);
}

Result<TraceOptions> ReadTraceArguments(const TraceArguments& arguments) {
  TraceOptions options;
  auto format = ReadFormat(arguments);
  EPLOG_TRY(format);
  options.format = *format;
  if (!arguments.columns.empty()) {
    auto columns = ParseColumnLayout(arguments.columns);
    EPLOG_TRY(columns);
    options.columns = *columns;
  }
  if (!arguments.max_bad.empty()) {
    const auto share = ParseBadShare(arguments.max_bad);
    EPLOG_TRY(share);
    options.max_bad_per_million = *share;
  }
  if (!arguments.volume_size.empty()) {
    const auto size = ParseSize(arguments.volume_size);
    EPLOG_TRY(size);
    options.end_bytes = std::min(*size, kMaxTraceOffsetBytes);
  }
  if (!arguments.action.empty()) {
    if (arguments.action.size() != 1 || arguments.action[0] < 'A' || arguments.action[0] > 'Z') {
      return Fail(
          ErrorCode::kInvalidArgument,
          fmt::format("--action '{}' is none of blkparse; write Q, D or C", arguments.action));
    }
    options.blkparse_action = arguments.action.front();
  }
  options.unordered = arguments.unordered;
  return options;
}

Status ForEachRequest(std::string_view verb, std::string_view what, TraceSource& source,
                      const std::function<Result<bool>(const TraceRequest&)>& take) {
  ProgressBar bar(
      verb, what,
      source.format() == "profile" ? ProgressBar::Unit::kCount : ProgressBar::Unit::kBytes);
  std::vector<TraceRequest> batch(kBatch);
  for (;;) {
    auto count = source.Read(batch);
    if (!count.ok()) {
      return Fail(std::move(count).error());
    }
    if (*count == 0) {
      return OkStatus();
    }
    for (size_t i = 0; i < *count; ++i) {
      const auto more = take(batch[i]);
      EPLOG_TRY(more);
      if (!*more) {
        return OkStatus();
      }
    }
    const TraceSource::Progress progress = source.progress();
    if (progress.total != 0) {
      bar.Update(progress.done, progress.total);
    }
  }
}

void WarnAboutRecords(std::string_view verb, const std::string& name, const TraceSource& source) {
  const TraceReport& report = source.report();
  if (report.bad != 0) {
    const BadRecord& first = report.first_bad.front();
    Warn(verb, fmt::format("{}: left out {} bad of {} records; the first, number {}: {}", name,
                           report.bad, report.records, first.number, first.reason));
  }
  if (report.unordered != 0) {
    Warn(verb, fmt::format("{}: {} requests came with times before their predecessor's", name,
                           report.unordered));
  }
}

Status WriteWholeFile(const std::string& path, std::string_view text, bool replace) {
  EPLOG_TRY(CheckAnswers(path));
  auto sink = OpenByteSink(path, replace);
  if (!sink.ok()) {
    return Fail(std::move(sink).error());
  }
  EPLOG_TRY((*sink)->Write(text));
  return (*sink)->Close();
}

void AddTrace(Parser app, Run& run) {
  Parser trace = app.AddVerb("trace", "look at traces of requests, convert them, make them");
  trace.RequireVerb();
  trace.Footer(
      "Example:\n  eplog trace stat fin1.trace.xz --columns "
      "time_ms,disk,lba512,pages4k,op:0=w");
  AddTraceStat(trace, run);
  AddTraceConvert(trace, run);
  AddTraceGenerate(trace, run);
}

}  // namespace eplog::cli
