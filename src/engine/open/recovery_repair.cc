// The writing half of recovery: under a new epoch, everything that was kept gets all its copies
// back, then the new epoch's first entry takes the cut place.

#include <algorithm>

#include "base/check.h"
#include "engine/open/recovery.h"
#include "runtime/task_group.h"

namespace eplog {
namespace {

constexpr size_t kMendsAtOnce = 32;

}  // namespace

Status Recovery::MayGoOn() const {
  std::string who = assembly_.miscounted;
  for (const FoundBlock& block : ring_blocks_) {
    if (block.number >= kLastToGoOnFrom) {
      who = core_.geometry.DeviceName(block.ssd);
    }
  }
  if (!who.empty()) {
    return Fail(ErrorCode::kCorrupt, who +
                                         " bears a number that nothing is counted up to: it is "
                                         "damaged; nothing was written. Mount --without it, "
                                         "and replace it");
  }
  if (std::max(position_.sequence, position_.place) >= kLastToGoOnFrom) {
    return Fail(ErrorCode::kCorrupt,
                "the log is damaged: it bears a number that nothing is counted up to; nothing was "
                "written. Mount --read-only to read what is left");
  }
  return OkStatus();
}

Task<Status> Recovery::Repair(Superblocks& superblocks, Checkpointer& checkpointer) {
  checkpointer.Adopt(root_, superblocks.current().checkpoint.root_block);
  for (const MemberEntry& member : superblocks.current().members) {
    checkpointer.WantFullSince(member.joined);
  }
  const bool late = core_.canary(Canary::kSuperblockLate);
  // With I11 kept no header can be newer than every superblock; the canary breaks that, and must
  // then not be helped.
  const uint64_t newest = late ? assembly_.highest_epoch : newest_epoch_;
  epoch_ = {newest + 1, core_.random.Next()};
  std::vector<MemberEntry> members = superblocks.current().members;
  for (uint8_t i = 0; i < core_.geometry.devices(); ++i) {
    const bool failed = (assembly_.failed >> i & 1) != 0;
    if (!core_.members.live(DeviceIndex(i)) && (members[i].is_live() || failed)) {
      members[i].state = failed ? MemberState::kFailed : MemberState::kLost;
    }
  }
  // What the log of one that is back holds of older epochs is not what was logged meanwhile.
  for (uint32_t j = 0; j < core_.geometry.m; ++j) {
    const DeviceIndex log = core_.geometry.LogDevice(j);
    if ((superblocks.returning() >> log.value & 1) != 0) {
      members[log.value].joined = epoch_.number;
    }
  }
  superblocks.SetEpoch(epoch_, std::move(members));
  Status status;
  if (!late) {  // I11: before anything else is written
    EPLOG_CO_AWAIT(superblocks.Write());
  }
  // What was dropped lies in the log before what was kept: the next opening must not find it there.
  const bool room = !dropped_before_kept_ && !RingsLackCopies() && RoomForFirstEntry();
  if (!core_.canary(Canary::kTailCopies)) {
    EPLOG_CO_AWAIT(WriteMends());
    if (room) {
      for (const EntryHeader& entry : without_ring_) {
        size_t used = 0;
        const Buffer block = EncodeBlock(entry, used);
        core_.rings.Enqueue(entry.sequence, block.span().first(used));
      }
      EPLOG_CO_AWAIT(WriteRings(position_.sequence));
    }
  }
  EPLOG_CO_AWAIT(core_.members.FlushMask(core_.members.live_mask()));
  if (room) {
    Task<Status> first = WriteFirstEntry();
    status = co_await first;
  } else {
    Task<Status> checkpoint = CheckpointTheCut(superblocks, checkpointer);
    status = co_await checkpoint;
  }
  EPLOG_CO_TRY(status);
  if (late) {
    EPLOG_CO_AWAIT(superblocks.Write());
  }
  superblocks.SetBase(epoch_, true);
  Task<Status> opened = superblocks.Write();
  co_return co_await opened;
}

Task<Status> Recovery::WriteMends() {
  TaskGroup group(core_.loop);
  for (Mend& mend : mends_) {
    ++core_.hooks.recovery_repairs;
    Task<void> below = group.WaitBelow(kMendsAtOnce);
    co_await below;
    if (mend.kind != Mend::Kind::kSlot) {
      uint64_t& traffic = mend.kind == Mend::Kind::kLogHeader ? core_.traffic.log_header_bytes
                                                              : core_.traffic.log_chunk_bytes;
      traffic += mend.bytes.size();
      std::vector<iovec> parts = {{mend.bytes.data(), mend.bytes.size()}};
      group.Start(WriteLog(core_.members, core_.geometry,
                           {mend.device, mend.at, std::move(parts), IoKind::kRepair, nullptr}));
    } else {
      core_.traffic.ssd_repair_bytes += mend.bytes.size();
      group.Start(
          core_.members.WriteBytes(mend.device, mend.at, mend.bytes.span(), IoKind::kRepair));
    }
  }
  Task<Status> all = group.Wait();
  const Status status = co_await all;
  mends_.clear();
  co_return status;
}

Task<Status> Recovery::WriteRings(uint64_t upto) {
  if (core_.rings.queued() != 0) {
    const uint64_t packed = core_.rings.Pack(upto, false, 0);
    EPLOG_CHECK(core_.rings.queued() == 0 && packed <= upto,
                "I8: the rings have room for the kept tail");
  }
  Task<Result<uint64_t>> wait = core_.rings.Written(upto);
  const Result<uint64_t> written = co_await wait;
  EPLOG_CO_TRY(written);
  co_return OkStatus();
}

// The first entry may not eat of what is closed to the foreground: or repeated crashes would leave
// commits no room to free any.
bool Recovery::RoomForFirstEntry() const {
  const auto oldest = core_.state->pending.OldestPlace().value_or(checkpoint_.place);
  const uint64_t used = position_.place - std::min(oldest, checkpoint_.place) +
                        core_.state->pending.charged_zeros() * core_.geometry.chunk_blocks();
  const uint64_t closed = core_.commit_cost.ClosedBlocks(core_.state->pending_stripes(),
                                                         core_.state->pending.pending_chunks());
  return used + closed <= core_.geometry.log_blocks &&
         core_.rings.Room(0) >= without_ring_.size() + 1;
}

Task<Status> Recovery::WriteFirstEntry() {
  EntryHeader first;
  first.epoch = epoch_;
  first.sequence = position_.sequence + 1;
  first.mark = position_.sequence;
  first.place = position_.place;
  first.first_of_epoch = true;
  first.follows_epoch = position_.epoch;
  first.follows_sequence = position_.sequence;
  size_t used = 0;
  const Buffer block = EncodeBlock(first, used);
  TaskGroup group(core_.loop);
  for (uint32_t j = 0; j < core_.geometry.m; ++j) {
    const DeviceIndex log = core_.geometry.LogDevice(j);
    if (core_.members.live(log)) {
      std::vector<iovec> parts = {{block.data(), kBlockBytes}};
      group.Start(WriteLog(core_.members, core_.geometry,
                           {log, first.place, std::move(parts), IoKind::kEntry, nullptr}));
      core_.traffic.log_header_bytes += kBlockBytes;
    }
  }
  ++core_.traffic.log_appends;
  core_.rings.Enqueue(first.sequence, block.span().first(used));
  Task<Status> rings = WriteRings(first.sequence);
  Status status = co_await rings;
  Task<Status> all = group.Wait();
  Status written = co_await all;
  EPLOG_CO_TRY(status);
  EPLOG_CO_TRY(written);
  EPLOG_CO_AWAIT(core_.members.FlushMask(core_.members.live_mask()));
  core_.rings.Stable(first.sequence);
  position_ = {epoch_, first.sequence, first.place + 1};
  co_return OkStatus();
}

// Where log or rings lack room, or rings lack copies of what is stable: a checkpoint of the cut,
// whose root bears the new epoch and the cut's sequence and place, takes the place of the first
// entry and of the ring copies.
Task<Status> Recovery::CheckpointTheCut(Superblocks& superblocks, Checkpointer& checkpointer) {
  ++core_.hooks.recovery_checkpoints;
  position_.epoch = epoch_;
  EPLOG_CO_AWAIT(checkpointer.WriteAlone(position_));
  EPLOG_CO_AWAIT(superblocks.Write());
  checkpoint_ = position_;
  core_.rings.CheckpointCounts(position_.sequence);
  ++core_.traffic.checkpoints;
  co_return OkStatus();
}

}  // namespace eplog
