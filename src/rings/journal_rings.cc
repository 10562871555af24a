#include "rings/journal_rings.h"

#include <algorithm>

#include "base/check.h"

namespace eplog {

JournalRings::JournalRings(EventLoop& loop, MemberSet& members, const Geometry& geometry,
                           const Uuid& array, BufferPool& pool)
    : loop_(loop),
      members_(members),
      geometry_(geometry),
      array_(array),
      pool_(pool),
      written_(loop),
      rings_(geometry.n) {}

void JournalRings::NoteBlock(DeviceIndex ssd, uint64_t number, uint64_t last_sequence,
                             bool needed) {
  Ring& ring = rings_[ssd.value];
  ring.newest_found = std::max(ring.newest_found, number);
  if (needed) {
    // Keep `live` ordered by number, whatever order they are found in.
    const auto at =
        std::find_if(ring.live.begin(), ring.live.end(),
                     [number](const LiveBlock& block) { return block.number > number; });
    ring.live.insert(at, {number, last_sequence});
  }
  // Blocks behind the last needed one hold only what recovery has cut off: their numbers are used
  // again, or repeated crashes would fill the ring.
  ring.next = (ring.live.empty() ? ring.newest_found : ring.live.back().number) + 1;
}

void JournalRings::Enqueue(uint64_t sequence, std::span<const std::byte> encoded) {
  queue_.push_back({sequence, std::vector<std::byte>(encoded.begin(), encoded.end())});
  queued_bytes_ += encoded.size();
}

uint32_t JournalRings::Copies() const {
  uint32_t lost_logs = 0;
  for (uint32_t j = 0; j < geometry_.m; ++j) {
    lost_logs += members_.live(geometry_.LogDevice(j)) ? 0 : 1;
  }
  uint32_t live = 0;
  for (uint8_t i = 0; i < geometry_.n; ++i) {
    live += members_.live(DeviceIndex(i)) ? 1 : 0;
  }
  return std::min(1 + lost_logs, live);
}

uint64_t JournalRings::RoomOn(DeviceIndex ssd, uint64_t reserve) const {
  if (!members_.live(ssd)) {
    return 0;
  }
  const Ring& ring = rings_[ssd.value];
  const uint64_t used = ring.live.empty() ? 0 : ring.next - ring.live.front().number;
  return used + reserve >= geometry_.ring_blocks ? 0 : geometry_.ring_blocks - used - reserve;
}

uint64_t JournalRings::Room(uint64_t reserve) const {
  // The most blocks b such that every block finds `copies` distinct SSDs: sum of min(room, b) >=
  // copies * b.
  const uint64_t copies = Copies();
  if (copies == 0) {
    return 0;
  }
  if (copies == 1) {
    uint64_t sum = 0;
    for (uint8_t i = 0; i < geometry_.n; ++i) {
      sum += RoomOn(DeviceIndex(i), reserve);
    }
    return sum;
  }
  const auto fits = [&](uint64_t blocks) {
    uint64_t sum = 0;
    for (uint8_t i = 0; i < geometry_.n; ++i) {
      sum += std::min(RoomOn(DeviceIndex(i), reserve), blocks);
    }
    return sum >= copies * blocks;
  };
  uint64_t low = 0;
  uint64_t high = geometry_.ring_blocks * geometry_.n;
  while (low < high) {
    const uint64_t middle = (low + high + 1) / 2;
    if (fits(middle)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

// Those with most room first (so that several copies always find distinct SSDs while Room says so),
// and among equals the next in turn.
std::vector<DeviceIndex> JournalRings::Targets(uint64_t reserve) {
  const uint32_t copies = Copies();
  std::vector<DeviceIndex> order;
  for (uint32_t i = 0; i < geometry_.n; ++i) {
    const DeviceIndex ssd(static_cast<uint8_t>((turn_ + i) % geometry_.n));
    if (RoomOn(ssd, reserve) != 0) {
      order.push_back(ssd);
    }
  }
  if (copies == 0 || order.size() < copies) {  // no SSD is left: not even nothing is a place
    return {};
  }
  if (copies > 1) {
    std::stable_sort(order.begin(), order.end(), [&](DeviceIndex a, DeviceIndex b) {
      return RoomOn(a, reserve) > RoomOn(b, reserve);
    });
  }
  order.resize(copies);
  // NOLINTNEXTLINE(clang-analyzer-core.DivideZero): n is 2 at least
  turn_ = in_order_ ? 0 : (order.front().value + 1U) % geometry_.n;
  return order;
}

uint64_t JournalRings::Pack(uint64_t upto, bool full_only, uint64_t reserve) {
  while (!queue_.empty() && queue_.front().sequence <= upto && (!full_only || HasFullBlock())) {
    size_t headers = 0;
    size_t bytes = 0;
    while (headers < queue_.size() && headers < max_headers_ && queue_[headers].sequence <= upto &&
           bytes + queue_[headers].bytes.size() <= kMaxEntryHeaderBytes) {
      bytes += queue_[headers++].bytes.size();
    }
    const std::vector<DeviceIndex> targets = Targets(reserve);
    if (targets.empty()) {
      break;
    }
    WriteBlock(headers, targets);
  }
  return packed_;
}

void JournalRings::WriteBlock(size_t headers, const std::vector<DeviceIndex>& targets) {
  Writing& block = blocks_.emplace_back();
  block.first_sequence = queue_.front().sequence;
  block.last_sequence = queue_[headers - 1].sequence;
  packed_ = block.last_sequence;
  for (const DeviceIndex ssd : targets) {
    Ring& ring = rings_[ssd.value];
    const uint64_t number = ring.next++;
    wraps_ += number != 0 && number % geometry_.ring_blocks == 0 ? 1 : 0;
    ring.live.push_back({number, block.last_sequence});
    block.ssd_mask |= uint64_t{1} << ssd.value;
    block.copies.push_back(pool_.Get(kBlockBytes));
    RingBlockBuilder builder(block.copies.back().span());
    for (size_t i = 0; i < headers; ++i) {
      EPLOG_CHECK(builder.Add(queue_[i].bytes, queue_[i].sequence), "a ring block overflows");
    }
    builder.Finish(array_, ssd, number);
  }
  for (size_t i = 0; i < headers; ++i) {
    queued_bytes_ -= queue_.front().bytes.size();
    queue_.pop_front();
  }
  block.unfinished = static_cast<uint32_t>(targets.size());
  for (size_t copy = 0; copy < targets.size(); ++copy) {
    loop_.Start(WriteCopy(block, copy, targets[copy], rings_[targets[copy].value].next - 1));
  }
}

Task<void> JournalRings::WriteCopy(Writing& block, size_t copy, DeviceIndex ssd, uint64_t number) {
  const auto bytes = block.copies[copy].span();
  ++in_flight_;
  Task<Status> write = members_.WriteBytes(ssd, geometry_.RingOffset(number), bytes, IoKind::kRing);
  Status status = co_await write;
  bytes_written_ += status.ok() ? kBlockBytes : 0;
  status = members_.Absorb(std::move(status));
  if (block.status.ok()) {
    block.status = std::move(status);
  }
  --in_flight_;
  if (--block.unfinished == 0) {
    block.copies.clear();
    written_.NotifyAll();
  }
}

Task<void> JournalRings::Drain() {
  while (in_flight_ != 0) {
    co_await written_.Wait();
  }
}

Task<Result<uint64_t>> JournalRings::Written(uint64_t upto) {
  uint64_t mask = 0;
  while (true) {
    mask = 0;
    bool all = true;
    for (const Writing& block : blocks_) {
      if (block.first_sequence > upto) {
        break;
      }
      if (block.unfinished != 0) {
        all = false;
        break;
      }
      if (!block.status.ok()) {
        Error error = block.status.error();
        co_return Fail(std::move(error));
      }
      mask |= block.ssd_mask;
    }
    if (all) {
      co_return mask;
    }
    co_await written_.Wait();
  }
}

void JournalRings::Stable(uint64_t upto) {
  while (!blocks_.empty() && blocks_.front().last_sequence <= upto &&
         blocks_.front().unfinished == 0) {
    blocks_.pop_front();
  }
}

void JournalRings::Forget(uint64_t upto) {
  while (!queue_.empty() && queue_.front().sequence <= upto) {
    queued_bytes_ -= queue_.front().bytes.size();
    packed_ = queue_.front().sequence;
    queue_.pop_front();
  }
}

void JournalRings::CheckpointCounts(uint64_t sequence) {
  for (Ring& ring : rings_) {
    while (!ring.live.empty() && ring.live.front().last_sequence <= sequence) {
      ring.live.pop_front();
    }
  }
}

std::vector<uint64_t> JournalRings::NeededBlocks(DeviceIndex ssd, uint64_t covered,
                                                 uint64_t upto) const {
  std::vector<uint64_t> numbers;
  for (const LiveBlock& block : rings_[ssd.value].live) {
    if (block.last_sequence > covered && block.last_sequence <= upto) {
      numbers.push_back(block.number);
    }
  }
  return numbers;
}

}  // namespace eplog
