// eplog spare add|remove|list: devices that step in by themselves when the array loses one.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/verb/verbs.h"
#include "frontend/spare_keeper.h"
#include "host/array_file.h"
#include "host/ask_or_open.h"
#include "host/bounded_call.h"
#include "host/candidate.h"
#include "host/device_content.h"
#include "host/file_spare_shelf.h"
#include "host/make_file.h"
#include "host/path_looks.h"
#include "host/session.h"
#include "host/spares.h"
#include "host/typed_path.h"
#include "report/plan_json.h"
#include "report/status_json.h"
#include "terminal/console.h"

namespace eplog::cli {
namespace {

constexpr char kSpareVerb[] = "spare";

struct SpareCommand {
  std::string array;
  std::string device;
  std::string role;  // empty: any
  bool force = false;
  bool make_file = false;
  bool json = false;
};

std::string RolesText(SpareRoles roles) {
  if (roles.ssd && roles.log) {
    return "SSDs and log devices";
  }
  return roles.ssd ? "SSDs only" : roles.log ? "log devices only" : "nothing";
}

// ---------------------------------------------------------------------------------------- add

uint64_t SizeToMake(const SpareCommand& command, const Geometry& g) {
  return command.role == "ssd"   ? g.ssd_bytes()
         : command.role == "log" ? g.log_bytes()
                                 : std::max(g.ssd_bytes(), g.log_bytes());
}

Status CheckRole(const SpareCommand& command, const Geometry& g, const ProbedDevice& probed) {
  const SpareRoles roles = RolesFor(g, probed.size_bytes);
  if (!roles.any()) {
    const uint64_t needed = SizeToMake(command, g);
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{}; {}", TooSmall(g, command.device, probed.size_bytes),
                            HowToEnlarge(needed, command.device, probed)));
  }
  const bool ssd = command.role == "ssd";
  if ((ssd && !roles.ssd) || (command.role == "log" && !roles.log)) {
    return Fail(ErrorCode::kInvalidArgument,
                TooSmallFor(ssd ? "an SSD" : "a log device", ssd ? g.ssd_bytes() : g.log_bytes(),
                            command.device, probed));
  }
  return OkStatus();
}

// One storage under two nodes would be two spares.
Status CheckNoOtherNode(const ArrayFile& file, const std::filesystem::path& path,
                        const ProbedDevice& probed) {
  const auto own = ReadSuperblock(path, probed);
  std::vector<std::filesystem::path> listed;
  for (const std::string& spare : file.spares) {
    listed.push_back(file.LocatePath(spare));
  }
  const auto others = ReadSuperblocks(listed);
  for (size_t i = 0; own.ok() && i < listed.size(); ++i) {
    if (others[i].ok() && others[i]->device_uuid == own->device_uuid) {
      return Fail(ErrorCode::kExists,
                  fmt::format("{} is the spare {} by another path, or a copy of it", path.string(),
                              listed[i].string()));
    }
  }
  return OkStatus();
}

// It must be nobody's, and empty unless that does not matter.
Status CheckFree(const SpareCommand& command, const ArrayFile& file,
                 const std::filesystem::path& path, const ProbedDevice& probed) {
  const ArrayFile settled = WithJoinedSpares(file);
  std::vector<std::string> listed;
  for (const MemberPath& member : settled.members) {
    listed.push_back(settled.Locate(member).string());
  }
  for (const std::string& spare : settled.spares) {
    listed.push_back(settled.LocatePath(spare).string());
  }
  const auto there = PathLooks::At(listed, PathLooks::Clock::now() + kPatience);
  EPLOG_TRY(there);
  for (size_t i = 0; i < listed.size(); ++i) {
    if ((*there)[i] != probed.identity) {
      continue;
    }
    if (i < settled.members.size()) {
      return BearsMember(file, path)
                 ? Status(
                       Fail(ErrorCode::kExists, fmt::format("{} is {} of this array", path.string(),
                                                            settled.members[i].name)))
                 : CheckNotListed(settled, listed[i]);
    }
    if (IsSpareOf(file, listed[i])) {
      return Fail(ErrorCode::kExists,
                  fmt::format("{} is a spare of this array already", listed[i]));
    }
  }
  if (IdentifySpare(file.uuid, path, probed).kind == SpareKind::kSpare) {
    return CheckNoOtherNode(settled, path, probed);  // and not listed
  }
  EPLOG_TRY(CheckNotServed(path, probed, file.uuid));
  const auto content = FindContent(path, probed);
  EPLOG_TRY(content);
  if (!content->empty() && !command.force) {
    return Fail(ErrorCode::kExists,
                fmt::format("{} holds {}; --force overwrites it", path.string(), *content));
  }
  return OkStatus();
}

