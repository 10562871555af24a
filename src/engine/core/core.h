// Core: what all parts of one open array share. Plain data and small services; the parts (appender,
// flusher, committer ...) hold a reference to it and to each other. One thread owns everything
// here.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/buffer.h"
#include "base/random.h"
#include "base/types.h"
#include "device/members.h"
#include "engine/core/commit_cost.h"
#include "engine/core/device_states.h"
#include "engine/core/hooks.h"
#include "eplog/event_loop.h"
#include "eplog/options.h"
#include "eplog/status.h"
#include "erasure/erasure.h"
#include "format/content_checksum.h"
#include "format/superblock.h"
#include "layout/geometry.h"
#include "metadata/state.h"
#include "rings/journal_rings.h"
#include "rings/log_ring.h"
#include "runtime/sync.h"
#include "space/slot_space.h"

namespace eplog {

struct Core {
  Core(EventLoop& event_loop, std::vector<Device*> devices, const Superblock& superblock,
       const OpenOptions& open_options, EngineHooks* open_hooks = nullptr)
      : loop(event_loop),
        options(open_options),
        hooks(open_hooks != nullptr ? *open_hooks : no_hooks),
        identity(superblock),
        geometry(identity.geometry),
        checksum(hooks.canary == Canary::kContentByCrc ? 1 : identity.version, identity.array_uuid),
        members(event_loop, std::move(devices)),
        code(geometry.n, geometry.m),
        state(std::make_unique<State>(geometry)),
        space(geometry),
        rings(event_loop, members, geometry, identity.array_uuid, pool),
        random(open_options.entropy),
        commit_cost(geometry),
        space_changed(event_loop),
        append(event_loop),
        buffers_changed(event_loop),
        kick(event_loop),
        settled(event_loop),
        devices_(members, geometry) {
    if (hooks.before_io) {
      members.set_before_io(hooks.before_io);
    }
    space.set_lowest_first(hooks.lowest_slot_first);
    rings.set_max_headers(hooks.headers_a_ring_block);
    rings.set_in_order(hooks.rings_in_order);
    members.set_drop_flushes(hooks.canary == Canary::kFlushDropped);
    members.set_retry_flushes(hooks.canary == Canary::kFlushRetried);
  }

  EventLoop& loop;
  OpenOptions options;
  EngineHooks no_hooks;
  EngineHooks& hooks;
  // Array UUID, geometry, name, journal mode. What is of a device means nothing here, and epoch,
  // base, members and checkpoint are those of before the opening.
  Superblock identity;
  const Geometry& geometry;
  const ContentChecksum checksum;
  BufferPool pool;
  MemberSet members;
  ErasureCode code;
  std::unique_ptr<State> state;
  SlotSpace space;
  JournalRings rings;
  Random random;
  Traffic traffic;
  LogBytes log_bytes;       // of entries
  Traffic lifetime_before;  // of earlier lives, from the checkpoint

  uint64_t last_request_us = 0;  // of a user; loop time

  const CommitCost commit_cost;
  Event space_changed;    // slots or log room may have become free
  Event append;           // the appender should look whether it can make an entry
  Event buffers_changed;  // a chunk in a write buffer became ready, left or was given up
  Event kick;             // the keeper should look whether something is due or short

  // Which devices count, and for what. Only Membership changes that.
  [[nodiscard]] const DeviceStates& devices() const { return devices_; }
  Event settled;  // a change of them is over, and the parts know; or the array has stopped
  Task<void> Settled() {
    while (devices_.changing() && !stop_error) {
      co_await settled.Wait();
    }
  }
  // By SSD: the first checkpoint, by its generation, that began while it was there. Kept by those
  // that write checkpoints and give them SSDs.
  static constexpr uint64_t kNoneYet = UINT64_MAX;
  std::array<uint64_t, kMaxDevices> has_checkpoint_from{};
  [[nodiscard]] bool MustHavePagesOf(uint64_t generation, DeviceIndex ssd) const {
    return generation >= has_checkpoint_from[ssd.value];
  }

  // Opened by force: chunks of records that are kept though they are not whole. By device, with the
  // slot's byte offset on SSDs, the chunk's place on log devices.
  std::set<std::pair<DeviceIndex, uint64_t>> found_wrong;
  bool left_behind = false;  // opened by force: LossReport::left_behind
  // Opened by force: what was written last may read as its older content, and why.
  std::string log_damage;
  void NoteLogDamage(const std::string& why) {
    log_damage += (log_damage.empty() ? "" : "; ") + why;
  }

  // The array acknowledges nothing any more (no space below, or more than m devices lost). Reads
  // still work where they can; reopening recovers.
  std::optional<Error> stop_error;

  void Stop(const Error& error) {
    if (!stop_error) {
      stop_error = error;
      Tell(EventKind::kStopped, "", "the array has stopped: " + error.ToString());
      space_changed.NotifyAll();
      append.NotifyAll();
      buffers_changed.NotifyAll();
      kick.NotifyAll();
      settled.NotifyAll();
    }
  }
  [[nodiscard]] Status Running() const {
    if (!stop_error) {
      return OkStatus();
    }
    Error error = *stop_error;
    error.message = "the array has stopped: " + error.message;
    return Fail(std::move(error));
  }

  // Of an array that has stopped what is missing is no finding, and nobody may take what is left
  // for all.
  [[nodiscard]] Status ScrubMayGoOn(const bool* closing) const {
    Status status = closing != nullptr && *closing
                        ? Status(Fail(ErrorCode::kShutdown, "the array is closing"))
                        : Running();
    if (!status.ok()) {
      status.error().message = "the scrub is not complete: " + status.error().message;
    }
    return status;
  }

  void Tell(EventKind kind, std::string device, std::string text) const {
    ArrayEvent event;
    event.kind = kind;
    event.device = std::move(device);
    event.text = std::move(text);
    Tell(event);
  }
  void Tell(const ArrayEvent& event) const {
    if (options.on_event) {
      options.on_event(event);
    }
  }

  // Free slots on an SSD beyond those that committing all that is pending, and rebuilding, will
  // take for good.
  [[nodiscard]] uint32_t SlotsToSpare(DeviceIndex ssd) const {
    const uint32_t free = space.free(ssd);
    return free - std::min(free, state->owed(ssd) + state->absent(ssd));
  }

  // Everything counted in this life so far.
  [[nodiscard]] Traffic CurrentTraffic() const {
    Traffic sum = traffic;
    sum.ssd_metadata_bytes += rings.bytes_written();
    sum.log_header_bytes += log_bytes.headers;
    sum.log_chunk_bytes += log_bytes.chunks;
    sum.log_stripes_dead_early = state->pending.early_deaths();
    return sum;
  }

  // To read what is left: damage is told and stands in nobody's way.
  [[nodiscard]] bool forced() const { return options.read_only && options.force; }
  [[nodiscard]] bool canary(Canary which) const { return hooks.canary == which; }
  [[nodiscard]] State::Broken broken() const {
    return {canary(Canary::kRowNoVersions), canary(Canary::kTrimFreesAtOnce)};
  }
  // Flushes wait for the rings: always in mode `full`, and in mode `log` while a log device is not
  // `ok`.
  [[nodiscard]] bool rings_before_ack() const {
    return identity.journal_mode == static_cast<uint8_t>(JournalMode::kFull) ||
           devices_.logs_not_ok() != 0;
  }

 private:
  friend class Membership;
  DeviceStates devices_;
};

}  // namespace eplog
