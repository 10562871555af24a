// What to do next with a line of an in-place array: which pages to read, or how to make its parity.
// A pure function of what is known of the line, as masks over its positions (bit i = position i).
//
// The rules are those that Linux MD shows (docs/baselines.md):
//  * What must be known whatever the way, pages to be read and pages to be written in part, is read
//    first and costs neither way anything.
//  * Modify: parity changes by the difference of new and old data. It needs the old content of the
//    pages to be written, and the parity.
//  * Reconstruct: parity is computed from all data. It needs the data pages that are not written as
//    a whole.
//  * The way that reads fewer pages wins, ParityChoice says what a tie means. Pages that are up to
//    date in memory cost nothing. When one of the ways needs no read (any more), it is taken.
//  * If neither is possible because devices failed, as many pages are read as decoding takes.
#pragma once

#include <cstdint>

namespace eplog {

// Linux calls it rmw_level: 0, 1, 2.
enum class ParityChoice : uint8_t {
  kAlwaysReconstruct,
  kFewerReads,             // a tie: reconstruct. What MD does unless told otherwise
  kFewerReadsTieModifies,  // a tie: modify
};

struct LineView {
  uint32_t k = 0;
  uint32_t m = 0;
  uint64_t uptodate = 0;     // the content in memory is what it should be
  uint64_t failed = 0;       // the SSD is gone
  uint64_t wanted = 0;       // a read waits for it
  uint64_t written = 0;      // there is something to write
  uint64_t overwritten = 0;  // as a whole
};

enum class LineStep : uint8_t {
  kNothing,
  kRead,         // the masks below; then ask again
  kDecode,       // `decode` from what is up to date; then ask again
  kModify,       // write; change parity by the difference
  kReconstruct,  // write; compute parity anew
};

struct LinePlan {
  LineStep step = LineStep::kNothing;
  uint64_t fill = 0;         // read: wanted, or written in part
  uint64_t modify = 0;       // read: old data and parity
  uint64_t reconstruct = 0;  // read: data that is not written
  uint64_t decode = 0;       // to decode; with kRead: read for that

  [[nodiscard]] uint64_t reads() const { return fill | modify | reconstruct | decode; }
};

[[nodiscard]] LinePlan PlanLine(const LineView& line, ParityChoice choice);

}  // namespace eplog
