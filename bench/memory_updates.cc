// What the engine itself costs: 4 KiB random updates on memory devices, which answer at once,
// through the public API. Prints a table, then one line of JSON.
//
// An array of k + m SSDs is filled once through its volume; then `depth` writers overwrite random
// 4 KiB chunks of it. Everything that steady state needs is inside the measured time: the log wraps
// many times in a run, so parity commits, checkpoints and the engine's own flushes go on meanwhile.
#include <fmt/format.h>
#include <sys/mman.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "base/check.h"
#include "base/random.h"
#include "device/memory_device.h"
#include "eplog/array.h"
#include "runtime/io_uring_loop.h"
#include "runtime/run_task.h"
#include "runtime/virtual_loop.h"

namespace eplog {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kUpdateBytes = 4096;

struct Settings {
  uint32_t data = 6;
  uint32_t parity = 2;
  uint32_t depth = 32;
  uint32_t runs = 5;
  uint64_t updates = 1'000'000;  // a run
  uint64_t ssd_mib = 384;
  uint64_t log_mib = 512;
  uint64_t volume_mib = 1024;
  std::string loop = "real";
  std::vector<std::string> journals = {"full", "log"};
  double at_least = 0;  // updates a second; 0: no bar
};

struct Outcome {
  std::string journal;
  std::vector<double> rates;  // updates a second of wall clock, one a run, sorted
  std::vector<double>
      cpu_rates;    // a second of processor time: also means something on a busy machine
  Traffic traffic;  // of the measured runs
  [[nodiscard]] double Median() const { return rates[rates.size() / 2]; }
  [[nodiscard]] double CpuMedian() const { return cpu_rates[cpu_rates.size() / 2]; }
};

struct Rates {
  double wall = 0;
  double cpu = 0;
};

double CpuSeconds() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

void Require(const Status& status, const char* what) {
  if (!status.ok()) {
    fmt::print(stderr, "{}: {}\n", what, status.error().ToString());
    std::exit(1);
  }
}

// Memory devices, an array over them and its one volume.
class Rig {
 public:
  Rig(EventLoop& loop, const Settings& settings, JournalMode journal)
      : loop_(loop), settings_(settings), random_(1) {
    const uint32_t n = settings.data + settings.parity;
    std::vector<Device*> all;
    for (uint32_t i = 0; i < n + settings.parity; ++i) {
      const uint64_t mib = i < n ? settings.ssd_mib : settings.log_mib;
      devices_.push_back(
          std::make_unique<MemoryDevice>(fmt::format("memory{}", i), mib * kMiB, &loop));
      MakeResident(devices_.back()->bytes());
      all.push_back(devices_.back().get());
    }
    CreateOptions create;
    create.parity = settings.parity;
    create.journal = journal;
    create.entropy = 1;
    const auto logs = all.begin() + n;
    Require(RunTask(loop, Array::Create(loop, {all.begin(), logs}, {logs, all.end()}, create)),
            "create");
    OpenOptions open;
    open.entropy = 2;
    auto opened = RunTask(loop, Array::Open(loop, all, open));
    if (!opened.ok()) {
      Require(Fail(opened.error()), "open");
    }
    array_ = std::move(*opened);
    auto volume = RunTask(loop, array_->CreateVolume("v", settings.volume_mib * kMiB));
    if (!volume.ok()) {
      Require(Fail(volume.error()), "volume");
    }
    volume_ = *volume;
  }
  Rig(const Rig&) = delete;
  Rig& operator=(const Rig&) = delete;
  ~Rig() { Require(RunTask(loop_, array_->Close()), "close"); }

  void Fill() {
    Buffer buffer = pool_.Get(settings_.data * kUpdateBytes * 32);
    Scribble(buffer);
    const uint64_t end = settings_.volume_mib * kMiB;
    for (uint64_t at = 0; at < end; at += buffer.size()) {
      const auto part = buffer.span().first(std::min<uint64_t>(buffer.size(), end - at));
      Require(RunTask(loop_, array_->Write(volume_, at, part)), "fill");
    }
    Require(RunTask(loop_, array_->FlushAll()), "flush");
  }

