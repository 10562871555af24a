#include "cli/create/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "eplog/types.h"
#include "host/bounded_call.h"
#include "host/candidate.h"
#include "host/device_content.h"
#include "host/make_file.h"
#include "host/one_writer.h"
#include "host/typed_path.h"
#include "report/status_json.h"
#include "text/units.h"

namespace eplog::cli {
namespace {

tl::unexpected<Error> Usage(std::string what) {
  return Fail(ErrorCode::kInvalidArgument, std::move(what));
}

Status PlanParity(const CreateRequest& request, CreateOptions& options) {
  if (!request.level && !request.parity) {
    return Usage(
        "say how many failures it must survive: --level 5 (one), --level 6 (two) or --parity M");
  }
  if (request.level && request.parity && *request.parity != request.level->parity()) {
    return Usage(fmt::format("--level {} means --parity {}, not {}; give one of the two",
                             request.level->value, request.level->parity(), *request.parity));
  }
  options.parity = request.parity ? *request.parity : request.level->parity();
  if (options.parity < 1 || options.parity > kMaxParity) {
    return Usage(fmt::format("--parity is 1 to {}, not {}", kMaxParity, options.parity));
  }
  return OkStatus();
}

std::string DefaultName(const ArrayFile& file) {
  std::string name = file.Argument().filename().string();
  if (file.Argument() == file.file) {
    name = file.file.stem().string();
  }
  if (name.size() > kMaxArrayNameBytes) {
    size_t keep = kMaxArrayNameBytes;
    while (keep > 0 && (static_cast<unsigned char>(name[keep]) & 0xC0) == 0x80) {
      --keep;  // not inside a UTF-8 sequence
    }
    name.resize(keep);
  }
  return IsPlainText(name) && !name.empty() ? name : "array";
}

Status PlanOptions(const CreateRequest& request, CreatePlan& plan) {
  CreateOptions& options = plan.options;
  EPLOG_TRY(PlanParity(request, options));
  options.chunk_bytes = request.chunk.bytes;
  options.reserve_percent = request.reserve.value;
  options.journal = request.journal;
  if (request.name.size() > kMaxArrayNameBytes) {
    return Usage(fmt::format("--name has {} bytes; {} are allowed", request.name.size(),
                             kMaxArrayNameBytes));
  }
  if (!IsPlainText(request.name)) {
    return Usage("--name must be UTF-8 without control characters");
  }
  options.name = request.name.empty() ? DefaultName(plan.file) : request.name;
  options.force = request.force;
  options.discard = !request.no_discard;
  plan.file.name = options.name;
  plan.sparse = request.sparse;
  return OkStatus();
}

// Members with names; paths for what is there, `make` for what is not.
struct MemberOption {
  const char* option;       // --ssds
  const char* size_option;  // --device-size
  const char* prefix;       // ssd
  uint32_t count;
  const std::vector<std::string>& paths;
  const std::optional<Size>& size;
};

Status ListMembers(const MemberOption& from, const std::filesystem::path& directory,
                   std::vector<PlannedMember>& members) {
  if (from.count == 0 && from.paths.empty()) {
    return Usage(fmt::format(
        "{} is missing: a number makes that many member files, a list DEV,DEV,... takes devices",
        from.option));
  }
  if (from.size && !from.paths.empty()) {
    return Usage(fmt::format(
        "{} is for member files that create makes; {} lists devices, which have their size",
        from.size_option, from.option));
  }
  const uint64_t size = from.size ? from.size->bytes : kDefaultMemberBytes;
  const auto next_name = [&] { return fmt::format("{}{}", from.prefix, members.size()); };
  while (members.size() < from.count) {
    const std::string name = next_name();
    members.push_back({name, directory / name, true, RoundUp(size, kBlockBytes), ""});
  }
  for (const std::string& path : from.paths) {
    auto resolved = ResolveTyped(path);
    EPLOG_TRY(resolved);
    members.push_back({next_name(), std::move(*resolved), false, 0, ""});
  }
  return OkStatus();
}

Status PlanMembers(const CreateRequest& request, CreatePlan& plan) {
  const std::filesystem::path directory = plan.file.file.parent_path();
  if (!request.logs.given() && !request.ssds.paths.empty()) {
    return Usage(
        fmt::format("--logs is missing: --ssds lists devices; list the log devices too, or say "
                    "--logs {} to have files made for them in {}",
                    plan.options.parity, directory.string()));
  }
  const uint32_t logs = request.logs.given() ? request.logs.count : plan.options.parity;
  EPLOG_TRY(ListMembers({"--ssds", "--device-size", "ssd", request.ssds.count, request.ssds.paths,
                         request.device_size},
                        directory, plan.ssds));
  EPLOG_TRY(ListMembers({"--logs", "--log-size", "log", logs, request.logs.paths, request.log_size},
                        directory, plan.logs));
  if (plan.logs.size() != plan.options.parity) {
    return Usage(
        fmt::format("surviving {0} failure{1} takes {0} log device{1}, not {2}: --logs {0}",
                    plan.options.parity, plan.options.parity == 1 ? "" : "s", plan.logs.size()));
  }
  return OkStatus();
}

// `path`, or the nearest of the directories above it that exists.
std::filesystem::path NearestThere(std::filesystem::path path) {
  std::error_code ignored;
  while (!std::filesystem::exists(path, ignored) && path.has_relative_path()) {
    path = path.parent_path();
  }
  return path;
}

using Paths = std::vector<std::filesystem::path>;

// Where the array goes, and an array that is there already: its member files, which --force
// replaces. Blocks as long as the file system does.
Result<Paths> LookAtPlace(const ArrayFile& planned, bool force) {
  const std::filesystem::path& file = planned.file;
  Paths removed;
  std::error_code ignored;
  const std::filesystem::path above = NearestThere(file.parent_path());
  if (!std::filesystem::is_directory(above, ignored)) {
    return Fail(ErrorCode::kExists, fmt::format("{} is not a directory", above.string()));
  }
  const auto old_type = std::filesystem::symlink_status(file, ignored).type();
  if (old_type == std::filesystem::file_type::not_found ||
      old_type == std::filesystem::file_type::none) {
    return removed;
  }
  auto old = LoadArrayFile(file);
  if (old_type != std::filesystem::file_type::regular || !old.ok()) {
    return Fail(
        ErrorCode::kExists,
        fmt::format("{} exists and does not describe an array; move it away", file.string()));
  }
  if (!force) {
    return Fail(
        ErrorCode::kExists,
        fmt::format(
            "{} holds an array already ('{}'); take another directory, or --force to destroy it",
            planned.Argument().string(), old->name));
  }
  if (const auto who = OneWriter::Who(old->uuid)) {
    return Fail(ErrorCode::kBusy,
                fmt::format("the array '{}' that {} holds is in use by {}, by these "
                            "files or others: end that first",
                            old->name, planned.Argument().string(), *who));
  }
  for (const MemberPath& member : old->members) {
    const std::filesystem::path path = old->Locate(member);
    const bool ours =
        path.parent_path() == file.parent_path() &&
        std::filesystem::is_regular_file(std::filesystem::symlink_status(path, ignored));
    if (ours) {
      removed.push_back(path);
    }
  }
  return removed;
}

Status PlanPlace(const CreateRequest& request, CreatePlan& plan) {
  auto removed = Bounded<Paths>(plan.file.file, [planned = plan.file, force = request.force] {
    return LookAtPlace(planned, force);
  });
  EPLOG_TRY(removed);
  EPLOG_TRY(CheckNoLoopOver(*removed));
  plan.removed_files = std::move(*removed);
  return OkStatus();
}

bool Removed(const CreatePlan& plan, const std::filesystem::path& path) {
  return std::find(plan.removed_files.begin(), plan.removed_files.end(), path) !=
         plan.removed_files.end();
}

// A file that create would make: is something in its way?
Status LookAtNewFile(const CreatePlan& plan, PlannedMember& member) {
  const auto device = IsAmongDevices(member.path);
  EPLOG_TRY(device);
  if (*device) {
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format("{} would be a file, and files are not made in /dev", member.path.string()));
  }
  auto there = IdentifyDevice(member.path);
  if (!there.ok()) {
    return there.error().code == ErrorCode::kNotFound ? OkStatus() : Status(Fail(there.error()));
  }
  if (there->block) {
    return Fail(ErrorCode::kExists, fmt::format("{} exists and is a device", member.path.string()));
  }
  if (!plan.options.force) {
    return Fail(ErrorCode::kExists,
                fmt::format("{} exists; take another directory, or --force to overwrite it",
                            member.path.string()));
  }
  EPLOG_TRY(CheckNoLoopOver({member.path}));
  auto probed = ProbeDevice(member.path);
  if (!probed.ok()) {
    return Fail(std::move(probed).error());
  }
  EPLOG_TRY(CheckNotServed(member.path, *probed));
  auto content = FindContent(member.path, *probed);
  if (!content.ok()) {
    return Fail(std::move(content).error());
  }
  member.there = std::move(*probed);
  member.holds = content->empty() ? "an empty file" : *content;
  return OkStatus();
}

// A device of a list: it must be there, have a size and be empty.
Result<DeviceIdentity> LookAtDevice(const CreatePlan& plan, PlannedMember& member) {
  auto probed = ProbeDevice(member.path);
  if (!probed.ok()) {
    Error error = probed.error();
    error.message = fmt::format("{}: {}", member.name, error.message);
    if (error.code == ErrorCode::kNotFound) {
      error.message += "; to have member files made, give a number instead of a list";
    }
    return Fail(std::move(error));
  }
  if (Removed(plan, member.path)) {
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format("{} belongs to the array that --force would remove", member.path.string()));
  }
  EPLOG_TRY(CheckNoLoopOver({member.path}));
  member.size_bytes = RoundDown(probed->size_bytes, kBlockBytes);
  if (member.size_bytes == 0) {
    return Usage(fmt::format("{} is empty; give it a size first: truncate -s 1G {}",
                             member.path.string(), member.path.string()));
  }
  EPLOG_TRY(CheckNotServed(member.path, *probed));
  auto content = FindContent(member.path, *probed);
  if (!content.ok()) {
    return Fail(std::move(content).error());
  }
  if (!content->empty() && !plan.options.force) {
    return Fail(ErrorCode::kExists,
                fmt::format("{} holds {}; --force overwrites it", member.path.string(), *content));
  }
  member.holds = *content;
  member.there = *probed;
  return probed->identity;
}

