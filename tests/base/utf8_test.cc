#include "base/utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace eplog {
namespace {

TEST(Utf8, TakesWhatIsWellFormed) {
  for (const char* good :
       {"", "plain", "\x7f", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80",
        "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf", "a\xc3\xa4z\xf0\x9f\x98\x80"}) {
    EXPECT_TRUE(IsUtf8(good)) << good;
  }
  EXPECT_TRUE(IsUtf8(std::string("\0", 1)));
}

TEST(Utf8, RefusesEverythingElse) {
  const std::string longer = "\xc3\xa4";
  for (const std::string& bad :
       {std::string("\x80"), std::string("\xbf"), std::string("\xc0\x80"), std::string("\xc1\xbf"),
        std::string("\xc2"), std::string("\xc2 "), std::string("\xe0\x9f\xbf"),
        std::string("\xe1\x80"), std::string("\xed\xa0\x80"), std::string("\xed\xbf\xbf"),
        std::string("\xf0\x8f\xbf\xbf"), std::string("\xf1\x80\x80"),
        std::string("\xf4\x90\x80\x80"), std::string("\xf5\x80\x80\x80"), std::string("\xff"),
        "ok" + longer.substr(0, 1), longer + "\xa4"}) {
    EXPECT_FALSE(IsUtf8(bad)) << bad.size();
  }
}

}  // namespace
}  // namespace eplog
