// Pictures into files: SVG as it is, PNG by a program that draws it. The ending of the name
// decides.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "eplog/result.h"

namespace eplog {

// Ends in .svg or .png; kInvalidArgument otherwise. To be asked before long work begins.
Status CheckPictureName(const std::filesystem::path& file);
// The same for graphs: .dot, .svg or .png.
Status CheckGraphName(const std::filesystem::path& file);

// The whole file or none of it: written beside it first. PNG needs rsvg-convert; if it is missing,
// the error names its package.
Status WritePicture(const std::filesystem::path& file, std::string_view svg);
// A graph in Graphviz's language; .svg and .png need `dot`.
Status WriteGraph(const std::filesystem::path& file, std::string_view dot);

}  // namespace eplog
