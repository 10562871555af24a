#include "cli/replay/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <vector>

#include "report/status_json.h"

namespace eplog::cli {
namespace {

struct Percentile {
  const char* name;
  uint64_t per_million;
};
constexpr Percentile kPercentiles[] = {
    {"p50", 500'000}, {"p99", 990'000}, {"p999", 999'000}, {"p9999", 999'900}};

double Iops(const PolicyResult& result) {
  return result.duration_us == 0
             ? 0
             : static_cast<double>(result.requests) * 1e6 / static_cast<double>(result.duration_us);
}

const PolicyResult* Find(const ReplayResult& result, Policy policy) {
  const auto found =
      std::find_if(result.policies.begin(), result.policies.end(),
                   [policy](const PolicyResult& each) { return each.policy == policy; });
  return found == result.policies.end() ? nullptr : &*found;
}

// EPLOG's bytes over MD's: what an SSD ages less by.
std::optional<double> Alpha(const ReplayResult& result) {
  const PolicyResult* eplog = Find(result, Policy::kEplog);
  const PolicyResult* md = Find(result, Policy::kMd);
  if (eplog == nullptr || md == nullptr || md->ssd_bytes() == 0) {
    return std::nullopt;
  }
  return static_cast<double>(eplog->ssd_bytes()) / static_cast<double>(md->ssd_bytes());
}

Json SettingsToJson(const ReplayResult& result, const ReplaySettings& settings) {
  Json failed = Json::array();
  for (const uint32_t ssd : settings.failed_ssds) {
    failed.push_back(fmt::format("ssd{}", ssd));
  }
  return {
      {"level", LevelOfParity(settings.parity)},
      {"ssds", settings.ssds},
      {"chunk_bytes", settings.chunk_bytes},
      {"baseline_chunk_bytes",
       settings.baseline_chunk_bytes != 0 ? settings.baseline_chunk_bytes : settings.chunk_bytes},
      {"page_cache_bytes", settings.page_cache_bytes},
      {"device_buffer_chunks", settings.buffers.device_chunks},
      {"stripe_buffer", settings.buffers.stripes},
      {"commit_every", !settings.commit_every        ? Json("auto")
                       : *settings.commit_every == 0 ? Json("off")
                                                     : Json(*settings.commit_every)},
      {"commit_at_end", settings.commit_at_end},
      {"flush_every", settings.flush_every},
      {"devices", DeviceKindName(settings.devices)},
      {"drive", settings.devices == DeviceKind::kSimulated ? Json(settings.drive) : Json()},
      {"log_drive", settings.devices == DeviceKind::kSimulated ? Json(settings.log_drive) : Json()},
      {"ssd_bytes_each", result.ssd_bytes},
      {"log_bytes_each", result.log_bytes},
      {"working_set_bytes", result.working_set_bytes},
      {"prefill", settings.prefill},
      {"precondition", settings.precondition},
      {"trim_spare", settings.trim_spare},
      {"fail", std::move(failed)},
      {"speed", settings.speed == 0 ? Json("max") : Json(settings.speed)},
      {"queue_depth", settings.speed == 0 ? Json(settings.queue_depth) : Json()},
      {"repeat", settings.repeat},
      {"limit", settings.limit},
      {"seed", settings.seed}};
}

Json LatencyToJson(const Histogram& histogram) {
  Json latency = Json::object();
  for (const Percentile& each : kPercentiles) {
    latency[each.name] = histogram.Percentile(each.per_million);
  }
  latency["max"] = histogram.largest();
  latency["mean"] = histogram.mean();
  return latency;
}

Json SpreadToJson(const Spread& spread) {
  return {{"min", spread.least}, {"mean", spread.mean}, {"max", spread.most}};
}

Json PolicyToJson(const PolicyResult& result, const ReplaySettings& settings) {
  Json document = TrafficToJson(result.traffic);
  Json each = Json::array();
  uint64_t reads = 0;
  for (const DeviceCounters& ssd : result.ssds) {
    each.push_back(ssd.bytes_written);
    reads += ssd.reads;
  }
  uint64_t log_bytes = 0;
  for (const DeviceCounters& log : result.logs) {
    log_bytes += log.bytes_written;
  }
  document["requests"] = result.requests;
  document["ssd_bytes"] = std::move(each);
  document["ssd_bytes_total"] = result.ssd_bytes();
  document["ssd_reads"] = reads;
  document["log_bytes_total"] = log_bytes;
  document["erases"] = result.has_flash ? Json(result.flash.erases) : Json();
  document["gc_runs"] = result.has_flash ? Json(result.flash.gc_runs) : Json();
  document["write_amplification"] = result.has_flash && result.flash.host_pages != 0
                                        ? Json(static_cast<double>(result.flash.programmed_pages) /
                                               static_cast<double>(result.flash.host_pages))
                                        : Json();
  const bool timed = HasTimes(settings.devices) && result.duration_us != 0;
  document["seconds"] = timed ? Json(static_cast<double>(result.duration_us) / 1e6) : Json();
  document["iops"] = timed ? Json(Iops(result)) : Json();
  document["latency_us"] = timed ? LatencyToJson(result.latency_us) : Json();
  const bool engine = result.policy == Policy::kEplog || result.policy == Policy::kPaper;
  const bool shares = engine && result.share_samples != 0;
  document["space_overhead"] = shares ? SpreadToJson(result.space_overhead) : Json();
  document["pending_share"] = shares ? SpreadToJson(result.pending_share) : Json();
  document["metadata_bytes_before"] = engine ? Json(result.metadata_bytes_before) : Json();
  document["metadata_bytes_max"] =
      engine ? Json(std::max(result.metadata_bytes_before, result.metadata_bytes_max)) : Json();
  return document;
}

std::string Row(std::string_view what, const ReplayResult& result,
                const std::function<std::string(const PolicyResult&)>& value) {
  std::string line = fmt::format("  {:<30}", what);
  for (const PolicyResult& policy : result.policies) {
    line += fmt::format("{:>16}", value(policy));
  }
  return line + "\n";
}

}  // namespace

Json ReplayToJson(const ReplayResult& result, const ReplaySettings& settings) {
  Json policies = Json::object();
  for (const PolicyResult& policy : result.policies) {
    policies[PolicyName(policy.policy)] = PolicyToJson(policy, settings);
  }
  const auto alpha = Alpha(result);
  return {{"trace",
           settings.traces.size() == 1 ? Json(settings.traces.front()) : Json(settings.traces)},
          {"settings", SettingsToJson(result, settings)},
          {"policies", std::move(policies)},
          {"alpha", alpha ? Json(*alpha) : Json()}};
}

namespace {

std::string DevicesText(const ReplaySettings& settings) {
  switch (settings.devices) {
    case DeviceKind::kSimulated:
      return fmt::format("on {} and {} (simulated)", settings.drive, settings.log_drive);
    case DeviceKind::kMemory:
      return "on memory, no times";
    case DeviceKind::kFiles:
      return fmt::format("on files in {}", settings.directory);
    case DeviceKind::kArray:
      break;
  }
  return "on an array that is there";
}

}  // namespace

std::string ReplayTable(const ReplayResult& result, const ReplaySettings& settings) {
  std::string table = fmt::format("{}+{} SSDs, chunks of {}, working set {}, {}\n\n",
                                  settings.ssds - settings.parity, settings.parity,
                                  HumanBytes(settings.chunk_bytes),
                                  HumanBytes(result.working_set_bytes), DevicesText(settings));
  const PolicyResult* md = Find(result, Policy::kMd);
  table += Row("", result, [](const PolicyResult& p) { return std::string(PolicyName(p.policy)); });
  table +=
      Row("requests", result, [](const PolicyResult& p) { return fmt::format("{}", p.requests); });
  table += Row("written to SSDs", result,
               [](const PolicyResult& p) { return HumanBytes(p.ssd_bytes()); });
  if (md != nullptr && md->ssd_bytes() != 0) {
    table += Row("  against md", result, [md](const PolicyResult& p) {
      return fmt::format(
          "{:+.1f} %",
          (static_cast<double>(p.ssd_bytes()) / static_cast<double>(md->ssd_bytes()) - 1) * 100);
    });
  }
  table += Row("  data", result,
               [](const PolicyResult& p) { return HumanBytes(p.traffic.ssd_data_bytes); });
  table += Row("  parity", result,
               [](const PolicyResult& p) { return HumanBytes(p.traffic.ssd_parity_bytes); });
  table += Row("  metadata", result,
               [](const PolicyResult& p) { return HumanBytes(p.traffic.ssd_metadata_bytes); });
  table += Row("written to log devices", result, [](const PolicyResult& p) {
    return HumanBytes(p.traffic.log_chunk_bytes + p.traffic.log_header_bytes);
  });
  if (std::any_of(result.policies.begin(), result.policies.end(),
                  [](const PolicyResult& p) { return p.has_flash; })) {
    table += Row("erased blocks", result,
                 [](const PolicyResult& p) { return fmt::format("{}", p.flash.erases); });
    table += Row("runs of garbage collection", result,
                 [](const PolicyResult& p) { return fmt::format("{}", p.flash.gc_runs); });
  }
  if (HasTimes(settings.devices)) {
    table += Row("requests a second", result,
                 [](const PolicyResult& p) { return fmt::format("{:.0f}", Iops(p)); });
    table += Row("latency p50, us", result, [](const PolicyResult& p) {
      return fmt::format("{}", p.latency_us.Percentile(500'000));
    });
    table += Row("latency p99, us", result, [](const PolicyResult& p) {
      return fmt::format("{}", p.latency_us.Percentile(990'000));
    });
  }
  if (const auto alpha = Alpha(result)) {
    table += fmt::format("\nalpha (EPLOG's bytes on SSDs over md's) {:.3f}\n", *alpha);
  }
  return table;
}

}  // namespace eplog::cli
