// Every figure of the table is that of its document, beside its own word.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "report/status_json.h"

namespace eplog {
namespace {

// No two figures are alike, so none can stand in the place of another.
Traffic DifferentFigures(uint64_t from) {
  Traffic traffic;
  ForEachCounter(traffic, [&](uint64_t& counter) { counter = from++; });
  return traffic;
}

ArrayStatus DifferentStatus() {
  ArrayStatus status;
  status.uuid = "01234567-89ab-4cde-8f01-23456789abcd";
  status.name = "demo";
  status.level = 7;
  status.data_chunks = 6;
  status.parity_chunks = 3;
  status.chunk_bytes = 8192;
  status.journal = JournalMode::kFull;
  status.state = ArrayState::kActive;
  status.capacity_bytes = 701;
  status.allocated_bytes = 702;
  status.free_bytes = 703;
  status.pending_chunks = 21;
  status.pending_bytes = 704;
  status.oldest_pending_seconds = 1.5;
  status.live_log_stripes = 22;
  status.further_ssd_losses_survived = 3;
  status.further_log_losses_survived = 2;
  status.unstable_bytes = 705;
  status.slots_free_min = 31;
  status.slots_reserved = 32;
  status.log_used_bytes = 800;
  status.log_size_bytes = 1000;
  status.traffic = DifferentFigures(101);
  status.lifetime = DifferentFigures(201);
  status.lifetime.md_equivalent_ssd_bytes = 0;  // nothing to compare with
  status.metadata_bytes = 706;
  status.slots = 42;
  status.pending_entries = 43;
  status.recovery_seconds = 0.25;
  status.recovery_entries_replayed = 51;
  DeviceStatus ssd;
  ssd.name = "ssd0";
  ssd.path = "/dev/a";
  ssd.size_bytes = 61;
  ssd.reads = 62;
  ssd.writes = 63;
  ssd.flushes = 64;
  ssd.bytes_read = 65;
  ssd.bytes_written = 66;
  ssd.latency_us_p99 = 67;
  DeviceStatus log;
  log.name = "log10";
  log.role = DeviceRole::kLog;
  log.state = DeviceState::kMissing;
  log.reads = 1000000;
  status.devices = {ssd, log};
  return status;
}

std::string TableOf(const ArrayStatus& status, const ServingInfo& serving = {}) {
  return StatusTable(StatusToJson(status, serving));
}

bool Says(const std::string& table, const std::string& line) {
  return ("\n" + table).find("\n" + line + "\n") != std::string::npos;
}

TEST(WholeStatusTable, HoldsEachFigureBesideItsWord) {
  EXPECT_EQ(TableOf(DifferentStatus(), {"2024-05-06T07:08:09Z", 77}),
            R"(array demo (01234567-89ab-4cde-8f01-23456789abcd)
  state      active
  layout     3 parities: 6 data + 3 parity, chunk 8.0 KiB, journal full
  capacity   701 B, 702 B allocated, 703 B free
  mounted    since 2024-05-06T07:08:09Z by process 77
devices
  device  state    path    size    reads  writes  flushes  read  written    p99
  ssd0    ok       /dev/a  61 B       62      63       64  65 B     66 B  67 us
  log10   missing  -        0 B  1000000       0        0   0 B      0 B   0 us
exposure
  21 chunks (704 B) await parity commit, the oldest since 1.5 s; 22 log stripes cover them
  705 B acknowledged and not yet flushed
  3 more SSDs may be lost now without losing anything
  2 more log devices may be lost now without losing anything
space
  log        800 B of 1000 B used (80.0 %)
  slots      31 free on the fullest SSD, 32 reserved for new versions
  memory     706 B of metadata for 42 slots and 43 pending
traffic since the array was opened
  user       101 writes (102 B), 103 reads (104 B), 105 flushes, 115 buffer hits
  to SSDs    470 B: data 116 B, parity 117 B, metadata 118 B, repair 119 B
  to logs    chunks 120 B, headers 121 B, in 110 appends
  stripes    106 written whole; 107 log stripes of 108 chunks, 109 dead without commit
  commits    111 of 112 stripes, 113 B read for them; 114 checkpoints
  RAID       by read-modify-write would have written 122 B to the SSDs (we wrote 385.2 % of that)
traffic since create
  user       201 writes (202 B), 203 reads (204 B), 205 flushes, 215 buffer hits
  to SSDs    870 B: data 216 B, parity 217 B, metadata 218 B, repair 219 B
  to logs    chunks 220 B, headers 221 B, in 210 appends
  stripes    206 written whole; 207 log stripes of 208 chunks, 209 dead without commit
  commits    211 of 212 stripes, 213 B read for them; 214 checkpoints
  RAID       by read-modify-write would have written 0 B to the SSDs
recovery took 0.250 s and replayed 51 entries
)");
}

TEST(WholeStatusTable, SaysWhatIsRareOnlyWhenItIsSo) {
  ArrayStatus status = DifferentStatus();
  status.state = ArrayState::kFailed;
  status.read_only = true;
  status.stopped_because = "it is full";
  status.log_size_bytes = 0;  // none is there
  std::string table = TableOf(status);
  EXPECT_TRUE(Says(table, "  state      failed, read-only")) << table;
  EXPECT_TRUE(Says(table, "  STOPPED    acknowledges nothing: it is full")) << table;
  EXPECT_TRUE(Says(table, "  mounted    no")) << table;
  EXPECT_TRUE(Says(table, "  log        800 B of 0 B used (0.0 %)")) << table;
  table = TableOf(DifferentStatus());
  for (const char* rare : {"read-only", "STOPPED", "rebuild "}) {
    EXPECT_EQ(table.find(rare), std::string::npos) << rare << "\n" << table;
  }
}

TEST(WholeStatusTable, OneIsOneAndNoneIsNone) {
  ArrayStatus status = DifferentStatus();
  status.pending_chunks = 1;
  status.live_log_stripes = 1;
  status.further_ssd_losses_survived = 1;
  status.further_log_losses_survived = 0;
  std::string table = TableOf(status);
  EXPECT_TRUE(Says(table,
                   "  1 chunk (704 B) await parity commit, the oldest since 1.5 s; 1 log stripe "
                   "covers them"))
      << table;
  EXPECT_TRUE(Says(table, "  1 more SSD may be lost now without losing anything")) << table;
  EXPECT_TRUE(Says(table, "  losing one more log device now would lose data or stop the array"))
      << table;
  status.pending_chunks = 0;
  table = TableOf(status);
  EXPECT_TRUE(Says(table, "  parity on the SSDs covers every chunk")) << table;
  EXPECT_EQ(table.find("await"), std::string::npos) << table;
}

TEST(WholeStatusTable, DevicesSayWhatIsWrongWithThem) {
  ArrayStatus status = DifferentStatus();
  DeviceStatus& device = status.devices[1];
  const auto notes = [&] {
    const std::string table = TableOf(status);
    const std::string before = "0 us";
    const size_t row = table.find("log10");
    const size_t begin = table.find(before, row) + before.size();
    const std::string rest = table.substr(begin, table.find('\n', begin) - begin);
    return rest.substr(std::min(rest.size(), rest.find_first_not_of(' ')));
  };
  EXPECT_EQ(notes(), "");
  device.direct = false;
  EXPECT_EQ(notes(), "not direct");
  device.failed_because = "it was away";
  EXPECT_EQ(notes(), "it was away, not direct");
  device.corrupt_chunks = 3;
  EXPECT_EQ(notes(), "3 corrupt chunks, it was away, not direct");
  device.write_errors = 2;
  device.read_errors = 1;
  EXPECT_EQ(notes(), "1 read error, 2 write errors, 3 corrupt chunks, it was away, not direct");
}

TEST(WholeStatusTable, AFileThatWasRemovedIsToldWithItsMend) {
  Json status = StatusToJson(DifferentStatus(), {});
  Json& device = status["devices"][1];
  const std::string mend = "its file was removed: replace it while mounted";
  const auto ends = [&](const std::string& words) {
    return StatusTable(status).find("0 us  " + words + "\n") != std::string::npos;
  };
  device["file_removed"] = false;
  EXPECT_EQ(StatusTable(status).find(mend), std::string::npos);
  device["file_removed"] = true;
  EXPECT_TRUE(ends(mend)) << StatusTable(status);
  device["direct"] = false;
  EXPECT_TRUE(ends(mend + ", not direct")) << StatusTable(status);
  device["failed_because"] = "it was away";
  EXPECT_TRUE(ends("it was away, " + mend + ", not direct")) << StatusTable(status);
  device["write_errors"] = 1;
  EXPECT_TRUE(ends("1 write error, it was away, " + mend + ", not direct")) << StatusTable(status);
}

// What may be lost further is counted with them, who are lost with the process.
TEST(WholeStatusTable, FilesThatWereRemovedAreCountedBelowTheFurtherLosses) {
  Json status = StatusToJson(DifferentStatus(), {});
  const auto told = [&](const std::string& words) {
    const std::string table = StatusTable(status);
    const size_t at = table.find("  when the array is unmounted, " + words + "\n");
    return at != std::string::npos && at > table.find("log device") && at < table.find("\nspace\n");
  };
  EXPECT_EQ(StatusTable(status).find("when the array is unmounted"), std::string::npos);
  status["devices"][1]["file_removed"] = true;
  EXPECT_TRUE(told("1 removed file is lost as well")) << StatusTable(status);
  status["devices"][0]["file_removed"] = true;
  EXPECT_TRUE(told("2 removed files are lost as well")) << StatusTable(status);
}

// ---- rebuilding

ArrayStatus Rebuilding(uint64_t total_bytes, uint64_t left_bytes, uint64_t eta_seconds) {
  ArrayStatus status = DifferentStatus();
  status.devices[1].state = DeviceState::kRebuilding;
  status.rebuild_total_bytes = total_bytes;
  status.rebuild_left_bytes = left_bytes;
  status.rebuild_bytes_per_second = 2048;
  status.rebuild_eta_seconds = eta_seconds;
  return status;
}

TEST(RebuildStatus, IsADocumentWhileADeviceIsBeingRebuilt) {
  ArrayStatus status = Rebuilding(1000, 250, 119);
  EXPECT_EQ(StatusToJson(status, {})["rebuild"].dump(),
            R"({"percent":75.0,"eta_seconds":119,"bytes_per_second":2048,"left_bytes":250})");
  status.rebuild_lost_bytes = 5000;
  EXPECT_EQ(StatusToJson(status, {})["rebuild"].value("lost_bytes", 0), 5000);
  status.devices[1].state = DeviceState::kOk;
  EXPECT_TRUE(StatusToJson(status, {})["rebuild"].is_null());
  // Nobody works on it.
  status = Rebuilding(1000, 250, 0);
  status.rebuild_bytes_per_second = 0;
  EXPECT_TRUE(StatusToJson(status, {})["rebuild"]["eta_seconds"].is_null());
  // A log device with nothing to be written to it.
  EXPECT_EQ(StatusToJson(Rebuilding(0, 0, 0), {})["rebuild"].value("percent", 0.0), 100.0);
}

TEST(RebuildStatus, IsALineOfTheTable) {
  ArrayStatus status = Rebuilding(1000, 250, 119);
  EXPECT_TRUE(Says(TableOf(status), "rebuild 75.0 %, 119.0 s to go at 2.0 KiB/s"))
      << TableOf(status);
  EXPECT_EQ(TableOf(status).find("cannot be rebuilt"), std::string::npos);
  status.rebuild_bytes_per_second = 0;
  EXPECT_TRUE(Says(TableOf(status), "rebuild 75.0 %, 250 B to go, at no pace so far"))
      << TableOf(status);
  status.rebuild_lost_bytes = 4096;
  EXPECT_TRUE(
      Says(TableOf(status),
           "  4.0 KiB of it cannot be rebuilt: more of their stripes is wrong or missing than "
           "parity replaces; eplog events names them"))
      << TableOf(status);
}

TEST(RebuildStatus, LongTimesAreInLargerUnits) {
  const auto to_go = [](uint64_t seconds) {
    const std::string table = TableOf(Rebuilding(1000, 250, seconds));
    const std::string before = "rebuild 75.0 %, ";
    const size_t begin = table.find(before) + before.size();
    return table.substr(begin, table.find(" to go") - begin);
  };
  EXPECT_EQ(to_go(0), "0.0 s");
  EXPECT_EQ(to_go(120), "2 min");
  EXPECT_EQ(to_go(600), "10 min");
  EXPECT_EQ(to_go(7199), "120 min");
  EXPECT_EQ(to_go(7200), "2.0 h");
  EXPECT_EQ(to_go(36000), "10.0 h");
}

// ---- rare facts of the document

TEST(RareFacts, AreInTheDocumentOnlyWhenTheyAreSo) {
  ArrayStatus status = DifferentStatus();
  Json json = StatusToJson(status, {});
  EXPECT_FALSE(json["array"].contains("read_only"));
  EXPECT_FALSE(json["devices"][0].contains("direct"));
  status.read_only = true;
  status.devices[0].direct = false;
  json = StatusToJson(status, {});
  EXPECT_EQ(json["array"].value("read_only", false), true);
  EXPECT_EQ(json["devices"][0].value("direct", true), false);
  EXPECT_FALSE(json["devices"][1].contains("direct"));
}

// ---- documents of another version

TEST(ForeignStatus, WhatIsMissingIsZeroOrADash) {
  const std::string table = StatusTable(Json::object());
  EXPECT_TRUE(Says(table, "array - (-)")) << table;
  EXPECT_TRUE(Says(table, "  capacity   0 B, 0 B allocated, 0 B free")) << table;
  EXPECT_TRUE(Says(table, "recovery took 0.000 s and replayed 0 entries")) << table;
  const std::string other =
      StatusTable(Json::parse(R"({"array":{"name":7,"uuid":"","level":"x","capacity_bytes":1.5},)"
                              R"("recovery":{"seconds":2,"entries_replayed":true}})"));
  EXPECT_TRUE(Says(other, "array - (-)")) << other;
  EXPECT_TRUE(Says(other, "  capacity   0 B, 0 B allocated, 0 B free")) << other;
  EXPECT_TRUE(Says(other, "recovery took 2.000 s and replayed 0 entries")) << other;
}

// ---- figures for people

TEST(HumanFigures, EveryUnitHasItsTurn) {
  const char* const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  uint64_t bytes = 1;
  for (const char* unit : units) {
    bytes *= 1024;
    EXPECT_EQ(HumanBytes(bytes), std::string("1.0 ") + unit);
    EXPECT_EQ(HumanBytes(bytes + bytes / 2), std::string("1.5 ") + unit);
  }
}

// None is shown as 1024.0 of a unit: it is 1.0 of the next.
TEST(HumanFigures, TheNextUnitBeginsWhereRoundingWouldReachIt) {
  constexpr auto kPib = static_cast<double>(uint64_t{1} << 50);
  const auto first = static_cast<uint64_t>(1023.95 * kPib);  // to the bit
  EXPECT_EQ(HumanBytes(first), "1.0 EiB");
  EXPECT_EQ(HumanBytes(first - 256), "1023.9 PiB");
}

}  // namespace
}  // namespace eplog
