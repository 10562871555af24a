// From what people and files say to the parameters of the model: every unit, every refusal.
#include "cli/mttdl/inputs.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/random.h"
#include "cli/mttdl/report.h"
#include "cli/mttdl/sources.h"
#include "cli/mttdl/sweep.h"
#include "cli/mttdl/whatif.h"
#include "tests/support/temp_dir.h"

namespace eplog::cli {
namespace {

using Given = std::vector<std::pair<std::string, std::string>>;

Result<Inputs> Resolve(const Given& given) {
  InputSet set;
  for (const auto& [name, text] : given) {
    EPLOG_TRY(set.Set(name, text, "given"));
  }
  return ResolveInputs(set);
}

reliability::Parameters Parameters(const Given& given) {
  const auto inputs = Resolve(given);
  EXPECT_TRUE(inputs.ok()) << inputs.error().message;
  return inputs.ok() ? inputs->parameters : reliability::Parameters{};
}

void ExpectRefused(const Given& given, const std::string& part) {
  const auto inputs = Resolve(given);
  ASSERT_FALSE(inputs.ok()) << part;
  EXPECT_EQ(inputs.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(inputs.error().message.find(part), std::string::npos) << inputs.error().message;
  EXPECT_EQ(inputs.error().message.find('\n'), std::string::npos);
}

TEST(ResolveInputs, NothingGivenIsThePapersExample) {
  const auto p = Parameters({});
  EXPECT_EQ(p.ssds, 10U);
  EXPECT_EQ(p.parity, 1U);
  EXPECT_EQ(p.lambda_ssd, 0.25);
  EXPECT_EQ(p.mu_ssd, 1e4);
  EXPECT_EQ(p.alpha, 0.5);
  EXPECT_EQ(p.lambda_log, 0.25);
  EXPECT_EQ(p.mu_log, 1e4);
  const auto inputs = Resolve({});
  ASSERT_TRUE(inputs.ok());
  for (const InputFact& fact : inputs->facts) {
    EXPECT_TRUE(fact.origin.starts_with("default") || fact.origin == "equation (1)") << fact.key;
  }
}

TEST(ResolveInputs, TheSameRateInEveryForm) {
  for (const auto& [name, text] : Given{{"lambda-ssd", "0.25"},
                                        {"lambda-ssd", " +0.25/y "},
                                        {"lambda-ssd", "0.25 / year"},
                                        {"mttf-ssd", "4y"},
                                        {"mttf-ssd", "4 years"},
                                        {"mttf-ssd", "35064h"},
                                        {"mttf-ssd", "35064"},
                                        {"mttf-ssd", "35.064kh"},
                                        {"mttf-ssd", "0.035064Mh"},
                                        {"mttf_ssd", "1461d"},
                                        {"afr-ssd", "22.119921692859512%"},
                                        {"afr-ssd", "22.119921692859512"}}) {
    EXPECT_NEAR(Parameters({{name, text}}).lambda_ssd, 0.25, 1e-12) << name << " " << text;
  }
  EXPECT_NEAR(Parameters({{"mttf-log", "4y"}}).lambda_log, 0.25, 1e-15);
  EXPECT_EQ(Parameters({{"lambda-log", "0"}}).lambda_log, 0) << "a log that never fails";
  for (const auto& [name, text] :
       Given{{"mu-ssd", "8766"}, {"rebuild-time-ssd", "1h"}, {"rebuild-time-ssd", "60m"}}) {
    EXPECT_NEAR(Parameters({{name, text}}).mu_ssd, 8766, 1e-9) << name << " " << text;
  }
  // 360,000 MiB at 100 MiB/s take an hour.
  EXPECT_NEAR(Parameters({{"capacity", "360000M"}, {"rebuild-rate", "100M/s"}}).mu_ssd, 8766, 1e-9);
  EXPECT_NEAR(Parameters({{"log-capacity", "360000M"}, {"log-rebuild-rate", "100M"}}).mu_log, 8766,
              1e-9);
  EXPECT_NEAR(Parameters({{"alpha", "55%"}}).alpha, 0.55, 1e-15);
}

TEST(ResolveInputs, WearByEnduranceOrByDrives) {
  const Given writes = {{"daily-writes", "1G"}};
  const auto with = [&](Given more) {
    more.insert(more.end(), writes.begin(), writes.end());
    return *Parameters(more).wear;
  };
  EXPECT_DOUBLE_EQ(with({{"tbw", "600"}}).endurance_bytes, 6e14);
  EXPECT_DOUBLE_EQ(with({{"tbw", "0.6PB"}}).endurance_bytes, 6e14);
  EXPECT_DOUBLE_EQ(with({{"tbw", "600TBW"}}).bytes_per_year, 365.25 * (1 << 30));
  EXPECT_NEAR(with({{"dwpd", "2"}, {"capacity", "1G"}, {"warranty", "4y"}}).endurance_bytes,
              2.0 * 4 * 365.25 * (1 << 30), 1);
  // 3 % have failed when the rated endurance is written.
  const auto rated = with({{"tbw", "600"}, {"wear-failed", "3%"}, {"wear-shape", "2"}});
  EXPECT_NEAR(-std::expm1(-std::pow(6e14 / rated.endurance_bytes, 2)), 0.03, 1e-12);
  EXPECT_NEAR(with({{"tbw", "600"}, {"replace-at", "80%"}}).replace_after_bytes, 4.8e14, 1);
  EXPECT_FALSE(Resolve({{"tbw", "600"}, {"daily-writes", "1G"}, {"ages", "own"}})->Solvable());
  EXPECT_TRUE(Resolve({{"tbw", "600"}, {"daily-writes", "1G"}})->Solvable());
}

TEST(ResolveInputs, WhatIsSwitchedOnIsExplained) {
  const auto inputs = Resolve({{"uber", "1e-17"},
                               {"capacity", "1T"},
                               {"pending", "20%"},
                               {"correlated", "3"},
                               {"repair", "par"},
                               {"tbw", "600"},
                               {"daily-writes", "100G"},
                               {"repair-times", "fixed"}});
  ASSERT_TRUE(inputs.ok()) << inputs.error().message;
  EXPECT_EQ(inputs->beyond.size(), 7U) << "one sentence each, and the ages";
  EXPECT_TRUE(Resolve({})->beyond.empty());
}

TEST(ResolveInputs, NonsenseIsRefusedByName) {
  for (const char* bad : {"-1", "nan", "inf", "-inf", "", " ", "x", "1x", "1,5", "0x10", "1e999"}) {
    for (const InputKey& key : InputKeys()) {
      if (std::string_view(key.name) == "years" && std::string_view(bad) == "1,5") {
        continue;  // a list
      }
      const auto inputs = Resolve({{key.name, bad}});
      ASSERT_FALSE(inputs.ok()) << key.name << " '" << bad << "'";
      // By its own name, or by that of the parameter it gives.
      const std::string& message = inputs.error().message;
      const bool named = message.find(key.name) != std::string::npos ||
                         (*key.family != 0 && message.find(key.family) != std::string::npos) ||
                         message.find("add --capacity") != std::string::npos;
      EXPECT_TRUE(named) << key.name << " '" << bad << "': " << message;
    }
  }
  for (const char* name : {"lambda-ssd", "mu-ssd", "mu-log", "alpha", "mttf-ssd", "ssds", "parity",
                           "correlated", "fleet", "years", "rebuild-time-ssd"}) {
    ExpectRefused({{name, "0"}}, name);
  }
  ExpectRefused({{"ssds", "1"}}, "ssds must be");
  ExpectRefused({{"ssds", "2.5"}}, "whole number");
  ExpectRefused({{"parity", "5"}}, "parity must be a number from 1 to 4");
  ExpectRefused({{"ssds", "3"}, {"parity", "3"}}, "less than the number of SSDs");
  ExpectRefused({{"afr-ssd", "100%"}}, "below 100 %");
  ExpectRefused({{"lambda-ssd", "1"}, {"afr-ssd", "1%"}}, "say the same");
  ExpectRefused({{"alpha", "1"}, {"alpha", "2"}}, "given twice");
  ExpectRefused({{"rebuild-rate", "100M"}}, "add --capacity");
  ExpectRefused({{"log-rebuild-rate", "100M"}}, "add --log-capacity");
  ExpectRefused({{"uber", "1e-17"}}, "add --capacity");
  ExpectRefused({{"scrub", "7d"}}, "add --latent-rate");
  ExpectRefused({{"latent-rate", "2"}}, "add --scrub");
  ExpectRefused({{"daily-writes", "1G"}}, "add --tbw or --dwpd");
  ExpectRefused({{"tbw", "600"}}, "add --daily-writes");
  ExpectRefused({{"dwpd", "1"}}, "add --capacity");
  ExpectRefused({{"repair", "fastest"}}, "random, parallel, ssd-first, log-first");
  ExpectRefused({{"alhpa", "1"}}, "did you mean 'alpha'?");
  ExpectRefused({{"rebuild-time-ssd", "5"}}, "write 50m");
}

TEST(FromReplay, TakesAlphaAndGeometry) {
  const Json document = Json::parse(R"({"trace":"fin","settings":{"parity_chunks":2},
      "policies":{"eplog":{"ssd_data_bytes":600,"ssd_parity_bytes":100,"ssd_metadata_bytes":20,
                           "ssd_bytes":[90,90,90,90,90,90,90,90]},
                  "md":{"ssd_data_bytes":600,"ssd_parity_bytes":840,"ssd_metadata_bytes":0}},
      "alpha":0.52})");
  const auto found = FromReplay(document, "r.json");
  ASSERT_TRUE(found.ok()) << found.error().message;
  const auto inputs = ResolveInputs(found->values);
  ASSERT_TRUE(inputs.ok());
  EXPECT_EQ(inputs->parameters.alpha, 0.52);
  EXPECT_EQ(inputs->parameters.ssds, 8U);
  EXPECT_EQ(inputs->parameters.parity, 2U);
  Json without = document;
  without.erase("alpha");
  EXPECT_EQ(ResolveInputs(FromReplay(without, "r.json")->values)->parameters.alpha, 0.5)
      << "720 over 1440 bytes";
}

TEST(FromReplay, RefusesWhatIsNoReplay) {
  const TempDir dir;
  for (const char* text :
       {"{}", "[]", "3", "null", R"({"alpha":"x"})", R"({"alpha":0})", R"({"alpha":-1})",
        R"({"policies":3})", R"({"policies":{"eplog":{}}})"}) {
    const auto found = FromReplayFile(dir.Write("r.json", text));
    ASSERT_FALSE(found.ok()) << text;
    EXPECT_NE(found.error().message.find("r.json: "), std::string::npos) << found.error().message;
  }
  EXPECT_NE(FromReplayFile(dir.Write("r.json", "{")).error().message.find("no JSON"),
            std::string::npos);
  EXPECT_EQ(FromReplayFile(dir.path() / "none").error().code, ErrorCode::kNotFound);
}

Json StatusOfEightSsds() {
  return Json::parse(R"({"array":{"data_chunks":6,"parity_chunks":2},
      "devices":[{"role":"ssd","size_bytes":1000000000},{"role":"log","size_bytes":7}],
      "exposure":{"pending_chunks":12,"oldest_pending_seconds":3.5},
      "rebuild":{"bytes_per_second":1000000,"percent":10,"eta_seconds":5},
      "lifetime":{"ssd_data_bytes":5000,"ssd_parity_bytes":1000,"ssd_metadata_bytes":500,
                  "ssd_repair_bytes":9999,"md_equivalent_ssd_bytes":13000,"commits":3,
                  "committed_stripes":40}})");
}

TEST(FromStatus, AlphaGeometryRebuildRateAndCommits) {
  const auto found = FromStatus(StatusOfEightSsds(), "demo");
  ASSERT_TRUE(found.ok()) << found.error().message;
  const auto inputs = ResolveInputs(found->values);
  ASSERT_TRUE(inputs.ok()) << inputs.error().message;
  EXPECT_DOUBLE_EQ(inputs->parameters.alpha, 6500.0 / 13000) << "without what rebuilds wrote";
  EXPECT_EQ(inputs->parameters.ssds, 8U);
  EXPECT_EQ(inputs->parameters.parity, 2U);
  EXPECT_NEAR(inputs->parameters.mu_ssd, reliability::kSecondsPerYear / 1000, 1e-6);
  EXPECT_EQ(found->facts["commits"], 3);
  EXPECT_EQ(found->facts["pending_chunks_now"], 12);
  // What a person says goes over what was measured.
  InputSet set = found->values;
  InputSet given;
  ASSERT_TRUE(given.Set("rebuild-time-ssd", "2h", "given").ok());
  ASSERT_TRUE(given.Set("alpha", "0.9", "given").ok());
  set.Overlay(given);
  const auto over = ResolveInputs(set);
  ASSERT_TRUE(over.ok()) << over.error().message;
  EXPECT_NEAR(over->parameters.mu_ssd, 4383, 1e-9);
  EXPECT_EQ(over->parameters.alpha, 0.9);
  EXPECT_EQ(over->parameters.ssds, 8U);
}

TEST(FromStatus, SaysWhatIsMissing) {
  Json fresh = StatusOfEightSsds();
  fresh["lifetime"]["md_equivalent_ssd_bytes"] = 0;
  EXPECT_NE(FromStatus(fresh, "demo").error().message.find("nothing has been written"),
            std::string::npos);
  Json calm = StatusOfEightSsds();
  calm["rebuild"] = nullptr;
  const auto found = FromStatus(calm, "demo");
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->values.Find("rebuild-rate"), nullptr);
  EXPECT_FALSE(FromStatus(Json::object(), "demo").ok());
}

