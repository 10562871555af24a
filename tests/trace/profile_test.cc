// Profiles and their generator: refusals that name the line, and the same bytes everywhere.
#include "trace/profile.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "base/crc32c.h"
#include "tests/trace/trace_util.h"
#include "trace/writer.h"
#include "trace/zipf.h"

namespace eplog {
namespace {

constexpr char kGood[] =
    "name = \"p\"\nrequests = 1000\nworking_set = 1048576\n"
    "[[stream]]\nkind = \"uniform\"\nsizes = [[4096, 1]]\n";

TEST(ParseProfile, RefusalsNameLineAndMend) {
  const std::string good = kGood;
  ASSERT_TRUE(ParseProfile(good, "p.toml").ok());
  const std::pair<std::string, const char*> cases[] = {
      {"name = ", "p.toml:1"},
      {good + "colour = 3\n", "p.toml:7: unknown key 'colour'; known here: "},
      {"name = \"a b\"\n" + good.substr(11), "'name' must be one word"},
      {"writes = 5\n" + good, "either 'requests' or 'writes'"},
      {"flush_every = -1\n" + good, "p.toml:1: 'flush_every' must be a whole number from 0"},
      {good + "align = 0\n", "p.toml:7: 'align' must be a whole number from 1"},
      {good + "from = 2000000\n", "'from' must be a whole number from 0 to 1048576"},
      {good + "from = 1046528\n", "does not hold its largest request, 4096 bytes"},
      {good + "skew = 9\n", "'skew' must be a number from 0 to 4"},
      {good + "skew = nan\n", "'skew' must be a number from 0 to 4"},
      {good + "op = \"erase\"\n", "'op' must be \"read\", \"write\" or \"trim\""},
      {good + "[[stream]]\nkind = \"zipf\"\nsizes = [[512, 1]]\n", "p.toml:7: 'objects' times"},
      {good + "[[stream]]\nkind = \"sequential\"\nsizes = [[512, 1]]\n", "'run_bytes' must be"},
      {good + "[[stream]]\nkind = \"x\"\nsizes = [[512, 1]]\n", "'kind' must be \"uniform\""},
      {good + "[[stream]]\nkind = \"uniform\"\n", "'sizes' must be a list"},
      {good + "[[stream]]\nkind = \"uniform\"\nsizes = [[0, 1]]\n",
       "a size must be [bytes, weight]"},
      {good + "[[stream]]\nkind = \"uniform\"\nsizes = [5]\n", "a size must be [bytes, weight]"},
      {"name = \"p\"\nwrites = 5\nworking_set = 8192\n[[stream]]\nkind = \"uniform\"\nop = "
       "\"read\"\nsizes = [[512, 1]]\n",
       "no stream writes"},
      {"name = \"p\"\nrequests = 5\nworking_set = 8192\n", "1 to 64 [[stream]] are needed"}};
  for (const auto& [text, reason] : cases) {
    const auto profile = ParseProfile(text, "p.toml");
    ASSERT_FALSE(profile.ok()) << text;
    EXPECT_EQ(profile.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(profile.error().message.find(reason), std::string::npos) << profile.error().message;
  }
}

TEST(LoadProfile, UnknownNamesAreAnsweredWithWhatThereIs) {
  const auto profile = LoadProfile("finn");
  ASSERT_FALSE(profile.ok());
  EXPECT_EQ(profile.error().code, ErrorCode::kNotFound);
  EXPECT_NE(profile.error().message.find("fin, mds, oltp, sequential, uniform, usr, web, zipf"),
            std::string::npos)
      << profile.error().message;
}

// The text of a profile's first requests, in a format that says everything that profiles make but
// FUA.
std::string Head(const std::string& name, uint64_t count, std::optional<uint64_t> seed = {}) {
  TraceOptions options;
  options.seed = seed;
  auto source = OpenTrace(name, options);
  EXPECT_TRUE(source.ok()) << source.error().message;
  std::vector<TraceRequest> batch(count);
  uint64_t size = 0;
  while (size < count) {
    const auto got =
        (*source)->Read(std::span(batch).subspan(size, std::min<uint64_t>(count - size, 61)));
    EXPECT_TRUE(got.ok());
    if (*got == 0) {
      break;
    }
    size += *got;
  }
  std::string text;
  const auto writer = MakeTraceWriter(TraceFormat::kFio3, ColumnLayout{});
  for (uint64_t i = 0; i < size; ++i) {
    EXPECT_TRUE(writer->Add(batch[i], (*source)->volumes(), text).ok());
  }
  writer->End(text);
  return text;
}

// Pins the generator: toy traces that were written once. A difference on some machine, or after
// some change, would make every figure of a profile another one.
TEST(Generator, ToyTracesComeOutByteForByte) {
  const auto folder = std::filesystem::path(EPLOG_SOURCE_DIR) / "traces/toy";
  for (const std::string& name : BuiltInProfiles()) {
    std::ifstream in(folder / (name + ".fio"), std::ios::binary);
    ASSERT_TRUE(in) << name;
    const std::string toy{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    EXPECT_EQ(Head(name, 200), toy) << name;
  }
}

TEST(Generator, TheSeedDecides) {
  EXPECT_EQ(Head("oltp", 5000, 7), Head("oltp", 5000, 7));
  EXPECT_NE(Head("oltp", 5000, 7), Head("oltp", 5000, 8));
}

TEST(Generator, BuiltInProfilesAreTheFiles) {
  for (const std::string& name : BuiltInProfiles()) {
    const auto file =
        std::filesystem::path(EPLOG_SOURCE_DIR) / "traces/profiles" / (name + ".toml");
    EXPECT_EQ(Head(name, 1000), Head(file.string(), 1000)) << name;
  }
}

TEST(Generator, KeepsToItsProfile) {
  const char text[] =
      "name = \"p\"\nwrites = 40000\nworking_set = 104857600\nmean_interval_us = 500\n"
      "flush_every = 100\n"
      "[[stream]]\nkind = \"sequential\"\nweight = 3\nsizes = [[4096, 1], [8192, 1]]\nruns = 2\n"
      "run_bytes = 1048576\nto = 52428800\nfua = true\n"
      "[[stream]]\nkind = \"zipf\"\nweight = 1\nread_percent = 50\nsizes = [[512, 1]]\nalign = "
      "512\n"
      "objects = 100\nobject_bytes = 65536\nfrom = 52428800\ndrift_every = 10\n";
  auto profile = ParseProfile(text, "p");
  ASSERT_TRUE(profile.ok()) << profile.error().message;
  const auto whole = trace_test::ReadAll(*MakeGenerator(*profile));
  uint64_t reads = 0;
  uint64_t writes = 0;
  uint64_t flushes = 0;
  uint64_t last_us = 0;
  for (const TraceRequest& request : whole.requests) {
    EXPECT_GE(request.time_us, last_us);
    last_us = request.time_us;
    flushes += request.op == TraceOp::kFlush ? 1 : 0;
    reads += request.op == TraceOp::kRead ? 1 : 0;
    writes += request.op == TraceOp::kWrite ? 1 : 0;
    if (request.op == TraceOp::kFlush) {
      EXPECT_EQ(writes % 100, 0U);
      continue;
    }
    const bool hot = request.length_bytes == 512;
    EXPECT_GE(request.offset_bytes, hot ? 52428800U : 0U);
    EXPECT_LE(request.end_bytes(), hot ? 104857600U : 52428800U);
    EXPECT_EQ(request.fua, !hot);
  }
  EXPECT_EQ(writes, 40000U);
  EXPECT_EQ(flushes, 400U);
  // A quarter of the requests is hot, half of those reads: 1 read to 7 writes.
  EXPECT_NEAR(static_cast<double>(reads), 40000.0 / 7, 250);
  EXPECT_NEAR(static_cast<double>(last_us) / static_cast<double>(reads + writes), 500, 12);
}

TEST(Zipf, LogarithmsAndPowersAreNearTheLibrarys) {
  for (const uint64_t x :
       {uint64_t{1}, uint64_t{2}, uint64_t{3}, uint64_t{1000}, uint64_t{4194304}, UINT64_MAX}) {
    EXPECT_NEAR(static_cast<double>(Log2Q32(x)) / 4294967296.0, std::log2(static_cast<double>(x)),
                1e-7)
        << x;
  }
  for (const double e : {0.0, 0.5, 1.0, 3.25, 17.9}) {
    const auto scaled = static_cast<uint64_t>(e * 4294967296.0);
    EXPECT_NEAR(static_cast<double>(Exp2Q62(scaled)) / 4611686018427387904.0, std::exp2(-e), 1e-7)
        << e;
  }
}

TEST(Zipf, RanksComeInProportion) {
  constexpr uint64_t kRanks = 500;
  constexpr uint64_t kDraws = 2'000'000;
  for (const uint64_t skew : {0U, 500U, 1000U, 1500U}) {
    const ZipfTable table(kRanks, skew);
    Random random(skew + 1);
    std::vector<uint64_t> counts(kRanks);
    for (uint64_t i = 0; i < kDraws; ++i) {
      ++counts[table.Draw(random)];
    }
    double sum = 0;
    for (uint64_t r = 1; r <= kRanks; ++r) {
      sum += std::pow(static_cast<double>(r), -static_cast<double>(skew) / 1000);
    }
    double chi = 0;
    for (uint64_t r = 1; r <= kRanks; ++r) {
      const double wanted = std::pow(static_cast<double>(r), -static_cast<double>(skew) / 1000) /
                            sum * static_cast<double>(kDraws);
      chi += (static_cast<double>(counts[r - 1]) - wanted) *
             (static_cast<double>(counts[r - 1]) - wanted) / wanted;
    }
    // 499 degrees of freedom: mean 499, deviation 32; the seed is fixed.
    EXPECT_LT(chi, 499 + 4 * 32) << skew;
  }
}

}  // namespace
}  // namespace eplog
