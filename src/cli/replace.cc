// eplog replace: another device takes the place of one that has failed or is missing.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "cli/dry_run.h"
#include "cli/verb/verbs.h"
#include "device/file_device.h"
#include "host/array_file.h"
#include "host/ask_or_open.h"
#include "host/candidate.h"
#include "host/change_turn.h"
#include "host/device_content.h"
#include "host/make_file.h"
#include "host/member_name.h"
#include "host/members.h"
#include "host/session.h"
#include "host/spares.h"
#include "host/typed_path.h"
#include "report/plan_json.h"
#include "report/status_json.h"
#include "terminal/console.h"

namespace eplog::cli {
namespace {

constexpr char kReplaceVerb[] = "replace";

struct ReplaceCommand {
  std::string array;
  std::string device;
  std::string path;
  bool force = false;
  bool make_file = false;
  bool dry_run = false;
  bool json = false;
};

// What the place needs, from the superblock of any member.
Result<uint64_t> SizeNeeded(const ArrayFile& file, uint32_t index) {
  const auto geometry = GeometryOf(file);
  EPLOG_TRY(geometry);
  return index >= geometry->n ? geometry->log_bytes() : geometry->ssd_bytes();
}

struct NewDevice {
  ProbedDevice probed;
  std::string holds;  // empty: nothing
};

// Of this array by its superblock: which member it is, or was; empty if it is none.
std::string MemberOn(const ArrayFile& file, const std::filesystem::path& path,
                     const ProbedDevice& probed) {
  const auto superblock = ReadSuperblock(path, probed);
  const bool member = superblock.ok() && !superblock->is_spare() &&
                      UuidToString(superblock->array_uuid) == file.uuid;
  return member ? superblock->DeviceName() : "";
}

// It must be nobody's, and empty unless that does not matter. What is at the path counts: another
// device may have been there.
Result<NewDevice> CheckNew(const ArrayFile& file, uint32_t index, const std::filesystem::path& path,
                           bool force) {
  const auto probed = ProbeDevice(path);
  EPLOG_TRY(probed);
  EPLOG_TRY(CheckCandidate(file, path, probed->identity));
  NewDevice device;
  device.probed = *probed;
  if (IdentifySpare(file.uuid, path, *probed).kind == SpareKind::kSpare) {
    return device;
  }
  const std::string listed = file.MemberAt(path);
  std::string own = MemberOn(file, path, *probed);
  own = own.empty() && listed != MemberName(file, index) ? listed : own;
  if (!own.empty() && !force) {
    return Fail(ErrorCode::kExists,
                fmt::format("{} is {} of this array; if the array has lost it, --force takes "
                            "it as an empty device",
                            path.string(), own));
  }
  EPLOG_TRY(CheckNotServed(path, *probed, file.uuid));
  auto content = FindContent(path, *probed);
  EPLOG_TRY(content);
  // Nobody is told to make larger what somebody uses; whose another member of this array is, that
  // says itself.
  if (const auto needed = SizeNeeded(file, index);
      own.empty() && needed.ok() && probed->size_bytes < *needed) {
    return Fail(ErrorCode::kInvalidArgument,
                content->empty()
                    ? TooSmallFor(MemberName(file, index), *needed, path.string(), *probed)
                    : fmt::format("{} holds {}, and is too small for {}: it has {} bytes and {} "
                                  "are needed; give another one",
                                  path.string(), *content, MemberName(file, index),
                                  probed->size_bytes, *needed));
  }
  device.holds = std::move(*content);
  if (!device.holds.empty() && !force) {
    return Fail(ErrorCode::kExists,
                fmt::format("{} holds {}; --force overwrites it", path.string(), device.holds));
  }
  return device;
}

std::function<void(ArrayFile&)> Move(const std::string& name, const std::filesystem::path& path) {
  return [name, path](ArrayFile& now) { now.MoveMember(name, path); };
}

// While the devices are locked: whoever opens the array next is to find the new one. What could not
// be written, as the serving process answers it.
Json WriteDown(Session& session, const std::function<void(ArrayFile&)>& move) {
  const auto written = ChangeInTime(session.file(), move, session.change_turn());
  session.Relist(move);
  return {{"unwritten", written.ok() ? std::string() : written.error().ToString()}};
}

Status CheckWritten(const Json& answer, const std::string& what) {
  const std::string why = answer.is_object() ? answer.value("unwritten", "")
                                             : "the process that serves it is of an older version";
  return why.empty() ? OkStatus()
                     : Status(Fail(ErrorCode::kIo,
                                   fmt::format("{} now, but array.toml does not say so yet: {}; as "
                                               "soon as it can be written, write that there",
                                               what, why)));
}

Status Replace(const ReplaceCommand& command, const ArrayFile& file, uint32_t index,
               const std::filesystem::path& path) {
  const auto there = IsThere(path);
  EPLOG_TRY(there);
  ProbedDevice looked_at;  // nothing else is to be overwritten
  MadeFile made(path);
  if (*there) {
    const auto checked = CheckNew(file, index, path, command.force);
    EPLOG_TRY(checked);
    looked_at = checked->probed;
  } else {
    const auto bytes = SizeNeeded(file, index);
    EPLOG_TRY(bytes);
    EPLOG_TRY(made.Make(kReplaceVerb, file, *bytes, command.make_file));
    looked_at = made.probed();
  }
  const std::string name = MemberName(file, index);
  const auto offline = [&](Session& session) -> Result<Json> {
    auto device = session.Run(session.OpenDevice(path.string(), looked_at.identity));
    EPLOG_TRY(device);
    const Status replaced = session.Run(session.array().ReplaceDevice(index, **device));
    session.CloseDevice(**device);
    EPLOG_TRY(replaced);
    made.Keep();
    return WriteDown(session, Move(name, path));
  };
  const Json request = {{"verb", kReplaceVerb},
                        {"device", index},
                        {"path", path.string()},
                        {"identity", IdentityToJson(looked_at.identity)}};
  const auto done = AskOrOpen(kReplaceVerb, file, request, offline);
  EPLOG_TRY(done);
  made.Keep();
  return CheckWritten(*done, fmt::format("{} is {} of '{}'", path.string(), name, file.name));
}

// ---- the dry run

// Nobody else uses it: it could be opened as a member. Let go again at once.
Status CheckFree(const std::filesystem::path& path) {
  auto loop = IoUringLoop::Create();
  if (!loop.ok()) {
    return Fail(std::move(loop).error());
  }
  EPLOG_TRY(OpenFile(**loop, path.string(), MemberOptions{}));
  return OkStatus();
}

// A file that is not there yet can be made.
Status CheckRoom(const std::filesystem::path& path, uint64_t bytes) {
  const auto room = FreeBytes(path.parent_path());
  EPLOG_TRY(room);
  if (*room < bytes) {
    return Fail(ErrorCode::kNoSpace,
                fmt::format("{} needs {}, but its file system has only {} free", path.string(),
                            HumanBytes(bytes), HumanBytes(*room)));
  }
  return OkStatus();
}

Result<Json> Plan(const ReplaceCommand& command, const ArrayFile& file, uint32_t index,
                  const std::filesystem::path& path) {
  NewDevice device;
  const auto there = IsThere(path);
  EPLOG_TRY(there);
  if (!*there) {
    const auto bytes = SizeNeeded(file, index);
    EPLOG_TRY(bytes);
    EPLOG_TRY(MadeFile(path).MayMake(file, command.make_file));
    EPLOG_TRY(CheckRoom(path, *bytes));
    device.probed.size_bytes = *bytes;
  } else {
    auto checked = CheckNew(file, index, path, command.force);
    EPLOG_TRY(checked);
    device = std::move(*checked);
    EPLOG_TRY(CheckFree(path));
  }
  auto plan = PlanChange(kReplaceVerb, file,
                         {{"change", kReplaceVerb},
                          {"device", index},
                          {"path", path.string()},
                          {"identity", IdentityToJson(device.probed.identity)},
                          {"size_bytes", device.probed.size_bytes}});
  EPLOG_TRY(plan);
  Json& replacement = (*plan)["replacement"];
  replacement["made"] = !*there;
  replacement["destroys"] = device.holds.empty() ? Json() : Json(device.holds);
  return plan;
}

std::string ReplacePlanText(const ArrayFile& file, const Json& plan) {
  const Json& replacement = plan.at("replacement");
  const std::string path = replacement.value("path", "");
  const std::string size = HumanBytes(replacement.value("size_bytes", uint64_t{0}));
  std::vector<PlanNote> notes;
  if (replacement.value("made", false)) {
    notes.push_back({"makes", fmt::format("{}, a file of {}", path, size)});
  } else if (replacement["destroys"].is_string()) {
    notes.push_back(
        {"destroys", fmt::format("{}: {}", path, replacement["destroys"].get<std::string>())});
  }
  notes.push_back({"rebuilds", fmt::format("{} to be decoded from the others and written to it",
                                           HumanBytes(plan.value("rebuild_bytes", uint64_t{0})))});
  if (const auto commit = plan.value("commit_chunks", uint64_t{0}); commit != 0) {
    notes.push_back({"commit", fmt::format("{} chunks before that", commit)});
  }
  notes.push_back({"meanwhile", "no more losses are survived than now"});
  return ChangePlanText(fmt::format("would put {} in the place of {} of '{}'", path,
                                    plan.value("device", ""), file.name),
                        plan, notes);
}

Result<int> DryRun(const ReplaceCommand& command, const ArrayFile& file, uint32_t index,
                   const std::filesystem::path& path) {
  const auto plan = Plan(command, file, index, path);
  EPLOG_TRY(plan);
  if (command.json) {
    PrintJson(*plan);
  } else {
    Print(ReplacePlanText(file, *plan));
  }
  return kDone;
}

Result<int> RunReplace(const ReplaceCommand& command) {
  auto file = FindArray(kReplaceVerb, command.array);
  EPLOG_TRY(file);
  const auto index = MemberIndex(*file, command.device);
  EPLOG_TRY(index);
  const auto resolved = ResolveTyped(command.path);
  EPLOG_TRY(resolved);
  const std::filesystem::path& path = *resolved;
  EPLOG_TRY(CheckChangeable(*file, Move(MemberName(*file, *index), path)));
  if (command.dry_run) {
    return DryRun(command, *file, *index, path);
  }
  const auto server = FindServer(*file);
  EPLOG_TRY(server);
  const Status replaced = Replace(command, *file, *index, path);
  EPLOG_TRY(replaced);
  Print(fmt::format("{} is {} of '{}' now and is being rebuilt{}\nnext: eplog status {}",
                    command.path, MemberName(*file, *index), file->name,
                    *server ? "" : " whenever the array is mounted", ShellWord(command.array)));
  return kDone;
}

}  // namespace

void AddReplace(Parser app, Run& run) {
  auto command = std::make_shared<ReplaceCommand>();
  Parser verb =
      app.AddVerb(kReplaceVerb, "put a new device in the place of a failed or missing one");
  verb.Add("ARRAY", command->array, kArrayHelp).Required();
  verb.Add("DEVICE", command->device, kDeviceHelp).Required();
  verb.Add("NEW", command->path,
           "the new device; a file is made if nothing is there, in the array's directory")
      .Required();
  verb.AddFlag("--force", command->force, "overwrite what NEW holds");
  verb.AddFlag("--make-file", command->make_file, kMakeFileHelp);
  AddDryRun(verb, command->dry_run, command->json);
  verb.Footer(
      "Examples:\n  eplog replace ./array ssd3 /dev/nvme4n1\n"
      "  eplog replace ./array ssd3 /dev/nvme4n1 --dry-run    what is to be rebuilt, and what it "
      "holds now");
  verb.OnChosen([command, &run] { run = [command] { return RunReplace(*command); }; });
}

}  // namespace eplog::cli
