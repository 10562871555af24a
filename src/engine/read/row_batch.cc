#include "engine/read/row_batch.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <utility>

#include "runtime/task_group.h"

namespace eplog {
namespace {

constexpr uint64_t kRequestBytes = uint64_t{1} << 20;
constexpr size_t kRequestsAtOnce = 128;

uint64_t Bit(uint32_t index) {
  return uint64_t{1} << index;
}

// Calls visit(first, count) for each part of `places` that is side by side on one SSD.
template <typename Visit>
void ForEachRun(std::vector<RowBatch::Place>& places, uint64_t chunk_bytes, Visit&& visit) {
  std::sort(places.begin(), places.end(), [](const auto& a, const auto& b) {
    return std::pair(a.ssd, a.slot) < std::pair(b.ssd, b.slot);
  });
  const uint64_t most = std::max<uint64_t>(1, kRequestBytes / chunk_bytes);
  for (size_t first = 0; first < places.size();) {
    size_t count = 1;
    while (first + count < places.size() && count < most &&
           places[first + count].ssd == places[first].ssd &&
           places[first + count].slot.value == places[first].slot.value + count) {
      ++count;
    }
    visit(first, count);
    first += count;
  }
}

}  // namespace

RowBatch::RowBatch(Core& core, ChunkReader& reader, size_t most)
    : core_(core), reader_(reader), most_(most), pins_(core), columns_(core.geometry.n) {
  rows_.reserve(most);
}

void RowBatch::Add(StripeIndex stripe) {
  EPLOG_CHECK(rows_.size() < most_, "a batch has room for so many rows");
  const Geometry& g = core_.geometry;
  Row& row = rows_.emplace_back();
  row.stripe = stripe;
  row.states = core_.devices().number();
  row.first_parity_ssd = g.FirstParitySsd(stripe);
  for (uint32_t i = 0; i < g.n; ++i) {
    row.words[i] = core_.state->rows.Get(stripe, i);
    pins_.Add(SsdOf(row, i), row.words[i].word);
  }
  for (Buffer& column : columns_) {
    if (!column) {
      column = core_.pool.Get(most_ * g.chunk_bytes);
    }
  }
}

std::span<std::byte> RowBatch::Chunk(size_t at, uint32_t index) const {
  const size_t bytes = core_.geometry.chunk_bytes;
  return columns_[SsdOf(rows_[at], index).value].span().subspan(at * bytes, bytes);
}

bool RowBatch::Readable(const Row& row, uint32_t index) const {
  const SlotWord word = row.words[index].word;
  return word.is_zero() || (word.has_slot() && core_.members.live(SsdOf(row, index)));
}

// Zeros are there at once.
void RowBatch::Wanted(size_t at, uint32_t index, std::vector<Place>& places) {
  Row& row = rows_[at];
  if (((row.valid | row.bad) & Bit(index)) != 0 || !Readable(row, index)) {
    return;
  }
  if (row.words[index].word.is_zero()) {
    const auto chunk = Chunk(at, index);
    std::memset(chunk.data(), 0, chunk.size());
    row.valid |= Bit(index);
    return;
  }
  places.push_back({at, index, SsdOf(row, index), row.words[index].word.slot()});
}

Task<void> RowBatch::ReadAll() {
  std::vector<Place> places;
  for (size_t at = 0; at < rows_.size(); ++at) {
    for (uint32_t i = 0; i < core_.geometry.n; ++i) {
      Wanted(at, i, places);
    }
  }
  Task<void> reading = Read(std::move(places));
  co_await reading;
}

Task<void> RowBatch::ReadThese(std::span<const uint64_t> masks) {
  std::vector<Place> places;
  for (size_t at = 0; at < rows_.size(); ++at) {
    for (uint64_t mask = masks[at]; mask != 0; mask &= mask - 1) {
      Wanted(at, static_cast<uint32_t>(std::countr_zero(mask)), places);
    }
  }
  Task<void> reading = Read(std::move(places));
  co_await reading;
}

// The same SSDs in all rows: data first would leave out another one in each, and what is side by
// side would be read in many small requests. Another batch leaves out another SSD.
Task<void> RowBatch::ReadEnough(std::span<const size_t> rows) {
  const Geometry& g = core_.geometry;
  const uint64_t first = rows_.empty() ? 0 : rows_[0].stripe.value / most_;
  while (true) {
    std::vector<Place> places;
    for (const size_t at : rows) {
      const Row& row = rows_[at];
      uint32_t coming = static_cast<uint32_t>(std::popcount(row.valid));
      for (uint32_t s = 0; s < g.n && coming < g.k(); ++s) {
        const DeviceIndex ssd(static_cast<uint8_t>((first + s) % g.n));
        const uint32_t i = g.IndexAt(row.first_parity_ssd, ssd);
        const bool tried = ((row.valid | row.bad) & Bit(i)) != 0;
        if (!tried && Readable(row, i)) {
          Wanted(at, i, places);
          ++coming;
        }
      }
    }
    if (places.empty()) {
      co_return;
    }
    Task<void> reading = Read(std::move(places));
    co_await reading;
  }
}

// What is side by side at once, several at a time.
Task<Status> RowBatch::Transfer(std::vector<Place> places, Part part) {
  TaskGroup group(core_.loop);
  std::vector<std::pair<size_t, size_t>> runs;
  ForEachRun(places, core_.geometry.chunk_bytes,
             [&runs](size_t first, size_t count) { runs.emplace_back(first, count); });
  for (const auto& [first, count] : runs) {
    Task<void> below = group.WaitBelow(kRequestsAtOnce);
    co_await below;
    group.Start((this->*part)(std::span(places).subspan(first, count)));
  }
  Task<Status> all = group.Wait();
  co_return co_await all;
}

Task<void> RowBatch::Read(std::vector<Place> places) {
  Task<Status> reading = Transfer(std::move(places), &RowBatch::ReadSideBySide);
  static_cast<void>(co_await reading);  // each chunk has its own outcome
}

std::vector<iovec> RowBatch::Parts(std::span<const Place> places) const {
  std::vector<iovec> parts;
  for (const Place& place : places) {
    const auto chunk = Chunk(place.at, place.index);
    const bool goes_on =
        !parts.empty() &&
        static_cast<std::byte*>(parts.back().iov_base) + parts.back().iov_len == chunk.data();
    if (goes_on) {
      parts.back().iov_len += chunk.size();
    } else {
      parts.push_back({chunk.data(), chunk.size()});
    }
  }
  return parts;
}

Task<Status> RowBatch::ReadSideBySide(std::span<const Place> places) {
  const std::vector<iovec> parts = Parts(places);
  Status status = Fail(ErrorCode::kIo, "not tried");
  if (places.size() > 1) {
    Task<Status> read = core_.members.Read(places[0].ssd, core_.geometry.SlotOffset(places[0].slot),
                                           std::span(parts));
    status = co_await read;
  }
  for (const Place& place : places) {
    if (status.ok()) {
      Verify(place);
      continue;
    }
    Task<Status> one = ReadOne(place);
    static_cast<void>(co_await one);
  }
  co_return OkStatus();
}

Task<Status> RowBatch::ReadOne(Place place) {
  Row& row = rows_[place.at];
  const RowWord word = row.words[place.index];
  Task<Status> read =
      reader_.ReadSlot(place.ssd, word.word, word.crc, row.states, Chunk(place.at, place.index));
  const Status status = co_await read;
  if (status.ok()) {
    row.valid |= Bit(place.index);
  } else if (core_.members.live(place.ssd)) {
    row.bad |= Bit(place.index);
  }
  co_return OkStatus();
}

void RowBatch::Verify(const Place& place) {
  Row& row = rows_[place.at];
  if (core_.checksum(Chunk(place.at, place.index)) == row.words[place.index].crc) {
    row.valid |= Bit(place.index);
  } else {
    row.bad |= Bit(place.index);
    NoteCorrupt(row, place.ssd);
  }
}

Status RowBatch::Decode(size_t at, uint64_t wanted) {
  const Geometry& g = core_.geometry;
  Row& row = rows_[at];
  wanted &= ~row.valid;
  std::array<std::byte*, kMaxDevices> chunks{};
  for (uint32_t i = 0; i < g.n; ++i) {
    chunks[i] = Chunk(at, i).data();
  }
  EPLOG_TRY(
      core_.code.Decode(g.k(), std::span(chunks).first(g.n), row.valid, wanted, g.chunk_bytes));
  for (uint64_t mask = wanted; mask != 0; mask &= mask - 1) {
    const auto index = static_cast<uint32_t>(std::countr_zero(mask));
    if (core_.checksum(Chunk(at, index)) != row.words[index].crc) {
      return Fail(ErrorCode::kCorrupt, "the parity of stripe " + std::to_string(row.stripe.value) +
                                           " does not match its data");
    }
  }
  row.valid |= wanted;
  return OkStatus();
}

uint64_t RowBatch::WrongParity(size_t at) const {
  const Geometry& g = core_.geometry;
  const uint64_t data = Bit(g.k()) - 1;
  const Row& row = rows_[at];
  if ((row.valid & data) != data) {
    return 0;
  }
  std::array<const std::byte*, kMaxSsds> content{};
  for (uint32_t i = 0; i < g.k(); ++i) {
    content[i] = row.words[i].word.is_zero() ? nullptr : Chunk(at, i).data();
  }
  const Buffer computed = core_.pool.Get(size_t{g.m} * g.chunk_bytes);
  std::array<std::byte*, kMaxParity> parity{};
  for (uint32_t j = 0; j < g.m; ++j) {
    parity[j] = computed.data() + size_t{j} * g.chunk_bytes;
  }
  core_.code.Encode(std::span(content).first(g.k()), std::span(parity).first(g.m), g.chunk_bytes);
  uint64_t wrong = 0;
  for (uint32_t j = 0; j < g.m; ++j) {
    const bool differs = std::memcmp(parity[j], Chunk(at, g.k() + j).data(), g.chunk_bytes) != 0;
    wrong |= (row.valid & Bit(g.k() + j)) != 0 && differs ? Bit(g.k() + j) : 0;
  }
  return wrong;
}

// Not of who joined since, who never had it.
void RowBatch::NoteCorrupt(const Row& row, DeviceIndex ssd) {
  if (core_.devices().IsCurrent(ssd, row.states)) {
    core_.members.CountCorrupt(ssd);
  }
}

void RowBatch::CountWrong(size_t at, uint64_t positions) {
  for (uint64_t mask = positions; mask != 0; mask &= mask - 1) {
    const Row& row = rows_[at];
    NoteCorrupt(row, SsdOf(row, static_cast<uint32_t>(std::countr_zero(mask))));
  }
}

void RowBatch::EncodeParity(size_t at, uint64_t wanted) {
  const Geometry& g = core_.geometry;
  std::array<const std::byte*, kMaxSsds> content{};
  std::array<std::byte*, kMaxParity> parity{};
  for (uint32_t i = 0; i < g.k(); ++i) {
    content[i] = Chunk(at, i).data();
  }
  const Buffer others = core_.pool.Get(size_t{g.m} * g.chunk_bytes);
  for (uint32_t j = 0; j < g.m; ++j) {
    const bool here = (wanted & Bit(g.k() + j)) != 0;
    parity[j] = here ? Chunk(at, g.k() + j).data() : others.data() + size_t{j} * g.chunk_bytes;
  }
  core_.code.Encode(std::span(content).first(g.k()), std::span(parity).first(g.m), g.chunk_bytes);
  for (uint32_t j = 0; j < g.m; ++j) {
    if ((wanted & Bit(g.k() + j)) != 0) {
      rows_[at].words[g.k() + j].crc = core_.checksum({parity[j], g.chunk_bytes});
      rows_[at].valid |= Bit(g.k() + j);
    }
  }
}

Task<Status> RowBatch::Write(std::vector<Place> places) {
  return Transfer(std::move(places), &RowBatch::WriteSideBySide);
}

Task<Status> RowBatch::WriteSideBySide(std::span<const Place> places) {
  if (!core_.devices().IsCurrent(places[0].ssd, places[0].states)) {
    co_return OkStatus();
  }
  const std::vector<iovec> parts = Parts(places);
  Task<Status> write = core_.members.Write(places[0].ssd, core_.geometry.SlotOffset(places[0].slot),
                                           std::span(parts), IoKind::kRepair);
  Status status = co_await write;
  core_.traffic.ssd_repair_bytes +=
      status.ok() ? places.size() * uint64_t{core_.geometry.chunk_bytes} : 0;
  co_return core_.members.Absorb(std::move(status));
}

}  // namespace eplog