Status LookAtMembers(CreatePlan& plan) {
  std::vector<std::pair<DeviceIdentity, const PlannedMember*>> seen;
  for (auto* members : {&plan.ssds, &plan.logs}) {
    for (PlannedMember& member : *members) {
      if (member.make) {
        EPLOG_TRY(LookAtNewFile(plan, member));
        continue;
      }
      auto identity = LookAtDevice(plan, member);
      if (!identity.ok()) {
        return Fail(std::move(identity).error());
      }
      for (const auto& [other, other_member] : seen) {
        if (other == *identity) {
          return Usage(fmt::format("{} ({}) and {} ({}) are the same device", other_member->name,
                                   other_member->path.string(), member.name, member.path.string()));
        }
      }
      seen.emplace_back(*identity, &member);
    }
  }
  return OkStatus();
}

uint64_t SmallestBytes(const std::vector<PlannedMember>& members) {
  uint64_t smallest = UINT64_MAX;
  for (const PlannedMember& member : members) {
    smallest = std::min(smallest, member.size_bytes);
  }
  return smallest;
}

Status PlanLayout(const CreateRequest& request, CreatePlan& plan) {
  GeometryRequest wanted;
  wanted.n = static_cast<uint32_t>(plan.ssds.size());
  wanted.m = plan.options.parity;
  wanted.chunk_bytes = plan.options.chunk_bytes;
  wanted.reserve_percent = plan.options.reserve_percent;
  wanted.ssd_bytes = SmallestBytes(plan.ssds);
  wanted.log_bytes = SmallestBytes(plan.logs);
  if (wanted.log_bytes < MinLogBytes(wanted.chunk_bytes)) {
    return Usage(fmt::format("{}: a log device of {} is too small; it needs at least {}",
                             plan.logs.front().make && request.log_size ? "--log-size" : "--logs",
                             TypedSize(wanted.log_bytes),
                             TypedSize(MinLogBytes(wanted.chunk_bytes))));
  }
  auto geometry = PlanGeometry(wanted);
  if (!geometry.ok()) {
    return Fail(std::move(geometry).error());
  }
  plan.geometry = *geometry;
  return OkStatus();
}

