#include "baseline/page_cache.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/task_group.h"

namespace eplog {
namespace {

constexpr uint64_t kRequestBytes = uint64_t{1} << 20;
constexpr size_t kAtOnce = 64;  // requests of a write-back

// visit(page, begin in it, length, begin in the request), ascending.
template <typename Visit>
void ForEachPage(uint64_t offset_bytes, uint64_t length_bytes, Visit&& visit) {
  for (uint64_t at = 0; at < length_bytes;) {
    const uint64_t within = (offset_bytes + at) % kPageBytes;
    const uint64_t length = std::min(length_bytes - at, kPageBytes - within);
    visit((offset_bytes + at) / kPageBytes, within, length, at);
    at += length;
  }
}

uint8_t Sectors(uint64_t within, uint64_t length) {
  const uint64_t first = within / kSectorBytes;
  return static_cast<uint8_t>(((uint64_t{1} << length / kSectorBytes) - 1) << first);
}

}  // namespace

PageCache::PageCache(EventLoop& loop, std::unique_ptr<BlockTarget> below, uint64_t limit_bytes)
    : loop_(loop),
      below_(std::move(below)),
      limit_bytes_(limit_bytes),
      written_back_(loop),
      traffic_(below_->traffic()) {}

bool PageCache::AllDirty(uint64_t offset_bytes, uint64_t length_bytes) const {
  const auto written = [](const Pages& pages, uint64_t number) {
    const auto found = pages.find(number);
    return found == pages.end() ? uint8_t{0} : found->second->written;
  };
  bool all = true;
  ForEachPage(offset_bytes, length_bytes,
              [&](uint64_t number, uint64_t within, uint64_t length, uint64_t /*at*/) {
                const uint8_t missing =
                    Sectors(within, length) & ~written(leaving_, number) & ~written(dirty_, number);
                all = all && missing == 0;
              });
  return all;
}

Task<Status> PageCache::Read(uint64_t offset_bytes, std::span<std::byte> into) {
  ++traffic_.user_reads;
  traffic_.user_bytes_read += into.size();
  Status status = CheckSectors(offset_bytes, into.size(), size_bytes());
  EPLOG_CO_TRY(status);
  // What is dirty now may be below, or not, when below answers: it is newer in any case.
  std::vector<std::pair<uint64_t, std::shared_ptr<Page>>> newer;
  for (const Pages* pages : {&leaving_, &dirty_}) {
    const uint64_t end = DivideUp(offset_bytes + into.size(), kPageBytes);
    for (auto at = pages->lower_bound(offset_bytes / kPageBytes);
         at != pages->end() && at->first < end; ++at) {
      newer.emplace_back(*at);
    }
  }
  if (!AllDirty(offset_bytes, into.size())) {
    EPLOG_CO_AWAIT(below_->Read(offset_bytes, into));
  }
  for (const auto& [number, page] : newer) {
    for (uint32_t sector = 0; sector < kPageSectors; ++sector) {
      const uint64_t at = number * kPageBytes + uint64_t{sector} * kSectorBytes;
      if ((page->written >> sector & 1) != 0 && at >= offset_bytes &&
          at < offset_bytes + into.size()) {
        std::memcpy(into.data() + (at - offset_bytes),
                    page->bytes.data() + uint64_t{sector} * kSectorBytes, kSectorBytes);
      }
    }
  }
  co_return OkStatus();
}

Task<Status> PageCache::Write(uint64_t offset_bytes, std::span<const std::byte> from) {
  Status status = CheckSectors(offset_bytes, from.size(), size_bytes());
  EPLOG_CO_TRY(status);
  ++traffic_.user_writes;
  traffic_.user_bytes_written += from.size();
  ForEachPage(offset_bytes, from.size(),
              [&](uint64_t number, uint64_t within, uint64_t length, uint64_t at) {
                std::shared_ptr<Page>& page = dirty_[number];
                if (page == nullptr) {
                  page = std::make_shared<Page>();
                }
                std::memcpy(page->bytes.data() + within, from.data() + at, length);
                page->written |= Sectors(within, length);
              });
  while (status.ok() && dirty_.size() * kPageBytes > limit_bytes_) {
    Task<Status> writing = WriteBack();
    status = co_await writing;
  }
  co_return status;
}

// What is dirty has no meaning in the range any more, and does no harm: it may be anything.
Task<Status> PageCache::Trim(uint64_t offset_bytes, uint64_t length_bytes) {
  return below_->Trim(offset_bytes, length_bytes);
}

// Sectors side by side, each run at most a request.
std::vector<PageCache::Run> PageCache::DirtyRuns() const {
  std::vector<Run> runs;
  for (const auto& [number, page] : leaving_) {
    for (uint32_t sector = 0; sector < kPageSectors; ++sector) {
      const uint64_t at = number * kPageBytes + uint64_t{sector} * kSectorBytes;
      if ((page->written >> sector & 1) == 0) {
        continue;
      }
      if (runs.empty() || runs.back().end != at || at - runs.back().begin == kRequestBytes) {
        runs.push_back({at, at});
      }
      runs.back().end = at + kSectorBytes;
    }
  }
  return runs;
}

Task<Status> PageCache::WriteRun(Run run) {
  const Buffer buffer = pool_.Get(run.end - run.begin);
  ForEachPage(run.begin, run.end - run.begin,
              [&](uint64_t number, uint64_t within, uint64_t length, uint64_t at) {
                std::memcpy(buffer.data() + at, leaving_.at(number)->bytes.data() + within, length);
              });
  Task<Status> write = below_->Write(run.begin, buffer.span());
  co_return co_await write;
}

Task<Status> PageCache::WriteDirty() {
  std::swap(dirty_, leaving_);
  TaskGroup group(loop_);
  for (const Run& run : DirtyRuns()) {
    Task<void> below = group.WaitBelow(kAtOnce);
    co_await below;
    group.Start(WriteRun(run));
  }
  Task<Status> all = group.Wait();
  Status status = co_await all;
  leaving_.clear();
  co_return status;
}

// Returns when a write-back that began after the call has ended, whoever began it. One at a time,
// so that what is written later is the newer.
Task<Status> PageCache::WriteBack() {
  const uint64_t needed = begun_ + 1;
  while (ended_ < needed && failure_.ok()) {
    if (writing_back_) {
      co_await written_back_.Wait();
      continue;
    }
    writing_back_ = true;
    ++begun_;
    Task<Status> writing = WriteDirty();
    failure_ = co_await writing;
    ended_ = begun_;
    writing_back_ = false;
    written_back_.NotifyAll();
  }
  co_return failure_;
}

Task<Status> PageCache::Flush() {
  EPLOG_CO_AWAIT(WriteBack());
  Task<Status> flush = below_->Flush();
  co_return co_await flush;
}

Task<Status> PageCache::Commit() {
  EPLOG_CO_AWAIT(WriteBack());
  Task<Status> commit = below_->Commit();
  co_return co_await commit;
}

Task<Status> PageCache::Close() {
  Task<Status> writing = WriteBack();
  Status status = co_await writing;
  Task<Status> close = below_->Close();
  Status closed = co_await close;
  co_return status.ok() ? closed : status;
}

const TargetTraffic& PageCache::traffic() const {
  TargetTraffic traffic = below_->traffic();
  traffic.user_reads = traffic_.user_reads;
  traffic.user_writes = traffic_.user_writes;
  traffic.user_bytes_read = traffic_.user_bytes_read;
  traffic.user_bytes_written = traffic_.user_bytes_written;
  traffic_ = std::move(traffic);
  return traffic_;
}

}  // namespace eplog
