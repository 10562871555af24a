#include "engine/read/chunk_reader.h"

#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <string>

#include "rings/log_ring.h"
#include "runtime/task_group.h"

namespace eplog {
namespace {

tl::unexpected<Error> Beyond(const std::string& what) {
  return Fail(ErrorCode::kTooManyFailures,
              what + " cannot be read: more chunks are lost than parity can replace");
}

// Runs one read of several and notes in `mask` whether it failed.
Task<Status> NoteFailure(Task<Status> read, uint64_t& mask, uint32_t bit) {
  const Status status = co_await read;
  if (!status.ok()) {
    mask |= uint64_t{1} << bit;
  }
  co_return OkStatus();
}

}  // namespace

void Pins::Add(DeviceIndex ssd, SlotWord word) {
  if (word.has_slot()) {
    pins_.push_back(core_.space.Pin(ssd, word.slot()));
  }
}

void Pins::Release() {
  for (const SlotSpace::PinKey pin : pins_) {
    core_.space.Unpin(pin);
  }
  if (!pins_.empty() && core_.space_changed.has_waiters()) {
    core_.space_changed.NotifyAll();
  }
  pins_.clear();
}

// While the array is being opened this looks at what was last written before a crash: torn writes
// are no fault of their devices. Nor is it one of who joined meanwhile, who was never given that.
void ChunkReader::Blame(DeviceIndex device, StatesNumber states) {
  if (appender_ != nullptr && core_.devices().IsCurrent(device, states)) {
    core_.members.CountCorrupt(device);
  }
}

void ChunkReader::NoteWrong(StripeIndex stripe, DeviceIndex ssd, SlotWord word) {
  if (on_wrong_ && word.has_slot() && core_.members.live(ssd)) {
    on_wrong_(stripe);
  }
}

Task<Status> ChunkReader::ReadSlot(DeviceIndex ssd, SlotWord word, uint32_t crc,
                                   StatesNumber states, std::span<std::byte> into) {
  if (word.is_zero() || (word.is_absent() && core_.canary(Canary::kAbsentIsZero))) {
    std::memset(into.data(), 0, into.size());
    co_return OkStatus();
  }
  if (word.is_absent()) {
    co_return Fail(ErrorCode::kDeviceFailed, "the chunk's SSD is absent");
  }
  const uint64_t offset = core_.geometry.SlotOffset(word.slot());
  EPLOG_CO_AWAIT(core_.members.ReadBytes(ssd, offset, into));
  if (core_.checksum(into) != crc) {
    Error error;
    error.code = ErrorCode::kCorrupt;
    error.message = "a chunk's checksum is wrong";
    error.device = ssd.value;
    error.offset_bytes = static_cast<int64_t>(offset);
    Blame(ssd, states);
    co_return Fail(std::move(error));
  }
  co_return OkStatus();
}

Task<Status> ChunkReader::ReadLogChunk(uint32_t j, uint64_t place, uint32_t crc,
                                       std::span<std::byte> into) {
  const DeviceIndex log = core_.geometry.LogDevice(j);
  const StatesNumber states = core_.devices().number();
  EPLOG_CO_AWAIT(ReadLog(core_.members, core_.geometry, log, place, into));
  if (core_.checksum(into) != crc) {
    if (place >= core_.devices().has_log_from(log)) {
      Blame(log, states);
    }
    co_return Fail(ErrorCode::kCorrupt, "a log chunk's checksum is wrong");
  }
  co_return OkStatus();
}

// A pending version is known by its number. One in a row is known by the row's slots: each commit
// takes new ones, and while they are pinned they are nobody else's.
ChunkReader::Seen ChunkReader::See(ChunkIndex chunk) const {
  Seen seen;
  if (const auto pending = core_.state->pending.Find(chunk)) {
    seen.version = pending->version;
    return seen;
  }
  for (uint32_t i = 0; i < core_.geometry.n; ++i) {
    seen.row.push_back(core_.state->rows.Get(core_.geometry.StripeOf(chunk), i).word);
  }
  return seen;
}

Task<Status> ChunkReader::ReadLatest(ChunkIndex chunk, std::span<std::byte> into) {
  if (const auto instead = instead_.find(chunk.value); instead != instead_.end()) {
    std::memcpy(into.data(), instead->second.data(), into.size());
    co_return OkStatus();
  }
  while (true) {
    const RowWord found = core_.state->Latest(chunk);
    Pins pins(core_);
    pins.Add(core_.geometry.SsdOf(chunk), found.word);
    Task<Status> direct = ReadSlot(core_.geometry.SsdOf(chunk), found.word, found.crc,
                                   core_.devices().number(), into);
    const Status status = co_await direct;
    if (status.ok()) {
      co_return OkStatus();
    }
    if (core_.state->Latest(chunk).word != found.word) {
      continue;  // a newer version came meanwhile
    }
    NoteWrong(core_.geometry.StripeOf(chunk), core_.geometry.SsdOf(chunk), found.word);
    const Seen seen = See(chunk);
    const StatesNumber states = core_.devices().number();
    Task<Status> decode = DecodeLatest(chunk, into);
    const Status decoded = co_await decode;
    // One log device may have come back while the other went, and one of them was always there.
    if (decoded.ok() || (See(chunk) == seen && states == core_.devices().number())) {
      co_return decoded;
    }
  }
}

Task<Status> ChunkReader::DecodeLatest(ChunkIndex chunk, std::span<std::byte> into) {
  ++core_.hooks.decoded_chunks;
  if (const auto pending = core_.state->pending.Find(chunk)) {
    Task<Status> decode = DecodePending(chunk, pending->log_stripe, into);
    co_return co_await decode;
  }
  Task<Status> decode = DecodeCommitted(chunk, into);
  co_return co_await decode;
}

Task<Status> ChunkReader::DecodePending(ChunkIndex chunk, LogStripeId id,
                                        std::span<std::byte> into) {
  const LogStripeView view = core_.state->pending.View(id);
  Pins pins(core_);
  std::vector<Buffer> buffers;
  std::vector<std::span<std::byte>> data;
  size_t wanted = 0;
  for (size_t i = 0; i < view.members.size(); ++i) {
    pins.Add(core_.geometry.SsdOf(view.members[i].chunk), view.members[i].word);
    buffers.push_back(core_.pool.Get(core_.geometry.chunk_bytes));
    data.push_back(buffers.back().span());
    wanted = view.members[i].chunk == chunk ? i : wanted;
  }
  std::optional<Appender::LogPin> log_pin;
  if (appender_ != nullptr) {
    log_pin.emplace(*appender_, view.place);
  }
  EPLOG_CO_AWAIT(ReadLogStripe(view, data));
  std::memcpy(into.data(), data[wanted].data(), into.size());
  co_return OkStatus();
}

Task<Status> ChunkReader::DecodeCommitted(ChunkIndex chunk, std::span<std::byte> into) {
  const StripeIndex stripe = core_.geometry.StripeOf(chunk);
  Pins pins(core_);
  std::vector<RowWord> words;
  for (uint32_t i = 0; i < core_.geometry.n; ++i) {
    words.push_back(core_.state->rows.Get(stripe, i));
    pins.Add(core_.geometry.SsdOf(stripe, i), words.back().word);
  }
  std::vector<Buffer> buffers;
  std::vector<std::span<std::byte>> data;
  for (uint32_t i = 0; i < core_.geometry.k(); ++i) {
    buffers.push_back(core_.pool.Get(core_.geometry.chunk_bytes));
    data.push_back(buffers.back().span());
  }
  EPLOG_CO_AWAIT(ReadRow(stripe, words, core_.devices().number(), data));
  std::memcpy(into.data(), data[core_.geometry.IndexInStripe(chunk)].data(), into.size());
  co_return OkStatus();
}

Task<Status> ChunkReader::ReadRow(StripeIndex stripe, std::span<const RowWord> words,
                                  StatesNumber states, std::span<const std::span<std::byte>> data,
                                  uint64_t* rebuilt) {
  const Geometry& g = core_.geometry;
  uint64_t bad = 0;
  TaskGroup group(core_.loop);
  for (uint32_t i = 0; i < g.k(); ++i) {
    Task<Status> read = ReadSlot(g.SsdOf(stripe, i), words[i].word, words[i].crc, states, data[i]);
    group.Start(NoteFailure(std::move(read), bad, i));
  }
  Task<Status> all_data = group.Wait();
  const Status data_done = co_await all_data;
  EPLOG_CHECK(data_done.ok(), "NoteFailure never fails");
  if (bad == 0 && rebuilt == nullptr) {
    co_return OkStatus();
  }
  std::vector<Buffer> parity;
  std::array<std::byte*, kMaxDevices> chunks{};
  for (uint32_t i = 0; i < g.n; ++i) {
    if (i >= g.k()) {
      parity.push_back(core_.pool.Get(g.chunk_bytes));
      Task<Status> read =
          ReadSlot(g.SsdOf(stripe, i), words[i].word, words[i].crc, states, parity.back().span());
      group.Start(NoteFailure(std::move(read), bad, i));
    }
    chunks[i] = i < g.k() ? data[i].data() : parity.back().data();
  }
  Task<Status> all_parity = group.Wait();
  const Status parity_done = co_await all_parity;
  EPLOG_CHECK(parity_done.ok(), "NoteFailure never fails");
  if (rebuilt != nullptr) {
    *rebuilt = bad;
  }
  for (uint64_t mask = bad; mask != 0; mask &= mask - 1) {
    const auto i = static_cast<uint32_t>(std::countr_zero(mask));
    NoteWrong(stripe, g.SsdOf(stripe, i), words[i].word);
  }
  const uint64_t data_mask = (uint64_t{1} << g.k()) - 1;
  const uint64_t all = (uint64_t{1} << g.n) - 1;
  const Status decoded = core_.code.Decode(g.k(), std::span(chunks).first(g.n), all & ~bad,
                                           bad & data_mask, g.chunk_bytes);
  if (!decoded.ok()) {
    co_return Beyond("stripe " + std::to_string(stripe.value));
  }
  for (uint32_t i = 0; i < g.k(); ++i) {
    const bool wrong =
        !words[i].word.is_zero() && (bad >> i & 1) != 0 && core_.checksum(data[i]) != words[i].crc;
    if (wrong) {
      co_return Beyond("stripe " + std::to_string(stripe.value));
    }
  }
  co_return OkStatus();
}

Task<Status> ChunkReader::ReadLogStripe(const LogStripeView& view,
                                        std::span<const std::span<std::byte>> data,
                                        uint64_t* rebuilt) {
  const Geometry& g = core_.geometry;
  const auto d = static_cast<uint32_t>(view.members.size());
  uint64_t bad = 0;
  TaskGroup group(core_.loop);
  for (uint32_t i = 0; i < d; ++i) {
    const LogStripeMember& member = view.members[i];
    Task<Status> read =
        ReadSlot(g.SsdOf(member.chunk), member.word, member.crc, core_.devices().number(), data[i]);
    group.Start(NoteFailure(std::move(read), bad, i));
  }
  std::vector<Buffer> logs;
  std::array<std::byte*, kMaxDevices> chunks{};
  for (uint32_t j = 0; j < g.m; ++j) {
    logs.push_back(core_.pool.Get(g.chunk_bytes));
    Task<Status> read = ReadLogChunk(j, view.place, view.log_crcs[j], logs.back().span());
    group.Start(NoteFailure(std::move(read), bad, d + j));
    chunks[d + j] = logs.back().data();
  }
  Task<Status> all_read = group.Wait();
  const Status done = co_await all_read;
  EPLOG_CHECK(done.ok(), "NoteFailure never fails");
  if (rebuilt != nullptr) {
    *rebuilt = bad;
  }
  for (uint32_t i = 0; i < d; ++i) {
    chunks[i] = data[i].data();
    if ((bad >> i & 1) != 0) {
      const ChunkIndex chunk = view.members[i].chunk;
      NoteWrong(g.StripeOf(chunk), g.SsdOf(chunk), view.members[i].word);
    }
  }
  const uint64_t all = (uint64_t{1} << (d + g.m)) - 1;
  const uint64_t members = (uint64_t{1} << d) - 1;
  const Status decoded = core_.code.Decode(d, std::span(chunks).first(d + g.m), all & ~bad,
                                           bad & members, g.chunk_bytes);
  if (!decoded.ok()) {
    co_return Beyond("the log stripe at place " + std::to_string(view.place));
  }
  for (uint32_t i = 0; i < d; ++i) {
    if ((bad >> i & 1) != 0 && core_.checksum(data[i]) != view.members[i].crc) {
      co_return Beyond("the log stripe at place " + std::to_string(view.place));
    }
  }
  co_return OkStatus();
}

}  // namespace eplog
