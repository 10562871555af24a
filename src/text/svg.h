// A picture as SVG, element after element, the later ones over the earlier ones. Pure text; knows
// nothing of what is drawn. Attributes are passed as they stand in the element.
#pragma once

#include <string>
#include <string_view>

namespace eplog {

// The outline of a line: from point to point, with gaps where the pen is lifted.
class SvgPath {
 public:
  void To(double x, double y);
  void Lift() { pen_ = false; }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  std::string text_;
  bool pen_ = false;
};

class Svg {
 public:
  Svg(double width, double height, std::string_view font, std::string_view background);

  // `text` and `title` may hold anything.
  void Text(double x, double y, std::string_view text, std::string_view attributes);
  void Rect(double x, double y, double width, double height, std::string_view attributes,
            std::string_view title = {});
  struct Stroke {
    std::string_view colour;
    double width = 1;
    std::string_view attributes = {};
  };
  void Line(double x1, double y1, double x2, double y2, const Stroke& stroke);
  void Circle(double x, double y, double radius, std::string_view attributes);
  void Path(const SvgPath& path, std::string_view attributes, std::string_view title = {});

  [[nodiscard]] std::string Finish() &&;

 private:
  std::string out_;
};

}  // namespace eplog
