// What PlArray knows and does about single lines.
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "baseline/pages.h"
#include "baseline/pl_array.h"

namespace eplog {

uint64_t PlArray::LivePositions(uint64_t line) const {
  if (!ssd_failed_) {
    return LowBits(placement_.n());
  }
  uint64_t positions = 0;
  for (uint32_t i = 0; i < placement_.n(); ++i) {
    positions |= live(placement_.SsdOf(line, i)) ? BitOf(i) : 0;
  }
  return positions;
}

// Who waits for a commit may find that others were faster to take what it freed, or that all places
// are in use by requests in flight; those come to an end, or become something to commit.
Task<Status> PlArray::Reserve() {
  while (!log_.TryReserve()) {
    Task<AsyncMutex::Guard> locking = committing_.Lock();
    const AsyncMutex::Guard lock = co_await locking;
    if (log_.TryReserve()) {
      break;
    }
    if (log_.lines() == 0) {
      co_await log_.changed.Wait();
      continue;
    }
    EPLOG_CO_AWAIT(CommitAll());
  }
  co_return OkStatus();
}

void PlArray::AddPages(PartGroup& group, uint64_t line, uint64_t positions, const Buffer& pages,
                       IoClass io_class) const {
  ForEachBit(positions, [&](uint32_t position) {
    group.Add({.device = placement_.SsdOf(line, position),
               .io_class = io_class,
               .offset_bytes = Placement::SsdOffset(line),
               .memory = pages.data() + size_t{kPageBytes} * position,
               .length_bytes = kPageBytes});
  });
}

// Differences that nobody will need, of parity that is gone, are not logged.
void PlArray::AddDifferences(PartGroup& group, uint64_t line, uint64_t place,
                             const Buffer& differences) const {
  for (uint32_t j = 0; j < placement_.m(); ++j) {
    if (live(LogOf(j)) && live(placement_.SsdOf(line, placement_.k() + j))) {
      group.Add({.device = LogOf(j),
                 .io_class = IoClass::kLogWrite,
                 .offset_bytes = log_.offset_bytes(place),
                 .memory = differences.data() + size_t{kPageBytes} * j,
                 .length_bytes = kPageBytes});
    }
  }
}

// The pages become what they will be, the differences what parity changes by.
void PlArray::TakePieces(std::span<const PagePiece> pieces, const std::byte* from,
                         const Buffer& pages, const Buffer& differences) const {
  std::array<std::byte*, kMaxParity> parity{};
  for (uint32_t j = 0; j < placement_.m(); ++j) {
    parity[j] = differences.data() + size_t{kPageBytes} * j;
  }
  std::array<std::byte, kPageBytes> change{};
  for (const PagePiece& piece : pieces) {
    std::byte* const page = pages.data() + size_t{kPageBytes} * piece.position;
    std::memcpy(change.data(), page, kPageBytes);
    std::memcpy(page + piece.begin_bytes, from + piece.at_bytes, piece.length_bytes);
    XorPage(change.data(), page);
    code_.Update(piece.position, change, std::span(parity).first(placement_.m()));
  }
}

void PlArray::Encode(const Buffer& pages) const {
  std::array<const std::byte*, kMaxSsds> data{};
  std::array<std::byte*, kMaxParity> parity{};
  for (uint32_t i = 0; i < placement_.k(); ++i) {
    data[i] = pages.data() + size_t{kPageBytes} * i;
  }
  for (uint32_t j = 0; j < placement_.m(); ++j) {
    parity[j] = pages.data() + size_t{kPageBytes} * (placement_.k() + j);
  }
  code_.Encode(std::span(data).first(placement_.k()), std::span(parity).first(placement_.m()),
               kPageBytes);
}

// k positions that can be had: data that is wanted, other data, parity whose differences can be
// read.
uint64_t PlArray::DecodeSources(uint64_t line, uint64_t wanted) const {
  const uint64_t there = LivePositions(line);
  const uint32_t k = placement_.k();
  const bool clean = log_.PlacesOf(line).empty();
  uint64_t sources = wanted & there;
  const auto enough = [&] { return std::popcount(sources) == static_cast<int>(k); };
  for (uint32_t i = 0; i < placement_.n() && !enough(); ++i) {
    const bool right = i < k || clean || live(LogOf(i - k));
    sources |= (there & BitOf(i)) != 0 && right ? BitOf(i) : 0;
  }
  EPLOG_CHECK(enough(), "at most m devices have failed");
  return sources;
}

Task<Status> PlArray::Load(uint64_t line, uint64_t wanted, const Buffer& pages, IoClass io_class) {
  const uint64_t missing = wanted & ~LivePositions(line);
  const uint64_t sources = missing == 0 ? wanted : DecodeSources(line, wanted);
  PartGroup group(loop_, plug_);
  AddPages(group, line, wanted & sources, pages, io_class);
  AddPages(group, line, sources & ~wanted, pages, IoClass::kDecodeRead);
  EPLOG_CO_AWAIT(group.Wait());
  if (missing == 0) {
    co_return OkStatus();
  }
  EPLOG_CO_AWAIT(AddLogged(line, sources, pages));
  std::array<std::byte*, kMaxSsds> chunks{};
  for (uint32_t i = 0; i < placement_.n(); ++i) {
    chunks[i] = pages.data() + size_t{kPageBytes} * i;
  }
  co_return code_.Decode(placement_.k(), std::span(chunks).first(placement_.n()), sources, missing,
                         kPageBytes);
}

// Parity as it would be after a commit: with the differences in the log.
Task<Status> PlArray::AddLogged(uint64_t line, uint64_t positions, const Buffer& pages) {
  const std::vector<uint64_t> places = log_.PlacesOf(line);
  const uint64_t parity = positions >> placement_.k();
  const Buffer logged = pool_.Get(std::max<size_t>(1, places.size()) * placement_.m() * kPageBytes);
  const auto at = [&logged, &places](uint32_t j, size_t i) {
    return logged.data() + (j * places.size() + i) * kPageBytes;
  };
  PartGroup group(loop_, plug_);
  ForEachBit(parity, [&](uint32_t j) {
    for (size_t i = 0; i < places.size(); ++i) {
      group.Add({.device = LogOf(j),
                 .io_class = IoClass::kDecodeRead,
                 .offset_bytes = log_.offset_bytes(places[i]),
                 .memory = at(j, i),
                 .length_bytes = kPageBytes});
    }
  });
  EPLOG_CO_AWAIT(group.Wait());
  ForEachBit(parity, [&](uint32_t j) {
    for (size_t i = 0; i < places.size(); ++i) {
      XorPage(pages.data() + size_t{kPageBytes} * (placement_.k() + j), at(j, i));
    }
  });
  co_return OkStatus();
}

}  // namespace eplog
