// The command line of `eplog replay`, and the settings that it says.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/trace/trace.h"
#include "cli/verb/option_types.h"
#include "cli/verb/parser.h"
#include "replay/settings.h"

namespace eplog::cli {

// Of drives and caches: whole blocks, and some.
struct BlocksSize {
  uint64_t bytes = 0;
};
struct ReplayChunk {
  uint32_t bytes = 0;
};
// "10000", "off" or "auto"
struct CommitEvery {
  std::optional<uint64_t> writes;  // as in ReplaySettings
};
// "max", "recorded" or "x10"
struct Speed {
  double factor = 0;  // as in ReplaySettings
};
// "sim", "mem", "file:DIR" or an array. Whether that is there is not looked at yet.
struct ReplayDevices {
  std::string typed = "sim";
  DeviceKind kind = DeviceKind::kSimulated;
  std::string directory;  // of kFiles
};
// "ssd3". What it may be only the number of SSDs says.
struct FailedSsd {
  std::string typed;
  std::optional<uint32_t> number;
};

Status ReadWord(const Word& word, BlocksSize& size);
Status ReadWord(const Word& word, ReplayChunk& chunk);
Status ReadWord(const Word& word, CommitEvery& every);
Status ReadWord(const Word& word, Speed& speed);
Status ReadWord(const Word& word, ReplayDevices& devices);
Status ReadWord(const Word& word, FailedSsd& failed);
Status ReadWord(const Word& word, Policy& policy);

struct ReplayCommand {
  TraceArguments reading;
  ReplaySettings settings;  // what is read as it is; ReadSettings adds the rest
  std::vector<Policy> policies = {Policy::kEplog, Policy::kMd};
  Level level;
  std::optional<ReplayChunk> chunk;
  std::optional<ReplayChunk> baseline_chunk;
  std::optional<BlocksSize> page_cache;
  std::optional<BlocksSize> ssd_size;
  std::optional<BlocksSize> log_size;
  std::optional<CommitEvery> commit_every;
  std::string drive;
  std::string log_drive;
  ReplayDevices devices;
  Speed speed;
  std::vector<FailedSsd> fail;
  std::string report;
  bool json = false;
};

void AddReplayOptions(Parser verb, ReplayCommand& command);

// What the command says, checked against itself and against what is there. kInvalidArgument,
// kNotFound.
Result<ReplaySettings> ReadSettings(const ReplayCommand& command);
// Each once, in the order in which they were typed.
std::vector<Policy> PoliciesOf(const ReplayCommand& command);

}  // namespace eplog::cli
