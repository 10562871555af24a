#include "engine/commit/parity_maker.h"

#include <algorithm>
#include <array>

#include "runtime/task_group.h"

namespace eplog {
namespace {

void XorInto(std::span<std::byte> into, std::span<const std::byte> other) {
  for (size_t i = 0; i < into.size(); ++i) {
    into[i] ^= other[i];
  }
}

}  // namespace

Task<Status> ParityMaker::Make(const Change& change, std::vector<Buffer>& parity) {
  if (DeltaPays(change)) {
    Task<bool> delta = ByDelta(change, parity);
    const bool made = co_await delta;
    if (made) {
      ++core_.hooks.delta_commits;
      co_return OkStatus();
    }
    parity.clear();
  }
  Task<Status> all = FromData(change, parity);
  co_return co_await all;
}

bool ParityMaker::Changes(const Change& change, uint32_t index) const {
  if (core_.canary(Canary::kVersionByPlace)) {
    return change.old_words[index].word != change.words[index].word;
  }
  return change.takes(index);
}

bool ParityMaker::DeltaPays(const Change& change) const {
  const Geometry& g = core_.geometry;
  const auto reads = [](const RowWord& word) { return word.word.has_slot() ? 1U : 0U; };
  uint32_t delta = 0;
  uint32_t all = 0;
  bool was_zero = true;
  for (uint32_t i = 0; i < g.k(); ++i) {
    const RowWord& old = change.old_words[i];
    const RowWord& now = change.words[i];
    all += reads(now);
    was_zero = was_zero && old.word.is_zero();
    if (!Changes(change, i)) {
      continue;
    }
    if (old.word.is_absent() || now.word.is_absent()) {
      return false;
    }
    delta += reads(old) + reads(now);
  }
  for (uint32_t j = g.k(); j < g.n; ++j) {
    const RowWord& parity = change.old_words[j];
    // A stripe of zeros has no parity chunks: they are zeros.
    if (!parity.word.has_slot() && !(parity.word.is_zero() && was_zero)) {
      return false;
    }
    delta += reads(parity);
  }
  return delta < all;
}

Task<Status> ParityMaker::ReadCounted(const Change& change, uint32_t index, RowWord word,
                                      std::span<std::byte> into) {
  Task<Status> read = reader_.ReadSlot(core_.geometry.SsdOf(change.stripe, index), word.word,
                                       word.crc, change.states, into);
  Status status = co_await read;
  if (status.ok() && word.word.has_slot()) {
    core_.traffic.commit_read_bytes += core_.geometry.chunk_bytes;
  }
  co_return status;
}

// False if anything cannot be read as it is: the other way can decode.
Task<bool> ParityMaker::ByDelta(const Change& change, std::vector<Buffer>& parity) {
  const Geometry& g = core_.geometry;
  std::vector<uint32_t> changed;
  std::vector<Buffer> old;
  std::vector<Buffer> now;
  TaskGroup group(core_.loop);
  for (uint32_t i = 0; i < g.k(); ++i) {
    if (!Changes(change, i)) {
      continue;
    }
    changed.push_back(i);
    old.push_back(core_.pool.Get(g.chunk_bytes));
    now.push_back(core_.pool.Get(g.chunk_bytes));
    group.Start(ReadCounted(change, i, change.old_words[i], old.back().span()));
    group.Start(ReadCounted(change, i, change.words[i], now.back().span()));
  }
  std::array<std::byte*, kMaxParity> chunks{};
  for (uint32_t j = 0; j < g.m; ++j) {
    parity.push_back(core_.pool.Get(g.chunk_bytes));
    chunks[j] = parity.back().data();
    group.Start(ReadCounted(change, g.k() + j, change.old_words[g.k() + j], parity.back().span()));
  }
  Task<Status> all = group.Wait();
  const Status status = co_await all;
  if (!status.ok()) {
    co_return false;
  }
  for (size_t i = 0; i < changed.size(); ++i) {
    XorInto(now[i].span(), old[i].span());
    core_.code.Update(changed[i], now[i].span(), std::span(chunks).first(g.m));
  }
  co_return true;
}

Task<Status> ParityMaker::FromData(const Change& change, std::vector<Buffer>& parity) {
  const Geometry& g = core_.geometry;
  std::vector<Buffer> buffers;
  std::vector<std::span<std::byte>> data;
  std::array<const std::byte*, kMaxSsds> content{};
  for (uint32_t i = 0; i < g.k(); ++i) {
    buffers.push_back(core_.pool.Get(g.chunk_bytes));
    data.push_back(buffers.back().span());
    content[i] = data.back().data();
  }
  EPLOG_CO_AWAIT(ReadVersions(change, data));
  std::array<std::byte*, kMaxParity> chunks{};
  for (uint32_t j = 0; j < g.m; ++j) {
    parity.push_back(core_.pool.Get(g.chunk_bytes));
    chunks[j] = parity.back().data();
  }
  core_.code.Encode(std::span(content).first(g.k()), std::span(chunks).first(g.m), g.chunk_bytes);
  co_return OkStatus();
}

// Each data chunk in the version that the new row names. What cannot be read directly is decoded: a
// taken version through its log stripe, any other through the row as it is now, with the old
// versions of its peers.
Task<Status> ParityMaker::ReadVersions(const Change& change,
                                       std::span<const std::span<std::byte>> data) {
  const Geometry& g = core_.geometry;
  uint64_t bad = 0;
  TaskGroup group(core_.loop);
  for (uint32_t i = 0; i < g.k(); ++i) {
    group.Start(ReadVersion(change, i, data[i], bad));
  }
  EPLOG_CO_AWAIT(group.Wait());
  if (bad == 0) {
    co_return OkStatus();
  }
  std::vector<Buffer> buffers;
  std::vector<std::span<std::byte>> old;
  for (uint32_t i = 0; i < g.k(); ++i) {
    buffers.push_back(core_.pool.Get(g.chunk_bytes));
    old.push_back(buffers.back().span());
  }
  EPLOG_CO_AWAIT(reader_.ReadRow(change.stripe, change.old_words, change.states, old));
  for (uint32_t i = 0; i < g.k(); ++i) {
    if ((bad >> i & 1) != 0) {
      std::copy(old[i].begin(), old[i].end(), data[i].begin());
    }
  }
  co_return OkStatus();
}

Task<Status> ParityMaker::ReadVersion(const Change& change, uint32_t index,
                                      std::span<std::byte> into, uint64_t& bad) {
  const Geometry& g = core_.geometry;
  const RowWord word = change.words[index];
  Task<Status> read = ReadCounted(change, index, word, into);
  const Status status = co_await read;
  if (status.ok()) {
    co_return OkStatus();
  }
  const ChunkIndex chunk = g.Chunk(change.stripe, index);
  if (!Changes(change, index)) {
    bad |= uint64_t{1} << index;
    co_return OkStatus();
  }
  // A taken version. Its log stripe is live until our install is applied, unless a newer write
  // superseded it; versions only rise, so what is the latest before and after was it all the time.
  const auto is_latest = [&] {
    const auto pending = core_.state->pending.Find(chunk);
    return pending && pending->version == change.versions[index];
  };
  Status decoded;
  if (is_latest()) {
    Task<Status> decode = reader_.ReadLatest(chunk, into);
    decoded = co_await decode;
  }
  if (!is_latest()) {
    co_return Fail(ErrorCode::kBusy, "a chunk in commit was overwritten and cannot be read");
  }
  co_return decoded;
}

}  // namespace eplog
