#include "cli/inspect/words.h"

#include <fmt/format.h>

#include <iterator>
#include <variant>

#include "format/content_checksum.h"
#include "host/device_content.h"
#include "report/status_json.h"
#include "terminal/console.h"
#include "text/units.h"

namespace eplog::cli {
namespace {

const char* MemberStateName(MemberState state) {
  switch (state) {
    case MemberState::kOk:
      return "ok";
    case MemberState::kLost:
      return "lost";
    case MemberState::kJoining:
      return "joining";
    case MemberState::kFailed:
      return "failed";
    case MemberState::kReturning:
      return "returning";
  }
  return "unknown";
}

Json PointerToJson(const CheckpointPointer& pointer) {
  if (pointer.generation == 0) {
    return nullptr;
  }
  return {{"generation", pointer.generation},
          {"root_block", pointer.root_block},
          {"root_blocks", pointer.root_blocks},
          {"ssds", SsdNames(pointer.ssd_mask)}};
}

Json GeometryToJson(const Geometry& g) {
  return {{"ssds", g.n},
          {"parity_chunks", g.m},
          {"chunk_bytes", g.chunk_bytes},
          {"stripes", g.stripes},
          {"slots", g.slots},
          {"extent_stripes", g.extent_stripes},
          {"metadata_offset_bytes", g.metadata_offset_bytes},
          {"metadata_blocks", g.metadata_blocks},
          {"ring_offset_bytes", g.ring_offset_bytes},
          {"ring_blocks", g.ring_blocks},
          {"slots_offset_bytes", g.slots_offset_bytes},
          {"log_offset_bytes", g.log_offset_bytes},
          {"log_blocks", g.log_blocks}};
}

Json SuperblockToJson(const Superblock& superblock) {
  Json members = Json::array();
  for (size_t i = 0; i < superblock.members.size(); ++i) {
    const MemberEntry& member = superblock.members[i];
    members.push_back(
        {{"name", superblock.geometry.DeviceName(DeviceIndex(static_cast<uint8_t>(i)))},
         {"uuid", UuidToString(member.uuid)},
         {"state", MemberStateName(member.state)},
         {"joined_epoch", member.joined}});
  }
  return {{"version", superblock.version},
          {"array_uuid", UuidToString(superblock.array_uuid)},
          {"array_name", superblock.name},
          {"device_uuid", UuidToString(superblock.device_uuid)},
          {"device", superblock.DeviceName()},
          {"journal", JournalModeName(static_cast<JournalMode>(superblock.journal_mode))},
          {"generation", superblock.generation},
          {"epoch", EpochToJson(superblock.epoch)},
          {"base", EpochToJson(superblock.base)},
          {"base_on_rings", superblock.base_on_rings},
          {"checkpoint", PointerToJson(superblock.checkpoint)},
          {"geometry", GeometryToJson(superblock.geometry)},
          {"members", std::move(members)}};
}

std::string GeometryText(const Superblock& superblock) {
  const Geometry& g = superblock.geometry;
  std::string out;
  const auto to = std::back_inserter(out);
  fmt::format_to(to, "array '{}'  {}\n", superblock.name, UuidToString(superblock.array_uuid));
  fmt::format_to(to, "  {} data + {} parity chunks of {}, journal {}, format version {}\n", g.k(),
                 g.m, TypedSize(g.chunk_bytes),
                 JournalModeName(static_cast<JournalMode>(superblock.journal_mode)),
                 superblock.version);
  fmt::format_to(to, "  {} stripes in extents of {}, {} slots on each SSD\n", g.stripes,
                 g.extent_stripes, g.slots);
  fmt::format_to(to,
                 "  SSD: metadata at {} ({} blocks), journal ring at {} ({} blocks), slots at {}\n",
                 g.metadata_offset_bytes, g.metadata_blocks, g.ring_offset_bytes, g.ring_blocks,
                 g.slots_offset_bytes);
  fmt::format_to(to, "  log device: ring at {} ({} blocks)\n", g.log_offset_bytes, g.log_blocks);
  return out;
}

std::string CopyText(const Superblock& superblock) {
  const CheckpointPointer& pointer = superblock.checkpoint;
  std::string lost;
  for (size_t i = 0; i < superblock.members.size(); ++i) {
    if (superblock.members[i].state != MemberState::kOk) {
      lost += fmt::format(", {} {}",
                          superblock.geometry.DeviceName(DeviceIndex(static_cast<uint8_t>(i))),
                          MemberStateName(superblock.members[i].state));
    }
  }
  return fmt::format("generation {}, epoch {}, base {}{}, {}{}", superblock.generation,
                     EpochText(superblock.epoch), EpochText(superblock.base),
                     superblock.base_on_rings ? " (on the rings)" : "",
                     pointer.generation == 0
                         ? "no checkpoint"
                         : fmt::format("checkpoint {} at block {} of {}", pointer.generation,
                                       pointer.root_block, SsdNames(pointer.ssd_mask)),
                     lost);
}

std::string RecordText(const VolumeRecord& record) {
  struct Words {
    std::string operator()(const VolumeCreated& r) const {
      return fmt::format("volume {} created: '{}', {}", r.id.value, r.name,
                         HumanBytes(r.size_bytes));
    }
    std::string operator()(const VolumeResized& r) const {
      return fmt::format("volume {} resized to {}", r.id.value, HumanBytes(r.size_bytes));
    }
    std::string operator()(const VolumeRenamed& r) const {
      return fmt::format("volume {} renamed to '{}'", r.id.value, r.name);
    }
    std::string operator()(const VolumeDeleted& r) const {
      return fmt::format("volume {} deleted", r.id.value);
    }
    std::string operator()(const ExtentAssigned& r) const {
      return fmt::format("extent {} is extent {} of volume {}", r.extent.value, r.logical,
                         r.id.value);
    }
    std::string operator()(const ExtentsFreed& r) const {
      return r.count == 1 ? fmt::format("extent {} freed", r.first.value)
                          : fmt::format("extents {} to {} freed", r.first.value,
                                        r.first.value + r.count - 1);
    }
  };
  return std::visit(Words{}, record);
}

std::string RecordText(const RowRecord& record, const EntryHeader& entry, const Geometry& g) {
  std::string out = fmt::format("row {} installed:", record.stripe.value);
  for (const RowChange& change : record.changes) {
    const std::string where = g.DeviceName(g.SsdOf(record.stripe, change.index));
    const bool data = change.index < g.k();
    out += fmt::format(" {}{}={} {}", data ? "d" : "p", data ? change.index : change.index - g.k(),
                       where, WordText(change.word));
    if (data && change.version != entry.sequence && change.version != 0) {
      out += fmt::format(" (version {})", change.version);
    }
  }
  return out;
}

std::string RecordText(const TrimRecord& record, const Geometry& g) {
  if (const auto* stripes = std::get_if<StripesTrimmed>(&record)) {
    return stripes->count == 1 ? fmt::format("row {} trimmed", stripes->first.value)
                               : fmt::format("rows {} to {} trimmed", stripes->first.value,
                                             stripes->first.value + stripes->count - 1);
  }
  const auto& chunks = std::get<ChunksTrimmed>(record);
  const uint32_t first = g.IndexInStripe(chunks.first);
  return fmt::format("row {} d{}{} trimmed", g.StripeOf(chunks.first).value, first,
                     chunks.count == 1 ? "" : fmt::format(" to d{}", first + chunks.count - 1));
}

std::string RecordText(const LogStripeRecord& record, const Geometry& g) {
  std::string out = fmt::format("log stripe of {}:", record.members.size());
  for (const LogStripeMember& member : record.members) {
    out += fmt::format(" row {} d{}={} {}", g.StripeOf(member.chunk).value,
                       g.IndexInStripe(member.chunk), g.DeviceName(g.SsdOf(member.chunk)),
                       WordText(member.word));
  }
  return out;
}

std::string Joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) {
    out += (out.empty() ? "" : ", ") + word;
  }
  return out;
}

}  // namespace