TEST(ParseSweep, RangesListsAndWords) {
  const auto axes = ParseSweep(
      "lambda-log=0.25:2.5:0.25,alpha=0.3,0.5,0.7,afr-ssd=1%:3%:1%,mu_ssd=10:1e4:x10,"
      "repair=random,parallel");
  ASSERT_TRUE(axes.ok()) << axes.error().message;
  ASSERT_EQ(axes->size(), 5U);
  EXPECT_EQ((*axes)[0].values.size(), 10U);
  EXPECT_EQ((*axes)[0].values[2], "0.75");
  EXPECT_EQ((*axes)[0].values.back(), "2.5");
  EXPECT_EQ((*axes)[1].values, (std::vector<std::string>{"0.3", "0.5", "0.7"}));
  EXPECT_EQ((*axes)[2].values, (std::vector<std::string>{"1%", "2%", "3%"}));
  EXPECT_EQ((*axes)[3].values, (std::vector<std::string>{"10", "100", "1000", "10000"}));
  EXPECT_TRUE((*axes)[3].log);
  EXPECT_FALSE((*axes)[0].log);
  EXPECT_TRUE((*axes)[4].numbers.empty());
}

TEST(ParseSweep, RefusesWhatIsNone) {
  for (const char* text :
       {"", "alpha", "alpha=", "=1", "0.3", "alpha=0.3,,0.5", "foo=1", "alpha=1:2", "alpha=1:2:0",
        "alpha=2:1:1", "alpha=1:2:3:4", "alpha=1:2:x1", "alpha=0:1:x2", "alpha=a:b:c",
        "afr-ssd=1%:3h:1%", "alpha=0:1:1e-9", "years=1,2", "alpha=0:1:0.001,mu-ssd=1:1000:1"}) {
    const auto axes = ParseSweep(text);
    ASSERT_FALSE(axes.ok()) << text;
    EXPECT_NE(axes.error().message.find("--sweep"), std::string::npos) << axes.error().message;
  }
}

