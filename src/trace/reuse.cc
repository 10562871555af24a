#include "trace/reuse.h"

#include <algorithm>
#include <bit>

namespace eplog {
namespace {

uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

}  // namespace

void ReuseDistances::Add(size_t at, int32_t change) {
  for (++at; at < tree_.size(); at += at & (~at + 1)) {
    tree_[at] += change;
  }
}

// How many last touches lie at or behind moment `at`.
uint64_t ReuseDistances::CountFrom(size_t at) const {
  int64_t before = 0;
  for (; at > 0; at -= at & (~at + 1)) {
    before += tree_[at];
  }
  return last_.size() - static_cast<uint64_t>(before);
}

void ReuseDistances::Touch(uint64_t chunk) {
  const auto hash = static_cast<uint32_t>(Mix(chunk + 0x9E3779B97F4A7C15ULL) % kScale);
  if (hash >= threshold_) {
    return;
  }
  if (now_ + 1 == tree_.size()) {
    Renumber();
  }
  const uint64_t weight = (kScale << 16) / threshold_;
  const auto [found, is_new] = last_.try_emplace(chunk, now_);
  if (is_new) {
    first_ += weight;
    largest_.push({hash, chunk});
  } else {
    const uint64_t between = CountFrom(size_t{found->second} + 1);
    const uint64_t distance = between * kScale / threshold_;
    repeated_[std::min<size_t>(static_cast<size_t>(std::bit_width(distance)), kBuckets - 1)] +=
        weight;
    Add(found->second, -1);
    found->second = now_;
  }
  Add(now_++, 1);
  if (last_.size() > kMaxWatched) {
    Lower();
  }
}

// Stop watching the chunks with the largest hash.
void ReuseDistances::Lower() {
  threshold_ = largest_.top().hash;
  while (!largest_.empty() && largest_.top().hash >= threshold_) {
    const auto gone = last_.find(largest_.top().chunk);
    Add(gone->second, -1);
    last_.erase(gone);
    largest_.pop();
  }
}

// The moments ran out: number those in use from 0 again, in their order.
void ReuseDistances::Renumber() {
  std::vector<std::pair<uint32_t, uint32_t*>> order;
  order.reserve(last_.size());
  for (auto& [chunk, moment] : last_) {
    order.emplace_back(moment, &moment);
  }
  std::sort(order.begin(), order.end());
  std::fill(tree_.begin(), tree_.end(), 0);
  now_ = 0;
  for (auto& [moment, place] : order) {
    *place = now_;
    Add(now_++, 1);
  }
}

ReuseDistances::Summary ReuseDistances::Summarise() const {
  Summary out;
  out.exact = threshold_ == kScale;
  out.watched_share = static_cast<double>(threshold_) / static_cast<double>(kScale);
  uint64_t sum = first_;
  for (const uint64_t count : repeated_) {
    sum += count;
  }
  const auto all = static_cast<double>(std::max<uint64_t>(sum, 1));
  out.first = static_cast<double>(first_) / all;
  for (size_t i = 0; i < repeated_.size(); ++i) {
    out.repeated[i] = static_cast<double>(repeated_[i]) / all;
  }
  return out;
}

}  // namespace eplog
