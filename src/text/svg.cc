#include "text/svg.h"

#include <fmt/format.h>

#include <iterator>
#include <utility>

#include "text/xml_text.h"

namespace eplog {
namespace {

// How an element ends: with what is shown when it is pointed at, or with nothing in it.
std::string End(std::string_view element, std::string_view title) {
  return title.empty() ? "/>\n" : fmt::format("><title>{}</title></{}>\n", XmlText(title), element);
}

}  // namespace

void SvgPath::To(double x, double y) {
  fmt::format_to(std::back_inserter(text_), "{}{:.2f} {:.2f} ", pen_ ? "L" : "M", x, y);
  pen_ = true;
}

Svg::Svg(double width, double height, std::string_view font, std::string_view background)
    : out_(fmt::format("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" "
                       "height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} {1:.0f}\" font-family=\"{2}\">\n"
                       "<rect width=\"100%\" height=\"100%\" fill=\"{3}\"/>\n",
                       width, height, font, background)) {}

void Svg::Text(double x, double y, std::string_view text, std::string_view attributes) {
  fmt::format_to(std::back_inserter(out_), "<text x=\"{:.1f}\" y=\"{:.1f}\" {}>{}</text>\n", x, y,
                 attributes, XmlText(text));
}

void Svg::Rect(double x, double y, double width, double height, std::string_view attributes,
               std::string_view title) {
  fmt::format_to(std::back_inserter(out_),
                 "<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" {}{}", x, y,
                 width, height, attributes, End("rect", title));
}

void Svg::Line(double x1, double y1, double x2, double y2, const Stroke& stroke) {
  fmt::format_to(std::back_inserter(out_),
                 "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\" "
                 "stroke-width=\"{}\"{}{}/>\n",
                 x1, y1, x2, y2, stroke.colour, stroke.width, stroke.attributes.empty() ? "" : " ",
                 stroke.attributes);
}

void Svg::Circle(double x, double y, double radius, std::string_view attributes) {
  fmt::format_to(std::back_inserter(out_), "<circle cx=\"{:.2f}\" cy=\"{:.2f}\" r=\"{}\" {}/>\n", x,
                 y, radius, attributes);
}

void Svg::Path(const SvgPath& path, std::string_view attributes, std::string_view title) {
  fmt::format_to(std::back_inserter(out_), "<path d=\"{}\" {}{}", path.text(), attributes,
                 End("path", title));
}

std::string Svg::Finish() && {
  return std::move(out_) + "</svg>\n";
}

}  // namespace eplog
