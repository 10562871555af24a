// The program `eplog`.
#include <fcntl.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "base/out_of_memory.h"
#include "cli/command_line.h"
#include "terminal/console.h"

namespace {

// Who starts a program with standard streams closed would have the first files that it opens,
// members of an array, take their numbers, and what it says would be written into them. What holds
// the place cannot be used, so that writing a result fails as it should.
void OccupyStandardStreams() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (fcntl(fd, F_GETFD) == -1 && errno == EBADF) {
      const int unusable = fd == 0 ? O_WRONLY : O_RDONLY;
      if (open("/dev/null", unusable) != fd) {
        std::_Exit(1);  // and nobody to tell
      }
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  OccupyStandardStreams();
  eplog::SayWhenOutOfMemory();
  // Writing beyond a limit on the size of files (ulimit -f) is an error, and no reason to die.
  std::signal(SIGXFSZ, SIG_IGN);
  // The project throws nothing; the standard library may (memory, file names).
  try {
    return eplog::cli::RunCommandLine(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const std::exception& error) {
    return eplog::FinishOutput(
        eplog::ReportError("", eplog::Error{eplog::ErrorCode::kIo, error.what()}));
  }
}
