// What `md` sends to its members, request by request, in closed form.
#include <gtest/gtest.h>

#include "tests/baseline/rig.h"

namespace eplog::test {
namespace {

struct Counts {
  uint64_t reads = 0;
  uint64_t writes = 0;
  bool operator==(const Counts&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Counts& counts) {
  return out << counts.reads << " reads, " << counts.writes << " writes";
}

// Of SSDs, requests and pages: what has been sent since the last call.
class MdCounts : public ::testing::Test {
 protected:
  void Make(uint32_t n, uint32_t m, uint32_t chunk_bytes = 4096) {
    RigShape shape;
    shape.ssd_bytes = uint64_t{2} << 20;
    shape.n = n;
    shape.m = m;
    shape.chunk_bytes = chunk_bytes;
    rig_ = std::make_unique<TargetRig>(shape);
    requests_ = pages_ = {};
  }
  Counts Pages() {
    const DeviceTraffic total = rig_->traffic().SsdTotal();
    const Counts now{total.bytes_read / kPageBytes, total.bytes_written / kPageBytes};
    const Counts before = std::exchange(pages_, now);
    return {now.reads - before.reads, now.writes - before.writes};
  }
  Counts Requests() {
    const DeviceTraffic total = rig_->traffic().SsdTotal();
    const Counts now{total.reads, total.writes};
    const Counts before = std::exchange(requests_, now);
    return {now.reads - before.reads, now.writes - before.writes};
  }
  void FailPage0() { rig_->Open(uint64_t{1} << rig_->placement().SsdOf(0, 0).value); }
  void Write(uint64_t offset, size_t length) {
    ASSERT_TRUE(rig_->Write(offset, length, offset + 1).ok());
  }

