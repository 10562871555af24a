#include "sim/ssd_model.h"

#include <algorithm>

#include "base/check.h"
#include "base/types.h"

namespace eplog::sim {

SsdModel::SsdModel(const SsdParameters& parameters, uint64_t size_bytes)
    : parameters_(parameters),
      size_bytes_(size_bytes),
      ftl_(ShapeFor(parameters.flash, size_bytes)),
      buffer_limit_pages_(parameters.buffer_bytes / parameters.flash.page_bytes),
      write_limit_bytes_(buffer_limit_pages_ / 4 * parameters.flash.page_bytes),
      channels_(parameters.flash.channels),
      dies_(ftl_.shape().dies),
      waiting_units_(ftl_.shape().dies, 0),
      last_die_(ftl_.shape().dies - 1) {
  // Blocks that were made smaller for a small device are erased in less time, so that erasing has
  // the drive's share of all time.
  parameters_.flash.erase_ns =
      parameters.flash.erase_ns * ftl_.shape().pages_per_block / parameters.flash.pages_per_block;
  EPLOG_CHECK(buffer_limit_pages_ >= uint64_t{8} * parameters.flash.program_pages,
              "the buffer has eight units at least");
}

SsdModel::PageRange SsdModel::Touched(uint64_t offset_bytes, uint64_t length_bytes) const {
  const uint64_t page = parameters_.flash.page_bytes;
  return {offset_bytes / page, DivideUp(offset_bytes + length_bytes, page)};
}

SsdModel::PageRange SsdModel::Whole(uint64_t offset_bytes, uint64_t length_bytes) const {
  const uint64_t page = parameters_.flash.page_bytes;
  const uint64_t first = DivideUp(offset_bytes, page);
  // The last page may be cut off by the end of the device.
  const uint64_t end = offset_bytes + length_bytes == size_bytes_
                           ? ftl_.shape().user_pages
                           : (offset_bytes + length_bytes) / page;
  return {first, std::max(first, end)};
}

bool SsdModel::IsInFlash(uint64_t page) const {
  return ftl_.IsMapped(page) && !buffer_.Holds(static_cast<uint32_t>(page));
}

// From the die and over its channel: `pages` of them, got by one read of the flash.
uint64_t SsdModel::ReadFlash(uint64_t now_ns, uint64_t ready_ns, uint64_t page, uint64_t pages) {
  const FlashParameters& flash = parameters_.flash;
  const uint32_t die = ftl_.DieOf(page);
  const uint64_t in_register =
      dies_[die].Read(ready_ns, flash.read_ns, flash.program_ns, flash.reads_first);
  ++counters_.flash_reads;
  return channels_[die % flash.channels].Take(
      now_ns, in_register, TransferNs(pages * flash.page_bytes, flash.channel_bytes_per_s));
}

uint64_t SsdModel::Read(uint64_t now_ns, uint64_t offset_bytes, uint64_t length_bytes) {
  AdvanceTo(now_ns);
  const LinkParameters& link = parameters_.link;
  const uint64_t page_bytes = parameters_.flash.page_bytes;
  const PageRange range = Touched(offset_bytes, length_bytes);
  // The link is taken for request and bytes together: in two pieces they would cut its time up.
  uint64_t on_link = link.request_ns;
  uint64_t end = now_ns;
  for (uint64_t page = range.first; page < range.end;) {
    uint64_t next = page + 1;
    uint64_t ready = now_ns;
    if (IsInFlash(page)) {
      while (next < range.end && IsInFlash(next) &&
             ftl_.ReadUnitOf(next) == ftl_.ReadUnitOf(page)) {
        ++next;
      }
      ready = ReadFlash(now_ns, now_ns, page, next - page);
    }
    const uint64_t from = std::max(offset_bytes, page * page_bytes);
    const uint64_t to = std::min(offset_bytes + length_bytes, next * page_bytes);
    on_link += TransferNs(to - from, link.read_bytes_per_s);
    end = std::max(end, link_.Take(now_ns, ready, on_link));
    on_link = 0;
    page = next;
  }
  ++counters_.reads;
  counters_.read_bytes += length_bytes;
  counters_.read_pages += range.end - range.first;
  return end + link.read_latency_ns;
}

bool SsdModel::HasRoom(uint64_t now_ns, uint64_t offset_bytes, uint64_t length_bytes) {
  AdvanceTo(now_ns);
  const PageRange range = Touched(offset_bytes, length_bytes);
  return buffer_.pages() + (range.end - range.first) <= buffer_limit_pages_;
}

uint64_t SsdModel::Write(uint64_t now_ns, uint64_t offset_bytes, uint64_t length_bytes) {
  AdvanceTo(now_ns);
  const LinkParameters& link = parameters_.link;
  const uint64_t there = write_link().Take(
      now_ns, now_ns, link.request_ns + TransferNs(length_bytes, link.write_bytes_per_s));
  const PageRange touched = Touched(offset_bytes, length_bytes);
  const uint64_t ready = Merge(now_ns, there, Whole(offset_bytes, length_bytes), touched);
  for (uint64_t page = touched.first; page < touched.end; ++page) {
    counters_.absorbed_pages += buffer_.Put(static_cast<uint32_t>(page), ready) ? 1 : 0;
  }
  ++counters_.writes;
  counters_.written_bytes += length_bytes;
  StartUnits(now_ns);
  return there + link.write_latency_ns;
}

// Pages written in part need the rest of them, if that is in the flash.
uint64_t SsdModel::Merge(uint64_t now_ns, uint64_t ready_ns, PageRange whole, PageRange touched) {
  uint64_t ready = ready_ns;
  for (uint64_t page = touched.first; page < touched.end; ++page) {
    if (page >= whole.first && page < whole.end) {
      page = whole.end - 1;
    } else if (IsInFlash(page)) {
      ++counters_.merged_pages;
      ready = std::max(ready, ReadFlash(now_ns, ready_ns, page, 1));
    }
  }
  return ready;
}

uint64_t SsdModel::Trim(uint64_t now_ns, uint64_t offset_bytes, uint64_t length_bytes) {
  AdvanceTo(now_ns);
  const uint64_t end = write_link().Take(now_ns, now_ns, parameters_.link.request_ns);
  const PageRange range = Whole(offset_bytes, length_bytes);
  for (uint64_t page = range.first; page < range.end; ++page) {
    buffer_.Drop(static_cast<uint32_t>(page));
    ftl_.Trim(page);
  }
  ++counters_.trims;
  return end + parameters_.link.write_latency_ns;
}

SsdModel::Flush SsdModel::BeginFlush(uint64_t now_ns) {
  return BeginFlush(now_ns, 0, size_bytes_);
}

SsdModel::Flush SsdModel::BeginFlush(uint64_t now_ns, uint64_t offset_bytes,
                                     uint64_t length_bytes) {
  AdvanceTo(now_ns);
  ++counters_.flushes;
  const PageRange range = Touched(offset_bytes, length_bytes);
  Flush flush{range.first, range.end, buffer_.last_sequence(), 0};
  flush.earliest_ns = write_link().Take(now_ns, now_ns, parameters_.link.request_ns) +
                      parameters_.link.write_latency_ns;
  if (parameters_.capacitor) {
    flush.sequence = 0;
    return flush;
  }
  if (range.first == 0 && range.end == ftl_.shape().user_pages) {
    flushed_sequence_ = flush.sequence;
  } else {
    for (uint64_t page = range.first; page < range.end; ++page) {
      buffer_.Urge(static_cast<uint32_t>(page));
    }
  }
  StartUnits(now_ns);
  return flush;
}

bool SsdModel::RangeIsQueued(const Flush& flush) const {
  for (uint64_t page = flush.first_page; page < flush.end_page; ++page) {
    if (buffer_.IsQueued(static_cast<uint32_t>(page), flush.sequence)) {
      return true;
    }
  }
  return false;
}

bool SsdModel::HasEnded(uint64_t now_ns, const Flush& flush) {
  AdvanceTo(now_ns);
  if (flush.sequence == 0) {
    return true;
  }
  const bool all = flush.first_page == 0 && flush.end_page == ftl_.shape().user_pages;
  if (all ? buffer_.OldestQueued() <= flush.sequence : RangeIsQueued(flush)) {
    return false;
  }
  return std::none_of(units_.begin(), units_.end(), [&](const Unit& unit) {
    return std::any_of(unit.entries.begin(), unit.entries.end(), [&](const auto& entry) {
      return entry.sequence <= flush.sequence && entry.page >= flush.first_page &&
             entry.page < flush.end_page;
    });
  });
}

void SsdModel::Precondition(uint64_t seed, uint64_t overwrite_percent) {
  EPLOG_CHECK(buffer_.pages() == 0, "a device is aged before it is used");
  ftl_.Precondition(seed, overwrite_percent);
  counters_ = SsdCounters();
}

void SsdModel::ResetCounters() {
  ftl_.ResetCounters();
  counters_ = SsdCounters();
}

}  // namespace eplog::sim
