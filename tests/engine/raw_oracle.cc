#include "tests/engine/raw_oracle.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "engine/checkpoint/checkpoint_loader.h"
#include "engine/core/core.h"
#include "engine/open/assembly.h"
#include "runtime/run_task.h"
#include "tests/erasure/oracle.h"

namespace eplog {
namespace {

using oracle::Bytes;

class RawArray {
 public:
  RawArray(EventLoop& loop, const std::vector<Device*>& devices, uint64_t lost)
      : loop_(loop), lost_(lost) {
    auto assembly = RunTask(loop, Assemble(devices, Canary::kNone));
    if (!assembly.ok()) {
      wrong = assembly.error().ToString();
      return;
    }
    core_ = std::make_unique<Core>(loop, assembly->devices, assembly->winner, OpenOptions());
    const auto root = RunTask(loop, LoadRoot(*core_, assembly->winner.checkpoint));
    if (!root.ok()) {
      wrong = root.error().ToString();
      return;
    }
    const Status loaded = RunTask(loop, LoadRuns(*core_, *root, *core_->state));
    wrong = loaded.ok() ? "" : loaded.error().ToString();
  }

  std::vector<std::byte> Volume(const std::string& name) {
    const eplog::Volume* volume = core_->state->volumes.FindByName(name);
    if (volume == nullptr) {
      wrong = "no volume " + name;
      return {};
    }
    const Geometry& g = core_->geometry;
    std::vector<std::byte> content(volume->size_bytes);
    for (uint64_t at = 0; at < content.size() && wrong.empty(); at += g.chunk_bytes) {
      const auto extent = volume->extents.Get(static_cast<uint32_t>(at / g.extent_data_bytes()));
      if (!extent) {
        continue;
      }
      const uint64_t in_extent = at % g.extent_data_bytes() / g.chunk_bytes;
      const ChunkIndex chunk(uint64_t{extent->value} * g.extent_stripes * g.k() + in_extent);
      const Bytes bytes = Chunk(chunk);
      const size_t length = std::min<size_t>(g.chunk_bytes, content.size() - at);
      std::copy_n(bytes.begin(), std::min(length, bytes.size()),
                  content.begin() + static_cast<std::ptrdiff_t>(at));
    }
    return content;
  }

  std::string wrong;

 private:
  Bytes ReadAt(DeviceIndex device, uint64_t offset) {
    const Buffer buffer = core_->pool.Get(core_->geometry.chunk_bytes);
    const iovec part{buffer.data(), buffer.size()};
    const Status read =
        RunTask(loop_, core_->members.device(device)->Read(offset, std::span(&part, 1)));
    wrong = read.ok() ? wrong : read.error().ToString();
    return {buffer.span().begin(), buffer.span().end()};
  }
  [[nodiscard]] bool There(DeviceIndex device) const {
    return (lost_ >> device.value & 1) == 0 && core_->members.live(device);
  }
  std::optional<Bytes> Slot(DeviceIndex ssd, SlotWord word) {
    if (word.is_zero()) {
      return Bytes(core_->geometry.chunk_bytes);
    }
    if (word.is_absent() || !There(ssd)) {
      return std::nullopt;
    }
    return ReadAt(ssd, core_->geometry.SlotOffset(word.slot()));
  }
  Bytes Solve(const std::vector<std::optional<Bytes>>& have, uint32_t d, uint32_t wanted,
              const std::string& what) {
    uint64_t present = 0;
    std::vector<Bytes> chunks;
    for (size_t i = 0; i < have.size(); ++i) {
      present |= have[i] ? uint64_t{1} << i : 0;
      chunks.push_back(have[i].value_or(Bytes(core_->geometry.chunk_bytes)));
    }
    if (static_cast<uint32_t>(std::popcount(present)) < d) {
      wrong = what + " has too few chunks";
      return {};
    }
    return oracle::Decode(chunks, d, present)[wanted];
  }
  Bytes Chunk(ChunkIndex chunk) {
    const Geometry& g = core_->geometry;
    const auto pending = core_->state->pending.Find(chunk);
    const StripeIndex stripe = g.StripeOf(chunk);
    const SlotWord word =
        pending ? pending->word : core_->state->rows.Get(stripe, g.IndexInStripe(chunk)).word;
    if (const auto direct = Slot(g.SsdOf(chunk), word)) {
      return *direct;
    }
    return pending ? FromLog(chunk, pending->log_stripe) : FromRow(stripe, g.IndexInStripe(chunk));
  }
  Bytes FromRow(StripeIndex stripe, uint32_t wanted) {
    const Geometry& g = core_->geometry;
    std::vector<std::optional<Bytes>> have;
    for (uint32_t i = 0; i < g.n; ++i) {
      have.push_back(Slot(g.SsdOf(stripe, i), core_->state->rows.Get(stripe, i).word));
    }
    return Solve(have, g.k(), wanted, "stripe " + std::to_string(stripe.value));
  }
  Bytes FromLog(ChunkIndex chunk, LogStripeId id) {
    const Geometry& g = core_->geometry;
    const LogStripeView view = core_->state->pending.View(id);
    std::vector<std::optional<Bytes>> have;
    uint32_t wanted = 0;
    for (const LogStripeMember& member : view.members) {
      wanted = member.chunk == chunk ? static_cast<uint32_t>(have.size()) : wanted;
      have.push_back(Slot(g.SsdOf(member.chunk), member.word));
    }
    const auto d = static_cast<uint32_t>(have.size());
    for (uint32_t j = 0; j < g.m; ++j) {
      have.push_back(There(g.LogDevice(j)) ? std::optional(LogChunk(j, view.place)) : std::nullopt);
    }
    return Solve(have, d, wanted, "the log stripe at place " + std::to_string(view.place));
  }
  // It may go around the end of the ring.
  Bytes LogChunk(uint32_t j, uint64_t place) {
    const Geometry& g = core_->geometry;
    Bytes bytes;
    for (uint32_t block = 0; block < g.chunk_blocks(); ++block) {
      const Buffer buffer = core_->pool.Get(kBlockBytes);
      const iovec part{buffer.data(), buffer.size()};
      const Status read =
          RunTask(loop_, core_->members.device(g.LogDevice(j))
                             ->Read(g.LogOffset(place + block), std::span(&part, 1)));
      wrong = read.ok() ? wrong : read.error().ToString();
      bytes.insert(bytes.end(), buffer.span().begin(), buffer.span().end());
    }
    return bytes;
  }

  EventLoop& loop_;
  uint64_t lost_;
  std::unique_ptr<Core> core_;
};

}  // namespace

std::vector<std::byte> DecodeVolume(EventLoop& loop, const std::vector<Device*>& devices,
                                    uint64_t lost, const std::string& name, std::string& wrong) {
  RawArray raw(loop, devices, lost);
  std::vector<std::byte> content;
  if (raw.wrong.empty()) {
    content = raw.Volume(name);
  }
  wrong = raw.wrong;
  return content;
}

}  // namespace eplog
