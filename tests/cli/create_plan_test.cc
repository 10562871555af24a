#include "cli/create/plan.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "format/superblock.h"
#include "host/one_writer.h"
#include "tests/device/real_files.h"
#include "tests/support/temp_dir.h"

namespace eplog::cli {
namespace {

constexpr uint64_t kMib = uint64_t{1} << 20;

class CreatePlanTest : public ::testing::Test {
 protected:
  CreateRequest Request() const {
    CreateRequest request;
    request.array = (dir_.path() / "array").string();
    request.level = Level{6};
    request.ssds.count = 8;
    request.logs.count = 2;
    request.device_size = Size{64 * kMib};
    request.log_size = Size{64 * kMib};
    return request;
  }
  // The plan fails with this code, and its one line holds `words`.
  static void ExpectRefused(const CreateRequest& request, ErrorCode code, std::string_view words) {
    const auto plan = PlanCreate(request);
    ASSERT_FALSE(plan.ok()) << words;
    EXPECT_EQ(plan.error().code, code) << plan.error().message;
    EXPECT_NE(plan.error().message.find(words), std::string::npos) << plan.error().message;
    EXPECT_EQ(plan.error().message.find('\n'), std::string::npos);
  }
  TempDir dir_;
};

TEST_F(CreatePlanTest, NumbersMakeMemberFiles) {
  const auto plan = PlanCreate(Request());
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_EQ(plan->geometry.n, 8U);
  EXPECT_EQ(plan->geometry.m, 2U);
  EXPECT_EQ(plan->options.parity, 2U);
  EXPECT_EQ(plan->options.name, "array");
  EXPECT_EQ(plan->bytes_to_make(), 10 * 64 * kMib);
  ASSERT_EQ(plan->file.members.size(), 10U);
  EXPECT_EQ(plan->file.members.front(), (MemberPath{"ssd0", "ssd0"}));
  EXPECT_EQ(plan->file.members.back(), (MemberPath{"log1", "log1"}));
  EXPECT_FALSE(std::filesystem::exists(dir_.path() / "array")) << "a plan changes nothing";
}

TEST_F(CreatePlanTest, DefaultsAreEnough) {
  CreateRequest request;
  request.array = (dir_.path() / "a").string();
  request.level = Level{5};
  request.ssds.count = 3;
  request.sparse = true;
  const auto plan = PlanCreate(request);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_EQ(plan->logs.size(), 1U);
  EXPECT_EQ(plan->ssds.front().size_bytes, kDefaultMemberBytes);
  EXPECT_EQ(plan->geometry.chunk_bytes, 4096U);
}

TEST_F(CreatePlanTest, EverythingIsAccountedFor) {
  auto request = Request();
  dir_.WriteSparse("a", 70 * kMib);
  dir_.WriteSparse("b", 64 * kMib);
  dir_.WriteSparse("c", 64 * kMib + 512);
  request.level = Level{5};
  request.ssds = {.paths = {dir_.path() / "a", dir_.path() / "b", dir_.path() / "c"}};
  request.logs.count = 1;
  request.device_size.reset();
  const auto plan = PlanCreate(request);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  const SpaceUse use = SpaceOf(*plan);
  EXPECT_EQ(use.raw_ssd_bytes, 198 * kMib);
  EXPECT_EQ(use.raw_ssd_bytes, use.capacity_bytes + use.parity_bytes + use.reserve_bytes +
                                   use.metadata_bytes + use.unused_bytes);
  EXPECT_GE(use.unused_bytes, 6 * kMib);
}

TEST_F(CreatePlanTest, WrongUsage) {
  const auto with = [&](auto change) {
    CreateRequest request = Request();
    change(request);
    return request;
  };
  const auto usage = ErrorCode::kInvalidArgument;
  ExpectRefused(with([](auto& r) { r.level.reset(); }), usage, "--level 5 (one), --level 6 (two)");
  ExpectRefused(with([](auto& r) { r.parity = 3; }), usage, "--level 6 means --parity 2, not 3");
  ExpectRefused(with([](auto& r) { r.level.reset(), r.parity = 5; }), usage,
                "--parity is 1 to 4, not 5");
  ExpectRefused(with([](auto& r) { r.ssds = {}; }), usage, "--ssds is missing");
  ExpectRefused(with([](auto& r) { r.ssds.count = 2; }), usage, "needs 3 to 32 SSDs, not 2");
  ExpectRefused(with([](auto& r) { r.logs.count = 1; }), usage,
                "takes 2 log devices, not 1: --logs 2");
  ExpectRefused(with([](auto& r) { r.name = std::string(64, 'x'); }), usage, "--name has 64 bytes");
  ExpectRefused(with([](auto& r) { r.name = "\xFF"; }), usage, "--name must be UTF-8");
  ExpectRefused(with([](auto& r) {
                  r.ssds = {.paths = {"/a", "/b", "/c"}};
                }),
                usage, "--device-size is for member files that create makes");
}

// What RAID has no common name for is counted on.
TEST_F(CreatePlanTest, LevelsSayTheFailuresThatAreSurvived) {
  for (const uint32_t level : {5U, 6U, 7U, 8U}) {
    auto request = Request();
    request.level = Level{level};
    request.logs = {};
    const auto plan = PlanCreate(request);
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    EXPECT_EQ(plan->geometry.m, level - 4);
  }
}

TEST_F(CreatePlanTest, SizesThatDoNotFitNameTheMinimum) {
  auto request = Request();
  request.device_size = Size{100 << 10};
  ExpectRefused(request, ErrorCode::kInvalidArgument, "it needs at least");
  request = Request();
  request.log_size = Size{8 << 10};
  ExpectRefused(request, ErrorCode::kInvalidArgument,
                "a log device of 8K is too small; it needs at least 320K");
}

TEST_F(CreatePlanTest, TheMinimumThatIsNamedIsEnough) {
  auto request = Request();
  request.device_size = Size{100 << 10};
  const std::string message = PlanCreate(request).error().message;
  const std::string least = message.substr(message.rfind(' ') + 1);
  ASSERT_TRUE(ReadWord({"--device-size", least}, request.device_size.emplace()).ok()) << message;
  const auto plan = PlanCreate(request);
  EXPECT_TRUE(plan.ok()) << least << ": " << plan.error().message;
}

TEST_F(CreatePlanTest, OneDeviceTwiceByAnyPath) {
  const auto a = dir_.WriteSparse("a", 64 * kMib).string();
  const auto b = dir_.WriteSparse("b", 64 * kMib).string();
  const auto c = dir_.WriteSparse("c", 64 * kMib).string();
  const auto link = (dir_.path() / "link").string();
  const auto hard = (dir_.path() / "hard").string();
  std::filesystem::create_symlink(a, link);
  std::filesystem::create_hard_link(b, hard);
  auto request = Request();
  request.level = Level{5};
  request.device_size.reset();
  request.log_size.reset();
  for (const auto& logs : {a, link, hard, dir_.path().string() + "/./a"}) {
    request.ssds = {.paths = {a, b, c}};
    request.logs = {.paths = {logs}};
    ExpectRefused(request, ErrorCode::kInvalidArgument, "are the same device");
  }
  request.ssds = {.paths = {a, b, a}};
  request.logs = {.paths = {c}};
  ExpectRefused(request, ErrorCode::kInvalidArgument, "are the same device");
}

TEST_F(CreatePlanTest, DevicesThatHoldDataNeedForce) {
  const auto a = dir_.WriteSparse("a", 64 * kMib);
  const auto b = dir_.WriteSparse("b", 64 * kMib);
  const auto c = dir_.WriteSparse("c", 64 * kMib);
  auto request = Request();
  request.level = Level{5};
  request.ssds = {.paths = {a, b, c}};
  request.logs.count = 1;
  request.device_size.reset();
  const auto put = [&](uint64_t at, std::string_view text) {
    std::fstream file(b, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(at));
    file << text;
  };
  put(64 * kMib - 1, "x");
  ExpectRefused(request, ErrorCode::kExists, "holds data; --force overwrites it");
  put(0x438, "\x53\xEF");
  put(0x45C, "\x04");  // with a journal,
  put(0x460, "\x40");  // and extents
  ExpectRefused(request, ErrorCode::kExists, "holds an ext4 file system; --force overwrites it");
  request.force = true;
  const auto plan = PlanCreate(request);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_EQ(plan->ssds[1].holds, "an ext4 file system");
  EXPECT_NE(PlanText(*plan).find("an ext4 file system"), std::string::npos);
}

TEST_F(CreatePlanTest, MemberOfAnotherArrayIsNamed) {
  auto request = Request();
  request.sparse = true;
  const auto other = PlanCreate(request);
  ASSERT_TRUE(other.ok());
  Superblock superblock;
  superblock.geometry = other->geometry;
  superblock.name = "other";
  superblock.index = DeviceIndex(9);
  superblock.members.resize(10);
  std::vector<std::byte> bytes(kSuperblockCopyBytes);
  EncodeSuperblock(superblock, bytes);
  const auto a = dir_.WriteSparse("a", 64 * kMib);
  std::fstream(a, std::ios::in | std::ios::out | std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  request.level = Level{5};
  request.ssds = {.paths = {a, dir_.WriteSparse("b", 64 * kMib)}};
  request.logs.count = 1;
  request.device_size.reset();
  ExpectRefused(request, ErrorCode::kExists, "holds a member (log1) of the EPLOG array 'other'");
}

TEST_F(CreatePlanTest, DevicesThatCannotBeOne) {
  auto request = Request();
  request.level = Level{5};
  request.logs.count = 1;
  request.device_size.reset();
  request.ssds = {.paths = {"/no/such/a", "/no/such/b"}};
  ExpectRefused(request, ErrorCode::kNotFound,
                "ssd0: there is no /no/such/a; to have member files made");
  request.ssds = {.paths = {dir_.path(), "/dev/null"}};
  ExpectRefused(request, ErrorCode::kInvalidArgument,
                "is neither a regular file nor a block device");
  request.ssds = {.paths = {dir_.Write("empty", ""), dir_.Write("empty2", "")}};
  ExpectRefused(request, ErrorCode::kInvalidArgument, "is empty; give it a size first");
}

TEST_F(CreatePlanTest, ArrayThatIsThere) {
  std::filesystem::create_directory(dir_.path() / "array");
  dir_.Write(
      "array/array.toml",
      "uuid = \"0123abcd-0123-4567-89ab-0123456789ab\"\nname = \"old\"\n"
      "[[member]]\nname = \"ssd0\"\npath = \"ssd0\"\n[[member]]\nname = \"ssd9\"\npath = \"ssd9\"\n"
      "[[member]]\nname = \"log0\"\npath = \"../elsewhere\"\n");
  dir_.Write("array/ssd0", "x");
  dir_.Write("array/ssd9", "x");
  dir_.Write("elsewhere", "x");
  auto request = Request();
  ExpectRefused(request, ErrorCode::kExists,
                "holds an array already ('old'); take another directory, or --force");
  request.force = true;
  const auto plan = PlanCreate(request);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_EQ(plan->removed_files, (std::vector<std::filesystem::path>{dir_.path() / "array/ssd0",
                                                                     dir_.path() / "array/ssd9"}))
      << "only files beside the old array.toml";
}

// Its files may be in use by other paths: by loop devices over them, which a lock of the files does
// not tell.
TEST_F(CreatePlanTest, ArrayThatIsThereAndInUse) {
  std::filesystem::create_directory(dir_.path() / "array");
  ArrayFile old;
  old.uuid = "0123abcd-0123-4567-89ab-0123456789ac";
  dir_.Write("array/array.toml", "uuid = \"" + old.uuid +
                                     "\"\nname = \"old\"\n"
                                     "[[member]]\nname = \"ssd0\"\npath = \"old\"\n");
  const auto member = dir_.WriteSparse("array/old", kMib);
  auto request = Request();
  request.force = true;
  {
    const auto taken = OneWriter::Take(old);
    ASSERT_TRUE(taken.ok());
    ExpectRefused(request, ErrorCode::kBusy, "is in use by process " + std::to_string(::getpid()));
  }
  EXPECT_TRUE(PlanCreate(request).ok());
  const test::LoopDevice loop(member);
  if (!loop.trouble().empty()) {
    GTEST_SKIP() << loop.trouble();
  }
  ExpectRefused(request, ErrorCode::kInvalidArgument, "is in use as " + loop.path());
}

TEST_F(CreatePlanTest, ThingsInTheWay) {
  auto request = Request();
  std::filesystem::create_directory(dir_.path() / "array");
  dir_.Write("array/log1", "x");
  ExpectRefused(request, ErrorCode::kExists, "log1 exists; take another directory, or --force");
  request.array = dir_.Write("file", "x").string() + "/array";
  ExpectRefused(request, ErrorCode::kExists, "file is not a directory");
  request.force = true;
  request.array = (dir_.path() / "file").string();
  ExpectRefused(request, ErrorCode::kExists, "exists and does not describe an array");
}

TEST_F(CreatePlanTest, RoomOnTheDiskIsCheckedUnlessSparse) {
  auto request = Request();
  request.device_size = Size{kMib << 22};
  ExpectRefused(request, ErrorCode::kNoSpace, "has only");
  request.sparse = true;
  const auto plan = PlanCreate(request);
  EXPECT_TRUE(plan.ok()) << plan.error().message;
}

TEST_F(CreatePlanTest, LongDirectoryNamesAreCutBetweenLetters) {
  auto request = Request();
  std::string name;
  for (int i = 0; i < 40; ++i) {
    name += "\xC3\xA9";
  }
  request.array = (dir_.path() / name).string();
  const auto plan = PlanCreate(request);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->options.name, name.substr(0, 62));
}

// ------------------------------------------------------------------- what became of the plan

class CreateAsPlanned : public CreatePlanTest {
 protected:
  // Of three devices.
  CreateRequest OfDevices() {
    CreateRequest request = Request();
    request.level = Level{5};
    request.ssds = {.paths = {At("a"), At("b"), At("c")}};
    request.logs.count = 1;
    request.device_size.reset();
    request.log_size = Size{8 * kMib};
    request.sparse = true;
    for (const char* name : {"a", "b", "c"}) {
      dir_.WriteSparse(name, 16 * kMib);
    }
    return request;
  }
  [[nodiscard]] std::string At(const std::string& name) const {
    return (dir_.path() / name).string();
  }
  // Something else has the path from now on.
  void Swap(const std::string& name) const {
    std::filesystem::rename(At(name), At("away"));
    dir_.Write(name, std::string(16 * kMib, 'x'));
  }
  void ExpectNotTouched(const std::string& name) const {
    std::ifstream in(At(name), std::ios::binary);
    const std::string content{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    EXPECT_EQ(content == std::string(16 * kMib, 'x'), true) << "it was written to";
  }
  static void ExpectAnother(const Status& refused) {
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kBusy);
    EXPECT_NE(refused.error().message.find("not the device that was looked at"), std::string::npos)
        << refused.error().message;
  }
};

TEST_F(CreateAsPlanned, OfWhatWasLookedAt) {
  auto plan = PlanCreate(OfDevices());
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  const Status done = CarryOut(*plan, false);
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_TRUE(LoadArrayFile(At("array")).ok());
}

TEST_F(CreateAsPlanned, WhatTookTheNameOfADeviceIsNotWrittenTo) {
  auto plan = PlanCreate(OfDevices());
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  Swap("b");
  ExpectAnother(CarryOut(*plan, true));
  ExpectAnother(CarryOut(*plan, false));
  ExpectNotTouched("b");
  EXPECT_FALSE(std::filesystem::exists(At("array")));
}

TEST_F(CreateAsPlanned, WhatTookTheNameOfAFileToBeReplacedIsNotEmptied) {
  CreateRequest request = OfDevices();
  request.force = true;
  std::filesystem::create_directory(At("array"));
  dir_.Write("array/log0", "old");
  auto plan = PlanCreate(request);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  Swap("array/log0");
  ExpectAnother(CarryOut(*plan, false));
  ExpectNotTouched("array/log0");
}

// Nothing was there when the plan was made.
TEST_F(CreateAsPlanned, WhatCameWhereAFileWasToBeMadeIsNotEmptied) {
  CreateRequest request = OfDevices();
  request.force = true;
  auto plan = PlanCreate(request);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  std::filesystem::create_directory(At("array"));
  dir_.Write("array/log0", std::string(16 * kMib, 'x'));
  const Status refused = CarryOut(*plan, false);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kExists);
  ExpectNotTouched("array/log0");
}

}  // namespace
}  // namespace eplog::cli