  // Updates a second, the closing flush included.
  Rates Run(uint64_t updates) {
    const double cpu_start = CpuSeconds();
    const auto start = std::chrono::steady_clock::now();
    left_ = updates;
    running_ = settings_.depth;
    for (uint32_t i = 0; i < settings_.depth; ++i) {
      loop_.Spawn(Writer());
    }
    EPLOG_CHECK(loop_.RunUntil([this] { return running_ == 0; }), "a write can never end");
    Require(RunTask(loop_, array_->FlushAll()), "flush");
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    const auto count = static_cast<double>(updates);
    return {count / took.count(), count / (CpuSeconds() - cpu_start)};
  }

  [[nodiscard]] Traffic traffic() const { return array_->GetStatus().traffic; }

 private:
  // What the system does when memory is touched first is not the engine's cost. Large pages where
  // it has them.
  static void MakeResident(std::span<std::byte> bytes) {
    ::madvise(bytes.data(), bytes.size(), MADV_HUGEPAGE);
    std::memset(bytes.data(), 0, bytes.size());
  }

  void Scribble(Buffer& buffer) {
    for (size_t i = 0; i + 8 <= buffer.size(); i += 8) {
      const uint64_t value = random_.Next();
      std::memcpy(buffer.data() + i, &value, 8);
    }
  }

  Task<void> Writer() {
    Buffer buffer = pool_.Get(kUpdateBytes);
    Scribble(buffer);
    const uint64_t places = settings_.volume_mib * kMiB / kUpdateBytes;
    while (left_ > 0) {
      --left_;
      const uint64_t value = random_.Next();
      std::memcpy(buffer.data(), &value, sizeof(value));
      Task<Status> write =
          array_->Write(volume_, random_.Below(places) * kUpdateBytes, buffer.span());
      const Status written = co_await write;
      Require(written, "write");
    }
    --running_;
  }

