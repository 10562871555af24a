#include "cli/member_name.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace eplog::cli {
namespace {

// In the engine's order: array.toml may list them in any.
std::vector<std::string> NamesInOrder(const ArrayFile& file) {
  std::vector<std::string> names;
  for (const MemberPath& member : file.members) {
    names.push_back(member.name);
  }
  const auto key = [](const std::string& name) {
    return std::pair(name.starts_with("log"), std::stoul(name.substr(3)));
  };
  std::sort(names.begin(), names.end(),
            [&](const std::string& a, const std::string& b) { return key(a) < key(b); });
  return names;
}

}  // namespace

Result<uint32_t> MemberIndex(const ArrayFile& file, std::string_view device) {
  std::string name(device);
  for (const MemberPath& member : file.members) {
    if (file.Locate(member) == ResolveParent(std::filesystem::path(device))) {
      name = member.name;
    }
  }
  const std::vector<std::string> names = NamesInOrder(file);
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) {
    return Fail(ErrorCode::kNotFound, fmt::format("'{}' has no member {}: there are {} to {}",
                                                  file.name, name, names.front(), names.back()));
  }
  return static_cast<uint32_t>(found - names.begin());
}

std::string MemberName(const ArrayFile& file, uint32_t index) {
  return NamesInOrder(file)[index];
}

}  // namespace eplog::cli
