// The full blocks of one die, ordered for collection: a list for each number of valid pages, the
// longest unchanged first. Moving a block from list to list is a few words, whatever their number.
#pragma once

#include <cstdint>
#include <vector>

namespace eplog::sim {

inline constexpr uint32_t kNoBlock = UINT32_MAX;

struct FlashBlock {
  enum class State : uint8_t { kFree, kOpen, kFull };
  uint32_t valid = 0;
  uint32_t erases = 0;
  uint32_t previous = kNoBlock;  // in the list of victims, or of free blocks
  uint32_t next = kNoBlock;
  uint64_t changed = 0;  // when a page was last invalidated, in host page writes
  uint16_t die = 0;
  State state = State::kFree;
};

class Victims {
 public:
  Victims(std::vector<FlashBlock>& blocks, uint32_t pages_per_block)
      : blocks_(&blocks),
        lists_(pages_per_block + 1),
        filled_((uint64_t{pages_per_block} + 64) / 64) {}

  // `changed` of what is added is not below that of any block in the list.
  void Add(uint32_t block);
  void Remove(uint32_t block);

  // kNoBlock: there is none.
  [[nodiscard]] uint32_t FewestValid() const;
  // The largest (now - changed) (1 - u) / 2u.
  [[nodiscard]] uint32_t BestValue(uint64_t now) const;

 private:
  struct List {
    uint32_t first = kNoBlock;
    uint32_t last = kNoBlock;
  };
  std::vector<FlashBlock>* blocks_;
  std::vector<List> lists_;
  std::vector<uint64_t> filled_;  // a bit for each list: it is not empty
};

}  // namespace eplog::sim
