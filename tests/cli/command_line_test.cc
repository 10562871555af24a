#include "cli/command_line.h"

#include <gtest/gtest.h>

#include <CLI/CLI.hpp>

#include "terminal/console.h"
#include "tests/cli/run_eplog.h"

namespace eplog::cli {
namespace {

using Words = std::vector<std::string>;

Words Expand(Words words) {
  CLI::App app;
  app.add_subcommand("create");
  app.add_subcommand("status");
  CLI::App* volume = app.add_subcommand("volume");
  volume->add_subcommand("list");
  volume->add_subcommand("delete");
  ExpandVerbs(app, words);
  return words;
}

TEST(ExpandVerbs, ShortFormsAndAliases) {
  EXPECT_EQ(Expand({"vol", "ls", "st"}), (Words{"volume", "list", "st"}))
      << "arguments stay as they are";
  EXPECT_EQ(Expand({"volume", "rm", "a"}), (Words{"volume", "delete", "a"}));
  EXPECT_EQ(Expand({"stat"}), (Words{"status"}));
  EXPECT_EQ(Expand({"help", "volume", "list"}), (Words{"volume", "list", "--help"}));
  EXPECT_EQ(Expand({"--version"}), (Words{"--version"}));
  EXPECT_EQ(Expand({"frob", "ls"}), (Words{"frob", "ls"}));
}

TEST(CommandLine, UnknownVerbsAreAnsweredWithWhatThereIs) {
  const Outcome typo = RunEplog({"craete", "x"});
  EXPECT_EQ(typo.status, kWrongUsage);
  EXPECT_EQ(typo.err,
            "eplog: there is no verb 'craete'; did you mean 'create'? there are: create, "
            "assemble, mount, umount, volume, "
            "status, commit, checkpoint, discard, buffers, fail, replace, spare, rebuild, check, "
            "scrub, inject, "
            "events, inspect, mttdl, trace, replay\n");
  const Outcome below = RunEplog({"volume", "frob", "x"});
  EXPECT_EQ(below.status, kWrongUsage);
  EXPECT_EQ(below.err,
            "eplog volume: there is no verb 'frob'; there are: create, list, resize, delete\n");
  EXPECT_EQ(RunEplog({}).status, kWrongUsage);
  EXPECT_EQ(RunEplog({"volume"}).status, kWrongUsage);
}

TEST(CommandLine, WrongArgumentsAreOneLine) {
  for (const Words& words : {Words{"create"}, Words{"mount", "a"}, Words{"mount", "a", "b", "c"},
                             Words{"status", "--jsno", "a"}, Words{"create", "a", "--level", "six"},
                             Words{"volume", "create", "a", "b"}, Words{"--frob"}}) {
    const Outcome outcome = RunEplog(words);
    EXPECT_EQ(outcome.status, kWrongUsage) << outcome.err;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
    EXPECT_TRUE(outcome.err.starts_with("eplog")) << outcome.err;
    EXPECT_EQ(outcome.out, "");
  }
  EXPECT_NE(RunEplog({"status", "--jsno", "a"}).err.find("did you mean '--json'?"),
            std::string::npos);
}

// As of a variable of a script that was never set.
TEST(CommandLine, EmptyArgumentsAreNamed) {
  for (const Words& words : {Words{"status", ""}, Words{"mount", "a", ""}, Words{"mount", "", "m"},
                             Words{"replace", "a", "ssd1", ""}, Words{"spare", "add", "a", ""},
                             Words{"assemble", "a", ""}}) {
    const Outcome outcome = RunEplog(words);
    EXPECT_EQ(outcome.status, kWrongUsage) << outcome.err;
    EXPECT_NE(outcome.err.find(" is empty: "), std::string::npos) << outcome.err;
  }
}

TEST(CommandLine, ArgumentsMayLookLikeVerbs) {
  const Outcome outcome = RunEplog({"volume", "create", "/no/such/array", "status", "1G"});
  EXPECT_EQ(outcome.status, kFailed);
  EXPECT_NE(outcome.err.find("no array at /no/such/array"), std::string::npos) << outcome.err;
  EXPECT_EQ(RunEplog({"inspect", "/no/such", "checkpoint"}).status, kFailed);
}

TEST(CommandLine, EveryVerbHelpsWithAnExample) {
  for (const Words& verb : {Words{"create"},
                            Words{"mount"},
                            Words{"umount"},
                            Words{"volume"},
                            Words{"volume", "create"},
                            Words{"volume", "list"},
                            Words{"volume", "resize"},
                            Words{"volume", "delete"},
                            Words{"status"},
                            Words{"commit"},
                            Words{"checkpoint"},
                            Words{"check"},
                            Words{"scrub"},
                            Words{"inject"},
                            Words{"events"},
                            Words{"inspect"},
                            Words{"mttdl"},
                            Words{"trace"},
                            Words{"trace", "stat"},
                            Words{"trace", "convert"},
                            Words{"trace", "generate"}}) {
    Words words = verb;
    words.emplace_back("--help");
    const Outcome outcome = RunEplog(words);
    EXPECT_EQ(outcome.status, kDone);
    EXPECT_NE(outcome.out.find("Example"), std::string::npos) << verb.front() << outcome.out;
    EXPECT_EQ(outcome.out.find("--test-"), std::string::npos) << "hidden options stay hidden";
  }
}

TEST(CommandLine, VersionIsShown) {
  const Outcome outcome = RunEplog({"--version"});
  EXPECT_EQ(outcome.status, kDone);
  EXPECT_TRUE(outcome.out.starts_with("eplog ")) << outcome.out;
}

}  // namespace
}  // namespace eplog::cli
