// The seeded simulation that judges the engine.
//
//   torture --seeds N --first S [--jobs J] [--minutes M] [--twice] [--hash] [--verbose] [--no-fork]
//   torture --canary NAME|all [--seeds 500]
//
// Without --first, with --minutes: seeds start at the clock, and the first is printed.

#include <malloc.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>

#include "tests/torture/engine_factory.h"
#include "tests/torture/runner.h"

namespace {

using eplog::Canary;
using eplog::torture::EngineFactory;
using eplog::torture::RunnerOptions;

constexpr const char* kCanaryNames[eplog::kCanaries] = {"none",
                                                        "slot-reuse",
                                                        "flush-own-ssd",
                                                        "ring-unflushed",
                                                        "no-epoch-join",
                                                        "tail-copies",
                                                        "superblock-late",
                                                        "row-no-versions",
                                                        "torn-stripe-kept",
                                                        "parity-in-place",
                                                        "log-freed-early",
                                                        "checkpoint-unstable",
                                                        "flush-dropped",
                                                        "trim-frees-at-once",
                                                        "no-pendings",
                                                        "runs-out-of-order",
                                                        "buffer-hit-lost",
                                                        "commit-without-reserve",
                                                        "early-death-unstable",
                                                        "replaced-words-kept",
                                                        "joined-ok-early",
                                                        "rebuild-forgets-log",
                                                        "joined-forgotten",
                                                        "stale-trusted",
                                                        "absent-is-zero",
                                                        "flush-retried",
                                                        "tie-refused",
                                                        "heal-in-place",
                                                        "version-by-place",
                                                        "content-by-crc",
                                                        "rename-unflushed",
                                                        "tail-cut",
                                                        "drop-untold",
                                                        "older-refused",
                                                        "logs-given-up",
                                                        "unwhole-counts",
                                                        "stop-written-down",
                                                        "return-unopened"};

int RunCanaries(const std::string& which, const RunnerOptions& options) {
  bool known = false;
  bool good = true;
  for (int i = 1; i < eplog::kCanaries; ++i) {
    if (which == "all" || which == kCanaryNames[i]) {
      EngineFactory factory;
      known = true;
      good = RunCanary(factory, options, static_cast<Canary>(i), kCanaryNames[i]) && good;
    }
  }
  if (!known) {
    std::fprintf(stderr, "no such canary: %s\n", which.c_str());
    return 2;
  }
  return good ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  // Simulated devices come and go: a third of all time went into giving memory back and taking it
  // again.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_TOP_PAD, 64 << 20);
  CLI::App app("Seeded crashes against the engine, judged by an oracle");
  RunnerOptions options;
  std::string canary;
  auto* seeds = app.add_option("--seeds", options.seeds, "how many");
  auto* first = app.add_option("--first", options.first, "the first seed");
  app.add_option("--jobs", options.jobs, "seeds at once");
  app.add_option("--minutes", options.minutes, "run for so long");
  app.add_option("--canary", canary, "a broken rule, or all: must be caught within --seeds");
  app.add_option("--stop-after", options.stop_after, "failing seeds");
  app.add_option("--least", options.least, "fail if something was met less often");
  app.add_flag("--twice", options.twice, "run every seed twice; they must be equal");
  app.add_flag("--hash", options.hash, "print the hash of every seed");
  app.add_flag("--verbose", options.verbose, "tell what happens");
  app.add_flag("--no-fork", options.in_process, "no child processes");
  CLI11_PARSE(app, argc, argv);
  if (!canary.empty()) {
    if (seeds->count() == 0) {
      options.seeds = 500;
    }
    return RunCanaries(canary, options);
  }
  if (options.minutes > 0 && first->count() == 0) {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    options.first = static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::seconds>(now).count() % 1'000'000 * 10'000);
    std::printf("fresh seeds from %llu\n", static_cast<unsigned long long>(options.first));
  }
  EngineFactory factory;
  return RunSeeds(factory, options);
}
