#include "trace/writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>

#include "base/bytes.h"
#include "base/check.h"
#include "trace/text.h"

namespace eplog {
namespace {

bool IsNumber(std::string_view text) {
  uint64_t ignored = 0;
  return ParseNumber(text, ignored);
}

// A name as one word of a text.
std::string Word(std::string_view name) {
  std::string out(name);
  for (char& c : out) {
    if (static_cast<unsigned char>(c) <= 0x20 || c == ',' || c == ';' || c == '#') {
      c = '_';
    }
  }
  return out.empty() ? "disk" : out;
}

bool IsData(TraceOp op) {
  return op == TraceOp::kRead || op == TraceOp::kWrite;
}

// Formats with reads and writes only drop the rest, and none of them knows FUA.
class TextWriter : public TraceWriter {
 protected:
  bool DropUnlessData(const TraceRequest& request) {
    const bool drop = !IsData(request.op);
    report_.dropped += drop ? 1 : 0;
    return drop;
  }
  void Count(const TraceRequest& request, bool keeps_fua = false) {
    ++report_.requests;
    report_.fua_lost += request.fua && !keeps_fua ? 1 : 0;
  }
  // Names change rarely; put together once a volume.
  template <typename Make>
  const std::string& NameOf(uint32_t volume, const std::vector<std::string>& volumes,
                            const Make& make) {
    while (names_.size() <= volume) {
      names_.push_back(make(volumes[names_.size()], names_.size()));
    }
    return names_[volume];
  }

 private:
  std::vector<std::string> names_;
};

class MsrWriter final : public TextWriter {
 public:
  Status Add(const TraceRequest& request, const std::vector<std::string>& volumes,
             std::string& out) override {
    if (DropUnlessData(request)) {
      return OkStatus();
    }
    const std::string& name = NameOf(request.volume, volumes, Make);
    fmt::format_to(std::back_inserter(out), "{},{},{},{},{},0\n", request.time_us * 10, name,
                   request.op == TraceOp::kWrite ? "Write" : "Read", request.offset_bytes,
                   request.length_bytes);
    Count(request);
    return OkStatus();
  }

 private:
  // "usr.0" is disk 0 of usr; another name is a host, its number the disk.
  static std::string Make(const std::string& name, size_t index) {
    const size_t dot = name.rfind('.');
    if (dot != std::string::npos && dot != 0 && IsNumber(name.substr(dot + 1))) {
      return fmt::format("{},{}", Word(name.substr(0, dot)), name.substr(dot + 1));
    }
    return fmt::format("{},{}", Word(name), index);
  }
};

class SpcWriter final : public TextWriter {
 public:
  Status Add(const TraceRequest& request, const std::vector<std::string>& volumes,
             std::string& out) override {
    if (DropUnlessData(request)) {
      return OkStatus();
    }
    const TraceRequest whole = ToSectors(request);
    const std::string& name = NameOf(request.volume, volumes, Make);
    fmt::format_to(std::back_inserter(out), "{},{},{},{},{}.{:06}\n", name,
                   whole.offset_bytes / kSectorBytesOfTraces, whole.length_bytes,
                   whole.op == TraceOp::kWrite ? 'w' : 'r', whole.time_us / 1'000'000,
                   whole.time_us % 1'000'000);
    Count(request);
    return OkStatus();
  }

 private:
  // ASUs are numbers; a name that is none gets one that numbered disks hardly have.
  static std::string Make(const std::string& name, size_t index) {
    return IsNumber(name) ? name : fmt::format("{}", 1'000'000 + index);
  }
};

class FioWriter final : public TextWriter {
 public:
  explicit FioWriter(int version) : version_(version) {}

