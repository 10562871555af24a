// The background of an SSD: units of pages from the buffer to the dies.
#include <algorithm>

#include "base/check.h"
#include "sim/ssd_model.h"

namespace eplog::sim {
namespace {

// One unit is transferred while another is programmed.
constexpr uint32_t kUnitsPerDie = 2;
constexpr uint32_t kNoDie = UINT32_MAX;

}  // namespace

void SsdModel::AdvanceTo(uint64_t now_ns) {
  while (!events_.empty() && events_.top().at_ns <= now_ns) {
    const Event event = events_.top();
    events_.pop();
    Unit& unit = units_[event.unit];
    buffer_.Done(unit.entries);
    unit.entries.clear();
    --waiting_units_[unit.die];
    free_units_.push_back(event.unit);
    StartUnits(event.at_ns);
  }
}

bool SsdModel::UnitIsDue() {
  return buffer_.queued() >= parameters_.flash.program_pages || buffer_.has_urged() ||
         (!parameters_.capacitor && buffer_.OldestQueued() <= flushed_sequence_);
}

void SsdModel::StartUnits(uint64_t now_ns) {
  while (UnitIsDue()) {
    const uint32_t die = NextDie();
    if (die == kNoDie) {
      return;
    }
    StartUnit(now_ns, die);
  }
}

bool SsdModel::IsDieReady(uint32_t die) const {
  return waiting_units_[die] < kUnitsPerDie && ftl_.HasRoom(die);
}

uint32_t SsdModel::NextDie() {
  const uint32_t dies = ftl_.shape().dies;
  for (uint32_t i = 1; i <= dies; ++i) {
    const uint32_t die = (last_die_ + i) % dies;
    if (IsDieReady(die)) {
      last_die_ = die;
      return die;
    }
  }
  return kNoDie;
}

void SsdModel::StartUnit(uint64_t now_ns, uint32_t die) {
  if (free_units_.empty()) {
    free_units_.push_back(static_cast<uint32_t>(units_.size()));
    units_.emplace_back();
  }
  const uint32_t number = free_units_.back();
  free_units_.pop_back();
  Unit& unit = units_[number];
  unit.die = die;
  buffer_.Take(parameters_.flash.program_pages, unit.entries);
  Collected collected;
  for (const WriteBuffer::Entry& entry : unit.entries) {
    const Collected more = ftl_.Write(entry.page, die);
    collected.reads += more.reads;
    collected.moved += more.moved;
    collected.programs += more.programs;
    collected.erased += more.erased;
  }
  ftl_.Pad(die);
  ++waiting_units_[die];
  events_.push({Program(now_ns, unit, collected), events_made_++, number});
}

uint64_t SsdModel::Program(uint64_t now_ns, const Unit& unit, const Collected& collected) {
  const FlashParameters& flash = parameters_.flash;
  uint64_t ready = now_ns;
  for (const WriteBuffer::Entry& entry : unit.entries) {
    ready = std::max(ready, entry.ready_ns);
  }
  if (collected.erased != 0) {
    CollectOn(now_ns, unit.die, collected);
  }
  const uint64_t in_register = channels_[unit.die % flash.channels].Take(
      now_ns, ready, TransferNs(unit.entries.size() * flash.page_bytes, flash.channel_bytes_per_s));
  ++counters_.programs;
  return dies_[unit.die].Work(in_register, flash.program_ns);
}

// Moved pages go to the controller and back, so that both the die and its channel are busy with
// them. The channel is taken in slices, between which others get through.
void SsdModel::CollectOn(uint64_t now_ns, uint32_t die, const Collected& collected) {
  const FlashParameters& flash = parameters_.flash;
  const uint64_t moving =
      2 * TransferNs(uint64_t{collected.moved} * flash.page_bytes, flash.channel_bytes_per_s);
  const uint64_t length = collected.reads * flash.read_ns + collected.programs * flash.program_ns +
                          collected.erased * flash.erase_ns + moving;
  const uint64_t begin = dies_[die].WorkBegin(now_ns);
  dies_[die].Work(begin, length);
  const uint64_t slices = std::max<uint64_t>(collected.programs, 1);
  for (uint64_t i = 0; i < slices; ++i) {
    channels_[die % flash.channels].Take(now_ns, begin + length / slices * i, moving / slices);
  }
  counters_.gc_reads += collected.reads;
  counters_.gc_programs += collected.programs;
  counters_.gc_busy_ns += length;
}

}  // namespace eplog::sim
