// Column texts: what a line holds is described by a ColumnLayout.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "trace/text.h"

namespace eplog {
namespace {

using Meaning = ColumnLayout::Kind;

constexpr char kColumnNames[] =
    "time_s, time_ms, time_us, time_ns, filetime, disk, offset, lba512, size, sectors512, pages4k, "
    "op, op:0=w, skip";

std::string Lowered(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') {
      c = static_cast<char>(c - 'A' + 'a');
    }
  }
  return out;
}

std::optional<TraceOp> OpOfLetter(std::string_view text) {
  static const std::map<std::string, TraceOp, std::less<>> words = {
      {"r", TraceOp::kRead},      {"read", TraceOp::kRead},   {"w", TraceOp::kWrite},
      {"write", TraceOp::kWrite}, {"f", TraceOp::kFlush},     {"flush", TraceOp::kFlush},
      {"sync", TraceOp::kFlush},  {"fsync", TraceOp::kFlush}, {"t", TraceOp::kTrim},
      {"trim", TraceOp::kTrim},   {"d", TraceOp::kTrim},      {"discard", TraceOp::kTrim},
      {"unmap", TraceOp::kTrim}};
  const auto found = words.find(Lowered(text));
  return found == words.end() ? std::nullopt : std::optional<TraceOp>(found->second);
}

// "512", "4k", "1m" behind lba, sectors or pages; 0 if it is none.
uint64_t UnitOf(std::string_view text) {
  uint64_t factor = 1;
  if (text.ends_with('k') || text.ends_with('m')) {
    factor = text.ends_with('k') ? uint64_t{1} << 10 : uint64_t{1} << 20;
    text.remove_suffix(1);
  }
  uint64_t number = 0;
  if (!ParseNumber(text, number) || number == 0 || number > (uint64_t{1} << 20)) {
    return 0;
  }
  return number * factor;
}

