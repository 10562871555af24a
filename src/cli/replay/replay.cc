// eplog replay: what EPLOG would do for a workload, against ordinary RAID, before any hardware is
// bought.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/replay/page.h"
#include "cli/replay/report.h"
#include "cli/trace/trace.h"
#include "cli/verb/verbs.h"
#include "host/array_file.h"
#include "host/session.h"
#include "host/typed_path.h"
#include "replay/replay.h"
#include "terminal/console.h"
#include "text/suggest.h"
#include "text/units.h"
#include "text/words.h"

namespace eplog::cli {
namespace {

constexpr char kVerb[] = "replay";

Result<uint64_t> ParseCount(std::string_view text) {
  const auto count = ParseWhole(text);
  if (!count) {
    return Fail(ErrorCode::kInvalidArgument, fmt::format("{} is no whole number", text));
  }
  return *count;
}

struct ReplayCommand {
  TraceArguments reading;
  std::vector<std::string> traces;
  std::vector<std::string> policies = {"eplog", "md"};
  uint32_t level = 6;
  uint32_t ssds = 8;
  std::string chunk;
  std::string baseline_chunk;
  std::string page_cache;
  uint32_t device_buffer = 0;
  uint32_t stripe_buffer = 0;
  std::string commit_every;
  bool commit_at_end = false;
  uint64_t flush_every = 0;
  std::string devices = "sim";
  std::string drive;
  std::string log_drive;
  std::string ssd_size;
  std::string log_size;
  std::string speed = "max";
  uint32_t queue_depth = 32;
  bool prefill = false;
  bool precondition = false;
  bool trim_spare = false;
  std::vector<std::string> fail;
  uint64_t repeat = 1;
  uint64_t limit = 0;
  uint64_t seed = 1;
  std::string report;
  bool json = false;
};

Result<std::vector<Policy>> ReadPolicies(const std::vector<std::string>& typed) {
  std::vector<std::string> names;
  names.reserve(kPolicies);
  for (int i = 0; i < kPolicies; ++i) {
    names.emplace_back(PolicyName(static_cast<Policy>(i)));
  }
  std::vector<Policy> policies;
  for (const std::string& word : typed) {
    const auto name = MatchName(word, names);
    const auto at = std::find(names.begin(), names.end(), name.value_or(word));
    if (at == names.end()) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("--policy {}: there is no such policy; they are {}", word,
                              fmt::join(names, ", ")));
    }
    const auto policy = static_cast<Policy>(at - names.begin());
    if (std::find(policies.begin(), policies.end(), policy) == policies.end()) {
      policies.push_back(policy);
    }
  }
  return policies;
}

Status ReadCommit(const std::string& typed, ReplaySettings& settings) {
  if (typed.empty() || typed == "auto") {
    return OkStatus();
  }
  if (typed == "off") {
    settings.commit_every = 0;
    return OkStatus();
  }
  const auto every = ParseCount(typed);
  if (!every.ok() || *every == 0) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("--commit-every {}: a number of write requests, off or auto", typed));
  }
  settings.commit_every = *every;
  return OkStatus();
}

Status ReadSpeed(const std::string& typed, ReplaySettings& settings) {
  if (typed == "max") {
    settings.speed = 0;
    return OkStatus();
  }
  if (typed == "recorded") {
    settings.speed = 1;
    return OkStatus();
  }
  char* end = nullptr;
  const double factor = typed.size() > 1 && typed[0] == 'x' ? std::strtod(&typed[1], &end) : 0;
  if (end == nullptr || *end != '\0' || !(factor >= 1e-6) || factor > 1e9) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("--speed {}: max, recorded, or x10 for ten times as fast", typed));
  }
  settings.speed = factor;
  return OkStatus();
}

Status ReadFailed(const std::vector<std::string>& typed, ReplaySettings& settings) {
  for (const std::string& word : typed) {
    const auto number =
        word.rfind("ssd", 0) == 0 ? ParseCount(word.substr(3)) : Result<uint64_t>(Fail(Error{}));
    if (!number.ok() || *number >= settings.ssds) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("--fail {}: they are ssd0 to ssd{}", word, settings.ssds - 1));
    }
    const auto ssd = static_cast<uint32_t>(*number);
    if (std::find(settings.failed_ssds.begin(), settings.failed_ssds.end(), ssd) ==
        settings.failed_ssds.end()) {
      settings.failed_ssds.push_back(ssd);
    }
  }
  return OkStatus();
}

