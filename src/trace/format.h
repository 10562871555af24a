// The trace formats that are read and written, by name, and the description of column texts.
// docs/traces.md has a line of each.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "eplog/result.h"
#include "trace/request.h"
#include "trace/source.h"

namespace eplog {

enum class TraceFormat : uint8_t {
  kDetect,    // by content; only for reading
  kMsr,       // MSR Cambridge CSV
  kSpc,       // ASU,LBA,Size,Opcode,Timestamp
  kFio2,      // fio iolog version 2
  kFio3,      // fio iolog version 3
  kBlkparse,  // text of blkparse
  kVscsi1,    // records of 32 bytes
  kVscsi2,    // records of 40 bytes
  kNbd,       // transaction log of an NBD server
  kColumns,   // text in columns, described by ColumnLayout
};

// "msr", "spc", ...; the names that a person may give.
[[nodiscard]] const char* TraceFormatName(TraceFormat format);
[[nodiscard]] std::vector<std::string> TraceFormatNames();
// kInvalidArgument lists the names.
Result<TraceFormat> ParseTraceFormat(std::string_view name);

// What the columns of a text mean, in their order.
struct ColumnLayout {
  enum class Kind : uint8_t { kSkip, kTime, kDisk, kOffset, kLength, kOp };
  struct Column {
    Kind kind = Kind::kSkip;
    // kTime: nanoseconds in one; kOffset, kLength: bytes in one.
    uint64_t unit = 1;
  };
  struct OpWord {
    std::string word;
    TraceOp op = TraceOp::kRead;
  };
  std::vector<Column> columns;
  std::vector<OpWord> ops;  // empty: words like "w", "Read", "WRITE", "flush"
  // What an operation not in `ops` is: with one of read and write named, the other; else an error.
  bool others_are_known = false;
  TraceOp others = TraceOp::kRead;

  [[nodiscard]] bool Has(Kind kind) const;
};

// "time_ms,disk,lba512,pages4k,op:0=w": comma-separated names of columns, each at most once:
//   time_s, time_ms, time_us, time_ns, filetime  time; fractions may be written in the text
//   disk                     which volume: any word
//   offset, lbaN             where: in bytes, in units of N bytes (lba512, lba4k)
//   size, sectorsN, pagesN   how much: in bytes, in units of N bytes
//   op, op:WORD=r|w|f|t;...  read, write, flush, trim; without it everything is a write
//   skip                     anything; also `-`
// offset and size are needed. kInvalidArgument says which name is wrong and what there is.
Result<ColumnLayout> ParseColumnLayout(std::string_view text);

}  // namespace eplog
