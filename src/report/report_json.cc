#include "report/report_json.h"

namespace eplog {
namespace {

const char* OutcomeName(Finding::Outcome outcome) {
  switch (outcome) {
    case Finding::Outcome::kLeft:
      return "left";
    case Finding::Outcome::kHealed:
      return "healed";
    case Finding::Outcome::kLost:
      return "lost";
  }
  return "unknown";
}

// The members that are not whole: lost, also by what was found just now, or being rebuilt.
Json NotWhole(const ArrayStatus& status) {
  Json devices = Json::array();
  for (const DeviceStatus& device : status.devices) {
    if (device.role != DeviceRole::kSpare && device.state != DeviceState::kOk) {
      devices.push_back({{"name", device.name},
                         {"state", DeviceStateName(device.state)},
                         {"failed_because", OrNull(device.failed_because)}});
    }
  }
  return devices;
}

}  // namespace

Json ReportToJson(const CheckReport& report, const ArrayStatus& status) {
  Json problems = Json::array();
  Json findings = Json::array();
  for (const Finding& finding : report.findings) {
    problems.push_back(finding.Text());
    findings.push_back(
        {{"device", OrNull(finding.device)},
         {"volume", OrNull(finding.volume)},
         {"offset_bytes", finding.volume.empty() ? Json() : Json(finding.offset_bytes)},
         {"what", finding.what},
         {"outcome", OutcomeName(finding.outcome)}});
  }
  return {{"first_stripe", report.first_stripe},
          {"rows_checked", report.rows_checked},
          {"chunks_checked", report.chunks_checked},
          {"parity_checked", report.parity_checked},
          {"log_stripes_checked", report.log_stripes_checked},
          {"metadata_blocks_checked", report.metadata_blocks_checked},
          {"problems_found", report.problems_found},
          {"problems_found_before", report.problems_found_before},
          {"healed", report.healed},
          {"lost", report.lost},
          {"degraded", status.state != ArrayState::kClean && status.state != ArrayState::kActive},
          {"devices_not_ok", NotWhole(status)},
          {"problems", problems},
          {"findings", findings}};
}

Json LossToJson(const LossReport& report) {
  Json ranges = Json::array();
  for (const LostRange& range : report.ranges) {
    ranges.push_back({{"volume", range.volume},
                      {"offset_bytes", range.offset_bytes},
                      {"length_bytes", range.length_bytes}});
  }
  return {{"lost_bytes", report.lost_bytes},
          {"lost", std::move(ranges)},
          {"log_damage", OrNull(report.log_damage)},
          {"unsure", OrNull(report.unsure)},
          {"left_behind", report.left_behind}};
}

}  // namespace eplog
