// eplog replace: another device takes the place of one that has failed or is missing.
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>

#include "cli/array_file.h"
#include "cli/console.h"
#include "cli/make_file.h"
#include "cli/member_name.h"
#include "cli/probe.h"
#include "cli/session.h"
#include "cli/spares.h"
#include "cli/verbs.h"

namespace eplog::cli {
namespace {

constexpr char kVerb[] = "replace";

struct ReplaceCommand {
  std::string array;
  std::string device;
  std::string path;
  bool force = false;
};

// What the place needs, from the superblock of any member.
Result<uint64_t> SizeNeeded(const ArrayFile& file, uint32_t index) {
  for (const MemberPath& member : file.members) {
    const auto superblock = ReadSuperblock(file.Locate(member));
    if (superblock.ok() && UuidToString(superblock->array_uuid) == file.uuid) {
      const Geometry& g = superblock->geometry;
      return index >= g.n ? g.log_bytes() : g.ssd_bytes();
    }
  }
  return Fail(ErrorCode::kNotFound, "no member of '" + file.name + "' can be read");
}

// It must be nobody's, and empty unless that does not matter.
Status CheckNew(const ArrayFile& file, const std::filesystem::path& path, bool force) {
  const auto probed = ProbeDevice(path);
  EPLOG_TRY(probed);
  for (const MemberPath& member : file.members) {
    const auto identity = IdentifyDevice(file.Locate(member));
    const bool own = identity.ok() && *identity == probed->identity;
    if (own && !force) {
      return Fail(ErrorCode::kExists, fmt::format("{} is {} of this array; --force takes it as an "
                                                  "empty device",
                                                  path.string(), member.name));
    }
  }
  if (IsSpareOf(file, path)) {
    return OkStatus();
  }
  const auto content = FindContent(path, probed->size_bytes);
  EPLOG_TRY(content);
  if (!content->empty() && !force) {
    return Fail(ErrorCode::kExists,
                fmt::format("{} holds {}; --force overwrites it", path.string(), *content));
  }
  return OkStatus();
}

Status Replace(const ReplaceCommand& command, ArrayFile& file, uint32_t index,
               const std::filesystem::path& path) {
  std::error_code error;
  if (std::filesystem::exists(path, error)) {
    EPLOG_TRY(CheckNew(file, path, command.force));
  } else {
    const auto bytes = SizeNeeded(file, index);
    EPLOG_TRY(bytes);
    EPLOG_TRY(MakeMemberFile(kVerb, path, *bytes));
  }
  const auto offline = [&](Session& session) -> Result<Json> {
    auto device = session.OpenDevice(path.string());
    EPLOG_TRY(device);
    EPLOG_TRY(session.Run(session.array().ReplaceDevice(index, **device)));
    return Json();
  };
  const Json request = {{"verb", kVerb}, {"device", index}, {"path", path.string()}};
  const auto done = AskOrOpen(kVerb, file, request, offline);
  EPLOG_TRY(done);
  const std::string name = MemberName(file, index);
  return ChangeArrayFile(file, [&](ArrayFile& now) { now.MoveMember(name, path); });
}

int RunReplace(const ReplaceCommand& command) {
  auto file = LoadArrayFile(command.array);
  if (!file.ok()) {
    return ReportError(kVerb, file.error());
  }
  const auto index = MemberIndex(*file, command.device);
  if (!index.ok()) {
    return ReportError(kVerb, index.error());
  }
  const std::filesystem::path path = ResolveParent(command.path);
  const bool served = FindServer(*file).has_value();
  const Status replaced = Replace(command, *file, *index, path);
  if (!replaced.ok()) {
    return ReportError(kVerb, replaced.error());
  }
  Print(fmt::format("{} is {} of '{}' now and is being rebuilt{}\nnext: eplog status {}",
                    command.path, MemberName(*file, *index), file->name,
                    served ? "" : " whenever the array is mounted", ShellWord(command.array)));
  return kDone;
}

}  // namespace

void AddReplace(CLI::App& app, Run& run) {
  auto command = std::make_shared<ReplaceCommand>();
  CLI::App* verb =
      app.add_subcommand(kVerb, "put a new device in the place of a failed or missing one");
  verb->add_option("ARRAY", command->array, kArrayHelp)->required();
  verb->add_option("DEVICE", command->device, kDeviceHelp)->required();
  verb->add_option("NEW", command->path, "the new device; a file is made if nothing is there")
      ->required();
  verb->add_flag("--force", command->force, "overwrite what NEW holds");
  verb->footer("Example:\n  eplog replace ./array ssd3 /dev/nvme4n1");
  verb->callback([command, &run] { run = [command] { return RunReplace(*command); }; });
}

}  // namespace eplog::cli
