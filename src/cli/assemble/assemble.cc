// eplog assemble: whose members these devices are, whether the array opens from them, and where it
// lies, as an array.toml. The judgement is the engine's; nothing on the devices is changed.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/read_text.h"
#include "cli/assemble/report.h"
#include "cli/verb/verbs.h"
#include "host/array_file.h"
#include "host/bounded_call.h"
#include "host/device_content.h"
#include "host/members.h"
#include "host/typed_path.h"
#include "runtime/run_task.h"
#include "terminal/console.h"

namespace eplog::cli {
namespace {

constexpr char kVerb[] = "assemble";

struct AssembleCommand {
  std::vector<std::string> devices;
  std::string out;
  std::string uuid;
  bool force = false;
  bool json = false;
};

using Paths = std::vector<std::filesystem::path>;

// Blocks as long as the file system does.
Result<Paths> FilesIn(const std::filesystem::path& directory) {
  std::error_code error;
  Paths files;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    std::error_code ignored;
    if (entry.is_regular_file(ignored)) {
      files.push_back(ResolveParent(entry.path()));
    }
  }
  if (error) {
    return FailErrno(error.value(), "cannot look into " + directory.string());
  }
  return files;
}

Result<bool> IsDirectory(const std::filesystem::path& path) {
  return Bounded<bool>(path, [path]() -> Result<bool> {
    std::error_code ignored;
    return std::filesystem::is_directory(path, ignored);
  });
}

// The files of a directory that bear a superblock, or what may be left of one; by name.
Status AddDirectory(const std::filesystem::path& directory, Paths& paths) {
  const auto files =
      Bounded<Paths>(directory, [directory]() -> Result<Paths> { return FilesIn(directory); });
  EPLOG_TRY(files);
  const auto superblocks = ReadSuperblocks(*files);
  Paths inside;
  for (size_t i = 0; i < files->size(); ++i) {
    if (superblocks[i].ok() || superblocks[i].error().code != ErrorCode::kNotFound) {
      inside.push_back((*files)[i]);
    }
  }
  std::sort(inside.begin(), inside.end());
  paths.insert(paths.end(), inside.begin(), inside.end());
  return OkStatus();
}

// Each device once, whatever paths lead to it.
Result<Paths> Gather(const std::vector<std::string>& given) {
  Paths all;
  for (const std::string& typed : given) {
    const auto directory = IsDirectory(typed);
    EPLOG_TRY(directory);
    if (*directory) {
      EPLOG_TRY(AddDirectory(typed, all));
      continue;
    }
    auto path = ResolveTyped(typed);
    EPLOG_TRY(path);
    all.push_back(std::move(*path));
  }
  Paths paths;
  std::vector<DeviceIdentity> seen;
  for (const auto& path : all) {
    const auto identity = IdentifyDevice(path);
    EPLOG_TRY(identity);
    if (std::find(seen.begin(), seen.end(), *identity) == seen.end()) {
      seen.push_back(*identity);
      paths.push_back(path);
    }
  }
  return paths;
}

// Looked at without a lock where somebody is at work on it.
void Open(IoUringLoop& loop, const std::string& path, std::vector<Member>& opened,
          AssembleFindings& findings) {
  MemberOptions options;
  options.read_only = true;
  auto device = OpenMember(loop, path, options);
  if (!device.ok() && device.error().code == ErrorCode::kBusy) {
    findings.in_use.insert(path);
    options.lock = false;
    device = OpenMember(loop, path, options);
  }
  if (device.ok()) {
    opened.push_back(std::move(*device));
  } else {
    findings.unopened.push_back({path, device.error().ToString()});
  }
}

// Into a directory as its array.toml, else as the file itself.
Result<std::filesystem::path> OutPath(const std::string& typed) {
  const auto path = ResolveTyped(typed);
  EPLOG_TRY(path);
  const auto directory = IsDirectory(*path);
  EPLOG_TRY(directory);
  return *directory ? *path / kArrayFileName : *path;
}

// What is written takes the place of what is there: no device, pipe or socket, and nothing that is only reached through a
// link to one.
Status CheckIsFile(const std::filesystem::path& out) {
  const auto file = Bounded<bool>(out, [out]() -> Result<bool> {
    std::error_code ignored;
    const std::filesystem::file_status found = std::filesystem::status(out, ignored);
    return !std::filesystem::exists(found) || std::filesystem::is_regular_file(found);
  });
  EPLOG_TRY(file);
  return *file ? OkStatus()
               : Status(Fail(
                     ErrorCode::kInvalidArgument,
                     fmt::format("nothing written: {} is no file; -o takes a file or a directory",
                                 out.string())));
}

// The path that was written, or that says the same already.
Result<std::filesystem::path> WriteOut(const AssembleCommand& command,
                                       const AssembleFindings& findings) {
  const auto& arrays = findings.found.arrays;
  if (findings.chosen == kNoArray) {
    return Fail(ErrorCode::kInvalidArgument,
                arrays.empty()
                    ? "nothing written: no array was found"
                    : fmt::format("nothing written: there are several arrays; --uuid {} "
                                  "would choose '{}'",
                                  arrays.front().uuid.substr(0, 8), arrays.front().name));
  }
  const auto out = OutPath(command.out);
  EPLOG_TRY(out);
  auto file = FileOf(findings, *out);
  EPLOG_TRY(file);
  if (!arrays[findings.chosen].opens() && (!command.force || file->members.empty())) {
    return Fail(
        ErrorCode::kTooManyFailures,
        fmt::format("nothing written: '{}' cannot be opened from these; --force writes what "
                    "there is",
                    file->name));
  }
  EPLOG_TRY(CheckIsFile(file->file));
  std::error_code ignored;
  const bool there = std::filesystem::exists(std::filesystem::symlink_status(file->file, ignored));
  if (there && ReadText(file->file) == FormatArrayFile(*file)) {
    return file->file;
  }
  if (there && !command.force) {
    return Fail(ErrorCode::kExists,
                fmt::format("nothing written: {} says otherwise; --force overwrites it",
                            file->file.string()));
  }
  EPLOG_TRY(WriteArrayFile(*file));
  return file->file;
}

void PrintFindings(const Json& document) {
  Print(FindingsText(document));
  const Json& arrays = document["arrays"];
  if (arrays.size() > 1 && arrays.front()["chosen"] == false) {
    Print("several arrays: --uuid PREFIX chooses one of them");
  }
  if (document["file"].is_string()) {
    const std::string file = document.value("file", "");
    const std::filesystem::path path(file);
    Print(fmt::format(
        "written to {}\nnext: eplog mount {} DIR", file,
        ShellWord(path.filename() == kArrayFileName ? path.parent_path().string() : file)));
  }
}

Result<int> Assemble(const AssembleCommand& command, IoUringLoop& loop,
                     std::vector<Member>& opened) {
  const auto paths = Gather(command.devices);
  EPLOG_TRY(paths);
  AssembleFindings findings;
  for (const auto& path : *paths) {
    Open(loop, path.string(), opened, findings);
  }
  std::vector<Device*> devices;
  devices.reserve(opened.size());
  for (const Member& member : opened) {
    devices.push_back(member.device.get());
  }
  findings.found = RunTask(loop, ExamineDevices(devices));
  const auto chosen = ChooseArray(findings.found, command.uuid);
  EPLOG_TRY(chosen);
  findings.chosen = *chosen;
  Json document = FindingsToJson(findings);
  document["file"] = nullptr;
  Status written;
  if (!command.out.empty()) {
    auto file = WriteOut(command, findings);
    if (file.ok()) {
      document["file"] = file->string();
    } else {
      written = Fail(std::move(file).error());
    }
  }
  if (command.json) {
    PrintJson(document);
  } else if (!document["devices"].empty()) {
    PrintFindings(document);
  }
  EPLOG_TRY(written);
  if (findings.found.arrays.empty()) {
    return Fail(ErrorCode::kNotFound, "no member of an array is among these devices");
  }
  const int status = FindingsStatus(document);
  if (status == kFailed) {
    const Json& array = document["arrays"].front();
    return Fail(ErrorCode::kTooManyFailures,
                fmt::format("'{}' cannot be opened from these: {}", array.value("name", ""),
                            array.value("why_not", "")));
  }
  return status;
}

// Whatever there is to say is said before devices are let go of, which may hang.
Result<int> RunAssemble(const AssembleCommand& command) {
  std::vector<Member> opened;  // before the loop: what hangs is only let go when that is gone
  const auto loop = IoUringLoop::Create();
  EPLOG_TRY(loop);
  const Result<int> done = Assemble(command, **loop, opened);
  return done.ok() ? *done : ReportError(kVerb, done.error());
}

}  // namespace