TEST(RunSweep, EachCombinationOnce) {
  InputSet base;
  ASSERT_TRUE(base.Set("years", "5y", "given").ok());
  const auto sweep = RunSweep(base, *ParseSweep("lambda-log=0.25,0.5,parity=1,2"));
  ASSERT_TRUE(sweep.ok()) << sweep.error().message;
  ASSERT_EQ(sweep->rows.size(), 4U);
  const std::string csv = SweepCsv(*sweep);
  EXPECT_TRUE(
      csv.starts_with("lambda-log,parity,eplog_mttdl_years,conventional_mttdl_years,ratio,"
                      "eplog_loss_5y,conventional_loss_5y\n0.25,1,4924.48284025,"))
      << csv;
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 5);
  const Json json = SweepJson(*sweep);
  EXPECT_EQ(json["rows"].size(), 4U);
  EXPECT_EQ(json["rows"][3]["at"]["parity"], 2.0);
  EXPECT_NEAR(json["rows"][0]["ratio"].get<double>(), 2.7687, 1e-4);
  const auto chart = SweepChart(*sweep);
  ASSERT_TRUE(chart.ok());
  EXPECT_EQ(chart->panels[0].series.size(), 4U) << "two levels, each with its conventional RAID";
  EXPECT_FALSE(RunSweep(base, *ParseSweep("alpha=0.5,-1")).ok());
  EXPECT_FALSE(SweepChart(*RunSweep(base, *ParseSweep("repair=random,parallel"))).ok());
}

