#include "text/suggest.h"

#include <algorithm>
#include <vector>

namespace eplog {
namespace {

// Edit distance with neighbouring letters swapped counting as one.
size_t Distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = i + j;
        continue;
      }
      const size_t change = d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
      }
    }
  }
  return d[a.size()][b.size()];
}

}  // namespace

std::optional<std::string> MatchName(std::string_view typed, std::span<const std::string> names) {
  std::optional<std::string> match;
  for (const std::string& name : names) {
    if (name == typed) {
      return name;
    }
    if (typed.size() >= 2 && name.starts_with(typed)) {
      if (match) {
        return std::nullopt;
      }
      match = name;
    }
  }
  return match;
}

std::string NearestName(std::string_view typed, std::span<const std::string> names) {
  std::string best;
  size_t best_distance = 3;  // three mistakes are another word
  for (const std::string& name : names) {
    const size_t distance = Distance(typed, name);
    if (distance < best_distance && distance < name.size()) {
      best_distance = distance;
      best = name;
    }
  }
  return best;
}

std::string JoinNames(std::span<const std::string> names) {
  std::string out;
  for (const std::string& name : names) {
    out += (out.empty() ? "" : ", ") + name;
  }
  return out;
}

}  // namespace eplog
