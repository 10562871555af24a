// Fail the Nth I/O against the engine:   nth_io [--step K]

#include <CLI/CLI.hpp>

#include "tests/torture/engine_factory.h"
#include "tests/torture/nth_io.h"

int main(int argc, char** argv) {
  CLI::App app("Fail the Nth I/O of a fixed scenario, for every N");
  eplog::torture::NthIoOptions options;
  app.add_option("--step", options.step, "every so many N");
  CLI11_PARSE(app, argc, argv);
  eplog::torture::EngineFactory factory;
  return eplog::torture::RunNthIo(factory, options) == 0 ? 0 : 1;
}
