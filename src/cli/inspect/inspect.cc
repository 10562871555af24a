// eplog inspect: what lies on the disks, in words. Reads only; works on arrays that do not open,
// and on mounted ones.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/inspect/raw_array.h"
#include "cli/inspect/raw_log.h"
#include "cli/inspect/raw_state.h"
#include "cli/inspect/words.h"
#include "cli/verb/verbs.h"
#include "host/device_content.h"
#include "terminal/console.h"
#include "text/suggest.h"
#include "text/units.h"

namespace eplog::cli {
namespace {

constexpr char kVerb[] = "inspect";

struct InspectCommand {
  std::string target;
  std::string what = "superblock";
  std::string argument;
  bool json = false;
};

void PrintLines(std::string text) {
  if (text.ends_with('\n')) {
    text.pop_back();
  }
  Print(text);
}

Status InspectSuperblock(const InspectCommand& command, const RawArray& array) {
  if (command.json) {
    PrintJson(SuperblocksToJson(array));
    return OkStatus();
  }
  const auto identity = array.Identity();
  if (!identity.ok() && array.one_device()) {
    return Fail(identity.error());
  }
  PrintLines(SuperblocksText(array));
  return OkStatus();
}

Status InspectCheckpoint(const InspectCommand& command, const RawArray& array) {
  const auto identity = array.Identity();
  EPLOG_TRY(identity);
  const auto checkpoint = LoadRawCheckpoint(array);
  EPLOG_TRY(checkpoint);
  const auto content = CountCheckpoint(**identity, *checkpoint);
  EPLOG_TRY(content);
  if (command.json) {
    PrintJson(CheckpointToJson(*checkpoint, *content));
  } else {
    PrintLines(CheckpointText(*checkpoint, *content));
  }
  return OkStatus();
}

void PrintEntries(const InspectCommand& command, const std::vector<FoundEntry>& entries,
                  const Geometry& geometry, const std::string& summary, Json head) {
  if (command.json) {
    Json list = Json::array();
    for (const FoundEntry& entry : entries) {
      list.push_back(EntryToJson(entry, geometry));
    }
    head["entries"] = std::move(list);
    PrintJson(head);
    return;
  }
  for (const FoundEntry& entry : entries) {
    PrintLines(EntryText(entry, geometry));
  }
  Print(summary);
}

// Of one device everything that its ring still holds; of an array what recovery would go through.
Status InspectLog(const InspectCommand& command, const RawArray& array) {
  const auto identity = array.Identity();
  EPLOG_TRY(identity);
  const Geometry& geometry = (*identity)->geometry;
  if (array.one_device()) {
    const RawMember& member = array.members().front();
    FoundEntries found;
    EPLOG_TRY(ScanRing(member, **identity, found));
    std::vector<FoundEntry> entries;
    for (auto& [key, entry] : found) {
      entries.push_back(std::move(entry));
    }
    const std::string summary =
        fmt::format("{} entries in the ring of {}, old ones included", entries.size(), member.name);
    PrintEntries(command, entries, geometry, summary, {{"device", member.name}});
    return OkStatus();
  }
  const auto checkpoint = LoadRawCheckpoint(array);
  EPLOG_TRY(checkpoint);
  const auto log = JoinLog(array, checkpoint->root);
  EPLOG_TRY(log);
  const std::string summary = fmt::format(
      "{} entries since checkpoint {} (which covers up to entry {}); stable up to entry {} at "
      "least",
      log->entries.size(), checkpoint->pointer.generation, checkpoint->root.sequence,
      std::max(log->newest_mark, checkpoint->root.sequence));
  PrintEntries(command, log->entries, geometry, summary,
               {{"checkpoint_sequence", checkpoint->root.sequence},
                {"newest_mark", log->newest_mark},
                {"end_place", log->end_place}});
  return OkStatus();
}

struct Replayed {
  const Superblock* identity;
  RawCheckpoint checkpoint;
  JoinedLog log;
};

Result<Replayed> Load(const RawArray& array) {
  const auto identity = array.Identity();
  EPLOG_TRY(identity);
  if (array.one_device()) {
    return Fail(ErrorCode::kInvalidArgument,
                "a row is spread over all devices; name the array instead of one device");
  }
  auto checkpoint = LoadRawCheckpoint(array);
  if (!checkpoint.ok()) {
    return Fail(std::move(checkpoint).error());
  }
  auto log = JoinLog(array, checkpoint->root);
  if (!log.ok()) {
    return Fail(std::move(log).error());
  }
  return Replayed{*identity, std::move(*checkpoint), std::move(*log)};
}

Status ShowRow(const InspectCommand& command, const RawArray& array, const Replayed& replayed,
               StripeIndex stripe, Json json, const std::string& head) {
  const auto row = ReplayRow(*replayed.identity, replayed.checkpoint, replayed.log, stripe);
  EPLOG_TRY(row);
  const Geometry& geometry = replayed.identity->geometry;
  if (command.json) {
    json["row"] = RowToJson(array, geometry, *row);
    PrintJson(json);
  } else {
    PrintLines(head + RowText(array, geometry, *row));
  }
  return OkStatus();
}

Status InspectRow(const InspectCommand& command, const RawArray& array) {
  const auto number = ParseSize(command.argument);
  if (!number.ok()) {
    return Fail(ErrorCode::kInvalidArgument, "row N: say which stripe, 0 and up");
  }
  const auto replayed = Load(array);
  EPLOG_TRY(replayed);
  const uint32_t stripes = replayed->identity->geometry.stripes;
  if (*number >= stripes) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("the array has rows 0 to {}, not {}", stripes - 1, *number));
  }
  return ShowRow(command, array, *replayed, StripeIndex(static_cast<uint32_t>(*number)),
                 Json::object(), "");
}