// What the keeper of a serving process does, on the array opened here.
template <typename Change>
auto Offline(const Superblock& member, Change change) {
  return [&member, change](Session& session) -> Result<Json> {
    FileSpareShelf shelf(session, session.file(), member);
    SpareKeeper keeper(session.loop(), session.array(), shelf, {});
    EPLOG_TRY(session.Run(change(keeper)));
    return Json();
  };
}

Status Add(const SpareCommand& command, const ArrayFile& file) {
  const auto member = AnyMember(file);
  EPLOG_TRY(member);
  const Geometry& g = member->geometry;
  const auto resolved = ResolveTyped(command.device);
  EPLOG_TRY(resolved);
  const std::filesystem::path& path = *resolved;
  EPLOG_TRY(CheckChangeable(file, [path](ArrayFile& now) {
    if (now.MemberAt(path).empty()) {  // else it is refused below, and says why
      now.AddSpare(path);
    }
  }));
  const auto there = IsThere(path);
  EPLOG_TRY(there);
  ProbedDevice device;  // what is looked at, and nothing else, is to become a spare
  MadeFile made(path);
  if (*there) {
    const auto probed = ProbeDevice(path);
    EPLOG_TRY(probed);
    EPLOG_TRY(CheckCandidate(file, path, probed->identity));
    EPLOG_TRY(CheckFree(command, file, path, *probed));
    EPLOG_TRY(CheckNoLaterLog(file, path, *probed));
    EPLOG_TRY(CheckRole(command, g, *probed));
    device = *probed;
  } else {
    EPLOG_TRY(CheckNotListed(WithJoinedSpares(file), path));
    EPLOG_TRY(made.Make("spare add", file, SizeToMake(command, g), command.make_file));
    device = made.probed();
  }
  const Json request = {{"verb", "spare-add"},
                        {"path", path.string()},
                        {"identity", IdentityToJson(device.identity)}};
  const auto done =
      AskOrOpen("spare add", file, request, Offline(*member, [&](SpareKeeper& keeper) {
                  return keeper.Add(path.string(), device.identity);
                }));
  EPLOG_TRY(done);
  made.Keep();
  Print(fmt::format("{} is a spare of '{}' now; it fits {}\nnext: eplog spare list {}",
                    command.device, file.name, RolesText(RolesFor(g, device.size_bytes)),
                    ShellWord(command.array)));
  return OkStatus();
}

// --------------------------------------------------------------------------------------- list

// As the serving process knows them, else as they lie on the disks.
Json Spares(const ArrayFile& file) {
  Json status = {{"devices", Json::array()}};
  if (auto served = AskServer(file, {{"verb", "status"}}); served.ok()) {
    status = std::move(*served);
  }
  AddSpares(file, status);
  const auto member = AnyMember(file);
  Json list = Json::array();
  for (const Json& device : status["devices"]) {
    if (device.value("role", "") != DeviceRoleName(DeviceRole::kSpare)) {
      continue;
    }
    const uint64_t size = device.value("size_bytes", uint64_t{0});
    const SpareRoles roles = member.ok() ? RolesFor(member->geometry, size) : SpareRoles{};
    Json fits = Json::array();
    if (roles.ssd) {
      fits.push_back(DeviceRoleName(DeviceRole::kSsd));
    }
    if (roles.log) {
      fits.push_back(DeviceRoleName(DeviceRole::kLog));
    }
    list.push_back(
        {{"name", device.value("name", "")},
         {"path", device.value("path", "")},
         {"state", device.value("state", "")},
         {"size_bytes", size},
         {"fits", std::move(fits)},
         {"why", device.contains("failed_because") ? device["failed_because"] : Json()}});
  }
  return list;
}