std::optional<ColumnLayout::Column> PlainColumn(const std::string& name) {
  static const std::map<std::string, ColumnLayout::Column> names = {
      {"time_s", {Meaning::kTime, 1'000'000'000}},
      {"time_ms", {Meaning::kTime, 1'000'000}},
      {"time_us", {Meaning::kTime, 1'000}},
      {"time_ns", {Meaning::kTime, 1}},
      {"filetime", {Meaning::kTime, 100}},
      {"disk", {Meaning::kDisk, 1}},
      {"volume", {Meaning::kDisk, 1}},
      {"offset", {Meaning::kOffset, 1}},
      {"size", {Meaning::kLength, 1}},
      {"op", {Meaning::kOp, 1}},
      {"skip", {Meaning::kSkip, 1}},
      {"-", {Meaning::kSkip, 1}}};
  const auto found = names.find(name);
  if (found != names.end()) {
    return found->second;
  }
  const std::pair<std::string_view, Meaning> scaled[] = {
      {"lba", Meaning::kOffset}, {"sectors", Meaning::kLength}, {"pages", Meaning::kLength}};
  for (const auto& [prefix, kind] : scaled) {
    if (name.starts_with(prefix)) {
      const uint64_t unit = UnitOf(std::string_view(name).substr(prefix.size()));
      return unit == 0 ? std::nullopt
                       : std::optional<ColumnLayout::Column>(ColumnLayout::Column{kind, unit});
    }
  }
  return std::nullopt;
}

tl::unexpected<Error> Wrong(std::string message) {
  return Fail(ErrorCode::kInvalidArgument, std::move(message));
}

// "0=w;1=r" behind "op:".
Status ReadOps(std::string_view text, ColumnLayout& layout) {
  bool reads = false;
  bool writes = false;
  while (!text.empty()) {
    const size_t end = std::min(text.find(';'), text.size());
    const std::string_view pair = text.substr(0, end);
    const size_t equals = pair.find('=');
    const auto op =
        equals == std::string_view::npos ? std::nullopt : OpOfLetter(pair.substr(equals + 1));
    if (!op || equals == 0) {
      return Wrong(
          fmt::format("'{}' does not say which operation: write WORD=w, r, f (flush) or t "
                      "(trim), as in op:0=w;1=r",
                      Shown(pair)));
    }
    reads = reads || *op == TraceOp::kRead;
    writes = writes || *op == TraceOp::kWrite;
    layout.ops.push_back({std::string(pair.substr(0, equals)), *op});
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  layout.others_are_known = reads != writes;
  layout.others = writes ? TraceOp::kRead : TraceOp::kWrite;
  return OkStatus();
}

class ColumnDecoder final : public LineDecoder {
 public:
  explicit ColumnDecoder(const ColumnLayout& layout)
      : layout_(layout), timed_(layout.Has(Meaning::kTime)) {}
  [[nodiscard]] bool has_times() const override { return timed_; }

 protected:
  Kind Line(std::string_view line) override {
    fields_.SplitColumns(line);
    if (fields_.size() < layout_.columns.size()) {
      return Bad(fmt::format("{} columns instead of {}", fields_.size(), layout_.columns.size()));
    }
    request_.op = TraceOp::kWrite;
    std::string_view disk = "0";
    for (size_t i = 0; i < layout_.columns.size(); ++i) {
      if (layout_.columns[i].kind == Meaning::kDisk) {
        disk = fields_[i];
      } else if (!Take(layout_.columns[i], fields_[i])) {
        return Kind::kBad;
      }
    }
    if (request_.op == TraceOp::kFlush) {
      request_.offset_bytes = 0;
      request_.length_bytes = 0;
    }
    return TakeVolume(disk) ? Kind::kRequest : Kind::kBad;
  }

 private:
  bool Take(const ColumnLayout::Column& column, std::string_view field) {
    switch (column.kind) {
      case Meaning::kTime:
        return ParseTime(field, column.unit, request_.time_us) || No("time", field);
      case Meaning::kOffset:
        return TakeBytes(field, column.unit, request_.offset_bytes) || No("offset", field);
      case Meaning::kLength:
        return TakeBytes(field, column.unit, request_.length_bytes) || No("size", field);
      case Meaning::kOp:
        return TakeOp(field);
      case Meaning::kSkip:
      case Meaning::kDisk:
        break;
    }
    return true;
  }

  static bool TakeBytes(std::string_view field, uint64_t unit, uint64_t& bytes) {
    uint64_t count = 0;
    if (!ParseNumber(field, count) || count > UINT64_MAX / unit) {
      return false;
    }
    bytes = count * unit;
    return true;
  }

  bool TakeOp(std::string_view field) {
    for (const ColumnLayout::OpWord& known : layout_.ops) {
      if (known.word == field) {
        request_.op = known.op;
        return true;
      }
    }
    if (layout_.others_are_known) {
      request_.op = layout_.others;
      return true;
    }
    const auto op = layout_.ops.empty() ? OpOfLetter(field) : std::nullopt;
    request_.op = op.value_or(TraceOp::kRead);
    return op.has_value() || No("operation", field);
  }

  bool No(std::string_view what, std::string_view field) {
    reason_ = fmt::format("'{}' is no {}", Shown(field), what);
    return false;
  }

  ColumnLayout layout_;
  bool timed_;
  Fields fields_;
};

}  // namespace

bool ColumnLayout::Has(Kind kind) const {
  return std::any_of(columns.begin(), columns.end(),
                     [&](const Column& column) { return column.kind == kind; });
}

Result<ColumnLayout> ParseColumnLayout(std::string_view text) {
  ColumnLayout layout;
  while (!text.empty()) {
    const size_t end = std::min(text.find(','), text.size());
    const std::string_view typed = text.substr(0, end);
    std::optional<ColumnLayout::Column> column;
    if (typed.starts_with("op:")) {
      EPLOG_TRY(ReadOps(typed.substr(3), layout));
      column = ColumnLayout::Column{Meaning::kOp, 1};
    } else {
      column = PlainColumn(Lowered(typed));
    }
    if (!column) {
      return Wrong(
          fmt::format("there is no column '{}'; there are: {}", Shown(typed), kColumnNames));
    }
    if (column->kind != Meaning::kSkip && layout.Has(column->kind)) {
      return Wrong(fmt::format("column '{}' says again what one before it says", Shown(typed)));
    }
    layout.columns.push_back(*column);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  if (!layout.Has(Meaning::kOffset) || !layout.Has(Meaning::kLength)) {
    return Wrong(
        "the columns need one for the place (offset, lba512) and one for the size (size, "
        "sectors512, pages4k)");
  }
  if (layout.columns.size() > Fields::kMax) {
    return Wrong(fmt::format("at most {} columns", Fields::kMax));
  }
  return layout;
}

namespace internal {
std::unique_ptr<Decoder> MakeColumnDecoder(const ColumnLayout& layout) {
  return std::make_unique<ColumnDecoder>(layout);
}
}  // namespace internal

}  // namespace eplog
