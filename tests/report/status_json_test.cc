// The status document holds every promised name, in the promised order, and the table shows the
// same facts.
#include "report/status_json.h"

#include <gtest/gtest.h>

#include <string>

namespace eplog {
namespace {

Traffic CountedTraffic(uint64_t base) {
  Traffic t;
  uint64_t* const fields[] = {&t.user_writes,
                              &t.user_bytes_written,
                              &t.user_reads,
                              &t.user_bytes_read,
                              &t.user_flushes,
                              &t.full_stripe_writes,
                              &t.log_stripes,
                              &t.log_stripe_members,
                              &t.log_stripes_dead_early,
                              &t.log_appends,
                              &t.commits,
                              &t.committed_stripes,
                              &t.commit_read_bytes,
                              &t.checkpoints,
                              &t.buffer_hits,
                              &t.ssd_data_bytes,
                              &t.ssd_parity_bytes,
                              &t.ssd_metadata_bytes,
                              &t.ssd_repair_bytes,
                              &t.log_chunk_bytes,
                              &t.log_header_bytes,
                              &t.md_equivalent_ssd_bytes,
                              &t.user_trims,
                              &t.user_bytes_trimmed};
  for (uint64_t* field : fields) {
    *field = ++base;
  }
  return t;
}

ArrayStatus Example() {
  ArrayStatus s;
  s.uuid = "01234567-89ab-4cde-8f01-23456789abcd";
  s.name = "demo";
  s.level = 6;
  s.data_chunks = 6;
  s.parity_chunks = 2;
  s.chunk_bytes = 4096;
  s.journal = JournalMode::kLog;
  s.state = ArrayState::kDegraded;
  s.capacity_bytes = uint64_t{3} << 40;
  s.allocated_bytes = uint64_t{5} << 30;
  s.free_bytes = 1234567;
  DeviceStatus ssd;
  ssd.name = "ssd0";
  ssd.path = "/dev/nvme0n1";
  ssd.size_bytes = uint64_t{1} << 40;
  ssd.reads = 11;
  ssd.writes = 12;
  ssd.flushes = 13;
  ssd.bytes_read = 14;
  ssd.bytes_written = 15;
  ssd.read_errors = 1;
  ssd.write_errors = 0;
  ssd.corrupt_chunks = 2;
  ssd.latency_us_p99 = 180;
  DeviceStatus log;
  log.name = "log0";
  log.role = DeviceRole::kLog;
  log.state = DeviceState::kMissing;
  s.devices = {ssd, log};
  s.pending_chunks = 21;
  s.pending_bytes = 21 * 4096;
  s.oldest_pending_seconds = 1.5;
  s.live_log_stripes = 5;
  s.further_ssd_losses_survived = 2;
  s.further_log_losses_survived = 0;
  s.unstable_bytes = 8192;
  s.slots_free_min = 31;
  s.slots_reserved = 32;
  s.log_used_bytes = 33;
  s.log_size_bytes = 34;
  s.traffic = CountedTraffic(100);
  s.lifetime = CountedTraffic(200);
  s.metadata_bytes = 41;
  s.slots = 42;
  s.pending_entries = 43;
  s.recovery_seconds = 0.25;
  s.recovery_entries_replayed = 51;
  return s;
}

std::string TrafficText(int first) {
  static const char* const kNames[] = {"user_writes",
                                       "user_bytes_written",
                                       "user_reads",
                                       "user_bytes_read",
                                       "user_flushes",
                                       "full_stripe_writes",
                                       "log_stripes",
                                       "log_stripe_members",
                                       "log_stripes_dead_early",
                                       "log_appends",
                                       "commits",
                                       "committed_stripes",
                                       "commit_read_bytes",
                                       "checkpoints",
                                       "buffer_hits",
                                       "ssd_data_bytes",
                                       "ssd_parity_bytes",
                                       "ssd_metadata_bytes",
                                       "ssd_repair_bytes",
                                       "log_chunk_bytes",
                                       "log_header_bytes",
                                       "md_equivalent_ssd_bytes",
                                       "user_trims",
                                       "user_bytes_trimmed"};
  std::string text = "{";
  for (const char* name : kNames) {
    text += (text.size() > 1 ? ",\"" : "\"") + std::string(name) + "\":" + std::to_string(first++);
  }
  return text + "}";
}

// Said beside "ok" it would be taken for what is so now.
TEST(StatusJson, WhyADeviceWasLostIsSaidUntilItIsWellAgain) {
  DeviceStatus ssd;
  ssd.failed_because = "it was away";
  for (const auto state : {DeviceState::kFailed, DeviceState::kMissing, DeviceState::kRebuilding}) {
    ssd.state = state;
    EXPECT_EQ(DeviceToJson(ssd).value("failed_because", ""), "it was away");
  }
  ssd.state = DeviceState::kOk;
  EXPECT_FALSE(DeviceToJson(ssd).contains("failed_because"));
}

TEST(StatusJson, GoldenDocument) {
  const std::string want =
      R"({"array":{"uuid":"01234567-89ab-4cde-8f01-23456789abcd","name":"demo","level":6,)"
      R"("data_chunks":6,"parity_chunks":2,"chunk_bytes":4096,"journal":"log","state":"degraded",)"
      R"("capacity_bytes":3298534883328,"allocated_bytes":5368709120,"free_bytes":1234567,)"
      R"("mounted_at":"2024-05-06T07:08:09Z","pid":77},)"
      R"("devices":[{"name":"ssd0","path":"/dev/nvme0n1","role":"ssd","state":"ok",)"
      R"("size_bytes":1099511627776,"reads":11,"writes":12,"flushes":13,"bytes_read":14,)"
      R"("bytes_written":15,"read_errors":1,"write_errors":0,"corrupt_chunks":2,)"
      R"("latency_us_p99":180},)"
      R"({"name":"log0","path":"","role":"log","state":"missing","size_bytes":0,"reads":0,)"
      R"("writes":0,"flushes":0,"bytes_read":0,"bytes_written":0,"read_errors":0,)"
      R"("write_errors":0,"corrupt_chunks":0,"latency_us_p99":0}],)"
      R"("exposure":{"pending_chunks":21,"pending_bytes":86016,"oldest_pending_seconds":1.5,)"
      R"("log_stripes":5,"further_ssd_losses_survived":2,"further_log_losses_survived":0,)"
      R"("unstable_bytes":8192},)"
      R"("space":{"slots_free_min":31,"slots_reserved":32,"log_used_bytes":33,)"
      R"("log_size_bytes":34},)"
      R"("traffic":)" +
      TrafficText(101) +
      R"(,"memory":{"metadata_bytes":41,"slots":42,"pending":43},)"
      R"("recovery":{"seconds":0.25,"entries_replayed":51},"rebuild":null,"lifetime":)" +
      TrafficText(201) + "}";
  EXPECT_EQ(StatusToJson(Example(), {"2024-05-06T07:08:09Z", 77}).dump(), want);
}

TEST(StatusJson, NotMountedIsNull) {
  const Json json = StatusToJson(Example(), {});
  EXPECT_TRUE(json["array"]["mounted_at"].is_null());
  EXPECT_TRUE(json["array"]["pid"].is_null());
  EXPECT_FALSE(json["array"].contains("stopped_because"));
}

TEST(StatusJson, StoppedArraySaysWhy) {
  ArrayStatus status = Example();
  status.stopped_because = "no space on the disk below ssd1";
  const Json json = StatusToJson(status, {});
  EXPECT_EQ(json["array"]["stopped_because"], "no space on the disk below ssd1");
  EXPECT_NE(StatusTable(json).find("no space on the disk below ssd1"), std::string::npos);
}

TEST(StatusTable, ShowsTheSameFacts) {
  const std::string table = StatusTable(StatusToJson(Example(), {"2024-05-06T07:08:09Z", 77}));
  for (const char* fact :
       {"array demo (01234567-89ab-4cde-8f01-23456789abcd)", "degraded",
        "RAID-6: 6 data + 2 parity, chunk 4.0 KiB, journal log", "3.0 TiB", "5.0 GiB", "1.2 MiB",
        "since 2024-05-06T07:08:09Z by process 77", "/dev/nvme0n1",
        "1 read error, 2 corrupt chunks", "missing", "180 us",
        "21 chunks (84.0 KiB) await parity commit, the oldest since 1.5 s", "5 log stripes",
        "2 more SSDs may be lost", "losing one more log device now",
        "8.0 KiB acknowledged and not yet flushed", "replayed 51 entries"}) {
    EXPECT_NE(table.find(fact), std::string::npos) << fact << "\n" << table;
  }
}

TEST(StatusTable, ForeignDocumentsDoNoHarm) {
  EXPECT_FALSE(StatusTable(Json()).empty());
  EXPECT_FALSE(StatusTable(Json::parse(R"({"array":7,"devices":[1,"x"],"traffic":null})")).empty());
}

TEST(HumanBytes, RoundsToOneDigit) {
  EXPECT_EQ(HumanBytes(0), "0 B");
  EXPECT_EQ(HumanBytes(1023), "1023 B");
  EXPECT_EQ(HumanBytes(1024), "1.0 KiB");
  EXPECT_EQ(HumanBytes((uint64_t{1} << 20) - 1), "1.0 MiB");
  EXPECT_EQ(HumanBytes(uint64_t{1536} << 20), "1.5 GiB");
  EXPECT_EQ(HumanBytes(UINT64_MAX), "16.0 EiB");
}

}  // namespace
}  // namespace eplog
