#include "base/read_text.h"

#include <gtest/gtest.h>

#include <fstream>

namespace eplog {
namespace {

TEST(ReadText, GivesWhatThereIs) {
  const std::string path = testing::TempDir() + "read_text";
  std::ofstream(path) << "one\n" << '\0' << "three\n";
  EXPECT_EQ(ReadText(path), std::string("one\n") + '\0' + "three\n");
  EXPECT_EQ(ReadText(path + ".none"), "");
}

// As a file of /proc does whose process has ended since it was opened.
TEST(ReadText, AReadThatFailsIsAnEnd) {
  EXPECT_EQ(ReadText("/"), "");
  EXPECT_EQ(ReadText("/proc/self/mem"), "");
}

}  // namespace
}  // namespace eplog
