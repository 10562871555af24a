// Out of the library's parser, with a complaint that says all there is to say: what command_line.cc
// adds to the library's own is not for it. Sees the library: for parser.cc and command_line.cc.
#pragma once

#include <CLI/CLI.hpp>

#include "eplog/result.h"

namespace eplog::cli {

class WrongValue : public CLI::ValidationError {
 public:
  explicit WrongValue(const eplog::Error& error) : CLI::ValidationError(error.ToString()) {}
};

}  // namespace eplog::cli
