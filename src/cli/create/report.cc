// How a plan of `eplog create` reads: as a document, and for a person.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "cli/create/plan.h"
#include "eplog/status.h"
#include "report/status_json.h"
#include "terminal/console.h"
#include "text/units.h"

namespace eplog::cli {
namespace {

void Line(std::string& out, std::string_view label, const std::string& value) {
  fmt::format_to(std::back_inserter(out), "  {:<11}{}\n", label, value);
}

std::string Share(uint64_t part, uint64_t whole) {
  const double percent =
      whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
  return fmt::format("{} ({:.1f}%)", HumanBytes(part), percent);
}

Json MembersToJson(const std::vector<PlannedMember>& members) {
  Json list = Json::array();
  for (const PlannedMember& member : members) {
    Json entry = {{"name", member.name},
                  {"path", member.path.string()},
                  {"size_bytes", member.size_bytes},
                  {"made", member.make}};
    if (!member.holds.empty()) {
      entry["destroys"] = member.holds;
    }
    list.push_back(std::move(entry));
  }
  return list;
}

std::string MembersText(const std::vector<PlannedMember>& members, bool sparse) {
  uint64_t smallest = UINT64_MAX;
  uint64_t largest = 0;
  for (const PlannedMember& member : members) {
    smallest = std::min(smallest, member.size_bytes);
    largest = std::max(largest, member.size_bytes);
  }
  const std::string size = smallest == largest
                               ? HumanBytes(smallest)
                               : fmt::format("{} to {}", HumanBytes(smallest), HumanBytes(largest));
  const char* kind = !members.front().make ? "devices"
                     : sparse              ? "sparse files"
                                           : "files, written out";
  if (members.size() == 1) {
    return fmt::format("{}, {}, {}", members.front().name, size, kind);
  }
  return fmt::format("{} ... {}, {} each, {}", members.front().name, members.back().name, size,
                     kind);
}

}  // namespace

SpaceUse SpaceOf(const CreatePlan& plan) {
  const Geometry& g = plan.geometry;
  SpaceUse use;
  for (const PlannedMember& member : plan.ssds) {
    use.raw_ssd_bytes += member.size_bytes;
  }
  for (const PlannedMember& member : plan.logs) {
    use.raw_log_bytes += member.size_bytes;
  }
  use.capacity_bytes = g.capacity_bytes();
  use.parity_bytes = uint64_t{g.stripes} * g.m * g.chunk_bytes;
  use.reserve_bytes = uint64_t{g.reserve_slots()} * g.n * g.chunk_bytes;
  use.metadata_bytes = g.slots_offset_bytes * g.n;
  use.unused_bytes = use.raw_ssd_bytes - g.n * g.ssd_bytes();
  return use;
}

std::string ShapeText(const Geometry& g) {
  return fmt::format("{} of {} SSDs ({} data + {} parity), {} log device{}", LevelName(g.m), g.n,
                     g.k(), g.m, g.m, g.m == 1 ? "" : "s");
}

Json PlanToJson(const CreatePlan& plan) {
  const Geometry& g = plan.geometry;
  const SpaceUse use = SpaceOf(plan);
  Json json;
  json["array"] = {{"uuid", plan.file.uuid.empty() ? Json(nullptr) : Json(plan.file.uuid)},
                   {"name", plan.options.name},
                   {"file", plan.file.file.string()},
                   {"level", LevelOfParity(g.m)},
                   {"data_chunks", g.k()},
                   {"parity_chunks", g.m},
                   {"chunk_bytes", g.chunk_bytes},
                   {"journal", JournalModeName(plan.options.journal)},
                   {"capacity_bytes", g.capacity_bytes()}};
  json["ssds"] = MembersToJson(plan.ssds);
  json["logs"] = MembersToJson(plan.logs);
  json["geometry"] = {{"stripes", g.stripes},
                      {"slots", g.slots},
                      {"reserve_slots", g.reserve_slots()},
                      {"extent_bytes", g.extent_data_bytes()},
                      {"metadata_bytes", g.metadata_blocks * kBlockBytes},
                      {"ring_bytes", g.ring_blocks * kBlockBytes},
                      {"log_ring_bytes", g.log_blocks * kBlockBytes}};
  json["space"] = {{"raw_ssd_bytes", use.raw_ssd_bytes},
                   {"raw_log_bytes", use.raw_log_bytes},
                   {"capacity_bytes", use.capacity_bytes},
                   {"parity_bytes", use.parity_bytes},
                   {"reserve_bytes", use.reserve_bytes},
                   {"metadata_bytes", use.metadata_bytes},
                   {"unused_bytes", use.unused_bytes},
                   {"written_bytes", plan.sparse ? 0 : plan.bytes_to_make()}};
  json["survives"] = {{"failures", g.m}};
  Json removed = Json::array();
  for (const auto& path : plan.removed_files) {
    removed.push_back(path.string());
  }
  json["removes"] = std::move(removed);
  return json;
}

std::string PlanText(const CreatePlan& plan) {
  const SpaceUse use = SpaceOf(plan);
  std::string out;
  Line(out, "array", fmt::format("'{}' at {}", plan.options.name, plan.file.Argument().string()));
  Line(out, "shape", ShapeText(plan.geometry));
  Line(out, "survives",
       fmt::format("any {} of the {} devices failing", plan.geometry.m, plan.geometry.devices()));
  Line(out, "SSDs", MembersText(plan.ssds, plan.sparse));
  Line(out, "logs", MembersText(plan.logs, plan.sparse));
  Line(out, "chunk", TypedSize(plan.geometry.chunk_bytes));
  Line(out, "journal", JournalModeName(plan.options.journal));
  Line(out, "capacity",
       Share(use.capacity_bytes, use.raw_ssd_bytes) + " of " + HumanBytes(use.raw_ssd_bytes));
  Line(out, "parity", Share(use.parity_bytes, use.raw_ssd_bytes));
  Line(out, "reserve", Share(use.reserve_bytes, use.raw_ssd_bytes));
  Line(out, "metadata", Share(use.metadata_bytes, use.raw_ssd_bytes));
  Line(out, "unused", Share(use.unused_bytes, use.raw_ssd_bytes));
  for (const auto* members : {&plan.ssds, &plan.logs}) {
    for (const PlannedMember& member : *members) {
      if (!member.holds.empty()) {
        Line(out, "destroys", fmt::format("{}: {}", member.path.string(), member.holds));
      } else if (!member.make) {
        Line(out, "empty", member.path.string());
      }
    }
  }
  for (const auto& path : plan.removed_files) {
    Line(out, "removes", path.string());
  }
  out.pop_back();
  return out;
}

}  // namespace eplog::cli
