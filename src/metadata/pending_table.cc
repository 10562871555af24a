#include "metadata/pending_table.h"

#include <bit>

#include "base/check.h"

namespace eplog {
namespace {
constexpr size_t kFirstLines = 128;
}

PendingTable::PendingTable(const Geometry& geometry) : geometry_(geometry), half_(kFirstLines / 2) {
  while (lines_.size() < kFirstLines) {
    lines_.Add();
  }
  held_.assign(geometry.n, std::vector<uint64_t>(DivideUp(geometry.slots, 64), 0));
}

std::optional<PendingChunk> PendingTable::Find(ChunkIndex chunk) const {
  const StripeIndex stripe = geometry_.StripeOf(chunk);
  const uint32_t index = geometry_.IndexInStripe(chunk);
  for (uint32_t at = BucketOf(chunk); at != kNone; at = members_[at].hash_next) {
    const Member& member = members_[at];
    if (member.stripe == stripe.value && member.index == index) {
      return PendingChunk{stripes_[member.log_stripe].sequence, member.word, member.crc,
                          member.log_stripe};
    }
  }
  return std::nullopt;
}

LogStripeView PendingTable::View(LogStripeId id) const {
  const Stripe& stripe = stripes_[id];
  LogStripeView view;
  view.sequence = stripe.sequence;
  view.place = stripe.place;
  for (uint32_t j = 0; j < geometry_.m; ++j) {
    view.log_crcs[j] = log_crcs_[size_t{id} * geometry_.m + j];
  }
  view.zeros = stripe.zeros;
  for (uint32_t at = stripe.first; at != kNone; at = members_[at].next) {
    view.members.push_back({ChunkOf(members_[at]), members_[at].word, members_[at].crc});
    view.superseded.push_back(members_[at].superseded);
  }
  return view;
}

uint32_t PendingTable::NewMember() {
  if (free_member_ == kNone) {
    return static_cast<uint32_t>(members_.Add());
  }
  const uint32_t at = free_member_;
  free_member_ = members_[at].next;
  members_[at] = Member{};
  return at;
}

LogStripeId PendingTable::NewStripe() {
  LogStripeId id = free_stripe_;
  if (id == kNone) {
    id = static_cast<LogStripeId>(stripes_.Add());
    for (uint32_t j = 0; j < geometry_.m; ++j) {
      log_crcs_.Add();
    }
  } else {
    free_stripe_ = stripes_[id].next;
    stripes_[id] = Stripe{};
  }
  Stripe& stripe = stripes_[id];
  stripe.prev = newest_;
  (newest_ == kNone ? oldest_ : stripes_[newest_].next) = id;
  newest_ = id;
  oldest_live_ = oldest_live_ == kNone ? id : oldest_live_;
  return id;
}

void PendingTable::Link(uint32_t member) {
  if (pending_ >= lines_.size() * kNeighbours) {
    AddLine();
  }
  uint32_t& head = BucketOf(ChunkOf(members_[member]));
  members_[member].hash_next = head;
  head = member;
  ++pending_;
}

// The line that the new one is split off is the one whose number lacks the highest bit.
void PendingTable::AddLine() {
  half_ = lines_.size() == 2 * half_ ? lines_.size() : half_;
  const size_t old = lines_.size() - half_;
  lines_.Add();
  std::array<uint32_t, kNeighbours> heads = lines_[old].heads;
  lines_[old] = Line();
  for (uint32_t head : heads) {
    while (head != kNone) {
      const uint32_t next = members_[head].hash_next;
      uint32_t& bucket = BucketOf(ChunkOf(members_[head]));
      members_[head].hash_next = bucket;
      bucket = head;
      head = next;
    }
  }
}

void PendingTable::UnlinkFromHash(uint32_t member) {
  uint32_t* link = &BucketOf(ChunkOf(members_[member]));
  while (*link != member) {
    link = &members_[*link].hash_next;
  }
  *link = members_[member].hash_next;
  --pending_;
}

void PendingTable::Hold(DeviceIndex ssd, SlotIndex slot, bool held) {
  uint64_t& word = held_[ssd.value][slot.value / 64];
  const uint64_t bit = uint64_t{1} << (slot.value % 64);
  EPLOG_CHECK(((word & bit) != 0) != held, "I3: a slot is in at most one live log stripe");
  word ^= bit;
}

LogStripeId PendingTable::Add(uint64_t sequence, uint64_t place,
                              std::span<const LogStripeMember> members,
                              std::span<const uint32_t> log_crcs,
                              const std::vector<bool>* superseded) {
  const LogStripeId id = NewStripe();
  stripes_[id].sequence = sequence;
  stripes_[id].place = place;
  stripes_[id].zeros = log_crcs.empty();
  for (size_t j = 0; j < log_crcs.size(); ++j) {
    log_crcs_[size_t{id} * geometry_.m + j] = log_crcs[j];
  }
  uint32_t* tail = &stripes_[id].first;
  for (size_t i = 0; i < members.size(); ++i) {
    const uint32_t at = NewMember();
    *tail = at;
    Member& member = members_[at];
    tail = &member.next;
    member.stripe = geometry_.StripeOf(members[i].chunk).value;
    member.index = static_cast<uint8_t>(geometry_.IndexInStripe(members[i].chunk));
    member.word = members[i].word;
    member.crc = members[i].crc;
    member.log_stripe = id;
    member.superseded = superseded != nullptr && (*superseded)[i];
    if (member.word.has_slot()) {
      Hold(geometry_.SsdOf(members[i].chunk), member.word.slot(), true);
    }
    if (!member.superseded) {
      EPLOG_DCHECK(!Find(members[i].chunk), "I2: an older pending version was not superseded");
      ++stripes_[id].live;
      Link(at);
    }
  }
  EPLOG_CHECK(stripes_[id].live != 0, "I6: a log stripe without a pending member is not live");
  live_members_ += members.size();
  ++live_records_;
  if (stripes_[id].zeros) {
    zeros_ += members.size();
  } else {
    ++live_stripes_;
  }
  return id;
}

bool PendingTable::Supersede(ChunkIndex chunk, uint64_t upto, uint64_t by, bool commit,
                             const Died& died) {
  const StripeIndex row = geometry_.StripeOf(chunk);
  const uint32_t index = geometry_.IndexInStripe(chunk);
  uint32_t at = BucketOf(chunk);
  while (at != kNone && (members_[at].stripe != row.value || members_[at].index != index)) {
    at = members_[at].hash_next;
  }
  if (at == kNone || stripes_[members_[at].log_stripe].sequence > upto) {
    return false;
  }
  members_[at].superseded = true;
  UnlinkFromHash(at);
  const LogStripeId id = members_[at].log_stripe;
  Stripe& stripe = stripes_[id];
  stripe.committed |= commit;
  if (--stripe.live == 0) {
    early_deaths_ += stripe.committed || stripe.zeros ? 0 : 1;
    Kill(id, by, died);
  }
  return true;
}

void PendingTable::Kill(LogStripeId id, uint64_t by, const Died& died) {
  const bool zeros = stripes_[id].zeros;
  live_stripes_ -= zeros ? 0 : 1;
  --live_records_;
  uint32_t at = stripes_[id].first;
  stripes_[id].first = kNone;
  uint32_t count = 0;
  while (at != kNone) {
    const Member member = members_[at];
    members_[at].next = free_member_;
    free_member_ = at;
    at = member.next;
    ++count;
    --live_members_;
    if (member.word.has_slot()) {
      Hold(geometry_.SsdOf(ChunkOf(member)), member.word.slot(), false);
    }
    died({ChunkOf(member), member.word, member.crc});
  }
  const uint32_t dying = zeros ? count : 0;
  zeros_ -= dying;
  dying_zeros_ += dying;
  dead_.push_back({by, id, dying});
  while (oldest_live_ != kNone && stripes_[oldest_live_].live == 0) {
    oldest_live_ = stripes_[oldest_live_].next;
  }
}

void PendingTable::Stable(uint64_t sequence) {
  while (!dead_.empty() && dead_.front().by <= sequence) {
    dying_zeros_ -= dead_.front().zeros;
    Reclaim(dead_.front().id);
    dead_.pop_front();
  }
}

void PendingTable::Reclaim(LogStripeId id) {
  Stripe& stripe = stripes_[id];
  (stripe.prev == kNone ? oldest_ : stripes_[stripe.prev].next) = stripe.next;
  (stripe.next == kNone ? newest_ : stripes_[stripe.next].prev) = stripe.prev;
  stripe = Stripe{};
  stripe.next = free_stripe_;
  free_stripe_ = id;
}

std::optional<uint64_t> PendingTable::OldestPlace() const {
  return oldest_ == kNone ? std::nullopt : std::optional(stripes_[oldest_].place);
}

std::optional<uint64_t> PendingTable::OldestLivePlace() const {
  return oldest_live_ == kNone ? std::nullopt : std::optional(stripes_[oldest_live_].place);
}

void PendingTable::ForgetSsd(DeviceIndex ssd) {
  for (LogStripeId id = oldest_; id != kNone; id = stripes_[id].next) {
    for (uint32_t at = stripes_[id].first; at != kNone; at = members_[at].next) {
      Member& member = members_[at];
      if (member.word.has_slot() && geometry_.SsdOf(ChunkOf(member)) == ssd) {
        Hold(ssd, member.word.slot(), false);
        member.word = SlotWord::Absent();
      }
    }
  }
}

void PendingTable::ForEachLive(const std::function<bool(LogStripeId)>& visit) const {
  for (LogStripeId id = oldest_live_; id != kNone; id = stripes_[id].next) {
    if (stripes_[id].live != 0 && !visit(id)) {
      return;
    }
  }
}

void PendingTable::PendingChunksOf(LogStripeId id, std::vector<ChunkIndex>& out) const {
  for (uint32_t at = stripes_[id].first; at != kNone; at = members_[at].next) {
    if (!members_[at].superseded) {
      out.push_back(ChunkOf(members_[at]));
    }
  }
}

size_t PendingTable::memory_bytes() const {
  return members_.memory_bytes() + stripes_.memory_bytes() + log_crcs_.memory_bytes() +
         lines_.memory_bytes() + held_.size() * held_[0].size() * sizeof(uint64_t);
}

}  // namespace eplog
