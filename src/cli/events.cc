// eplog events: what happened to an array, as JSON lines.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <system_error>
#include <thread>

#include "cli/verb/verbs.h"
#include "host/array_file.h"
#include "host/session.h"
#include "terminal/console.h"

namespace eplog::cli {
namespace {

constexpr char kEventsVerb[] = "events";
constexpr auto kLookForMore = std::chrono::milliseconds(200);

// Prints the whole lines from `at` on; where the next begins.
std::streamoff PrintFrom(const std::string& path, std::streamoff at) {
  std::ifstream in(path, std::ios::binary);
  in.seekg(at);
  std::string line;
  while (std::getline(in, line) && !in.eof()) {
    Print(line);
    at += static_cast<std::streamoff>(line.size()) + 1;
  }
  std::fflush(stdout);
  return at;
}

// Until a signal ends this process.
[[noreturn]] void Follow(const std::string& path, std::streamoff at) {
  while (true) {
    std::this_thread::sleep_for(kLookForMore);
    std::error_code error;
    const auto size = std::filesystem::file_size(path, error);
    if (!error && static_cast<std::streamoff>(size) < at) {
      at = 0;  // a new one was begun
    }
    at = PrintFrom(path, at);
  }
}

Result<int> RunEvents(const std::string& argument, bool follow) {
  auto file = FindArray(kEventsVerb, argument);
  EPLOG_TRY(file);
  const std::string path = EventsPath(*file);
  PrintFrom(path + ".1", 0);
  const std::streamoff at = PrintFrom(path, 0);
  if (follow) {
    Follow(path, at);
  }
  return kDone;
}

}  // namespace

void AddEvents(Parser app, Run& run) {
  auto argument = std::make_shared<std::string>();
  auto follow = std::make_shared<bool>(false);
  Parser verb = app.AddVerb(kEventsVerb, "what happened to an array, as JSON lines, oldest first");
  verb.Add("ARRAY", *argument, kArrayHelp).Required();
  verb.AddFlag("--follow", *follow, "go on with what happens");
  verb.Footer("Example:\n  eplog events ./array --follow");
  verb.OnChosen([argument, follow, &run] {
    run = [argument, follow] { return RunEvents(*argument, *follow); };
  });
}

}  // namespace eplog::cli