TEST(MakeFigure4, CrossesWhereThePaperHasIt) {
  const auto figure = MakeFigure4(InputSet());
  ASSERT_TRUE(figure.ok());
  ASSERT_EQ(figure->levels.size(), 2U);
  EXPECT_NEAR(figure->levels[0].lines[1].crossing.value_or(0), 6.75, 0.005);
  EXPECT_NEAR(figure->levels[1].lines[1].crossing.value_or(0), 2.86, 0.006);
  EXPECT_NEAR(figure->levels[0].lines[1].ratio_at_one, 2.77, 0.005);
  EXPECT_NEAR(figure->levels[1].lines[1].ratio_at_one, 2.82, 0.005);
  const std::string csv = Figure4Csv(*figure);
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 61);
  EXPECT_EQ(Figure4Chart(*figure).panels.size(), 2U);
  InputSet alpha;
  ASSERT_TRUE(alpha.Set("alpha", "0.3", "given").ok());
  EXPECT_FALSE(MakeFigure4(alpha).ok());
}

TEST(ParseScenarios, SharedAndOwnValues) {
  const auto scenarios = ParseScenarios(
      "ssds = 8\nalpha = 0.5\n[[scenario]]\nname = \"a\"\n[[scenario]]\nname = \"b\"\n"
      "alpha = 0.7\nmttf_log = \"1.2Mh\"\n",
      "f.toml");
  ASSERT_TRUE(scenarios.ok()) << scenarios.error().message;
  const auto what_if = RunWhatIf(InputSet(), *scenarios);
  ASSERT_TRUE(what_if.ok()) << what_if.error().message;
  ASSERT_EQ(what_if->rows.size(), 2U);
  EXPECT_EQ(what_if->rows[0].inputs.parameters.alpha, 0.5);
  EXPECT_EQ(what_if->rows[1].inputs.parameters.alpha, 0.7);
  EXPECT_EQ(what_if->rows[1].inputs.parameters.ssds, 8U);
  const std::string text = WhatIfText(*what_if);
  EXPECT_NE(text.find("In 'b' what matters most is lambda-ssd"), std::string::npos) << text;
  EXPECT_EQ(WhatIfJson(*what_if)["scenarios"][1]["name"], "b");
}

