#include "cli/assemble/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

#include "eplog/status.h"
#include "host/member_name.h"
#include "report/status_json.h"
#include "terminal/console.h"
#include "text/units.h"

namespace eplog::cli {
namespace {

constexpr char kForeign[] = "foreign";

const char* Opens(const ExaminedArray& array) {
  return !array.opens()           ? "no"
         : !array.missing.empty() ? "degraded"
         : !array.joining.empty() ? "rebuilding"
                                  : "whole";
}

Json ArrayToJson(const ExaminedArray& array, bool chosen) {
  return {{"uuid", array.uuid},
          {"name", array.name},
          {"level", LevelOfParity(array.parity_chunks)},
          {"data_chunks", array.data_chunks},
          {"parity_chunks", array.parity_chunks},
          {"chunk_bytes", array.chunk_bytes},
          {"journal", JournalModeName(array.journal)},
          {"capacity_bytes", array.capacity_bytes},
          {"epoch", array.epoch},
          {"opens", Opens(array)},
          {"why_not", OrNull(array.why_not)},
          {"missing", array.missing},
          {"rebuilding", array.joining},
          {"further_losses_survived", array.further_losses_survived},
          {"chosen", chosen}};
}

Json DeviceToJson(const AssembleFindings& findings, const ExaminedDevice& device) {
  const bool of_array = device.array != kNoArray;
  const bool foreign = of_array && findings.chosen != kNoArray && device.array != findings.chosen;
  const std::string path = device.device->name();
  Json json = {{"path", path},
               {"verdict", foreign ? kForeign : MemberVerdictName(device.verdict)},
               {"member", OrNull(device.member)},
               {"array", of_array ? Json(findings.found.arrays[device.array].uuid) : Json()},
               {"epoch", of_array ? Json(device.epoch) : Json()},
               {"superblock_copies", device.whole_copies},
               {"why", foreign ? Json(fmt::format("it is of the array '{}'",
                                                  findings.found.arrays[device.array].name))
                               : OrNull(device.why)}};
  if (findings.in_use.contains(path)) {
    json["in_use"] = true;
  }
  return json;
}

// The chosen array first, then the others, then what belongs to none; by member, then by path.
bool Before(const AssembleFindings& findings, const ExaminedDevice& a, const ExaminedDevice& b) {
  const auto rank = [&](const ExaminedDevice& device) {
    return device.array == findings.chosen ? 0 : device.array == kNoArray ? 2 : 1;
  };
  if (std::pair(rank(a), a.array) != std::pair(rank(b), b.array)) {
    return std::pair(rank(a), a.array) < std::pair(rank(b), b.array);
  }
  return a.member != b.member ? MemberBefore(a.member, b.member)
                              : a.device->name() < b.device->name();
}

std::string Joined(const Json& names) {
  std::string out;
  for (const Json& name : names) {
    out += (out.empty() ? "" : ", ") + name.get<std::string>();
  }
  return out;
}

std::string OpensText(const Json& array) {
  const std::string opens = array.value("opens", "");
  const auto further = array.value("further_losses_survived", uint64_t{0});
  const std::string survives =
      fmt::format("survives {} more loss{}", further, further == 1 ? "" : "es");
  if (opens == "whole") {
    return fmt::format("{}, {}", Paint(Colour::kGreen, "whole"), survives);
  }
  if (opens == "no") {
    return fmt::format("{}: {}", Paint(Colour::kRed, "cannot be opened"),
                       array.value("why_not", ""));
  }
  std::string text = Paint(Colour::kYellow, opens == "degraded" ? "degraded" : "being rebuilt");
  if (!array["missing"].empty()) {
    text += fmt::format(", without {}", Joined(array["missing"]));
  }
  if (!array["rebuilding"].empty()) {
    text += fmt::format(", not everything on {} yet", Joined(array["rebuilding"]));
  }
  return fmt::format("{}; {}", text, survives);
}

std::string Words(const std::string& verdict) {
  return verdict == "no_member" ? "no member" : verdict;
}

std::string DeviceLine(const Json& device, size_t width) {
  const std::string member = device["member"].is_string() ? device.value("member", "") : "-";
  const std::string why = device["why"].is_string() ? ": " + device.value("why", "") : "";
  return fmt::format("\n  {:<6} {:<10} {:<{}}{}", member, Words(device.value("verdict", "")),
                     device.value("path", "") + (device.contains("in_use") ? " (in use)" : ""),
                     why.empty() ? 0 : width, why);
}

std::string ArrayLines(const Json& array) {
  const auto data = array.value("data_chunks", 0U);
  const auto parity = array.value("parity_chunks", 0U);
  return fmt::format(
      "array '{}' ({}): {} of {} SSDs ({} data + {} parity), {} log device{}, "
      "chunk {}, capacity {}\n  {}",
      array.value("name", ""), array.value("uuid", ""), LevelName(parity), data + parity, data,
      parity, parity, parity == 1 ? "" : "s", TypedSize(array.value("chunk_bytes", uint64_t{0})),
      HumanBytes(array.value("capacity_bytes", uint64_t{0})), OpensText(array));
}

}  // namespace

Result<size_t> ChooseArray(const Examination& found, const std::string& prefix) {
  std::vector<size_t> fit;
  for (size_t i = 0; i < found.arrays.size(); ++i) {
    if (found.arrays[i].uuid.starts_with(prefix)) {
      fit.push_back(i);
    }
  }
  if (!prefix.empty() && fit.size() != 1) {
    return Fail(fit.empty() ? ErrorCode::kNotFound : ErrorCode::kInvalidArgument,
                fmt::format("--uuid {} fits {} of the arrays found", prefix,
                            fit.empty() ? "none" : "several"));
  }
  if (fit.size() > 1) {
    std::erase_if(fit, [&](size_t i) { return !found.arrays[i].opens(); });
  }
  return fit.size() == 1 ? fit.front() : kNoArray;
}

Json FindingsToJson(const AssembleFindings& findings) {
  Json arrays = Json::array();
  for (const bool chosen : {true, false}) {
    for (size_t i = 0; i < findings.found.arrays.size(); ++i) {
      if ((i == findings.chosen) == chosen) {
        arrays.push_back(ArrayToJson(findings.found.arrays[i], chosen));
      }
    }
  }
  std::vector<ExaminedDevice> sorted = findings.found.devices;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [&](const auto& a, const auto& b) { return Before(findings, a, b); });
  Json devices = Json::array();
  for (const ExaminedDevice& device : sorted) {
    devices.push_back(DeviceToJson(findings, device));
  }
  for (const AssembleFindings::Unopened& device : findings.unopened) {
    devices.push_back({{"path", device.path},
                       {"verdict", MemberVerdictName(MemberVerdict::kUnreadable)},
                       {"member", nullptr},
                       {"array", nullptr},
                       {"epoch", nullptr},
                       {"superblock_copies", 0},
                       {"why", device.why}});
  }
  return {{"arrays", arrays}, {"devices", devices}};
}