  Status Add(const TraceRequest& request, const std::vector<std::string>& volumes,
             std::string& out) override {
    if (!began_) {
      began_ = true;
      fmt::format_to(std::back_inserter(out), "fio version {} iolog\n", version_);
    }
    const std::string& name =
        NameOf(request.volume, volumes, [](const auto& n, size_t) { return Word(n); });
    files_.resize(std::max<size_t>(files_.size(), request.volume + 1));
    if (files_[request.volume].empty()) {
      files_[request.volume] = name;
      Line(request.time_us, name, "add", out);
      Line(request.time_us, name, "open", out);
    }
    if (version_ == 2 && request.time_us != time_us_) {
      fmt::format_to(std::back_inserter(out), "{} wait {} 0\n", name, request.time_us - time_us_);
    }
    time_us_ = request.time_us;
    const char* const action = request.op == TraceOp::kFlush ? "sync" : TraceOpName(request.op);
    if (version_ == 3) {
      fmt::format_to(std::back_inserter(out), "{} ", request.time_us);
    }
    fmt::format_to(std::back_inserter(out), "{} {} {} {}\n", name, action, request.offset_bytes,
                   request.length_bytes);
    Count(request);
    return OkStatus();
  }

  void End(std::string& out) override {
    for (const std::string& file : files_) {
      if (!file.empty()) {
        Line(time_us_, file, "close", out);
      }
    }
  }

 private:
  void Line(uint64_t time_us, const std::string& name, const char* action, std::string& out) const {
    if (version_ == 3) {
      fmt::format_to(std::back_inserter(out), "{} ", time_us);
    }
    fmt::format_to(std::back_inserter(out), "{} {}\n", name, action);
  }

  int version_;
  bool began_ = false;
  uint64_t time_us_ = 0;
  std::vector<std::string> files_;  // that were opened, by volume
};

class BlkparseWriter final : public TextWriter {
 public:
  Status Add(const TraceRequest& request, const std::vector<std::string>& volumes,
             std::string& out) override {
    const std::string& name = NameOf(request.volume, volumes, Make);
    const auto to = std::back_inserter(out);
    fmt::format_to(to, "{:>7}  0 {:8} {:5}.{:06}000     0  Q ", name, ++sequence_,
                   request.time_us / 1'000'000, request.time_us % 1'000'000);
    if (request.op == TraceOp::kFlush) {
      fmt::format_to(to, "FN [eplog]\n");
    } else {
      const TraceRequest whole = ToSectors(request);
      fmt::format_to(to, "{} {} + {} [eplog]\n", Words(request),
                     whole.offset_bytes / kSectorBytesOfTraces,
                     whole.length_bytes / kSectorBytesOfTraces);
    }
    Count(request, true);
    return OkStatus();
  }

 private:
  static const char* Words(const TraceRequest& request) {
    if (request.op == TraceOp::kWrite) {
      return request.fua ? "WF" : "W";
    }
    return request.op == TraceOp::kRead ? "R" : "D";
  }
  static std::string Make(const std::string& name, size_t index) {
    const size_t comma = name.find(',');
    const bool device = comma != std::string::npos && IsNumber(name.substr(0, comma)) &&
                        IsNumber(name.substr(comma + 1));
    return device ? name : fmt::format("259,{}", index);
  }
  uint64_t sequence_ = 0;
};

class ColumnWriter final : public TextWriter {
 public:
  explicit ColumnWriter(const ColumnLayout& layout) : layout_(layout) {}

  Status Add(const TraceRequest& request, const std::vector<std::string>& volumes,
             std::string& out) override {
    const std::string* const word = WordOf(request.op);
    if (word == nullptr) {
      ++report_.dropped;
      return OkStatus();
    }
    const size_t begin = out.size();
    bool widened = false;
    for (const ColumnLayout::Column& column : layout_.columns) {
      out += out.size() == begin ? "" : " ";
      Column(column, request, volumes, *word, out, widened);
    }
    out += '\n';
    report_.widened += widened ? 1 : 0;
    Count(request);
    return OkStatus();
  }

 private:
  using Kind = ColumnLayout::Kind;

