#include "sim/ftl.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "base/random.h"
#include "base/types.h"

namespace eplog::sim {
namespace {

constexpr uint64_t kMinBlocksPerDie = 64;
constexpr uint64_t kPartsPerMillion = 1'000'000;

uint64_t BlocksFor(uint64_t user_pages, uint32_t overprovisioning_ppm, uint32_t pages_per_block) {
  const uint64_t spare = DivideUp(user_pages * overprovisioning_ppm, kPartsPerMillion);
  return DivideUp(user_pages + spare, pages_per_block);
}

}  // namespace

FtlShape ShapeFor(const FlashParameters& flash, uint64_t size_bytes) {
  FtlShape shape;
  shape.user_pages = DivideUp(size_bytes, flash.page_bytes);
  shape.dies = flash.channels * flash.ways;
  shape.program_pages = flash.program_pages;
  shape.read_pages = flash.read_pages;
  shape.free_blocks = flash.free_blocks;
  shape.collection = flash.collection;
  shape.pages_per_block = flash.pages_per_block;
  const auto blocks = [&] {
    return BlocksFor(shape.user_pages, flash.overprovisioning_ppm, shape.pages_per_block);
  };
  while (blocks() < kMinBlocksPerDie * shape.dies && shape.pages_per_block > shape.program_pages) {
    shape.pages_per_block =
        static_cast<uint32_t>(RoundDown(shape.pages_per_block / 2, shape.program_pages));
  }
  // What each die needs beyond its valid pages in any case (F5), where the share is less.
  shape.blocks = std::max(
      blocks(), DivideUp(shape.user_pages, shape.pages_per_block) + uint64_t{2} * shape.dies);
  return shape;
}

Ftl::Ftl(const FtlShape& shape) : shape_(shape) {
  EPLOG_CHECK(shape.user_pages != 0 && shape.dies != 0, "there is something to map");
  EPLOG_CHECK(shape.dies <= std::numeric_limits<uint16_t>::max(), "at most 65,535 dies");
  EPLOG_CHECK(shape.free_blocks >= 2, "the host's next block and collection's");
  EPLOG_CHECK(shape.program_pages != 0 && shape.pages_per_block % shape.program_pages == 0,
              "a block is whole units");
  EPLOG_CHECK(
      shape.blocks >= DivideUp(shape.user_pages, shape.pages_per_block) + uint64_t{2} * shape.dies,
      "there is room for collection");
  const uint64_t blocks = shape.blocks + uint64_t{shape.free_blocks} * shape.dies;
  EPLOG_CHECK(blocks * shape.pages_per_block < kNoPage, "pages are numbered in 32 bits");
  blocks_.resize(blocks);
  to_physical_.assign(shape.user_pages, kNoPage);
  to_page_.assign(blocks * shape.pages_per_block, kNoPage);
  dies_.reserve(shape.dies);
  uint32_t first = 0;
  for (uint32_t die = 0; die < shape.dies; ++die) {
    const uint64_t share = shape.blocks / shape.dies + (die < shape.blocks % shape.dies ? 1 : 0);
    AddDie(die, first, static_cast<uint32_t>(share + shape.free_blocks));
    first += dies_.back().blocks;
  }
  turn_ = shape.dies - 1;
}

void Ftl::AddDie(uint32_t index, uint32_t first_block, uint32_t blocks) {
  Die& die = dies_.emplace_back(Victims(blocks_, shape_.pages_per_block));
  die.first_block = first_block;
  die.blocks = blocks;
  die.valid_limit = uint64_t{blocks - shape_.free_blocks - 1} * shape_.pages_per_block;
  for (uint32_t block = first_block; block < first_block + blocks; ++block) {
    blocks_[block].die = static_cast<uint16_t>(index);
    AddFree(die, block);
  }
}

void Ftl::AddFree(Die& die, uint32_t block) {
  blocks_[block].state = FlashBlock::State::kFree;
  blocks_[block].next = kNoBlock;
  (die.first_free == kNoBlock ? die.first_free : blocks_[die.last_free].next) = block;
  die.last_free = block;
  ++die.free;
}

Ftl::Frontier Ftl::TakeFree(Die& die) {
  const uint32_t block = die.first_free;
  EPLOG_CHECK(block != kNoBlock, "collection keeps blocks free");
  die.first_free = blocks_[block].next;
  --die.free;
  blocks_[block].state = FlashBlock::State::kOpen;
  return {block, 0};
}

bool Ftl::HasRoom(uint32_t die) const {
  return dies_[die].valid + shape_.program_pages <= dies_[die].valid_limit;
}

Collected Ftl::Write(uint64_t page) {
  if (left_in_turn_ == 0) {
    do {
      turn_ = (turn_ + 1) % shape_.dies;
    } while (!HasRoom(turn_));  // one has, since all limits together exceed the user's pages (F5)
    left_in_turn_ = shape_.program_pages;
  }
  --left_in_turn_;
  return Write(page, turn_);
}

Collected Ftl::Write(uint64_t page, uint32_t index) {
  Die& die = dies_[index];
  Collected collected;
  if (die.host.block == kNoBlock) {
    if (die.free < shape_.free_blocks) {
      Collect(die, collected);
    }
    die.host = TakeFree(die);
  }
  ++writes_;
  if (const uint32_t old = to_physical_[page]; old != kNoPage) {
    Invalidate(old);
  } else {
    ++mapped_pages_;
  }
  Append(die, die.host, static_cast<uint32_t>(page));
  CloseIfFull(die, die.host);
  ++counters_.host_pages;
  return collected;
}

void Ftl::Pad(uint32_t index) {
  Die& die = dies_[index];
  const uint32_t begun = die.host.next % shape_.program_pages;
  if (die.host.block != kNoBlock && begun != 0) {
    die.host.next += shape_.program_pages - begun;
    counters_.padded_pages += shape_.program_pages - begun;
    CloseIfFull(die, die.host);
  }
  if (index == turn_) {
    left_in_turn_ = 0;
  }
}

bool Ftl::Trim(uint64_t page) {
  const uint32_t physical = to_physical_[page];
  if (physical == kNoPage) {
    return false;
  }
  Invalidate(physical);
  to_physical_[page] = kNoPage;
  --mapped_pages_;
  ++counters_.trimmed_pages;
  return true;
}

void Ftl::Append(Die& die, Frontier& frontier, uint32_t page) {
  const uint32_t physical = frontier.block * shape_.pages_per_block + frontier.next;
  to_physical_[page] = physical;
  to_page_[physical] = page;
  ++blocks_[frontier.block].valid;
  ++die.valid;
  ++frontier.next;
}

void Ftl::CloseIfFull(Die& die, Frontier& frontier) {
  if (frontier.next < shape_.pages_per_block) {
    return;
  }
  FlashBlock& block = blocks_[frontier.block];
  block.state = FlashBlock::State::kFull;
  block.changed = writes_;
  die.victims.Add(frontier.block);
  frontier = Frontier();
}

void Ftl::Invalidate(uint32_t physical) {
  const uint32_t number = physical / shape_.pages_per_block;
  FlashBlock& block = blocks_[number];
  Die& die = dies_[block.die];
  to_page_[physical] = kNoPage;
  --die.valid;
  if (block.state == FlashBlock::State::kFull) {
    die.victims.Remove(number);
    --block.valid;
    block.changed = writes_;
    die.victims.Add(number);
  } else {
    --block.valid;
  }
}

void Ftl::Precondition(uint64_t seed, uint64_t overwrite_percent) {
  for (uint64_t page = 0; page < shape_.user_pages; ++page) {
    Write(page);
  }
  Random random(seed);
  for (uint64_t left = shape_.user_pages * overwrite_percent / 100; left != 0; --left) {
    Write(random.Below(shape_.user_pages));
  }
  Pad(turn_);
  ResetCounters();
}

void Ftl::ResetCounters() {
  counters_ = FtlCounters();
  occupied_at_reset_ = OccupiedPages();
  for (FlashBlock& block : blocks_) {
    block.erases = 0;
  }
}

uint64_t Ftl::memory_bytes() const {
  return to_physical_.capacity() * sizeof(uint32_t) + to_page_.capacity() * sizeof(uint32_t) +
         blocks_.capacity() * sizeof(FlashBlock) +
         dies_.size() * (sizeof(Die) + (shape_.pages_per_block + 1) * uint64_t{8});
}

}  // namespace eplog::sim
