#include "baseline/line_cache.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace eplog {
namespace {

constexpr uint64_t kUnknown = UINT64_MAX;

}  // namespace

void Line::PartDone(uint32_t tag, const Status& status) {
  if (!status.ok() && flight_status.ok()) {
    flight_status = status;
  }
  if (status.ok() && flight == Flight::kReading) {
    uptodate |= uint64_t{1} << tag;
  }
  if (--parts_in_flight == 0) {
    owner->FlightDone(*this);
  }
}

LineCache::LineCache(EventLoop& loop, BufferPool& pool, LineOwner& owner, uint32_t lines,
                     uint32_t pages)
    : released_(loop) {
  const auto count = RoundUp(std::max<uint64_t>(lines, kSets), kSets);
  for (uint64_t i = 0; i < count; ++i) {
    Line& line = *lines_.emplace_back(std::make_unique<Line>());
    line.owner = &owner;
    line.number = kUnknown;
    line.pages = pool.Get(size_t{pages} * kPageBytes);
    std::list<Line*>& inactive = inactive_[i % kSets];
    line.inactive_at = inactive.insert(inactive.end(), &line);
  }
}

void LineCache::Activate(Line& line) {
  if (!line.active) {
    inactive_[line.number % kSets].erase(line.inactive_at);
    line.active = true;
    ++active_;
  }
}

Line* LineCache::TryGet(uint64_t number) {
  if (const auto found = known_.find(number); found != known_.end()) {
    Activate(*found->second);
    return found->second;
  }
  std::list<Line*>& inactive = inactive_[number % kSets];
  if (blocked_ || inactive.empty()) {
    return nullptr;
  }
  Line& line = *inactive.front();
  known_.erase(line.number);
  known_.emplace(number, &line);
  inactive.pop_front();
  line.number = number;
  line.uptodate = 0;
  line.active = true;
  ++active_;
  return &line;
}

bool LineCache::MayGoOn(size_t set) const {
  return !inactive_[set].empty() && (!blocked_ || active_ < lines_.size() * 3 / 4);
}

Task<Line*> LineCache::Get(uint64_t number) {
  while (true) {
    Line* const line = TryGet(number);
    if (line != nullptr) {
      co_return line;
    }
    blocked_ = true;
    while (!MayGoOn(number % kSets)) {
      co_await released_.Wait();
    }
    blocked_ = false;
  }
}

void LineCache::Release(Line& line) {
  EPLOG_CHECK(line.active && !line.has_work() && line.parts_in_flight == 0, "nobody needs it");
  std::list<Line*>& inactive = inactive_[line.number % kSets];
  line.inactive_at = inactive.insert(inactive.end(), &line);
  line.active = false;
  --active_;
  released_.NotifyAll();
}

}  // namespace eplog
