#include "trace/open.h"

#include <fmt/format.h>

#include <filesystem>

#include "trace/byte_source.h"
#include "trace/profile.h"
#include "trace/trace_file.h"

namespace eplog {
namespace {

// A name is a profile's if it ends like one, or if the program knows it and there is no such file.
bool IsProfile(const std::string& name) {
  std::error_code ignored;
  return name.ends_with(".toml") ||
         (BuiltInProfile(name) != nullptr && !std::filesystem::exists(name, ignored));
}

}  // namespace

Result<std::unique_ptr<TraceSource>> OpenTrace(const std::string& name,
                                               const TraceOptions& options) {
  if (IsProfile(name)) {
    auto profile = LoadProfile(name);
    EPLOG_TRY(profile);
    profile->seed = options.seed.value_or(profile->seed);
    return MakeGenerator(std::move(*profile));
  }
  const std::string shown = name == "-" ? "standard input" : name;
  auto bytes = OpenByteSource(name);
  if (!bytes.ok()) {
    Error error = bytes.error();
    error.message = fmt::format("{}: {}", shown, error.message);
    return Fail(std::move(error));
  }
  return TraceFile::Open(shown, std::move(*bytes), options);
}

Result<std::unique_ptr<TraceSource>> OpenTraceBytes(std::span<const char> bytes,
                                                    const TraceOptions& options) {
  auto source = MemoryByteSource(bytes);
  if (!source.ok()) {
    return Fail(std::move(source).error());
  }
  return TraceFile::Open("trace", std::move(*source), options);
}

}  // namespace eplog
