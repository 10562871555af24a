#include "trace/trace_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace eplog {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;
constexpr size_t kHeadBytes = size_t{64} << 10;
constexpr uint64_t kRecordsAtLeast = 1000;
static_assert(kBufferBytes > 2 * kMaxRecordBytes);

}  // namespace

TraceFile::TraceFile(std::string name, std::unique_ptr<ByteSource> bytes,
                     const TraceOptions& options)
    : name_(std::move(name)),
      bytes_(std::move(bytes)),
      options_(options),
      buffer_(new char[kBufferBytes]) {}

Result<std::unique_ptr<TraceSource>> TraceFile::Open(std::string name,
                                                     std::unique_ptr<ByteSource> bytes,
                                                     const TraceOptions& options) {
  std::unique_ptr<TraceFile> file(new TraceFile(std::move(name), std::move(bytes), options));
  while (file->size_ < kHeadBytes && !file->last_) {
    EPLOG_TRY(file->Fill());
  }
  EPLOG_TRY(file->Recognise());
  return std::unique_ptr<TraceSource>(std::move(file));
}

Status TraceFile::Recognise() {
  const std::string_view head(buffer_.get(), std::min(size_, kHeadBytes));
  if (head.empty()) {
    return Fail(ErrorCode::kCorrupt, fmt::format("{}: it is empty: no trace", name_));
  }
  if (options_.format == TraceFormat::kDetect) {
    auto format = DetectFormat(head, last_ && size_ <= kHeadBytes);
    if (!format.ok()) {
      return Fail(format.error().code, fmt::format("{}: {}", name_, format.error().message));
    }
    options_.format = *format;
  }
  decoder_ = MakeDecoder(options_.format, options_.columns, options_.blkparse_action);
  if (decoder_->is_text() && head.find('\0') != std::string_view::npos) {
    return Fail(ErrorCode::kCorrupt,
                fmt::format("{}: it is binary, but {} is text: name another format, or none", name_,
                            format()));
  }
  return OkStatus();
}

// Moves what is left to the front and reads behind it.
Status TraceFile::Fill() {
  std::memmove(buffer_.get(), buffer_.get() + at_, size_ - at_);
  size_ -= at_;
  at_ = 0;
  EPLOG_CHECK(size_ < kBufferBytes, "a decoder gets on with a full buffer");
  auto got = bytes_->Read(std::span(buffer_.get(), kBufferBytes).subspan(size_));
  if (!got.ok()) {
    Error error = got.error();
    error.message = report_.records == 0 ? fmt::format("{}: {}", name_, error.message)
                                         : fmt::format("{}: behind {} {}: {}", name_,
                                                       decoder_->is_text() ? "line" : "record",
                                                       decoder_->number(), error.message);
    return Fail(std::move(error));
  }
  size_ += *got;
  last_ = *got == 0;
  return OkStatus();
}

bool TraceFile::TooManyBad(uint64_t records) const {
  return static_cast<unsigned __int128>(report_.bad) * 1'000'000 >
         static_cast<unsigned __int128>(records) * options_.max_bad_per_million;
}

tl::unexpected<Error> TraceFile::TooManyError() const {
  const BadRecord& first = report_.first_bad.front();
  const char* const what = decoder_->is_text() ? "line" : "record";
  const std::string rest = report_.bad == 1 ? ""
                                            : fmt::format(" (the first of {} bad ones among {})",
                                                          report_.bad, report_.records);
  return Fail(ErrorCode::kCorrupt,
              fmt::format("{}: {} {}: {}{}; more than {:g} % of bad {}s stops the run (--max-bad)",
                          name_, what, first.number, first.reason, rest,
                          static_cast<double>(options_.max_bad_per_million) / 1e4, what));
}

Status TraceFile::Bad(std::string reason) {
  ++report_.bad;
  if (report_.first_bad.size() < kMaxBadKept) {
    report_.first_bad.push_back({decoder_->number(), std::move(reason)});
  }
  if (TooManyBad(std::max(report_.records, kRecordsAtLeast))) {
    return TooManyError();
  }
  return OkStatus();
}

std::string TraceFile::Nonsense(const TraceRequest& request) const {
  if (request.time_us > kMaxTraceTimeUs) {
    return fmt::format("a time of {} us is absurd", request.time_us);
  }
  if (request.op == TraceOp::kFlush) {
    return {};
  }
  if (request.length_bytes == 0) {
    return fmt::format("a {} of no bytes", TraceOpName(request.op));
  }
  if (request.op != TraceOp::kTrim && request.length_bytes > kMaxTraceRequestBytes) {
    return fmt::format("a {} of {} bytes is absurd: the most is 1 GiB", TraceOpName(request.op),
                       request.length_bytes);
  }
  if (request.offset_bytes > options_.end_bytes ||
      request.length_bytes > options_.end_bytes - request.offset_bytes) {
    return fmt::format("a {} of {} bytes at {} goes past the end, {}{}", TraceOpName(request.op),
                       request.length_bytes, request.offset_bytes, options_.end_bytes,
                       options_.end_bytes == kMaxTraceOffsetBytes ? " (1 EiB)" : "");
  }
  return {};
}

Status TraceFile::TakeRequest(TraceRequest request, std::span<TraceRequest> out, size_t& count) {
  if (std::string wrong = Nonsense(request); !wrong.empty()) {
    return Bad(std::move(wrong));
  }
  if (!decoder_->has_times()) {
    request.time_us = 0;
  } else if (!started_) {
    base_us_ = request.time_us;
    latest_us_ = request.time_us;
  } else if (request.time_us < latest_us_) {
    if (!options_.unordered) {
      const uint64_t back_us = latest_us_ - request.time_us;
      return Bad(
          fmt::format("time goes back by {}.{:06} s; --unordered takes such requests as if "
                      "they came at once",
                      back_us / 1'000'000, back_us % 1'000'000));
    }
    ++report_.unordered;
    request.time_us = latest_us_;
  }
  started_ = true;
  latest_us_ = request.time_us;
  request.time_us -= base_us_;
  out[count++] = request;
  ++report_.requests;
  return OkStatus();
}

Status TraceFile::AtEnd() const {
  if (report_.bad != 0 && TooManyBad(report_.records)) {
    return TooManyError();
  }
  if (report_.records == 0) {
    return Fail(ErrorCode::kCorrupt, fmt::format("{}: there is no request in it", name_));
  }
  return OkStatus();
}

Result<size_t> TraceFile::Read(std::span<TraceRequest> out) {
  size_t count = 0;
  while (count < out.size()) {
    const Decoder::Step step =
        decoder_->Next(std::string_view(buffer_.get() + at_, size_ - at_), last_);
    at_ += step.consumed;
    switch (step.kind) {
      case Decoder::Kind::kMore:
        if (last_) {
          if (count == 0) {
            EPLOG_TRY(AtEnd());
          }
          return count;
        }
        EPLOG_TRY(Fill());
        break;
      case Decoder::Kind::kRequest:
        ++report_.records;
        EPLOG_TRY(TakeRequest(decoder_->request(), out, count));
        break;
      case Decoder::Kind::kBad:
        ++report_.records;
        EPLOG_TRY(Bad(decoder_->reason()));
        break;
      case Decoder::Kind::kOther:
        ++report_.other;
        break;
      case Decoder::Kind::kNothing:
        break;
    }
  }
  return count;
}

}  // namespace eplog
