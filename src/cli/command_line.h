// From argv to what is to be done: forgiving verb names, parsing, help, and the one line for what
// cannot be understood.
#pragma once

#include <string>
#include <vector>

#include "cli/verb/verbs.h"

namespace eplog::cli {

// Spell out abbreviated verbs (and those below `volume`) in `args`, in place: `vol ls` -> `volume
// list`. Leaves alone what it does not know.
void ExpandVerbs(const CLI::App& app, std::vector<std::string>& args);

// Run the command line `args` (without the program's name). Returns the exit status.
int RunCommandLine(std::vector<std::string> args);

}  // namespace eplog::cli