  void Column(const ColumnLayout::Column& column, const TraceRequest& request,
              const std::vector<std::string>& volumes, const std::string& word, std::string& out,
              bool& widened) {
    const auto to = std::back_inserter(out);
    switch (column.kind) {
      case Kind::kTime:
        Time(column.unit, request.time_us, out);
        break;
      case Kind::kDisk:
        out += NameOf(request.volume, volumes, [](const auto& n, size_t) { return Word(n); });
        break;
      case Kind::kOffset:
        widened = widened || request.offset_bytes % column.unit != 0;
        fmt::format_to(to, "{}", request.offset_bytes / column.unit);
        break;
      case Kind::kLength: {
        const uint64_t unit = column.unit;
        const uint64_t length = request.length_bytes + request.offset_bytes % offset_unit_;
        widened = widened || length % unit != 0;
        fmt::format_to(to, "{}", (length + unit - 1) / unit);
        break;
      }
      case Kind::kOp:
        out += word;
        break;
      case Kind::kSkip:
        out += '0';
        break;
    }
  }

  static void Time(uint64_t unit_ns, uint64_t time_us, std::string& out) {
    const auto to = std::back_inserter(out);
    if (unit_ns <= 1000) {
      fmt::format_to(to, "{}", time_us * (1000 / unit_ns));
      return;
    }
    const uint64_t unit_us = unit_ns / 1000;
    fmt::format_to(to, "{}.{:0{}}", time_us / unit_us, time_us % unit_us,
                   unit_us == 1'000'000 ? 6 : 3);
  }

  // nullptr: there is none.
  const std::string* WordOf(TraceOp op) const {
    static const std::array<std::string, kTraceOps> letters = {"r", "w", "f", "t"};
    if (!layout_.Has(Kind::kOp)) {
      return op == TraceOp::kWrite ? &letters[1] : nullptr;
    }
    for (const ColumnLayout::OpWord& known : layout_.ops) {
      if (known.op == op) {
        return &known.word;
      }
    }
    if (layout_.ops.empty()) {
      return &letters[static_cast<size_t>(op)];
    }
    if (layout_.others_are_known && layout_.others == op) {
      return &other_;
    }
    return nullptr;
  }

  // A word that none of the layout's operations has.
  static std::string OtherWord(const ColumnLayout& layout) {
    for (uint64_t number = 0;; ++number) {
      std::string word = fmt::format("{}", number);
      if (std::none_of(layout.ops.begin(), layout.ops.end(),
                       [&](const auto& known) { return known.word == word; })) {
        return word;
      }
    }
  }

  static uint64_t OffsetUnit(const ColumnLayout& layout) {
    for (const ColumnLayout::Column& column : layout.columns) {
      if (column.kind == Kind::kOffset) {
        return column.unit;
      }
    }
    return 1;
  }

  ColumnLayout layout_;
  uint64_t offset_unit_ = OffsetUnit(layout_);
  std::string other_ = OtherWord(layout_);
};

// Formats of one disk.
class BinaryWriter : public TextWriter {
 public:
  Status Add(const TraceRequest& request, const std::vector<std::string>& volumes,
             std::string& out) override {
    if (volume_ && *volume_ != request.volume) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("this format has one disk, and the trace has {} and {}: choose one "
                              "with --volume, or lay them one behind the other with --merge",
                              volumes[*volume_], volumes[request.volume]));
    }
    volume_ = request.volume;
    return Record(request, out);
  }

 protected:
  virtual Status Record(const TraceRequest& request, std::string& out) = 0;

 private:
  std::optional<uint32_t> volume_;
};

class VscsiWriter final : public BinaryWriter {
 public:
  explicit VscsiWriter(int version) : version_(version) {}

 protected:
  Status Record(const TraceRequest& request, std::string& out) override {
    if (request.op == TraceOp::kTrim) {
      ++report_.dropped;
      return OkStatus();
    }
    const TraceRequest whole = ToSectors(request);
    std::array<std::byte, 40> bytes{};
    ByteWriter to(bytes);
    const uint16_t command = Command(whole.op);
    const auto version = static_cast<uint16_t>(version_ << 8);
    if (version_ == 2) {
      to.U16(command);
      to.U16(version);
    }
    to.U32(serial_++);
    to.U32(static_cast<uint32_t>(whole.length_bytes));
    to.U32(1);
    if (version_ == 1) {
      to.U16(command);
      to.U16(version);
    }
    to.U64(whole.offset_bytes / kSectorBytesOfTraces);
    to.U64(whole.time_us);
    if (version_ == 2) {
      to.U64(0);  // the response time is not known
    }
    out.append(reinterpret_cast<const char*>(bytes.data()), to.size());
    Count(request);
    return OkStatus();
  }

