#include "tests/damage/base.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "base/buffer.h"
#include "base/check.h"
#include "base/random.h"
#include "device/memory_device.h"
#include "device/wrappers.h"
#include "engine/core/hooks.h"
#include "eplog/array.h"
#include "format/superblock.h"
#include "runtime/run_task.h"
#include "runtime/virtual_loop.h"

namespace eplog::damage {
namespace {

constexpr uint64_t kSsdBytes = uint64_t{1536} << 10;
constexpr uint64_t kLogBytes = uint64_t{576} << 10;
constexpr DeviceDelays kDelays = {.read_us = 50, .write_us = 40, .flush_us = 200};

constexpr uint32_t kUnlucky = 1;  // the SSD that is lost, or replaced

// A device of the array: what a power cut leaves lies in memory.
struct Machine {
  Machine(VirtualLoop& loop, const std::string& name, uint64_t size_bytes)
      : memory(name, size_bytes), cache(loop, memory), delayed(loop, cache, kDelays) {}
  MemoryDevice memory;
  VolatileCacheDevice cache;
  DelayDevice delayed;
};

// A volume as it was written.
struct Model {
  VolumeId id;
  std::vector<Bytes> now;
  std::vector<Contents> before;  // what a crash may bring back
};

class Builder {
 public:
  Builder(const BaseShape& shape, uint64_t seed) : random_(seed), entropy_(seed) {
    base_.shape = shape;
    base_.older.resize(shape.n + shape.m);
    for (uint32_t i = 0; i < shape.n + shape.m; ++i) {
      const bool log = i >= shape.n;
      base_.names.push_back((log ? "log" : "ssd") + std::to_string(log ? i - shape.n : i));
      machines_.push_back(
          std::make_unique<Machine>(loop_, base_.names.back(), log ? kLogBytes : kSsdBytes));
    }
  }

  Base Build() {
    Create();
    FirstLife();
    SecondLife();
    LastLife();
    Keep();
    return std::move(base_);
  }

 private:
  template <typename T>
  T Run(Task<T> task) {
    return RunTask(loop_, std::move(task));
  }
  void MustRun(Task<Status> task) {
    const Status status = Run(std::move(task));
    EPLOG_CHECK(status.ok(), status.ok() ? "" : status.error().ToString().c_str());
  }
  std::vector<Device*> Devices() {
    std::vector<Device*> all;
    for (auto& machine : machines_) {
      all.push_back(&machine->delayed);
    }
    return all;
  }

  void Create();
  void Open();
  void Kill(bool power_cut);
  void FirstLife();
  void SecondLife();
  void LastLife();
  void LoseOne();
  void StrayWrites();

  void Sleep(uint64_t us);
  void AddVolume(const std::string& name, uint64_t size_bytes);
  void Write(Model& volume, uint64_t offset_bytes, uint64_t length_bytes);
  void Trim(Model& volume, uint64_t offset_bytes, uint64_t length_bytes, TrimMode mode);
  void Flush();
  void Updates(int count);
  Model& Any();
  // What is on the devices now may be found there later, where it does not belong any more.
  void Remember();
  Bytes Visible(size_t device);
  void Keep();

  [[nodiscard]] uint64_t stripe_bytes() const {
    return uint64_t{base_.shape.n - base_.shape.m} * kChunkBytes;
  }