// Where a byte of a volume lies.
struct BytePlace {
  std::string volume;
  uint64_t offset = 0;
  std::optional<ExtentIndex> extent;  // none: never written
  StripeIndex stripe;
  uint32_t index = 0;  // data chunk of the stripe
};

// VOLUME:OFFSET; a volume's name may have colons.
Result<BytePlace> ParseBytePlace(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) {
    return Fail(ErrorCode::kInvalidArgument,
                "chunk VOLUME:OFFSET: say which, for example chunk data:64K");
  }
  const auto offset = ParseSize(text.substr(colon + 1));
  EPLOG_TRY(offset);
  BytePlace place;
  place.volume = text.substr(0, colon);
  place.offset = *offset;
  return place;
}

Status Locate(const Replayed& replayed, BytePlace& place) {
  const auto volumes = ReplayVolumes(*replayed.identity, replayed.checkpoint, replayed.log);
  EPLOG_TRY(volumes);
  const auto volume =
      std::find_if(volumes->volumes.begin(), volumes->volumes.end(), [&](const auto& entry) {
        return entry.second.name == place.volume && !entry.second.deleting;
      });
  if (volume == volumes->volumes.end()) {
    return Fail(ErrorCode::kNotFound, fmt::format("there is no volume '{}'", place.volume));
  }
  if (place.offset >= volume->second.size_bytes) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("volume '{}' has {} bytes", place.volume, volume->second.size_bytes));
  }
  const Geometry& g = replayed.identity->geometry;
  const auto logical = static_cast<uint32_t>(place.offset / g.extent_data_bytes());
  const auto extent = volumes->extents.find({volume->first, logical});
  if (extent == volumes->extents.end()) {
    return OkStatus();
  }
  const uint64_t within = place.offset % g.extent_data_bytes();
  place.extent = extent->second;
  place.stripe = StripeIndex(extent->second.value * g.extent_stripes +
                             static_cast<uint32_t>(within / g.stripe_data_bytes()));
  place.index = static_cast<uint32_t>(within % g.stripe_data_bytes() / g.chunk_bytes);
  return OkStatus();
}

Status InspectChunk(const InspectCommand& command, const RawArray& array) {
  auto place = ParseBytePlace(command.argument);
  if (!place.ok()) {
    return Fail(std::move(place).error());
  }
  const auto replayed = Load(array);
  EPLOG_TRY(replayed);
  EPLOG_TRY(Locate(*replayed, *place));
  Json json = {{"volume", place->volume}, {"offset_bytes", place->offset}};
  if (!place->extent) {
    json["extent"] = nullptr;
    if (command.json) {
      PrintJson(json);
    } else {
      Print(fmt::format("'{}' byte {} was never written; it reads as zero", place->volume,
                        place->offset));
    }
    return OkStatus();
  }
  const Geometry& g = replayed->identity->geometry;
  json["extent"] = place->extent->value;
  json["stripe"] = place->stripe.value;
  json["data_chunk"] = place->index;
  const std::string head =
      fmt::format("'{}' byte {}: byte {} of data {} of row {}, on {}\n", place->volume,
                  place->offset, place->offset % g.chunk_bytes, place->index, place->stripe.value,
                  g.DeviceName(g.SsdOf(place->stripe, place->index)));
  return ShowRow(command, array, *replayed, place->stripe, std::move(json), head);
}

Status Inspect(const InspectCommand& command) {
  const std::vector<std::string> views = {"superblock", "checkpoint", "log", "row", "chunk"};
  const std::string view = MatchName(command.what, views).value_or("");
  const bool takes_argument = view == "row" || view == "chunk";
  if (view.empty()) {
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "'{}' cannot be inspected; there are: superblock, checkpoint, log, row N, chunk "
            "VOLUME:OFFSET",
            command.what));
  }
  if (!takes_argument && !command.argument.empty()) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{} takes no '{}'", view, command.argument));
  }
  const auto array = RawArray::Open(command.target);
  EPLOG_TRY(array);
  if (view == "superblock") {
    return InspectSuperblock(command, *array);
  }
  if (view == "checkpoint") {
    return InspectCheckpoint(command, *array);
  }
  if (view == "log") {
    return InspectLog(command, *array);
  }
  return view == "row" ? InspectRow(command, *array) : InspectChunk(command, *array);
}

}  // namespace

void AddInspect(Parser app, Run& run) {
  auto command = std::make_shared<InspectCommand>();
  Parser verb =
      app.AddVerb(kVerb, "what lies on the disks, in words; reads only, also while mounted");
  verb.Add("ARRAY|DEVICE", command->target, "an array, or one of its devices").Required();
  verb.Add("WHAT", command->what,
           "superblock (the default), checkpoint, log, row N, chunk VOLUME:OFFSET");
  verb.Add("WHICH", command->argument, "N or VOLUME:OFFSET");
  verb.AddFlag("--json", command->json, kJsonHelp);
  verb.Footer(
      "Examples:\n  eplog inspect ./array\n  eplog inspect ./array/log0 log\n"
      "  eplog inspect ./array chunk data:64K");
  verb.OnChosen([command, &run] {
    run = [command]() -> Result<int> {
      EPLOG_TRY(Inspect(*command));
      return kDone;
    };
  });
}

}  // namespace eplog::cli
