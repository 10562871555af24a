#include "cli/mttdl/sources.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <sstream>
#include <utility>

#include "cli/verb/read_status.h"
#include "host/array_file.h"
#include "host/typed_path.h"
#include "report/status_json.h"
#include "text/units.h"

namespace eplog::cli {
namespace {

namespace fs = std::filesystem;

constexpr uintmax_t kMaxSourceBytes = uintmax_t{256} << 20;

tl::unexpected<Error> Bad(const std::string& name, const std::string& what) {
  return Fail(ErrorCode::kCorrupt, fmt::format("{}: {}", name, what));
}

// A number at `path` below `node`; empty if there is none.
std::optional<double> NumberAt(const Json& node, std::initializer_list<const char*> path) {
  const Json* at = &node;
  for (const char* key : path) {
    if (!at->is_object() || !at->contains(key)) {
      return std::nullopt;
    }
    at = &at->at(key);
  }
  return at->is_number() ? std::optional(at->get<double>()) : std::nullopt;
}

// EPLOG's and md's SSD bytes by the byte classes, without repairs.
std::optional<double> SsdBytes(const Json& traffic) {
  double sum = 0;
  for (const char* key : {"ssd_data_bytes", "ssd_parity_bytes", "ssd_metadata_bytes"}) {
    const auto bytes = NumberAt(traffic, {key});
    if (!bytes) {
      return std::nullopt;
    }
    sum += *bytes;
  }
  return sum;
}

// Exact as it goes through text.
std::string Exact(double value) {
  return fmt::format("{:.17g}", value);
}

Result<double> ReplayAlpha(const Json& document, const std::string& name) {
  if (const auto alpha = NumberAt(document, {"alpha"})) {
    return *alpha;
  }
  const Json policies = document.value("policies", Json::object());
  const auto bytes = [&](const char* policy) {
    return policies.is_object() && policies.contains(policy) ? SsdBytes(policies[policy])
                                                             : std::nullopt;
  };
  const auto eplog = bytes("eplog");
  const auto md = bytes("md");
  if (!eplog || !md || !(*md > 0)) {
    return Bad(name,
               "no 'alpha' in it, nor the SSD bytes of the policies eplog and md; write it with "
               "eplog replay --json");
  }
  return *eplog / *md;
}

}  // namespace

Result<Measured> FromReplay(const Json& document, const std::string& name) {
  if (!document.is_object()) {
    return Bad(name, "not the JSON of a replay; write it with eplog replay --json");
  }
  const auto alpha = ReplayAlpha(document, name);
  EPLOG_TRY(alpha);
  if (!(std::isfinite(*alpha) && *alpha > 0)) {
    return Bad(name, fmt::format("its alpha is {}; it must be above 0", *alpha));
  }
  Measured found;
  EPLOG_TRY(found.values.Set("alpha", Exact(*alpha), name));
  found.facts["alpha"] = *alpha;
  std::string note = fmt::format("{}: alpha {:.4g}", name, *alpha);
  const Json::json_pointer ssds("/policies/eplog/ssd_bytes");
  if (document.contains(ssds) && document.at(ssds).is_array() && document.at(ssds).size() > 1) {
    const size_t count = document.at(ssds).size();
    EPLOG_TRY(found.values.Set("ssds", std::to_string(count), name));
    found.facts["ssds"] = count;
    note += fmt::format(", {} SSDs", count);
  }
  for (const char* key : {"parity_chunks", "parity"}) {
    const auto parity = NumberAt(document, {"settings", key});
    if (parity && *parity >= 1 && *parity <= reliability::kMaxParity) {
      EPLOG_TRY(found.values.Set("parity", fmt::format("{:.0f}", *parity), name));
      found.facts["parity"] = *parity;
      note += fmt::format(", {:.0f} parity", *parity);
      break;
    }
  }
  if (document.contains("trace") && document["trace"].is_string()) {
    note += fmt::format(", trace {}", document["trace"].get<std::string>());
  }
  found.notes.push_back(note);
  return found;
}

Result<Measured> FromReplayFile(const fs::path& file) {
  EPLOG_TRY(CheckAnswers(file));
  std::error_code error;
  const auto size = fs::file_size(file, error);
  if (error) {
    return Fail(error.value() == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
                fmt::format("cannot read {}: {}", file.string(), error.message()));
  }
  if (size > kMaxSourceBytes) {
    return Bad(file.string(), "too large for the JSON of a replay");
  }
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  if (!in) {
    return Fail(ErrorCode::kIo, fmt::format("cannot read {}", file.string()));
  }
  const Json document = Json::parse(text.str(), nullptr, false);
  if (document.is_discarded()) {
    return Bad(file.string(), "this is no JSON; write it with eplog replay --json");
  }
  return FromReplay(document, file.string());
}

namespace {

// What the counters say about commits: how long and how much the array relies on its log.
void NoteCommits(const Json& status, Measured& found) {
  const auto lifetime = [&](const char* key) {
    return NumberAt(status, {"lifetime", key}).value_or(0);
  };
  const double commits = lifetime("commits");
  const double stripes = lifetime("committed_stripes");
  const double pending = NumberAt(status, {"exposure", "pending_chunks"}).value_or(0);
  const double oldest = NumberAt(status, {"exposure", "oldest_pending_seconds"}).value_or(0);
  found.facts["commits"] = commits;
  found.facts["committed_stripes"] = stripes;
  found.facts["parity_bytes"] = lifetime("ssd_parity_bytes");
  found.facts["pending_chunks_now"] = pending;
  found.facts["oldest_pending_seconds_now"] = oldest;
  found.notes.push_back(
      fmt::format("{:.0f} commits of {:.0f} stripes; {}", commits, stripes,
                  pending > 0 ? fmt::format("{:.0f} chunks rely on the log now, the oldest for {}",
                                            pending, HumanSeconds(oldest))
                              : "nothing relies on the log now"));
}

Status TakeRebuild(const Json& status, const std::string& name, double capacity, Measured& found) {
  const auto speed = NumberAt(status, {"rebuild", "bytes_per_second"});
  if (!speed || !(*speed > 0) || !(capacity > 0)) {
    found.notes.emplace_back("no rebuild runs now, so its rate is not measured");
    return OkStatus();
  }
  found.facts["rebuild_bytes_per_second"] = *speed;
  found.notes.push_back(
      fmt::format("a rebuild runs at {} a second", HumanBytes(static_cast<uint64_t>(*speed))));
  return found.values.Set("rebuild-rate", fmt::format("{:.0f}", std::max(1.0, *speed)), name);
}

}  // namespace

Result<Measured> FromStatus(const Json& status, const std::string& name) {
  const auto data = NumberAt(status, {"array", "data_chunks"});
  const auto parity = NumberAt(status, {"array", "parity_chunks"});
  const auto written = SsdBytes(status.value("lifetime", Json::object()));
  const auto equivalent = NumberAt(status, {"lifetime", "md_equivalent_ssd_bytes"});
  if (!data || !parity || !written || !equivalent) {
    return Bad(name, "its status lacks the geometry or the lifetime counters");
  }
  if (!(*equivalent > 0)) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: nothing has been written to it yet, so its alpha is not known; "
                            "give --alpha, or ask again later",
                            name));
  }
  Measured found;
  const double alpha = *written / *equivalent;
  EPLOG_TRY(found.values.Set("ssds", fmt::format("{:.0f}", *data + *parity), name));
  EPLOG_TRY(found.values.Set("parity", fmt::format("{:.0f}", *parity), name));
  EPLOG_TRY(found.values.Set("alpha", Exact(alpha), name));
  found.facts["alpha"] = alpha;
  found.facts["ssd_bytes_written"] = *written;
  found.facts["md_equivalent_ssd_bytes"] = *equivalent;
  found.notes.push_back(fmt::format(
      "{}: alpha {:.4g}: {} written to its SSDs since create, where conventional RAID would have "
      "written {}",
      name, alpha, HumanBytes(static_cast<uint64_t>(*written)),
      HumanBytes(static_cast<uint64_t>(*equivalent))));
  double capacity = 0;
  for (const Json& device : status.value("devices", Json::array())) {
    if (device.value("role", "") == "ssd") {
      capacity = std::max(capacity, NumberAt(device, {"size_bytes"}).value_or(0));
    }
  }
  if (capacity > 0) {
    EPLOG_TRY(found.values.Set("capacity", fmt::format("{:.0f}", capacity), name));
    found.facts["capacity_bytes"] = capacity;
  }
  EPLOG_TRY(TakeRebuild(status, name, capacity, found));
  NoteCommits(status, found);
  return found;
}

Result<Measured> FromArray(const std::string& argument) {
  auto typed = LookAtArray(argument);
  EPLOG_TRY(typed);
  auto& file = typed->array;
  if (!file.ok()) {
    return Fail(std::move(file).error());
  }
  auto status = ReadStatus("mttdl", *file);
  if (!status.ok()) {
    return Fail(std::move(status).error());
  }
  return FromStatus(*status, argument);
}

}  // namespace eplog::cli
