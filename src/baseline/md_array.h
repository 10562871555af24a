// MdArray: RAID-5 and RAID-6 in place, as Linux MD does it: what it would send to its members for
// the same requests, this sends to devices. (With 3 or 4 parity chunks it is what MD would be if it
// could.) What is modelled, what is not and how close it comes: docs/baselines.md.
//
// A write is cut into the pages of lines (placement.h). Each line is handled by itself: it reads
// what md_plan.h says, takes all the writes that have come meanwhile into its pages at once, writes
// the data pages and the parity, and acknowledges when all of them are written. Pages stay in a
// cache (line_cache.h), so neighbours in place and time are read once. Reads go to the SSDs past
// the cache, each chunk in one request, as long as no SSD has failed; with failed ones they go
// through lines, too, page by page.
//
// When Write has returned success, data and parity are on the devices, durable after Flush. There
// is no bitmap and no journal: a crash leaves the write hole, as it does there.
#pragma once

#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "baseline/block_target.h"
#include "baseline/line_cache.h"
#include "baseline/md_plan.h"
#include "baseline/placement.h"
#include "baseline/plug.h"
#include "baseline/submitter.h"
#include "eplog/device.h"
#include "eplog/event_loop.h"
#include "erasure/erasure.h"

namespace eplog {

struct MdOptions {
  uint32_t parity = 2;  // m
  uint32_t chunk_bytes = kMinChunkBytes;
  uint32_t cached_lines = 256;  // stripe_cache_size; at least 8
  ParityChoice choice = ParityChoice::kFewerReads;
  PlugLimits plug = {.request_bytes = uint64_t{1} << 20, .requests = 64};  // as in Linux
  // Requests come from one thread, which Linux lets wait inside a request that has to wait for
  // another one or for a free line: so do all behind it. Else each waits for itself.
  bool one_submitter = false;
};

class MdArray final : public BlockTarget, private LineOwner {
 public:
  // `ssds`: n of them, borrowed; null where one has failed, at most m. All that they hold is taken
  // for consistent (as with --assume-clean): fresh ones are zeros, and so is their parity.
  // kInvalidArgument as Placement::Make; kTooManyFailures.
  static Result<std::unique_ptr<MdArray>> Make(EventLoop& loop, std::vector<Device*> ssds,
                                               const MdOptions& options);
  ~MdArray() override = default;
  MdArray(const MdArray&) = delete;
  MdArray& operator=(const MdArray&) = delete;

  Task<Status> Read(uint64_t offset_bytes, std::span<std::byte> into) override;
  Task<Status> Write(uint64_t offset_bytes, std::span<const std::byte> from) override;
  // Does nothing, as MD does not pass discards on by default.
  Task<Status> Trim(uint64_t offset_bytes, uint64_t length_bytes) override;
  Task<Status> Flush() override;
  Task<Status> Commit() override;
  Task<Status> Close() override;

  [[nodiscard]] uint64_t size_bytes() const override { return placement_.size_bytes(); }
  [[nodiscard]] const TargetTraffic& traffic() const override { return traffic_; }
  [[nodiscard]] std::string name() const override { return "md"; }
  [[nodiscard]] const Placement& placement() const { return placement_; }

 private:
  MdArray(EventLoop& loop, std::vector<Device*> ssds, const Placement& placement,
          const MdOptions& options);

  // ---- requests (md_array.cc)
  [[nodiscard]] Status CheckRequest(uint64_t offset_bytes, uint64_t length_bytes) const;
  Task<Status> ReadChunks(uint64_t offset_bytes, std::span<std::byte> into);
  Task<Status> ReadLines(uint64_t offset_bytes, std::span<std::byte> into);
  [[nodiscard]] std::vector<LinePiece> CutPieces(uint64_t offset_bytes, std::byte* memory,
                                                 uint64_t length_bytes, LineRequest& request) const;
  Task<Submitter::Turn> Submit();
  Task<void> AddWrites(std::span<const LinePiece> pieces);
  Task<void> AddReads(std::span<const LinePiece> pieces);

  // ---- lines (md_lines.cc)
  void Enqueue(Line& line);
  Task<void> HandleQueue();
  void Handle(Line& line);
  void EndFlight(Line& line);
  void ServeReads(Line& line);
  [[nodiscard]] LineView ViewOf(const Line& line) const;
  [[nodiscard]] uint64_t FailedPositions(uint64_t line) const;
  void StartReads(Line& line, const LinePlan& plan);
  void AddParts(Line& line, uint64_t positions, IoClass io_class);
  void Decode(Line& line, uint64_t wanted);
  void StartWrites(Line& line, LineStep step);
  void TakeWrites(Line& line);
  void ModifyParity(Line& line, uint64_t written);
  void EncodeParity(Line& line);
  void FlightDone(Line& line) override { Enqueue(line); }

  EventLoop& loop_;
  std::vector<Device*> ssds_;
  Placement placement_;
  MdOptions options_;
  ErasureCode code_;
  TargetTraffic traffic_;
  BufferPool pool_;
  Buffer scratch_;  // the old content of a page, then its difference; parity of failed SSDs
  Plug plug_;
  LineCache cache_;
  std::deque<Line*> queue_;
  Submitter submitter_;
  bool handling_ = false;  // a turn through the queue is under way or will come
  Event drained_;          // writes were taken into the pages of some line
  WaitGroup requests_;
  bool degraded_ = false;
  bool closed_ = false;
};

}  // namespace eplog
