#include "eplog/result.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <set>
#include <string>

namespace eplog {
namespace {

TEST(Error, TheLineSaysWhatWhereAndWhy) {
  Error error;
  error.message = "reading ssd0 failed";
  EXPECT_EQ(error.ToString(), "reading ssd0 failed");
  error.offset_bytes = 8192;
  EXPECT_EQ(error.ToString(), "reading ssd0 failed at byte 8192");
  error.errno_value = EIO;
  EXPECT_EQ(error.ToString(), "reading ssd0 failed at byte 8192: Input/output error");
  error.offset_bytes = kNoOffset;
  EXPECT_EQ(error.ToString(), "reading ssd0 failed: Input/output error");
  error.offset_bytes = 0;
  error.errno_value = 0;
  EXPECT_EQ(error.ToString(), "reading ssd0 failed at byte 0");
}

TEST(Error, EveryCodeHasANameOfItsOwn) {
  std::set<std::string> names;
  for (int code = 0; code <= static_cast<int>(ErrorCode::kShutdown); ++code) {
    names.insert(ErrorCodeName(static_cast<ErrorCode>(code)));
  }
  EXPECT_EQ(names.size(), static_cast<size_t>(ErrorCode::kShutdown) + 1);
  EXPECT_EQ(names.count("unknown"), 0U);
  EXPECT_STREQ(ErrorCodeName(static_cast<ErrorCode>(200)), "unknown");
}

TEST(Error, ErrnoNamesTheReaction) {
  EXPECT_EQ(FailErrno(ENOSPC, "x").value().code, ErrorCode::kNoSpace);
  EXPECT_EQ(FailErrno(EDQUOT, "x").value().code, ErrorCode::kNoSpace);
  const auto failed = FailErrno(EIO, "writing");
  EXPECT_EQ(failed.value().code, ErrorCode::kIo);
  EXPECT_EQ(failed.value().errno_value, EIO);
  EXPECT_EQ(failed.value().device, kNoDevice);
  EXPECT_EQ(failed.value().offset_bytes, kNoOffset);
}

Result<int> Half(int value) {
  if (value % 2 != 0) {
    return Fail(ErrorCode::kInvalidArgument, "odd");
  }
  return value / 2;
}

Status Quarter(int value, int* result) {
  EPLOG_TRY(Half(value));
  EPLOG_TRY(Half(*Half(value)));
  *result = *Half(*Half(value));
  return OkStatus();
}

TEST(Result, HoldsAValueOrAnError) {
  const Result<int> good = Half(6);
  ASSERT_TRUE(good.ok());
  EXPECT_EQ(*good, 3);
  const Result<int> bad = Half(5);
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.error().message, "odd");
  EXPECT_TRUE(OkStatus().ok());
}

TEST(Result, CarriesWhatOnlyMoves) {
  Result<std::unique_ptr<int>> result = std::make_unique<int>(4);
  const std::unique_ptr<int> taken = std::move(*result);
  EXPECT_EQ(*taken, 4);
}

TEST(Result, TryReturnsTheFirstError) {
  int result = 0;
  EXPECT_TRUE(Quarter(12, &result).ok());
  EXPECT_EQ(result, 3);
  const Status status = Quarter(6, &result);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(status.error().message, "odd");
  EXPECT_EQ(result, 3);
}

TEST(Result, AnErrorPassesThroughUnchanged) {
  Error error;
  error.code = ErrorCode::kDeviceFailed;
  error.message = "gone";
  error.device = 3;
  error.offset_bytes = 77;
  const Status status = Fail(error);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kDeviceFailed);
  EXPECT_EQ(status.error().device, 3);
  EXPECT_EQ(status.error().offset_bytes, 77);
}

}  // namespace
}  // namespace eplog
