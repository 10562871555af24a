#include "cli/server.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "cli/bounded_call.h"
#include "cli/console.h"
#include "cli/mount_table.h"
#include "cli/probe.h"
#include "frontend/arguments.h"
#include "frontend/control.h"
#include "frontend/fuse_mount.h"
#include "frontend/plan_json.h"

namespace eplog::cli {
namespace {

constexpr char kServing[] = "serving";

std::string TextOf(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// What a serving process told of itself.
struct Told {
  Server server;
  std::string uuid;
  std::string name;
  std::vector<MemberPath> members;  // absolute
  std::vector<std::string> spares;
  std::vector<std::pair<std::string, DeviceIdentity>> held;  // by the paths they were opened by
};

Told ReadTold(const Json& json) {
  Told told;
  if (!json.is_object()) {
    return told;  // who serves does not say
  }
  told.server.pid = json.value("pid", 0);
  told.server.directory = TextOf(json, "mounted_on");
  told.server.file = TextOf(json, "file");
  told.uuid = TextOf(json, "uuid");
  told.name = TextOf(json, "name");
  for (const Json& member : json.value("members", Json::array())) {
    const std::string path = TextOf(member, "path");
    told.members.push_back({TextOf(member, "name"), path});
    if (const auto identity = IdentityArgument(member); identity.ok()) {
      told.held.emplace_back(path, *identity);
    }
  }
  for (const Json& spare : json.value("spares", Json::array())) {
    told.spares.push_back(spare.is_string() ? spare.get<std::string>() : "");
  }
  return told;
}

// kNotFound: nobody serves an array with this UUID.
Result<Told> AskWho(const std::string& socket) {
  try {
    const auto answer = ControlRequest(socket, {{"verb", kServing}});
    EPLOG_TRY(answer);
    return ReadTold(*answer);
  } catch (const Json::exception& error) {
    return Fail(ErrorCode::kCorrupt,
                std::string("the serving process says nonsense of itself: ") + error.what());
  }
}

// The paths of an array's members, those first that its server holds by the same path: they are
// what they were, usually, and answer.
std::vector<std::string> PathsToAsk(const ArrayFile& file, const Told& told) {
  std::vector<std::string> paths;
  for (const MemberPath& member : file.members) {
    paths.push_back(file.Locate(member).string());
  }
  std::stable_partition(paths.begin(), paths.end(), [&](const std::string& path) {
    return std::any_of(told.held.begin(), told.held.end(),
                       [&](const auto& held) { return held.first == path; });
  });
  return paths;
}

// A path is no proof: what was there may have been moved away, and a copy put in its place. It
// counts where there is nothing else, since no device is where array.toml says.
bool Serves(const Told& told, const ArrayFile& file) {
  if (told.server.file.empty()) {
    return true;  // it does not say
  }
  bool any = false;
  for (const std::string& path : PathsToAsk(file, told)) {
    const auto identity = IdentifyDevice(path);
    any |= identity.ok();
    if (identity.ok() && std::any_of(told.held.begin(), told.held.end(),
                                     [&](const auto& held) { return held.second == *identity; })) {
      return true;
    }
  }
  return !any && told.server.file == file.file;
}

std::optional<Server> FindServerIf(const ArrayFile& file, bool serves) {
  const auto told = AskWho(ControlSocketPath(file.uuid));
  return told.ok() && Serves(*told, file) == serves ? std::optional(told->server) : std::nullopt;
}

// Every array that is served, by somebody whom we believe.
std::optional<Told> FindServed(const std::filesystem::path& file) {
  std::error_code error;
  const std::filesystem::path sockets = ControlDirectory(ControlSocketPath("any"));
  for (std::filesystem::directory_iterator entry(sockets, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().extension() != ".sock") {
      continue;
    }
    auto told = AskWho(entry->path().string());
    if (told.ok() && told->server.file == file && !told->members.empty()) {
      return std::move(*told);
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<Server> FindServer(const ArrayFile& file) {
  return FindServerIf(file, true);
}

std::optional<Server> FindServerOfCopy(const ArrayFile& file) {
  return FindServerIf(file, false);
}

Result<Json> AskServer(const ArrayFile& file, const Json& request,
                       const std::function<void(uint64_t, uint64_t)>& progress) {
  const std::string socket = ControlSocketPath(file.uuid);
  const auto told = AskWho(socket);
  EPLOG_TRY(told);
  if (!Serves(*told, file)) {
    return Fail(
        ErrorCode::kNotFound,
        fmt::format("nobody serves {}: process {} serves {}, which has the same UUID; one "
                    "is a copy of the other",
                    file.Argument().string(), told->server.pid, told->server.file.string()));
  }
  return ControlRequest(socket, request, progress);
}

Result<ArrayFile> FindArray(std::string_view verb, const std::filesystem::path& argument) {
  auto file = LoadArrayFile(argument);
  if (file.ok()) {
    return file;
  }
  auto told = FindServed(ArrayFilePath(argument));
  if (!told) {
    return file;
  }
  const bool gone = file.error().code == ErrorCode::kNotFound;
  Warn(verb, fmt::format("{}; going by process {}, which serves the array",
                         gone ? told->server.file.string() + " is gone" : file.error().message,
                         told->server.pid));
  ArrayFile served;
  served.file = told->server.file;
  served.uuid = std::move(told->uuid);
  served.name = std::move(told->name);
  served.members = std::move(told->members);
  served.spares = std::move(told->spares);
  for (MemberPath& member : served.members) {
    member.path = PathFor(served, member.path);
  }
  for (std::string& spare : served.spares) {
    spare = PathFor(served, spare);
  }
  return served;
}

Status CheckChangeable(const ArrayFile& file) {
  const auto there = LoadArrayFile(file.file);
  if (there.ok() || there.error().code == ErrorCode::kNotFound) {
    return OkStatus();
  }
  return Fail(
      there.error().code,
      fmt::format("{}; mend it, or move it away: then it is written anew", there.error().message));
}

Json DescribeServing(const ArrayFile& file, const std::string& directory,
                     const std::vector<HeldMember>& held_members) {
  Json members = Json::array();
  for (const MemberPath& member : file.members) {
    Json described = {{"name", member.name}, {"path", file.Locate(member).string()}};
    const auto held =
        std::find_if(held_members.begin(), held_members.end(),
                     [&](const HeldMember& other) { return other.name == member.name; });
    if (held != held_members.end()) {
      described["path"] = held->path;
      described["identity"] = IdentityToJson(held->identity);
    }
    members.push_back(std::move(described));
  }
  Json spares = Json::array();
  for (const std::string& spare : file.spares) {
    spares.push_back(file.LocatePath(spare).string());
  }
  return {{"pid", static_cast<int>(::getpid())},
          {"mounted_on", directory},
          {"file", file.file.string()},
          {"uuid", file.uuid},
          {"name", file.name},
          {"members", std::move(members)},
          {"spares", std::move(spares)}};
}

void CutMountsOfTheDying(std::string_view verb) {
  for (const MountEntry& mount : ReadMountTable()) {
    const auto file =
        Bounded<ArrayFile>(mount.source, [source = mount.source] { return LoadArrayFile(source); });
    const auto dying = file.ok() ? DyingServer(ControlSocketPath(file->uuid)) : std::nullopt;
    if (!dying) {
      continue;
    }
    const bool cut = CutConnection(mount.directory);
    Warn(verb, fmt::format("process {}, which served {}, was killed and does not end; {}", *dying,
                           mount.directory,
                           cut ? "whoever waits for it gets an error now"
                               : "as root, umount -f " + ShellWord(mount.directory) + " ends it"));
  }
}

}  // namespace eplog::cli
