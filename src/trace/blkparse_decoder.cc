// The text of blkparse, default format:
//
//   8,0    3      117     0.000694370   697  Q  WS 223490 + 8 [kjournald]
//   device cpu sequence   seconds       pid action rwbs sector + sectors [process]
//
// One kind of action stands for the requests: Q, as they were asked for, unless told otherwise; the
// same request appears again as G, I, D, C. In rwbs an F before the direction is a flush before the
// data, one behind it is FUA.
#include <fmt/format.h>

#include "trace/text.h"

namespace eplog::internal {
namespace {

constexpr uint64_t kBlkparseUnitsASecond = 1'000'000'000;

struct Rwbs {
  std::optional<TraceOp> op;
  bool preflush = false;
  bool fua = false;
};

Rwbs ReadRwbs(std::string_view text) {
  Rwbs out;
  for (const char c : text) {
    switch (c) {
      case 'R':
        out.op = TraceOp::kRead;
        break;
      case 'W':
        out.op = TraceOp::kWrite;
        break;
      case 'D':
        out.op = TraceOp::kTrim;
        break;
      case 'F':
        (out.op ? out.fua : out.preflush) = true;
        break;
      default:  // S sync, A read-ahead, M metadata, B barrier, E secure, N nothing
        break;
    }
  }
  return out;
}

bool IsDevice(std::string_view text) {
  const size_t comma = text.find(',');
  uint64_t number = 0;
  return comma != std::string_view::npos && ParseNumber(text.substr(0, comma), number) &&
         ParseNumber(text.substr(comma + 1), number);
}

// Fields between spaces only: the device holds a comma.
size_t SplitSpaces(std::string_view line, std::span<std::string_view> out) {
  const auto space = [](char c) { return c == ' ' || c == '\t'; };
  const char* at = line.data();
  const char* const end = at + line.size();
  size_t size = 0;
  while (size < out.size()) {
    while (at != end && space(*at)) {
      ++at;
    }
    if (at == end) {
      break;
    }
    const char* const begin = at;
    while (at != end && !space(*at)) {
      ++at;
    }
    out[size++] = {begin, static_cast<size_t>(at - begin)};
  }
  return size;
}

class BlkparseDecoder final : public LineDecoder {
 public:
  explicit BlkparseDecoder(char action) : action_(action) {}

 protected:
  Kind Line(std::string_view line) override {
    if (summary_) {
      return Kind::kNothing;
    }
    const size_t size = SplitSpaces(line, fields_);
    if (fields_[0].starts_with("CPU") || fields_[0] == "Total" || fields_[0].starts_with("Input")) {
      summary_ = true;  // what blkparse counts at the end
      return Kind::kNothing;
    }
    if (size < 6 || !IsDevice(fields_[0])) {
      return Bad(
          fmt::format("'{}' does not begin with DEVICE CPU SEQUENCE TIME PID ACTION", Shown(line)));
    }
    if (fields_[5].size() != 1 || fields_[5].front() != action_) {
      return Kind::kNothing;
    }
    if (!ParseTime(fields_[3], kBlkparseUnitsASecond, request_.time_us)) {
      return Bad(fmt::format("'{}' is no time in seconds", Shown(fields_[3])));
    }
    if (size < 7) {
      return Bad("nothing behind the action");
    }
    return Take(size);
  }

 private:
  Kind Take(size_t size) {
    const Rwbs rwbs = ReadRwbs(fields_[6]);
    if (!rwbs.op && !rwbs.preflush) {
      return Kind::kOther;
    }
    uint64_t sector = 0;
    uint64_t sectors = 0;
    const bool placed = size >= 10 && fields_[8] == "+";
    if (placed && (!ParseNumber(fields_[7], sector) || !ParseNumber(fields_[9], sectors) ||
                   sector > kMaxTraceOffsetBytes / kSectorBytesOfTraces ||
                   sectors > kMaxTraceOffsetBytes / kSectorBytesOfTraces)) {
      return Bad(
          fmt::format("'{} + {}' is no place on a disk", Shown(fields_[7]), Shown(fields_[9])));
    }
    if (!TakeVolume(fields_[0])) {
      return Kind::kBad;
    }
    const bool data = rwbs.op && sectors != 0;
    if (!data && !rwbs.preflush) {
      return rwbs.op && placed ? Bad("a request of no sectors") : Kind::kOther;
    }
    TraceRequest request = request_;
    if (data) {
      request.op = *rwbs.op;
      request.offset_bytes = sector * kSectorBytesOfTraces;
      request.length_bytes = sectors * kSectorBytesOfTraces;
      request.fua = rwbs.fua && request.op == TraceOp::kWrite;
    }
    if (rwbs.preflush) {
      request_.op = TraceOp::kFlush;
      if (data) {
        Follow(request);
      }
    } else {
      request_ = request;
    }
    return Kind::kRequest;
  }

  char action_;
  bool summary_ = false;
  std::array<std::string_view, 10> fields_;
};

}  // namespace

std::unique_ptr<Decoder> MakeBlkparseDecoder(char action) {
  return std::make_unique<BlkparseDecoder>(action);
}

}  // namespace eplog::internal
