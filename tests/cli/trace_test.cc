// eplog trace: what it says to a person, to a script, and about bad input.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "terminal/console.h"
#include "tests/cli/run_eplog.h"
#include "tests/support/temp_dir.h"

namespace eplog::cli {
namespace {

std::string Contents(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

constexpr char kTrace[] =
    "0,a,0,Write,0,4096,0\n10000000,a,1,Read,104857600,8192,0\n20000000,a,0,Write,4096,4096,0\n"
    "30000000,a,0,Write,9437184,4096,0\n";

class TraceVerb : public ::testing::Test {
 protected:
  [[nodiscard]] std::string Path(const char* name) const {
    return (directory_.path() / name).string();
  }
  // Refused with one line that says `reason`, and no file is made.
  void Refused(const std::vector<std::string>& words, int status, const std::string& reason) {
    const Outcome outcome = RunEplog(words);
    EXPECT_EQ(outcome.status, status) << outcome.err;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
    EXPECT_NE(outcome.err.find(reason), std::string::npos) << outcome.err;
    EXPECT_EQ(outcome.out, "");
    EXPECT_FALSE(std::filesystem::exists(Path("out"))) << outcome.err;
    EXPECT_FALSE(std::filesystem::exists(Path("out.part"))) << outcome.err;
  }
  const TempDir directory_;
  const std::string trace_ = directory_.Write("t.csv", kTrace).string();
};

TEST_F(TraceVerb, StatTellsScriptsExactFigures) {
  const Outcome outcome = RunEplog({"trace", "stat", trace_, "--json", "--layout", "2+1"});
  ASSERT_EQ(outcome.status, kDone) << outcome.err;
  const auto json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json.at("format"), "msr");
  EXPECT_EQ(json.at("requests"), 4);
  EXPECT_EQ(json.at("volumes"), nlohmann::json({"a.0", "a.1"}));
  EXPECT_EQ(json.at("duration_seconds"), 3.0);
  EXPECT_EQ(json.at("operations").at("write").at("requests"), 3);
  EXPECT_EQ(json.at("operations").at("write").at("bytes"), 3 * 4096);
  EXPECT_EQ(json.at("operations").at("read").at("size_bytes").at("p50"), 8192);
  EXPECT_EQ(json.at("footprint_bytes"), 5 * 4096);
  EXPECT_EQ(json.at("chunk_updates"), 0);
  const auto& layout = json.at("layouts").at(0);
  EXPECT_EQ(layout.at("layout"), "2+1");
  EXPECT_EQ(layout.at("stripe_touches"), 3);
  EXPECT_EQ(layout.at("md_ssd_bytes"), 6 * 4096);
  EXPECT_EQ(layout.at("distinct_stripes").at(0).at("write_requests"), 1000);
  EXPECT_EQ(layout.at("distinct_stripes").at(0).at("partial_window"), 2);
  EXPECT_EQ(json.at("reuse").at("first_touch_share"), 1.0);
}

TEST_F(TraceVerb, StatTellsPeopleTheSameAndDraws) {
  const Outcome outcome = RunEplog({"trace", "stat", trace_, "--picture", Path("p.svg")});
  ASSERT_EQ(outcome.status, kDone) << outcome.err;
  for (const char* fact : {"msr", "2 (a.0, a.1)", "20.0 KiB", "0.0% of 3 chunk writes"}) {
    EXPECT_NE(outcome.out.find(fact), std::string::npos) << fact << "\n" << outcome.out;
  }
  EXPECT_TRUE(Contents(Path("p.svg")).starts_with("<svg"));
  EXPECT_EQ(RunEplog({"trace", "stat", trace_, "--picture", Path("p.svg")}).status, kFailed)
      << "a file that is there stays";
  EXPECT_EQ(RunEplog({"trace", "stat", trace_, "--picture", Path("p.svg"), "--force"}).status,
            kDone);
}

TEST_F(TraceVerb, StatWarnsAboutWhatItLeftOut) {
  const auto path = directory_.Write("bad.csv", std::string(kTrace) + "rubbish\n" + kTrace);
  const Outcome outcome = RunEplog({"trace", "stat", path, "--unordered", "--max-bad", "20%"});
  EXPECT_EQ(outcome.status, kDone);
  EXPECT_NE(outcome.err.find("left out 1 bad of 9 records; the first, number 5: 1 fields"),
            std::string::npos)
      << outcome.err;
  EXPECT_NE(outcome.err.find("3 requests came with times before"), std::string::npos)
      << outcome.err;
}

TEST_F(TraceVerb, BadInputIsOneLine) {
  const std::string empty = directory_.Write("empty", "");
  const std::string binary = directory_.Write("binary", std::string_view("\x7F"
                                                                         "ELF\0\0\1",
                                                                         7));
  const std::string letter = directory_.Write("letter", "Dear reader\n");
  const std::string cut = directory_.Write("cut.xz", std::string_view("\xFD"
                                                                      "7zXZ\0\0\4",
                                                                      8));
  const std::string back =
      directory_.Write("back", "20,a,0,Write,0,512,0\n10,a,0,Write,0,512,0\n20,a,0,Read,0,512,0\n");
  Refused({"trace", "stat", Path("no")}, kFailed, "no: there is no such file");
  Refused({"trace", "stat", empty}, kFailed, "empty: it is empty");
  Refused({"trace", "stat", binary}, kFailed, "binary: it is binary and no trace");
  Refused({"trace", "stat", letter}, kFailed, "letter: it is no trace: its first line");
  Refused({"trace", "stat", cut}, kFailed, "cut.xz: the xz data ends too early");
  Refused({"trace", "stat", back}, kFailed, "back: line 2: time goes back by 0.000001 s");
  Refused({"trace", "stat", directory_.path()}, kWrongUsage, "it is a directory");
  Refused({"trace", "stat", trace_, "--volume-size", "1M"}, kFailed,
          "line 2: a read of 8192 bytes at 104857600 goes past the end, 1048576");
  Refused({"trace", "stat", trace_, "--format", "frob"}, kWrongUsage, "there are: msr, spc");
  Refused({"trace", "stat", trace_, "--format", "columns"}, kWrongUsage, "--columns time_ms");
  Refused({"trace", "stat", trace_, "--columns", "frob"}, kWrongUsage, "there is no column 'frob'");
  Refused({"trace", "stat", trace_, "--format", "msr", "--columns", "offset,size"}, kWrongUsage,
          "--columns is for");
  Refused({"trace", "stat", trace_, "--max-bad", "lots"}, kWrongUsage, "is no percentage");
  Refused({"trace", "stat", trace_, "--max-bad", "1.2.3"}, kWrongUsage, "is no percentage");
  Refused({"trace", "stat", trace_, "--chunk", "5000"}, kWrongUsage, "is no power of two");
  Refused({"trace", "stat", trace_, "--layout", "6x2"}, kWrongUsage, "'6x2' is no layout");
  Refused({"trace", "stat", trace_, "--action", "QQ"}, kWrongUsage, "write Q, D or C");
  Refused({"trace", "convert", trace_, "-o", Path("out"), "--to", "frob"}, kWrongUsage,
          "there is no trace format 'frob'");
  Refused({"trace", "convert", letter, "-o", Path("out")}, kFailed, "it is no trace");
  Refused({"trace", "convert", back, "-o", Path("out")}, kFailed, "time goes back");
  Refused({"trace", "convert", trace_, "-o", Path("out"), "--to", "vscsi1"}, kWrongUsage,
          "--merge");
  Refused({"trace", "convert", trace_, "-o", Path("out"), "--volume", "b.0"}, kWrongUsage,
          "the trace has volumes a.0, a.1");
  Refused({"trace", "convert", trace_, "-o", Path("out"), "--begin", "2s", "--end", "1s"},
          kWrongUsage, "is not before");
  Refused({"trace", "convert", "-", "-o", Path("out"), "--compact"}, kWrongUsage,
          "standard input can be read once");
  Refused({"trace", "convert", trace_, "-o", Path("no/such/out")}, kFailed, "cannot be made");
  Refused({"trace", "generate"}, kWrongUsage, "name a profile: fin");
  Refused({"trace", "generate", "frob", "-o", Path("out")}, kFailed, "there is no profile 'frob'");
  const std::string profile = directory_.Write("p.toml", "name = \"p\"\n");
  Refused({"trace", "generate", profile, "-o", Path("out")}, kWrongUsage, "p.toml:1: ");
}

TEST_F(TraceVerb, ConvertSelectsWindowsAndVolumes) {
  ASSERT_EQ(RunEplog({"trace", "convert", trace_, "-o", Path("o"), "--to", "columns"}).status,
            kDone);
  EXPECT_EQ(Contents(Path("o")),
            "0 a.0 0 4096 w\n1000000 a.1 104857600 8192 r\n2000000 a.0 4096 4096 w\n"
            "3000000 a.0 9437184 4096 w\n");
  ASSERT_EQ(RunEplog({"trace", "convert", trace_, "-o", Path("w"), "--to", "col", "--begin", "1s",
                      "--end", "3s"})
                .status,
            kDone);
  EXPECT_EQ(Contents(Path("w")), "0 a.1 104857600 8192 r\n1000000 a.0 4096 4096 w\n");
  ASSERT_EQ(RunEplog({"trace", "convert", trace_, "-o", Path("v"), "--to", "msr", "--volume", "a.0",
                      "--limit", "2"})
                .status,
            kDone);
  EXPECT_EQ(Contents(Path("v")), "0,a,0,Write,0,4096,0\n20000000,a,0,Write,4096,4096,0\n");
}

TEST_F(TraceVerb, ConvertCompactsInOrder) {
  ASSERT_EQ(RunEplog({"trace", "convert", trace_, "-o", Path("c"), "--to", "columns", "--compact"})
                .status,
            kDone);
  EXPECT_EQ(Contents(Path("c")),
            "0 a.0 0 4096 w\n1000000 a.1 0 8192 r\n2000000 a.0 4096 4096 w\n"
            "3000000 a.0 1048576 4096 w\n");
  ASSERT_EQ(
      RunEplog({"trace", "convert", trace_, "-o", Path("m"), "--to", "columns", "--merge"}).status,
      kDone);
  EXPECT_EQ(Contents(Path("m")),
            "0 disk 0 4096 w\n1000000 disk 2097152 8192 r\n2000000 disk 4096 4096 w\n"
            "3000000 disk 1048576 4096 w\n");
}

TEST_F(TraceVerb, GenerateIsRepeatableAndPacks) {
  for (const char* name : {"a.zst", "b.zst"}) {
    ASSERT_EQ(RunEplog({"trace", "gen", "oltp", "--limit", "3000", "--to", "blk", "-o", Path(name)})
                  .status,
              kDone);
  }
  EXPECT_EQ(Contents(Path("a.zst")), Contents(Path("b.zst")));
  const Outcome stat = RunEplog({"trace", "stat", Path("a.zst"), "--json"});
  ASSERT_EQ(stat.status, kDone) << stat.err;
  const auto json = nlohmann::json::parse(stat.out);
  EXPECT_EQ(json.at("requests"), 3000);
  EXPECT_EQ(json.at("format"), "blkparse");
  EXPECT_GT(json.at("operations").at("write").at("fua"), 0);
  const Outcome direct = RunEplog({"trace", "stat", "oltp", "--limit", "3000", "--json"});
  EXPECT_EQ(nlohmann::json::parse(direct.out).at("layouts"), json.at("layouts"))
      << "a profile is a trace, too";
  const Outcome list = RunEplog({"trace", "generate", "--list"});
  EXPECT_EQ(std::count(list.out.begin(), list.out.end(), '\n'), 8);
}

}  // namespace
}  // namespace eplog::cli
