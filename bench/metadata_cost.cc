// What metadata costs: bytes of checkpoints (paper, experiment S4, and a sparse array), and on request
// the time of large ones. Through the public API, on devices that keep metadata and forget data.
// Prints a table, then one line of JSON.
#include <fmt/format.h>
#include <sys/mman.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/check.h"
#include "base/random.h"
#include "device/device.h"
#include "eplog/array.h"
#include "layout/geometry.h"
#include "runtime/task_group.h"
#include "runtime/virtual_loop.h"

namespace eplog {
namespace {

constexpr uint64_t kChunk = 4096;
constexpr uint32_t kSsds = 8;
constexpr uint32_t kParity = 2;

// Keeps what lies below `keep_bytes`; what is written beyond is gone and reads as zeros.
class HollowDevice final : public Device {
 public:
  HollowDevice(std::string name, uint64_t size_bytes, uint64_t keep_bytes)
      : name_(std::move(name)), size_bytes_(size_bytes), keep_bytes_(keep_bytes) {
    void* memory = ::mmap(nullptr, keep_bytes_, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    EPLOG_CHECK(memory != MAP_FAILED, "address space for a device");
    bytes_ = static_cast<std::byte*>(memory);
  }
  ~HollowDevice() override { ::munmap(bytes_, keep_bytes_); }
  HollowDevice(const HollowDevice&) = delete;
  HollowDevice& operator=(const HollowDevice&) = delete;

  Task<Status> Read(uint64_t offset_bytes, std::span<const iovec> into) override {
    for (const iovec& part : into) {
      if (offset_bytes + part.iov_len <= keep_bytes_) {
        std::memcpy(part.iov_base, bytes_ + offset_bytes, part.iov_len);
      } else {
        std::memset(part.iov_base, 0, part.iov_len);
      }
      offset_bytes += part.iov_len;
    }
    co_return OkStatus();
  }
  Task<Status> Write(uint64_t offset_bytes, std::span<const iovec> from) override {
    for (const iovec& part : from) {
      if (offset_bytes + part.iov_len <= keep_bytes_) {
        std::memcpy(bytes_ + offset_bytes, part.iov_base, part.iov_len);
      }
      offset_bytes += part.iov_len;
    }
    co_return OkStatus();
  }
  Task<Status> Flush() override { co_return OkStatus(); }
  Task<Status> Discard(uint64_t /*offset_bytes*/, uint64_t /*length_bytes*/) override {
    co_return OkStatus();
  }
  [[nodiscard]] uint64_t size_bytes() const override { return size_bytes_; }
  [[nodiscard]] const DeviceCapabilities& capabilities() const override { return capabilities_; }
  [[nodiscard]] const std::string& name() const override { return name_; }

 private:
  std::string name_;
  uint64_t size_bytes_;
  uint64_t keep_bytes_;
  std::byte* bytes_ = nullptr;
  DeviceCapabilities capabilities_;
};

template <typename T>
T RunTask(EventLoop& loop, Task<T> task) {
  std::optional<T> result;
  loop.Spawn([](Task<T> inner, std::optional<T>& out) -> Task<void> {
    out.emplace(co_await inner);
  }(std::move(task), result));
  const bool done = loop.RunUntil([&] { return result.has_value(); });
  EPLOG_CHECK(done, "the task can never end");
  return std::move(*result);
}

void Require(const Status& status, const char* what) {
  if (!status.ok()) {
    fmt::print(stderr, "{}: {}\n", what, status.error().ToString());
    std::exit(1);
  }
}

class Rig {
 public:
  // `hollow`: what is written to slots and log is forgotten, so that an array may be larger than RAM.
  Rig(uint64_t data_bytes, uint64_t log_bytes, uint32_t reserve_percent, bool hollow,
      OpenOptions options)
      : options_(options) {
    GeometryRequest request;
    request.n = kSsds;
    request.m = kParity;
    request.chunk_bytes = kChunk;
    request.reserve_percent = reserve_percent;
    request.log_bytes = log_bytes;
    const auto stripes = static_cast<uint32_t>(DivideUp(data_bytes, kChunk * (kSsds - kParity)));
    const auto ssd_bytes = SsdBytesForStripes(request, stripes + 2048);
    EPLOG_CHECK(ssd_bytes.ok(), "the array can be laid out");
    request.ssd_bytes = *ssd_bytes;
    const auto geometry = PlanGeometry(request);
    EPLOG_CHECK(geometry.ok(), "the array can be laid out");
    for (uint32_t i = 0; i < kSsds; ++i) {
      devices_.push_back(std::make_unique<HollowDevice>("ssd" + std::to_string(i), *ssd_bytes,
                                                        hollow ? geometry->slots_offset_bytes
                                                               : *ssd_bytes));
    }
    for (uint32_t j = 0; j < kParity; ++j) {
      devices_.push_back(std::make_unique<HollowDevice>("log" + std::to_string(j), log_bytes,
                                                        hollow ? kSuperblockAreaBytes
                                                               : log_bytes));
    }
    CreateOptions create;
    create.parity = kParity;
    create.reserve_percent = reserve_percent;
    create.entropy = 1;
    const auto all = Pointers();
    Require(RunTask(loop, Array::Create(loop, {all.begin(), all.begin() + kSsds},
                                        {all.begin() + kSsds, all.end()}, create)),
            "create");
    auto opened = RunTask(loop, Array::Open(loop, Pointers(), options_));
    EPLOG_CHECK(opened.ok(), "open");
    array = std::move(*opened);
    const auto id = RunTask(loop, array->CreateVolume("v", data_bytes));
    EPLOG_CHECK(id.ok(), "create a volume");
    volume = *id;
  }
  ~Rig() {
    if (array) {
      loop.Abort();
    }
  }
  Rig(const Rig&) = delete;
  Rig& operator=(const Rig&) = delete;

