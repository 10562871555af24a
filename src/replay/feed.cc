#include "replay/feed.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/types.h"

namespace eplog {
namespace {

constexpr size_t kBatch = 4096;

}  // namespace

Result<std::unique_ptr<Feed>> Feed::Open(const ReplaySettings& settings,
                                         std::function<void(uint64_t)> looked_at) {
  std::unique_ptr<Feed> feed(new Feed(settings, std::move(looked_at)));
  EPLOG_TRY(feed->LookThrough());
  EPLOG_TRY(feed->Rewind());
  return feed;
}

Status Feed::LookThrough() {
  const auto& names = settings_.traces;
  for (const std::string& name : names) {
    std::error_code error;
    const auto status = std::filesystem::status(name, error);
    if (name == "-" || (std::filesystem::exists(status) && !is_regular_file(status))) {
      return Fail(ErrorCode::kInvalidArgument,
                  name +
                      ": a trace is read twice, first for the places that it touches: give a "
                      "file instead of standard input or a pipe");
    }
  }
  if (names.size() == 1) {
    auto source = OpenTrace(names.front(), settings_.trace);
    if (!source.ok()) {
      return Fail(std::move(source).error());
    }
    if (const auto bytes = (*source)->working_set_bytes()) {
      dense_ = true;
      span_bytes_ = RoundUp(*bytes, kSectorBytes);
      has_times_ = (*source)->has_times();
      total_ = (*source)->progress().total * settings_.repeat;
      total_ = settings_.limit == 0 ? total_ : std::min(total_, settings_.limit);
      return OkStatus();
    }
  }
  std::vector<TraceRequest> batch(kBatch);
  for (const std::string& name : names) {
    auto source = OpenTrace(name, settings_.trace);
    if (!source.ok()) {
      return Fail(std::move(source).error());
    }
    size_t count = 0;
    do {
      auto read = (*source)->Read(batch);
      EPLOG_TRY(read);
      count = *read;
      for (size_t i = 0; i < count && (settings_.limit == 0 || total_ < settings_.limit); ++i) {
        batch[i].volume = NumberOf(**source, batch[i].volume);
        EPLOG_TRY(compactor_.Note(batch[i]));
        ++total_;
      }
      if (looked_at_) {
        looked_at_(total_);
      }
    } while (count != 0 && (settings_.limit == 0 || total_ < settings_.limit));
    has_times_ = has_times_ && (*source)->has_times();
  }
  compactor_.Seal();
  span_bytes_ = compactor_.span_bytes(0);
  total_ *= settings_.repeat;
  total_ = settings_.limit == 0 ? total_ : std::min(total_, settings_.limit);
  if (span_bytes_ == 0) {
    return Fail(ErrorCode::kInvalidArgument,
                names.front() + " holds no read and no write: there is nothing to replay");
  }
  return OkStatus();
}

// Each source numbers its volumes as they come; here they are known by name.
uint32_t Feed::NumberOf(const TraceSource& source, uint32_t volume) {
  if (source.volumes().size() <= volume) {
    return volume;
  }
  const auto next = static_cast<uint32_t>(numbers_.size());
  return numbers_.try_emplace(source.volumes()[volume], next).first->second;
}

Status Feed::Rewind() {
  round_ = given_ = time_base_us_ = last_us_ = 0;
  next_trace_ = batch_at_ = 0;
  batch_.clear();
  return OpenNext();
}

Status Feed::OpenNext() {
  auto source = OpenTrace(settings_.traces[next_trace_++], settings_.trace);
  if (!source.ok()) {
    return Fail(std::move(source).error());
  }
  source_ = std::move(*source);
  time_base_us_ = last_us_;
  return OkStatus();
}

// False at the end of everything.
Result<bool> Feed::Fill() {
  while (true) {
    batch_.resize(kBatch);
    batch_at_ = 0;
    auto read = source_->Read(batch_);
    EPLOG_TRY(read);
    batch_.resize(*read);
    if (*read != 0) {
      return true;
    }
    if (next_trace_ == settings_.traces.size()) {
      if (++round_ >= settings_.repeat) {
        return false;
      }
      next_trace_ = 0;
    }
    EPLOG_TRY(OpenNext());
  }
}

std::optional<TraceRequest> Feed::Place(const TraceRequest& request) const {
  if (request.op == TraceOp::kFlush) {
    return request;
  }
  auto placed = dense_ ? request : compactor_.Map(request);
  if (!placed) {
    return std::nullopt;
  }
  const uint64_t end = std::min(RoundUp(placed->end_bytes(), kSectorBytes), span_bytes_);
  placed->offset_bytes = RoundDown(placed->offset_bytes, kSectorBytes);
  placed->length_bytes = end - std::min(end, placed->offset_bytes);
  return placed->length_bytes == 0 ? std::nullopt : placed;
}

Result<std::optional<TraceRequest>> Feed::Next() {
  while (settings_.limit == 0 || given_ < settings_.limit) {
    if (batch_at_ == batch_.size()) {
      const Result<bool> more = Fill();
      EPLOG_TRY(more);
      if (!*more) {
        break;
      }
    }
    TraceRequest request = batch_[batch_at_++];
    request.volume = NumberOf(*source_, request.volume);
    request.time_us += time_base_us_;
    last_us_ = request.time_us;
    ++given_;
    if (auto placed = Place(request)) {
      return placed;
    }
  }
  return std::optional<TraceRequest>();
}

}  // namespace eplog
