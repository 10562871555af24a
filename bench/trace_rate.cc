// How fast traces are read: requests a second of every format and packing, from memory of the page
// cache, parsing and checks alone; and of the statistics. Prints a table.
//
//   trace_rate [REQUESTS]      of profile fin, 2,000,000 unless said otherwise
#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/check.h"
#include "trace/byte_source.h"
#include "trace/open.h"
#include "trace/statistics.h"
#include "trace/writer.h"

namespace eplog {
namespace {

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Seconds to read all of `name`; requests go to `statistics` if there is one.
double Read(const std::string& name, const TraceOptions& options, uint64_t limit,
            TraceStatistics* statistics) {
  const double begin = Now();
  auto source = OpenTrace(name, options);
  EPLOG_CHECK(source.ok(), "the trace was just written");
  std::vector<TraceRequest> batch(4096);
  uint64_t all = 0;
  while (all < limit) {
    const auto count = (*source)->Read(batch);
    EPLOG_CHECK(count.ok() && *count != 0, "the trace holds all requests");
    all += *count;
    for (size_t i = 0; statistics != nullptr && i < *count; ++i) {
      statistics->Add(batch[i]);
    }
  }
  return Now() - begin;
}

void Write(const std::string& path, TraceFormat format, uint64_t requests) {
  auto source = OpenTrace("fin", TraceOptions{});
  auto sink = OpenByteSink(path, true);
  EPLOG_CHECK(source.ok() && sink.ok(), "the profile is built in, the folder is ours");
  const auto writer = MakeTraceWriter(format, ColumnLayout{});
  std::vector<TraceRequest> batch(1000);
  std::string text;
  for (uint64_t done = 0; done < requests; done += batch.size()) {
    EPLOG_CHECK((*source)->Read(batch).ok(), "a generator does not fail");
    for (const TraceRequest& request : batch) {
      EPLOG_CHECK(writer->Add(request, (*source)->volumes(), text).ok(), "it can be said");
    }
    EPLOG_CHECK((*sink)->Write(text).ok(), "there is room");
    text.clear();
  }
  EPLOG_CHECK((*sink)->Close().ok(), "there is room");
}

int Main(int argc, char** argv) {
  uint64_t requests = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 2'000'000;
  requests = std::max<uint64_t>(requests / 1000, 1) * 1000;
  std::string folder = (std::filesystem::temp_directory_path() / "eplog-rate-XXXXXX").string();
  EPLOG_CHECK(::mkdtemp(folder.data()) != nullptr, "there is a temporary folder");
  const auto report = [&](const std::string& what, double seconds) {
    fmt::print("{:<24}{:>8.2f} M requests a second\n", what,
               static_cast<double>(requests) / seconds / 1e6);
  };
  constexpr TraceFormat kFormats[] = {
      TraceFormat::kMsr,    TraceFormat::kSpc,      TraceFormat::kFio2,
      TraceFormat::kFio3,   TraceFormat::kBlkparse, TraceFormat::kVscsi1,
      TraceFormat::kVscsi2, TraceFormat::kNbd,      TraceFormat::kColumns};
  for (const TraceFormat format : kFormats) {
    TraceOptions options;
    options.format = format;
    options.columns = DefaultColumns();
    const std::string path = folder + "/trace";
    Write(path, format, requests);
    report(TraceFormatName(format), Read(path, options, requests, nullptr));
  }
  for (const char* ending : {".gz", ".zst", ".xz"}) {
    const std::string path = folder + "/trace" + ending;
    Write(path, TraceFormat::kMsr, requests);
    report(fmt::format("msr, packed {}", ending), Read(path, TraceOptions{}, requests, nullptr));
    std::filesystem::remove(path);
  }
  report("made by the generator", Read("fin", TraceOptions{}, requests, nullptr));
  TraceStatistics statistics{StatOptions{}};
  report("made, with statistics", Read("fin", TraceOptions{}, requests, &statistics));
  std::filesystem::remove_all(folder);
  return 0;
}

}  // namespace
}  // namespace eplog

int main(int argc, char** argv) {
  return eplog::Main(argc, argv);
}
