// The program `eplog`.
#include <exception>
#include <string>
#include <vector>

#include "cli/command_line.h"
#include "cli/console.h"

int main(int argc, char** argv) {
  // The project throws nothing; the standard library may (memory, file names).
  try {
    return eplog::cli::RunCommandLine(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const std::exception& error) {
    return eplog::cli::ReportError("", eplog::Error{eplog::ErrorCode::kIo, error.what()});
  }
}
