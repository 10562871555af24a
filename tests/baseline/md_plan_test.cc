// What a line does next: the arithmetic of modify and reconstruct, and that every line with at most
// m failed positions comes to an end.
#include "baseline/md_plan.h"

#include <gtest/gtest.h>

#include <bit>

namespace eplog {
namespace {

constexpr auto kDefault = ParityChoice::kFewerReads;

TEST(MdPlan, ALonePageModifies) {
  const LinePlan plan = PlanLine({.k = 6, .m = 2, .written = 1, .overwritten = 1}, kDefault);
  EXPECT_EQ(plan.step, LineStep::kRead);
  EXPECT_EQ(plan.modify, 0b11000001U);
  EXPECT_EQ(plan.reads(), plan.modify);
}

TEST(MdPlan, MostPagesReconstruct) {
  const LinePlan plan =
      PlanLine({.k = 6, .m = 2, .written = 0b001111, .overwritten = 0b001111}, kDefault);
  EXPECT_EQ(plan.step, LineStep::kRead);
  EXPECT_EQ(plan.reconstruct, 0b110000U);
  EXPECT_EQ(plan.reads(), plan.reconstruct);
}

// k = 3, one parity: old page and parity, or the two others.
TEST(MdPlan, ATieIsDecidedByTheChoice) {
  const LineView line{.k = 3, .m = 1, .written = 1, .overwritten = 1};
  EXPECT_EQ(PlanLine(line, kDefault).reconstruct, 0b0110U);
  EXPECT_EQ(PlanLine(line, ParityChoice::kFewerReadsTieModifies).modify, 0b1001U);
  const LineView wide{.k = 8, .m = 1, .written = 1, .overwritten = 1};
  EXPECT_EQ(PlanLine(wide, ParityChoice::kAlwaysReconstruct).reconstruct, 0b11111110U);
}

TEST(MdPlan, AWholeLineReadsNothing) {
  const LineView line{.k = 6, .m = 2, .written = 0b111111, .overwritten = 0b111111};
  EXPECT_EQ(PlanLine(line, kDefault).step, LineStep::kReconstruct);
}

TEST(MdPlan, WhatIsUpToDateIsNotRead) {
  LineView line{.k = 6, .m = 2, .written = 1, .overwritten = 1};
  line.uptodate = 0b11000001;
  EXPECT_EQ(PlanLine(line, kDefault).step, LineStep::kModify);
  line.uptodate = 0b00111110;
  EXPECT_EQ(PlanLine(line, kDefault).step, LineStep::kReconstruct);
}

// The rest of the page is read first and counts for neither way: one read more for parity.
TEST(MdPlan, PartsOfPagesAreFilled) {
  const LinePlan plan = PlanLine({.k = 6, .m = 1, .written = 1, .overwritten = 0}, kDefault);
  EXPECT_EQ(plan.fill, 1U);
  EXPECT_EQ(plan.modify, 0b1000000U);
}

TEST(MdPlan, OverAFailedPageReconstructs) {
  const LinePlan plan =
      PlanLine({.k = 6, .m = 1, .failed = 1, .written = 1, .overwritten = 1}, kDefault);
  EXPECT_EQ(plan.reconstruct, 0b0111110U);
}

TEST(MdPlan, WithoutParityNothingIsRead) {
  const LinePlan plan =
      PlanLine({.k = 6, .m = 1, .failed = 0b1000000, .written = 1, .overwritten = 1}, kDefault);
  EXPECT_EQ(plan.step, LineStep::kModify);
}

// All states of a small line, for every choice: each answer is possible, and asking again after
// doing what was said ends in a write, or in nothing to do, after a few steps.
void ExpectEnds(LineView line, ParityChoice choice) {
  for (int steps = 0; steps < 4; ++steps) {
    const LinePlan plan = PlanLine(line, choice);
    EXPECT_EQ(plan.step == LineStep::kRead ? plan.reads() & (line.failed | line.uptodate) : 0, 0U);
    switch (plan.step) {
      case LineStep::kRead:
        ASSERT_NE(plan.reads(), 0U);
        line.uptodate |= plan.reads();
        line.wanted &= ~line.uptodate;
        break;
      case LineStep::kDecode:
        ASSERT_GE(std::popcount(line.uptodate), static_cast<int>(line.k));
        ASSERT_NE(plan.decode & ~line.uptodate, 0U);
        line.uptodate |= plan.decode;
        line.wanted &= ~line.uptodate;
        break;
      case LineStep::kNothing:
        EXPECT_EQ(line.written | line.wanted, 0U);
        return;
      case LineStep::kModify:
      case LineStep::kReconstruct:
        EXPECT_EQ(line.wanted, 0U);
        EXPECT_NE(line.written, 0U);
        return;
    }
  }
  FAIL() << "no end: uptodate " << line.uptodate << " failed " << line.failed << " written "
         << line.written << " overwritten " << line.overwritten;
}

TEST(MdPlan, EveryLineComesToAnEnd) {
  constexpr uint32_t kK = 3;
  constexpr uint32_t kM = 2;
  constexpr uint64_t kData = (1U << kK) - 1;
  constexpr uint64_t kAll = (1U << (kK + kM)) - 1;
  for (uint64_t failed = 0; failed <= kAll; ++failed) {
    for (uint64_t bits = 0; std::popcount(failed) <= static_cast<int>(kM) && bits < 1U << 14;
         ++bits) {
      LineView line{.k = kK, .m = kM, .uptodate = bits & kAll, .failed = failed};
      line.written = bits >> 5 & kData;
      line.overwritten = bits >> 8 & line.written;
      line.wanted = bits >> 11 & kData & ~line.uptodate;
      for (const auto choice : {ParityChoice::kAlwaysReconstruct, ParityChoice::kFewerReads,
                                ParityChoice::kFewerReadsTieModifies}) {
        ExpectEnds(line, choice);
        if (HasFatalFailure()) {
          return;
        }
      }
    }
  }
}

}  // namespace
}  // namespace eplog
