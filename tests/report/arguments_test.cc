// What a request carries, and what is said of one that lacks it.
#include "report/arguments.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace eplog {
namespace {

template <typename T>
std::string Said(const Result<T>& result) {
  return result.ok()
             ? "ok"
             : std::string(ErrorCodeName(result.error().code)) + ": " + result.error().message;
}

// As it comes off the socket.
Json Read(const char* text) {
  return Json::parse(text);
}

TEST(Arguments, TextsAreTextsOrEmpty) {
  EXPECT_EQ(TextArgument(Read(R"({"path":"/x"})"), "path"), "/x");
  EXPECT_EQ(TextArgument(Read(R"({"path":"/x"})"), "name"), "");
  EXPECT_EQ(TextArgument(Read(R"({"path":7})"), "path"), "");
  EXPECT_EQ(TextArgument(Read("{}"), "path"), "");
}

TEST(Arguments, NamesAreTexts) {
  EXPECT_EQ(*NameArgument(Read(R"({"name":"v"})")), "v");
  const std::string lacks = "invalid argument: the request lacks a volume's name";
  for (const char* bad : {"{}", R"({"name":7})", R"({"name":null})"}) {
    EXPECT_EQ(Said(NameArgument(Read(bad))), lacks) << bad;
  }
}

TEST(Arguments, SizesAreWholeAndNotNegative) {
  EXPECT_EQ(*SizeArgument(Read(R"({"size_bytes":0})")), 0U);
  EXPECT_EQ(*SizeArgument(Read(R"({"size_bytes":18446744073709551615})")), UINT64_MAX);
  const std::string lacks = "invalid argument: the request lacks a size in bytes";
  for (const char* bad :
       {"{}", R"({"size_bytes":-1})", R"({"size_bytes":1.5})", R"({"size_bytes":"1"})"}) {
    EXPECT_EQ(Said(SizeArgument(Read(bad))), lacks) << bad;
  }
}

TEST(Arguments, DevicesAreNumbersOfMembers) {
  EXPECT_EQ(*DeviceArgument(Read(R"({"device":0})")), 0U);
  EXPECT_EQ(*DeviceArgument(Read(R"({"device":4294967294})")), UINT32_MAX - 1);
  const std::string lacks = "invalid argument: the request lacks the number of a device";
  for (const char* bad : {"{}", R"({"device":-1})", R"({"device":4294967295})",
                          R"({"device":4294967296})", R"({"device":"ssd0"})"}) {
    EXPECT_EQ(Said(DeviceArgument(Read(bad))), lacks) << bad;
  }
}

TEST(Arguments, IdentitiesAreWhole) {
  const auto identity =
      IdentityArgument(Read(R"({"identity":{"block":true,"device":5,"inode":6}})"));
  ASSERT_TRUE(identity.ok());
  EXPECT_EQ(*identity, (DeviceIdentity{true, 5, 6}));
  const std::string lacks =
      "invalid argument: the request lacks the identity of the device that was looked at";
  for (const char* bad :
       {"{}", R"({"identity":7})", R"({"identity":{"device":5,"inode":6}})",
        R"({"identity":{"block":true,"device":5}})", R"({"identity":{"block":true,"inode":6}})"}) {
    EXPECT_EQ(Said(IdentityArgument(Read(bad))), lacks) << bad;
  }
}

TEST(Arguments, VolumesThatAreNotThereAreNamed) {
  const Error error = NoSuchVolume("v").value();
  EXPECT_EQ(error.code, ErrorCode::kNotFound);
  EXPECT_EQ(error.message, "no volume is called v");
}

}  // namespace
}  // namespace eplog
