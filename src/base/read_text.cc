#include "base/read_text.h"

#include <fstream>
#include <sstream>

namespace eplog {

// Iterators of the stream's buffer would throw what a failed read throws; the stream takes it.
std::string ReadText(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

}  // namespace eplog
