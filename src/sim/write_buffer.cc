#include "sim/write_buffer.h"

#include <algorithm>

namespace eplog::sim {

bool WriteBuffer::Put(uint32_t page, uint64_t ready_ns) {
  State& state = pages_[page];
  if (state.queued_sequence != 0) {
    state.ready_ns = std::max(state.ready_ns, ready_ns);
    return true;
  }
  state.queued_sequence = ++last_sequence_;
  state.ready_ns = ready_ns;
  order_.push_back({page, last_sequence_});
  ++queued_;
  return false;
}

void WriteBuffer::Drop(uint32_t page) {
  const auto found = pages_.find(page);
  if (found == pages_.end() || found->second.queued_sequence == 0) {
    return;
  }
  found->second.queued_sequence = 0;
  --queued_;
  if (found->second.leaving == 0) {
    pages_.erase(found);
  }
  SkipStale(order_);  // or places would gather where little is taken and much is dropped
}

void WriteBuffer::Urge(uint32_t page) {
  const auto found = pages_.find(page);
  if (found != pages_.end() && found->second.queued_sequence != 0) {
    urged_.push_back({page, found->second.queued_sequence});
  }
}

void WriteBuffer::Take(uint32_t limit, std::vector<Entry>& taken) {
  while (taken.size() < limit && queued_ != 0) {
    std::deque<Place>& queue = has_urged() ? urged_ : order_;
    SkipStale(queue);
    const Place place = queue.front();
    queue.pop_front();
    State& state = pages_.find(place.page)->second;
    taken.push_back({place.page, place.sequence, state.ready_ns});
    state.queued_sequence = 0;
    ++state.leaving;
    --queued_;
    ++leaving_;
  }
}

void WriteBuffer::Done(std::span<const Entry> entries) {
  for (const Entry& entry : entries) {
    const auto found = pages_.find(entry.page);
    --found->second.leaving;
    --leaving_;
    if (found->second.leaving == 0 && found->second.queued_sequence == 0) {
      pages_.erase(found);
    }
  }
}

bool WriteBuffer::IsQueued(uint32_t page, uint64_t up_to_sequence) const {
  const auto found = pages_.find(page);
  return found != pages_.end() && found->second.queued_sequence != 0 &&
         found->second.queued_sequence <= up_to_sequence;
}

void WriteBuffer::SkipStale(std::deque<Place>& queue) {
  while (!queue.empty() && IsStale(queue.front())) {
    queue.pop_front();
  }
}

uint64_t WriteBuffer::OldestQueued() {
  SkipStale(order_);
  return order_.empty() ? UINT64_MAX : order_.front().sequence;
}

bool WriteBuffer::has_urged() {
  SkipStale(urged_);
  return !urged_.empty();
}

}  // namespace eplog::sim