Json EpochToJson(const Epoch& epoch) {
  return {{"number", epoch.number}, {"random", epoch.random}};
}

std::string EpochText(const Epoch& epoch) {
  return fmt::format("{}/{:04x}", epoch.number, epoch.random & 0xFFFF);
}

Json SuperblocksToJson(const RawArray& array) {
  Json list = Json::array();
  for (const RawMember& member : array.members()) {
    Json entry = {{"name", member.name}, {"path", member.path.string()}};
    if (!member.error.empty()) {
      entry["error"] = member.error;
      list.push_back(std::move(entry));
      continue;
    }
    for (size_t copy = 0; copy < 2; ++copy) {
      const auto& superblock = member.copies[copy];
      Json json = superblock.ok() ? SuperblockToJson(*superblock)
                                  : Json{{"error", superblock.error().ToString()}};
      json["holds"] = superblock.ok() && &*superblock == member.superblock();
      entry["copies"].push_back(std::move(json));
    }
    list.push_back(std::move(entry));
  }
  return list;
}

std::string SuperblocksText(const RawArray& array) {
  std::string out;
  const auto to = std::back_inserter(out);
  const auto identity = array.Identity();
  if (identity.ok()) {
    out += GeometryText(**identity);
  }
  for (const RawMember& member : array.members()) {
    fmt::format_to(to, "{}  {}\n", Paint(Colour::kBold, member.name), member.path.string());
    if (!member.error.empty()) {
      fmt::format_to(to, "  {}\n", Paint(Colour::kRed, member.error));
      continue;
    }
    const Superblock* holds = member.superblock();
    if (holds != nullptr && identity.ok() && holds->array_uuid != (*identity)->array_uuid) {
      fmt::format_to(to, "  {}: '{}' {}\n", Paint(Colour::kRed, "belongs to another array"),
                     holds->name, UuidToString(holds->array_uuid));
    }
    for (size_t copy = 0; copy < 2; ++copy) {
      const auto& superblock = member.copies[copy];
      fmt::format_to(to, "  copy {}: {}{}\n", copy == 0 ? 'A' : 'B',
                     superblock.ok() ? CopyText(*superblock)
                                     : Paint(Colour::kYellow, superblock.error().ToString()),
                     superblock.ok() && &*superblock == holds ? "  <- holds" : "");
    }
  }
  return out;
}

