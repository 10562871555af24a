// Array::Check: every reference, CRC and parity of the state at hand. Reads only.

#include <array>
#include <bitset>
#include <cstring>
#include <string>

#include "base/crc32c.h"
#include "engine/array_impl.h"
#include "runtime/task_group.h"

namespace eplog {
namespace {

constexpr size_t kMaxProblemLines = 1000;
constexpr size_t kRowsAtOnce = 16;

class Checker {
 public:
  Checker(Core& core, ChunkReader& reader, Appender& appender)
      : core_(core), reader_(reader), appender_(appender) {}

  Task<Status> Run(const Progress& progress);
  CheckReport report;

 private:
  void Problem(std::string line) {
    ++report.problems_found;
    if (report.problems.size() < kMaxProblemLines) {
      report.problems.push_back(std::move(line));
    }
  }
  std::string Device(DeviceIndex index) const { return core_.geometry.DeviceName(index); }
  std::string Where(ChunkIndex chunk) const;
  void CheckReferences();
  Task<Status> CheckRow(StripeIndex stripe);
  Task<bool> CheckSlot(DeviceIndex ssd, RowWord word, std::span<std::byte> into, std::string what);
  Task<Status> CheckLogStripe(LogStripeId id, uint64_t sequence);

  Core& core_;
  ChunkReader& reader_;
  Appender& appender_;
};

std::string Checker::Where(ChunkIndex chunk) const {
  const Geometry& g = core_.geometry;
  const StripeIndex stripe = g.StripeOf(chunk);
  const auto owner = core_.state->volumes.OwnerOf(ExtentIndex(stripe.value / g.extent_stripes));
  const Volume* volume = core_.state->volumes.Find(owner.volume);
  if (volume == nullptr) {
    return "stripe " + std::to_string(stripe.value) + " (of no volume)";
  }
  const uint64_t in_extent =
      (uint64_t{stripe.value % g.extent_stripes} * g.k() + g.IndexInStripe(chunk)) * g.chunk_bytes;
  return "volume '" + volume->name + "' offset " +
         std::to_string(uint64_t{owner.logical} * g.extent_data_bytes() + in_extent);
}

void Checker::CheckReferences() {
  const Geometry& g = core_.geometry;
  std::vector<std::vector<bool>> seen(g.n, std::vector<bool>(g.slots, false));
  core_.state->ForEachSlot([&](DeviceIndex ssd, SlotIndex slot) {
    if (slot.value >= g.slots || seen[ssd.value][slot.value]) {
      Problem(Device(ssd) + " slot " + std::to_string(slot.value) +
              " is referenced twice or does not exist");
      return;
    }
    seen[ssd.value][slot.value] = true;
    if (!core_.space.IsUsed(ssd, slot)) {
      Problem(Device(ssd) + " slot " + std::to_string(slot.value) + " is referenced and free");
    }
  });
  for (uint32_t s = 0; s < g.stripes; ++s) {
    const bool owned =
        core_.state->volumes.OwnerOf(ExtentIndex(s / g.extent_stripes)).volume.value != 0;
    if (!owned && !core_.state->RowIsZero(StripeIndex(s))) {
      Problem("stripe " + std::to_string(s) + " has content and belongs to no volume");
    }
  }
}

Task<bool> Checker::CheckSlot(DeviceIndex ssd, RowWord word, std::span<std::byte> into,
                              std::string what) {
  if (word.word.is_absent() || (word.word.has_slot() && !core_.members.live(ssd))) {
    co_return false;  // missing is not wrong: its redundancy is checked through the others
  }
  ++report.chunks_checked;
  Task<Status> read = reader_.ReadSlot(ssd, word.word, word.crc, into);
  const Status status = co_await read;
  if (!status.ok()) {
    Problem(Device(ssd) + ": " + what + ": " + status.error().ToString());
  }
  co_return status.ok();
}

Task<Status> Checker::CheckRow(StripeIndex stripe) {
  const Geometry& g = core_.geometry;
  ++report.rows_checked;
  Pins pins(core_);
  std::vector<Buffer> buffers;
  std::array<const std::byte*, kMaxSsds> content{};
  std::array<RowWord, kMaxSsds> words;
  std::bitset<kMaxSsds> bad;
  bool data_is_bad = false;
  for (uint32_t i = 0; i < g.n; ++i) {
    words[i] = core_.state->rows.Get(stripe, i);
    pins.Add(g.SsdOf(stripe, i), words[i].word);
    buffers.push_back(core_.pool.Get(g.chunk_bytes));
    content[i] = buffers[i].data();
  }
  for (uint32_t i = 0; i < g.n; ++i) {
    const std::string what =
        i < g.k() ? Where(g.Chunk(stripe, i)) : "parity of stripe " + std::to_string(stripe.value);
    Task<bool> checking = CheckSlot(g.SsdOf(stripe, i), words[i], buffers[i].span(), what);
    const bool good = co_await checking;
    bad[i] = !good;
    data_is_bad = data_is_bad || (!good && i < g.k());
  }
  if (data_is_bad) {
    co_return OkStatus();
  }
  std::array<std::byte*, kMaxParity> parity{};
  std::vector<Buffer> computed;
  for (uint32_t j = 0; j < g.m; ++j) {
    computed.push_back(core_.pool.Get(g.chunk_bytes));
    parity[j] = computed[j].data();
  }
  core_.code.Encode(std::span(content).first(g.k()), std::span(parity).first(g.m), g.chunk_bytes);
  for (uint32_t j = 0; j < g.m; ++j) {
    const bool readable = !bad[g.k() + j];
    ++report.parity_checked;
    if (readable && std::memcmp(parity[j], content[g.k() + j], g.chunk_bytes) != 0) {
      Problem(Device(g.SsdOf(stripe, g.k() + j)) + ": parity of stripe " +
              std::to_string(stripe.value) + " does not match its data");
    }
  }
  co_return OkStatus();
}

Task<Status> Checker::CheckLogStripe(LogStripeId id, uint64_t sequence) {
  const Geometry& g = core_.geometry;
  if (!core_.state->pending.IsLive(id, sequence)) {
    co_return OkStatus();  // the array is at work, and this one has died since
  }
  const LogStripeView view = core_.state->pending.View(id);
  if (view.zeros) {
    co_return OkStatus();  // trimmed chunks: nothing on any device
  }
  ++report.log_stripes_checked;
  // Whatever happens to it meanwhile, what it is made of stays where it is.
  Pins pins(core_);
  for (const LogStripeMember& member : view.members) {
    pins.Add(g.SsdOf(member.chunk), member.word);
  }
  const Appender::LogPin log_pin(appender_, view.place);
  std::vector<Buffer> buffers;
  std::array<const std::byte*, kMaxSsds> content{};
  bool all = true;
  for (size_t i = 0; i < view.members.size(); ++i) {
    const LogStripeMember& member = view.members[i];
    buffers.push_back(core_.pool.Get(g.chunk_bytes));
    content[i] = buffers[i].data();
    Task<bool> checking = CheckSlot(g.SsdOf(member.chunk), {member.word, member.crc},
                                    buffers[i].span(), Where(member.chunk));
    const bool good = co_await checking;
    all = all && good;
  }
  std::array<std::byte*, kMaxParity> parity{};
  std::vector<Buffer> computed;
  for (uint32_t j = 0; j < g.m; ++j) {
    computed.push_back(core_.pool.Get(g.chunk_bytes));
    parity[j] = computed[j].data();
  }
  core_.code.Encode(std::span(content).first(view.members.size()), std::span(parity).first(g.m),
                    g.chunk_bytes);
  const Buffer stored = core_.pool.Get(g.chunk_bytes);
  for (uint32_t j = 0; j < g.m; ++j) {
    if (!core_.members.live(g.LogDevice(j))) {
      continue;
    }
    ++report.parity_checked;
    Task<Status> reading = reader_.ReadLogChunk(j, view.place, view.log_crcs[j], stored.span());
    const Status status = co_await reading;
    if (!status.ok()) {
      Problem("log" + std::to_string(j) + ": log chunk at place " + std::to_string(view.place) +
              ": " + status.error().ToString());
    } else if (all && std::memcmp(stored.data(), parity[j], g.chunk_bytes) != 0) {
      Problem("log" + std::to_string(j) + ": log chunk at place " + std::to_string(view.place) +
              " does not match its members");
    }
  }
  co_return OkStatus();
}

Task<Status> Checker::Run(const Progress& progress) {
  CheckReferences();
  const Geometry& g = core_.geometry;
  std::vector<std::pair<LogStripeId, uint64_t>> live;
  core_.state->pending.ForEachLive([&](LogStripeId id) {
    live.emplace_back(id, core_.state->pending.SequenceOf(id));
    return true;
  });
  const uint64_t total = uint64_t{g.stripes} + live.size();
  for (size_t i = 0; i < live.size(); ++i) {
    Task<Status> checking = CheckLogStripe(live[i].first, live[i].second);
    Status status = co_await checking;
    EPLOG_CO_TRY(status);
    if (progress && i % 1024 == 0) {
      progress(i, total);
    }
  }
  TaskGroup group(core_.loop);
  for (uint32_t s = 0; s < g.stripes; ++s) {
    if (core_.state->RowIsZero(StripeIndex(s))) {
      continue;
    }
    Task<void> below = group.WaitBelow(kRowsAtOnce);
    co_await below;
    group.Start(CheckRow(StripeIndex(s)));
    if (progress && s % 1024 == 0) {
      progress(live.size() + s, total);
    }
  }
  Task<Status> all = group.Wait();
  Status status = co_await all;
  if (progress) {
    progress(total, total);
  }
  co_return status;
}

}  // namespace

Task<Result<CheckReport>> ArrayImpl::Check(Progress progress) {
  Status status = Readable();
  EPLOG_CO_TRY(status);
  const Request request(*this);
  Checker checker(core_, reader_, appender_);
  Task<Status> running = checker.Run(progress);
  status = co_await running;
  EPLOG_CO_TRY(status);
  co_return std::move(checker.report);
}

}  // namespace eplog
