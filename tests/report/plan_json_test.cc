// What is asked of a plan reaches the array, and what the array plans is told, each figure under
// its own name; what is asked half is refused.
#include "report/plan_json.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runtime/virtual_loop.h"
#include "tests/runtime/await.h"
#include "tests/support/asked_array.h"

namespace eplog {
namespace {

class PlanJson : public testing::Test {
 protected:
  PlanJson() {
    array_.status.devices.resize(2);
    array_.status.devices[0].name = "ssd0";
    array_.status.devices[0].path = "/dev/a";
    array_.status.devices[1].name = "log0";
    array_.status.devices[1].path = "/dev/b";
    array_.volumes = {{VolumeId(9), "disk", 5000, 4096}};
    // No two figures are alike.
    array_.plan.before = {ArrayState::kClean, 1, 2, 3, 4, 5, 6, 7};
    array_.plan.after = {ArrayState::kDegraded, 11, 12, 13, 14, 15, 16, 17};
    array_.plan.chunks_losing_copy = 21;
    array_.plan.commit_chunks = 22;
    array_.plan.rebuild_bytes = 23;
    array_.plan.freed_bytes = 24;
    array_.plan.read_bytes = 25;
  }
  // As it comes off the socket.
  Result<Json> Ask(const Json& request) {
    return test::Await(loop_, PlanAsJson(array_, Json::parse(request.dump())));
  }
  std::string Document(const Json& request) {
    const Result<Json> document = Ask(request);
    return document.ok() ? document->dump() : document.error().message;
  }
  static std::string Standings() {
    return R"("before":{"state":"clean","devices_not_ok":1,"further_ssd_losses_survived":2,)"
           R"("further_log_losses_survived":3,"pending_chunks":4,"log_stripes":5,)"
           R"("allocated_bytes":6,"free_bytes":7},)"
           R"("after":{"state":"degraded","devices_not_ok":11,"further_ssd_losses_survived":12,)"
           R"("further_log_losses_survived":13,"pending_chunks":14,"log_stripes":15,)"
           R"("allocated_bytes":16,"free_bytes":17})";
  }
  static Json Replacement() {
    return {{"change", "replace"},
            {"device", 1},
            {"path", "/dev/new"},
            {"size_bytes", 8192},
            {"identity", {{"block", true}, {"device", 31}, {"inode", 32}}}};
  }

