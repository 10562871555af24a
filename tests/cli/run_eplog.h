// The program's command line, run here, and what it said.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cli/command_line.h"

namespace eplog::cli {

struct Outcome {
  int status;
  std::string out;
  std::string err;
};

inline Outcome RunEplog(const std::vector<std::string>& words) {
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  const int status = RunCommandLine(words);
  return {status, ::testing::internal::GetCapturedStdout(),
          ::testing::internal::GetCapturedStderr()};
}

}  // namespace eplog::cli
