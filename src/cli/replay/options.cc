#include "cli/replay/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <utility>

#include "base/types.h"
#include "cli/verb/verbs.h"
#include "host/array_file.h"
#include "host/typed_path.h"
#include "text/suggest.h"
#include "text/units.h"
#include "text/words.h"

namespace eplog::cli {
namespace {

constexpr std::string_view kFile = "file:";

tl::unexpected<Error> Usage(const Word& word, std::string_view what) {
  return Fail(ErrorCode::kInvalidArgument, fmt::format("{} {}{}", word.option, word.text, what));
}

}  // namespace

Status ReadWord(const Word& word, BlocksSize& size) {
  const auto bytes = ParseSize(word.text);
  if (!bytes.ok()) {
    return Usage(word, ": " + bytes.error().message);
  }
  if (*bytes == 0 || *bytes % kBlockBytes != 0) {
    return Usage(word, ": a size is a multiple of 4K");
  }
  size.bytes = *bytes;
  return OkStatus();
}

Status ReadWord(const Word& word, ReplayChunk& chunk) {
  BlocksSize size;
  EPLOG_TRY(ReadWord(word, size));
  if (!IsChunkSize(size.bytes)) {
    return Usage(word, " is no power of two from 4K to 1M");
  }
  chunk.bytes = static_cast<uint32_t>(size.bytes);
  return OkStatus();
}

Status ReadWord(const Word& word, CommitEvery& every) {
  const auto count = ParseWhole(word.text);
  if (word.text == "auto") {
    every.writes.reset();
  } else if (word.text == "off") {
    every.writes = 0;
  } else if (count.value_or(0) != 0) {
    every.writes = count;
  } else {
    return Usage(word, ": a number of write requests, off or auto");
  }
  return OkStatus();
}

Status ReadWord(const Word& word, Speed& speed) {
  if (word.text == "max") {
    speed.factor = 0;
    return OkStatus();
  }
  if (word.text == "recorded") {
    speed.factor = 1;
    return OkStatus();
  }
  const std::string number(word.text.substr(std::min<size_t>(1, word.text.size())));
  char* end = nullptr;
  const double factor =
      word.text.starts_with('x') && !number.empty() ? std::strtod(number.c_str(), &end) : 0;
  if (end == nullptr || *end != '\0' || !(factor >= 1e-6) || factor > 1e9) {
    return Usage(word, ": max, recorded, or x10 for ten times as fast");
  }
  speed.factor = factor;
  return OkStatus();
}

Status ReadWord(const Word& word, ReplayDevices& devices) {
  devices = {};
  devices.typed = word.text;
  devices.kind = DeviceKind::kArray;
  if (word.text.starts_with(kFile)) {
    devices.kind = DeviceKind::kFiles;
    devices.directory = word.text.substr(kFile.size());
    return OkStatus();
  }
  const std::vector<std::string> kinds = {"sim", "mem"};
  if (const auto kind = MatchName(word.text, kinds)) {
    devices.kind = *kind == "sim" ? DeviceKind::kSimulated : DeviceKind::kMemory;
  }
  return OkStatus();
}

Status ReadWord(const Word& word, FailedSsd& failed) {
  failed.typed = word.text;
  const auto number = word.text.starts_with("ssd") ? ParseWhole(word.text.substr(3)) : std::nullopt;
  if (number.value_or(UINT64_MAX) < kMaxSsds) {
    failed.number = static_cast<uint32_t>(*number);
  }
  return OkStatus();
}

Status ReadWord(const Word& word, Policy& policy) {
  std::vector<std::string> names;
  names.reserve(kPolicies);
  for (int i = 0; i < kPolicies; ++i) {
    names.emplace_back(PolicyName(static_cast<Policy>(i)));
  }
  const std::string name = MatchName(word.text, names).value_or(std::string(word.text));
  const auto at = std::find(names.begin(), names.end(), name);
  if (at == names.end()) {
    return Usage(word,
                 fmt::format(": there is no such policy; they are {}", fmt::join(names, ", ")));
  }
  policy = static_cast<Policy>(at - names.begin());
  return OkStatus();
}

namespace {

// What is named is there. Looks at file systems, which may not answer.
Status CheckDevices(const ReplayDevices& devices) {
  const auto fail = [&](ErrorCode code, const std::string& what) {
    return Fail(code, fmt::format("--devices {}: {}", devices.typed, what));
  };
  if (devices.kind == DeviceKind::kFiles) {
    EPLOG_TRY(CheckAnswers(devices.directory));
    std::error_code error;
    return std::filesystem::is_directory(devices.directory, error)
               ? OkStatus()
               : Status(fail(ErrorCode::kNotFound, "there is no directory " + devices.directory));
  }
  if (devices.kind == DeviceKind::kArray) {
    const auto there = IsThere(devices.typed);
    EPLOG_TRY(there);
    if (!*there) {
      return fail(ErrorCode::kInvalidArgument,
                  "sim, mem, file:DIR for files made in DIR, or an array that is there");
    }
  }
  return OkStatus();
}

template <typename T>
void AddOnce(std::vector<T>& list, T value) {
  if (std::find(list.begin(), list.end(), value) == list.end()) {
    list.push_back(value);
  }
}

Status TakeFailed(const std::vector<FailedSsd>& failed, ReplaySettings& settings) {
  for (const FailedSsd& ssd : failed) {
    if (ssd.number.value_or(UINT32_MAX) >= settings.ssds) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("--fail {}: they are ssd0 to ssd{}", ssd.typed, settings.ssds - 1));
    }
    AddOnce(settings.failed_ssds, *ssd.number);
  }
  return OkStatus();
}