void AddAssemble(Parser app, Run& run) {
  auto command = std::make_shared<AssembleCommand>();
  Parser verb = app.AddVerb(
      kVerb,
      "find an array's members among devices and say what is missing, stale or foreign; exit "
      "status 3 if anything is, 1 if it cannot be opened");
  verb.Add("DEV", command->devices, "devices and files, and directories with member files in them")
      .Required();
  verb.Add("-o,--output", command->out,
           "write the array.toml for the members that belong: a file, or a directory")
      .TypeName("FILE");
  verb.Add("--uuid", command->uuid,
           "which array is meant, if there are several: how its UUID begins")
      .TypeName("PREFIX");
  verb.AddFlag("--force", command->force,
               "with -o: overwrite another file, and write for an array that cannot be opened");
  verb.AddFlag("--json", command->json, kJsonHelp);
  verb.Footer(
      "Examples:\n  eplog assemble /dev/sd[b-k]\n"
      "  eplog assemble /mnt/old/array /mnt/shelf/ssd3 -o ./array.toml\n"
      "Nothing on the devices is changed. Without --uuid the only array is meant, or the only one\n"
      "that can be opened; devices of others are foreign to it.");
  verb.OnChosen([command, &run] { run = [command] { return RunAssemble(*command); }; });
}

}  // namespace eplog::cli
