// PageCache: what Linux's page cache is for the writes of programs that do not ask for O_DIRECT, in
// front of a baseline. Writes stay in RAM until a flush and replace each other there; then all of
// them are written in the order of their addresses, neighbours in one request.
//
// Durability is that of below: Flush. Reads take what is dirty from here, and go below unless all
// of it is; nothing clean is kept. Written back is also what exceeds a limit, by the write that
// exceeds it (Linux begins earlier and beside it, after 30 s too: not modelled).
#pragma once

#include <array>
#include <map>
#include <memory>

#include "base/buffer.h"
#include "baseline/block_target.h"
#include "baseline/placement.h"
#include "eplog/event_loop.h"
#include "runtime/sync.h"

namespace eplog {

class PageCache final : public BlockTarget {
 public:
  // At most about `limit_bytes` are dirty.
  PageCache(EventLoop& loop, std::unique_ptr<BlockTarget> below, uint64_t limit_bytes);

  Task<Status> Read(uint64_t offset_bytes, std::span<std::byte> into) override;
  Task<Status> Write(uint64_t offset_bytes, std::span<const std::byte> from) override;
  Task<Status> Trim(uint64_t offset_bytes, uint64_t length_bytes) override;
  Task<Status> Flush() override;
  Task<Status> Commit() override;
  Task<Status> Close() override;

  [[nodiscard]] uint64_t size_bytes() const override { return below_->size_bytes(); }
  // Requests are those of the user, all else is below's.
  [[nodiscard]] const TargetTraffic& traffic() const override;
  [[nodiscard]] size_t pending_lines() const override { return below_->pending_lines(); }
  [[nodiscard]] std::string name() const override { return below_->name(); }

 private:
  static constexpr uint32_t kPageSectors = kPageBytes / kSectorBytes;
  struct Page {
    std::array<std::byte, kPageBytes> bytes;
    uint8_t written = 0;  // mask of sectors
  };
  // By number. Shared with reads under way.
  using Pages = std::map<uint64_t, std::shared_ptr<Page>>;
  struct Run {
    uint64_t begin = 0;  // bytes of the volume
    uint64_t end = 0;
  };

  [[nodiscard]] bool AllDirty(uint64_t offset_bytes, uint64_t length_bytes) const;
  [[nodiscard]] std::vector<Run> DirtyRuns() const;
  Task<Status> WriteDirty();
  Task<Status> WriteBack();
  Task<Status> WriteRun(Run run);

  EventLoop& loop_;
  std::unique_ptr<BlockTarget> below_;
  uint64_t limit_bytes_;
  BufferPool pool_;
  Pages dirty_;
  Pages leaving_;  // on their way to below
  bool writing_back_ = false;
  uint64_t begun_ = 0;  // write-backs so far
  uint64_t ended_ = 0;
  Status failure_;  // what was acknowledged is lost: so every flush says from then on
  Event written_back_;
  mutable TargetTraffic traffic_;
};

}  // namespace eplog
