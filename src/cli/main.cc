// The program `eplog`.
#include <csignal>
#include <exception>
#include <string>
#include <vector>

#include "base/out_of_memory.h"
#include "cli/command_line.h"
#include "cli/console.h"

int main(int argc, char** argv) {
  eplog::SayWhenOutOfMemory();
  // Writing beyond a limit on the size of files (ulimit -f) is an error, and no reason to die.
  std::signal(SIGXFSZ, SIG_IGN);
  // The project throws nothing; the standard library may (memory, file names).
  try {
    return eplog::cli::RunCommandLine(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const std::exception& error) {
    return eplog::cli::FinishOutput(
        eplog::cli::ReportError("", eplog::Error{eplog::ErrorCode::kIo, error.what()}));
  }
}
