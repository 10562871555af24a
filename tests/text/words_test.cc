#include "text/words.h"

#include <gtest/gtest.h>

namespace eplog {
namespace {

TEST(Words, LoseWhatIsAroundThem) {
  EXPECT_EQ(Trim(" \ta b\t "), "a b");
  EXPECT_EQ(Trim(" \t"), "");
  EXPECT_EQ(Trim(""), "");
  EXPECT_EQ(Trim("a"), "a");
}

TEST(Words, AreLowerCaseInAscii) {
  EXPECT_EQ(Lower("AbZ[@`{ 9"), "abz[@`{ 9");
  EXPECT_EQ(Lower("ÄÖ"), "ÄÖ") << "bytes beyond ASCII are not letters";
}

TEST(Words, StayInOneLine) {
  EXPECT_EQ(OneLine("a\nb\r\x1b[2Jc\x7f"
                    "d\n\r\n"),
            "a b  [2Jc d");
  EXPECT_EQ(OneLine("\n"), "");
  EXPECT_EQ(OneLine("bläh "), "bläh ");
}

TEST(Words, NumbersHaveCommas) {
  EXPECT_EQ(WithCommas("1"), "1");
  EXPECT_EQ(WithCommas("123"), "123");
  EXPECT_EQ(WithCommas("1234"), "1,234");
  EXPECT_EQ(WithCommas("-123456.7891"), "-123,456.7891");
  EXPECT_EQ(WithCommas("1234567"), "1,234,567");
}

TEST(Words, WholeNumbersAreDigitsAlone) {
  EXPECT_EQ(ParseWhole("0"), 0U);
  EXPECT_EQ(ParseWhole("18446744073709551615"), UINT64_MAX);
  for (const char* text : {"", "-1", "+1", "1 ", " 1", "1.0", "18446744073709551616", "x"}) {
    EXPECT_EQ(ParseWhole(text), std::nullopt) << text;
  }
}

// By characters, not bytes; what is behind the last cell is cut off.
TEST(Words, ColumnsAreAsWideAsTheirWidestCell) {
  EXPECT_EQ(
      Columns({{"a", "1", "x"}, {"ü", "100"}, {"ccc", "20", ""}}, [](size_t i) { return i != 1; }),
      "  a      1  x\n"
      "  ü    100\n"
      "  ccc   20\n");
  EXPECT_EQ(Columns({}, [](size_t) { return true; }), "");
}

}  // namespace
}  // namespace eplog