  Base base_;
  Random random_;
  uint64_t entropy_;
  EngineHooks hooks_;
  VirtualLoop loop_;
  std::vector<std::unique_ptr<Machine>> machines_;
  std::unique_ptr<Machine> retired_;
  std::vector<std::vector<Bytes>> remembered_;  // images of all devices, oldest first
  std::unique_ptr<Array> array_;
  std::map<std::string, Model> volumes_;
  std::vector<Bytes> in_flight_;  // memory of writes that nobody waits for
};

void Builder::Create() {
  const std::vector<Device*> all = Devices();
  const auto ssds = static_cast<std::ptrdiff_t>(base_.shape.n);
  CreateOptions options;
  options.name = "damaged";
  options.parity = base_.shape.m;
  options.chunk_bytes = kChunkBytes;
  options.journal = base_.shape.journal;
  options.entropy = ++entropy_;
  MustRun(Array::Create(loop_, {all.begin(), all.begin() + ssds}, {all.begin() + ssds, all.end()},
                        options));
}

void Builder::Open() {
  OpenOptions options;
  options.entropy = ++entropy_;
  hooks_.headers_a_ring_block = 4;  // so that the rings fill
  auto opened = Run(OpenHooked(loop_, Devices(), options, &hooks_));
  EPLOG_CHECK(opened.ok(), opened.ok() ? "" : opened.error().ToString().c_str());
  array_ = std::move(*opened);
}

void Builder::Kill(bool power_cut) {
  loop_.Abort();
  array_.reset();
  for (auto& machine : machines_) {
    if (power_cut && !random_.OneIn(3)) {
      machine->cache.DropCache();
    }
  }
}

void Builder::AddVolume(const std::string& name, uint64_t size_bytes) {
  const auto id = Run(array_->CreateVolume(name, size_bytes));
  EPLOG_CHECK(id.ok(), "a volume can be made");
  const size_t chunks = DivideUp(size_bytes, kChunkBytes);
  volumes_[name] = {*id, std::vector<Bytes>(chunks, Bytes(kChunkBytes)),
                    std::vector<Contents>(chunks)};
}

void Builder::Write(Model& volume, uint64_t offset_bytes, uint64_t length_bytes) {
  Bytes data(length_bytes);
  for (std::byte& byte : data) {
    byte = static_cast<std::byte>(random_.Next());
  }
  for (uint64_t done = 0; done < length_bytes;) {
    const uint64_t chunk = (offset_bytes + done) / kChunkBytes;
    const uint64_t at = (offset_bytes + done) % kChunkBytes;
    const uint64_t part = std::min(length_bytes - done, kChunkBytes - at);
    volume.before[chunk].push_back(volume.now[chunk]);
    std::memcpy(volume.now[chunk].data() + at, data.data() + done, part);
    done += part;
  }
  MustRun(array_->Write(volume.id, offset_bytes, data));
}

void Builder::Trim(Model& volume, uint64_t offset_bytes, uint64_t length_bytes, TrimMode mode) {
  EPLOG_CHECK((offset_bytes | length_bytes) % kChunkBytes == 0, "whole chunks are trimmed here");
  for (uint64_t done = 0; done < length_bytes; done += kChunkBytes) {
    const uint64_t chunk = (offset_bytes + done) / kChunkBytes;
    volume.before[chunk].push_back(std::exchange(volume.now[chunk], Bytes(kChunkBytes)));
  }
  MustRun(array_->Trim(volume.id, offset_bytes, length_bytes, mode));
}

void Builder::Flush() {
  MustRun(array_->FlushAll());
  for (auto& [name, volume] : volumes_) {
    for (Contents& before : volume.before) {
      before.clear();
    }
  }
}

Model& Builder::Any() {
  return std::next(volumes_.begin(), static_cast<std::ptrdiff_t>(random_.Below(volumes_.size())))
      ->second;
}

// Small ones, aligned and not, flushed now and then.
void Builder::Updates(int count) {
  for (int i = 0; i < count; ++i) {
    Model& volume = Any();
    const uint64_t size = volume.now.size() * kChunkBytes;
    const bool whole = random_.OneIn(2);
    const uint64_t length = whole ? kChunkBytes * random_.Between(1, 3) : random_.Between(1, 9000);
    uint64_t offset = random_.Below(size - length);
    offset = whole ? RoundDown(offset, kChunkBytes) : offset;
    Write(volume, offset, length);
    if (random_.OneIn(4)) {
      Flush();
    }
  }
}

void Builder::FirstLife() {
  Open();
  AddVolume("a", 24 * stripe_bytes());
  AddVolume("b", 10 * stripe_bytes() + 3 * kChunkBytes);
  Write(volumes_["a"], 0, 18 * stripe_bytes());
  Write(volumes_["b"], 2 * stripe_bytes(), 5 * stripe_bytes());
  Flush();
  Updates(40);
  MustRun(array_->Commit(Progress()));
  MustRun(array_->Checkpoint(CheckpointKind::kFull));
  Remember();
  Updates(60);
  Trim(volumes_["a"], 4 * stripe_bytes(), 2 * stripe_bytes(), TrimMode::kPunch);
  Trim(volumes_["a"], 9 * kChunkBytes, kChunkBytes, TrimMode::kZero);
  AddVolume("gone", stripe_bytes());
  Write(volumes_["gone"], 0, stripe_bytes());
  MustRun(array_->DeleteVolume(volumes_["gone"].id));
  volumes_.erase("gone");
  Flush();
  MustRun(array_->Close());
  array_.reset();
  Remember();
}

void Builder::SecondLife() {
  Open();
  Updates(30);
  MustRun(array_->Checkpoint(CheckpointKind::kIncremental));
  Remember();
  Updates(30);
  Flush();
  Kill(false);
  Remember();
}

void Builder::LastLife() {
  Open();
  AddVolume("c", 3 * stripe_bytes());
  Updates(20);
  MustRun(array_->Commit(Progress()));
  if (base_.shape.past != Past::kWhole) {
    LoseOne();
  }
  Updates(10);
  Remember();
  MustRun(array_->Checkpoint(CheckpointKind::kIncremental));
  Write(volumes_["a"], 20 * stripe_bytes(), 2 * stripe_bytes());
  Updates(15);
  Trim(volumes_["b"], 5 * stripe_bytes(), stripe_bytes(), TrimMode::kZero);
  Trim(volumes_["a"], 12 * kChunkBytes, 2 * kChunkBytes, TrimMode::kZero);
  Updates(5);
  Flush();
  Remember();
  if (base_.shape.end == End::kClosed) {
    MustRun(array_->Close());
    array_.reset();
    for (auto& [name, volume] : volumes_) {
      volume.before.assign(volume.now.size(), {});
    }
    return;
  }
  Updates(4);
  StrayWrites();
  Kill(base_.shape.end == End::kPowerCut);
}

void Builder::LoseOne() {
  MustRun(array_->FailDevice(kUnlucky, "to be missed"));
  Updates(5);
  if (base_.shape.past == Past::kLost) {
    return;
  }
  retired_ = std::exchange(machines_[kUnlucky],
                           std::make_unique<Machine>(loop_, base_.names[kUnlucky], kSsdBytes));
  for (std::vector<Bytes>& images : remembered_) {
    images[kUnlucky] = Bytes(kSsdBytes);  // of another piece of hardware
  }
  MustRun(array_->ReplaceDevice(kUnlucky, machines_[kUnlucky]->delayed));
  while (array_->GetStatus().devices[kUnlucky].state != DeviceState::kOk) {
    Sleep(100'000);
  }
}

// Several at once, which the crash meets somewhere on their way. No two of the same chunk.
void Builder::StrayWrites() {
  Model& volume = volumes_["a"];
  in_flight_.reserve(8);
  const uint64_t first = random_.Below(4);
  for (uint64_t i = 0; i < 6; ++i) {
    const bool stripe = i == 5;
    const uint64_t chunk =
        stripe ? volume.now.size() - stripe_bytes() / kChunkBytes : first + 5 * i;
    const uint64_t chunks = stripe ? stripe_bytes() / kChunkBytes : random_.Between(1, 2);
    Bytes& data = in_flight_.emplace_back(chunks * kChunkBytes);
    for (std::byte& byte : data) {
      byte = static_cast<std::byte>(random_.Next());
    }
    for (uint64_t j = 0; j < chunks; ++j) {
      const auto from = data.begin() + static_cast<std::ptrdiff_t>(j * kChunkBytes);
      volume.before[chunk + j].push_back(
          std::exchange(volume.now[chunk + j], Bytes(from, from + kChunkBytes)));
    }
    loop_.Spawn([](Array& array, VolumeId id, uint64_t offset,
                   std::span<const std::byte> from) -> Task<void> {
      Task<Status> writing = array.Write(id, offset, from);
      static_cast<void>(co_await writing);
    }(*array_, volume.id, chunk * kChunkBytes, data));
  }
  loop_.Spawn([](Array& array) -> Task<void> {
    Task<Status> committing = array.Commit(Progress());
    static_cast<void>(co_await committing);
  }(*array_));
  Sleep(random_.Below(600));
}

void Builder::Sleep(uint64_t us) {
  MustRun([](EventLoop& loop, uint64_t time) -> Task<Status> {
    co_await loop.Sleep(time);
    co_return OkStatus();
  }(loop_, us));
}

Bytes Builder::Visible(size_t device) {
  BufferPool pool;
  const Buffer all = pool.Get(machines_[device]->memory.size_bytes());
  const iovec part{all.data(), all.size()};
  MustRun(machines_[device]->cache.Read(0, std::span(&part, 1)));
  return {all.data(), all.data() + all.size()};
}

void Builder::Remember() {
  std::vector<Bytes>& images = remembered_.emplace_back();
  for (size_t i = 0; i < machines_.size(); ++i) {
    images.push_back(Visible(i));
  }
}

void Builder::Keep() {
  for (size_t i = 0; i < machines_.size(); ++i) {
    base_.devices.push_back(Visible(i));
    const Bytes& last = base_.devices.back();
    for (const std::vector<Bytes>& images : remembered_) {
      for (uint64_t at = 0; at < last.size(); at += kBlockBytes) {
        const std::byte* was = images[i].data() + at;
        std::vector<Bytes>& known = base_.older[i][at / kBlockBytes];
        const bool same =
            std::memcmp(was, last.data() + at, kBlockBytes) == 0 ||
            (!known.empty() && std::memcmp(was, known.back().data(), kBlockBytes) == 0);
        if (!same) {
          known.emplace_back(was, was + kBlockBytes);
        }
      }
    }
    std::erase_if(base_.older[i], [](const auto& block) { return block.second.empty(); });
  }
  auto superblock = DecodeSuperblock(std::span(base_.devices[0]));
  if (!superblock.ok()) {
    superblock = DecodeSuperblock(std::span(base_.devices[0]).subspan(32768));
  }
  EPLOG_CHECK(superblock.ok(), "the base has a superblock");
  base_.geometry = superblock->geometry;
  for (auto& [name, volume] : volumes_) {
    BaseVolume& kept = base_.volumes[name];
    kept.size_bytes = volume.now.size() * kChunkBytes;
    for (size_t chunk = 0; chunk < volume.now.size(); ++chunk) {
      Contents& contents = kept.chunks.emplace_back(std::move(volume.before[chunk]));
      contents.push_back(std::move(volume.now[chunk]));
    }
  }
}

}  // namespace

Base MakeBase(const BaseShape& shape, uint64_t seed) {
  return Builder(shape, seed).Build();
}

}  // namespace eplog::damage
