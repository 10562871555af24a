// The verbs of `eplog`, one file each. Add...() declares a verb's options on the parser; when the
// command line chose that verb, `run` becomes what carries it out and returns the exit status.
//
// A new verb: copy a small one, declare it here, add it in main.cc.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace eplog::cli {

using Run = std::function<int()>;

void AddCreate(CLI::App& app, Run& run);
void AddAssemble(CLI::App& app, Run& run);
void AddMount(CLI::App& app, Run& run);
void AddUmount(CLI::App& app, Run& run);
void AddVolume(CLI::App& app, Run& run);
void AddStatus(CLI::App& app, Run& run);
void AddCommit(CLI::App& app, Run& run);
void AddCheckpoint(CLI::App& app, Run& run);
void AddBuffers(CLI::App& app, Run& run);
void AddDiscard(CLI::App& app, Run& run);
void AddFail(CLI::App& app, Run& run);
void AddReplace(CLI::App& app, Run& run);
void AddSpare(CLI::App& app, Run& run);
void AddRebuild(CLI::App& app, Run& run);
void AddCheck(CLI::App& app, Run& run);
void AddScrub(CLI::App& app, Run& run);
void AddInject(CLI::App& app, Run& run);
void AddEvents(CLI::App& app, Run& run);
void AddInspect(CLI::App& app, Run& run);
void AddMttdl(CLI::App& app, Run& run);
void AddTrace(CLI::App& app, Run& run);
void AddReplay(CLI::App& app, Run& run);

// The wording that all verbs share.
inline constexpr char kArrayHelp[] = "the array: its directory, or its array.toml";
inline constexpr char kJsonHelp[] = "print one JSON document";

}  // namespace eplog::cli
