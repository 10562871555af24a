// MSR Cambridge, SPC and fio iologs.
#include <fmt/format.h>

#include "trace/text.h"

namespace eplog::internal {
namespace {

constexpr uint64_t kFiletimeNanoseconds = 100;
constexpr uint64_t kTextUnitsASecond = 1'000'000'000;
constexpr uint64_t kNanosecondsAMicrosecond = 1'000;

char Lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

// Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime
class MsrDecoder final : public LineDecoder {
 protected:
  Kind Line(std::string_view line) override {
    fields_.SplitCommas(line);
    if (fields_.size() < 6) {
      return Bad(
          fmt::format("{} fields instead of Timestamp,Hostname,DiskNumber,Type,Offset,Size,"
                      "ResponseTime",
                      fields_.size()));
    }
    if (number_ == 1 && (fields_[0] == "Timestamp" || fields_[0] == "timestamp")) {
      return Kind::kNothing;
    }
    if (!ParseTime(fields_[0], kFiletimeNanoseconds, request_.time_us)) {
      return Bad(fmt::format("'{}' is no timestamp", Shown(fields_[0])));
    }
    const std::string_view type = fields_[3];
    if (type == "Write" || type == "write" || type == "W" || type == "w") {
      request_.op = TraceOp::kWrite;
    } else if (type == "Read" || type == "read" || type == "R" || type == "r") {
      request_.op = TraceOp::kRead;
    } else {
      return Bad(fmt::format("'{}' is neither Read nor Write", Shown(type)));
    }
    if (!ParseNumber(fields_[4], request_.offset_bytes)) {
      return Bad(fmt::format("'{}' is no offset", Shown(fields_[4])));
    }
    if (!ParseNumber(fields_[5], request_.length_bytes)) {
      return Bad(fmt::format("'{}' is no size", Shown(fields_[5])));
    }
    // The name is host.disk; it is put together only when it changes.
    const std::string_view host = fields_[1];
    const std::string_view disk = fields_[2];
    if (host != host_ || disk != disk_ || name_.empty()) {
      host_ = host;
      disk_ = disk;
      name_ = fmt::format("{}.{}", host, disk);
    }
    return TakeVolume(name_) ? Kind::kRequest : Kind::kBad;
  }

 private:
  Fields fields_;
  std::string host_;
  std::string disk_;
  std::string name_;
};

// ASU,LBA,Size,Opcode,Timestamp
class SpcDecoder final : public LineDecoder {
 protected:
  Kind Line(std::string_view line) override {
    fields_.SplitCommas(line);
    if (fields_.size() < 5) {
      return Bad(fmt::format("{} fields instead of ASU,LBA,Size,Opcode,Timestamp", fields_.size()));
    }
    uint64_t lba = 0;
    if (!ParseNumber(fields_[1], lba) || lba > kMaxTraceOffsetBytes / kSectorBytesOfTraces) {
      return Bad(fmt::format("'{}' is no LBA", Shown(fields_[1])));
    }
    request_.offset_bytes = lba * kSectorBytesOfTraces;
    if (!ParseNumber(fields_[2], request_.length_bytes)) {
      return Bad(fmt::format("'{}' is no size", Shown(fields_[2])));
    }
    const char op = fields_[3].size() == 1 ? Lower(fields_[3].front()) : '?';
    if (op != 'r' && op != 'w') {
      return Bad(fmt::format("'{}' is neither r nor w", Shown(fields_[3])));
    }
    request_.op = op == 'w' ? TraceOp::kWrite : TraceOp::kRead;
    if (!ParseTime(fields_[4], kTextUnitsASecond, request_.time_us)) {
      return Bad(fmt::format("'{}' is no time in seconds", Shown(fields_[4])));
    }
    return TakeVolume(fields_[0]) ? Kind::kRequest : Kind::kBad;
  }

 private:
  Fields fields_;
};

// Version 2: FILE ACTION [OFFSET LENGTH], `wait` passing time; version 3: TIME_US before it.
class FioDecoder final : public LineDecoder {
 public:
  explicit FioDecoder(int version) : version_(version) {}

 protected:
  Kind Line(std::string_view line) override {
    if (number_ == 1 && line.starts_with("fio version ")) {
      return Kind::kNothing;
    }
    fields_.SplitColumns(line);
    const size_t first = version_ == 3 ? 1 : 0;
    if (fields_.size() < first + 2) {
      return Bad(fmt::format("{} words instead of {}FILE ACTION [OFFSET LENGTH]", fields_.size(),
                             version_ == 3 ? "TIME " : ""));
    }
    request_.time_us = time_us_;
    if (version_ == 3 && !ParseTime(fields_[0], kNanosecondsAMicrosecond, request_.time_us)) {
      return Bad(fmt::format("'{}' is no time in microseconds", Shown(fields_[0])));
    }
    return Action(fields_[first], fields_[first + 1], first + 2);
  }

 private:
  Kind Action(std::string_view file, std::string_view action, size_t next) {
    if (action == "add" || action == "open" || action == "close") {
      return Kind::kNothing;
    }
    if (action == "wait") {
      return Wait(next);
    }
    if (action == "sync" || action == "datasync" || action == "sync_file_range") {
      request_.op = TraceOp::kFlush;
      return TakeVolume(file) ? Kind::kRequest : Kind::kBad;
    }
    if (action == "read") {
      request_.op = TraceOp::kRead;
    } else if (action == "write") {
      request_.op = TraceOp::kWrite;
    } else if (action == "trim") {
      request_.op = TraceOp::kTrim;
    } else {
      return Bad(fmt::format("'{}' is no action of a fio iolog", Shown(action)));
    }
    if (fields_.size() < next + 2) {
      return Bad(fmt::format("{} without offset and length", action));
    }
    if (!ParseNumber(fields_[next], request_.offset_bytes)) {
      return Bad(fmt::format("'{}' is no offset", Shown(fields_[next])));
    }
    if (!ParseNumber(fields_[next + 1], request_.length_bytes)) {
      return Bad(fmt::format("'{}' is no length", Shown(fields_[next + 1])));
    }
    return TakeVolume(file) ? Kind::kRequest : Kind::kBad;
  }

  Kind Wait(size_t next) {
    uint64_t wait_us = 0;
    if (version_ == 3) {
      return Bad("'wait' belongs to version 2 of the iolog, not to version 3");
    }
    if (fields_.size() <= next || !ParseNumber(fields_[next], wait_us) ||
        wait_us > UINT64_MAX / 4 - time_us_) {
      return Bad("'wait' without a number of microseconds");
    }
    time_us_ += wait_us;
    return Kind::kNothing;
  }

  int version_;
  uint64_t time_us_ = 0;  // version 2: the sum of all waits
  Fields fields_;
};

}  // namespace

std::unique_ptr<Decoder> MakeMsrDecoder() {
  return std::make_unique<MsrDecoder>();
}
std::unique_ptr<Decoder> MakeSpcDecoder() {
  return std::make_unique<SpcDecoder>();
}
std::unique_ptr<Decoder> MakeFioDecoder(int version) {
  return std::make_unique<FioDecoder>(version);
}

}  // namespace eplog::internal
