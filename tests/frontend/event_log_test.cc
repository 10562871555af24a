// What happens is written down in bounded space, and told to a command.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "frontend/event_log.h"
#include "frontend/json.h"

namespace eplog {
namespace {

class Events : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "eplog-events-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  static ArrayEvent Event(EventKind kind, std::string device, std::string text) {
    ArrayEvent event;
    event.kind = kind;
    event.device = std::move(device);
    event.text = std::move(text);
    return event;
  }
  [[nodiscard]] std::string Path(const char* name) const { return (directory_ / name).string(); }
  static bool Appears(const std::string& path) {
    for (int i = 0; i < 15000; ++i) {
      if (std::filesystem::exists(path) && std::filesystem::file_size(path) != 0) {
        return true;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return false;
  }

  std::filesystem::path directory_;
};

TEST_F(Events, EachIsOneLineOfJson) {
  EventLog log(Path("log"), "", "tank");
  log.Add(Event(EventKind::kDeviceFailed, "ssd3", "a \"quoted\" text\nof two lines"));
  ArrayEvent rot = Event(EventKind::kCorruptionHealed, "ssd1", "healed");
  rot.volume = "disk";
  rot.offset_bytes = 8192;
  log.Add(rot);
  std::ifstream in(Path("log"));
  std::string line;
  ASSERT_TRUE(std::getline(in, line));
  const Json first = Json::parse(line);
  EXPECT_EQ(first["event"], "device_failed");
  EXPECT_EQ(first["device"], "ssd3");
  EXPECT_TRUE(first["volume"].is_null());
  EXPECT_TRUE(first["offset_bytes"].is_null());
  ASSERT_TRUE(std::getline(in, line));
  const Json second = Json::parse(line);
  EXPECT_EQ(second["volume"], "disk");
  EXPECT_EQ(second["offset_bytes"], 8192);
  EXPECT_FALSE(std::getline(in, line));
}

TEST_F(Events, TheFileDoesNotGrowWithoutBound) {
  EventLog log(Path("log"), "", "tank");
  const std::string text(10'000, 'x');
  for (int i = 0; i < 300; ++i) {
    log.Add(Event(EventKind::kSlowDevice, "ssd0", text));
  }
  EXPECT_LE(std::filesystem::file_size(Path("log")), EventLog::kMaxFileBytes);
  EXPECT_LE(std::filesystem::file_size(Path("log.1")), EventLog::kMaxFileBytes);
  EXPECT_FALSE(std::filesystem::exists(Path("log.2")));
}

TEST_F(Events, TheHookHearsOfEach) {
  const std::string out = Path("out");
  EventLog log("", "echo \"$EPLOG_ARRAY $EPLOG_EVENT $EPLOG_DEVICE\" >> " + out, "tank");
  log.Add(Event(EventKind::kRebuildStarted, "log0", "text"));
  ASSERT_TRUE(Appears(out));
  std::ifstream in(out);
  std::string line;
  std::getline(in, line);
  EXPECT_EQ(line, "tank rebuild_started log0");
}

TEST_F(Events, AHookThatHangsIsEndedWithTheProcess) {
  EventLog log("", "echo x > " + Path("out") + "; sleep 1000000", "tank");
  log.Add(Event(EventKind::kStopped, "", "text"));
  ASSERT_TRUE(Appears(Path("out")));
}  // comes to an end

}  // namespace
}  // namespace eplog
