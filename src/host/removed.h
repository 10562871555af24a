// Members of a served array whose files were removed: the process that serves it goes on with what it has open, and what
// has no name any more ends with that process. Whoever opens the array next does not find it.
#pragma once

#include <string>
#include <vector>

#include "host/server.h"

namespace eplog {

// By name, of those that the array held when `server` was asked. Nothing is asked of paths, so that mounts of others and
// moved files tell nothing; what does not answer within a second, or may not be looked at, is not among them, nor anything
// of a process that does not say what it holds.
std::vector<std::string> FindRemoved(const Server& server);

}  // namespace eplog
