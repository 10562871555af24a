// Names of formats, and which one a file is.
#include "trace/format.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "trace/decoder.h"
#include "trace/text.h"

namespace eplog {
namespace {

struct Name {
  TraceFormat format;
  const char* name;
};
constexpr std::array<Name, 9> kNames = {{{TraceFormat::kMsr, "msr"},
                                         {TraceFormat::kSpc, "spc"},
                                         {TraceFormat::kFio2, "fio2"},
                                         {TraceFormat::kFio3, "fio3"},
                                         {TraceFormat::kBlkparse, "blkparse"},
                                         {TraceFormat::kVscsi1, "vscsi1"},
                                         {TraceFormat::kVscsi2, "vscsi2"},
                                         {TraceFormat::kNbd, "nbd"},
                                         {TraceFormat::kColumns, "columns"}}};
// Detected, tried in this order.
constexpr std::array<TraceFormat, 8> kDetected = {
    TraceFormat::kFio2,   TraceFormat::kFio3, TraceFormat::kNbd, TraceFormat::kVscsi1,
    TraceFormat::kVscsi2, TraceFormat::kMsr,  TraceFormat::kSpc, TraceFormat::kBlkparse};

constexpr size_t kRecordsLookedAt = 32;

// Does the head read as `format`? Most of its first records must be good ones.
bool Fits(TraceFormat format, std::string_view head, bool whole) {
  if (format == TraceFormat::kFio2 || format == TraceFormat::kFio3) {
    return head.starts_with(format == TraceFormat::kFio2 ? "fio version 2 iolog"
                                                         : "fio version 3 iolog");
  }
  const auto decoder = MakeDecoder(format, ColumnLayout{}, 'Q');
  size_t good = 0;
  size_t bad = 0;
  while (good + bad < kRecordsLookedAt) {
    const Decoder::Step step = decoder->Next(head, whole);
    if (step.kind == Decoder::Kind::kMore || (head.empty() && step.consumed == 0)) {
      break;
    }
    head.remove_prefix(step.consumed);
    good += step.kind == Decoder::Kind::kRequest || step.kind == Decoder::Kind::kOther ||
                    (step.kind == Decoder::Kind::kNothing && format == TraceFormat::kBlkparse)
                ? 1
                : 0;
    bad += step.kind == Decoder::Kind::kBad ? 1 : 0;
  }
  return good > 0 && good >= 3 * bad;
}

bool LooksBinary(std::string_view head) {
  return std::any_of(head.begin(), head.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte < 0x20 && c != '\n' && c != '\r' && c != '\t';
  });
}

// Numbers in columns, without a hint of what they are?
bool LooksLikeColumns(std::string_view head) {
  const std::string_view line = head.substr(0, head.find_first_of("\r\n"));
  Fields fields;
  fields.SplitColumns(line);
  size_t numbers = 0;
  for (size_t i = 0; i < fields.size(); ++i) {
    uint64_t ignored = 0;
    numbers += ParseTime(fields[i], 1000, ignored) ? 1 : 0;
  }
  return numbers >= 2;
}

}  // namespace

const char* TraceOpName(TraceOp op) {
  constexpr std::array<const char*, kTraceOps> kOps = {"read", "write", "flush", "trim"};
  return kOps[static_cast<size_t>(op)];
}

const char* TraceFormatName(TraceFormat format) {
  for (const Name& name : kNames) {
    if (name.format == format) {
      return name.name;
    }
  }
  return "detect";
}

std::vector<std::string> TraceFormatNames() {
  std::vector<std::string> names;
  names.reserve(kNames.size());
  for (const Name& name : kNames) {
    names.emplace_back(name.name);
  }
  return names;
}

Result<TraceFormat> ParseTraceFormat(std::string_view text) {
  for (const Name& name : kNames) {
    if (text == name.name) {
      return name.format;
    }
  }
  if (text == "vscsi" || text == "fio") {
    return text == "fio" ? TraceFormat::kFio3 : TraceFormat::kVscsi1;
  }
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("there is no trace format '{}'; there are: {}", Shown(text),
                          fmt::join(TraceFormatNames(), ", ")));
}

std::unique_ptr<Decoder> MakeDecoder(TraceFormat format, const ColumnLayout& layout,
                                     char blkparse_action) {
  switch (format) {
    case TraceFormat::kDetect:
    case TraceFormat::kMsr:
      return internal::MakeMsrDecoder();
    case TraceFormat::kSpc:
      return internal::MakeSpcDecoder();
    case TraceFormat::kFio2:
      return internal::MakeFioDecoder(2);
    case TraceFormat::kFio3:
      return internal::MakeFioDecoder(3);
    case TraceFormat::kBlkparse:
      return internal::MakeBlkparseDecoder(blkparse_action);
    case TraceFormat::kVscsi1:
      return internal::MakeVscsiDecoder(1);
    case TraceFormat::kVscsi2:
      return internal::MakeVscsiDecoder(2);
    case TraceFormat::kNbd:
      return internal::MakeNbdDecoder();
    case TraceFormat::kColumns:
      return internal::MakeColumnDecoder(layout);
  }
  return nullptr;
}

Result<TraceFormat> DetectFormat(std::string_view head, bool whole) {
  for (const TraceFormat format : kDetected) {
    if (Fits(format, head, whole)) {
      return format;
    }
  }
  if (LooksBinary(head)) {
    return Fail(ErrorCode::kCorrupt,
                "it is binary and no trace: neither vscsi records nor an NBD transaction log");
  }
  if (LooksLikeColumns(head)) {
    return Fail(ErrorCode::kCorrupt,
                "its lines are columns of numbers: say what they are, as in --columns "
                "time_ms,disk,lba512,pages4k,op:0=w");
  }
  return Fail(ErrorCode::kCorrupt,
              fmt::format("it is no trace: its first line, '{}', fits none of {}",
                          Shown(head.substr(0, head.find_first_of("\r\n"))),
                          fmt::join(TraceFormatNames(), ", ")));
}

}  // namespace eplog
