// Inputs of `eplog mttdl` that were measured: from a replay's JSON and from an array's counters.
// What a person gives goes over them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "cli/mttdl/inputs.h"
#include "eplog/result.h"
#include "report/json.h"

namespace eplog::cli {

struct Measured {
  InputSet values;
  std::vector<std::string> notes;  // what was found, for people
  Json facts = Json::object();     // the same for programs
};

// `document` as `eplog replay --json` prints it: alpha, and the number of SSDs if it lists their
// bytes. Errors begin with `name`.
Result<Measured> FromReplay(const Json& document, const std::string& name);
Result<Measured> FromReplayFile(const std::filesystem::path& file);

// `status` as `eplog status --json` prints it. alpha = bytes that EPLOG wrote to the SSDs since
// create (data, parity, metadata) over md_equivalent_ssd_bytes. What rebuilds wrote counts on
// neither side: conventional RAID would have written it too. The rebuild rate is known while a
// rebuild runs.
Result<Measured> FromStatus(const Json& status, const std::string& name);
Result<Measured> FromArray(const std::string& argument);

}  // namespace eplog::cli
