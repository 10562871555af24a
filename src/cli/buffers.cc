// eplog buffers: change the write buffers of a mounted array.
#include <fmt/format.h>

#include <memory>
#include <string>

#include "cli/verb/verbs.h"
#include "host/array_file.h"
#include "host/session.h"
#include "terminal/console.h"

namespace eplog::cli {
namespace {

constexpr char kBuffersVerb[] = "buffers";

struct BuffersCommand {
  std::string array;
  uint32_t device_buffer = 0;
  uint32_t stripe_buffer = 0;
};

Result<int> RunBuffers(const BuffersCommand& command) {
  auto file = FindArray(kBuffersVerb, command.array);
  EPLOG_TRY(file);
  const auto done = AskServer(*file, {{"verb", kBuffersVerb},
                                      {"device_chunks", command.device_buffer},
                                      {"stripes", command.stripe_buffer}});
  if (!done.ok() && done.error().code == ErrorCode::kNotFound) {
    return Fail(ErrorCode::kNotFound,
                fmt::format("{} is not mounted: mount it with --device-buffer and --stripe-buffer",
                            file->Argument().string()));
  }
  EPLOG_TRY(done);
  Print(fmt::format("buffers of '{}': {} chunks an SSD for updates, {} stripes for new data",
                    file->name, command.device_buffer, command.stripe_buffer));
  return kDone;
}

}  // namespace

void AddBuffers(Parser app, Run& run) {
  auto command = std::make_shared<BuffersCommand>();
  Parser verb = app.AddVerb(kBuffersVerb,
                            "set the write buffers of a mounted array; what is not named is off");
  verb.Add("ARRAY", command->array, kArrayHelp).Required();
  verb.Add("--device-buffer", command->device_buffer, "chunks of each SSD for updates")
      .TypeName("CHUNKS")
      .Within(0U, kMaxBufferChunks);
  verb.Add("--stripe-buffer", command->stripe_buffer, "stripes for new data")
      .TypeName("STRIPES")
      .Within(0U, kMaxBufferChunks);
  verb.Footer("Example:\n  eplog buffers ./array --device-buffer 64");
  verb.OnChosen([command, &run] { run = [command] { return RunBuffers(*command); }; });
}

}  // namespace eplog::cli
