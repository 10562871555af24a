// eplog volume create|list|resize|delete: through the process that serves the array, else on the
// array itself.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "cli/dry_run.h"
#include "cli/verb/verbs.h"
#include "host/array_file.h"
#include "host/ask_or_open.h"
#include "host/session.h"
#include "report/status_json.h"
#include "terminal/console.h"
#include "text/suggest.h"
#include "text/units.h"

namespace eplog::cli {
namespace {

constexpr char kVolumeVerb[] = "volume";

struct VolumeCommand {
  std::string array;
  std::string name;
  std::string size;
  bool json = false;
  bool dry_run = false;
};

Json ListToJson(const std::vector<VolumeInfo>& volumes) {
  Json list = Json::array();
  for (const VolumeInfo& volume : volumes) {
    list.push_back({{"name", volume.name},
                    {"id", volume.id.value},
                    {"size_bytes", volume.size_bytes},
                    {"allocated_bytes", volume.allocated_bytes}});
  }
  return list;
}

// The volumes as the serving process or a read-only opening tells them.
Result<Json> ListVolumes(std::string_view verb, const ArrayFile& file) {
  return AskOrLook(verb, file, {{"verb", "volume-list"}}, [](Session& session) -> Result<Json> {
    return ListToJson(session.array().Volumes());
  });
}

// A volume by name, or the error that names the nearest.
Result<Json> PickVolume(const Json& list, const std::string& name) {
  std::vector<std::string> names;
  for (const Json& volume : list) {
    names.push_back(volume.value("name", ""));
    if (names.back() == name) {
      return volume;
    }
  }
  const std::string nearest = NearestName(name, names);
  std::string mend = names.empty() ? "the array has no volumes" : "eplog volume list shows them";
  if (!nearest.empty()) {
    mend = fmt::format("did you mean '{}'?", nearest);
  }
  return Fail(ErrorCode::kNotFound, fmt::format("there is no volume '{}'; {}", name, mend));
}

Result<VolumeId> FindVolume(Session& session, const std::string& name) {
  const auto volume = session.array().FindVolume(name);
  if (!volume) {
    return Fail(ErrorCode::kNotFound, fmt::format("there is no volume '{}'", name));
  }
  return volume->id;
}

// Runs `body` with the array's file.
template <typename Body>
Result<int> WithArray(std::string_view verb, const std::string& argument, const Body& body) {
  auto file = FindArray(verb, argument);
  EPLOG_TRY(file);
  EPLOG_TRY(body(*file));
  return kDone;
}

// The rules of eplog/array.h. Checked here too, since opening an array for writing leaves its mark
// on the devices: what is refused changes nothing.
Status CheckName(const std::string& name) {
  if (name.empty() || name.size() > kMaxVolumeNameBytes || name == "." || name == ".." ||
      name.find('/') != std::string::npos || !IsPlainText(name)) {
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "a volume's name has 1 to {} bytes of UTF-8 without '/' and control characters, and is "
            "not '.' or '..'",
            kMaxVolumeNameBytes));
  }
  if (name.starts_with(kReservedVolumePrefix)) {
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format("names that begin with {} are reserved; take another", kReservedVolumePrefix));
  }
  return OkStatus();
}

Result<uint64_t> VolumeSize(const std::string& text) {
  auto size = ParseSize(text);
  if (size.ok() && *size > kMaxVolumeBytes) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("a volume has at most {}, not {}", TypedSize(kMaxVolumeBytes), text));
  }
  return size;
}

// Is the name there, or free, as the command needs it?
Status CheckExists(std::string_view verb, const VolumeCommand& command, const ArrayFile& file,
                   bool wanted) {
  const auto list = ListVolumes(verb, file);
  EPLOG_TRY(list);
  const auto picked = PickVolume(*list, command.name);
  if (wanted && !picked.ok()) {
    return Fail(picked.error());
  }
  if (!wanted && picked.ok()) {
    return Fail(ErrorCode::kExists,
                fmt::format("a volume named '{}' exists already", command.name));
  }
  return OkStatus();
}

