// Where events go: to the letter what they are, into a file of bounded size and to a command that
// has its bounds, too.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/read_text.h"
#include "report/event_file.h"
#include "report/event_hook.h"
#include "report/event_log.h"
#include "report/json.h"
#include "runtime/side_thread.h"
#include "tests/support/files.h"
#include "tests/support/no_processes.h"

namespace eplog {
namespace {

std::vector<std::string> LinesOf(const std::string& path) {
  std::vector<std::string> lines;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    lines.push_back(line);
  }
  return lines;
}

bool Until(const std::function<bool()>& holds) {
  for (int i = 0; i < 12000 && !holds(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return holds();
}

// ---- the file

TEST(EventFile, IsMadeForOthersToReadAndAppendedTo) {
  const TemporaryDirectory directory;
  const std::string path = directory / "log";
  const mode_t mask = ::umask(0);
  AppendEventLine(path, "one\n", 100);
  ::umask(mask);
  AppendEventLine(path, "two\n", 100);
  EXPECT_EQ(ReadText(path), "one\ntwo\n");
  struct stat info {};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode, S_IFREG | 0644U);
  EXPECT_NE(::access((path + ".1").c_str(), F_OK), 0);
}

TEST(EventFile, IsFilledToTheLastByteAndNotBeyond) {
  const TemporaryDirectory directory;
  const std::string path = directory / "log";
  AppendEventLine(path, "123456\n", 12);
  AppendEventLine(path, "abcd\n", 12);
  EXPECT_EQ(ReadText(path), "123456\nabcd\n") << "just as much as it may hold";
  AppendEventLine(path, "\n", 12);
  EXPECT_EQ(ReadText(path), "\n");
  EXPECT_EQ(ReadText(path + ".1"), "123456\nabcd\n");
  AppendEventLine(path, "0123456789ab\n", 12);
  EXPECT_EQ(ReadText(path), "0123456789ab\n") << "one that is too long for any is not lost";
  EXPECT_EQ(ReadText(path + ".1"), "\n") << "in place of the one before";
}

TEST(EventFile, ThatCannotBeWrittenIsAsIfThereWereNone) {
  const TemporaryDirectory directory;
  AppendEventLine(directory / "none/log", "one\n", 100);
  AppendEventLine(directory.path(), "one\n", 1 << 20);
  EXPECT_NE(::access((directory / "none").c_str(), F_OK), 0);
}

// ---- the command

constexpr std::chrono::minutes kLong(2);

TEST(EventHooks, HaveOurEnvironmentAndTheirOwnWords) {
  const TemporaryDirectory directory;
  const std::string out = directory / "out";
  ::setenv("EPLOG_TEST_OF_OURS", "ours", 1);
  EventHook hook("echo \"$EPLOG_TEST_OF_OURS,$A,$B\" > " + out, kLong);
  hook.Run({"A=a b", "B="});
  ::unsetenv("EPLOG_TEST_OF_OURS");
  EXPECT_EQ(ReadText(out), "ours,a b,\n") << "and it was waited for";
}

TEST(EventHooks, TakeSignalsAndAreAGroupOfTheirOwn) {
  const TemporaryDirectory directory;
  const std::string out = directory / "out";
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, &before);
  EventHook hook("cat /proc/self/status /proc/self/stat > " + out, kLong);
  hook.Run({});
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  const std::string text = ReadText(out);
  const size_t blocked = text.find("SigBlk:\t");
  ASSERT_NE(blocked, std::string::npos);
  EXPECT_EQ(text.substr(blocked + 8, 16), "0000000000000000");
  std::istringstream stat(text.substr(text.rfind(')') + 1));
  std::string state;
  pid_t parent = 0;
  pid_t group = 0;
  stat >> state >> parent >> group;
  EXPECT_NE(group, ::getpgrp());
  EXPECT_GT(group, 1);
}

// Its children hold the pipe: it is at its end when they are gone, too.
TEST(EventHooks, ThatTakeTooLongAreEndedWithTheirChildren) {
  const TemporaryDirectory directory;
  const std::string pipe = directory / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const int reader = ::open(pipe.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  EventHook hook("exec > " + pipe + "; echo began; sleep 100000 & sleep 100000",
                 std::chrono::milliseconds(1000));
  hook.Run({});
  std::string text(100, '\0');
  EXPECT_TRUE(Until([&] {
    const ssize_t n = ::read(reader, text.data(), text.size());
    return n == 0;  // nobody can write there any more
  }));
  ::close(reader);
}

TEST(EventHooks, AreStoppedAndNotBegunOnceItIsSaidSo) {
  const TemporaryDirectory directory;
  const std::string out = directory / "out";
  EventHook hook("echo $$ >> " + out + "; exec sleep 100000", kLong);
  std::promise<void> ended;
  std::thread runner([&] {
    hook.Run({});
    ended.set_value();
  });
  EXPECT_TRUE(Until([&] { return LinesOf(out).size() == 1; }));
  hook.Stop();
  EXPECT_EQ(ended.get_future().wait_for(std::chrono::minutes(1)), std::future_status::ready);
  runner.join();
  hook.Run({});
  EXPECT_EQ(LinesOf(out).size(), 1U);
}

TEST(EventHooks, ThatFailAreNobodysConcern) {
  EventHook fails("exit 7", kLong);
  fails.Run({});
  EventHook is_none("/nonexistent/command 2> /dev/null", kLong);
  is_none.Run({});
}

// What they say goes where we speak to now, whatever that was at the beginning, and they are where
// we are.
TEST(EventHooks, SpeakWhereWeDoAndAreWhereWeAre) {
  const TemporaryDirectory directory;
  EventHook hook("pwd; pwd >&2; cat", kLong);
  std::ofstream(directory / "in") << "asked\n";
  const std::array<int, 3> flags = {O_RDONLY, O_WRONLY | O_CREAT, O_WRONLY | O_CREAT};
  const std::array<std::string, 3> files = {directory / "in", directory / "out", directory / "err"};
  std::array<int, 3> before{};
  const int was_in = ::open(".", O_PATH | O_CLOEXEC);
  for (size_t i = 0; i < files.size(); ++i) {
    const int standard = static_cast<int>(i);
    before.at(i) = ::dup(standard);
    const int fd = ::open(files.at(i).c_str(), flags.at(i) | O_CLOEXEC, 0600);
    ::dup2(fd, standard);
    ::close(fd);
  }
  ASSERT_EQ(::chdir(directory.path().c_str()), 0);
  hook.Run({});
  for (size_t i = 0; i < files.size(); ++i) {
    ::dup2(before.at(i), static_cast<int>(i));
    ::close(before.at(i));
  }
  ASSERT_EQ(::fchdir(was_in), 0);
  ::close(was_in);
  EXPECT_EQ(ReadText(files[1]), directory.path() + "\nasked\n");
  EXPECT_EQ(ReadText(files[2]), directory.path() + "\n");
}

// The process that runs them inherits nothing: neither what was open before, nor what is opened
// later.
TEST(EventHooks, KeepNothingOpenThatWeHave) {
  const TemporaryDirectory directory;
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe2(pipe.data(), O_NONBLOCK), 0);
  EventHook hook("ls -l /proc/self/fd /proc/$PPID/fd > " + (directory / "out"), kLong);
  const int later = ::open((directory / "later").c_str(), O_CREAT | O_RDWR, 0600);
  hook.Run({});
  ::close(pipe[1]);
  char byte = 0;
  EXPECT_EQ(::read(pipe[0], &byte, 1), 0) << "nobody can write there any more";
  ::close(pipe[0]);
  ::close(later);
  const std::string open = ReadText(directory / "out");
  EXPECT_NE(open.find("socket:"), std::string::npos) << "of who runs them";
  EXPECT_EQ(open.find("later"), std::string::npos) << open;
}

// Another process would inherit what has been opened since, and hang with that.
TEST(EventHooks, AreNotRunAnyMoreWhenWhoRanThemWasKilled) {
  const TemporaryDirectory directory;
  const std::string out = directory / "out";
  EventHook hook("echo $PPID >> " + out, kLong);
  ASSERT_TRUE(hook.ok());
  hook.Run({});
  ASSERT_EQ(LinesOf(out).size(), 1U);
  ASSERT_EQ(::kill(std::stoi(LinesOf(out)[0]), SIGKILL), 0);
  hook.Run({});
  hook.Run({});
  EXPECT_EQ(LinesOf(out).size(), 1U) << "and nobody waits for it";
}

// An event at which no descriptor is left is as good as any other.
TEST(EventHooks, AreRunWithoutADescriptorLeft) {
  const TemporaryDirectory directory;
  const std::string out = directory / "out";
  EventHook hook("echo told > " + out, kLong);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{3, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  hook.Run({});
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(ReadText(out), "told\n");
}

// More than can be sent: it is not run, and the next one is.
TEST(EventHooks, ThatAreToldTooMuchAreNotRun) {
  const TemporaryDirectory directory;
  const std::string out = directory / "out";
  EventHook hook("echo $A >> " + out, kLong);
  hook.Run({"A=" + std::string(size_t{4} << 20, 'x')});
  hook.Run({"A=next"});
  EXPECT_EQ(ReadText(out), "next\n");
}

TEST(EventHooks, NeedAProcess) {
  const TemporaryDirectory directory;
  WithoutProcesses([&] {
    EventHook hook("echo told > " + (directory / "out"), kLong);
    EXPECT_FALSE(hook.ok());
    hook.Run({});
  });
  EXPECT_NE(::access((directory / "out").c_str(), F_OK), 0);
}

TEST(EventHooks, LeaveNoProcessBehind) {
  const TemporaryDirectory directory;
  const std::string out = directory / "out";
  {
    EventHook hook("echo $PPID >> " + out, kLong);
    hook.Run({});
  }
  EXPECT_EQ(::kill(std::stoi(LinesOf(out).at(0)), 0), -1);
  EXPECT_EQ(errno, ESRCH);
}

TEST(EventHooks, HaveWordsOfMoreThanAPage) {
  const TemporaryDirectory directory;
  const std::string out = directory / "out";
  EventHook hook("printf %s \"$A\" | wc -c > " + out, kLong);
  hook.Run({"A=" + std::string(100'000, 'x')});
  EXPECT_EQ(ReadText(out), "100000\n");
}

// ---- the log of events

ArrayEvent Example() {
  ArrayEvent event;
  event.kind = EventKind::kCorruptionLost;
  event.device = "ssd1";
  event.volume = "disk";
  event.offset_bytes = 4096;
  event.text = "it is gone";
  return event;
}

EventLog::Limits Patient() {
  EventLog::Limits limits;
  limits.closing = std::chrono::minutes(2);
  return limits;
}

TEST(EventLines, AreWhatTheyArePromisedToBe) {
  const TemporaryDirectory directory;
  const time_t before = ::time(nullptr);
  {
    EventLog log(directory / "log", "", "tank", Patient());
    log.Add(Example());
    ArrayEvent bare;
    bare.kind = EventKind::kScrubFinished;
    log.Add(bare);
    ArrayEvent bytes = Example();
    bytes.text = "\xff";  // of a name that is no text
    log.Add(bytes);
  }
  const std::vector<std::string> lines = LinesOf(directory / "log");
  ASSERT_EQ(lines.size(), 3U);
  const std::string time = Json::parse(lines[0])["time"];
  EXPECT_EQ(lines[0], "{\"time\":\"" + time +
                          "\",\"event\":\"corruption_lost\",\"device\":\"ssd1\",\"volume\":"
                          "\"disk\",\"offset_bytes\":4096,\"text\":\"it is gone\"}");
  std::tm parts{};
  EXPECT_EQ(::strptime(time.c_str(), "%Y-%m-%dT%H:%M:%SZ", &parts), time.c_str() + time.size());
  EXPECT_GE(::timegm(&parts), before);
  EXPECT_LE(::timegm(&parts), ::time(nullptr));
  const Json second = Json::parse(lines[1]);
  EXPECT_EQ(second["event"], "scrub_finished");
  EXPECT_TRUE(second["device"].is_null() && second["volume"].is_null() &&
              second["offset_bytes"].is_null());
  EXPECT_EQ(second["text"], "");
}

TEST(EventLines, AreToldToTheCommandAsWell) {
  const TemporaryDirectory directory;
  const std::string out = directory / "out";
  {
    EventLog log(
        directory / "log",
        "echo \"$EPLOG_ARRAY|$EPLOG_EVENT|$EPLOG_DEVICE|$EPLOG_TEXT|$EPLOG_JSON\" >> " + out,
        "tank", Patient());
    log.Add(Example());
    EXPECT_TRUE(Until([&] { return LinesOf(out).size() == 1; }));
  }
  const std::vector<std::string> told = LinesOf(out);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0], "tank|corruption_lost|ssd1|it is gone|" + LinesOf(directory / "log").at(0));
}

TEST(EventLines, AreNotWrittenIntoAFileThatIsAnothersNow) {
  const TemporaryDirectory directory;
  std::atomic<bool> ours = false;
  std::atomic<int> asked = 0;
  {
    EventLog log(directory / "log", "", "tank", Patient(), [&] {
      ++asked;
      return ours.load();
    });
    log.Add(Example());
    EXPECT_TRUE(Until([&] { return asked == 1; }));
    EXPECT_NE(::access((directory / "log").c_str(), F_OK), 0);
    ours = true;
    log.Add(Example());
  }
  EXPECT_EQ(asked, 2);
  EXPECT_EQ(LinesOf(directory / "log").size(), 1U);
}

// At a MiB the file is put aside.
TEST(EventLines, FillAFileOfAMebibyte) {
  for (const bool fits : {true, false}) {
    const TemporaryDirectory directory;
    const std::string path = directory / "log";
    const std::string before((size_t{1} << 20) - (fits ? 1000 : 10), 'x');
    std::ofstream(path) << before;
    {
      EventLog log(path, "", "tank", Patient());
      log.Add(Example());
    }
    EXPECT_EQ(::access((path + ".1").c_str(), F_OK) == 0, !fits);
    EXPECT_EQ(ReadText(path).size() > before.size(), fits);
    EXPECT_NE(ReadText(path).find("it is gone"), std::string::npos);
  }
}

// One who only wants to be called has no file, and the other way round.
TEST(EventLines, GoWhereTheyAreWanted) {
  const TemporaryDirectory directory;
  const std::string out = directory / "out";
  {
    EventLog log("", "echo \"$EPLOG_EVENT\" >> " + out, "tank", Patient());
    log.Add(Example());
    EXPECT_TRUE(Until([&] { return LinesOf(out).size() == 1; }));
    EventLog neither("", "", "tank", Patient());
    neither.Add(Example());
  }
  EXPECT_EQ(LinesOf(out), std::vector<std::string>{"corruption_lost"});
}

// A command that hangs is ended with the log, and what waits for it is forgotten.
TEST(EventLines, AreNotToldAnyMoreOnceTheLogIsClosed) {
  const TemporaryDirectory directory;
  const std::string out = directory / "out";
  {
    EventLog log(directory / "log", "echo told >> " + out + "; exec sleep 100000", "tank",
                 Patient());
    for (int i = 0; i < 3; ++i) {
      log.Add(Example());
    }
    EXPECT_TRUE(Until([&] { return LinesOf(out).size() == 1; }));
  }
  EXPECT_EQ(LinesOf(out).size(), 1U);
  EXPECT_EQ(LinesOf(directory / "log").size(), 3U);
}

// ---- work that nobody waits for

TEST(SideThreads, DoOneAfterTheOtherAndAtTheEndAll) {
  std::string order;
  SideThread side(26);
  for (char job = 'a'; job <= 'z'; ++job) {
    ASSERT_TRUE(side.Post([&order, job] { order += job; }));
  }
  EXPECT_TRUE(side.Finish(std::chrono::minutes(2)));
  EXPECT_EQ(order, "abcdefghijklmnopqrstuvwxyz");
  EXPECT_FALSE(side.Post([&order] { order += '!'; })) << "there are no more jobs";
  EXPECT_EQ(order.size(), 26U);
}

TEST(SideThreads, RefuseWhatIsTooMuchAndForgetWhatWasNotBegun) {
  std::promise<void> began;
  std::promise<void> may_end;
  auto ended = std::make_shared<std::promise<void>>();
  auto ran = std::make_shared<std::atomic<int>>(0);
  std::future<void> end = ended->get_future();
  SideThread side(2);
  ASSERT_TRUE(side.Post([&began, ended, may = may_end.get_future().share()] {
    began.set_value();
    may.wait();
    ended->set_value();
  }));
  began.get_future().wait();
  EXPECT_TRUE(side.Post([ran] { ++*ran; })) << "two may wait while one runs";
  EXPECT_TRUE(side.Post([ran] { ++*ran; }));
  EXPECT_FALSE(side.Post([ran] { ++*ran; }));
  EXPECT_FALSE(side.Finish(std::chrono::milliseconds(1))) << "it runs still";
  may_end.set_value();
  end.wait();
  EXPECT_TRUE(side.Finish(std::chrono::minutes(2)));
  EXPECT_EQ(*ran, 0);
}

}  // namespace
}  // namespace eplog