Json CheckpointToJson(const RawCheckpoint& checkpoint, const CheckpointContent& content) {
  Json runs = Json::array();
  for (const RunDescriptor& run : checkpoint.root.runs) {
    runs.push_back({{"full", run.full},
                    {"ssds", SsdNames(run.ssd_mask)},
                    {"first_block", run.first_block},
                    {"blocks", run.blocks},
                    {"bytes", run.stream_bytes}});
  }
  Json volumes = Json::array();
  for (const auto& [id, volume] : content.volumes.volumes) {
    volumes.push_back({{"id", id.value},
                       {"name", volume.name},
                       {"size_bytes", volume.size_bytes},
                       {"extents", volume.extents},
                       {"deleting", volume.deleting}});
  }
  return {{"pointer", PointerToJson(checkpoint.pointer)},
          {"epoch", EpochToJson(checkpoint.root.epoch)},
          {"sequence", checkpoint.root.sequence},
          {"place", checkpoint.root.place},
          {"next_volume_id", checkpoint.root.next_volume_id},
          {"runs", std::move(runs)},
          {"rows", content.rows},
          {"words_in_slots", content.words_in_slots},
          {"words_absent", content.words_absent},
          {"log_stripes", content.log_stripes},
          {"pending_chunks", content.pending_chunks},
          {"volumes", std::move(volumes)}};
}

