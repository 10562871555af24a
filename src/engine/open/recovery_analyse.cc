// The reading half of recovery.

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <set>
#include <string>
#include <utility>

#include "base/check.h"
#include "engine/checkpoint/checkpoint_loader.h"
#include "engine/core/traffic.h"
#include "engine/open/recovery.h"
#include "metadata/entry_check.h"
#include "runtime/task_group.h"

namespace eplog {
namespace {

constexpr uint64_t kRingBatchBlocks = 256;

}  // namespace

Task<Status> Recovery::Analyse() {
  Task<Status> analysing = AnalyseAll();
  const Status status = co_await analysing;
  Task<void> draining = log_.Drain();
  co_await draining;
  co_return status;
}

Task<Status> Recovery::AnalyseAll() {
  NoteJoined();
  Task<Result<CheckpointRoot>> loading = LoadRoot(core_, assembly_.winner.checkpoint);
  Result<CheckpointRoot> root = co_await loading;
  EPLOG_CO_TRY(root);
  root_ = std::move(*root);
  core_.lifetime_before = CountersToTraffic(root_.lifetime_counters);
  checkpoint_ = {root_.epoch, root_.sequence, root_.place};
  TaskGroup both(core_.loop);
  both.Start(ReadRings());
  both.Start(LoadRuns(core_, root_, *core_.state));
  EPLOG_CO_AWAIT(both.Wait());
  ForgetReplaced();
  EPLOG_CO_AWAIT(Join());
  Task<void> beyond = LookBeyond();
  co_await beyond;
  EPLOG_CO_AWAIT(Replay());
  Status status = CheckDamage();
  EPLOG_CO_TRY(status);
  status = Bear(CheckState(*core_.state, checkpoint_.place, position_.place));
  EPLOG_CO_TRY(status);
  co_return Bear(TakeSpace());
}

// Those that have joined and are not whole may have been given no page of the newest checkpoint
// yet.
void Recovery::NoteJoined() {
  for (uint8_t i = 0; i < core_.geometry.n; ++i) {
    const MemberState state = assembly_.winner.members[i].state;
    if (state == MemberState::kJoining || state == MemberState::kReturning) {
      core_.has_checkpoint_from[i] = Core::kNoneYet;
    }
  }
}

// By force what can be read is read: what is wrong with the rest is told and in nobody's way.
Status Recovery::Bear(Status damage) {
  if (damage.ok()) {
    return damage;
  }
  if (!core_.forced()) {
    Error error = std::move(damage).error();
    error.message += ", or mount with --read-only --force to read what is left";
    return Fail(std::move(error));
  }
  core_.NoteLogDamage(damage.error().message);
  return OkStatus();
}

// What an older root or entry says of a replaced SSD is of the one before it.
void Recovery::ForgetReplaced() {
  for (uint8_t i = 0; i < core_.geometry.n; ++i) {
    const uint64_t joined = assembly_.winner.members[i].joined;
    core_.state->SetJoined(DeviceIndex(i), core_.canary(Canary::kJoinedForgotten) ? 0 : joined);
    if (joined > root_.epoch.number && !core_.canary(Canary::kReplacedWordsKept)) {
      core_.state->ForgetSsd(DeviceIndex(i));
    }
  }
}

Task<Status> Recovery::ReadRings() {
  TaskGroup group(core_.loop);
  for (uint8_t i = 0; i < core_.geometry.n; ++i) {
    if (core_.members.live(DeviceIndex(i))) {
      group.Start(ReadRing(DeviceIndex(i)));
    }
  }
  Task<Status> all = group.Wait();
  co_return co_await all;
}

// Which of them could be read: one bad block must not hide its neighbours.
Task<std::vector<bool>> Recovery::ReadBlocks(DeviceIndex device, uint64_t offset_bytes,
                                             std::span<std::byte> into) {
  Task<Status> read = core_.members.ReadBytes(device, offset_bytes, into);
  const Status whole = co_await read;
  std::vector<bool> readable(into.size() / kBlockBytes, whole.ok());
  for (size_t i = 0; !whole.ok() && i < readable.size(); ++i) {
    const size_t at = i * kBlockBytes;
    Task<Status> single =
        core_.members.ReadBytes(device, offset_bytes + at, into.subspan(at, kBlockBytes));
    const Status status = co_await single;
    readable[i] = status.ok();
  }
  co_return readable;
}

// An unreadable part of a ring is one copy less.
Task<Status> Recovery::ReadRing(DeviceIndex ssd) {
  const Geometry& g = core_.geometry;
  for (uint64_t first = 0; first < g.ring_blocks; first += kRingBatchBlocks) {
    const uint64_t count = std::min(kRingBatchBlocks, g.ring_blocks - first);
    Buffer batch = core_.pool.Get(count * kBlockBytes);
    Task<std::vector<bool>> reading = ReadBlocks(ssd, g.RingOffset(first), batch.span());
    const std::vector<bool> readable = co_await reading;
    for (uint64_t i = 0; i < count; ++i) {
      if (!readable[i]) {
        unread_rings_ |= uint64_t{1} << ssd.value;
        continue;
      }
      const auto bytes = batch.span().subspan(i * kBlockBytes, kBlockBytes);
      const auto head = DecodeRingBlockHead(bytes, core_.identity.array_uuid, g, ssd);
      if (!head.ok() || head->number % g.ring_blocks != first + i) {
        continue;
      }
      if (head->last_sequence <= checkpoint_.sequence) {
        // Nothing in it but what the checkpoint covers, marks included.
        ring_blocks_.push_back({ssd, head->number, {}});
        continue;
      }
      const Result<RingBlock> block = DecodeRingBlock(bytes, core_.identity.array_uuid, g, ssd);
      if (block.ok()) {
        NoteRingBlock(ssd, *block);
      }
    }
  }
  co_return OkStatus();
}

void Recovery::NoteRingBlock(DeviceIndex ssd, const RingBlock& block) {
  FoundBlock found{ssd, block.number, {}};
  for (const EntryHeader& header : block.headers) {
    newest_ring_mark_ = std::max(newest_ring_mark_, header.mark);
    if (header.sequence <= checkpoint_.sequence) {
      continue;
    }
    found.headers.emplace_back(header.sequence, header.epoch);
    auto& same = ring_headers_[header.sequence];
    const auto known = std::find_if(same.begin(), same.end(),
                                    [&](const RingCopies& copy) { return copy.header == header; });
    if (known == same.end()) {
      same.push_back({header, 1});
    } else {
      ++known->copies;
    }
  }
  ring_blocks_.push_back(std::move(found));
}

Task<std::optional<EntryHeader>> Recovery::HeaderAt(uint32_t j, uint64_t place) {
  Task<std::optional<EntryHeader>> reading = log_.HeaderAt(j, place);
  std::optional<EntryHeader> header = co_await reading;
  const DeviceIndex log = core_.geometry.LogDevice(j);
  if (header && header->epoch.number < assembly_.winner.members[log.value].joined) {
    co_return std::nullopt;
  }
  co_return header;
}

bool Recovery::FitsAfter(const EntryHeader& header, const Appender::Position& at) const {
  if (core_.canary(Canary::kNoEpochJoin)) {
    return header.sequence == at.sequence + 1 && header.place == at.place;
  }
  return Continues(header, at);
}

Task<Result<std::optional<EntryHeader>>> Recovery::NextEntry(const Appender::Position& at) {
  std::optional<EntryHeader> best;
  const bool lowest = core_.canary(Canary::kNoEpochJoin);
  const auto consider = [&](const EntryHeader& header) {
    const bool better = !best || (lowest ? header.epoch < best->epoch : header.epoch > best->epoch);
    if (FitsAfter(header, at) && better) {
      best = header;
    }
  };
  unread_logs_ = 0;
  read_logs_ = 0;
  for (uint32_t j = 0; j < core_.geometry.m; ++j) {
    Task<std::optional<EntryHeader>> reading = HeaderAt(j, at.place);
    const std::optional<EntryHeader> header = co_await reading;
    const DeviceIndex log = core_.geometry.LogDevice(j);
    const bool was_there = assembly_.winner.members[log.value].joined <= at.epoch.number;
    if (core_.members.live(log) && was_there) {
      (log_.met_unreadable() ? unread_logs_ : read_logs_) |= uint64_t{1} << j;
    }
    if (log_.met_unknown() && FitsAfter(*log_.met_unknown(), at)) {  // not a tail to be cut
      co_return Fail(ErrorCode::kUnsupported,
                     "the log holds an entry written by a newer version of eplog; use that one");
    }
    if (header) {
      consider(*header);
    }
  }
  const auto ring = ring_headers_.find(at.sequence + 1);
  if (ring != ring_headers_.end()) {
    for (const RingCopies& copy : ring->second) {
      consider(copy.header);
    }
  }
  co_return best;
}

// Where flushes relied on log devices alone, the log does not end where none of them can be read.
Status Recovery::CheckEnd() {
  const uint64_t kept = unread_logs_ & ~core_.options.without_logs;
  if (read_logs_ != 0 || kept == 0 || !MayBeOnLogsAlone(assembly_)) {
    return OkStatus();
  }
  const DeviceIndex log = core_.geometry.LogDevice(static_cast<uint32_t>(std::countr_zero(kept)));
  const std::string name = core_.geometry.DeviceName(log);
  return Bear(Fail(ErrorCode::kTooManyFailures,
                   name +
                       " cannot be read where the log goes on or ends, and in journal mode "
                       "'log' what was flushed last may be only there: mend " +
                       name + ", or give all of its log up by mounting --without " + name));
}

Task<Status> Recovery::Join() {
  Appender::Position at = checkpoint_;
  mark_ = checkpoint_.sequence;
  while (true) {
    Task<Result<std::optional<EntryHeader>>> finding = NextEntry(at);
    Result<std::optional<EntryHeader>> found = co_await finding;
    EPLOG_CO_TRY(found);
    std::optional<EntryHeader> next = std::move(*found);
    if (!next) {
      joined_ = at;
      co_return CheckEnd();
    }
    at = {next->epoch, next->sequence, next->place + next->length_blocks};
    mark_ = std::max(mark_, next->mark);
    newest_epoch_ = std::max(newest_epoch_, next->epoch.number);
    chain_.push_back(std::move(*next));
  }
}

// Which copies of a kept header must be written again.
Task<Status> Recovery::NoteHeaderCopies(const EntryHeader& entry) {
  for (uint32_t j = 0; j < core_.geometry.m; ++j) {
    const DeviceIndex log = core_.geometry.LogDevice(j);
    if (!core_.members.live(log)) {
      continue;
    }
    Task<std::optional<EntryHeader>> reading = HeaderAt(j, entry.place);
    const std::optional<EntryHeader> header = co_await reading;
    if (!header || *header != entry) {
      size_t used = 0;
      mends_.push_back({log, Mend::Kind::kLogHeader, entry.place, EncodeBlock(entry, used)});
    }
  }
  if (CopiesOnRings(entry) < 1 + core_.devices().lost_logs()) {
    without_ring_.push_back(entry);
  }
  co_return OkStatus();
}

uint32_t Recovery::CopiesOnRings(const EntryHeader& entry) const {
  const auto ring = ring_headers_.find(entry.sequence);
  if (ring == ring_headers_.end()) {
    return 0;
  }
  const auto same = std::find_if(ring->second.begin(), ring->second.end(),
                                 [&](const RingCopies& copy) { return copy.header == entry; });
  return same == ring->second.end() ? 0 : same->copies;
}

// What could not be read of a ring, or was damaged there, may be the only copy besides the log's,
// and nobody knows any more which blocks are needed: they would be written over.
bool Recovery::RingsLackCopies() const {
  const bool all = core_.members.live_mask() + 1 == uint64_t{1} << core_.geometry.devices();
  const bool unread = (unread_rings_ & core_.members.live_mask()) != 0;
  if (!unread &&
      (!all || core_.identity.journal_mode != static_cast<uint8_t>(JournalMode::kFull))) {
    return false;  // what is missing explains it
  }
  return std::any_of(chain_.begin(), chain_.end(), [&](const EntryHeader& entry) {
    return entry.sequence <= mark_ && CopiesOnRings(entry) == 0;
  });
}

Buffer Recovery::EncodeBlock(const EntryHeader& header, size_t& used_bytes) {
  Buffer block = core_.pool.GetZeroed(kBlockBytes);
  used_bytes = EncodeEntryHeader(header, core_.identity.array_uuid, block.span());
  return block;
}

// Those that superblocks, rings and the joined entries name. Where log chunks lie, what looks like a
// header of any other epoch is what a user wrote.
std::set<Epoch> Recovery::KnownEpochs() const {
  std::set<Epoch> known(assembly_.epochs.begin(), assembly_.epochs.end());
  const auto add = [&known](const EntryHeader& header) {
    known.insert(header.epoch);
    if (header.first_of_epoch) {
      known.insert(header.follows_epoch);
    }
  };
  known.insert(root_.epoch);
  std::for_each(chain_.begin(), chain_.end(), add);
  for (const auto& [sequence, copies] : ring_headers_) {
    std::for_each(copies.begin(), copies.end(), [&](const RingCopies& copy) { add(copy.header); });
  }
  size_t before = 0;
  while (std::exchange(before, known.size()) != known.size()) {
    for (const EntryHeader& header : beyond_) {
      if (known.contains(header.epoch)) {
        add(header);
      }
    }
  }
  return known;
}

// What lies beyond what could be joined, since an entry between is nowhere. Its marks count all the
// same: whatever they cover is not to be judged. Its epochs do not: by I11 none is newer than those
// of all superblocks.
Task<void> Recovery::LookBeyond() {
  const Geometry& g = core_.geometry;
  const uint64_t longest_entry = 1 + kMaxEntryHeaderBytes / 16 * g.chunk_blocks();
  const uint64_t far =
      std::min(g.log_blocks, Appender::kMaxUnstableBytes / kBlockBytes + longest_entry);
  mark_ = std::max(mark_, newest_ring_mark_);
  for (uint32_t j = 0; j < g.m; ++j) {
    for (uint64_t place = joined_.place; place < joined_.place + far; ++place) {
      Task<std::optional<EntryHeader>> reading = HeaderAt(j, place);
      std::optional<EntryHeader> header = co_await reading;
      if (!header) {
        header = log_.met_unknown();
      }
      if (header) {
        beyond_.push_back(std::move(*header));
      }
    }
  }
  const std::set<Epoch> known = KnownEpochs();
  std::erase_if(beyond_, [&](const EntryHeader& header) { return !known.contains(header.epoch); });
  for (const EntryHeader& header : beyond_) {
    mark_ = std::max(mark_, header.mark);
  }
}

// A mark beyond the cut, in an entry of any epoch, proves that something stable is missing: damage,
// not a tail. What else lies there is told: no flush had covered it, unless more is damaged than
// parity can replace.
Status Recovery::CheckDamage() {
  for (const auto& [sequence, copies] : ring_headers_) {
    for (const RingCopies& copy : copies) {
      NoteCut(copy.header);
    }
  }
  for (const EntryHeader& header : std::exchange(beyond_, {})) {
    NoteCut(header);
  }
  if (mark_ > position_.sequence) {
    return Bear(Fail(ErrorCode::kCorrupt,
                     "the log is damaged: entry " + std::to_string(position_.sequence + 1) +
                         " cannot be found or verified, yet entries up to " +
                         std::to_string(mark_) +
                         " had been made durable; bring back missing members"));
  }
  return OkStatus();
}

void Recovery::MendInRam() {
  for (Mend& mend : mends_) {
    core_.found_wrong.erase({mend.device, mend.at});  // by another record it could be decoded
    if (mend.kind == Mend::Kind::kSlot) {
      core_.members.Overlay(mend.device, mend.at, std::move(mend.bytes));
      continue;
    }
    for (size_t done = 0; done < mend.bytes.size();
         done += kBlockBytes) {  // by block: the log may wrap inside
      Buffer block = core_.pool.Get(kBlockBytes);
      std::memcpy(block.data(), mend.bytes.data() + done, kBlockBytes);
      core_.members.Overlay(mend.device, core_.geometry.LogOffset(mend.at + done / kBlockBytes),
                            std::move(block));
    }
  }
  mends_.clear();
}

Status Recovery::TakeSpace() {
  // What was written together lies together: most slots continue a run.
  struct SlotRun {
    uint32_t first = 0;
    uint32_t end = 0;
  };
  std::array<SlotRun, kMaxSsds> runs{};
  Status status;
  const auto take = [this, &status](DeviceIndex ssd, const SlotRun& run) {
    if (!core_.space.TryMarkUsed(ssd, SlotIndex(run.first), run.end - run.first)) {
      status = Fail(ErrorCode::kCorrupt, "the log or the checkpoint is damaged: a slot of " +
                                             core_.geometry.DeviceName(ssd) + " from " +
                                             std::to_string(run.first) + " to " +
                                             std::to_string(run.end - 1) + " is in use twice");
    }
  };
  core_.state->ForEachSlot([&](DeviceIndex ssd, SlotIndex slot) {
    SlotRun& run = runs[ssd.value];
    if (slot.value != run.end) {
      take(ssd, run);
      run.first = slot.value;
    }
    run.end = slot.value + 1;
  });
  for (uint8_t i = 0; i < core_.geometry.n; ++i) {
    take(DeviceIndex(i), runs[i]);
  }
  EPLOG_TRY(status);
  for (const FoundBlock& block : ring_blocks_) {
    // By what is kept of it: the next life gives the numbers of what was cut off again, and would
    // keep the block, and all behind it, until it has used them all.
    uint64_t last = 0;
    for (const auto& [sequence, epoch] : block.headers) {
      const uint64_t index = sequence - checkpoint_.sequence - 1;
      if (index < chain_.size() && chain_[index].epoch == epoch) {
        last = std::max(last, sequence);
      }
    }
    core_.rings.NoteBlock(block.ssd, block.number, last, last != 0);
  }
  return OkStatus();
}

}  // namespace eplog
