// Which of two copies counts, when one may have been newer, and whose copies are not believed.
#include "engine/checkpoint/superblock_copies.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "device/memory_device.h"
#include "runtime/run_task.h"
#include "runtime/virtual_loop.h"

namespace eplog {
namespace {

constexpr Uuid kArray = {std::byte{1}};

Result<Superblock> Copy(uint64_t generation, uint8_t device = 1, const Uuid& array = kArray) {
  Superblock superblock;
  superblock.array_uuid = array;
  superblock.device_uuid = {std::byte{9}, std::byte{device}};
  superblock.generation = generation;
  return superblock;
}
Result<Superblock> Not(ErrorCode code) {
  return Fail(code, "not believed");
}

class Copies : public ::testing::Test {
 protected:
  [[nodiscard]] SuperblockCopies Of(const Result<Superblock>& a, const Result<Superblock>& b) {
    return {&device_, {a, b}};
  }
  VirtualLoop loop_;
  MemoryDevice device_{"disk", uint64_t{1} << 20};
  MemoryDevice other_{"other", uint64_t{1} << 20};
  MemoryDevice third_{"third", uint64_t{1} << 20};
};

TEST_F(Copies, TheNewerOfTwoCountsWhicheverItIs) {
  EXPECT_EQ(Of(Copy(3), Copy(4)).Newest()->generation, 4U);
  EXPECT_EQ(Of(Copy(5), Copy(4)).Newest()->generation, 5U);
  EXPECT_EQ(Of(Copy(5), Copy(4)).whole(), 2U);
}

TEST_F(Copies, OneIsEnough) {
  for (const ErrorCode code :
       {ErrorCode::kCorrupt, ErrorCode::kIo, ErrorCode::kDeviceFailed, ErrorCode::kNotFound}) {
    EXPECT_EQ(Of(Copy(3), Not(code)).Newest()->generation, 3U);
    EXPECT_EQ(Of(Not(code), Copy(3)).Newest()->generation, 3U);
    EXPECT_EQ(Of(Not(code), Copy(3)).whole(), 1U);
  }
}

// It is another program's, and newer.
TEST_F(Copies, OfANewerFormatNoneIsTouched) {
  const auto found = Of(Copy(3), Not(ErrorCode::kUnsupported)).Newest();
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, ErrorCode::kUnsupported);
  EXPECT_TRUE(found.error().message.starts_with("disk: "));
  EXPECT_EQ(Of(Not(ErrorCode::kUnsupported), Not(ErrorCode::kIo)).Newest().error().code,
            ErrorCode::kUnsupported);
}

TEST_F(Copies, OfTwoThatAreNotBelievedTheOneThatTellsMoreIsTold) {
  using enum ErrorCode;
  EXPECT_EQ(Of(Not(kNotFound), Not(kNotFound)).Newest().error().code, kNotFound);
  EXPECT_EQ(Of(Not(kNotFound), Not(kCorrupt)).Newest().error().code, kCorrupt);
  EXPECT_EQ(Of(Not(kIo), Not(kCorrupt)).Newest().error().code, kIo);
  EXPECT_EQ(Of(Not(kCorrupt), Not(kDeviceFailed)).Newest().error().code, kDeviceFailed);
  EXPECT_NE(Of(Not(kNotFound), Not(kNotFound)).Newest().error().message.find("disk"),
            std::string::npos);
}

TEST_F(Copies, ADamagedOneMayHaveBeenTheNewest) {
  using enum ErrorCode;
  EXPECT_FALSE(Of(Copy(3), Copy(4)).doubtful());
  EXPECT_TRUE(Of(Copy(3), Not(kCorrupt)).doubtful());
  EXPECT_TRUE(Of(Not(kIo), Copy(3)).doubtful());
  EXPECT_TRUE(Of(Not(kDeviceFailed), Copy(3)).doubtful());
  EXPECT_FALSE(Of(Copy(1), Not(kNotFound)).doubtful()) << "it was written once";
  EXPECT_TRUE(Of(Copy(2), Not(kNotFound)).doubtful()) << "so there was a first one";
  EXPECT_FALSE(Of(Not(kNotFound), Not(kNotFound)).doubtful());
}

TEST_F(Copies, WhatCannotBeReadCountsAsMissing) {
  EXPECT_TRUE(CannotBeRead(ErrorCode::kCorrupt) && CannotBeRead(ErrorCode::kIo) &&
              CannotBeRead(ErrorCode::kDeviceFailed));
  EXPECT_FALSE(CannotBeRead(ErrorCode::kNotFound) || CannotBeRead(ErrorCode::kUnsupported));
}

TEST_F(Copies, OfATooSmallDeviceNothingIsRead) {
  MemoryDevice small("small", kSuperblockAreaBytes - 512);
  const auto copies = RunTask(loop_, ReadCopies(small));
  ASSERT_FALSE(copies.ok());
  EXPECT_EQ(copies.error().code, ErrorCode::kInvalidArgument);
  MemoryDevice just("just", kSuperblockAreaBytes);
  EXPECT_TRUE(RunTask(loop_, ReadCopies(just)).ok());
  EXPECT_EQ(RunTask(loop_, ReadSuperblock(just)).error().code, ErrorCode::kNotFound);
}

// ---- a copy that was written to the wrong device

TEST_F(Copies, ACopyOfAnotherMemberIsNotBelieved) {
  std::vector<SuperblockCopies> all = {{&device_, {Copy(3, 1), Copy(4, 2)}},
                                       {&other_, {Copy(3, 2), Copy(4, 2)}}};
  DropStrays(all);
  EXPECT_TRUE(all[0].of[0].ok());
  EXPECT_EQ(all[0].of[1].error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(all[0].Newest()->device_uuid[1], std::byte{1});
  EXPECT_EQ(all[1].whole(), 2U) << "that one is who it says";
}

TEST_F(Copies, WhereNobodyElseIsEitherNeitherIsBelieved) {
  std::vector<SuperblockCopies> all = {{&device_, {Copy(3, 1), Copy(4, 2)}},
                                       {&other_, {Copy(3, 3), Copy(4, 3)}}};
  DropStrays(all);
  EXPECT_EQ(all[0].whole(), 0U);
  EXPECT_EQ(all[1].whole(), 2U);
}

TEST_F(Copies, WhereBothAreOthersNeitherIsBelieved) {
  std::vector<SuperblockCopies> all = {{&device_, {Copy(3, 1), Copy(4, 2)}},
                                       {&other_, {Copy(3, 1), Copy(4, 1)}},
                                       {&third_, {Copy(3, 2), Copy(4, 2)}}};
  DropStrays(all);
  EXPECT_EQ(all[0].whole(), 0U);
}

// Two lives of one disk: the older array's copy is no stray.
TEST_F(Copies, OfTwoArraysBothAreLeft) {
  const Uuid before = {std::byte{5}};
  std::vector<SuperblockCopies> all = {{&device_, {Copy(9, 1, before), Copy(2, 2)}}};
  DropStrays(all);
  EXPECT_EQ(all[0].whole(), 2U);
}

}  // namespace
}  // namespace eplog
