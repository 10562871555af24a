// Feed: the requests of a replay, ready to be sent: of all traces in turn, all their volumes in
// one, the places made dense (trace/compact.h), ranges widened to whole sectors.
//
// A profile says how large its working set is, and is dense. A trace is read once before, to find
// out: so it must be a file.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "eplog/result.h"
#include "replay/settings.h"
#include "trace/compact.h"
#include "trace/source.h"

namespace eplog {

class Feed {
 public:
  // `looked_at` is told how many requests were read so far, of those that are read before.
  static Result<std::unique_ptr<Feed>> Open(const ReplaySettings& settings,
                                            std::function<void(uint64_t)> looked_at);

  // Requests stay below it.
  [[nodiscard]] uint64_t span_bytes() const { return span_bytes_; }
  [[nodiscard]] bool has_times() const { return has_times_; }
  // Requests in all; 0 where that is not known.
  [[nodiscard]] uint64_t total() const { return total_; }

  // From the first request again.
  Status Rewind();
  // Nothing at the end.
  Result<std::optional<TraceRequest>> Next();

 private:
  Feed(const ReplaySettings& settings, std::function<void(uint64_t)> looked_at)
      : settings_(settings), looked_at_(std::move(looked_at)), compactor_(true) {}
  Status LookThrough();
  Status OpenNext();
  Result<bool> Fill();
  uint32_t NumberOf(const TraceSource& source, uint32_t volume);
  [[nodiscard]] std::optional<TraceRequest> Place(const TraceRequest& request) const;

  ReplaySettings settings_;
  std::function<void(uint64_t)> looked_at_;
  Compactor compactor_;
  std::map<std::string, uint32_t> numbers_;  // of volumes
  bool dense_ = false;
  bool has_times_ = true;
  uint64_t span_bytes_ = 0;
  uint64_t total_ = 0;

  std::unique_ptr<TraceSource> source_;
  size_t next_trace_ = 0;
  uint64_t round_ = 0;
  uint64_t given_ = 0;
  uint64_t time_base_us_ = 0;  // of this trace
  uint64_t last_us_ = 0;
  std::vector<TraceRequest> batch_;
  size_t batch_at_ = 0;
};

}  // namespace eplog
