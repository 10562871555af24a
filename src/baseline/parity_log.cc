#include "baseline/parity_log.h"

#include <algorithm>

#include "base/check.h"

namespace eplog {

bool ParityLog::TryReserve() {
  if (is_free_.size() + reserved_ >= places_) {
    return false;
  }
  ++reserved_;
  return true;
}

void ParityLog::Unreserve() {
  EPLOG_CHECK(reserved_ > 0, "a promise is given back once");
  --reserved_;
  changed.NotifyAll();
}

uint64_t ParityLog::Take() {
  EPLOG_CHECK(reserved_ > 0, "a place is promised before it is taken");
  --reserved_;
  is_free_.push_back(false);
  return tail_ + is_free_.size() - 1;
}

void ParityLog::Free(uint64_t place) {
  EPLOG_CHECK(place >= tail_ && !is_free_[place - tail_], "a place is freed once");
  is_free_[place - tail_] = true;
  while (!is_free_.empty() && is_free_.front()) {
    is_free_.pop_front();
    ++tail_;
  }
  changed.NotifyAll();
}

void ParityLog::Record(uint64_t line, uint64_t place) {
  lines_[line].push_back(place);
  changed.NotifyAll();
}

const std::vector<uint64_t>& ParityLog::PlacesOf(uint64_t line) const {
  static const std::vector<uint64_t> none;
  const auto found = lines_.find(line);
  return found == lines_.end() ? none : found->second;
}

bool ParityLog::Holds(uint64_t line, uint64_t place) const {
  const std::vector<uint64_t>& places = PlacesOf(line);
  return std::find(places.begin(), places.end(), place) != places.end();
}

void ParityLog::Forget(uint64_t line, size_t count) {
  if (count == 0) {
    return;
  }
  std::vector<uint64_t>& places = lines_[line];
  EPLOG_CHECK(count <= places.size(), "what is forgotten was recorded");
  const auto end = places.begin() + static_cast<ptrdiff_t>(count);
  std::for_each(places.begin(), end, [this](uint64_t place) { Free(place); });
  places.erase(places.begin(), end);
  if (places.empty()) {
    lines_.erase(line);
  }
}

std::vector<ParityLog::Difference> ParityLog::All() const {
  std::vector<Difference> all;
  for (const auto& [line, places] : lines_) {
    for (const uint64_t place : places) {
      all.push_back({place, line});
    }
  }
  std::sort(all.begin(), all.end(),
            [](const Difference& a, const Difference& b) { return a.place < b.place; });
  return all;
}

}  // namespace eplog