TEST(ParseScenarios, ErrorsSayWhere) {
  const auto complaint = [](const char* text) {
    const auto scenarios = ParseScenarios(text, "f.toml");
    if (!scenarios.ok()) {
      return scenarios.error().message;
    }
    const auto what_if = RunWhatIf(InputSet(), *scenarios);
    return what_if.ok() ? std::string("none") : what_if.error().message;
  };
  EXPECT_EQ(complaint(""),
            "f.toml: no scenarios in it; each begins with [[scenario]] and has a name");
  EXPECT_TRUE(complaint("x = = 1").starts_with("f.toml:1: "));
  EXPECT_TRUE(
      complaint("\nalhpa = 1\n[[scenario]]\nname = \"a\"").starts_with("f.toml:2: there is"));
  EXPECT_TRUE(
      complaint("[[scenario]]\nalpha = 1").starts_with("f.toml:1: this scenario has no name"));
  EXPECT_TRUE(complaint("[[scenario]]\nname = \"a\"\nalpha = [1]").starts_with("f.toml:3: "));
  EXPECT_TRUE(
      complaint("[[scenario]]\nname = \"a\"\nalpha = -1").starts_with("f.toml:1: alpha must"));
  EXPECT_TRUE(complaint("[[scenario]]\nname = \"a\"\n[[scenario]]\nname = \"a\"")
                  .starts_with("f.toml:3: there are two"));
  EXPECT_NE(complaint("[[scenario]]\nname = \"a\"\nalpha = 1\nafr-ssd = 1\nmttf-ssd = 4\n")
                .find("say the same"),
            std::string::npos);
}

