// How long large metadata takes: pauses while a full checkpoint is written beside updates, loading
// it, and recovering a long log. Metadata and log lie in files of a directory, read and written
// directly; what goes to slots is forgotten. Prints a table, then one line of JSON.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "bench/hollow_rig.h"
#include "device/file_device.h"
#include "runtime/io_uring_loop.h"

namespace eplog::bench {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The longest time between two turns of the loop while `task` runs.
Task<void> WatchPauses(EventLoop& loop, const bool& done, double& longest) {
  auto last = Clock::now();
  while (!done) {
    co_await loop.Yield();
    longest = std::max(longest, SecondsSince(last));
    last = Clock::now();
  }
}

Task<Status> CheckpointWithUpdates(Rig& rig, const std::vector<uint64_t>& chunks, bool& done) {
  TaskGroup group(rig.loop);
  group.Start(rig.array->Checkpoint(CheckpointKind::kFull));
  group.Start(rig.Update(chunks, 8));
  Task<Status> all = group.Wait();
  Status status = co_await all;
  done = true;
  co_return status;
}

std::vector<uint64_t> RandomChunks(uint64_t of, uint64_t count) {
  Random random(5);
  std::vector<uint64_t> chunks(count);
  for (uint64_t& chunk : chunks) {
    chunk = random.Below(of);
  }
  return chunks;
}

uint64_t BytesRead(Rig& rig) {
  uint64_t bytes = 0;
  for (const DeviceStatus& device : rig.array->GetStatus().devices) {
    bytes += device.bytes_read;
  }
  return bytes;
}

// What one reader gets from a file of the directory in pieces of 1 MiB, four at once.
double DiskReadRate(IoUringLoop& loop, Device& device, uint64_t bytes) {
  constexpr uint64_t kPiece = uint64_t{1} << 20;
  BufferPool pool;
  const auto start = Clock::now();
  const Status read = RunTask(
      loop, [](IoUringLoop& on, Device& from, BufferPool& buffers, uint64_t all) -> Task<Status> {
        TaskGroup group(on);
        std::vector<Buffer> keep;
        for (int i = 0; i < 4; ++i) {
          keep.push_back(buffers.Get(kPiece));
        }
        std::vector<iovec> parts;
        for (const Buffer& buffer : keep) {
          parts.push_back({buffer.data(), kPiece});
        }
        for (uint64_t at = 0; at + 4 * kPiece <= all; at += 4 * kPiece) {
          for (size_t i = 0; i < 4; ++i) {
            group.Start(from.Read(at + i * kPiece, std::span(parts).subspan(i, 1)));
          }
          Task<Status> wait = group.Wait();
          Status status = co_await wait;
          EPLOG_CO_TRY(status);
        }
        co_return OkStatus();
      }(loop, device, pool, bytes));
  Require(read, "read");
  return static_cast<double>(bytes) / SecondsSince(start);
}

int Main(int argc, char** argv) {
  CLI::App app("How long large metadata takes");
  std::string directory;
  uint64_t mega_slots = 64;
  uint64_t live_mib = 1024;
  app.add_option("DIR", directory, "for the files, some gigabytes")->required();
  app.add_option("--mega-slots", mega_slots, "slots of the array, in 2^20");
  app.add_option("--live-mib", live_mib, "log after the last checkpoint when it is killed");
  int repeat = 0;
  app.add_option("--repeat", repeat, "open so many times before the measured one");
  CLI11_PARSE(app, argc, argv);
  std::filesystem::create_directories(directory);
  auto created = IoUringLoop::Create();
  Require(created.ok() ? OkStatus() : Status(Fail(created.error())), "io_uring");
  IoUringLoop& loop = **created;
  RigShape shape;
  shape.data_bytes = (mega_slots << 20) * 9 / 10 / kSsds * (kSsds - kParity) * kChunk;
  shape.log_bytes = uint64_t{3} << 30;
  shape.keep_log = true;
  shape.below = [&](const std::string& name, uint64_t bytes) -> std::unique_ptr<Device> {
    const std::string path = directory + "/" + name;
    std::filesystem::remove(path);
    CreateFileOptions options;
    options.sparse = true;
    const auto made =
        RunTask(loop, CreateMemberFile(loop, path, RoundUp(bytes, uint64_t{1} << 20), options));
    Require(made.ok() ? OkStatus() : Status(Fail(made.error())), "create a file");
    auto device = FileDevice::Open(loop, path);
    Require(device.ok() ? OkStatus() : Status(Fail(device.error())), "open a file");
    return std::move(*device);
  };
  OpenOptions options;
  options.auto_commit = false;
  options.checkpoint = {.log_bytes = 0, .interval_us = 0};
  nlohmann::json json;
  {
    Rig rig(loop, shape, options);
    auto start = Clock::now();
    rig.Fill(shape.data_bytes);
    fmt::print("{} M slots filled in {:.1f} s\n", mega_slots, SecondsSince(start));
    const uint64_t chunks = shape.data_bytes / kChunk;
    bool done = false;
    double longest = 0;
    loop.Spawn(WatchPauses(loop, done, longest));
    start = Clock::now();
    const auto updates = RandomChunks(chunks, 100'000);
    Require(RunTask(loop, CheckpointWithUpdates(rig, updates, done)), "checkpoint");
    const double checkpoint_seconds = SecondsSince(start);
    fmt::print("full checkpoint beside 100,000 updates: {:.2f} s, longest pause {:.2f} ms\n",
               checkpoint_seconds, longest * 1e3);
    json["longest_pause_ms"] = longest * 1e3;
    Require(RunTask(loop, rig.array->Checkpoint(CheckpointKind::kFull)), "checkpoint");
    rig.Kill();
    for (int i = 0; i < repeat; ++i) {  // for a profiler
      rig.Open();
      rig.Kill();
    }
    start = Clock::now();
    rig.Open();
    const double load_seconds = SecondsSince(start);
    const uint64_t read = BytesRead(rig);
    const double load_rate = static_cast<double>(read) / load_seconds;
    // What the disk gives who does nothing with the bytes.
    const std::string scratch = directory + "/scratch";
    const auto made =
        RunTask(loop, CreateMemberFile(loop, scratch, uint64_t{1} << 30, {.overwrite = true}));
    Require(made.ok() ? OkStatus() : Status(Fail(made.error())), "create a file");
    auto raw = FileDevice::Open(loop, scratch);
    Require(raw.ok() ? OkStatus() : Status(Fail(raw.error())), "open a file");
    const double disk_rate = DiskReadRate(loop, **raw, uint64_t{1} << 30);
    fmt::print(
        "opening: {:.2f} s for {} MiB of metadata and journal, {:.0f} MiB/s; the disk reads "
        "{:.0f} MiB/s: {:.2f}\n",
        load_seconds, read >> 20, load_rate / (1 << 20), disk_rate / (1 << 20),
        load_rate / disk_rate);
    json["open_seconds"] = load_seconds;
    json["open_bytes"] = read;
    json["disk_bytes_per_second"] = disk_rate;
    json["ratio"] = load_rate / disk_rate;
    // About 1.1 blocks of log an update at this depth; until enough of it has been appended.
    while (rig.array->GetStatus().log_used_bytes < live_mib << 20) {
      Require(RunTask(loop, rig.Update(RandomChunks(chunks, 50'000), 32)), "updates");
    }
    Require(RunTask(loop, rig.array->FlushAll()), "flush");
    const uint64_t live = rig.array->GetStatus().log_used_bytes;
    rig.Kill();
    start = Clock::now();
    rig.Open();
    const double recovery = SecondsSince(start);
    fmt::print(
        "recovery with {} MiB of live log: {:.2f} s, of which {:.2f} s more than opening; {} "
        "entries\n",
        live >> 20, recovery, recovery - load_seconds,
        rig.array->GetStatus().recovery_entries_replayed);
    json["recovery_seconds"] = recovery;
    json["live_log_bytes"] = live;
    rig.Kill();
  }
  fmt::print("{}\n", json.dump());
  return 0;
}

}  // namespace
}  // namespace eplog::bench

int main(int argc, char** argv) {
  return eplog::bench::Main(argc, argv);
}
