#include "host/server.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "control/server_mark.h"
#include "host/bounded_call.h"
#include "host/device_content.h"
#include "host/fuse_mount.h"
#include "host/path_looks.h"
#include "host/removed.h"
#include "host/typed_path.h"
#include "report/arguments.h"
#include "report/plan_json.h"
#include "terminal/console.h"

namespace eplog {

using std::chrono::milliseconds;

namespace {

constexpr char kServing[] = "serving";

std::string TextOf(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// A member as a serving process told of it.
struct ToldMember {
  std::string name;
  std::string path;    // absolute
  bool known = false;  // which device it is, or was
};

// What a serving process told of itself.
struct Told {
  Server server;
  std::string uuid;
  std::vector<ToldMember> members;
  std::vector<std::string> spares;
  std::vector<DeviceIdentity> held;  // that the array holds, or held since it was opened
};

Told ReadTold(const Json& json) {
  Told told;
  if (!json.is_object()) {
    return told;  // who serves does not say
  }
  told.server.pid = json.value("pid", 0);
  told.server.directory = TextOf(json, "mounted_on");
  told.server.mount = json.value("mount_device", uint64_t{0});
  told.server.file = TextOf(json, "file");
  told.server.name = TextOf(json, "name");
  told.uuid = TextOf(json, "uuid");
  for (const Json& member : json.value("members", Json::array())) {
    const auto identity = IdentityArgument(member);
    told.members.push_back({TextOf(member, "name"), TextOf(member, "path"), identity.ok()});
    if (identity.ok()) {
      told.held.push_back(*identity);
    }
    if (identity.ok() && member.value("held", false)) {
      told.server.held.push_back({TextOf(member, "name"), TextOf(member, "path"), *identity});
    }
  }
  for (const Json& member : json.value("before", Json::array())) {
    if (const auto identity = IdentityArgument(member); identity.ok()) {
      told.held.push_back(*identity);
    }
  }
  for (const Json& spare : json.value("spares", Json::array())) {
    told.spares.push_back(spare.is_string() ? spare.get<std::string>() : "");
  }
  return told;
}

struct Asked {
  Told told;
  ControlClient client;
};

// Asks again, over a new connection, for as long as too many ask at once, and not for ever. `ask`
// says whether it was sent `away` for that, or whoever it asked hung up, as one that ends does.
template <typename Answer>
Answer InTurn(const std::function<Answer(bool& away)>& ask) {
  constexpr milliseconds kBetween(200);
  const auto until = std::chrono::steady_clock::now() + ControlPatience().silence;
  while (true) {
    bool away = false;
    Answer answer = ask(away);
    if (!away || std::chrono::steady_clock::now() >= until) {
      return answer;
    }
    std::this_thread::sleep_for(kBetween);
  }
}

Result<Asked> AskWhoOnce(const std::string& socket, ControlPatience patience, bool& away) {
  try {
    auto client = ControlClient::Connect(socket, patience);
    if (!client.ok()) {
      return Fail(std::move(client).error());
    }
    const auto answer = client->RequestSoon({{"verb", kServing}});
    away = client->sent_away() || (!answer.ok() && answer.error().code == ErrorCode::kIo);
    EPLOG_TRY(answer);
    Told told = ReadTold(*answer);
    told.server.pid = client->pid() != 0 ? client->pid() : told.server.pid;
    return Asked{std::move(told), std::move(*client)};
  } catch (const Json::exception& error) {
    return Fail(ErrorCode::kCorrupt,
                std::string("the serving process says nonsense of itself: ") + error.what());
  }
}

// kNotFound: nobody serves an array with this UUID.
Result<Asked> AskWho(const std::string& socket, ControlPatience patience = {}) {
  return InTurn<Result<Asked>>([&](bool& away) { return AskWhoOnce(socket, patience, away); });
}

// What the devices of an array tell of who serves it.
enum class Evidence : uint8_t {
  kPending,
  kNone,   // it is not there, or the process never knew what was there
  kHeld,   // the process holds this device, or did
  kOther,  // it does not
};

// Paths at which nothing answered this process.
class SilentPaths {
 public:
  bool Has(const std::string& path) {
    const std::lock_guard lock(mutex_);
    return paths_.contains(path);
  }
  void Add(const std::string& path) {
    const std::lock_guard lock(mutex_);
    paths_.insert(path);
  }

 private:
  std::mutex mutex_;
  std::set<std::string> paths_;
};

SilentPaths& Silent() {
  static SilentPaths silent;
  return silent;
}

// Looks at all devices of an array.
class Comparison {
 public:
  // For those that have not answered when it is decided.
  static constexpr milliseconds kGrace{200};

  Comparison(const Told& told, const ArrayFile& file)
      : told_(told), paths_(PathsOf(file)), evidence_(paths_.size(), Evidence::kPending) {}

  // Until whether the process holds most is decided, or nothing more comes. What does not answer
  // tells nothing, and is not looked at again by this process: each look stays behind.
  Status Look() {
    std::vector<size_t> asked;
    std::vector<std::string> paths;
    for (size_t i = 0; i < paths_.size(); ++i) {
      if (Silent().Has(paths_[i])) {
        evidence_[i] = Evidence::kNone;
      } else {
        asked.push_back(i);
        paths.push_back(paths_[i]);
      }
    }
    auto looks = PathLooks::Begin(std::move(paths));
    EPLOG_TRY(looks);
    auto until = PathLooks::Clock::now() + kPatience;
    while (Count(Evidence::kPending) != 0) {
      const auto answer = looks->Next(until);
      if (!answer.ok() && IsDecided()) {
        break;
      }
      EPLOG_TRY(answer);
      if (!*answer) {
        break;
      }
      const size_t member = asked[(*answer)->path];
      evidence_[member] = EvidenceOf(member, (*answer)->identity);
      until = IsDecided() ? std::min(until, PathLooks::Clock::now() + kGrace) : until;
    }
    for (size_t i = 0; i < paths_.size(); ++i) {
      if (evidence_[i] == Evidence::kPending) {
        evidence_[i] = Evidence::kNone;
        Silent().Add(paths_[i]);
      }
    }
    return OkStatus();
  }
  // After that.
  [[nodiscard]] size_t Count(Evidence what) const {
    return static_cast<size_t>(std::count(evidence_.begin(), evidence_.end(), what));
  }
  [[nodiscard]] std::string Names(const ArrayFile& file, Evidence what) const {
    std::vector<std::string> names;
    for (size_t i = 0; i < evidence_.size(); ++i) {
      if (evidence_[i] == what) {
        names.push_back(file.members[i].name);
      }
    }
    return fmt::format("{}", fmt::join(names, ", "));
  }

 private:
  static std::vector<std::string> PathsOf(const ArrayFile& file) {
    std::vector<std::string> paths;
    for (const MemberPath& member : file.members) {
      paths.push_back(file.Locate(member).string());
    }
    return paths;
  }
  [[nodiscard]] bool IsDecided() const {
    return Count(Evidence::kHeld) > Count(Evidence::kOther) + Count(Evidence::kPending);
  }
  [[nodiscard]] Evidence EvidenceOf(size_t member,
                                    const std::optional<DeviceIdentity>& identity) const {
    const auto is_unknown = [&](const ToldMember& told) {
      return told.path == paths_[member] && !told.known;
    };
    if (!identity) {
      return Evidence::kNone;
    }
    if (std::find(told_.held.begin(), told_.held.end(), *identity) != told_.held.end()) {
      return Evidence::kHeld;
    }
    return std::any_of(told_.members.begin(), told_.members.end(), is_unknown) ? Evidence::kNone
                                                                               : Evidence::kOther;
  }

  const Told& told_;
  std::vector<std::string> paths_;
  std::vector<Evidence> evidence_;
};

// Whether a process serves this array. kNotFound: no, another with its UUID. kBusy: some devices
// say so and others do not. A path is no proof: what was there may have been moved away, and a copy
// put in its place. It counts where there is nothing else, since no device tells anything.
Status CheckServes(const Told& told, const ArrayFile& file) {
  if (told.server.file.empty()) {
    return OkStatus();  // it does not say
  }
  Comparison devices(told, file);
  EPLOG_TRY(devices.Look());
  const size_t held = devices.Count(Evidence::kHeld);
  const size_t other = devices.Count(Evidence::kOther);
  if (held > other || (held + other == 0 && told.server.file == file.file)) {
    return OkStatus();
  }
  const std::string argument = file.Argument().string();
  if (held == 0) {
    return Fail(
        ErrorCode::kNotFound,
        fmt::format("nobody serves {}: process {} serves {}, which has the same UUID; one is a "
                    "copy of the other",
                    argument, told.server.pid, told.server.file.string()));
  }
  return Fail(ErrorCode::kBusy,
              fmt::format("process {} serves {}, to which {} of {} belongs, and not {}: give each "
                          "copy devices of its own in its array.toml, or first eplog umount {}",
                          told.server.pid, told.server.file.string(),
                          devices.Names(file, Evidence::kHeld), argument,
                          devices.Names(file, Evidence::kOther), ShellWord(told.server.directory)));
}

// Of all arrays that are served, by somebody whom we believe. All are asked at once, and whoever
// does not answer is most likely another's.
std::optional<Told> FindServed(const std::filesystem::path& file) {
  using Asking = BoundedCall<std::optional<Told>>;
  const auto until = Asking::Clock::now() + kPatience;
  std::vector<Asking> askings;
  std::error_code error;
  const std::filesystem::path sockets = ControlDirectory(ControlSocketPath("any"));
  for (std::filesystem::directory_iterator entry(sockets, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().extension() != ".sock") {
      continue;
    }
    askings.emplace_back([socket = entry->path().string()] {
      auto asked = AskWho(socket, {.silence = kPatience});
      return asked.ok() ? std::optional(std::move(asked->told)) : std::nullopt;
    });
  }
  for (Asking& asking : askings) {
    auto told = asking.Wait(until).value_or(std::nullopt);
    if (told && told->server.file == file && !told->members.empty()) {
      return told;
    }
  }
  return std::nullopt;
}

std::vector<ServerMark> AllMarks() {
  const std::string any = ControlSocketPath("any");
  return CheckControlDirectory(any).ok() ? ReadServerMarks(ControlDirectory(any))
                                         : std::vector<ServerMark>();
}

}  // namespace

Result<ServerLink> ConnectServer(const ArrayFile& file) {
  auto asked = AskWho(ControlSocketPath(file.uuid));
  if (!asked.ok()) {
    return Fail(std::move(asked).error());
  }
  EPLOG_TRY(CheckServes(asked->told, file));
  return ServerLink{std::move(asked->told.server), std::move(asked->client)};
}

Result<ServerLink> ConnectServerOf(const MountEntry& mount) {
  Error none{.code = ErrorCode::kNotFound, .message = "nobody serves " + mount.directory};
  for (const ServerMark& mark : AllMarks()) {
    if (mark.mount != mount.device || LifeOf(mark) == ServerLife::kGone) {
      continue;
    }
    auto asked = AskWho(mark.socket_path);
    if (asked.ok() && asked->told.server.mount == mount.device) {
      return ServerLink{std::move(asked->told.server), std::move(asked->client)};
    }
    if (!asked.ok() && asked.error().code != ErrorCode::kNotFound) {
      none = std::move(asked).error();
    }
  }
  return Fail(std::move(none));
}

Result<std::optional<Server>> FindServer(const ArrayFile& file) {
  auto answers = WhoAnswers(file);
  if (answers.ok()) {
    return answers->of_copy ? std::nullopt : std::optional(std::move(answers->server));
  }
  if (answers.error().code == ErrorCode::kNotFound) {
    return std::nullopt;
  }
  return Fail(std::move(answers).error());
}

Result<Answering> WhoAnswers(const ArrayFile& file) {
  auto asked = AskWho(ControlSocketPath(file.uuid));
  if (!asked.ok()) {
    return Fail(std::move(asked).error());
  }
  Status serves = CheckServes(asked->told, file);
  const bool looked = serves.ok() || serves.error().code == ErrorCode::kNotFound ||
                      serves.error().code == ErrorCode::kBusy;
  if (!looked) {
    return Fail(std::move(serves).error());
  }
  return Answering{std::move(asked->told.server), !serves.ok()};
}

namespace {

void AddRemoved(const Server& server, const Json& request, Json& answer) {
  const std::string verb = TextOf(request, "verb");
  const bool told = verb == "status" || verb == "scrub" || verb == "fail" || verb == "plan";
  if (!told || !(answer.is_object() || answer.is_null())) {
    return;
  }
  if (auto removed = FindRemoved(server); !removed.empty()) {
    answer["files_removed"] = std::move(removed);
  }
}

}  // namespace

Result<Json> AskServer(const ArrayFile& file, const Json& request,
                       const std::function<void(uint64_t, uint64_t)>& progress) {
  return InTurn<Result<Json>>([&](bool& away) -> Result<Json> {
    auto link = ConnectServer(file);
    if (!link.ok()) {
      return Fail(std::move(link).error());
    }
    auto answer = link->client.Request(request, progress);
    away = link->client.sent_away();
    if (answer.ok()) {
      AddRemoved(link->server, request, *answer);
    }
    return answer;
  });
}

Result<bool> NobodyServes(const Error& error, const ArrayFile& file) {
  if (error.code != ErrorCode::kNotFound) {
    return false;
  }
  const auto server = FindServer(file);
  EPLOG_TRY(server);
  return !*server;
}

Result<ArrayFile> FindArray(std::string_view verb, const std::filesystem::path& argument) {
  auto typed = LookAtArray(argument);
  EPLOG_TRY(typed);
  auto& file = typed->array;
  if (file.ok()) {
    return std::move(file);
  }
  auto told = FindServed(typed->file);
  if (!told) {
    return std::move(file);
  }
  const bool gone = file.error().code == ErrorCode::kNotFound;
  Warn(verb, fmt::format("{}; going by process {}, which serves the array",
                         gone ? told->server.file.string() + " is gone" : file.error().message,
                         told->server.pid));
  ArrayFile served;
  served.file = told->server.file;
  served.uuid = std::move(told->uuid);
  served.name = told->server.name;
  served.spares = std::move(told->spares);
  for (const ToldMember& member : told->members) {
    served.members.push_back({member.name, PathFor(served, member.path)});
  }
  for (std::string& spare : served.spares) {
    spare = PathFor(served, spare);
  }
  return served;
}

namespace {

// Blocks as long as the file system does.
Status TryChange(const ArrayFile& file, const std::function<void(ArrayFile&)>& change) {
  auto now = LoadArrayFile(file.file);
  if (!now.ok() && now.error().code == ErrorCode::kNotFound) {
    now = file;
    for (const MemberPath& member : file.members) {
      now->DropSpare(file.Locate(member));  // one that stepped in since the list was made
    }
  }
  if (!now.ok()) {
    return Fail(
        now.error().code,
        fmt::format("{}; mend it, or move it away: then it is written anew", now.error().message));
  }
  change(*now);
  return CheckWritable(*now);
}

}  // namespace

Status CheckChangeable(const ArrayFile& file, std::function<void(ArrayFile&)> change) {
  return Bounded<void>(file.file,
                       [file, change = std::move(change)] { return TryChange(file, change); });
}

Json DescribeServing(const ArrayFile& file, const std::string& directory,
                     const std::vector<HeldMember>& held_members,
                     const std::vector<HeldMember>& before) {
  const auto named = [](const std::string& name) {
    return [&name](const auto& member) { return member.name == name; };
  };
  Json members = Json::array();
  for (const MemberPath& member : file.members) {
    Json described = {{"name", member.name}, {"path", file.Locate(member).string()}};
    const auto held = std::find_if(held_members.begin(), held_members.end(), named(member.name));
    const auto lost = std::find_if(before.rbegin(), before.rend(), named(member.name));
    if (held != held_members.end()) {
      described["path"] = held->path;
      described["identity"] = IdentityToJson(held->identity);
      described["held"] = true;
    } else if (lost != before.rend()) {
      described["identity"] = IdentityToJson(lost->identity);
    }
    members.push_back(std::move(described));
  }
  for (const HeldMember& held : held_members) {
    if (std::none_of(file.members.begin(), file.members.end(), named(held.name))) {
      members.push_back({{"name", held.name},
                         {"path", held.path},
                         {"identity", IdentityToJson(held.identity)},
                         {"held", true}});
    }
  }
  Json earlier = Json::array();
  for (const HeldMember& member : before) {
    earlier.push_back({{"identity", IdentityToJson(member.identity)}});
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
          {"before", std::move(earlier)},
          {"spares", std::move(spares)}};
}

namespace {

bool EndsSoon(const ServerMark& dying) {
  constexpr int kLooks = 20;
  constexpr milliseconds kBetween(100);
  for (int i = 0; i < kLooks && LifeOf(dying) == ServerLife::kDying; ++i) {
    std::this_thread::sleep_for(kBetween);
  }
  return LifeOf(dying) != ServerLife::kDying;
}

// The one that served a mount and is dying, where nobody runs who serves it: the number of a mount
// that is gone is given away again.
std::optional<ServerMark> OnlyServedByTheDying(dev_t mount) {
  std::optional<ServerMark> dying;
  for (ServerMark& mark : AllMarks()) {
    const ServerLife life = mark.mount == mount ? LifeOf(mark) : ServerLife::kGone;
    if (life == ServerLife::kRuns) {
      return std::nullopt;
    }
    if (life == ServerLife::kDying) {
      dying = std::move(mark);
    }
  }
  return dying;
}

}  // namespace

void CutMountsOfTheDying(std::string_view verb) {
  for (const MountEntry& mount : ReadMountTable()) {
    const auto connection = ConnectionOf(mount.device);
    const auto dying = OnlyServedByTheDying(mount.device);
    if (!dying || EndsSoon(*dying)) {
      continue;  // it was only just killed
    }
    // Who mounts writes its mark a moment later. One that had this number when the table was read
    // has had the time of the wait for that; one that got it since is another connection.
    const auto still = OnlyServedByTheDying(mount.device);
    if (!still || still->pid != dying->pid || ConnectionOf(mount.device) != connection) {
      continue;
    }
    const bool cut = CutConnection(mount.device);
    Warn(verb, fmt::format("process {}, which served {}, was killed and does not end; {}",
                           dying->pid, mount.directory,
                           cut ? "whoever waits for it gets an error now"
                               : "as root, umount -f " + ShellWord(mount.directory) + " ends it"));
  }
}

}  // namespace eplog
