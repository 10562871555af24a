// LineCache: a bounded number of lines in memory, each with the pages that are known and the
// requests that wait for it. What Linux calls the stripe cache.
//
// A line is active while a request waits for it or I/O of it is in flight; active lines stay. The
// others keep what they know until their place is needed, the longest released first. Lines are
// spread over 8 sets by number (line mod 8), each with its own share of places and its own order:
// Linux does so to part its locks, and which line goes first follows from it. When a set has no
// place left, whoever wants one waits until it has, and until a quarter of all places is inactive.
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/buffer.h"
#include "base/types.h"
#include "baseline/placement.h"
#include "baseline/plug.h"
#include "runtime/sync.h"

namespace eplog {

// A write or read that waits for lines. It ends when none is left.
struct LineRequest {
  explicit LineRequest(EventLoop& loop) : pieces(loop) {}
  WaitGroup pieces;
  Status status;  // the first failure
};

struct LinePiece {
  PagePiece page;
  LineRequest* request = nullptr;
  std::byte* memory = nullptr;  // of this piece; only read for a write
};

struct Line;

// Hears when the last part in flight of a line is done.
class LineOwner {
 public:
  virtual void FlightDone(Line& line) = 0;

 protected:
  ~LineOwner() = default;
};

struct Line final : public PartWaiter {
  enum class Flight : uint8_t { kNone, kReading, kWriting };

  uint64_t number = 0;
  Buffer pages;                    // n, by position
  uint64_t uptodate = 0;           // mask of positions
  std::vector<LinePiece> reads;    // wait for pages
  std::vector<LinePiece> writes;   // not yet taken into the pages
  std::vector<LinePiece> writing;  // taken; on their way to the devices
  // Sectors that `writes` cover, of each data page.
  std::array<uint8_t, kMaxSsds> covered{};

  LineOwner* owner = nullptr;
  Flight flight = Flight::kNone;
  uint32_t parts_in_flight = 0;
  Status flight_status;  // the first failure
  bool queued = false;   // to be handled
  bool active = false;
  std::list<Line*>::iterator inactive_at;

  [[nodiscard]] std::byte* page(uint32_t position) const {
    return pages.data() + size_t{position} * kPageBytes;
  }
  [[nodiscard]] bool has_work() const { return !reads.empty() || !writes.empty(); }
  // A part's tag is the position of its page. What was read is up to date.
  void PartDone(uint32_t tag, const Status& status) override;
};

class LineCache {
 public:
  // `lines`: at least 8; rounded up to a multiple of it. `pages`: of each line.
  LineCache(EventLoop& loop, BufferPool& pool, LineOwner& owner, uint32_t lines, uint32_t pages);

  // The line, active. Whoever gets it gives it work before suspending, or releases it.
  Task<Line*> Get(uint64_t number);
  // It has no work. What it knows stays.
  void Release(Line& line);

  [[nodiscard]] uint32_t active() const { return active_; }

 private:
  static constexpr size_t kSets = 8;
  Line* TryGet(uint64_t number);
  void Activate(Line& line);
  [[nodiscard]] bool MayGoOn(size_t set) const;

  std::vector<std::unique_ptr<Line>> lines_;
  std::array<std::list<Line*>, kSets> inactive_;  // longest released first
  std::unordered_map<uint64_t, Line*> known_;
  uint32_t active_ = 0;
  bool blocked_ = false;
  Event released_;
};

}  // namespace eplog
