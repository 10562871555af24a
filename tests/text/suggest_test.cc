#include "text/suggest.h"

#include <gtest/gtest.h>

#include <vector>

namespace eplog {
namespace {

const std::vector<std::string> kVerbs = {"create", "mount",      "umount", "volume", "status",
                                         "commit", "checkpoint", "check",  "inspect"};

TEST(MatchName, UnambiguousBeginnings) {
  EXPECT_EQ(MatchName("vol", kVerbs), "volume");
  EXPECT_EQ(MatchName("check", kVerbs), "check") << "an exact name is no beginning";
  EXPECT_EQ(MatchName("checkp", kVerbs), "checkpoint");
  EXPECT_EQ(MatchName("com", kVerbs), "commit");
}

TEST(MatchName, RefusesToGuess) {
  for (const char* typed : {"", "c", "v", "che", "x", "volumes", "Status"}) {
    EXPECT_FALSE(MatchName(typed, kVerbs).has_value()) << typed;
  }
}

TEST(NearestName, FindsTypingMistakes) {
  EXPECT_EQ(NearestName("craete", kVerbs), "create");
  EXPECT_EQ(NearestName("stauts", kVerbs), "status");
  EXPECT_EQ(NearestName("volumes", kVerbs), "volume");
  EXPECT_EQ(NearestName("frobnicate", kVerbs), "");
}

}  // namespace
}  // namespace eplog
