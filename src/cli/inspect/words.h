// What lies on the disks, in words and as JSON: the two forms of everything that `inspect` shows.
#pragma once

#include <string>

#include "cli/inspect/raw_array.h"
#include "cli/inspect/raw_log.h"
#include "cli/inspect/raw_state.h"
#include "report/json.h"

namespace eplog::cli {

Json EpochToJson(const Epoch& epoch);
std::string EpochText(const Epoch& epoch);

// Both copies of every member.
Json SuperblocksToJson(const RawArray& array);
std::string SuperblocksText(const RawArray& array);

Json CheckpointToJson(const RawCheckpoint& checkpoint, const CheckpointContent& content);
std::string CheckpointText(const RawCheckpoint& checkpoint, const CheckpointContent& content);

Json EntryToJson(const FoundEntry& entry, const Geometry& geometry);
// One line, then one for each record.
std::string EntryText(const FoundEntry& entry, const Geometry& geometry);

// How a chunk's content compares with its CRC.
enum class ContentState { kRight, kWrong, kUnreadable, kNone };
const char* ContentStateName(ContentState state);
// Reads and checks the chunk behind a word.
ContentState CheckContent(const RawArray& array, const Geometry& geometry, DeviceIndex ssd,
                          SlotWord word, uint32_t crc);

Json RowToJson(const RawArray& array, const Geometry& geometry, const RawRow& row);
std::string RowText(const RawArray& array, const Geometry& geometry, const RawRow& row);

}  // namespace eplog::cli
