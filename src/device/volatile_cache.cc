#include "device/volatile_cache.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/types.h"
#include "device/request_check.h"
#include "runtime/task_group.h"

namespace eplog {
namespace {

constexpr int kWritersBelow = 16;
constexpr uint64_t kMaxRunBytes = uint64_t{1} << 20;
constexpr uint64_t kPage = 4096;

// The sector bits of [begin, begin + length) bytes within a page.
uint8_t SectorMask(uint64_t begin, uint64_t length) {
  const auto sectors = static_cast<unsigned>(length / kSectorBytes);
  const auto first = static_cast<unsigned>(begin / kSectorBytes);
  return static_cast<uint8_t>(((1U << sectors) - 1) << first);
}

// Calls visit(page number, first byte in the page, memory, bytes) for each piece of `parts` that
// lies in one page.
template <typename Visit>
void ForEachPiece(uint64_t offset_bytes, std::span<const iovec> parts, const Visit& visit) {
  uint64_t at = offset_bytes;
  for (const iovec& part : parts) {
    auto* memory = static_cast<std::byte*>(part.iov_base);
    uint64_t left = part.iov_len;
    while (left != 0) {
      const uint64_t begin = at % kPage;
      const uint64_t take = std::min(left, kPage - begin);
      visit(at / kPage, begin, memory, take);
      at += take;
      memory += take;
      left -= take;
    }
  }
}

// Copies the sectors of `mask` that lie in [begin, begin + length) of the page to `to`.
void CopySectors(const std::byte* page, uint8_t mask, uint64_t begin, uint64_t length,
                 std::byte* to) {
  const uint8_t wanted = SectorMask(begin, length);
  if ((mask & wanted) == wanted) {
    std::memcpy(to, page + begin, length);
    return;
  }
  for (uint64_t at = begin; at < begin + length; at += kSectorBytes) {
    if ((mask & SectorMask(at, kSectorBytes)) != 0) {
      std::memcpy(to + (at - begin), page + at, kSectorBytes);
    }
  }
}

}  // namespace

VolatileCacheDevice::Generation& VolatileCacheDevice::Active() {
  if (!active_open_) {
    auto fresh = std::make_shared<Generation>();
    fresh->sequence = ++last_sequence_;
    generations_.push_back(std::move(fresh));
    active_open_ = true;
  }
  return *generations_.back();
}

uint64_t VolatileCacheDevice::Seal() {
  active_open_ = false;
  return last_sequence_;
}

uint8_t VolatileCacheDevice::ValidSectors(uint64_t page_number) const {
  uint8_t valid = 0;
  for (const auto& generation : generations_) {
    const auto found = generation->pages.find(page_number);
    valid |= found == generation->pages.end() ? uint8_t{0} : found->second.valid;
  }
  return valid;
}

VolatileCacheDevice::Coverage VolatileCacheDevice::CoverageOf(uint64_t offset_bytes,
                                                              std::span<const iovec> parts) const {
  bool any = false;
  bool all = true;
  ForEachPiece(offset_bytes, parts,
               [&](uint64_t page, uint64_t begin, const std::byte*, uint64_t length) {
                 const uint8_t wanted = SectorMask(begin, length);
                 const auto here = static_cast<uint8_t>(ValidSectors(page) & wanted);
                 any = any || here != 0;
                 all = all && here == wanted;
               });
  return !any ? Coverage::kNone : all ? Coverage::kWhole : Coverage::kPart;
}

Task<Status> VolatileCacheDevice::Read(uint64_t offset_bytes, std::span<const iovec> into) {
  Status checked = CheckRequest(*this, "read", offset_bytes, into);
  EPLOG_CO_TRY(checked);
  const Coverage coverage = CoverageOf(offset_bytes, into);
  // What is in RAM now may be written back and leave before the read below returns, with older
  // content.
  std::vector<std::shared_ptr<Generation>> seen;
  if (coverage != Coverage::kNone) {
    seen.assign(generations_.begin(), generations_.end());
  }
  if (coverage != Coverage::kWhole) {
    EPLOG_CO_AWAIT(below().Read(offset_bytes, into));
  }
  for (const auto& generation : seen) {
    ForEachPiece(offset_bytes, into,
                 [&](uint64_t page, uint64_t begin, std::byte* memory, uint64_t length) {
                   const auto found = generation->pages.find(page);
                   if (found != generation->pages.end()) {
                     const Page& cached = found->second;
                     CopySectors(cached.data->bytes.data(), cached.valid, begin, length, memory);
                   }
                 });
  }
  co_return OkStatus();
}

Task<Status> VolatileCacheDevice::Write(uint64_t offset_bytes, std::span<const iovec> from) {
  Status checked = CheckRequest(*this, "write", offset_bytes, from);
  EPLOG_CO_TRY(checked);
  if (cached_bytes() > limit_bytes_) {
    EPLOG_CO_AWAIT(EvictOverLimit());
  }
  Generation& active = Active();
  ForEachPiece(offset_bytes, from,
               [&](uint64_t number, uint64_t begin, const std::byte* memory, uint64_t length) {
                 Page& page = active.pages[number];
                 if (page.data == nullptr) {
                   page.data = std::make_unique_for_overwrite<PageData>();
                   ++cached_pages_;
                 }
                 std::memcpy(page.data->bytes.data() + begin, memory, length);
                 page.valid |= SectorMask(begin, length);
               });
  co_return OkStatus();
}

Task<Status> VolatileCacheDevice::EvictOverLimit() {
  Task<AsyncMutex::Guard> lock = write_back_.Lock();
  const AsyncMutex::Guard guard = co_await lock;
  if (failure_) {
    co_return Fail(*failure_);
  }
  if (cached_bytes() <= limit_bytes_) {
    co_return OkStatus();  // somebody else has made room meanwhile
  }
  Task<Status> write_back = WriteBack(Seal());
  co_return co_await write_back;
}

Task<Status> VolatileCacheDevice::Flush() {
  const uint64_t mine = Seal();
  const bool idle = mine <= durable_sequence_;
  Task<AsyncMutex::Guard> lock = write_back_.Lock();
  const AsyncMutex::Guard guard = co_await lock;
  if (failure_) {
    co_return Fail(*failure_);
  }
  if (!idle && mine <= durable_sequence_) {
    co_return OkStatus();  // a later flush that was served first has covered this one
  }
  EPLOG_CO_AWAIT(WriteBack(mine));
  const uint64_t covered = written_sequence_;
  Task<Status> flush = below().Flush();
  Status flushed = co_await flush;
  if (!flushed.ok()) {
    failure_ = flushed.error();
    co_return flushed;
  }
  durable_sequence_ = covered;
  co_return OkStatus();
}

Task<Status> VolatileCacheDevice::WriteBack(uint64_t sequence) {
  while (!generations_.empty() && generations_.front()->sequence <= sequence) {
    const std::shared_ptr<Generation> oldest = generations_.front();
    const std::vector<Run> runs = CollectRuns(*oldest);
    size_t next = 0;
    TaskGroup writers(loop_);
    for (int i = 0; i < kWritersBelow && next < runs.size(); ++i) {
      writers.Start(WriteRuns(runs, next));
    }
    Task<Status> all = writers.Wait();
    Status status = co_await all;
    if (!status.ok()) {
      failure_ = status.error();
      co_return status;
    }
    cached_pages_ -= oldest->pages.size();
    written_sequence_ = oldest->sequence;
    generations_.pop_front();
  }
  co_return OkStatus();
}

// One of several writers: takes runs until none is left.
Task<Status> VolatileCacheDevice::WriteRuns(const std::vector<Run>& runs, size_t& next) {
  while (next < runs.size()) {
    const Run& run = runs[next++];
    EPLOG_CO_AWAIT(below().Write(run.offset_bytes, run.parts));
  }
  co_return OkStatus();
}

std::vector<VolatileCacheDevice::Run> VolatileCacheDevice::CollectRuns(
    const Generation& generation) {
  std::vector<uint64_t> numbers;
  numbers.reserve(generation.pages.size());
  for (const auto& [number, page] : generation.pages) {
    numbers.push_back(number);
  }
  std::sort(numbers.begin(), numbers.end());
  std::vector<Run> runs;
  uint64_t run_end = 0;  // where the last run ends; nothing is at 0 before the first
  for (const uint64_t number : numbers) {
    const Page& page = generation.pages.at(number);
    uint64_t begin = 0;
    while (begin < kPageBytes) {
      uint64_t end = begin;
      while (end < kPageBytes && (page.valid & SectorMask(end, kSectorBytes)) != 0) {
        end += kSectorBytes;
      }
      if (end == begin) {
        begin += kSectorBytes;
        continue;
      }
      const uint64_t at = number * kPageBytes + begin;
      if (runs.empty() || run_end != at || at - runs.back().offset_bytes >= kMaxRunBytes) {
        runs.push_back({at, {}});
      }
      runs.back().parts.push_back({page.data->bytes.data() + begin, end - begin});
      run_end = number * kPageBytes + end;
      begin = end;
    }
  }
  return runs;
}

Task<Status> VolatileCacheDevice::Discard(uint64_t offset_bytes, uint64_t length_bytes) {
  Status checked = CheckRange(*this, "discard", offset_bytes, length_bytes);
  EPLOG_CO_TRY(checked);
  Task<Status> discard = below().Discard(offset_bytes, length_bytes);
  co_return co_await discard;
}

void VolatileCacheDevice::DropCache() {
  EPLOG_CHECK(!write_back_.locked(), "the cache is dropped while requests are in flight");
  generations_.clear();
  active_open_ = false;
  cached_pages_ = 0;
  failure_.reset();
}

}  // namespace eplog
