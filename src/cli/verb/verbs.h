// The verbs of `eplog`, one file each. Add...() declares a verb's options on the parser; when the
// command line chose that verb, `run` becomes what carries it out and returns the exit status.
//
// A new verb: copy a small one, declare it here, add it in command_line.cc.
#pragma once

#include <functional>

#include "cli/verb/parser.h"
#include "eplog/result.h"

namespace eplog::cli {

// The exit status, or why it could not be done: what is said of that is said in one place.
using Run = std::function<Result<int>()>;

void AddCreate(Parser app, Run& run);
void AddAssemble(Parser app, Run& run);
void AddMount(Parser app, Run& run);
void AddUmount(Parser app, Run& run);
void AddVolume(Parser app, Run& run);
void AddStatus(Parser app, Run& run);
void AddCommit(Parser app, Run& run);
void AddCheckpoint(Parser app, Run& run);
void AddBuffers(Parser app, Run& run);
void AddDiscard(Parser app, Run& run);
void AddFail(Parser app, Run& run);
void AddReplace(Parser app, Run& run);
void AddSpare(Parser app, Run& run);
void AddRebuild(Parser app, Run& run);
void AddCheck(Parser app, Run& run);
void AddScrub(Parser app, Run& run);
void AddInject(Parser app, Run& run);
void AddEvents(Parser app, Run& run);
void AddInspect(Parser app, Run& run);
void AddMttdl(Parser app, Run& run);
void AddTrace(Parser app, Run& run);
void AddReplay(Parser app, Run& run);

// The wording that all verbs share.
inline constexpr char kArrayHelp[] = "the array: its directory, or its array.toml";
inline constexpr char kJsonHelp[] = "print one JSON document";

}  // namespace eplog::cli
