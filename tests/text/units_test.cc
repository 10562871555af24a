#include "text/units.h"

#include <gtest/gtest.h>

namespace eplog {
namespace {

constexpr uint64_t kKib = 1024;
constexpr uint64_t kGib = kKib * kKib * kKib;

TEST(ParseSize, TakesEveryWayPeopleWriteIt) {
  const std::pair<const char*, uint64_t> cases[] = {
      {"0", 0},
      {"4096", 4096},
      {"4096B", 4096},
      {"4K", 4 * kKib},
      {"4k", 4 * kKib},
      {"4KB", 4 * kKib},
      {"4KiB", 4 * kKib},
      {"4 kib", 4 * kKib},
      {" 1M ", kKib << 10},
      {"1.5G", kGib + kGib / 2},
      {"0.5k", 512},
      {"2T", 2 * kKib * kGib},
      {"1P", kKib * kKib * kGib},
      {"16383P", 16383 * kKib * kKib * kGib},
      {"18446744073709551615", UINT64_MAX},
  };
  for (const auto& [text, bytes] : cases) {
    const auto parsed = ParseSize(text);
    ASSERT_TRUE(parsed.ok()) << text << ": " << parsed.error().message;
    EXPECT_EQ(*parsed, bytes) << text;
  }
}

TEST(ParseSize, RefusesWhatIsNoSize) {
  for (const char* text : {"", " ", "K", "G1", "-1", "+1", "1..5G", "1.", ".5G", "1X", "1KX",
                           "1KiBs", "0x10", "1e3", "1,5G", "nan", "4K4", "1.0123456789G", "one"}) {
    const auto parsed = ParseSize(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(parsed.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(parsed.error().message.find("is not a size"), std::string::npos)
        << parsed.error().message;
  }
}

TEST(ParseSize, RefusesOverflowAndPartsOfBytes) {
  for (const char* text :
       {"18446744073709551616", "16384P", "99999999999T", "1.3K", "0.1B", "1.5"}) {
    EXPECT_FALSE(ParseSize(text).ok()) << text;
  }
}

TEST(ParseDuration, TakesUnitsAndBareSeconds) {
  const std::pair<const char*, uint64_t> cases[] = {
      {"0", 0},
      {"5", 5'000'000},
      {"5s", 5'000'000},
      {"250ms", 250'000},
      {"2m", 120'000'000},
      {"1h", 3'600'000'000},
      {"1.5h", 5'400'000'000},
      {"1d", 86'400'000'000},
      {"3 S", 3'000'000},
  };
  for (const auto& [text, us] : cases) {
    const auto parsed = ParseDuration(text);
    ASSERT_TRUE(parsed.ok()) << text;
    EXPECT_EQ(*parsed, us) << text;
  }
  for (const char* text : {"", "s", "5 weeks", "-1s", "1:30", "999999999999d"}) {
    EXPECT_FALSE(ParseDuration(text).ok()) << text;
  }
}

TEST(ParsePercent, WithAndWithoutSign) {
  EXPECT_EQ(*ParsePercent("10%"), 10U);
  EXPECT_EQ(*ParsePercent("7"), 7U);
  EXPECT_EQ(*ParsePercent("100%"), 100U);
  for (const char* text : {"", "%", "10%%", "1.5%", "101", "-1", "ten"}) {
    EXPECT_FALSE(ParsePercent(text).ok()) << text;
  }
}

TEST(IsPlainText, WholeCharactersOnly) {
  for (const char* good : {"", "a", "with space", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80",
                           "\xF4\x8F\xBF\xBF"}) {
    EXPECT_TRUE(IsPlainText(good)) << good;
  }
  for (const char* bad :
       {"\n", "\x7F", "\x80", "\xC3", "\xC0\xAF", "\xE0\x80\x80", "\xED\xA0\x80",
        "\xF0\x80\x80\x80", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xC3(", "a\xFF"}) {
    EXPECT_FALSE(IsPlainText(bad));
  }
}

TEST(TypedSize, CanBeTypedBack) {
  EXPECT_EQ(TypedSize(0), "0");
  EXPECT_EQ(TypedSize(1536), "1536");
  EXPECT_EQ(TypedSize(kGib), "1G");
  EXPECT_EQ(TypedSize(kGib + kGib / 2), "1536M");
  for (const uint64_t bytes : {uint64_t{1}, 4 * kKib, 3 * kGib, kGib + 512, UINT64_MAX}) {
    EXPECT_EQ(*ParseSize(TypedSize(bytes)), bytes);
  }
}

TEST(HumanSeconds, PicksTheUnit) {
  EXPECT_EQ(HumanSeconds(0.44), "0.4s");
  EXPECT_EQ(HumanSeconds(12.3), "12s");
  EXPECT_EQ(HumanSeconds(75), "1m15s");
  EXPECT_EQ(HumanSeconds(7300), "2h1m");
  EXPECT_EQ(HumanSeconds(90000), "1d1h");
}

}  // namespace
}  // namespace eplog
