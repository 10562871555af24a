// The process that runs commands for events is there before any member is open: it would inherit
// that, and closing it may hang.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <sstream>
#include <string>
#include <thread>
#include <utility>

#include "base/read_text.h"
#include "tests/host/file_array.h"
#include "tests/host/hanging_file.h"

namespace eplog {
namespace {

class HookProcess : public FileArrayTest {
 protected:
  // A child of this process.
  static bool IsThere() {
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      std::string line = ReadText(entry.path() / "stat");
      if (line.find("(eplog hook)") == std::string::npos) {
        continue;
      }
      std::istringstream rest(line.substr(line.rfind(')') + 1));
      char state = 0;
      pid_t parent = 0;
      rest >> state >> parent;
      if (parent == ::getpid()) {
        return true;
      }
    }
    return false;
  }
};

TEST_F(HookProcess, IsThereBeforeMembersAreOpened) {
  HangingFile hangs(At("ssd0"));
  EPLOG_NEEDS_HANGING(hangs);
  ASSERT_FALSE(IsThere());
  MemberOptions options;
  options.event_hook = "true";
  Status opened_and_closed = Fail(ErrorCode::kBusy, "not yet");
  std::thread owner([&] {  // of its loop, from its first to its last request
    auto session = Open(file_, options);
    opened_and_closed = session.ok() ? (*session)->Close() : Fail(std::move(session).error());
  });
  while (!hangs.waited_for()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_TRUE(IsThere());
  hangs.LetGo();
  owner.join();
  EXPECT_TRUE(opened_and_closed.ok()) << opened_and_closed.error().message;
  EXPECT_FALSE(IsThere());
}

}  // namespace
}  // namespace eplog