  EventLoop& loop_;
  const Settings& settings_;
  Random random_;
  BufferPool pool_;
  std::vector<std::unique_ptr<MemoryDevice>> devices_;
  std::unique_ptr<Array> array_;
  VolumeId volume_;
  uint64_t left_ = 0;
  uint32_t running_ = 0;
};

Outcome Measure(EventLoop& loop, const Settings& settings, const std::string& journal) {
  Rig rig(loop, settings, journal == "full" ? JournalMode::kFull : JournalMode::kLog);
  rig.Fill();
  rig.Run(settings.updates);  // reaches the steady state
  Outcome outcome;
  outcome.journal = journal;
  const Traffic before = rig.traffic();
  for (uint32_t i = 0; i < settings.runs; ++i) {
    const Rates rates = rig.Run(settings.updates);
    outcome.rates.push_back(rates.wall);
    outcome.cpu_rates.push_back(rates.cpu);
  }
  const Traffic after = rig.traffic();
  outcome.traffic.committed_stripes = after.committed_stripes - before.committed_stripes;
  outcome.traffic.checkpoints = after.checkpoints - before.checkpoints;
  outcome.traffic.log_appends = after.log_appends - before.log_appends;
  outcome.traffic.user_writes = after.user_writes - before.user_writes;
  std::sort(outcome.rates.begin(), outcome.rates.end());
  std::sort(outcome.cpu_rates.begin(), outcome.cpu_rates.end());
  return outcome;
}

void PrintTable(const std::vector<Outcome>& outcomes) {
  fmt::print("{:<8} {:>12} {:>12} {:>12} {:>14} {:>14} {:>12} {:>14}\n", "journal", "median/s",
             "min/s", "max/s", "median/cpu_s", "updates/entry", "checkpoints", "commits/update");
  for (const Outcome& outcome : outcomes) {
    const auto writes = static_cast<double>(outcome.traffic.user_writes);
    fmt::print("{:<8} {:>12.0f} {:>12.0f} {:>12.0f} {:>14.0f} {:>14.1f} {:>12} {:>14.2f}\n",
               outcome.journal, outcome.Median(), outcome.rates.front(), outcome.rates.back(),
               outcome.CpuMedian(), writes / static_cast<double>(outcome.traffic.log_appends),
               outcome.traffic.checkpoints,
               static_cast<double>(outcome.traffic.committed_stripes) / writes);
  }
}

void PrintJson(const Settings& settings, const std::vector<Outcome>& outcomes) {
  nlohmann::json results;
  for (const Outcome& outcome : outcomes) {
    results[outcome.journal] = {{"updates_per_second_median", outcome.Median()},
                                {"updates_per_second", outcome.rates},
                                {"updates_per_cpu_second_median", outcome.CpuMedian()},
                                {"committed_stripes", outcome.traffic.committed_stripes},
                                {"checkpoints", outcome.traffic.checkpoints},
                                {"log_appends", outcome.traffic.log_appends}};
  }
  const nlohmann::json all = {{"bench", "memory_updates"},
                              {"data_chunks", settings.data},
                              {"parity_chunks", settings.parity},
                              {"queue_depth", settings.depth},
                              {"update_bytes", kUpdateBytes},
                              {"updates_per_run", settings.updates},
                              {"volume_mib", settings.volume_mib},
                              {"log_mib", settings.log_mib},
                              {"loop", settings.loop},
                              {"journal", results}};
  fmt::print("{}\n", all.dump());
}

int Main(int argc, char** argv) {
  Settings settings;
  bool quick = false;
  CLI::App app("4 KiB random updates on memory devices");
  app.add_option("--data", settings.data, "data chunks of a stripe (k)")->capture_default_str();
  app.add_option("--parity", settings.parity, "parity chunks (m)")->capture_default_str();
  app.add_option("--depth", settings.depth, "writes in flight")->capture_default_str();
  app.add_option("--runs", settings.runs, "measured runs")->capture_default_str();
  app.add_option("--updates", settings.updates, "updates a run")->capture_default_str();
  app.add_option("--ssd-mib", settings.ssd_mib, "size of an SSD")->capture_default_str();
  app.add_option("--log-mib", settings.log_mib, "size of a log device")->capture_default_str();
  app.add_option("--volume-mib", settings.volume_mib, "size of the volume")->capture_default_str();
  app.add_option("--loop", settings.loop, "event loop")
      ->check(CLI::IsMember({"real", "virtual"}))
      ->capture_default_str();
  app.add_option("--journal", settings.journals, "journal modes")
      ->check(CLI::IsMember({"full", "log"}))
      ->capture_default_str();
  app.add_option("--at-least", settings.at_least,
                 "fail if the median in any mode is below this many updates a second");
  app.add_flag("--quick", quick, "small and short: shows that it runs, measures nothing");
  CLI11_PARSE(app, argc, argv);
  if (quick) {
    settings.runs = 1;
    settings.updates = 20'000;
    settings.ssd_mib = 64;
    settings.log_mib = 64;
    settings.volume_mib = 128;
  }
  std::unique_ptr<EventLoop> loop;
  if (settings.loop == "virtual") {
    loop = std::make_unique<VirtualLoop>();
  } else {
    auto real = IoUringLoop::Create();
    if (!real.ok()) {
      Require(Fail(real.error()), "io_uring");
    }
    loop = std::move(*real);
  }
  std::vector<Outcome> outcomes;
  for (const std::string& journal : settings.journals) {
    outcomes.push_back(Measure(*loop, settings, journal));
  }
  PrintTable(outcomes);
  PrintJson(settings, outcomes);
  return std::all_of(outcomes.begin(), outcomes.end(),
                     [&](const Outcome& one) { return one.Median() >= settings.at_least; })
             ? 0
             : 1;
}

}  // namespace
}  // namespace eplog

int main(int argc, char** argv) {
  return eplog::Main(argc, argv);
}