Status ReadSizes(const ReplayCommand& command, ReplaySettings& settings) {
  const auto read = [](const char* option, const std::string& typed, uint64_t& bytes) -> Status {
    if (typed.empty()) {
      return OkStatus();
    }
    const auto size = ParseSize(typed);
    if (!size.ok()) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("{} {}: {}", option, typed, size.error().message));
    }
    if (*size == 0 || *size % kBlockBytes != 0) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("{} {}: a size is a multiple of 4K", option, typed));
    }
    bytes = *size;
    return OkStatus();
  };
  EPLOG_TRY(read("--ssd-size", command.ssd_size, settings.ssd_bytes));
  EPLOG_TRY(read("--log-size", command.log_size, settings.log_bytes));
  EPLOG_TRY(read("--page-cache", command.page_cache, settings.page_cache_bytes));
  const auto read_chunk = [&](const char* option, const std::string& typed,
                              uint32_t& into) -> Status {
    uint64_t chunk = settings.chunk_bytes;
    EPLOG_TRY(read(option, typed, chunk));
    if (!std::has_single_bit(chunk) || chunk < kMinChunkBytes || chunk > kMaxChunkBytes) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("{} {} is no power of two from 4K to 1M", option, typed));
    }
    into = static_cast<uint32_t>(chunk);
    return OkStatus();
  };
  EPLOG_TRY(read_chunk("--chunk", command.chunk, settings.chunk_bytes));
  return read_chunk("--baseline-chunk", command.baseline_chunk, settings.baseline_chunk_bytes);
}

Status ReadDevices(const std::string& typed, ReplaySettings& settings) {
  constexpr std::string_view kFile = "file:";
  if (typed.rfind(kFile, 0) == 0) {
    settings.devices = DeviceKind::kFiles;
    settings.directory = typed.substr(kFile.size());
    EPLOG_TRY(CheckAnswers(settings.directory));
    std::error_code error;
    return std::filesystem::is_directory(settings.directory, error)
               ? OkStatus()
               : Status(Fail(ErrorCode::kNotFound,
                             fmt::format("--devices {}: there is no directory {}", typed,
                                         settings.directory)));
  }
  const std::vector<std::string> kinds = {"sim", "mem"};
  if (const auto kind = MatchName(typed, kinds)) {
    settings.devices = *kind == "sim" ? DeviceKind::kSimulated : DeviceKind::kMemory;
    return OkStatus();
  }
  const auto there = IsThere(typed);
  EPLOG_TRY(there);
  if (!*there) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("--devices {}: sim, mem, file:DIR for files made in DIR, or an array "
                            "that is there",
                            typed));
  }
  settings.devices = DeviceKind::kArray;
  return OkStatus();
}

Result<ReplaySettings> ReadSettings(const ReplayCommand& command) {
  ReplaySettings settings;
  const auto reading = ReadTraceArguments(command.reading);
  EPLOG_TRY(reading);
  for (const std::string& trace : command.traces) {
    EPLOG_TRY(CheckTraceAnswers(trace));
  }
  settings.trace = *reading;
  settings.traces = command.traces;
  if (command.level < 5 || command.level > 8) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("--level {}: 5 has one parity chunk, 6 two, up to 8", command.level));
  }
  settings.parity = command.level - 4;
  settings.ssds = command.ssds;
  settings.buffers = {.device_chunks = command.device_buffer, .stripes = command.stripe_buffer};
  settings.commit_at_end = command.commit_at_end;
  settings.flush_every = command.flush_every;
  EPLOG_TRY(ReadDevices(command.devices, settings));
  settings.drive = command.drive.empty() ? settings.drive : command.drive;
  settings.log_drive = command.log_drive.empty() ? settings.log_drive : command.log_drive;
  settings.prefill = command.prefill;
  settings.precondition = command.precondition;
  settings.trim_spare = command.trim_spare;
  settings.queue_depth = command.queue_depth;
  settings.repeat = command.repeat;
  settings.limit = command.limit;
  settings.seed = command.seed;
  EPLOG_TRY(ReadCommit(command.commit_every, settings));
  EPLOG_TRY(ReadSpeed(command.speed, settings));
  EPLOG_TRY(ReadFailed(command.fail, settings));
  EPLOG_TRY(ReadSizes(command, settings));
  return settings;
}

// The page, and the document from which another could be made.
Status WriteReport(const std::string& directory, const ReplayResult& result,
                   const ReplaySettings& settings) {
  EPLOG_TRY(WriteWholeFile(directory + "/index.html", ReplayPage(result, settings), true));
  const std::string document =
      ReplayToJson(result, settings).dump(1, ' ', false, Json::error_handler_t::replace);
  return WriteWholeFile(directory + "/result.json", document + "\n", true);
}

// Before long work begins.
Status MakeReportDirectory(const std::string& directory) {
  EPLOG_TRY(CheckAnswers(directory));
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) {
    return Fail(ErrorCode::kIo, fmt::format("--report {}: {}", directory, error.message()));
  }
  return OkStatus();
}

// What the array is and holds is its own: nothing of that can be chosen.
Result<ReplayResult> OnArray(const ReplayCommand& command, const std::vector<Policy>& policies,
                             ReplaySettings& settings, const ReplayProgress& progress) {
  if (policies != std::vector<Policy>{Policy::kEplog}) {
    return Fail(ErrorCode::kInvalidArgument,
                "on an array that is there only EPLOG can be replayed: --policy eplog");
  }
  auto typed = LookAtArray(command.devices);
  EPLOG_TRY(typed);
  const auto& file = typed->array;
  EPLOG_TRY(file);
  auto session = Session::Open(kVerb, *file, MemberOptions(), OptionsFor(settings, false));
  if (!session.ok()) {
    return Fail(std::move(session).error());
  }
  auto result = ReplayOn((*session)->loop(), (*session)->array(), settings, progress);
  const Status closed = (*session)->Close();
  EPLOG_TRY(result);
  EPLOG_TRY(closed);
  return result;
}