  std::unique_ptr<TargetRig> rig_;
  Counts requests_;
  Counts pages_;
};

TEST_F(MdCounts, ALonePageCostsOneMoreThanParityEachWay) {
  for (uint32_t m = 1; m <= 4; ++m) {
    Make(6 + 2 * m, m);
    Write(0, 4096);
    EXPECT_EQ(Pages(), (Counts{1 + m, 1 + m})) << "m = " << m;
    EXPECT_EQ(rig_->traffic().lines_modified, 1U);
    EXPECT_EQ(rig_->traffic().bytes(IoClass::kModifyRead), (1 + m) * 4096);
    EXPECT_EQ(rig_->traffic().bytes(IoClass::kParityWrite), m * 4096);
  }
}

TEST_F(MdCounts, ReconstructsWhereThatReadsLess) {
  Make(4, 1);
  Write(0, 2 * 4096);  // 1 other page, against 2 old ones and the parity
  EXPECT_EQ(Pages(), (Counts{1, 3}));
  EXPECT_EQ(rig_->traffic().lines_reconstructed, 1U);
  Make(3, 1);
  Write(0, 4096);
  EXPECT_EQ(Pages(), (Counts{1, 2}));
}

TEST_F(MdCounts, WholeStripesReadNothing) {
  Make(8, 2, 16384);
  Write(0, 6 * 16384);
  EXPECT_EQ(Pages(), (Counts{0, 8 * 4}));
  EXPECT_EQ(Requests(), (Counts{0, 8})) << "the lines of a chunk leave in one request";
  EXPECT_EQ(rig_->traffic().lines_full, 4U);
}

// 1: data and parity. 2 to 4: the old page; the parity is known. 5: old page or the last other: a
// tie. 6: all that is not written is known.
TEST_F(MdCounts, PagesOneAfterTheOtherReadParityOnce) {
  Make(7, 1);
  const uint64_t kReads[] = {2, 1, 1, 1, 1, 0};
  for (uint64_t i = 0; i < 6; ++i) {
    Write(i * 4096, 4096);
    EXPECT_EQ(Pages(), (Counts{kReads[i], 2})) << "page " << i;
  }
}

TEST_F(MdCounts, PagesAtOnceAreAWholeStripe) {
  Make(8, 2);
  std::vector<std::pair<uint64_t, size_t>> pages;
  for (uint64_t i = 0; i < 12; ++i) {
    pages.emplace_back(i * 4096, 4096);
  }
  ASSERT_TRUE(rig_->WriteAll(pages).ok());
  EXPECT_EQ(Pages(), (Counts{0, 16}));
  EXPECT_EQ(Requests(), (Counts{0, 8})) << "two lines side by side on each SSD";
  EXPECT_EQ(rig_->traffic().lines_full, 2U);
}

TEST_F(MdCounts, APartOfAPageReadsThePage) {
  Make(7, 1);
  Write(512, 1024);
  EXPECT_EQ(Pages(), (Counts{2, 2}));
  EXPECT_EQ(rig_->traffic().bytes(IoClass::kFillRead), 4096U);
  EXPECT_EQ(rig_->traffic().bytes(IoClass::kModifyRead), 4096U);
}

TEST_F(MdCounts, ACachedLineReadsNothing) {
  Make(8, 2);
  Write(0, 4096);
  EXPECT_EQ(Pages(), (Counts{3, 3}));
  Write(0, 4096);
  EXPECT_EQ(Pages(), (Counts{0, 3}));
  // 256 lines in 8 sets: 31 others of its set leave it there, 32 do not.
  const uint64_t stripe = 6 * 4096;
  for (const uint64_t others : {31U, 32U}) {
    for (uint64_t i = 1; i <= others; ++i) {
      Write(i * 8 * stripe, stripe);
      Write(i * 8 * stripe + stripe, stripe);  // of another set: does not matter
    }
    Pages();
    Write(0, 4096);
    EXPECT_EQ(Pages(), (others == 31 ? Counts{0, 3} : Counts{3, 3}));
  }
}

TEST_F(MdCounts, ALineOutOfTheCacheIsReadAgain) {
  RigShape shape;
  shape.cached_lines = 8;
  rig_ = std::make_unique<TargetRig>(shape);
  Write(0, 4096);
  EXPECT_EQ(Pages(), (Counts{3, 3}));
  Write(8 * 6 * 4096, 4096);  // line 8 takes the one place of the set
  EXPECT_EQ(Pages(), (Counts{3, 3}));
  Write(0, 4096);
  EXPECT_EQ(Pages(), (Counts{3, 3}));
}

// Each chunk is read once, whatever is in the cache.
TEST_F(MdCounts, ReadsPassTheCache) {
  Make(8, 2, 8192);
  Write(0, 4096);
  Requests();
  Pages();
  rig_->Read(0, 4096);
  EXPECT_EQ(Requests(), (Counts{1, 0}));
  rig_->Read(4096, 6 * 8192);  // half a chunk, five, and half a one of the next stripe
  EXPECT_EQ(Requests(), (Counts{7, 0}));
  rig_->Read(1024, 512);
  EXPECT_EQ(rig_->traffic().bytes(IoClass::kUserRead), 4096U + 6 * 8192 + 512);
}

// The second waits until the first was taken; then it finds everything in the cache.
TEST_F(MdCounts, WritesOfTheSamePageFollowEachOther) {
  Make(8, 2);
  ASSERT_TRUE(rig_->WriteAll({{0, 4096}, {0, 4096}, {0, 4096}}).ok());
  EXPECT_EQ(Pages(), (Counts{3, 9}));
}

// A page, the same page again, and the rest of its line: if all wait behind the second, the rest
// comes too late for the first.
TEST_F(MdCounts, OneSubmitterStandsStillWhileARequestWaits) {
  for (const bool one_submitter : {false, true}) {
    RigShape shape;
    shape.n = 7;
    shape.m = 1;
    shape.one_submitter = one_submitter;
    rig_ = std::make_unique<TargetRig>(shape);
    pages_ = {};
    ASSERT_TRUE(rig_->WriteAll({{0, 4096}, {0, 4096}, {4096, 5 * 4096}}).ok());
    EXPECT_EQ(Pages(), (one_submitter ? Counts{2, 2 + 7} : Counts{0, 7 + 2}));
  }
}

TEST_F(MdCounts, PartsOfOnePageMeet) {
  Make(7, 1);
  ASSERT_TRUE(rig_->WriteAll({{0, 2048}, {2048, 2048}}).ok());
  EXPECT_EQ(Pages(), (Counts{2, 2})) << "together they are a page";
  EXPECT_EQ(rig_->traffic().bytes(IoClass::kFillRead), 0U);
}

// Degraded: k others for what is gone, once.
TEST_F(MdCounts, AFailedPageIsDecodedFromKOthers) {
  Make(8, 2);
  FailPage0();
  rig_->Read(0, 4096);
  EXPECT_EQ(Pages(), (Counts{6, 0}));
  rig_->Read(0, 6 * 4096);
  EXPECT_EQ(Pages(), (Counts{0, 0})) << "it is in the cache now";
}

TEST_F(MdCounts, AFailedPageIsOverwrittenInTheParity) {
  Make(8, 2);
  FailPage0();
  Write(0, 4096);
  EXPECT_EQ(rig_->traffic().bytes(IoClass::kReconstructRead), 5U * 4096);
  EXPECT_EQ(rig_->traffic().bytes(IoClass::kDataWrite), 0U);
  EXPECT_EQ(rig_->traffic().bytes(IoClass::kParityWrite), 2U * 4096);
}

TEST_F(MdCounts, RefusesWhatCannotBe) {
  RigShape shape;
  shape.n = 4;
  shape.m = 1;
  TargetRig rig(shape);
  EXPECT_EQ(rig.TryOpen(3).error().code, ErrorCode::kTooManyFailures);
  EXPECT_EQ(rig.Write(100, 512, 1).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(rig.Write(rig.target->size_bytes(), 512, 1).error().code, ErrorCode::kInvalidArgument);
  ASSERT_TRUE(RunTask(rig.loop, rig.target->Close()).ok());
  EXPECT_EQ(rig.Write(0, 512, 1).error().code, ErrorCode::kShutdown);
}

TEST_F(MdCounts, AnErrorIsReturnedToWhoNeededIt) {
  Make(7, 1);
  const uint32_t parity_ssd = rig_->placement().SsdOf(0, 6).value;
  rig_->faulty(parity_ssd).Add({.kinds = MaskOf(RequestKind::kRead)});
  EXPECT_EQ(rig_->Write(0, 4096, 1).error().code, ErrorCode::kIo);
  EXPECT_TRUE(rig_->Write(0, 4096, 1).ok());
  rig_->faulty(parity_ssd).Add({.kinds = MaskOf(RequestKind::kWrite)});
  EXPECT_EQ(rig_->Write(0, 4096, 1).error().code, ErrorCode::kIo);
  EXPECT_TRUE(rig_->Write(0, 4096, 1).ok());
}

}  // namespace
}  // namespace eplog::test
