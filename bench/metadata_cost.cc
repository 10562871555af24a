// What metadata costs: bytes of checkpoints (paper, experiment S4, and a sparse array), and on
// request the time of large ones. Through the public API, on devices that keep metadata and forget
// data. Prints a table, then one line of JSON.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/random.h"
#include "bench/hollow_rig.h"
#include "eplog/array.h"
#include "runtime/task_group.h"
#include "runtime/virtual_loop.h"

namespace eplog::bench {
namespace {

double Percent(uint64_t part, uint64_t of) {
  return 100.0 * static_cast<double>(part) / static_cast<double>(of);
}

// Experiment S4: stripes made by sequential writing, then every chunk updated once in random order.
nlohmann::json Paper(uint64_t area_bytes) {
  OpenOptions options;
  options.auto_commit = false;
  options.checkpoint = {.log_bytes = 0, .interval_us = 0};
  VirtualLoop loop;
  Rig rig(loop, {.data_bytes = area_bytes, .log_bytes = area_bytes, .reserve_percent = 50},
          options);
  rig.Fill(area_bytes);
  const Traffic created = rig.Now();
  const uint64_t created_bytes = created.ssd_data_bytes + created.ssd_parity_bytes;
  const uint64_t first = rig.Checkpoint(CheckpointKind::kFull);
  std::vector<uint64_t> chunks(area_bytes / kChunk);
  std::iota(chunks.begin(), chunks.end(), 0);
  Random random(9);
  for (size_t i = chunks.size(); i > 1; --i) {
    std::swap(chunks[i - 1], chunks[random.Below(i)]);
  }
  Require(RunTask(rig.loop, rig.Update(chunks, 32)), "updates");
  const Traffic updated = rig.Now();
  const uint64_t updated_bytes = updated.ssd_data_bytes + updated.ssd_parity_bytes - created_bytes;
  const uint64_t incremental = rig.Checkpoint(CheckpointKind::kIncremental);
  const uint64_t full = rig.Checkpoint(CheckpointKind::kFull);
  nlohmann::json json;
  fmt::print("area {} MiB, 6+2: metadata written, of the bytes written to SSDs without\n",
             area_bytes >> 20);
  fmt::print("  {:<36} {:>10} {:>10} {:>10}\n", "", "one copy", "all copies", "paper");
  const auto line = [&](const char* name, const char* key, uint64_t bytes, uint64_t of,
                        const char* paper) {
    fmt::print("  {:<36} {:>9.3f}% {:>9.3f}% {:>10}\n", name, Percent(bytes / (kParity + 1), of),
               Percent(bytes, of), paper);
    json[key] = {{"bytes_one_copy", bytes / (kParity + 1)},
                 {"bytes", bytes},
                 {"ssd_bytes", of},
                 {"percent_one_copy", Percent(bytes / (kParity + 1), of)}};
  };
  line("full, after creation", "full_after_creation", first, created_bytes, "0.36%");
  line("incremental, after updates", "incremental_after_updates", incremental, updated_bytes,
       "1.81%");
  line("full, after updates", "full_after_updates", full, updated_bytes, "2.25%");
  rig.Close();
  return json;
}

// Uniform updates of a large array that is almost empty, everything committed and closed in the
// end.
nlohmann::json Sparse(uint64_t volume_bytes, uint64_t updates) {
  VirtualLoop loop;
  Rig rig(loop, {.data_bytes = volume_bytes, .log_bytes = uint64_t{1} << 30, .hollow = false},
          OpenOptions());
  std::vector<uint64_t> chunks;
  Random random(9);
  for (uint64_t i = 0; i < updates; ++i) {
    chunks.push_back(random.Below(volume_bytes / kChunk));
  }
  const Traffic before = rig.Now();
  Require(RunTask(rig.loop, rig.Update(chunks, 32)), "updates");
  Require(RunTask(rig.loop, rig.array->Commit({})), "commit");
  Require(RunTask(rig.loop, rig.array->Checkpoint(CheckpointKind::kAuto)), "checkpoint");
  const Traffic after = rig.Now();
  const uint64_t user = updates * kChunk;
  const uint64_t ssd = after.ssd_metadata_bytes - before.ssd_metadata_bytes;
  const uint64_t log = after.log_header_bytes - before.log_header_bytes;
  fmt::print(
      "{} GiB sparse, {} updates, committed: metadata on SSDs {:.2f}% of user bytes (all "
      "copies), headers on log devices {:.2f}%, {} checkpoints\n",
      volume_bytes >> 30, updates, Percent(ssd, user), Percent(log, user), after.checkpoints);
  rig.Close();
  return {{"user_bytes", user},
          {"ssd_metadata_bytes", ssd},
          {"log_header_bytes", log},
          {"percent", Percent(ssd, user)}};
}

int Main(int argc, char** argv) {
  CLI::App app("What metadata costs");
  uint64_t area_mib = 8192;
  uint64_t sparse_gib = 1024;
  uint64_t updates = 100'000;
  bool quick = false;
  app.add_option("--area-mib", area_mib, "of the paper's experiment");
  app.add_option("--sparse-gib", sparse_gib, "size of the sparse volume");
  app.add_option("--updates", updates, "of the sparse volume");
  app.add_flag("--quick", quick, "small sizes");
  CLI11_PARSE(app, argc, argv);
  if (quick) {
    area_mib = 192;
    sparse_gib = 16;
    updates = 10'000;
  }
  nlohmann::json json;
  json["paper"] = Paper(area_mib << 20);
  json["sparse"] = Sparse(sparse_gib << 30, updates);
  fmt::print("{}\n", json.dump());
  // The bars: figures of the paper, and 15 % of user bytes.
  const auto percent = [&](const char* key) {
    return json["paper"][key]["percent_one_copy"].get<double>();
  };
  const bool good =
      percent("full_after_creation") <= 0.36 && percent("incremental_after_updates") <= 1.8 &&
      percent("full_after_updates") <= 2.25 && json["sparse"]["percent"].get<double>() <= 15;
  return good ? 0 : 1;
}

}  // namespace
}  // namespace eplog::bench

int main(int argc, char** argv) {
  return eplog::bench::Main(argc, argv);
}