std::string CheckpointText(const RawCheckpoint& checkpoint, const CheckpointContent& content) {
  std::string out;
  const auto to = std::back_inserter(out);
  const CheckpointPointer& pointer = checkpoint.pointer;
  fmt::format_to(to, "checkpoint {}: root at block {} of the metadata area of {}\n",
                 pointer.generation, pointer.root_block, SsdNames(pointer.ssd_mask));
  fmt::format_to(to, "  the state after entry {} of epoch {}; the log goes on at place {}\n",
                 checkpoint.root.sequence, EpochText(checkpoint.root.epoch), checkpoint.root.place);
  for (const RunDescriptor& run : checkpoint.root.runs) {
    fmt::format_to(to, "  {} run: {} in {} blocks from block {} on, on {}\n",
                   run.full ? "full" : "incremental", HumanBytes(run.stream_bytes), run.blocks,
                   run.first_block, SsdNames(run.ssd_mask));
  }
  fmt::format_to(
      to,
      "  {} rows with {} chunks in slots, {} absent; {} live log stripes with {} pending chunks\n",
      content.rows, content.words_in_slots, content.words_absent, content.log_stripes,
      content.pending_chunks);
  for (const auto& [id, volume] : content.volumes.volumes) {
    fmt::format_to(to, "  volume {}: '{}', {}, {} extents{}\n", id.value, volume.name,
                   HumanBytes(volume.size_bytes), volume.extents,
                   volume.deleting ? ", being deleted" : "");
  }
  return out;
}

Json EntryToJson(const FoundEntry& entry, const Geometry& geometry) {
  const EntryHeader& header = entry.header;
  Json records = Json::array();
  for (const VolumeRecord& record : header.volumes) {
    records.push_back(RecordText(record));
  }
  for (const RowRecord& record : header.rows) {
    records.push_back(RecordText(record, header, geometry));
  }
  for (const TrimRecord& record : header.trims) {
    records.push_back(RecordText(record, geometry));
  }
  for (const LogStripeRecord& record : header.log_stripes) {
    records.push_back(RecordText(record, geometry));
  }
  Json json = {{"sequence", header.sequence},
               {"epoch", EpochToJson(header.epoch)},
               {"place", header.place},
               {"blocks", header.length_blocks},
               {"mark", header.mark}};
  if (header.first_of_epoch) {
    json["follows"] = {{"epoch", EpochToJson(header.follows_epoch)},
                       {"sequence", header.follows_sequence}};
  }
  json["copies"] = entry.copies;
  json["records"] = std::move(records);
  return json;
}

std::string EntryText(const FoundEntry& entry, const Geometry& geometry) {
  const EntryHeader& header = entry.header;
  std::string out = fmt::format(
      "{} {}  epoch {}, place {}, {} block{}, mark {}, on {}", Paint(Colour::kBold, "entry"),
      header.sequence, EpochText(header.epoch), header.place, header.length_blocks,
      header.length_blocks == 1 ? "" : "s", header.mark, Joined(entry.copies));
  if (header.first_of_epoch) {
    out += fmt::format("\n  first of its epoch, follows entry {} of epoch {}",
                       header.follows_sequence, EpochText(header.follows_epoch));
  }
  for (const VolumeRecord& record : header.volumes) {
    out += "\n  " + RecordText(record);
  }
  for (const RowRecord& record : header.rows) {
    out += "\n  " + RecordText(record, header, geometry);
  }
  for (const TrimRecord& record : header.trims) {
    out += "\n  " + RecordText(record, geometry);
  }
  for (const LogStripeRecord& record : header.log_stripes) {
    out += "\n  " + RecordText(record, geometry);
  }
  return out + "\n";
}

