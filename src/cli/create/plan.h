// What `eplog create` will do, worked out and checked in full before anything is changed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cli/verb/option_types.h"
#include "eplog/options.h"
#include "eplog/result.h"
#include "host/array_file.h"
#include "host/device_content.h"
#include "layout/geometry.h"
#include "report/json.h"

namespace eplog::cli {

// The command line.
struct CreateRequest {
  std::string array;
  std::string name;  // empty: not given
  std::optional<Level> level;
  std::optional<uint32_t> parity;
  MemberList<kMaxSsds> ssds;
  MemberList<kMaxParity> logs;
  std::optional<Size> device_size;
  std::optional<Size> log_size;
  ChunkSize chunk;
  Percent<1, 50> reserve = {.value = 10};
  JournalMode journal = JournalMode::kFull;
  bool sparse = false;
  bool force = false;
  bool no_discard = false;
};

inline constexpr uint64_t kDefaultMemberBytes = uint64_t{1} << 30;

struct PlannedMember {
  std::string name;            // ssd0 ..., log0 ...
  std::filesystem::path path;  // absolute
  bool make = false;           // a file to be made; else it is there
  uint64_t size_bytes = 0;
  std::string holds;  // not empty: what on it is destroyed
  // What was at the path when it was looked at: nothing else is overwritten.
  std::optional<ProbedDevice> there = {};
};

struct CreatePlan {
  ArrayFile file;  // without UUID
  std::vector<PlannedMember> ssds;
  std::vector<PlannedMember> logs;
  Geometry geometry;
  CreateOptions options;  // without entropy
  bool sparse = false;
  std::vector<std::filesystem::path> removed_files;  // members of the array that --force replaces

  [[nodiscard]] uint64_t bytes_to_make() const;
};

// Every check that can be made without a write: usage, counts, sizes, devices given twice, data on
// devices, an array in the directory, room on the disk. kInvalidArgument for what the command line
// shows by itself to be wrong.
Result<CreatePlan> PlanCreate(const CreateRequest& request);

// Makes the files and writes the array and its array.toml, or, in a dry run, only sees that it
// could. What was made goes away again if that fails. kBusy: somebody uses a device, or another has
// taken the place of one that the plan was made for.
Status CarryOut(CreatePlan& plan, bool dry_run);

// Where the bytes go.
struct SpaceUse {
  uint64_t raw_ssd_bytes = 0;
  uint64_t raw_log_bytes = 0;
  uint64_t capacity_bytes = 0;
  uint64_t parity_bytes = 0;
  uint64_t reserve_bytes = 0;
  uint64_t metadata_bytes = 0;
  uint64_t unused_bytes =
      0;  // what larger SSDs have more than the smallest, and what rounding leaves
};
SpaceUse SpaceOf(const CreatePlan& plan);

// The plan as a document and for a person: the same facts.
Json PlanToJson(const CreatePlan& plan);
std::string PlanText(const CreatePlan& plan);
// "RAID-6 of 8 SSDs (6 data + 2 parity), 2 log devices"
std::string ShapeText(const Geometry& geometry);

}  // namespace eplog::cli
