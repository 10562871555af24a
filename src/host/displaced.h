// Members of a served array that are no more where they are looked for: a file was removed while the array is mounted,
// or something else is at its path now. The process that serves goes on with what it has open; whoever opens the array
// next does not find it, and a file without a name ends with that process.
#pragma once

#include <string>
#include <vector>

#include "control/control.h"
#include "eplog/result.h"

namespace eplog {

struct DisplacedMember {
  std::string name;
  std::string path;      // where it was found when the array was opened
  bool removed = false;  // a file that has no name any more, as far as /proc tells
};

// Of those that the array holds at the other end. What does not answer within a second is not among them, nor anything
// of a process that does not tell what it holds.
std::vector<DisplacedMember> FindDisplaced(ControlClient& client);

// "ssd0, ssd1"
std::string NamesOf(const std::vector<DisplacedMember>& members);

}  // namespace eplog
