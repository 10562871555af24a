// Collection, wear, and the check of everything.
#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "sim/ftl.h"

namespace eplog::sim {

void Ftl::Collect(Die& die, Collected& collected) {
  ++counters_.gc_runs;
  while (die.free < shape_.free_blocks) {
    const uint32_t victim = shape_.collection == Collection::kGreedy
                                ? die.victims.FewestValid()
                                : die.victims.BestValue(writes_);
    EPLOG_CHECK(victim != kNoBlock && blocks_[victim].valid < shape_.pages_per_block,
                "F5: a block with a stale page");
    Empty(die, victim, collected);
    Erase(die, victim);
    ++collected.erased;
  }
}

void Ftl::Empty(Die& die, uint32_t victim, Collected& collected) {
  die.victims.Remove(victim);
  const uint32_t first = victim * shape_.pages_per_block;
  uint32_t read = kNoPage;  // the last that was
  for (uint32_t physical = first; blocks_[victim].valid != 0; ++physical) {
    const uint32_t page = to_page_[physical];
    if (page == kNoPage) {
      continue;
    }
    if (die.moved.block == kNoBlock) {
      die.moved = TakeFree(die);
    }
    if (physical / shape_.read_pages != read) {
      read = physical / shape_.read_pages;
      ++collected.reads;
    }
    to_page_[physical] = kNoPage;
    --blocks_[victim].valid;
    --die.valid;
    Append(die, die.moved, page);
    ++collected.moved;
    if (die.moved.next % shape_.program_pages == 0) {
      ++collected.programs;
    }
    CloseIfFull(die, die.moved);
    ++counters_.moved_pages;
  }
}

void Ftl::Erase(Die& die, uint32_t block) {
  ++blocks_[block].erases;
  ++counters_.erases;
  AddFree(die, block);
}

Wear Ftl::wear() const {
  Wear wear;
  wear.blocks = blocks_.size();
  wear.least = UINT32_MAX;
  double squares = 0;
  for (const FlashBlock& block : blocks_) {
    wear.erases += block.erases;
    wear.least = std::min(wear.least, block.erases);
    wear.most = std::max(wear.most, block.erases);
    squares += static_cast<double>(block.erases) * block.erases;
  }
  const auto count = static_cast<double>(wear.blocks);
  wear.mean = static_cast<double>(wear.erases) / count;
  wear.deviation = std::sqrt(std::max(0.0, squares / count - wear.mean * wear.mean));
  return wear;
}

std::vector<uint32_t> Ftl::EraseCounts() const {
  std::vector<uint32_t> counts;
  counts.reserve(blocks_.size());
  for (const FlashBlock& block : blocks_) {
    counts.push_back(block.erases);
  }
  return counts;
}

std::string Ftl::Fault() const {
  std::string fault = MapFault();
  if (fault.empty()) {
    fault = BlockFault();
  }
  for (const Die& die : dies_) {
    if (fault.empty()) {
      fault = DieFault(die);
    }
  }
  return fault;
}

uint64_t Ftl::OccupiedPages() const {
  uint64_t pages = 0;
  for (const FlashBlock& block : blocks_) {
    pages += block.state == FlashBlock::State::kFull ? shape_.pages_per_block : 0;
  }
  for (const Die& die : dies_) {
    pages += die.host.next + die.moved.next;
  }
  return pages;
}

std::string Ftl::MapFault() const {
  uint64_t mapped = 0;
  for (uint64_t page = 0; page < to_physical_.size(); ++page) {
    if (to_physical_[page] != kNoPage) {
      ++mapped;
      if (to_page_[to_physical_[page]] != page) {
        return "F1: page " + std::to_string(page) + " is not where the map says";
      }
    }
  }
  const auto named = static_cast<uint64_t>(
      std::count_if(to_page_.begin(), to_page_.end(), [](uint32_t p) { return p != kNoPage; }));
  return mapped == named && mapped == mapped_pages_ ? "" : "F1: pages that nobody maps";
}

std::string Ftl::BlockFault() const {
  uint64_t erases = 0;
  for (uint32_t number = 0; number < blocks_.size(); ++number) {
    const FlashBlock& block = blocks_[number];
    erases += block.erases;
    uint32_t valid = 0;
    for (uint32_t i = 0; i < shape_.pages_per_block; ++i) {
      valid += to_page_[number * shape_.pages_per_block + i] == kNoPage ? 0 : 1;
    }
    if (valid != block.valid || (block.state == FlashBlock::State::kFree && valid != 0)) {
      return "F2: block " + std::to_string(number) + " counts its valid pages wrongly";
    }
  }
  if (erases != counters_.erases) {
    return "F4: wear is not the number of erases";
  }
  // Only full blocks are erased.
  const uint64_t programmed =
      OccupiedPages() - occupied_at_reset_ + erases * shape_.pages_per_block;
  return programmed == counters_.programmed_pages() ? "" : "F4: pages programmed by nobody";
}

std::string Ftl::DieFault(const Die& die) const {
  uint64_t valid = 0;
  uint32_t free = 0;
  for (uint32_t number = die.first_block; number < die.first_block + die.blocks; ++number) {
    const FlashBlock& block = blocks_[number];
    valid += block.valid;
    free += block.state == FlashBlock::State::kFree ? 1 : 0;
    const bool open = number == die.host.block || number == die.moved.block;
    if (open != (block.state == FlashBlock::State::kOpen)) {
      return "F3: block " + std::to_string(number) + " is open and is not";
    }
  }
  uint32_t listed = 0;
  for (uint32_t block = die.first_free; block != kNoBlock && listed <= free;
       block = blocks_[block].next) {
    ++listed;
  }
  if (free != die.free || listed != free) {
    return "F3: free blocks are counted wrongly";
  }
  if (valid != die.valid || valid > die.valid_limit) {
    return "F2 or F5: valid pages of a die";
  }
  return "";
}

}  // namespace eplog::sim