  VirtualLoop loop_;
  AskedArray array_;
};

TEST_F(PlanJson, OfAFailureNamesTheDevice) {
  EXPECT_EQ(Document({{"change", "fail"}, {"device", 1}}),
            R"({"dry_run":true,"change":"fail","device":"log0","path":"/dev/b",)" + Standings() +
                R"(,"chunks_losing_copy":21,"commit_chunks":22})");
  ASSERT_TRUE(array_.planned);
  EXPECT_EQ(array_.planned->kind, Change::Kind::kFailDevice);
  EXPECT_EQ(array_.planned->device, 1U);
}

TEST_F(PlanJson, OfAReplacementNamesBothDevices) {
  EXPECT_EQ(Document(Replacement()),
            R"({"dry_run":true,"change":"replace","replacement":{"path":"/dev/new",)"
            R"("size_bytes":8192},"device":"log0","path":"/dev/b",)" +
                Standings() + R"(,"rebuild_bytes":23,"commit_chunks":22})");
  ASSERT_TRUE(array_.planned);
  EXPECT_EQ(array_.planned->kind, Change::Kind::kReplaceDevice);
  EXPECT_EQ(array_.planned->device, 1U);
  EXPECT_EQ(array_.planned->replacement, "/dev/new");
  EXPECT_EQ(array_.planned->replacement_bytes, 8192U);
  EXPECT_EQ(array_.planned->replacement_identity, (DeviceIdentity{true, 31, 32}));
}

TEST_F(PlanJson, OfADeletionNamesTheVolume) {
  EXPECT_EQ(Document({{"change", "volume-delete"}, {"name", "disk"}}),
            R"({"dry_run":true,"change":"volume-delete","volume":{"name":"disk",)"
            R"("size_bytes":5000,"allocated_bytes":4096},)" +
                Standings() + R"(,"freed_bytes":24})");
  ASSERT_TRUE(array_.planned);
  EXPECT_EQ(array_.planned->kind, Change::Kind::kDeleteVolume);
  EXPECT_EQ(array_.planned->volume, VolumeId(9));
}

TEST_F(PlanJson, OfAScrubTellsWhatIsRead) {
  EXPECT_EQ(Document({{"change", "scrub"}}),
            R"({"dry_run":true,"change":"scrub",)" + Standings() + R"(,"read_bytes":25})");
  ASSERT_TRUE(array_.planned);
  EXPECT_EQ(array_.planned->kind, Change::Kind::kScrub);
}

TEST_F(PlanJson, WhatTheArrayWouldRefuseIsRefused) {
  array_.answer = Fail(ErrorCode::kTooManyFailures, "more would be lost than parity replaces");
  const Result<Json> refused = Ask({{"change", "fail"}, {"device", 0}});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kTooManyFailures);
  EXPECT_EQ(refused.error().message, "more would be lost than parity replaces");
}

TEST_F(PlanJson, HalfARequestIsRefused) {
  Json no_size = Replacement();
  no_size.erase("size_bytes");
  Json no_device = Replacement();
  no_device.erase("device");
  std::vector<Json> requests = {no_size,
                                no_device,
                                {{"change", "fail"}},
                                {{"change", "fail"}, {"device", -1}},
                                {{"change", "fail"}, {"device", 0.5}},
                                {{"change", "fail"}, {"device", "0"}},
                                {{"change", "fail"}, {"device", 2}},
                                {{"change", "fail"}, {"device", UINT32_MAX}},
                                {{"change", "fail"}, {"device", uint64_t{1} << 32}},
                                {{"change", "volume-delete"}},
                                {{"change", "volume-delete"}, {"name", 7}}};
  for (const Json& request : requests) {
    const Result<Json> refused = Ask(request);
    ASSERT_FALSE(refused.ok()) << request.dump();
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument) << request.dump();
    EXPECT_FALSE(refused.error().message.empty()) << request.dump();
  }
  EXPECT_EQ(Ask({{"change", "volume-delete"}, {"name", "none"}}).error().code,
            ErrorCode::kNotFound);
  for (const Json& request : {Json{{"change", "create"}}, Json{{"change", 7}}, Json::object()}) {
    EXPECT_EQ(Ask(request).error().code, ErrorCode::kUnsupported) << request.dump();
  }
  EXPECT_TRUE(array_.asked.empty());
}

// What is to be overwritten must be what was looked at: half an identity is none.
TEST_F(PlanJson, HalfAnIdentityIsRefused) {
  const std::vector<Json> identities = {Json(),
                                        7,
                                        Json::array(),
                                        Json::object(),
                                        {{"device", 31}, {"inode", 32}},
                                        {{"block", 1}, {"device", 31}, {"inode", 32}},
                                        {{"block", true}, {"inode", 32}},
                                        {{"block", true}, {"device", -1}, {"inode", 32}},
                                        {{"block", true}, {"device", 31}},
                                        {{"block", true}, {"device", 31}, {"inode", "32"}}};
  for (const Json& identity : identities) {
    Json request = Replacement();
    request["identity"] = identity;
    const Result<Json> refused = Ask(request);
    ASSERT_FALSE(refused.ok()) << identity.dump();
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument) << identity.dump();
    EXPECT_NE(refused.error().message.find("identity"), std::string::npos) << identity.dump();
  }
  Json without = Replacement();
  without.erase("identity");
  EXPECT_FALSE(Ask(without).ok());
  EXPECT_TRUE(array_.asked.empty());
}

TEST_F(PlanJson, WhyThereIsNoPlanIsSaid) {
  EXPECT_EQ(Document({{"change", "fail"}, {"device", 2}}), "no such device");
  EXPECT_EQ(Document({{"change", "fail"}, {"device", 1000}}), "no such device");
  EXPECT_EQ(Document({{"change", "create"}}), "there are no plans for 'create'");
  EXPECT_EQ(Document({{"change", "volume-delete"}, {"name", "none"}}), "no volume is called none");
  Json request = Replacement();
  request.erase("path");  // it is named by what was looked at
  EXPECT_NE(Document(request).find(R"("replacement":{"path":"","size_bytes":8192})"),
            std::string::npos);
}

TEST(IdentityJson, IsWhatRequestsHave) {
  EXPECT_EQ(IdentityToJson({true, 5, 6}).dump(), R"({"block":true,"device":5,"inode":6})");
}

}  // namespace
}  // namespace eplog
