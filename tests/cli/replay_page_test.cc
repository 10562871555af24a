// The page of a replay: a colour means one thing, wherever on the page it stands.
#include "cli/replay/page.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "text/palette.h"

namespace eplog::cli {
namespace {

PolicyResult Written(Policy policy) {
  PolicyResult result;
  result.policy = policy;
  result.requests = 10;
  result.traffic.ssd_data_bytes = 4096;
  result.traffic.ssd_parity_bytes = 4096;
  result.traffic.ssd_metadata_bytes = 4096;
  result.traffic.log_chunk_bytes = 4096;
  result.traffic.log_header_bytes = 4096;
  for (uint64_t i = 1; i <= 3; ++i) {
    result.ssds.emplace_back().bytes_written = i * 4096;
    result.samples.push_back({.at_us = i, .requests = i, .ssd_bytes = i, .pending_bytes = i});
  }
  return result;
}

// What is said to be drawn in each colour: titles of lines and of parts of bars.
std::map<std::string, std::set<std::string>> Meanings(const std::string& page) {
  std::map<std::string, std::set<std::string>> meanings;
  const std::string title = "<title>";
  for (size_t at = page.find(title, page.find("<body>")); at != std::string::npos;
       at = page.find(title, at + 1)) {
    const size_t element = page.rfind("\n<", at);
    const std::string drawn = page.substr(element, at - element);
    const std::string what =
        page.substr(at + title.size(), page.find('<', at + 1) - at - title.size());
    for (const char* colour : kPalette) {
      if (drawn.find(colour) != std::string::npos) {
        meanings[colour].insert(what == "headers" ? "metadata" : what);
      }
    }
  }
  return meanings;
}

TEST(ReplayPage, OneColourMeansOneThing) {
  ReplayResult result;
  for (int policy = 0; policy < kPolicies; ++policy) {
    result.policies.push_back(Written(static_cast<Policy>(policy)));
  }
  ReplaySettings settings;
  settings.traces = {"t"};
  settings.devices = DeviceKind::kMemory;
  const auto meanings = Meanings(ReplayPage(result, settings));
  EXPECT_EQ(meanings.size(), kPolicies + 4U) << "data, parity, metadata, log chunks";
  for (const auto& [colour, what] : meanings) {
    EXPECT_EQ(what.size(), 1U) << colour << ": " << *what.begin() << ", " << *what.rbegin();
  }
}

}  // namespace
}  // namespace eplog::cli