Status CheckRoom(const CreatePlan& plan) {
  const uint64_t needed = plan.bytes_to_make();
  if (plan.sparse || needed == 0) {
    return OkStatus();
  }
  const std::filesystem::path directory = plan.file.file.parent_path();
  const auto above = Bounded<std::filesystem::path>(
      directory,
      [directory]() -> Result<std::filesystem::path> { return NearestThere(directory); });
  EPLOG_TRY(above);
  auto room = FreeBytes(*above);
  if (!room.ok()) {
    return Fail(std::move(room).error());
  }
  // What goes away makes room too.
  std::set<std::filesystem::path> replaced(plan.removed_files.begin(), plan.removed_files.end());
  for (const auto* members : {&plan.ssds, &plan.logs}) {
    for (const PlannedMember& member : *members) {
      if (member.make) {
        replaced.insert(member.path);
      }
    }
  }
  for (const auto& path : replaced) {
    const auto old = ProbeDevice(path);
    *room += old.ok() ? old->disk_bytes : 0;
  }
  if (*room < needed) {
    return Fail(
        ErrorCode::kNoSpace,
        fmt::format(
            "the member files need {}, but {} has only {} free; give a smaller --device-size and "
            "--log-size, or --sparse",
            HumanBytes(needed), directory.string(), HumanBytes(*room)));
  }
  return OkStatus();
}