Status List(const SpareCommand& command, const ArrayFile& file) {
  const Json list = Spares(file);
  if (command.json) {
    PrintJson(list);
    return OkStatus();
  }
  if (list.empty()) {
    Print(fmt::format("'{}' has no spares; 'eplog spare add {} DEVICE' adds one", file.name,
                      ShellWord(command.array)));
  }
  for (const Json& spare : list) {
    SpareRoles roles;
    for (const Json& role : spare["fits"]) {
      (role == DeviceRoleName(DeviceRole::kSsd) ? roles.ssd : roles.log) = true;
    }
    const std::string why = spare["why"].is_string() ? spare["why"].get<std::string>() : "";
    Print(fmt::format("{}  {}  {}  {}  fits {}{}", spare.value("name", ""),
                      spare.value("state", ""), spare.value("path", ""),
                      HumanBytes(spare.value("size_bytes", uint64_t{0})), RolesText(roles),
                      why.empty() ? "" : ": " + why));
  }
  return OkStatus();
}

// ------------------------------------------------------------------------------------- remove

// spare0, as the list shows it, or a path.
Result<std::filesystem::path> PathOf(const ArrayFile& file, const std::string& device) {
  if (device.starts_with("spare")) {
    for (const Json& spare : Spares(file)) {
      if (spare.value("name", "") == device) {
        return std::filesystem::path(spare.value("path", ""));
      }
    }
  }
  return ResolveDevice(file, device);
}

Status Remove(const SpareCommand& command, const ArrayFile& file) {
  const auto found = PathOf(file, command.device);
  EPLOG_TRY(found);
  const std::filesystem::path& path = *found;
  if (!file.ListsSpare(path) && !IsSpareOf(file, path)) {
    return Fail(ErrorCode::kNotFound,
                fmt::format("{} is no spare of '{}'; 'eplog spare list {}' shows them",
                            path.string(), file.name, ShellWord(command.array)));
  }
  const auto member = AnyMember(file);
  EPLOG_TRY(member);
  const Json request = {{"verb", "spare-remove"}, {"path", path.string()}};
  const auto done = AskOrOpen(
      "spare remove", file, request,
      Offline(*member, [&](SpareKeeper& keeper) { return keeper.Remove(path.string()); }));
  EPLOG_TRY(done);
  Print(fmt::format("{} is no spare of '{}' any more", path.string(), file.name));
  return OkStatus();
}

using Action = Status (*)(const SpareCommand&, const ArrayFile&);

void Bind(Parser verb, const std::shared_ptr<SpareCommand>& command, Run& run, Action action) {
  const std::string name = fmt::format("{} {}", kSpareVerb, verb.name());
  verb.OnChosen([command, &run, action, name] {
    run = [command, action, name]() -> Result<int> {
      const auto file = FindArray(name, command->array);
      EPLOG_TRY(file);
      EPLOG_TRY(action(*command, *file));
      return kDone;
    };
  });
}

}  // namespace

void AddSpare(Parser app, Run& run) {
  auto command = std::make_shared<SpareCommand>();
  Parser spare =
      app.AddVerb(kSpareVerb, "devices that step in by themselves when the array loses one");
  spare.RequireVerb();
  spare.Footer(
      "While the array is mounted, the smallest spare that fits takes the place of a device that "
      "fails,\nhangs, is missing or is failed by hand, and is rebuilt; 'eplog events' tells of it."
      "\n\nExample:\n  eplog spare add ./array /dev/nvme9n1");

  Parser add = spare.AddVerb("add", "make a device a spare of the array");
  Parser remove = spare.AddVerb("remove", "let a spare go");
  Parser list = spare.AddVerb("list", "show the spares, and what they fit");
  for (Parser verb : {add, remove, list}) {
    verb.Add("ARRAY", command->array, kArrayHelp).Required();
  }
  add.Add("DEVICE", command->device,
          "the device; a file is made if nothing is there, in the array's directory")
      .Required();
  add.Add("--for", command->role,
          "what it must fit, and how large a file is made: ssd or log; else a device must "
          "fit either, and a file is made for both")
      .TypeName("ROLE")
      .OneOf({"ssd", "log"});
  add.AddFlag("--force", command->force, "overwrite what DEVICE holds");
  add.AddFlag("--make-file", command->make_file, kMakeFileHelp);
  remove.Add("DEVICE", command->device, "a spare: spare0 ..., or its path").Required();
  list.AddFlag("--json", command->json, kJsonHelp);
  add.Footer(
      "Examples:\n  eplog spare add ./array /dev/nvme9n1\n"
      "  eplog spare add ./array ./array/log-spare --for log");
  remove.Footer("Example:\n  eplog spare remove ./array /dev/nvme9n1");
  list.Footer("Example:\n  eplog spare list ./array");
  Bind(add, command, run, Add);
  Bind(remove, command, run, Remove);
  Bind(list, command, run, List);
}

}  // namespace eplog::cli
