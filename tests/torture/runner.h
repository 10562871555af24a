// Runs seeds in child processes, adds up their coverage, and says how to repeat what failed. A
// child that breaks an invariant dies alone.
#pragma once

#include <string>

#include "tests/torture/machine.h"

namespace eplog::torture {

struct RunnerOptions {
  uint64_t seeds = 100;
  uint64_t first = 1;
  unsigned jobs = 1;
  double minutes = 0;  // stop starting seeds after this; 0: no limit
  bool hash = false;   // print the hash of every seed
  bool twice = false;  // run every seed twice; the hashes must be equal
  bool verbose = false;
  bool in_process = false;  // no children: for debuggers
  std::string repeat = "make torture SEEDS=1 FIRST=";
  uint64_t stop_after = 10;  // failing seeds
  uint64_t least = 0;        // fail if something was met less often; 0: the rule of 5,000 seeds
};

// Process exit code: 0 if no seed failed.
int RunSeeds(ArrayFactory& factory, const RunnerOptions& options);

// Run seeds under a broken rule until one catches it. False if `seeds` did not. Prints who caught
// it and how.
bool RunCanary(ArrayFactory& factory, const RunnerOptions& options, Canary canary,
               const std::string& name);

}  // namespace eplog::torture
