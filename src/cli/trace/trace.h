// What the verbs below `eplog trace` share: naming a trace on the command line, and telling what
// was wrong with it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "cli/verb/verbs.h"
#include "eplog/result.h"
#include "report/json.h"
#include "trace/open.h"
#include "trace/statistics.h"

namespace eplog::cli {

// The options that say how a trace is read, as they were typed.
struct TraceArguments {
  std::string trace;
  std::string format;
  std::string columns;
  std::string max_bad;
  std::string volume_size;
  std::string action;
  bool unordered = false;
};

// Declares TRACE and the options of reading on `verb`.
void AddTraceArguments(Parser verb, TraceArguments& arguments);
// Without TRACE, which the verb declares itself.
void AddReadingArguments(Parser verb, TraceArguments& arguments);
// What they mean. kInvalidArgument.
Result<TraceOptions> ReadTraceArguments(const TraceArguments& arguments);

// CheckAnswers, for what is no name but "-" or none.
Status CheckTraceAnswers(const std::string& name);

// Reads `source` to its end with a progress bar, giving each request to `take`, until that says
// false.
Status ForEachRequest(std::string_view verb, std::string_view what, TraceSource& source,
                      const std::function<Result<bool>(const TraceRequest&)>& take);

// Warnings on standard error about records that were left out.
void WarnAboutRecords(std::string_view verb, const std::string& name, const TraceSource& source);

Json SummaryToJson(const TraceSummary& summary, const TraceSource& source, const std::string& name);
std::string SummaryTable(const TraceSummary& summary, const TraceSource& source,
                         const std::string& name);

void AddTraceStat(Parser trace, Run& run);
void AddTraceConvert(Parser trace, Run& run);
void AddTraceGenerate(Parser trace, Run& run);

// Bytes to a file in one piece, whole or not at all.
Status WriteWholeFile(const std::string& path, std::string_view text, bool replace);

}  // namespace eplog::cli
