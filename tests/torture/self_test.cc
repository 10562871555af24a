// The harness judged: a correct toy must pass, each broken one must be caught.
//
//   torture_self_test [--seeds N] [--first S] [--bug NAME] [--jobs J] [--verbose]

#include <CLI/CLI.hpp>
#include <cstdio>

#include "tests/torture/nth_io.h"
#include "tests/torture/runner.h"
#include "tests/torture/toy_array.h"

namespace {

using eplog::torture::RunnerOptions;
using eplog::torture::ToyBug;
using eplog::torture::ToyFactory;

int RunAll(RunnerOptions options) {
  ToyFactory right(ToyBug::kNone);
  bool good = RunSeeds(right, options) == 0;
  good = RunNthIo(right, {.step = 3}) == 0 && good;
  for (int i = 1; i < eplog::torture::kToyBugs; ++i) {
    const auto bug = static_cast<ToyBug>(i);
    ToyFactory wrong(bug);
    if (i >= eplog::torture::kToyBugs - eplog::torture::kToyFaultBugs) {
      const bool caught = RunNthIo(wrong, {.step = 3, .stop_after = 1, .quiet = true}) != 0;
      std::printf("%-22s %s by failing the Nth I/O\n", ToyBugName(bug),
                  caught ? "caught" : "NOT CAUGHT");
      good = good && caught;
      continue;
    }
    RunnerOptions hunt = options;
    hunt.seeds = 200;
    good = RunCanary(wrong, hunt, eplog::Canary::kNone, ToyBugName(bug)) && good;
  }
  return good ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("The torture harness against a simple array");
  RunnerOptions options;
  std::string bug;
  options.seeds = 60;
  options.repeat = "torture_self_test --bug none --seeds 1 --first ";
  app.add_option("--seeds", options.seeds);
  app.add_option("--first", options.first);
  app.add_option("--jobs", options.jobs);
  app.add_option("--bug", bug, "run only this variant of the toy");
  app.add_flag("--verbose", options.verbose);
  app.add_flag("--hash", options.hash);
  app.add_flag("--twice", options.twice);
  app.add_flag("--no-fork", options.in_process);
  CLI11_PARSE(app, argc, argv);
  if (bug.empty()) {
    return RunAll(options);
  }
  for (int i = 0; i < eplog::torture::kToyBugs; ++i) {
    if (bug == ToyBugName(static_cast<ToyBug>(i))) {
      ToyFactory factory(static_cast<ToyBug>(i));
      return RunSeeds(factory, options);
    }
  }
  std::fprintf(stderr, "no such bug: %s\n", bug.c_str());
  return 2;
}
