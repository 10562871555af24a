// Values of options: what is taken, and the one line about what is not.
#include <gtest/gtest.h>

#include <optional>

#include "cli/verb/option_types.h"
#include "terminal/console.h"
#include "tests/cli/run_eplog.h"

namespace eplog::cli {
namespace {

using Words = std::vector<std::string>;

// Wrong usage, and this line.
void Refused(const Words& words, const std::string& line) {
  const Outcome outcome = RunEplog(words);
  EXPECT_EQ(outcome.status, kWrongUsage) << line;
  EXPECT_EQ(outcome.err, "eplog " + words.front() + ": " + line + "\n");
  EXPECT_EQ(outcome.out, "");
}

void CreateRefuses(const Words& option, const std::string& line) {
  Words words = {"create", "/no/such/place"};
  words.insert(words.end(), option.begin(), option.end());
  Refused(words, line);
}

template <typename T>
std::optional<T> Taken(std::string_view text) {
  T value;
  return ReadWord(Word{"--option", text}, value).ok() ? std::optional<T>(value) : std::nullopt;
}

TEST(OptionValues, OfCreateAreRefusedWithTheMend) {
  const std::string sizes = "; write 4096, 64K, 1.5G or 2T";
  CreateRefuses({"--device-size", "many"}, "--device-size: 'many' is not a size" + sizes);
  CreateRefuses({"--log-size", "5Q"}, "--log-size: '5Q' is not a size" + sizes);
  CreateRefuses({"--chunk", ""}, "--chunk: '' is not a size" + sizes);
  CreateRefuses({"--chunk", "5K"}, "--chunk is a power of two from 4K to 1M, not 5K");
  CreateRefuses({"--chunk", "2M"}, "--chunk is a power of two from 4K to 1M, not 2M");
  CreateRefuses({"--reserve", "60%"}, "--reserve is 1% to 50%, not 60%");
  CreateRefuses({"--reserve", "x"}, "--reserve: 'x' is not a percentage; write 10% or 10");
  CreateRefuses({"--journal", "half"}, "--journal is full or log, not 'half'");
  CreateRefuses({"--journal", "1"}, "--journal is full or log, not '1'");
  CreateRefuses({"--ssds", "0"}, "--ssds is 1 to 32, not 0");
  CreateRefuses({"--ssds", "33"}, "--ssds is 1 to 32, not 33");
  CreateRefuses({"--ssds", "99999999999999999999"}, "--ssds is 1 to 32, not 99999999999999999999");
  CreateRefuses({"--logs", "5"}, "--logs is 1 to 4, not 5");
  CreateRefuses({"--logs", "a,b,c,d,e"}, "--logs lists 5 devices; 4 are allowed");
  CreateRefuses({"--ssds", "a,,b"}, "--ssds: 'a,,b' has an empty name in it");
  CreateRefuses({"--ssds", "a,"}, "--ssds: 'a,' has an empty name in it");
  for (const char* level : {"4", "9", "six"}) {
    CreateRefuses({"--level", level},
                  "--level is 5 or 6, or 7 or 8 for parity that survives three or four failures, "
                  "not " +
                      std::string(level));
  }
}

// As of a script's variable that was never set.
TEST(OptionValues, OfCreateThatAreEmptyAreAsIfNotGiven) {
  const Words words = {"create",        "/proc/no", "--level",    "5", "--ssds", "3", "--logs", "",
                       "--device-size", "",         "--log-size", "",  "--name", ""};
  EXPECT_EQ(RunEplog(words).status, kFailed) << "nothing can be made there: that is all";
  Refused({"create", "/no/such/place", "--level", "5", "--ssds", ""},
          "--ssds is missing: a number makes that many member files, a list DEV,DEV,... takes "
          "devices");
}

TEST(OptionValues, OfMountAreRefusedWithTheMend) {
  Refused({"mount", "a", "m", "--commit-every", "often"},
          "--commit-every often: needs a number of write requests, such as 10000, or 'off'");
  Refused({"mount", "a", "m", "--commit-idle", "long"},
          "--commit-idle long: 'long' is not a duration; write 30s, 5m, 2h or 1d, or 'off'");
  Refused({"mount", "a", "m", "--io-deadline", ""},
          "--io-deadline : '' is not a duration; write 30s, 5m, 2h or 1d, or 'off'");
}

TEST(OptionValues, OfReplayAreRefusedWithTheMend) {
  const auto refuses = [](const std::string& option, const std::string& value,
                          const std::string& why) {
    Refused({"replay", "oltp", option, value}, option + " " + value + why);
  };
  refuses("--chunk", "lots", ": 'lots' is not a size; write 4096, 64K, 1.5G or 2T");
  refuses("--baseline-chunk", "3K", ": a size is a multiple of 4K");
  refuses("--chunk", "12K", " is no power of two from 4K to 1M");
  refuses("--page-cache", "0", ": a size is a multiple of 4K");
  refuses("--commit-every", "0", ": a number of write requests, off or auto");
  refuses("--speed", "fast", ": max, recorded, or x10 for ten times as fast");
  refuses("--speed", "x0", ": max, recorded, or x10 for ten times as fast");
  refuses("--policy", "raid0", ": there is no such policy; they are eplog, paper, md, pl");
  refuses("--fail", "ssd8", ": they are ssd0 to ssd7");
  refuses("--fail", "log0", ": they are ssd0 to ssd7");
  const std::string help = "; see 'eplog replay --help'";
  Refused({"replay", "oltp", "--limit", "-1"}, "--limit: needs a whole number, not -1" + help);
  Refused({"replay", "oltp", "--seed", "0x10"}, "--seed: needs a whole number, not 0x10" + help);
  Refused({"replay", "oltp", "--level", "9"},
          "--level is 5 or 6, or 7 or 8 for parity that survives three or four failures, not 9");
}

TEST(OptionValues, HelpIsGivenWhateverElseIsWrong) {
  const Outcome outcome = RunEplog({"create", "--chunk", "what", "--help"});
  EXPECT_EQ(outcome.status, kDone) << outcome.err;
  EXPECT_NE(outcome.out.find("--chunk"), std::string::npos);
}

TEST(OptionValues, DefaultsAreShown) {
  const std::string help = RunEplog({"mount", "--help"}).out;
  for (const char* shown : {"N|off=off", "TIME|off=1m", "TIME|off=30s"}) {
    EXPECT_NE(help.find(shown), std::string::npos) << shown << "\n" << help;
  }
}

TEST(OptionValues, AreWhatTheySay) {
  EXPECT_EQ(Taken<Size>("1.5K")->bytes, 1536U);
  EXPECT_EQ(Taken<DurationOrOff>("5m")->us, 300'000'000U);
  EXPECT_EQ(Taken<DurationOrOff>("off")->us, 0U);
  EXPECT_EQ(Taken<WritesOrOff>("10000")->count, 10000U);
  EXPECT_EQ(Taken<WritesOrOff>("0")->count, 0U);
  EXPECT_EQ(Taken<ChunkSize>("1M")->bytes, kMaxChunkBytes);
  EXPECT_EQ(Taken<JournalMode>("log"), JournalMode::kLog);
  EXPECT_EQ((Taken<Percent<1, 50>>("50")->value), 50U);
  EXPECT_EQ(Taken<MemberList<4>>("3")->count, 3U);
  EXPECT_EQ(Taken<MemberList<4>>("/a,b")->paths, (Words{"/a", "b"}));
  EXPECT_FALSE(Taken<MemberList<4>>("")->given());
  EXPECT_EQ(Taken<Level>("5")->parity(), 1U);
  EXPECT_EQ(Taken<Level>("8")->parity(), 4U);
}

}  // namespace
}  // namespace eplog::cli