Status RunReplay(const ReplayCommand& command) {
  auto settings = ReadSettings(command);
  EPLOG_TRY(settings);
  const auto policies = ReadPolicies(command.policies);
  EPLOG_TRY(policies);
  if (!command.report.empty()) {
    EPLOG_TRY(MakeReportDirectory(command.report));
  }
  std::unique_ptr<ProgressBar> bar;
  std::string shown;
  const auto progress = [&](const std::string& what, uint64_t done, uint64_t total) {
    if (what != shown) {
      bar.reset();
      bar = std::make_unique<ProgressBar>(kVerb, what, ProgressBar::Unit::kCount);
      shown = what;
    }
    bar->Update(done, total);
  };
  const auto result = settings->devices == DeviceKind::kArray
                          ? OnArray(command, *policies, *settings, progress)
                          : Replay(*settings, *policies, progress);
  bar.reset();
  EPLOG_TRY(result);
  if (command.json) {
    PrintJson(ReplayToJson(*result, *settings));
  } else {
    Print(ReplayTable(*result, *settings));
  }
  return command.report.empty() ? OkStatus() : WriteReport(command.report, *result, *settings);
}

}  // namespace

void AddReplay(Parser app, Run& run) {
  auto command = std::make_shared<ReplayCommand>();
  Parser verb = app.AddVerb(
      kVerb, "Replay a trace: what EPLOG would write, and how fast, against ordinary RAID");
  verb.Add("TRACE", command->traces,
           "trace files, one after the other, or a profile: its name or its .toml")
      .Required();
  AddReadingArguments(verb, command->reading);
  verb.Add("--policy", command->policies, "of eplog, paper, md, pl, separated by commas (eplog,md)")
      .Delimiter(',')
      .OneEach();
  verb.Add("--level", command->level, "5, 6, ...: how many parity chunks (6)");
  verb.Add("--ssds", command->ssds, "how many (8)");
  verb.Add("--chunk", command->chunk, "size of a chunk (4K)");
  verb.Add("--baseline-chunk", command->baseline_chunk,
           "size of a chunk of md and pl (as --chunk)");
  verb.Add("--page-cache", command->page_cache,
           "RAM of md and pl for what was written since the last flush (0)");
  verb.Add("--device-buffer", command->device_buffer, "chunks of updates in RAM for each SSD (0)");
  verb.Add("--stripe-buffer", command->stripe_buffer, "new stripes in RAM (0)");
  verb.Add("--commit-every", command->commit_every,
           "parity commit after so many write requests, off, or auto (auto)");
  verb.AddFlag("--commit-at-end", command->commit_at_end, "one more parity commit, counted");
  verb.Add("--flush-every", command->flush_every,
           "a flush after each so many requests, besides those of the trace");
  verb.Add("--devices", command->devices,
           "sim: simulated drives; mem: memory that takes no time; file:DIR: files made in "
           "DIR for this; or an array, on a volume made for this (sim)");
  verb.Add("--drive", command->drive, "the simulated SSD: a name or a .toml");
  verb.Add("--log-drive", command->log_drive, "the simulated log device");
  verb.Add("--ssd-size", command->ssd_size, "of each SSD (what the trace needs)");
  verb.Add("--log-size", command->log_size, "of each log device (what the trace needs)");
  verb.Add("--speed", command->speed, "max, recorded, or x10: ten times as fast as recorded (max)");
  verb.Add("--queue-depth", command->queue_depth, "requests in flight at --speed max (32)");
  verb.AddFlag("--prefill", command->prefill,
               "lay down what the trace touches as whole stripes before, uncounted");
  verb.AddFlag("--precondition", command->precondition, "age the simulated flash before");
  verb.AddFlag("--trim-spare", command->trim_spare,
               "trim what md and pl never touch before, as EPLOG does by itself");
  verb.Add("--fail", command->fail, "SSDs that have failed: ssd2,ssd5").Delimiter(',').OneEach();
  verb.Add("--repeat", command->repeat, "the whole trace so many times (1)");
  verb.Add("--limit", command->limit, "stop after so many requests")
      .Within(uint64_t{1}, UINT64_MAX);
  verb.Add("--seed", command->seed, "of identities and of how the flash is aged (1)");
  verb.Add("--report", command->report,
           "a directory for a page with pictures, index.html, and result.json");
  verb.AddFlag("--json", command->json, kJsonHelp);
  verb.OnChosen([command, &run] {
    run = [command] {
      const Status status = RunReplay(*command);
      return status.ok() ? kDone : ReportError(kVerb, status.error());
    };
  });
}

}  // namespace eplog::cli