void ListInFile(CreatePlan& plan) {
  for (const auto* members : {&plan.ssds, &plan.logs}) {
    for (const PlannedMember& member : *members) {
      plan.file.members.push_back({member.name, PathFor(plan.file, member.path)});
    }
  }
}

}  // namespace

uint64_t CreatePlan::bytes_to_make() const {
  uint64_t total = 0;
  for (const auto* members : {&ssds, &logs}) {
    for (const PlannedMember& member : *members) {
      total += member.make ? member.size_bytes : 0;
    }
  }
  return total;
}

Result<CreatePlan> PlanCreate(const CreateRequest& request) {
  CreatePlan plan;
  auto file = Bounded<std::filesystem::path>(
      request.array,
      [typed = request.array]() -> Result<std::filesystem::path> { return ArrayFilePath(typed); });
  EPLOG_TRY(file);
  plan.file.file = std::move(*file);
  EPLOG_TRY(PlanOptions(request, plan));
  EPLOG_TRY(PlanMembers(request, plan));
  EPLOG_TRY(PlanPlace(request, plan));
  EPLOG_TRY(LookAtMembers(plan));
  EPLOG_TRY(PlanLayout(request, plan));
  EPLOG_TRY(CheckRoom(plan));
  ListInFile(plan);
  return plan;
}

}  // namespace eplog::cli
