// What `md` (src/baseline/md_array.h) sends to its members for a stream of requests, in the words
// of the tool that counts what real Linux MD sends for the same stream: bench/md_truth.sh runs
// both.
//
//   md_counts iolog STREAM -o FILE   the stream as a fio iolog, for fio
//   md_counts run STREAM             replay it; prints one JSON object
//   md_counts check TRUTH            replay all streams for which real counts are recorded; exit
//                                    status 1 if one is more than 3 % off
//   md_counts table TRUTH            the same as a table in Markdown
//
// STREAM: a trace, or a profile (.toml). TRUTH: what md_truth.sh has recorded. Counts do not depend
// on what the bytes are, so the devices keep none (md_machine.h).
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "baseline/md_array.h"
#include "bench/md_machine.h"
#include "runtime/run_task.h"
#include "runtime/virtual_loop.h"
#include "trace/compact.h"
#include "trace/open.h"

namespace eplog {
namespace {

using Json = nlohmann::ordered_json;

struct Settings {
  uint32_t level = 6;
  uint32_t devices = 8;
  uint32_t chunk_kib = 4;
  uint32_t size_mib = 256;
  uint32_t cached_lines = 256;
  uint64_t request_kib =
      124;  // what the disks of user-mode Linux take: 255 sectors, in whole pages
  bool many_submitters = false;
  bench::ReplayShape replay;
  bench::MachineTimes times;

