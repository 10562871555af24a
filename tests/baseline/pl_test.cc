// What `pl` sends to its devices, in closed form, and when it commits.
#include <gtest/gtest.h>

#include "tests/baseline/rig.h"

namespace eplog::test {
namespace {

class Pl : public ::testing::Test {
 protected:
  void Make(uint32_t n, uint32_t m, uint64_t log_pages = 256) {
    RigShape shape;
    shape.kind = Kind::kPl;
    shape.n = n;
    shape.m = m;
    shape.log_bytes = log_pages * kPageBytes;
    rig_ = std::make_unique<TargetRig>(shape);
  }
  void Write(uint64_t offset, size_t length) {
    ASSERT_TRUE(rig_->Write(offset, length, offset + 1).ok());
  }
  void Commit() { ASSERT_TRUE(RunTask(rig_->loop, rig_->target->Commit()).ok()); }
  // Bytes of a class, in pages.
  [[nodiscard]] uint64_t Pages(IoClass io_class) const {
    return rig_->traffic().bytes(io_class) / kPageBytes;
  }
  [[nodiscard]] size_t Pending() const {
    return dynamic_cast<PlArray&>(*rig_->target).pending_lines();
  }

  std::unique_ptr<TargetRig> rig_;
};

TEST_F(Pl, ALonePageReadsItsOldContentAndLogsADifference) {
  for (uint32_t m = 1; m <= 4; ++m) {
    Make(4 + m, m);
    Write(0, 4096);
    EXPECT_EQ(Pages(IoClass::kModifyRead), 1U);
    EXPECT_EQ(Pages(IoClass::kDataWrite), 1U);
    EXPECT_EQ(Pages(IoClass::kLogWrite), m);
    EXPECT_EQ(Pages(IoClass::kParityWrite), 0U);
    EXPECT_EQ(Pending(), 1U);
    Commit();
    EXPECT_EQ(Pages(IoClass::kCommitRead), 2 * m) << "the differences and the old parity";
    EXPECT_EQ(Pages(IoClass::kParityWrite), m);
    EXPECT_EQ(Pending(), 0U);
    rig_->ExpectCountsAgree();
  }
}

TEST_F(Pl, ChunksOfAStripeInOneRequestMakeOneDifference) {
  Make(8, 2);
  Write(0, 5 * 4096);
  EXPECT_EQ(Pages(IoClass::kModifyRead), 5U);
  EXPECT_EQ(Pages(IoClass::kDataWrite), 5U);
  EXPECT_EQ(Pages(IoClass::kLogWrite), 2U);
}

TEST_F(Pl, WholeStripesGoPastTheLog) {
  Make(8, 2);
  Write(0, 12 * 4096);
  EXPECT_EQ(rig_->traffic().SsdTotal().reads, 0U);
  EXPECT_EQ(rig_->traffic().SsdTotal().writes, 8U) << "two lines side by side on each SSD";
  EXPECT_EQ(Pages(IoClass::kDataWrite), 12U);
  EXPECT_EQ(Pages(IoClass::kParityWrite), 4U);
  EXPECT_EQ(Pages(IoClass::kLogWrite), 0U);
}

TEST_F(Pl, AWholeStripeVoidsItsDifferences) {
  Make(8, 2);
  Write(0, 4096);
  Write(4096, 4096);
  EXPECT_EQ(Pending(), 1U);
  Write(0, 6 * 4096);
  EXPECT_EQ(Pending(), 0U);
  Commit();
  EXPECT_EQ(Pages(IoClass::kCommitRead), 0U);
}

TEST_F(Pl, ACommitWritesParityOnceHoweverOftenItChanged) {
  Make(8, 2);
  for (uint64_t i = 0; i < 10; ++i) {
    Write(i % 3 * 4096, 4096);
  }
  EXPECT_EQ(Pages(IoClass::kLogWrite), 20U);
  Commit();
  EXPECT_EQ(Pages(IoClass::kCommitRead), 22U);
  EXPECT_EQ(Pages(IoClass::kParityWrite), 2U);
  EXPECT_EQ(rig_->traffic().lines_committed, 1U);
  const DeviceTraffic log = rig_->traffic().LogTotal();
  EXPECT_EQ(log.reads, 2U) << "the log is read in one go";
}

TEST_F(Pl, TheLogIsWrittenSequentially) {
  Make(8, 2);
  std::vector<std::pair<uint64_t, size_t>> pages;
  for (uint64_t i = 0; i < 8; ++i) {
    pages.emplace_back(i * 7 * 4096, 4096);
  }
  ASSERT_TRUE(rig_->WriteAll(pages).ok());
  EXPECT_EQ(Pages(IoClass::kLogWrite), 16U);
  EXPECT_LT(rig_->traffic().LogTotal().writes, 16U) << "differences of one turn leave together";
}

TEST_F(Pl, AFullLogIsCommitted) {
  Make(8, 2, 4);
  for (uint64_t i = 0; i < 9; ++i) {
    Write(i * 6 * 4096, 4096);
  }
  EXPECT_EQ(rig_->traffic().commits, 2U);
  EXPECT_EQ(rig_->traffic().lines_committed, 8U);
  EXPECT_EQ(Pending(), 1U);
}

// More at once than the log has places.
TEST_F(Pl, ManyWritesShareASmallLog) {
  Make(8, 2, 2);
  std::vector<std::pair<uint64_t, size_t>> pages;
  for (uint64_t i = 0; i < 40; ++i) {
    pages.emplace_back(i * 5 * 4096, 3 * 4096);
  }
  ASSERT_TRUE(rig_->WriteAll(pages).ok());
  EXPECT_LE(Pending(), 2U);
}

TEST_F(Pl, CloseCommits) {
  Make(8, 2);
  Write(0, 4096);
  ASSERT_TRUE(RunTask(rig_->loop, rig_->target->Close()).ok());
  EXPECT_EQ(Pending(), 0U);
  EXPECT_EQ(Pages(IoClass::kParityWrite), 2U);
}

// S8 of the paper's supplement: without commit an SSD is written what users write, as with EPLOG.
TEST_F(Pl, WithoutCommitSsdsAreWrittenWhatUsersWrite) {
  Make(8, 2);
  for (uint64_t i = 0; i < 100; ++i) {
    Write(i * 37 % 200 * 4096, 4096 * (1 + i % 3));
  }
  EXPECT_EQ(rig_->traffic().SsdTotal().bytes_written, rig_->traffic().user_bytes_written);
}

TEST_F(Pl, DifferencesOfLostParityAreNotLogged) {
  Make(5, 1);
  rig_->Open(uint64_t{1} << rig_->placement().SsdOf(0, 4).value);
  Write(0, 4096);
  EXPECT_EQ(Pages(IoClass::kLogWrite), 0U);
  EXPECT_EQ(Pending(), 0U);
}

TEST_F(Pl, WithoutALogDeviceCommitsReadAllData) {
  Make(8, 2);
  rig_->Open(uint64_t{1} << 8);
  Write(0, 4096);
  EXPECT_EQ(Pages(IoClass::kLogWrite), 1U);
  Commit();
  EXPECT_EQ(Pages(IoClass::kCommitRead), 6U);
  EXPECT_EQ(Pages(IoClass::kParityWrite), 2U);
}

TEST_F(Pl, RefusesWhatCannotBe) {
  Make(6, 2);
  EXPECT_EQ(rig_->TryOpen(0b1000011).error().code, ErrorCode::kTooManyFailures);
  EXPECT_TRUE(rig_->TryOpen(0b1000001).ok());
  EXPECT_EQ(rig_->Write(3, 512, 1).error().code, ErrorCode::kInvalidArgument);
}

// A failed append leaves nothing behind in the index.
TEST_F(Pl, AnErrorIsReturnedToWhoNeededIt) {
  Make(8, 2);
  rig_->faulty(8).Add({.kinds = MaskOf(RequestKind::kWrite)});
  EXPECT_EQ(rig_->Write(0, 4096, 1).error().code, ErrorCode::kIo);
  EXPECT_EQ(Pending(), 0U);
  EXPECT_TRUE(rig_->Write(0, 4096, 1).ok());
  EXPECT_EQ(Pending(), 1U);
  rig_->faulty(9).Add({.kinds = MaskOf(RequestKind::kRead)});
  EXPECT_EQ(RunTask(rig_->loop, rig_->target->Commit()).error().code, ErrorCode::kIo);
  EXPECT_EQ(Pending(), 1U) << "it is still to be committed";
}

}  // namespace
}  // namespace eplog::test