// Whatever the bytes: an answer or one line of refusal, and never a crash.
template <typename Parse>
void Mutate(const std::string& valid, uint64_t seed, const Parse& parse) {
  constexpr std::string_view kAlphabet = "0123456789.:,=x%-+e[]{}\"'\n\\ \x01\xC3nanif";
  int accepted = 0;
  int refused = 0;
  Random random(seed);
  for (int i = 0; i < 3000; ++i) {
    std::string text = valid;
    for (uint64_t changes = random.Between(1, 4); changes > 0 && !text.empty(); --changes) {
      const size_t at = random.Below(text.size());
      switch (random.Below(3)) {
        case 0:
          text[at] = kAlphabet[random.Below(kAlphabet.size())];
          break;
        case 1:
          text.erase(at, random.Between(1, 8));
          break;
        default:
          text.insert(at, 1, kAlphabet[random.Below(kAlphabet.size())]);
      }
    }
    const Status done = parse(text);
    if (!done.ok()) {
      EXPECT_FALSE(done.error().message.empty());
    }
    ++(done.ok() ? accepted : refused);
  }
  EXPECT_GT(accepted, 0) << "mutations reach what is behind the syntax";
  EXPECT_GT(refused, 0);
}

TEST(Parsers, MutatedTextNeverCrashes) {
  Mutate("lambda-log=0.25:2.5:0.25,alpha=0.3,50%,mu-ssd=1:1000:x10", 1,
         [](const std::string& text) {
           const auto axes = ParseSweep(text);
           return axes.ok() ? OkStatus() : Status(Fail(axes.error()));
         });
  Mutate("ssds = 8\n[[scenario]]\nname = \"a\"\nalpha = 0.7\nmttf-log = \"1.2Mh\"\n", 2,
         [](const std::string& text) -> Status {
           const auto scenarios = ParseScenarios(text, "f.toml");
           if (!scenarios.ok()) {
             return Fail(scenarios.error());
           }
           const auto what_if = RunWhatIf(InputSet(), *scenarios);
           return what_if.ok() ? OkStatus() : Status(Fail(what_if.error()));
         });
  const auto json = [](const auto& take) {
    return [take](const std::string& text) -> Status {
      const Json document = Json::parse(text, nullptr, false);
      if (document.is_discarded()) {
        return Fail(ErrorCode::kCorrupt, "no JSON");
      }
      const auto found = take(document);
      if (!found.ok()) {
        return Fail(found.error());
      }
      const auto inputs = ResolveInputs(found->values);
      return inputs.ok() ? OkStatus() : Status(Fail(inputs.error()));
    };
  };
  Mutate(StatusOfEightSsds().dump(), 3, json([](const Json& d) { return FromStatus(d, "demo"); }));
  Mutate(
      R"({"alpha":0.52,"trace":"t","settings":{"parity":2},"policies":{"eplog":{"ssd_bytes":[1,2,3]}}})",
      4, json([](const Json& d) { return FromReplay(d, "r"); }));
}

}  // namespace
}  // namespace eplog::cli
