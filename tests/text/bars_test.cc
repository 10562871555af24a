#include "text/bars.h"

#include <gtest/gtest.h>

#include <cstdio>

#include "text/palette.h"
#include "text/svg.h"

namespace eplog {
namespace {

// The widths of what has this colour, in the order of drawing: first the legend's square.
std::vector<double> Widths(const std::string& svg, const std::string& colour) {
  std::vector<double> widths;
  const std::string fill = "fill=\"" + colour + "\"";
  for (size_t at = svg.find(fill); at != std::string::npos; at = svg.find(fill, at + 1)) {
    widths.push_back(std::stod(svg.substr(svg.rfind("width=\"", at) + 7)));
  }
  return widths;
}

size_t Count(const std::string& text, const std::string& what) {
  size_t count = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) {
    ++count;
  }
  return count;
}

TEST(RenderBars, LengthsAreSharesOfTheLongest) {
  const std::string svg = RenderBars({{"one", "3 B", {{"data", 1, 4}, {"parity", 2, 5}}},
                                      {"two", "6 B", {{"data", 6, 4}, {"parity", 0, 5}}}});
  const auto data = Widths(svg, PaletteColour(4));
  const auto parity = Widths(svg, PaletteColour(5));
  ASSERT_EQ(data.size(), 3U);
  ASSERT_EQ(parity.size(), 2U) << "what is not there is not drawn";
  EXPECT_EQ(data[0], parity[0]) << "the legend's";
  EXPECT_NEAR(data[2], 6 * data[1], 0.1);
  EXPECT_NEAR(parity[1], 2 * data[1], 0.1);
}

TEST(RenderBars, NothingIsDrawnOfNothing) {
  const std::string svg = RenderBars({{"none", "0 B", {{"data", 0, 0}}}});
  EXPECT_EQ(Widths(svg, PaletteColour(0)).size(), 1U) << "the legend";
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_TRUE(RenderBars({}).ends_with("</svg>\n"));
}

TEST(Svg, TextsAreEscapedAndPathsHaveGaps) {
  Svg svg(10, 20, "serif", "white");
  SvgPath path;
  path.To(1, 2);
  path.To(3, 4);
  path.Lift();
  path.To(5, 6);
  svg.Path(path, "fill=\"none\"", "a<b");
  svg.Text(0, 0, "c&d", "font-size=\"9\"");
  const std::string text = std::move(svg).Finish();
  EXPECT_NE(text.find("d=\"M1.00 2.00 L3.00 4.00 M5.00 6.00 \""), std::string::npos) << text;
  EXPECT_NE(text.find("<title>a&lt;b</title></path>"), std::string::npos) << text;
  EXPECT_NE(text.find(">c&amp;d</text>"), std::string::npos) << text;
  EXPECT_EQ(Count(text, "<svg"), 1U);
}

TEST(Palette, EveryColourIsAnother) {
  for (size_t i = 0; i < kPalette.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      EXPECT_STRNE(kPalette[i], kPalette[j]);
    }
    EXPECT_STRNE(kPalette[i], PaletteColour(-1));
  }
  EXPECT_STREQ(PaletteColour(static_cast<int>(kPalette.size())), kPalette[0]);
}

}  // namespace
}  // namespace eplog