Status Create(const VolumeCommand& command, const ArrayFile& file) {
  const auto size = VolumeSize(command.size);
  EPLOG_TRY(size);
  EPLOG_TRY(CheckName(command.name));
  EPLOG_TRY(CheckExists("volume create", command, file, false));
  const Json request = {{"verb", "volume-create"}, {"name", command.name}, {"size_bytes", *size}};
  const auto offline = [&](Session& session) -> Result<Json> {
    const auto id = session.Run(session.array().CreateVolume(command.name, *size));
    EPLOG_TRY(id);
    return Json{{"id", id->value}};
  };
  const auto done = AskOrOpen("volume create", file, request, offline);
  EPLOG_TRY(done);
  Print(fmt::format("created volume '{}' of {}", command.name, HumanBytes(*size)));
  return OkStatus();
}

Status List(const VolumeCommand& command, const ArrayFile& file) {
  const auto list = ListVolumes("volume list", file);
  EPLOG_TRY(list);
  if (command.json) {
    PrintJson(*list);
    return OkStatus();
  }
  if (list->empty()) {
    Print(fmt::format("no volumes; eplog volume create {} NAME SIZE makes one",
                      ShellWord(command.array)));
    return OkStatus();
  }
  size_t width = 4;
  for (const Json& volume : *list) {
    width = std::max(width, volume.value("name", "").size());
  }
  Print(Paint(Colour::kBold,
              fmt::format("{:<{}}  {:>11}  {:>11}", "name", width, "size", "allocated")));
  for (const Json& volume : *list) {
    Print(fmt::format("{:<{}}  {:>11}  {:>11}", volume.value("name", ""), width,
                      HumanBytes(volume.value("size_bytes", uint64_t{0})),
                      HumanBytes(volume.value("allocated_bytes", uint64_t{0}))));
  }
  return OkStatus();
}

// What a resize would do, as a document and for a person.
void PrintResize(const VolumeCommand& command, const Json& volume, uint64_t new_size) {
  const auto size = volume.value("size_bytes", uint64_t{0});
  const auto allocated = volume.value("allocated_bytes", uint64_t{0});
  const uint64_t cut = size - std::min(size, new_size);
  if (command.json) {
    PrintJson({{"dry_run", true},
               {"volume", volume},
               {"new_size_bytes", new_size},
               {"cut_off_bytes", cut}});
    return;
  }
  Print(fmt::format(
      "would resize, changing nothing now: '{}' has {}, {} of it allocated; it would have {}{}, "
      "redundancy stays as it is",
      command.name, HumanBytes(size), HumanBytes(allocated), HumanBytes(new_size),
      cut == 0 ? "" : fmt::format(", and the last {} would be gone", HumanBytes(cut))));
}

Status PlanResize(const VolumeCommand& command, const ArrayFile& file, uint64_t new_size) {
  const auto list = ListVolumes(kVolumeVerb, file);
  EPLOG_TRY(list);
  const auto volume = PickVolume(*list, command.name);
  EPLOG_TRY(volume);
  PrintResize(command, *volume, new_size);
  return OkStatus();
}

Status PlanDelete(const VolumeCommand& command, const ArrayFile& file) {
  EPLOG_TRY(CheckExists("volume delete", command, file, true));
  auto plan =
      PlanChange("volume delete", file, {{"change", "volume-delete"}, {"name", command.name}});
  EPLOG_TRY(plan);
  (*plan)["volume"]["open"] = false;  // else it would have been refused
  if (command.json) {
    PrintJson(*plan);
    return OkStatus();
  }
  const auto size = plan->at("volume").value("size_bytes", uint64_t{0});
  Print(ChangePlanText(
      fmt::format("would delete the volume '{}' of '{}'", command.name, file.name), *plan,
      {{"destroys", fmt::format("the data in it ({}); nobody has it open", HumanBytes(size))},
       {"frees", HumanBytes(plan->value("freed_bytes", uint64_t{0})) + " for other volumes"}}));
  return OkStatus();
}

