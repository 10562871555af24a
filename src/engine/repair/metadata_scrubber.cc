#include "engine/repair/metadata_scrubber.h"

#include <array>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "engine/checkpoint/checkpoint_loader.h"
#include "engine/checkpoint/checkpoint_pages.h"
#include "format/entry.h"
#include "rings/log_ring.h"

namespace eplog {
namespace {

constexpr int kTries = 5;  // a checkpoint that comes meanwhile makes all that was read old

// Who lied about a write has what lay there before: an entry that recovery dropped, of an older
// epoch and perhaps with the same number. The others are right.
const EntryHeader* NewestOf(std::span<const std::optional<EntryHeader>> found) {
  const EntryHeader* newest = nullptr;
  for (const std::optional<EntryHeader>& header : found) {
    if (header && (newest == nullptr || header->epoch.number > newest->epoch.number)) {
      newest = &*header;
    }
  }
  return newest;
}

}  // namespace

Task<Status> MetadataScrubber::Run(Options options) {
  closing_ = options.closing;
  if (options.superblocks) {
    Task<void> superblocks = CheckSuperblocks();
    co_await superblocks;
  }
  for (int attempt = 0; attempt < kTries && !read_all_ && !Stop(); ++attempt) {
    Task<bool> checking = CheckOnce();
    read_all_ = co_await checking;
  }
  Status ended = core_.ScrubMayGoOn(closing_);
  EPLOG_CO_TRY(ended);
  if (!options.heal) {
    co_return OkStatus();
  }
  Task<Status> healing = Heal();
  co_return co_await healing;
}

Task<bool> MetadataScrubber::CheckOnce() {
  pointer_ = parts_.superblocks.current().checkpoint;
  states_ = core_.devices().number();
  Task<Result<CheckpointRoot>> loading = LoadRoot(core_, pointer_);
  Result<CheckpointRoot> root = co_await loading;
  if (!root.ok() && Same()) {
    Finding finding;
    finding.what = "the newest checkpoint: " + root.error().ToString();
    elsewhere_.push_back(findings_.Add(std::move(finding)));
    co_return true;
  }
  if (!root.ok()) {
    co_return false;
  }
  root_ = std::move(*root);
  Task<void> pages = CheckCheckpoint();
  co_await pages;
  Task<void> log = CheckLog();
  co_await log;
  for (uint8_t i = 0; i < core_.geometry.n && Same(); ++i) {
    Task<void> ring = CheckRing(DeviceIndex(i));
    co_await ring;
  }
  co_return Same();
}

bool MetadataScrubber::Same() const {
  return !Stop() && core_.devices().number() == states_ &&
         parts_.superblocks.current().checkpoint == pointer_;
}

void MetadataScrubber::Found(DeviceIndex device, std::string what, std::vector<size_t>& list) {
  if (!core_.members.live(device)) {
    return;
  }
  core_.members.CountCorrupt(device);
  Finding finding;
  finding.device = core_.geometry.DeviceName(device);
  finding.what = std::move(what);
  list.push_back(findings_.Add(std::move(finding)));
}

Task<void> MetadataScrubber::CheckSuperblocks() {
  for (uint8_t i = 0; i < core_.geometry.devices() && !Stop(); ++i) {
    const DeviceIndex device(i);
    Task<void> settling = core_.Settled();  // one that joins bears none yet
    co_await settling;
    if (!core_.members.live(device)) {
      continue;
    }
    Task<uint32_t> looking = parts_.superblocks.DamagedCopies(device);
    const uint32_t damaged = co_await looking;
    findings_.report.metadata_blocks_checked += 2;
    for (uint32_t copy = 0; copy < 2; ++copy) {
      if ((damaged >> copy & 1) != 0) {
        Found(device, copy == 0 ? "superblock copy A is damaged" : "superblock copy B is damaged",
              in_superblocks_);
      }
    }
  }
}

Task<void> MetadataScrubber::CheckCheckpoint() {
  std::vector<Pages> all = {PagesOf(pointer_)};
  for (const RunDescriptor& run : root_.runs) {
    all.push_back(PagesOf(run));
  }
  const std::function<bool()> stop = [this] { return !Same(); };
  for (const Pages& pages : all) {
    for (uint8_t i = 0; i < core_.geometry.n && Same(); ++i) {
      const DeviceIndex ssd(i);
      if ((pages.ssd_mask >> i & 1) == 0 || !core_.members.live(ssd) ||
          !core_.MustHavePagesOf(pages.first.generation, ssd)) {
        continue;
      }
      const std::function<void(uint64_t)> wrong = [&](uint64_t block) {
        Found(ssd, "page " + std::to_string(block) + " of the newest checkpoint is damaged",
              elsewhere_);
      };
      Task<uint64_t> checking = CheckPages(core_, ssd, pages, stop, wrong);
      findings_.report.metadata_blocks_checked += co_await checking;
    }
  }
}

// From the checkpoint to what is stable, header by header.
Task<void> MetadataScrubber::CheckLog() {
  const Geometry& g = core_.geometry;
  const uint64_t end = parts_.flusher.stable_place();
  LogReader log(core_.loop, core_.members, g, core_.identity.array_uuid, core_.pool);
  LogPosition at = {root_.epoch, root_.sequence, root_.place};
  while (at.place < end && Same()) {
    std::array<std::optional<EntryHeader>, kMaxParity> found;
    uint64_t asked = 0;
    for (uint32_t j = 0; j < g.m; ++j) {
      const DeviceIndex device = g.LogDevice(j);
      // One that joins lacks what was logged before.
      if (!core_.members.live(device) || core_.devices().IsJoining(device)) {
        continue;
      }
      Task<std::optional<EntryHeader>> reading = log.HeaderAt(j, at.place);
      std::optional<EntryHeader> header = co_await reading;
      ++findings_.report.metadata_blocks_checked;
      asked |= uint64_t{1} << j;
      if (header && Continues(*header, at)) {
        found[j] = std::move(header);
      }
    }
    const EntryHeader* const known = NewestOf(found);
    for (uint32_t j = 0; j < g.m && Same(); ++j) {
      if ((asked >> j & 1) != 0 && (!found[j] || *found[j] != *known)) {
        Found(g.LogDevice(j),
              "the header of log entry " + std::to_string(at.sequence + 1) + " at place " +
                  std::to_string(at.place) + " is damaged",
              elsewhere_);
      }
    }
    if (known == nullptr) {
      break;  // where the next one lies only the rings tell
    }
    at = {known->epoch, known->sequence, at.place + known->length_blocks};
  }
  Task<void> draining = log.Drain();
  co_await draining;
}

Task<void> MetadataScrubber::CheckRing(DeviceIndex ssd) {
  const Geometry& g = core_.geometry;
  if (!core_.members.live(ssd)) {
    co_return;
  }
  // What the checkpoint covers may be overwritten at any time: it is named before it has freed
  // that.
  const std::vector<uint64_t> needed =
      core_.rings.NeededBlocks(ssd, root_.sequence, parts_.flusher.stable());
  for (const uint64_t number : needed) {
    const Buffer block = core_.pool.Get(kBlockBytes);
    Task<Status> reading =
        core_.members.ReadBytes(ssd, g.RingOffset(number % g.ring_blocks), block.span());
    const Status read = co_await reading;
    if (!Same()) {
      co_return;
    }
    ++findings_.report.metadata_blocks_checked;
    const Result<RingBlock> decoded =
        read.ok() ? DecodeRingBlock(block.span(), core_.identity.array_uuid, g, ssd)
                  : Fail(ErrorCode::kIo, "unreadable");
    if (!decoded.ok() || decoded->number != number) {
      Found(ssd, "block " + std::to_string(number) + " of the journal ring is damaged", elsewhere_);
    }
  }
}

Task<Status> MetadataScrubber::Heal() {
  if (!in_superblocks_.empty()) {
    for (int copy = 0; copy < 2; ++copy) {
      Task<Status> writing = parts_.superblocks.Write();
      const Status written = co_await writing;
      if (!written.ok()) {  // of that device the other copy alone is whole
        core_.Stop(written.error());
        co_return eplog::Fail(written.error());
      }
    }
  }
  if (!elsewhere_.empty()) {
    EPLOG_CO_AWAIT(parts_.checkpointer.Checkpoint(CheckpointKind::kFull));
  }
  for (const auto& list : {in_superblocks_, elsewhere_}) {
    for (const size_t at : list) {
      findings_.SetOutcome(at, Finding::Outcome::kHealed);
      ++findings_.report.healed;
    }
  }
  co_return OkStatus();
}

}  // namespace eplog