  [[nodiscard]] uint32_t m() const { return level - 4; }
};

struct StreamSpec {
  std::string file;
  std::string columns;
  uint64_t limit = UINT64_MAX;
};

[[noreturn]] void Die(const std::string& why) {
  fmt::print(stderr, "md_counts: {}\n", why);
  std::exit(1);
}

// Reads and writes as whole sectors, all disks as one, dense if they reach beyond `volume_bytes`.
std::vector<TraceRequest> LoadStream(const StreamSpec& spec, uint64_t volume_bytes) {
  TraceOptions options;
  options.unordered = true;
  if (!spec.columns.empty()) {
    auto layout = ParseColumnLayout(spec.columns);
    if (!layout.ok()) {
      Die(layout.error().ToString());
    }
    options.format = TraceFormat::kColumns;
    options.columns = *layout;
  }
  auto source = OpenTrace(spec.file, options);
  if (!source.ok()) {
    Die(source.error().ToString());
  }
  std::vector<TraceRequest> all;
  std::vector<TraceRequest> batch(4096);
  uint64_t end_bytes = 0;
  while (all.size() < spec.limit) {
    const auto count = (*source)->Read(batch);
    if (!count.ok()) {
      Die(count.error().ToString());
    }
    for (size_t i = 0; i < *count && all.size() < spec.limit; ++i) {
      TraceRequest request = batch[i];
      if (request.op != TraceOp::kRead && request.op != TraceOp::kWrite) {
        continue;
      }
      const uint64_t end = RoundUp(request.end_bytes(), kSectorBytes);
      request.offset_bytes = RoundDown(request.offset_bytes, kSectorBytes);
      request.length_bytes = end - request.offset_bytes;
      end_bytes = std::max(end_bytes, end);
      all.push_back(request);
    }
    if (*count == 0) {
      break;
    }
  }
  if (end_bytes <= volume_bytes) {
    return all;
  }
  Compactor compactor(true);
  for (const TraceRequest& request : all) {
    EPLOG_CHECK(compactor.Note(request).ok(), "the stream fits the compactor");
  }
  compactor.Seal();
  for (TraceRequest& request : all) {
    request = *compactor.Map(request);
    if (request.end_bytes() > volume_bytes) {
      Die(spec.file + " touches more than the volume holds: give --size");
    }
  }
  return all;
}

void WriteIolog(const StreamSpec& spec, uint64_t volume_bytes, const std::string& path) {
  std::ofstream out(path);
  out << "fio version 2 iolog\n/dev/md0 add\n/dev/md0 open\n";
  for (const TraceRequest& request : LoadStream(spec, volume_bytes)) {
    out << fmt::format("/dev/md0 {} {} {}\n", request.op == TraceOp::kRead ? "read" : "write",
                       request.offset_bytes, request.length_bytes);
  }
  out << "/dev/md0 close\n";
  if (!out.flush()) {
    Die("cannot write " + path);
  }
}

Json ToJson(const Settings& settings, const TargetTraffic& traffic) {
  const auto of = [](const DeviceTraffic& device) {
    return Json{{"reads", device.reads},
                {"read_bytes", device.bytes_read},
                {"writes", device.writes},
                {"written_bytes", device.bytes_written}};
  };
  Json json;
  json["level"] = settings.level;
  json["devices"] = settings.devices;
  json["chunk_kib"] = settings.chunk_kib;
  json["user"] = {{"read", {{"ios", traffic.user_reads}, {"bytes", traffic.user_bytes_read}}},
                  {"write", {{"ios", traffic.user_writes}, {"bytes", traffic.user_bytes_written}}}};
  json["members_total"] = of(traffic.SsdTotal());
  for (const DeviceTraffic& device : traffic.ssds) {
    json["members"].push_back(of(device));
  }
  for (size_t i = 0; i < kIoClasses; ++i) {
    json["class_bytes"][IoClassName(static_cast<IoClass>(i))] = traffic.class_bytes[i];
  }
  json["lines"] = {{"full", traffic.lines_full},
                   {"modified", traffic.lines_modified},
                   {"reconstructed", traffic.lines_reconstructed}};
  return json;
}

Json RunStream(const Settings& settings, const StreamSpec& spec) {
  VirtualLoop loop;
  bench::Machine machine(loop, settings.times);
  std::vector<std::unique_ptr<bench::HollowSsd>> ssds;
  std::vector<Device*> pointers;
  for (uint32_t i = 0; i < settings.devices; ++i) {
    ssds.push_back(std::make_unique<bench::HollowSsd>(machine, "ssd" + std::to_string(i),
                                                      uint64_t{settings.size_mib} << 20));
    pointers.push_back(ssds.back().get());
  }
  MdOptions options;
  options.parity = settings.m();
  options.chunk_bytes = settings.chunk_kib << 10;
  options.cached_lines = settings.cached_lines;
  options.plug.request_bytes = settings.request_kib << 10;
  options.one_submitter = !settings.many_submitters;
  auto made = MdArray::Make(loop, pointers, options);
  if (!made.ok()) {
    Die(made.error().ToString());
  }
  const auto requests = LoadStream(spec, (*made)->size_bytes());
  bench::Replay replay(loop, machine, **made, settings.replay);
  const Status replayed = RunTask(loop, replay.Run(requests));
  const Status closed = RunTask(loop, (*made)->Close());
  EPLOG_CHECK(replayed.ok() && closed.ok(), "hollow devices do not fail");
  return ToJson(settings, (*made)->traffic());
}

// One recorded run of real MD, repeated where it does not repeat itself.
struct TrueRun {
  Settings settings;
  StreamSpec spec;
  std::string name;
  std::string mode;
  bool free_running = false;  // many in flight that come as they like: timing decides what merges
  Json real;                  // members_total of each repeat
};

std::vector<TrueRun> LoadTruth(const std::string& path) {
  std::ifstream in(path);
  const Json truth = Json::parse(in, nullptr, false);
  if (truth.is_discarded()) {
    Die(path + " is no JSON");
  }
  std::vector<TrueRun> runs;
  for (const Json& json : truth.at("runs")) {
    TrueRun& run = runs.emplace_back();
    run.settings.level = json.at("level");
    run.settings.devices = json.at("devices");
    run.settings.chunk_kib = json.at("chunk_kib");
    run.settings.size_mib = json.at("size_mib");
    run.mode = json.at("mode");
    run.settings.replay.depth = json.at("depth");
    run.settings.replay.batch = run.mode == "batch";
    run.free_running = run.mode == "free";
    const auto folder = std::filesystem::path(path).parent_path();
    run.spec.file = (folder / json.at("file").get<std::string>()).string();
    run.spec.columns = json.value("columns", "");
    run.name = json.at("stream");
    run.real = json.at("real");
  }
  return runs;
}

constexpr const char* kCounts[] = {"reads", "read_bytes", "writes", "written_bytes"};

std::pair<uint64_t, uint64_t> RealRange(const TrueRun& run, const char* what) {
  std::pair<uint64_t, uint64_t> range(UINT64_MAX, 0);
  for (const Json& repeat : run.real) {
    const uint64_t count = repeat.at(what);
    range = {std::min(range.first, count), std::max(range.second, count)};
  }
  return range;
}

// Ours in parts of the nearest of what real MD did.
double RatioOf(const TrueRun& run, const char* what, const Json& ours) {
  const auto [least, most] = RealRange(run, what);
  const uint64_t count = ours.at("members_total").at(what);
  const uint64_t nearest = std::max<uint64_t>(1, std::clamp(count, least, most));
  return static_cast<double>(count) / static_cast<double>(nearest);
}

// Bytes are held to 3 %, where nothing but the stream decides them. Runs whose trace is not here
// are left out, by name.
int Check(const std::string& path) {
  bool all_right = true;
  for (const TrueRun& run : LoadTruth(path)) {
    const std::string name =
        fmt::format("{:<10} RAID-{} chunk {:>2} depth {:>2} {:<5}", run.name, run.settings.level,
                    run.settings.chunk_kib, run.settings.replay.depth, run.mode);
    if (run.free_running || !std::filesystem::exists(run.spec.file)) {
      fmt::print("{}  skipped: {}\n", name,
                 run.free_running ? "real MD does not repeat it" : "there is no " + run.spec.file);
      continue;
    }
    const Json ours = RunStream(run.settings, run.spec);
    for (const char* what : {"read_bytes", "written_bytes"}) {
      const double ratio = RatioOf(run, what, ours);
      const bool right = std::abs(ratio - 1) <= 0.03;
      all_right &= right;
      fmt::print("{}  {:<13} {:.4f} of real MD{}\n", name, what, ratio,
                 right ? "" : "  MORE THAN 3 % OFF");
    }
  }
  return all_right ? 0 : 1;
}

void Table(const std::string& path) {
  fmt::print(
      "| stream | RAID | chunk | in flight | reads | read bytes | writes | written bytes |\n");
  fmt::print("|---|---|---|---|---|---|---|---|\n");
  for (const TrueRun& run : LoadTruth(path)) {
    if (!std::filesystem::exists(run.spec.file)) {
      continue;
    }
    const Json ours = RunStream(run.settings, run.spec);
    const std::string mode = run.mode == "batch" ? " together" : run.free_running ? " freely" : "";
    fmt::print("| {} | {} | {} KiB | {}{} |", run.name, run.settings.level, run.settings.chunk_kib,
               run.settings.replay.depth, mode);
    for (const char* what : kCounts) {
      const auto [least, most] = RealRange(run, what);
      const auto show = [what](uint64_t count) {
        return std::string_view(what).ends_with("bytes")
                   ? fmt::format("{:.1f}", static_cast<double>(count) / 1048576)
                   : fmt::format("{}", count);
      };
      const std::string real = least == most ? show(least) : show(least) + " to " + show(most);
      const double ratio = RatioOf(run, what, ours);
      const char* const mark = std::abs(ratio - 1) > 0.03 ? "**" : "";
      fmt::print(" {} / {} = {}{:.3f}{} |", show(ours.at("members_total").at(what)), real, mark,
                 ratio, mark);
    }
    fmt::print("\n");
  }
}

int Main(int argc, char** argv) {
  CLI::App app("What md sends to its members for a stream of requests");
  app.require_subcommand(1);
  Settings settings;
  StreamSpec spec;
  std::string path;
  const auto add_stream = [&](CLI::App* verb) {
    verb->add_option("STREAM", spec.file, "a trace, or a profile (.toml)")->required();
    verb->add_option("--columns", spec.columns, "of a trace in columns");
    verb->add_option("--limit", spec.limit, "the first requests only");
    verb->add_option("--level", settings.level, "5 or 6")->check(CLI::Range(5, 6));
    verb->add_option("--devices", settings.devices, "SSDs");
    verb->add_option("--chunk", settings.chunk_kib, "KiB");
    verb->add_option("--size", settings.size_mib, "MiB of each SSD");
  };
  CLI::App* iolog = app.add_subcommand("iolog", "the stream as a fio iolog");
  add_stream(iolog);
  iolog->add_option("-o,--output", path, "file")->required();
  CLI::App* run = app.add_subcommand("run", "replay; prints JSON");
  add_stream(run);
  run->add_option("--depth", settings.replay.depth, "requests in flight");
  run->add_flag("--batch", settings.replay.batch, "all at once, the next when all are done");
  run->add_option("--burst", settings.replay.burst, "so many at once");
  run->add_option("--cached-lines", settings.cached_lines, "stripe_cache_size");
  run->add_option("--request-kib", settings.request_kib, "the longest member request");
  run->add_flag("--many-submitters", settings.many_submitters, "none waits for another one");
  run->add_option("--submit-us", settings.times.submit_us, "of the processor, a request");
  run->add_option("--io-us", settings.times.io_us, "of the server, a member request");
  run->add_option("--answer-us", settings.times.answer_us, "of the processor, a member request");
  CLI::App* check = app.add_subcommand("check", "against recorded counts of real MD");
  check->add_option("TRUTH", path, "JSON written by md_truth.sh")->required();
  CLI::App* table = app.add_subcommand("table", "beside recorded counts of real MD");
  table->add_option("TRUTH", path, "JSON written by md_truth.sh")->required();
  CLI11_PARSE(app, argc, argv);
  if (*iolog) {
    const uint64_t ssd_bytes = uint64_t{settings.size_mib} << 20;
    WriteIolog(spec, (settings.devices - settings.m()) * ssd_bytes, path);
    return 0;
  }
  if (*check) {
    return Check(path);
  }
  if (*table) {
    Table(path);
    return 0;
  }
  fmt::print("{}\n", RunStream(settings, spec).dump(1));
  return 0;
}

}  // namespace
}  // namespace eplog

int main(int argc, char** argv) {
  return eplog::Main(argc, argv);
}