Status Resize(const VolumeCommand& command, const ArrayFile& file) {
  const auto size = VolumeSize(command.size);
  EPLOG_TRY(size);
  if (command.dry_run) {
    return PlanResize(command, file, *size);
  }
  EPLOG_TRY(CheckExists("volume resize", command, file, true));
  const Json request = {{"verb", "volume-resize"}, {"name", command.name}, {"size_bytes", *size}};
  const auto offline = [&](Session& session) -> Result<Json> {
    const auto id = FindVolume(session, command.name);
    EPLOG_TRY(id);
    EPLOG_TRY(session.Run(session.array().ResizeVolume(*id, *size)));
    return Json();
  };
  const auto done = AskOrOpen("volume resize", file, request, offline);
  EPLOG_TRY(done);
  Print(fmt::format("volume '{}' has {} now", command.name, HumanBytes(*size)));
  return OkStatus();
}

Status Delete(const VolumeCommand& command, const ArrayFile& file) {
  if (command.dry_run) {
    return PlanDelete(command, file);
  }
  EPLOG_TRY(CheckExists("volume delete", command, file, true));
  const Json request = {{"verb", "volume-delete"}, {"name", command.name}};
  const auto offline = [&](Session& session) -> Result<Json> {
    const auto id = FindVolume(session, command.name);
    EPLOG_TRY(id);
    EPLOG_TRY(session.Run(session.array().DeleteVolume(*id)));
    return Json();
  };
  const auto done = AskOrOpen("volume delete", file, request, offline);
  EPLOG_TRY(done);
  Print(fmt::format("deleted volume '{}'", command.name));
  return OkStatus();
}

using Action = Status (*)(const VolumeCommand&, const ArrayFile&);

void Bind(Parser verb, const std::shared_ptr<VolumeCommand>& command, Run& run, Action action) {
  const std::string name = fmt::format("{} {}", kVolumeVerb, verb.name());
  verb.OnChosen([command, &run, action, name] {
    run = [command, action, name]() -> Result<int> {
      return WithArray(name, command->array,
                       [&](const ArrayFile& file) { return action(*command, file); });
    };
  });
}

}  // namespace

void AddVolume(Parser app, Run& run) {
  auto command = std::make_shared<VolumeCommand>();
  Parser volume =
      app.AddVerb(kVolumeVerb, "create, list, resize and delete volumes, mounted or not");
  volume.RequireVerb();
  volume.Footer("Example:\n  eplog volume create ./array data 10G");

  Parser create = volume.AddVerb("create", "make a volume; it takes room only as it is written");
  Parser list = volume.AddVerb("list", "show all volumes");
  Parser resize = volume.AddVerb("resize", "grow or shrink; what shrinking cuts off is gone");
  Parser remove = volume.AddVerb("delete", "delete a volume and its data");
  for (Parser verb : {create, list, resize, remove}) {
    verb.Add("ARRAY", command->array, kArrayHelp).Required();
  }
  for (Parser verb : {create, resize, remove}) {
    verb.Add("NAME", command->name, "of the volume").Required();
  }
  for (Parser verb : {create, resize}) {
    verb.Add("SIZE", command->size, "64M, 10G, 1.5T").Required();
  }
  for (Parser verb : {resize, remove}) {
    AddDryRun(verb, command->dry_run, command->json);
  }
  list.AddFlag("--json", command->json, kJsonHelp);
  create.Footer("Example:\n  eplog volume create ./array data 10G");
  list.Footer("Example:\n  eplog volume list ./array");
  resize.Footer("Example:\n  eplog volume resize ./array data 20G");
  remove.Footer(
      "Examples:\n  eplog volume delete ./array data --dry-run    what would be gone, and what "
      "room "
      "comes back\n  eplog volume delete ./array data");
  Bind(create, command, run, Create);
  Bind(list, command, run, List);
  Bind(resize, command, run, Resize);
  Bind(remove, command, run, Delete);
}

}  // namespace eplog::cli
