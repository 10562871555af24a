#include "sim/victims.h"

#include <bit>
#include <cstddef>

namespace eplog::sim {

void Victims::Add(uint32_t block) {
  std::vector<FlashBlock>& blocks = *blocks_;
  FlashBlock& added = blocks[block];
  List& list = lists_[added.valid];
  added.previous = list.last;
  added.next = kNoBlock;
  if (list.last == kNoBlock) {
    list.first = block;
    filled_[added.valid / 64] |= uint64_t{1} << (added.valid % 64);
  } else {
    blocks[list.last].next = block;
  }
  list.last = block;
}

void Victims::Remove(uint32_t block) {
  std::vector<FlashBlock>& blocks = *blocks_;
  const FlashBlock& gone = blocks[block];
  List& list = lists_[gone.valid];
  (gone.previous == kNoBlock ? list.first : blocks[gone.previous].next) = gone.next;
  (gone.next == kNoBlock ? list.last : blocks[gone.next].previous) = gone.previous;
  if (list.first == kNoBlock) {
    filled_[gone.valid / 64] &= ~(uint64_t{1} << (gone.valid % 64));
  }
}

uint32_t Victims::FewestValid() const {
  for (size_t word = 0; word < filled_.size(); ++word) {
    if (filled_[word] != 0) {
      return lists_[word * 64 + static_cast<size_t>(std::countr_zero(filled_[word]))].first;
    }
  }
  return kNoBlock;
}

uint32_t Victims::BestValue(uint64_t now) const {
  // Fractions are compared by multiplying crosswise. The oldest of each list is its best.
  using Wide = unsigned __int128;
  const uint64_t pages = lists_.size() - 1;
  uint32_t best = kNoBlock;
  Wide best_gain = 0;
  uint64_t best_cost = 1;
  for (size_t word = 0; word < filled_.size(); ++word) {
    for (uint64_t bits = filled_[word]; bits != 0; bits &= bits - 1) {
      const uint64_t valid = word * 64 + static_cast<uint64_t>(std::countr_zero(bits));
      const uint32_t block = lists_[valid].first;
      if (valid == 0 || best == kNoBlock) {
        best = block;
        if (valid == 0) {
          return best;
        }
      }
      const uint64_t age = now - (*blocks_)[block].changed + 1;
      const Wide gain = static_cast<Wide>(age) * (pages - valid);
      if (gain * best_cost > best_gain * valid) {
        best = block;
        best_gain = gain;
        best_cost = valid;
      }
    }
  }
  return best;
}

}  // namespace eplog::sim
