// PlArray: classic parity logging. Data lies in place on the SSDs, and so does its parity, which is
// brought up to date late: a write to a part of a line reads the old data, writes the new data and
// appends what the parity changes by to the log devices; a parity commit merges these differences
// with the old parity. (The EPLOG paper's PL, its supplement's experiments S2 and S6 to S9.)
//
// * All that one request changes in a line makes one difference for each parity chunk: m pages, one
//   on each log device.
// * Whole lines are written with their parity at once; differences that the line had are void.
// * Commit reads the log in its order, merges the differences of each line in RAM, and reads and
//   writes the parity of each line once (once for each window, if there is more than fits in
//   commit_memory_bytes). It goes on beside requests. It comes when asked for, when the log is
//   full, and at Close.
// * Reads go to the SSDs; what a failed one held is decoded, from parity with its differences.
//
// The log holds differences and nothing else; the index is in RAM (parity_log.h). So this writes
// less than a parity logging that survives crashes would.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "baseline/block_target.h"
#include "baseline/line_locks.h"
#include "baseline/parity_log.h"
#include "baseline/placement.h"
#include "baseline/plug.h"
#include "eplog/device.h"
#include "eplog/event_loop.h"
#include "erasure/erasure.h"
#include "runtime/sync.h"

namespace eplog {

struct PlOptions {
  uint32_t chunk_bytes = kMinChunkBytes;
  PlugLimits plug;
  uint64_t commit_memory_bytes = uint64_t{64} << 20;  // of merged differences
};

class PlArray final : public BlockTarget {
 public:
  // `ssds`: n of them; `logs`: m, one for each parity chunk of a stripe. Borrowed; null where one
  // has failed, at most m together. What the SSDs hold is taken for consistent, and the log for
  // empty. kInvalidArgument as Placement::Make; kTooManyFailures; kNoSpace: a log device without
  // room for a page.
  static Result<std::unique_ptr<PlArray>> Make(EventLoop& loop, std::vector<Device*> ssds,
                                               std::vector<Device*> logs, const PlOptions& options);
  ~PlArray() override = default;
  PlArray(const PlArray&) = delete;
  PlArray& operator=(const PlArray&) = delete;

  Task<Status> Read(uint64_t offset_bytes, std::span<std::byte> into) override;
  Task<Status> Write(uint64_t offset_bytes, std::span<const std::byte> from) override;
  // Does nothing.
  Task<Status> Trim(uint64_t offset_bytes, uint64_t length_bytes) override;
  Task<Status> Flush() override;
  Task<Status> Commit() override;
  Task<Status> Close() override;

  [[nodiscard]] uint64_t size_bytes() const override { return placement_.size_bytes(); }
  [[nodiscard]] const TargetTraffic& traffic() const override { return traffic_; }
  [[nodiscard]] std::string name() const override { return "pl"; }
  [[nodiscard]] const Placement& placement() const { return placement_; }
  [[nodiscard]] size_t pending_lines() const override { return log_.lines(); }

 private:
  PlArray(EventLoop& loop, std::vector<Device*> devices, const Placement& placement,
          uint64_t places, const PlOptions& options);

  // ---- requests (pl_array.cc)
  [[nodiscard]] Status CheckRequest(uint64_t offset_bytes, uint64_t length_bytes) const;
  Task<Status> ReadDegraded(uint64_t offset_bytes, std::span<std::byte> into);
  Task<Status> ReadLine(std::span<const PagePiece> pieces, std::byte* into);
  Task<Status> WriteLine(std::span<const PagePiece> pieces, const std::byte* from);
  Task<Status> WriteWhole(uint64_t line, std::span<const PagePiece> pieces, const std::byte* from);
  Task<Status> WritePart(uint64_t line, std::span<const PagePiece> pieces, const std::byte* from);

  // ---- lines (pl_lines.cc)
  [[nodiscard]] DeviceIndex LogOf(uint32_t parity) const {
    return DeviceIndex(static_cast<uint8_t>(placement_.n() + parity));
  }
  [[nodiscard]] bool live(DeviceIndex device) const { return devices_[device.value] != nullptr; }
  // Mask of positions whose SSD is there.
  [[nodiscard]] uint64_t LivePositions(uint64_t line) const;
  // A place in the log, after a commit if there is none. Never while holding a line.
  Task<Status> Reserve();
  // Lines that are loaded are locked; `pages` has n pages, by position.
  // The data pages `wanted`, decoded where need be.
  Task<Status> Load(uint64_t line, uint64_t wanted, const Buffer& pages, IoClass io_class);
  [[nodiscard]] uint64_t DecodeSources(uint64_t line, uint64_t wanted) const;
  Task<Status> AddLogged(uint64_t line, uint64_t positions, const Buffer& pages);
  void AddPages(PartGroup& group, uint64_t line, uint64_t positions, const Buffer& pages,
                IoClass io_class) const;
  void AddDifferences(PartGroup& group, uint64_t line, uint64_t place,
                      const Buffer& differences) const;
  void TakePieces(std::span<const PagePiece> pieces, const std::byte* from, const Buffer& pages,
                  const Buffer& differences) const;
  void Encode(const Buffer& pages) const;

  // ---- commit (pl_commit.cc)
  struct Merged {
    std::vector<uint64_t> places;
    size_t at = 0;  // in the window's memory
  };
  struct Window;
  Task<Status> CommitAll();  // `committing_` is held, or nobody else is left
  Task<Status> CommitWindow(Window& window);
  Task<Status> MergeLog(Window& window);
  Task<Status> MergeSome(Window& window, std::span<const ParityLog::Difference> differences);
  Task<Status> CommitLine(const Window& window, uint64_t line, const Merged& merged);
  Task<Status> MergedParity(const Window& window, uint64_t line, const Merged& merged,
                            const Buffer& pages);
  Task<Status> EncodedParity(uint64_t line, const Buffer& pages);

  EventLoop& loop_;
  std::vector<Device*> devices_;  // SSDs, then log devices
  Placement placement_;
  PlOptions options_;
  ErasureCode code_;
  TargetTraffic traffic_;
  BufferPool pool_;
  Plug plug_;
  ParityLog log_;
  LineLocks locks_;
  AsyncMutex committing_;
  WaitGroup requests_;
  bool ssd_failed_ = false;
  bool log_failed_ = false;
  bool closed_ = false;
};

}  // namespace eplog