const char* ContentStateName(ContentState state) {
  switch (state) {
    case ContentState::kRight:
      return "right";
    case ContentState::kWrong:
      return "wrong";
    case ContentState::kUnreadable:
      return "unreadable";
    case ContentState::kNone:
      return "none";
  }
  return "unknown";
}

ContentState CheckContent(const RawArray& array, const Geometry& geometry, DeviceIndex ssd,
                          SlotWord word, uint32_t crc) {
  if (!word.has_slot()) {
    return ContentState::kNone;
  }
  const RawMember* member = array.ByIndex(ssd);
  if (member == nullptr) {
    return ContentState::kUnreadable;
  }
  const auto bytes = ReadBytes(*member, geometry.SlotOffset(word.slot()), geometry.chunk_bytes);
  if (!bytes.ok()) {
    return ContentState::kUnreadable;
  }
  const Superblock& superblock = *member->superblock();
  const ContentChecksum checksum(superblock.version, superblock.array_uuid);
  return checksum(*bytes) == crc ? ContentState::kRight : ContentState::kWrong;
}

Json RowToJson(const RawArray& array, const Geometry& geometry, const RawRow& row) {
  Json chunks = Json::array();
  const auto place = [&](DeviceIndex ssd, SlotWord word, uint32_t crc) {
    return Json{
        {"ssd", geometry.DeviceName(ssd)},
        {"word", WordText(word)},
        {"offset_bytes", word.has_slot() ? Json(geometry.SlotOffset(word.slot())) : Json(nullptr)},
        {"checksum", crc},
        {"content", ContentStateName(CheckContent(array, geometry, ssd, word, crc))}};
  };
  for (uint32_t i = 0; i < geometry.n; ++i) {
    const DeviceIndex ssd = geometry.SsdOf(row.stripe, i);
    Json chunk = {{"position", i}, {"kind", i < geometry.k() ? "data" : "parity"}};
    chunk["committed"] = place(ssd, row.words[i].word, row.words[i].crc);
    const auto pending = row.pending.find(i);
    if (pending != row.pending.end()) {
      chunk["pending"] = place(ssd, pending->second.word, pending->second.crc);
      chunk["pending"]["version"] = pending->second.version;
    }
    chunks.push_back(std::move(chunk));
  }
  return {{"stripe", row.stripe.value}, {"chunks", std::move(chunks)}, {"history", row.history}};
}

std::string RowText(const RawArray& array, const Geometry& geometry, const RawRow& row) {
  std::string out = fmt::format("row {}\n", row.stripe.value);
  const auto to = std::back_inserter(out);
  const auto content = [&](DeviceIndex ssd, SlotWord word, uint32_t crc) -> std::string {
    const ContentState state = CheckContent(array, geometry, ssd, word, crc);
    if (state == ContentState::kNone) {
      return "";
    }
    const std::string text = fmt::format("content {}", ContentStateName(state));
    return fmt::format(" at byte {}, CRC {:08x}, {}", geometry.SlotOffset(word.slot()), crc,
                       state == ContentState::kRight ? text : Paint(Colour::kRed, text));
  };
  for (uint32_t i = 0; i < geometry.n; ++i) {
    const DeviceIndex ssd = geometry.SsdOf(row.stripe, i);
    const bool data = i < geometry.k();
    fmt::format_to(to, "  {:<6} {:<2} {:<6} {}{}\n", data ? "data" : "parity",
                   data ? i : i - geometry.k(), geometry.DeviceName(ssd),
                   WordText(row.words[i].word), content(ssd, row.words[i].word, row.words[i].crc));
    const auto pending = row.pending.find(i);
    if (pending != row.pending.end()) {
      fmt::format_to(
          to, "            pending: {}{}, since entry {}\n", WordText(pending->second.word),
          content(ssd, pending->second.word, pending->second.crc), pending->second.version);
    }
  }
  for (const std::string& step : row.history) {
    fmt::format_to(to, "  {}\n", step);
  }
  return out;
}

}  // namespace eplog::cli
