#include "baseline/md_plan.h"

#include <bit>

#include "base/check.h"
#include "baseline/pages.h"

namespace eplog {
namespace {

// Up to `count` of the lowest bits of `from`.
uint64_t Lowest(uint64_t from, int count) {
  uint64_t taken = 0;
  for (; count > 0 && from != 0; --count) {
    taken |= from & (~from + 1);
    from &= from - 1;
  }
  return taken;
}

// To decode `missing`: read until k pages are up to date, data first.
LinePlan PlanDecode(const LineView& line, uint64_t fill, uint64_t missing) {
  LinePlan plan;
  plan.fill = fill & ~line.failed;
  const uint64_t known = line.uptodate | plan.fill;
  const uint64_t others = LowBits(line.k + line.m) & ~line.failed & ~known;
  plan.decode = Lowest(others, static_cast<int>(line.k) - std::popcount(known));
  plan.step = LineStep::kRead;
  if (plan.reads() == 0) {
    EPLOG_CHECK(std::popcount(line.uptodate) >= static_cast<int>(line.k), "at most m have failed");
    plan.step = LineStep::kDecode;
    plan.decode = missing;
  }
  return plan;
}

// Which pages each way still has to read.
struct Ways {
  uint64_t modify = 0;
  uint64_t reconstruct = 0;
  bool can_modify = false;
  bool can_reconstruct = false;
};

Ways WaysOf(const LineView& line, uint64_t coming) {
  const uint64_t data = LowBits(line.k);
  const uint64_t parity = LowBits(line.k + line.m) & ~data & ~line.failed;
  Ways ways;
  // Without any parity left there is nothing to modify, and no old data to know.
  ways.modify = parity == 0 ? 0 : (line.written | parity) & ~line.uptodate & ~coming;
  ways.reconstruct = data & ~line.overwritten & ~line.uptodate & ~coming;
  ways.can_modify = (ways.modify & line.failed) == 0;
  ways.can_reconstruct = (ways.reconstruct & line.failed) == 0;
  return ways;
}

bool PrefersModify(const Ways& ways, ParityChoice choice) {
  if (!ways.can_modify || !ways.can_reconstruct) {
    return ways.can_modify;
  }
  if (choice == ParityChoice::kAlwaysReconstruct) {
    return false;
  }
  const int modify = std::popcount(ways.modify);
  const int reconstruct = std::popcount(ways.reconstruct);
  return modify < reconstruct ||
         (modify == reconstruct && choice == ParityChoice::kFewerReadsTieModifies);
}

}  // namespace

LinePlan PlanLine(const LineView& line, ParityChoice choice) {
  const uint64_t fill = (line.wanted | (line.written & ~line.overwritten)) & ~line.uptodate;
  if ((fill & line.failed) != 0) {
    return PlanDecode(line, fill, fill & line.failed);
  }
  LinePlan plan;
  plan.fill = fill;
  if (line.written == 0) {
    plan.step = fill != 0 ? LineStep::kRead : LineStep::kNothing;
    return plan;
  }
  const Ways ways = WaysOf(line, fill);
  if (!ways.can_modify && !ways.can_reconstruct) {
    return PlanDecode(line, fill, ways.reconstruct & line.failed);
  }
  const bool modify = PrefersModify(ways, choice);
  (modify ? plan.modify : plan.reconstruct) = modify ? ways.modify : ways.reconstruct;
  if (plan.reads() != 0) {
    plan.step = LineStep::kRead;
  } else {
    plan.step = modify ? LineStep::kModify : LineStep::kReconstruct;
  }
  return plan;
}

}  // namespace eplog