std::string FindingsText(const Json& document) {
  size_t width = 0;
  for (const Json& device : document["devices"]) {
    width = std::max(width, device.value("path", "").size());
  }
  std::string text;
  for (const Json& array : document["arrays"]) {
    text += (text.empty() ? "" : "\n") + ArrayLines(array);
    for (const Json& device : document["devices"]) {
      text += device["array"] == array["uuid"] ? DeviceLine(device, width) : "";
    }
  }
  std::string others;
  for (const Json& device : document["devices"]) {
    others += device["array"].is_null() ? DeviceLine(device, width) : "";
  }
  if (!others.empty()) {
    text += (text.empty() ? "" : "\n") + ("of no array" + others);
  }
  return text;
}

int FindingsStatus(const Json& document) {
  const Json& arrays = document["arrays"];
  const auto opens = [](const Json& array) { return array["opens"] != "no"; };
  const bool chosen = !arrays.empty() && arrays.front()["chosen"] == true;
  if (chosen ? !opens(arrays.front()) : std::none_of(arrays.begin(), arrays.end(), opens)) {
    return kFailed;
  }
  const auto whole = [](const Json& array) { return array["opens"] == "whole"; };
  const bool all_whole =
      chosen ? whole(arrays.front()) : std::all_of(arrays.begin(), arrays.end(), whole);
  const bool astray =
      std::any_of(document["devices"].begin(), document["devices"].end(), [](const Json& device) {
        return device["verdict"] == "stale" || device["verdict"] == kForeign;
      });
  return all_whole && !astray ? kDone : kDoneWithFindings;
}

Result<ArrayFile> FileOf(const AssembleFindings& findings, const std::filesystem::path& file) {
  const ExaminedArray& array = findings.found.arrays[findings.chosen];
  ArrayFile out;
  out.file = file;
  out.uuid = array.uuid;
  out.name = array.name.empty() ? "array" : array.name;
  for (const ExaminedDevice& device : findings.found.devices) {
    const std::string path = device.device->name();
    if (device.array == findings.chosen && device.verdict == MemberVerdict::kDoubled) {
      return Fail(ErrorCode::kExists, fmt::format("nothing written: {} says that it is {}, and {}",
                                                  path, device.member, device.why));
    }
    if (device.array == findings.chosen && device.verdict == MemberVerdict::kPart) {
      if (!IsPlainText(path)) {
        return Fail(ErrorCode::kUnsupported,
                    fmt::format("nothing written: the path of {} cannot be put into a file: {}",
                                device.member, path));
      }
      out.members.push_back({device.member, PathFor(out, path)});
    }
  }
  std::sort(out.members.begin(), out.members.end(),
            [](const auto& a, const auto& b) { return MemberBefore(a.name, b.name); });
  return out;
}

}  // namespace eplog::cli
