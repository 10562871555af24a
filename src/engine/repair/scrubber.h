// Scrubber: reads everything that the devices hold for the array and says what is wrong: every
// chunk against its CRC, the parity of every row, every live log stripe. On request what is wrong
// is healed. Works beside everything else; what is missing with a missing device is not wrong.
// Where both together are more than parity replaces, what cannot be read of volumes is named as
// lost.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/core/core.h"
#include "engine/core/findings.h"
#include "engine/log/appender.h"
#include "engine/read/chunk_reader.h"
#include "engine/read/row_batch.h"
#include "engine/repair/healer.h"
#include "engine/write/buffered_chunks.h"
#include "eplog/array.h"

namespace eplog {

class Scrubber {
 public:
  // Without a healer nothing can be healed.
  Scrubber(Core& core, ChunkReader& reader, Appender& appender, const BufferedChunks& buffered,
           Healer* healer, Findings& findings)
      : core_(core),
        reader_(reader),
        appender_(appender),
        buffered_(buffered),
        healer_(healer),
        findings_(findings),
        report_(findings.report) {}

  struct Options {
    bool heal = false;
    bool yield = true;              // rest beside requests of others
    const bool* closing = nullptr;  // when this becomes true it ends with kShutdown
    uint32_t first_stripe = 0;
    // What is before this stripe has been read; of the problems found until then, those that a
    // scrub which goes on there does not meet again, and how many of these are lost chunks.
    std::function<void(uint32_t next_stripe, uint64_t problems_before, uint64_t lost_before)> mark;
  };
  // Fails if it could not come to its end: the array closes, or has stopped.
  Task<Status> Run(Options options, const Progress& progress);
  // Something that was found wrong still is.
  [[nodiscard]] bool left_something() const { return left_in_rows_ + left_in_log_ != 0; }
  // Every slot is referenced once and taken, and nothing lies outside of volumes. At rest only.
  void CheckReferences();

 private:
  struct Span {
    LogStripeId id = kNone;
    uint64_t sequence = 0;
  };
  Task<Status> ScrubRows();
  // What is wrong of a row or of a log stripe, by findings.
  struct Wrong {
    std::vector<size_t> findings;  // all
    std::vector<size_t> lost;      // of these, data that cannot be read
    bool there = false;            // some are on devices, and not only missing with one
  };
  struct WrongRow {
    StripeIndex stripe;
    Wrong wrong;
  };
  Task<Status> ScrubBatch(std::vector<StripeIndex> stripes);
  Task<void> CheckBatch(std::vector<StripeIndex> stripes, std::vector<WrongRow>& wrong);
  Task<Status> ScrubLogStripe(Span stripe);
  struct LogStripe;
  Task<void> CheckLogStripe(Span stripe, Wrong& wrong);
  Task<void> CheckMembers(LogStripe& stripe, Wrong& wrong);
  Task<void> CheckLogChunks(LogStripe& stripe, Wrong& wrong);
  void Encode(const LogStripe& stripe, const Buffer& into) const;
  // The log chunk is on the device, which joined.
  Task<bool> IsOnJoined(const LogStripe& stripe, uint32_t j);
  void ForgetLostSsds(LogStripe& stripe) const;
  [[nodiscard]] bool CanBeDecoded(const LogStripe& stripe) const;
  void NameLostMembers(const LogStripe& stripe, Wrong& wrong);
  Task<Status> HealStripe(StripeIndex stripe, bool& healed);
  void SetOutcomes(const Wrong& wrong, bool healed);
  void AddLost(ChunkIndex chunk, Wrong& wrong);
  Finding Describe(StripeIndex stripe, uint32_t index, std::string what) const;
  void CheckRow(RowBatch& batch, size_t at, Wrong& wrong);
  [[nodiscard]] uint64_t LostInRow(RowBatch& batch, size_t at) const;
  // A read of the chunk is one of a volume, and gives what the tables say.
  [[nodiscard]] bool IsReadFromTables(ChunkIndex chunk) const;
  // It was away; what it may have lost is found and healed before it counts.
  [[nodiscard]] bool IsBeingVerified(DeviceIndex ssd) const {
    return core_.devices().IsUnverified(ssd);
  }
  [[nodiscard]] bool Busy() const;
  // Or why nothing more is read.
  [[nodiscard]] Status MayGoOn() const { return core_.ScrubMayGoOn(options_.closing); }
  Task<void> Breathe(uint64_t since_us);
  void Tell(uint64_t done) const;

  Core& core_;
  ChunkReader& reader_;
  Appender& appender_;
  const BufferedChunks& buffered_;
  Healer* healer_;
  Findings& findings_;
  CheckReport& report_;
  Options options_;
  const Progress* progress_ = nullptr;
  uint64_t total_ = 0;
  uint64_t log_stripes_ = 0;
  uint64_t left_in_rows_ = 0;
  uint64_t left_in_log_ = 0;  // problems: who goes on reads all log stripes anew
  uint64_t lost_in_log_ = 0;  // chunks: of them
};

}  // namespace eplog
