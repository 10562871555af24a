#include "text/chart.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <limits>

namespace eplog {
namespace {

struct Dot {
  double x;
  double y;
};

// The points that a picture shows.
std::vector<Dot> Dots(const std::string& svg) {
  std::vector<Dot> dots;
  const std::string circle = "<circle ";
  for (size_t at = svg.find(circle); at != std::string::npos; at = svg.find(circle, at + 1)) {
    Dot dot{};
    int end = 0;
    if (std::sscanf(svg.c_str() + at, R"(<circle cx="%lf" cy="%lf" r="3.2"%n)", &dot.x, &dot.y,
                    &end) == 2 &&
        end != 0) {
      dots.push_back(dot);
    }
  }
  return dots;
}

Chart OneLine(bool log_x, bool log_y, std::vector<ChartPoint> points) {
  ChartPanel panel;
  panel.x.log = log_x;
  panel.y.log = log_y;
  panel.series.push_back({"line", std::move(points), 0, false});
  Chart chart;
  chart.panels.push_back(panel);
  return chart;
}

TEST(RenderSvg, LogAxesPlaceEqualFactorsAtEqualSteps) {
  const auto dots =
      Dots(RenderSvg(OneLine(true, true, {{1, 1e3}, {10, 1e5}, {100, 1e7}, {1000, 1e4}})));
  ASSERT_EQ(dots.size(), 4U);
  EXPECT_NEAR(dots[1].x - dots[0].x, dots[2].x - dots[1].x, 0.02);
  EXPECT_NEAR(dots[3].x - dots[2].x, dots[2].x - dots[1].x, 0.02);
  EXPECT_NEAR(dots[0].y - dots[1].y, dots[1].y - dots[2].y, 0.02);
  EXPECT_LT(dots[2].y, dots[0].y) << "more is higher";
  EXPECT_NEAR(dots[0].y - dots[3].y, (dots[0].y - dots[2].y) / 4, 0.02);
}

TEST(RenderSvg, LinearAxesPlaceEqualDifferencesAtEqualSteps) {
  const auto dots = Dots(RenderSvg(OneLine(false, false, {{1, 5}, {2, 10}, {3, 15}, {7, 5}})));
  ASSERT_EQ(dots.size(), 4U);
  EXPECT_NEAR(dots[1].x - dots[0].x, dots[2].x - dots[1].x, 0.02);
  EXPECT_NEAR(dots[3].x - dots[0].x, 6 * (dots[1].x - dots[0].x), 0.1);
  EXPECT_NEAR(dots[0].y - dots[1].y, dots[1].y - dots[2].y, 0.02);
}

TEST(RenderSvg, LeavesOutWhatCannotBeDrawn) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  const std::string svg = RenderSvg(
      OneLine(true, true, {{1, 1}, {2, 0}, {3, -1}, {4, nan}, {5, infinity}, {0, 3}, {6, 2}}));
  EXPECT_EQ(Dots(svg).size(), 2U);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
  EXPECT_EQ(Dots(RenderSvg(OneLine(true, true, {}))).size(), 0U);
  EXPECT_EQ(Dots(RenderSvg(OneLine(false, true, {{1, 7}, {2, 7}}))).size(), 2U) << "a flat line";
}

TEST(RenderSvg, NamesAreEscaped) {
  Chart chart = OneLine(false, false, {{1, 1}, {2, 2}});
  chart.title = "a < b & \"c\"";
  const std::string svg = RenderSvg(chart);
  EXPECT_NE(svg.find("a &lt; b &amp; &quot;c&quot;"), std::string::npos);
}

TEST(RenderSvg, LabelsDoNotLieOnEachOther) {
  Chart chart = OneLine(false, true, {{1, 10}, {2, 100}});
  for (int i = 0; i < 6; ++i) {
    chart.panels[0].series.push_back({"other", {{1, 20}, {2, 100.0 + i}}, i, false});
  }
  const std::string svg = RenderSvg(chart);
  std::vector<double> places;
  const std::string label = R"( font-size="13" text-anchor="start")";
  for (size_t at = svg.find(label); at != std::string::npos; at = svg.find(label, at + 1)) {
    const size_t text = svg.find('>', at) + 1;
    const std::string words = svg.substr(text, svg.find('<', text) - text);
    const size_t y = svg.rfind("y=\"", at);
    if (words == "line" || words == "other") {
      places.push_back(std::stod(svg.substr(y + 3)));
    }
  }
  ASSERT_EQ(places.size(), 7U);
  std::sort(places.begin(), places.end());
  for (size_t i = 1; i < places.size(); ++i) {
    EXPECT_GT(places[i] - places[i - 1], 13);
  }
}

TEST(ChartTicks, AreRoundAndFew) {
  EXPECT_EQ(ChartTicks(1, 1000, true), (std::vector<double>{1, 10, 100, 1000}));
  EXPECT_EQ(ChartTicks(1, 10, false), (std::vector<double>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
  for (const double low : {1e-9, 0.3, 7.0, 1e5}) {
    for (const double factor : {1.01, 1.5, 4.0, 30.0, 1e4, 1e40}) {
      for (const bool log : {false, true}) {
        const auto ticks = ChartTicks(low, low * factor, log);
        EXPECT_GE(ticks.size(), 2U) << low << " " << factor << " " << log;
        EXPECT_LE(ticks.size(), 13U) << low << " " << factor << " " << log;
      }
    }
  }
}

TEST(ChartNumber, ReadsWell) {
  EXPECT_EQ(ChartNumber(0), "0");
  EXPECT_EQ(ChartNumber(0.25), "0.25");
  EXPECT_EQ(ChartNumber(10000), "10,000");
  EXPECT_EQ(ChartNumber(1e6), "10⁶");
  EXPECT_EQ(ChartNumber(2e-12), "2·10⁻¹²");
}

}  // namespace
}  // namespace eplog
