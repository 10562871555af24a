// What happens is written down in bounded space, and told to a command.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "report/event_log.h"
#include "report/json.h"
#include "runtime/side_thread.h"
#include "tests/frontend/served_mount.h"

namespace eplog {
namespace {

class Events : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "eplog-events-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override {
    std::error_code ignored;  // a writer that hung may be renaming here by now
    std::filesystem::remove_all(directory_, ignored);
  }
  static ArrayEvent Event(EventKind kind, std::string device, std::string text) {
    ArrayEvent event;
    event.kind = kind;
    event.device = std::move(device);
    event.text = std::move(text);
    return event;
  }
  [[nodiscard]] std::string Path(const char* name) const { return (directory_ / name).string(); }
  // What is written at the end is waited for, however busy the machine is.
  static EventLog::Limits Patient() {
    EventLog::Limits limits;
    limits.closing = std::chrono::minutes(2);
    return limits;
  }
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
  {
    EventLog log(Path("log"), "", "tank", Patient());
    log.Add(Event(EventKind::kDeviceFailed, "ssd3", "a \"quoted\" text\nof two lines"));
    ArrayEvent rot = Event(EventKind::kCorruptionHealed, "ssd1", "healed");
    rot.volume = "disk";
    rot.offset_bytes = 8192;
    log.Add(rot);
  }
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
  {
    EventLog log(Path("log"), "", "tank", Patient());
    const std::string text(10'000, 'x');
    for (int i = 0; i < 300; ++i) {
      log.Add(Event(EventKind::kSlowDevice, "ssd0", text));
    }
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
  const std::string pid_file = Path("out");
  {
    EventLog log("", "echo $$ > " + pid_file + "; exec sleep 1000", "tank", Patient());
    log.Add(Event(EventKind::kStopped, "", "text"));
    ASSERT_TRUE(Appears(pid_file));
  }
  pid_t pid = 0;
  std::ifstream(pid_file) >> pid;
  ASSERT_GT(pid, 0);
  EXPECT_NE(::kill(pid, 0), 0) << "it was ended and reaped";
}

// A pipe that nobody reads stands for a file on a file system that hangs.
TEST_F(Events, AFileThatHangsHoldsNobodyUpAndSaysLaterWhatIsMissing) {
  const std::string pipe = Path("log");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const int held = ::open(pipe.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK);
  ASSERT_GE(held, 0);
  const std::string fill(65536, 'x');
  ASSERT_GT(::write(held, fill.data(), fill.size()), 0);  // now it is full
  std::atomic<size_t> told = 0;
  constexpr size_t kTold = EventLog::kMaxWaiting + 100;
  std::string text;
  std::atomic<bool> drains = false;
  std::thread drain;  // while the log is closed
  std::array<char, 65536> rest{};
  {
    EventLog log(pipe, "", "tank", Patient());
    std::thread teller([&] {
      for (size_t i = 0; i < kTold; ++i) {
        log.Add(Event(EventKind::kSlowDevice, "ssd0", "number " + std::to_string(i)));
        ++told;
      }
    });
    for (int i = 0; i < 6000 && told < kTold; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_EQ(told, kTold) << "whoever tells waits for the file";
    while (told < kTold) {  // he does wait: set him free
      static_cast<void>(!::read(held, rest.data(), rest.size()));
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    teller.join();
    // The file is well again: the next line tells of those that are missing.
    std::array<char, 65536> chunk{};
    for (int i = 0; i < 6000 && text.find("events_lost") == std::string::npos; ++i) {
      const ssize_t n = ::read(held, chunk.data(), chunk.size());
      text.append(chunk.data(), n > 0 ? static_cast<size_t>(n) : 0);
      if (n <= 0) {
        log.Add(Event(EventKind::kScrubFinished, "", "after"));
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
    }
    drains = true;
    drain = std::thread([&] {
      while (drains) {
        static_cast<void>(!::read(held, rest.data(), rest.size()));
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    });
  }
  drains = false;
  drain.join();
  ::close(held);
  EXPECT_NE(text.find("\"number 0\""), std::string::npos);
  EXPECT_NE(text.find("\"event\":\"events_lost\""), std::string::npos);
}

TEST_F(Events, AFileThatHangsForEverDoesNotKeepTheProcess) {
  const std::string pipe = Path("log");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);  // opening it waits for a reader who never comes
  EventLog::Limits limits;
  limits.closing = std::chrono::milliseconds(50);
  std::promise<void> ended;
  std::thread process([&] {
    {
      EventLog log(pipe, "", "tank", limits);
      log.Add(Event(EventKind::kStopped, "", "text"));
    }
    ended.set_value();
  });
  EXPECT_EQ(ended.get_future().wait_for(std::chrono::minutes(2)), std::future_status::ready);
  const int reader = ::open(pipe.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // sets all free
  process.join();
  ::close(reader);
}

// A process that ends at a signal, unless its main thread takes it, would end of these threads.
TEST_F(Events, ItsThreadsTakeNoSignals) {
  SideThread side(1);
  std::promise<std::string> mask;
  ASSERT_TRUE(side.Post([&] {
    std::ifstream status("/proc/thread-self/status");
    for (std::string line; std::getline(status, line);) {
      if (line.rfind("SigBlk:", 0) == 0) {
        mask.set_value(line.substr(7));
      }
    }
  }));
  const uint64_t blocked = std::stoull(mask.get_future().get(), nullptr, 16);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGCHLD}) {
    EXPECT_NE(blocked >> (signal - 1) & 1, 0U) << signal;
  }
}

// The command reads a file of the mount whose server tells the log of events. It is ended while the
// read is on its way, and cannot die before that is answered.
TEST_F(Events, AHookInsideTheMountDoesNotStopItsServer) {
  EPLOG_NEEDS_FUSE();
  MountSetup setup;
  std::atomic<bool> answer = false;
  setup.prepare = [](FakeArray& array) { array.AddVolume("v", std::vector<std::byte>(4096)); };
  ServedMount mount(setup);
  std::atomic<uint64_t> reads = 0;
  mount.Do([&](FakeArray& array) {
    array.hold = [&](const FakeArray::Call& call) {
      reads += call.op == FakeArray::Op::kRead ? 1 : 0;
      return call.op == FakeArray::Op::kRead && !answer;
    };
  });
  EventLog::Limits limits;
  limits.hook = std::chrono::milliseconds(200);
  limits.closing = std::chrono::minutes(2);
  // Directly, since who waits for a page may be killed, and who waits for an answer not.
  const std::string command =
      "exec dd if=" + (mount / "v") + " of=/dev/null bs=4096 count=1 iflag=direct status=none";
  auto log = std::make_unique<EventLog>("", command, "tank", limits);
  const auto tell = [&](FakeArray&) { log->Add(Event(EventKind::kSlowDevice, "ssd0", "text")); };
  mount.Do(tell);
  for (int i = 0; i < 6000 && reads == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_GT(reads, 0U) << "the command reads";
  std::this_thread::sleep_for(std::chrono::seconds(1));  // its time is over by now
  // On a thread of their own, since they may hang.
  std::promise<void> served;
  std::thread server([&] {
    for (int i = 0; i < 20; ++i) {
      mount.Do(tell);
    }
    served.set_value();
  });
  const bool goes_on =
      served.get_future().wait_for(std::chrono::minutes(1)) == std::future_status::ready;
  EXPECT_TRUE(goes_on) << "the serving thread waits for the command, which waits for it";
  if (!goes_on) {
    ::umount2(mount.directory().c_str(), MNT_FORCE | MNT_DETACH);
  }
  answer = true;
  server.join();
  log.reset();
}

}  // namespace
}  // namespace eplog
