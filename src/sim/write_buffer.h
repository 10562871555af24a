// WriteBuffer: which pages lie in an SSD's volatile buffer. Each is queued, or on its way into the
// flash ("leaving"); of one page both may be there, a newer one behind an older. Takes no notice of
// time beyond the instant from which a page's bytes are all there.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <unordered_map>
#include <vector>

namespace eplog::sim {

class WriteBuffer {
 public:
  struct Entry {
    uint32_t page = 0;
    uint64_t sequence = 0;  // counts up with each page that is queued
    uint64_t ready_ns = 0;
  };

  // True: the page was queued already and is written over there; it keeps its place and sequence.
  bool Put(uint32_t page, uint64_t ready_ns);
  // Forgets the page if it is queued.
  void Drop(uint32_t page);
  // If it is queued, it is taken before those that nobody urged.
  void Urge(uint32_t page);

  // Up to `limit` queued pages leave: the urged ones, then the oldest.
  void Take(uint32_t limit, std::vector<Entry>& taken);
  // They have left.
  void Done(std::span<const Entry> entries);

  [[nodiscard]] bool Holds(uint32_t page) const { return pages_.contains(page); }
  [[nodiscard]] bool IsQueued(uint32_t page, uint64_t up_to_sequence) const;
  // UINT64_MAX: nothing is queued.
  [[nodiscard]] uint64_t OldestQueued();
  [[nodiscard]] bool has_urged();
  [[nodiscard]] uint64_t queued() const { return queued_; }
  [[nodiscard]] uint64_t pages() const { return queued_ + leaving_; }
  [[nodiscard]] uint64_t last_sequence() const { return last_sequence_; }

 private:
  struct State {
    uint64_t queued_sequence = 0;  // 0: it is not queued
    uint64_t ready_ns = 0;
    uint32_t leaving = 0;
  };
  struct Place {
    uint32_t page;
    uint64_t sequence;
  };
  // Places whose page has gone another way are left behind in the queues and skipped.
  [[nodiscard]] bool IsStale(const Place& place) const {
    return !IsQueued(place.page, place.sequence);
  }
  void SkipStale(std::deque<Place>& queue);

  std::unordered_map<uint32_t, State> pages_;
  std::deque<Place> order_;
  std::deque<Place> urged_;
  uint64_t last_sequence_ = 0;
  uint64_t queued_ = 0;
  uint64_t leaving_ = 0;
};

}  // namespace eplog::sim