 private:
  static uint16_t Command(TraceOp op) {
    if (op == TraceOp::kFlush) {
      return 0x35;
    }
    return op == TraceOp::kWrite ? 0x2A : 0x28;
  }
  int version_;
  uint32_t serial_ = 0;
};

class NbdWriter final : public BinaryWriter {
 protected:
  Status Record(const TraceRequest& request, std::string& out) override {
    constexpr std::array<uint32_t, kTraceOps> kTypes = {0, 1, 3, 4};
    // A trim may be larger than the field: it goes in pieces.
    constexpr uint64_t kPieceBytes = uint64_t{1} << 31;
    constexpr uint64_t kMaxPieces = 1024;
    if (request.length_bytes > kPieceBytes * kMaxPieces) {
      ++report_.dropped;
      return OkStatus();
    }
    for (uint64_t at = 0; at < request.length_bytes || at == 0; at += kPieceBytes) {
      TraceRequest piece = request;
      piece.offset_bytes += at;
      piece.length_bytes = std::min(request.length_bytes - at, kPieceBytes);
      Piece(piece, kTypes[static_cast<size_t>(request.op)], out);
    }
    Count(request, true);
    return OkStatus();
  }

 private:
  void Piece(const TraceRequest& request, uint32_t op, std::string& out) {
    const uint32_t type = op | (request.fua ? uint32_t{1} << 16 : 0);
    ++handle_;
    Big(0x25609513, 4, out);
    Big(type, 4, out);
    Big(handle_, 8, out);
    Big(request.offset_bytes, 8, out);
    Big(request.length_bytes, 4, out);
    Big(0x67446698, 4, out);
    Big(0, 4, out);
    Big(handle_, 8, out);
  }

  static void Big(uint64_t value, int width, std::string& out) {
    for (int shift = (width - 1) * 8; shift >= 0; shift -= 8) {
      out += static_cast<char>(value >> shift);
    }
  }
  uint64_t handle_ = 0;
};

}  // namespace

TraceRequest TraceWriter::ToSectors(TraceRequest request) {
  const uint64_t begin = request.offset_bytes / kSectorBytesOfTraces * kSectorBytesOfTraces;
  const uint64_t end = (request.end_bytes() + kSectorBytesOfTraces - 1) / kSectorBytesOfTraces *
                       kSectorBytesOfTraces;
  if (begin != request.offset_bytes || end != request.end_bytes()) {
    ++report_.widened;
    request.offset_bytes = begin;
    request.length_bytes = end - begin;
  }
  return request;
}

ColumnLayout DefaultColumns() {
  const auto layout = ParseColumnLayout("time_us,disk,offset,size,op");
  EPLOG_CHECK(layout.ok(), "the default layout is one");
  return *layout;
}

std::unique_ptr<TraceWriter> MakeTraceWriter(TraceFormat format, const ColumnLayout& layout) {
  switch (format) {
    case TraceFormat::kDetect:
    case TraceFormat::kMsr:
      return std::make_unique<MsrWriter>();
    case TraceFormat::kSpc:
      return std::make_unique<SpcWriter>();
    case TraceFormat::kFio2:
      return std::make_unique<FioWriter>(2);
    case TraceFormat::kFio3:
      return std::make_unique<FioWriter>(3);
    case TraceFormat::kBlkparse:
      return std::make_unique<BlkparseWriter>();
    case TraceFormat::kVscsi1:
      return std::make_unique<VscsiWriter>(1);
    case TraceFormat::kVscsi2:
      return std::make_unique<VscsiWriter>(2);
    case TraceFormat::kNbd:
      return std::make_unique<NbdWriter>();
    case TraceFormat::kColumns:
      return std::make_unique<ColumnWriter>(layout.columns.empty() ? DefaultColumns() : layout);
  }
  return nullptr;
}

}  // namespace eplog