  std::vector<Device*> Pointers() {
    std::vector<Device*> all;
    for (auto& device : devices_) {
      all.push_back(device.get());
    }
    return all;
  }
  Traffic Now() { return array->GetStatus().traffic; }
  // Metadata bytes on all SSDs that a checkpoint writes.
  uint64_t Checkpoint(CheckpointKind kind) {
    Require(RunTask(loop, array->FlushAll()), "flush");
    const uint64_t before = Now().ssd_metadata_bytes;
    Require(RunTask(loop, array->Checkpoint(kind)), "checkpoint");
    return Now().ssd_metadata_bytes - before;
  }

  VirtualLoop loop;
  std::unique_ptr<Array> array;
  VolumeId volume;
  BufferPool pool;

 private:
  OpenOptions options_;
  std::vector<std::unique_ptr<HollowDevice>> devices_;
};

void Create(Rig& rig, uint64_t data_bytes) {
  const uint64_t request = 64 * (kSsds - kParity) * kChunk;
  const Buffer data = rig.pool.GetZeroed(request);
  std::memset(data.data(), 7, data.size());
  for (uint64_t at = 0; at < data_bytes; at += request) {
    const auto piece = data.span().first(std::min(request, data_bytes - at));
    Require(RunTask(rig.loop, rig.array->Write(rig.volume, at, piece)), "write");
  }
}

Task<Status> Updates(Rig& rig, const std::vector<uint64_t>& chunks, size_t first, size_t step) {
  Buffer data = rig.pool.GetZeroed(kChunk);
  for (size_t i = first; i < chunks.size(); i += step) {
    std::memcpy(data.data(), &i, sizeof i);
    Task<Status> write = rig.array->Write(rig.volume, chunks[i] * kChunk, data.span());
    Status status = co_await write;
    EPLOG_CO_TRY(status);
  }
  co_return OkStatus();
}

Task<Status> UpdateAll(Rig& rig, const std::vector<uint64_t>& chunks, size_t depth) {
  TaskGroup group(rig.loop);
  for (size_t i = 0; i < depth; ++i) {
    group.Start(Updates(rig, chunks, i, depth));
  }
  Task<Status> all = group.Wait();
  co_return co_await all;
}

double Percent(uint64_t part, uint64_t of) {
  return 100.0 * static_cast<double>(part) / static_cast<double>(of);
}

// Experiment S4: stripes made by sequential writing, then every chunk updated once in random order.
nlohmann::json Paper(uint64_t area_bytes) {
  OpenOptions options;
  options.auto_commit = false;
  options.checkpoint = {.log_bytes = 0, .interval_us = 0};
  Rig rig(area_bytes, area_bytes, 50, true, options);
  Create(rig, area_bytes);
  const Traffic created = rig.Now();
  const uint64_t created_bytes = created.ssd_data_bytes + created.ssd_parity_bytes;
  const uint64_t first = rig.Checkpoint(CheckpointKind::kFull);
  std::vector<uint64_t> chunks(area_bytes / kChunk);
  std::iota(chunks.begin(), chunks.end(), 0);
  Random random(9);
  for (size_t i = chunks.size(); i > 1; --i) {
    std::swap(chunks[i - 1], chunks[random.Below(i)]);
  }
  Require(RunTask(rig.loop, UpdateAll(rig, chunks, 32)), "updates");
  const Traffic updated = rig.Now();
  const uint64_t updated_bytes =
      updated.ssd_data_bytes + updated.ssd_parity_bytes - created_bytes;
  const uint64_t incremental = rig.Checkpoint(CheckpointKind::kIncremental);
  const uint64_t full = rig.Checkpoint(CheckpointKind::kFull);
  nlohmann::json json;
  fmt::print("area {} MiB, 6+2: metadata written, of the bytes written to SSDs without\n",
             area_bytes >> 20);
  fmt::print("  {:<36} {:>10} {:>10} {:>10}\n", "", "one copy", "all copies", "paper");
  const auto line = [&](const char* name, const char* key, uint64_t bytes, uint64_t of,
                        const char* paper) {
    fmt::print("  {:<36} {:>9.3f}% {:>9.3f}% {:>10}\n", name,
               Percent(bytes / (kParity + 1), of), Percent(bytes, of), paper);
    json[key] = {{"bytes_one_copy", bytes / (kParity + 1)},
                 {"bytes", bytes},
                 {"ssd_bytes", of},
                 {"percent_one_copy", Percent(bytes / (kParity + 1), of)}};
  };
  line("full, after creation", "full_after_creation", first, created_bytes, "0.36%");
  line("incremental, after updates", "incremental_after_updates", incremental, updated_bytes,
       "1.81%");
  line("full, after updates", "full_after_updates", full, updated_bytes, "2.25%");
  Require(RunTask(rig.loop, rig.array->Close()), "close");
  rig.array.reset();
  return json;
}

// Uniform updates of a large array that is almost empty, everything committed and closed in the end.
nlohmann::json Sparse(uint64_t volume_bytes, uint64_t updates) {
  Rig rig(volume_bytes, uint64_t{1} << 30, 10, false, OpenOptions());
  std::vector<uint64_t> chunks;
  Random random(9);
  for (uint64_t i = 0; i < updates; ++i) {
    chunks.push_back(random.Below(volume_bytes / kChunk));
  }
  const Traffic before = rig.Now();
  Require(RunTask(rig.loop, UpdateAll(rig, chunks, 32)), "updates");
  Require(RunTask(rig.loop, rig.array->Commit({})), "commit");
  Require(RunTask(rig.loop, rig.array->Checkpoint(CheckpointKind::kAuto)), "checkpoint");
  const Traffic after = rig.Now();
  const uint64_t user = updates * kChunk;
  const uint64_t ssd = after.ssd_metadata_bytes - before.ssd_metadata_bytes;
  const uint64_t log = after.log_header_bytes - before.log_header_bytes;
  fmt::print("{} GiB sparse, {} updates, committed: metadata on SSDs {:.2f}% of user bytes (all "
             "copies), headers on log devices {:.2f}%, {} checkpoints\n",
             volume_bytes >> 30, updates, Percent(ssd, user), Percent(log, user),
             after.checkpoints);
  Require(RunTask(rig.loop, rig.array->Close()), "close");
  rig.array.reset();
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
  const bool good = percent("full_after_creation") <= 0.36 &&
                    percent("incremental_after_updates") <= 1.8 &&
                    percent("full_after_updates") <= 2.25 &&
                    json["sparse"]["percent"].get<double>() <= 15;
  return good ? 0 : 1;
}

}  // namespace
}  // namespace eplog

int main(int argc, char** argv) {
  return eplog::Main(argc, argv);
}