void AddArrayOptions(Parser verb, ReplayCommand& command) {
  ReplaySettings& settings = command.settings;
  verb.Add("--level", command.level,
           "RAID level: 5 has one parity chunk a stripe, 6 two, up to 8 (6)")
      .TypeName("5|6|7|8");
  verb.Add("--ssds", settings.ssds, "how many (8)");
  verb.Add("--chunk", command.chunk, "size of a chunk (4K)");
  verb.Add("--baseline-chunk", command.baseline_chunk, "size of a chunk of md and pl (as --chunk)");
  verb.Add("--page-cache", command.page_cache,
           "RAM of md and pl for what was written since the last flush (0)");
  verb.Add("--device-buffer", settings.buffers.device_chunks,
           "chunks of updates in RAM for each SSD (0)");
  verb.Add("--stripe-buffer", settings.buffers.stripes, "new stripes in RAM (0)");
  verb.Add("--commit-every", command.commit_every,
           "parity commit after so many write requests, off, or auto (auto)");
  verb.AddFlag("--commit-at-end", settings.commit_at_end, "one more parity commit, counted");
  verb.Add("--flush-every", settings.flush_every,
           "a flush after each so many requests, besides those of the trace");
}

void AddDeviceOptions(Parser verb, ReplayCommand& command) {
  ReplaySettings& settings = command.settings;
  verb.Add("--devices", command.devices,
           "sim: simulated drives; mem: memory that takes no time; file:DIR: files made in "
           "DIR for this; or an array, on a volume made for this (sim)");
  verb.Add("--drive", command.drive, "the simulated SSD: a name or a .toml");
  verb.Add("--log-drive", command.log_drive, "the simulated log device");
  verb.Add("--ssd-size", command.ssd_size, "of each SSD (what the trace needs)");
  verb.Add("--log-size", command.log_size, "of each log device (what the trace needs)");
  verb.Add("--speed", command.speed, "max, recorded, or x10: ten times as fast as recorded (max)");
  verb.Add("--queue-depth", settings.queue_depth, "requests in flight at --speed max (32)");
  verb.AddFlag("--prefill", settings.prefill,
               "lay down what the trace touches as whole stripes before, uncounted");
  verb.AddFlag("--precondition", settings.precondition, "age the simulated flash before");
  verb.AddFlag("--trim-spare", settings.trim_spare,
               "trim what md and pl never touch before, as EPLOG does by itself");
  verb.Add("--fail", command.fail, "SSDs that have failed: ssd2,ssd5").Delimiter(',').OneEach();
}

}  // namespace

void AddReplayOptions(Parser verb, ReplayCommand& command) {
  ReplaySettings& settings = command.settings;
  verb.Add("TRACE", settings.traces,
           "trace files, one after the other, or a profile: its name or its .toml")
      .Required();
  AddReadingArguments(verb, command.reading);
  verb.Add("--policy", command.policies, "of eplog, paper, md, pl, separated by commas (eplog,md)")
      .Delimiter(',')
      .OneEach();
  AddArrayOptions(verb, command);
  AddDeviceOptions(verb, command);
  verb.Add("--repeat", settings.repeat, "the whole trace so many times (1)");
  verb.Add("--limit", settings.limit, "stop after so many requests")
      .Within(uint64_t{1}, UINT64_MAX);
  verb.Add("--seed", settings.seed, "of identities and of how the flash is aged (1)");
  verb.Add("--report", command.report,
           "a directory for a page with pictures, index.html, and result.json");
  verb.AddFlag("--json", command.json, kJsonHelp);
}

Result<ReplaySettings> ReadSettings(const ReplayCommand& command) {
  ReplaySettings settings = command.settings;
  const auto reading = ReadTraceArguments(command.reading);
  EPLOG_TRY(reading);
  for (const std::string& trace : settings.traces) {
    EPLOG_TRY(CheckTraceAnswers(trace));
  }
  settings.trace = *reading;
  EPLOG_TRY(CheckDevices(command.devices));
  if (settings.ssds <= kMaxSsds) {  // or that is said, and not which of them can fail
    EPLOG_TRY(TakeFailed(command.fail, settings));
  }
  settings.parity = command.level.parity();
  settings.devices = command.devices.kind;
  settings.directory = command.devices.directory;
  settings.drive = command.drive.empty() ? settings.drive : command.drive;
  settings.log_drive = command.log_drive.empty() ? settings.log_drive : command.log_drive;
  settings.speed = command.speed.factor;
  settings.commit_every = command.commit_every.value_or(CommitEvery{}).writes;
  settings.ssd_bytes = command.ssd_size.value_or(BlocksSize{}).bytes;
  settings.log_bytes = command.log_size.value_or(BlocksSize{}).bytes;
  settings.page_cache_bytes = command.page_cache.value_or(BlocksSize{}).bytes;
  settings.chunk_bytes = command.chunk ? command.chunk->bytes : settings.chunk_bytes;
  settings.baseline_chunk_bytes =
      command.baseline_chunk ? command.baseline_chunk->bytes : settings.chunk_bytes;
  return settings;
}

std::vector<Policy> PoliciesOf(const ReplayCommand& command) {
  std::vector<Policy> policies;
  for (const Policy policy : command.policies) {
    AddOnce(policies, policy);
  }
  return policies;
}

}  // namespace eplog::cli
