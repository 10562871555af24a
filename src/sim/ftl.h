// Ftl: a page-mapping flash translation layer. Pure state: it knows no clock, no loop and no
// content, and tells what the flash had to do for each page.
//
// A die has one block open for pages of the host, another for pages that collection moves. A die is
// collected on its own, when it needs a block and fewer than `free_blocks` are free: victims are
// emptied and erased until there are enough.
//
// What holds between calls, and Fault() checks:
//  F1. A mapped page has one physical page, which names it; other physical pages name none.
//  F2. A block's valid count is the number of its pages that name one; a die's is the sum of its
//      blocks'.
//  F3. Each block is free, open or full, and full ones alone are in the lists of victims.
//  F4. Pages programmed = by the host + moved + padded; the wear of all blocks = erases.
//  F5. A die has a block less of valid pages, at least, than it has room for, its free blocks not
//      counted. So a victim with a stale page can be found whenever one is needed.
//
// Memory: 4 bytes a user page, 4 a physical page, 40 a block.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "sim/parameters.h"
#include "sim/victims.h"

namespace eplog::sim {

struct FtlShape {
  uint64_t user_pages = 0;
  uint32_t dies = 1;
  uint32_t pages_per_block = 0;  // a multiple of program_pages
  uint32_t program_pages = 1;
  uint32_t read_pages = 1;
  uint64_t blocks = 0;       // without those that are to be kept free
  uint32_t free_blocks = 2;  // on each die, on top; at least 2
  Collection collection = Collection::kGreedy;

  // Physical pages over user pages, as far as they can hold something.
  [[nodiscard]] double spare_factor() const {
    return static_cast<double>(blocks * pages_per_block) / static_cast<double>(user_pages);
  }
};

// For a device of this size: the drive's dies, page sizes and share of over-provisioning. Blocks
// are halved until a die has 64, so that a small device behaves like a part of a large one.
[[nodiscard]] FtlShape ShapeFor(const FlashParameters& flash, uint64_t size_bytes);

struct FtlCounters {
  uint64_t host_pages = 0;     // programmed for the host
  uint64_t moved_pages = 0;    // programmed by collection
  uint64_t padded_pages = 0;   // programmed with nothing, to finish a unit
  uint64_t trimmed_pages = 0;  // that were mapped
  uint64_t erases = 0;
  uint64_t gc_runs = 0;  // how often a die ran short of free blocks; a run may take several victims

  [[nodiscard]] uint64_t programmed_pages() const {
    return host_pages + moved_pages + padded_pages;
  }
  // Pages programmed over pages programmed for the host; 1 if there is none.
  [[nodiscard]] double write_amplification() const {
    return host_pages == 0
               ? 1
               : static_cast<double>(programmed_pages()) / static_cast<double>(host_pages);
  }
};

struct Wear {
  uint64_t blocks = 0;
  uint64_t erases = 0;
  uint32_t least = 0;
  uint32_t most = 0;
  double mean = 0;
  double deviation = 0;
};

// What a write made a die do besides.
struct Collected {
  uint32_t reads = 0;     // of the flash; one gets the valid pages of read_pages neighbours
  uint32_t moved = 0;     // pages
  uint32_t programs = 0;  // units of moved pages that were completed
  uint32_t erased = 0;    // blocks
};

class Ftl {
 public:
  explicit Ftl(const FtlShape& shape);
  Ftl(const Ftl&) = delete;
  Ftl& operator=(const Ftl&) = delete;

  // Programs a page on a die that HasRoom.
  Collected Write(uint64_t page, uint32_t die);
  // On the dies in turn, a unit on each.
  Collected Write(uint64_t page);
  // Room for a unit.
  [[nodiscard]] bool HasRoom(uint32_t die) const;
  // Fills the unit that is begun on the die.
  void Pad(uint32_t die);
  // False: it was not mapped.
  bool Trim(uint64_t page);

  [[nodiscard]] bool IsMapped(uint64_t page) const { return to_physical_[page] != kNoPage; }
  // Where it is: comparable with others for what one read of the flash gets. It is mapped.
  [[nodiscard]] uint32_t DieOf(uint64_t page) const {
    return blocks_[to_physical_[page] / shape_.pages_per_block].die;
  }
  [[nodiscard]] uint32_t ReadUnitOf(uint64_t page) const {
    return to_physical_[page] / shape_.read_pages;
  }

  // Ages it: every page written once in order, then `overwrite_percent` of the user pages at
  // random. Counters and wear begin anew.
  void Precondition(uint64_t seed, uint64_t overwrite_percent);
  void ResetCounters();

  [[nodiscard]] const FtlCounters& counters() const { return counters_; }
  [[nodiscard]] Wear wear() const;
  [[nodiscard]] std::vector<uint32_t> EraseCounts() const;  // block by block
  [[nodiscard]] const FtlShape& shape() const { return shape_; }
  [[nodiscard]] uint64_t mapped_pages() const { return mapped_pages_; }
  [[nodiscard]] uint64_t memory_bytes() const;

  // Looks at everything. Empty, or which of F1 ... F5 is broken.
  [[nodiscard]] std::string Fault() const;

 private:
  static constexpr uint32_t kNoPage = UINT32_MAX;

  struct Frontier {
    uint32_t block = kNoBlock;
    uint32_t next = 0;  // page in the block
  };
  struct Die {
    explicit Die(Victims all_victims) : victims(std::move(all_victims)) {}
    Frontier host;
    Frontier moved;
    uint32_t first_free = kNoBlock;  // the longest free is taken first
    uint32_t last_free = kNoBlock;
    uint32_t free = 0;
    uint32_t first_block = 0;
    uint32_t blocks = 0;
    uint64_t valid = 0;
    uint64_t valid_limit = 0;
    Victims victims;
  };

  void AddDie(uint32_t index, uint32_t first_block, uint32_t blocks);
  void AddFree(Die& die, uint32_t block);
  Frontier TakeFree(Die& die);
  void Append(Die& die, Frontier& frontier, uint32_t page);
  void CloseIfFull(Die& die, Frontier& frontier);
  void Invalidate(uint32_t physical);
  void Collect(Die& die, Collected& collected);
  void Empty(Die& die, uint32_t victim, Collected& collected);
  void Erase(Die& die, uint32_t block);
  [[nodiscard]] uint64_t OccupiedPages() const;  // programmed and not erased
  [[nodiscard]] std::string MapFault() const;
  [[nodiscard]] std::string BlockFault() const;
  [[nodiscard]] std::string DieFault(const Die& die) const;

  FtlShape shape_;
  std::vector<FlashBlock> blocks_;
  std::vector<Die> dies_;
  std::vector<uint32_t> to_physical_;  // by page
  std::vector<uint32_t> to_page_;      // by physical page
  FtlCounters counters_;
  uint64_t writes_ = 0;  // the clock of ages
  uint64_t mapped_pages_ = 0;
  uint64_t occupied_at_reset_ = 0;
  uint32_t turn_ = 0;  // of Write without a die
  uint32_t left_in_turn_ = 0;
};

}  // namespace eplog::sim
