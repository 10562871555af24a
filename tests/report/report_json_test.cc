// What a check or a look for losses found is told whole, each figure under its own name.
#include "report/report_json.h"

#include <gtest/gtest.h>

#include <string>

namespace eplog {
namespace {

Finding Found(std::string device, std::string volume, uint64_t offset_bytes, std::string what,
              Finding::Outcome outcome) {
  return {std::move(device), std::move(volume), offset_bytes, std::move(what), outcome};
}

// No two figures are alike.
CheckReport DifferentReport() {
  CheckReport report;
  report.first_stripe = 1;
  report.rows_checked = 2;
  report.chunks_checked = 3;
  report.parity_checked = 4;
  report.log_stripes_checked = 5;
  report.metadata_blocks_checked = 6;
  report.problems_found = 7;
  report.problems_found_before = 8;
  report.healed = 9;
  report.lost = 10;
  report.findings = {Found("ssd1", "disk", 8192, "wrong", Finding::Outcome::kHealed),
                     Found("log0", "", 4096, "unreadable", Finding::Outcome::kLeft),
                     Found("", "v", 0, "gone", Finding::Outcome::kLost)};
  return report;
}

ArrayStatus WholeArray() {
  ArrayStatus status;
  status.state = ArrayState::kClean;
  status.devices.resize(3);
  status.devices[0].name = "ssd0";
  status.devices[1].name = "log0";
  status.devices[1].role = DeviceRole::kLog;
  status.devices[2].name = "spare0";
  status.devices[2].role = DeviceRole::kSpare;
  return status;
}

TEST(ReportJson, TellsEachFigureAndEachFinding) {
  EXPECT_EQ(
      ReportToJson(DifferentReport(), WholeArray()).dump(),
      R"({"first_stripe":1,"rows_checked":2,"chunks_checked":3,"parity_checked":4,)"
      R"("log_stripes_checked":5,"metadata_blocks_checked":6,"problems_found":7,)"
      R"("problems_found_before":8,"healed":9,"lost":10,"degraded":false,"devices_not_ok":[],)"
      R"("problems":["ssd1: volume 'disk' offset 8192: wrong; healed","log0: unreadable",)"
      R"("volume 'v' offset 0: gone; it cannot be decoded"],)"
      R"("findings":[{"device":"ssd1","volume":"disk","offset_bytes":8192,"what":"wrong",)"
      R"("outcome":"healed"},)"
      R"({"device":"log0","volume":null,"offset_bytes":null,"what":"unreadable",)"
      R"("outcome":"left"},)"
      R"({"device":null,"volume":"v","offset_bytes":0,"what":"gone","outcome":"lost"}]})");
}

// What is missing could not be verified.
TEST(ReportJson, SaysWhichMembersAreNotWhole) {
  ArrayStatus status = WholeArray();
  status.state = ArrayState::kRebuilding;
  status.devices[0].state = DeviceState::kRebuilding;
  status.devices[1].state = DeviceState::kFailed;
  status.devices[1].failed_because = "it was away";
  status.devices[2].state = DeviceState::kMissing;  // a spare is no member
  EXPECT_EQ(ReportToJson(CheckReport(), status)["devices_not_ok"].dump(),
            R"([{"name":"ssd0","state":"rebuilding","failed_because":null},)"
            R"({"name":"log0","state":"failed","failed_because":"it was away"}])");
}

TEST(ReportJson, IsDegradedUnlessTheArrayIsWhole) {
  const auto degraded = [](ArrayState state) {
    ArrayStatus status = WholeArray();
    status.state = state;
    return ReportToJson(CheckReport(), status)["degraded"].get<bool>();
  };
  EXPECT_FALSE(degraded(ArrayState::kClean));
  EXPECT_FALSE(degraded(ArrayState::kActive));
  EXPECT_TRUE(degraded(ArrayState::kDegraded));
  EXPECT_TRUE(degraded(ArrayState::kRebuilding));
  EXPECT_TRUE(degraded(ArrayState::kFailed));
}

TEST(LossJson, TellsEachRange) {
  LossReport report;
  EXPECT_EQ(LossToJson(report).dump(),
            R"({"lost_bytes":0,"lost":[],"log_damage":null,"unsure":null,"left_behind":false})");
  report.lost_bytes = 12288;
  report.ranges = {{"a", 4096, 8192}, {"b", 0, 4096}};
  report.log_damage = "its end is lost";
  report.unsure = "ssd2";
  report.left_behind = true;
  EXPECT_EQ(LossToJson(report).dump(),
            R"({"lost_bytes":12288,"lost":[)"
            R"({"volume":"a","offset_bytes":4096,"length_bytes":8192},)"
            R"({"volume":"b","offset_bytes":0,"length_bytes":4096}],)"
            R"("log_damage":"its end is lost","unsure":"ssd2","left_behind":true})");
}

}  // namespace
}  // namespace eplog
