// Drives: what the program brings along does what its sources rate it for, and what is wrong in a
// file is named with its line.
#include "sim/drive.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

#include "base/random.h"
#include "tests/sim/sim_util.h"

namespace eplog::sim::test {
namespace {

TEST(Drives, AreListedAndLoaded) {
  EXPECT_EQ(ListDrives(),
            (std::vector<std::string>{"plextor-m5pro", "samsung-pm9a3", "seagate-st1000dm003"}));
  for (const std::string& name : ListDrives()) {
    const auto drive = LoadDrive(name);
    ASSERT_TRUE(drive.ok()) << drive.error().message;
    EXPECT_EQ(drive->name, name);
    EXPECT_NE(drive->ssd.has_value(), drive->hdd.has_value());
    EXPECT_GT(drive->capacity_bytes, uint64_t{200'000'000'000});
    EXPECT_FALSE(drive->about.empty());
    VirtualLoop loop;
    const auto device = MakeDevice(loop, "d", *drive, 64 * kMiB);
    EXPECT_EQ(device->size_bytes(), 64 * kMiB);
    EXPECT_TRUE(eplog::test::Write(loop, *device, 4096, Filled(8192, 1)).ok());
    EXPECT_TRUE(Holds(loop, *device, 4096, 8192, 1));
  }
}

TEST(Drives, UnknownNamesAreAnsweredWithWhatThereIs) {
  const auto drive = LoadDrive("plextor");
  ASSERT_FALSE(drive.ok());
  EXPECT_EQ(drive.error().code, ErrorCode::kNotFound);
  EXPECT_NE(drive.error().message.find("plextor-m5pro, samsung-pm9a3, seagate-st1000dm003"),
            std::string::npos)
      << drive.error().message;
}

TEST(Drives, OfAFile) {
  const std::string path = ::testing::TempDir() + "/my-drive.toml";
  std::ofstream(path) << *BuiltInDrive("plextor-m5pro");
  const auto drive = LoadDrive(path);
  ASSERT_TRUE(drive.ok()) << drive.error().message;
  EXPECT_EQ(drive->ssd->flash.program_pages, 8U);
  EXPECT_EQ(drive->ssd->flash.pages_per_block, 2048U);
  EXPECT_EQ(drive->ssd->flash.overprovisioning_ppm, 73'500U);
  EXPECT_EQ(drive->ssd->link.request_ns, 3000U);
}

// The text of a built-in drive with one line changed or added; the error's message.
std::string Refusal(const std::string& drive, const std::string& from, const std::string& to) {
  std::string text = *BuiltInDrive(drive);
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  const size_t end = text.find('\n', at);
  text.replace(at, end - at, to);
  const auto parsed = ParseDrive(text, "d.toml");
  EXPECT_FALSE(parsed.ok()) << to;
  return parsed.ok() ? "" : parsed.error().message;
}

TEST(ParseDrive, RefusalsNameLineAndMend) {
  struct Case {
    const char* drive;
    const char* from;
    const char* to;
    const char* reason;
  };
  const Case cases[] = {
      {"plextor-m5pro", "kind =", "kind = ", "d.toml:"},
      {"plextor-m5pro", "kind =", "kind = \"tape\"", "'kind' must be \"ssd\" or \"hdd\""},
      {"plextor-m5pro", "kind =", "", "'kind' is missing: a string"},
      {"plextor-m5pro", "name =", "name = \"a b\"", "'name' must be one word"},
      {"plextor-m5pro", "kind =", "kind = \"ssd\"\ncolour = 3", ": unknown key 'colour'; known"},
      {"plextor-m5pro", "capacity_bytes =", "capacity_bytes = 4096",
       "'capacity_bytes' must be a whole number from 1048576"},
      {"plextor-m5pro", "[interface]", "[link]", "unknown key 'link'; known here: name, about"},
      {"plextor-m5pro", "channels =", "channels = 0", "'channels' must be a whole number from 1"},
      {"plextor-m5pro", "read_us =", "read_us = \"fast\"", "'read_us' must be a number from 0"},
      {"plextor-m5pro", "read_us =", "", "'read_us' is missing: a number from 0"},
      {"plextor-m5pro", "read_us =", "read_us = nan", "'read_us' must be a number"},
      {"plextor-m5pro", "overprovisioning =", "overprovisioning = 0",
       "'overprovisioning' must be a number from 0.001"},
      {"plextor-m5pro", "page_bytes =", "page_bytes = 10000", "'page_bytes' a multiple of"},
      {"plextor-m5pro", "pages_per_block =", "pages_per_block = 65536\nwear = 1", "unknown key"},
      {"plextor-m5pro", "mapped_bytes =", "mapped_bytes = 1000",
       "'mapped_bytes' must be a multiple"},
      {"plextor-m5pro", "bytes = 16_777", "bytes = 65536", "'bytes' must be 262144 or more"},
      {"plextor-m5pro", "collection =", "collection = \"lazy\"",
       "'collection' must be \"greedy\" or \"cost-benefit\""},
      {"plextor-m5pro", "free_blocks =", "free_blocks = 1", "'free_blocks' must be a whole number"},
      {"plextor-m5pro", "capacitor =", "capacitor = 1", "'capacitor' must be true or false"},
      {"seagate-st1000dm003", "inner_mb_s =", "inner_mb_s = 300", "must not exceed 'outer_mb_s'"},
      {"seagate-st1000dm003", "seek_average_ms =", "seek_average_ms = 30", "must rise"},
      {"seagate-st1000dm003", "seek_average_ms =", "seek_average_ms = 3",
       "'seek_average_ms' must be from 6.67 to 10.07"},
      {"seagate-st1000dm003", "bytes = 50_331", "bytes = 1024", "'bytes' must be 4194304 or more"},
      {"seagate-st1000dm003", "[mechanics]", "[mechanics]\nheads = 2", "unknown key 'heads'"},
      {"seagate-st1000dm003", "rpm =", "rpm = 7200.5", "'rpm' must be a whole number from 1000"}};
  for (const Case& c : cases) {
    const std::string message = Refusal(c.drive, c.from, c.to);
    EXPECT_NE(message.find(c.reason), std::string::npos) << c.to << "\n" << message;
    EXPECT_EQ(message.find("d.toml"), 0U) << message;
  }
  // The line is that of the mistake.
  EXPECT_EQ(ParseDrive("kind = \"ssd\"\nname = \"a\"\n\nbad = 1\n", "d.toml")
                .error()
                .message.find("d.toml:4: unknown key 'bad'"),
            0U);
}

struct Rated {
  explicit Rated(const std::string& name, uint64_t size)
      : drive(*LoadDrive(name)), ssd(loop, name, *drive.ssd, size) {}
  double ReadRate(uint32_t depth, uint64_t count, uint64_t length) {
    const Buffer buffer = Pool().Get(length);
    return PerSecond(count, Elapsed(loop, depth, count, [&](uint64_t i) {
                       const uint64_t slots = ssd.size_bytes() / length;
                       const uint64_t slot = length == kPage ? random.Below(slots) : i % slots;
                       return eplog::test::ReadTask(ssd, slot * length, buffer);
                     }));
  }
  double WriteRate(uint32_t depth, uint64_t count, uint64_t length) {
    const Buffer buffer = Pool().GetZeroed(length);  // which takes no memory in the store
    return PerSecond(count, Elapsed(loop, depth, count, [&](uint64_t i) {
                       const uint64_t slots = ssd.size_bytes() / length;
                       const uint64_t slot = length == kPage ? random.Below(slots) : i % slots;
                       return eplog::test::WriteTask(ssd, slot * length, buffer);
                     }));
  }
  Random random{5};
  VirtualLoop loop;
  Drive drive;
  SimSsd ssd;
};

void Report(const char* what, double measured, double rated) {
  std::printf("%-34s %12.0f, rated %12.0f (%+.1f %%)\n", what, measured, rated,
              100 * RelativeError(measured, rated));
}

TEST(Drives, ThePlextorReachesItsRatings) {
  constexpr uint64_t kLarge = 128 << 10;
  Rated fresh("plextor-m5pro", 2048 * kMiB);
  const double random_writes = fresh.WriteRate(32, 60000, kPage);
  const double written = fresh.WriteRate(8, 4096, kLarge) * kLarge;
  Rated full("plextor-m5pro", 2048 * kMiB);
  full.ssd.Precondition(1, 0);
  const double random_reads = full.ReadRate(32, 100000, kPage);
  const double read = full.ReadRate(8, 4096, kLarge) * kLarge;
  Report("M5 Pro, random reads", random_reads, 94'000);
  Report("M5 Pro, random writes, fresh", random_writes, 86'000);
  Report("M5 Pro, read bytes", read, 540e6);
  Report("M5 Pro, written bytes", written, 450e6);
  EXPECT_NEAR(random_reads / 94'000, 1, 0.05);
  EXPECT_NEAR(random_writes / 86'000, 1, 0.05);
  EXPECT_NEAR(read / 540e6, 1, 0.03);
  EXPECT_NEAR(written / 450e6, 1, 0.03);
}

TEST(Drives, ThePm9a3ReachesItsRatings) {
  constexpr uint64_t kLarge = 128 << 10;
  Rated full("samsung-pm9a3", 2048 * kMiB);
  full.ssd.Precondition(1, 0);
  const double random_reads = full.ReadRate(256, 200000, kPage);
  const double read = full.ReadRate(64, 12000, kLarge) * kLarge;
  Rated fresh("samsung-pm9a3", 4096 * kMiB);
  const double written = fresh.WriteRate(64, 16384, kLarge) * kLarge;
  Rated aged("samsung-pm9a3", 2048 * kMiB);
  aged.ssd.Precondition(1, 300);
  aged.WriteRate(256, 100000, kPage);  // fills the buffer
  const double random_writes = aged.WriteRate(256, 300000, kPage);
  Report("PM9A3, random reads", random_reads, 900'000);
  Report("PM9A3, random writes, aged", random_writes, 200'000);
  Report("PM9A3, read bytes", read, 6500e6);
  Report("PM9A3, written bytes", written, 3500e6);
  std::printf("write amplification %.2f\n",
              aged.ssd.model().ftl().counters().write_amplification());
  EXPECT_NEAR(random_reads / 900'000, 1, 0.05);
  EXPECT_NEAR(random_writes / 200'000, 1, 0.05);
  EXPECT_NEAR(read / 6500e6, 1, 0.05);
  EXPECT_NEAR(written / 3500e6, 1, 0.05);
}

}  // namespace
}  // namespace eplog::sim::test
