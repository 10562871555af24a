#include "control/control_lines.h"

#include <gtest/gtest.h>

namespace eplog {
namespace {

TEST(ControlLines, ComeOutAsTheyAreComplete) {
  ControlLines lines;
  EXPECT_EQ(lines.Next(), std::nullopt);
  lines.Add("on");
  EXPECT_EQ(lines.Next(), std::nullopt);
  lines.Add("e\n\ntwo\nthr");
  EXPECT_EQ(lines.Next(), "one");
  EXPECT_EQ(lines.Next(), "");
  EXPECT_EQ(lines.Next(), "two");
  EXPECT_EQ(lines.Next(), std::nullopt);
  lines.Add("ee\n");
  EXPECT_EQ(lines.Next(), "three");
}

TEST(ControlLines, LineWithoutAnEndIsTooLong) {
  ControlLines lines;
  lines.Add(std::string(kMaxControlLineBytes, 'x'));
  EXPECT_EQ(lines.Next(), std::nullopt);
  EXPECT_FALSE(lines.too_long());
  lines.Add("x");
  EXPECT_TRUE(lines.too_long());
}

TEST(ControlRequest, IsAnObjectWithAVerb) {
  for (const char* line : {"", "{", "[]", "7", "{}", "{\"verb\":7}", "{\"verb\":\"a\"} x",
                           "{\"verb\":\"\xFF\"}", "{\"verb\":\"a\",\"n\":1e999}"}) {
    const auto request = DecodeControlRequest(line);
    ASSERT_FALSE(request.ok()) << line;
    EXPECT_EQ(request.error().code, ErrorCode::kInvalidArgument);
  }
  const auto request = DecodeControlRequest(" {\"verb\":\"a\",\"n\":1} \r");
  ASSERT_TRUE(request.ok());
  EXPECT_EQ((*request)["verb"], "a");
}

// As deep as a line can be: taken apart without a stack frame for each level.
TEST(ControlRequest, DepthCostsNoStack) {
  const size_t depth = kMaxControlLineBytes / 2 - 100;
  const auto request = DecodeControlRequest("{\"verb\":\"a\",\"x\":" + std::string(depth, '[') +
                                            std::string(depth, ']') + "}");
  EXPECT_TRUE(request.ok());
}

}  // namespace
}  // namespace eplog
