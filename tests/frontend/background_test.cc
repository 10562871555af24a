// What a process that serves lets go of and keeps when it goes to the background, and what the one
// in front says for it; and what it is told to do while it serves.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/read_text.h"
#include "control/control.h"
#include "control/server_mark.h"
#include "device/memory_device.h"
#include "frontend/daemon.h"
#include "frontend/spare_keeper.h"
#include "runtime/io_uring_loop.h"
#include "tests/frontend/served_mount.h"
#include "tests/support/asked_array.h"
#include "tests/support/called_owner.h"

namespace eplog {
namespace {

bool Until(const std::function<bool()>& holds) {
  for (int i = 0; i < 12000 && !holds(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return holds();
}

std::string LinkOf(int fd) {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd), error).string();
}

// The value of a line of /proc/self/status.
std::string StatusLine(const std::string& key) {
  std::istringstream lines(ReadText("/proc/self/status"));
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(key + ":\t", 0) == 0) {
      return line.substr(key.size() + 2);
    }
  }
  return "";
}

bool Holds(const std::string& mask, int signal) {
  return !mask.empty() && (std::stoull(mask, nullptr, 16) >> (signal - 1) & 1) != 0;
}

// ---- going to the background

class Background : public testing::Test {
 protected:
  // Runs it as a program would, with standard error in a file; its exit status.
  int Run(bool foreground, const std::string& log,
          const std::function<int(const ReadyFn& ready)>& body) {
    const pid_t main = ::fork();
    if (main == 0) {
      const int fd = ::open(stderr_.c_str(), O_CREAT | O_APPEND | O_WRONLY, 0600);
      ::dup2(fd, STDERR_FILENO);
      ::close(fd);
      ::_exit(RunDaemonised(foreground, log, body));
    }
    int status = 0;
    EXPECT_EQ(::waitpid(main, &status, 0), main);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  // What the one in the background says of itself when it is ready.
  std::string Facts(const std::string& log) {
    std::filesystem::remove(facts_);
    EXPECT_EQ(Run(false, log,
                  [&](const ReadyFn& ready) {
                    ready();
                    ready();  // once is enough
                    std::ofstream out(facts_ + ".part");
                    for (int fd = 0; fd < 100; ++fd) {
                      const std::string link = LinkOf(fd);
                      if (fd <= 2 || (link == log && !log.empty())) {
                        out << fd << " is " << std::filesystem::path(link).filename().string()
                            << "\n";
                      }
                    }
                    out << (::getsid(0) == ::getpid() ? "leads a session\n" : "");
                    out << (Holds(StatusLine("SigIgn"), SIGPIPE) ? "ignores pipes\n" : "");
                    out << "is at " << std::filesystem::current_path().string() << "\n";
                    out.close();
                    std::fprintf(stderr, "said\n");
                    std::filesystem::rename(facts_ + ".part", facts_);
                    return 5;
                  }),
              0);
    EXPECT_TRUE(Until([&] { return std::filesystem::exists(facts_); }));
    return ReadText(facts_);
  }

  TemporaryDirectory directory_;
  const std::string stderr_ = directory_ / "stderr";
  const std::string facts_ = directory_ / "facts";
};

TEST_F(Background, LeavesTheTerminalForItsLog) {
  const std::string log = directory_ / "log";
  const mode_t mask = ::umask(0);
  const std::string facts = Facts(log);
  ::umask(mask);
  EXPECT_EQ(facts, "0 is null\n1 is log\n2 is log\nleads a session\nignores pipes\nis at /\n");
  EXPECT_EQ(ReadText(log), "said\n");
  struct stat info {};
  ASSERT_EQ(::stat(log.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode, S_IFREG | 0600U);
  EXPECT_EQ(Facts(log), facts);
  EXPECT_EQ(ReadText(log), "said\nsaid\n") << "appended";
  EXPECT_EQ(ReadText(stderr_), "");
}

TEST_F(Background, WithoutALogItSaysNothing) {
  const std::string quiet =
      "0 is null\n1 is null\n2 is null\nleads a session\nignores pipes\nis at /\n";
  EXPECT_EQ(Facts(""), quiet);
  EXPECT_EQ(Facts(directory_ / "none/log"), quiet);
  ASSERT_EQ(::symlink((directory_ / "aim").c_str(), (directory_ / "link").c_str()), 0);
  EXPECT_EQ(Facts(directory_ / "link"), quiet) << "a link is not followed";
  EXPECT_FALSE(std::filesystem::exists(directory_ / "aim"));
}

TEST_F(Background, TheOneInFrontEndsAsItDoes) {
  for (const int status : {0, 1, 7, 255}) {
    EXPECT_EQ(Run(false, "", [status](const ReadyFn&) { return status; }), status);
  }
  EXPECT_EQ(Run(false, "", [](const ReadyFn&) -> int { ::_exit(9); }), 9) << "without a word";
}

TEST_F(Background, InFrontItStaysWhereItIs) {
  const std::string before = std::filesystem::current_path();
  EXPECT_EQ(Run(true, directory_ / "log",
                [&](const ReadyFn& ready) {
                  ready();
                  std::fprintf(stderr, "in front\n");
                  return std::filesystem::current_path() == before && ::getsid(0) != ::getpid() ? 6
                                                                                                : 1;
                }),
            6);
  EXPECT_EQ(ReadText(stderr_), "in front\n");
  EXPECT_FALSE(std::filesystem::exists(directory_ / "log"));
}

// ---- memory that stays

// In a process of its own, of any user, that may lock as much.
std::string LockedWhen(uid_t user, rlim_t most) {
  std::array<int, 2> pipe{};
  EXPECT_EQ(::pipe(pipe.data()), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    rlimit limit{most, most};
    if (::setrlimit(RLIMIT_MEMLOCK, &limit) == 0 && ::setresuid(user, user, user) == 0) {
      PrepareServingProcess();
    }
    const std::string locked = StatusLine("VmLck");
    const std::string nothing = locked.find_first_of("123456789") == std::string::npos ? "0" : "1";
    ::_exit(::write(pipe[1], nothing.data(), 1) == 1 ? 0 : 1);
  }
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
  char locked = '?';
  EXPECT_EQ(::read(pipe[0], &locked, 1), 1);
  ::close(pipe[0]);
  ::close(pipe[1]);
  return {locked};
}

TEST(ServingMemory, IsLockedWhereThatIsAllowed) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer lets nothing be locked";
#endif
  if (::geteuid() != 0) {
    GTEST_SKIP() << "needs root to have the rights to lose";
  }
  EXPECT_EQ(LockedWhen(0, 1 << 20), "1") << "by the right to pass the limit";
  EXPECT_EQ(LockedWhen(65534, 1 << 20), "0") << "a later allocation would fail";
}

// ---- what it does while it serves

// One spare, which may hang.
class OneSpare final : public SpareShelf {
 public:
  OneSpare(EventLoop& loop, std::function<void(const std::string&)> note, bool hangs)
      : loop_(loop), note_(std::move(note)), hangs_(hangs) {}
  [[nodiscard]] std::vector<std::string> Listed() const override { return {"/spare"}; }
  Task<Result<SpareDevice>> Open(std::string path) override {
    for (int i = 0; i < (hangs_ ? 20'000 : 10); ++i) {
      co_await loop_.Sleep(1000);
    }
    note_("looked at " + path);
    co_return SpareDevice{&spare_, true, true, false};
  }
  Task<Result<SpareDevice>> Add(std::string path, DeviceIdentity /*looked_at*/) override {
    return Open(std::move(path));
  }
  void Close(const std::string& /*path*/) override {}
  Task<Status> PutBack(std::string /*path*/) override { co_return OkStatus(); }
  Task<Status> Remove(std::string /*path*/) override { co_return OkStatus(); }
  Task<Status> Joined(std::string member, std::string path) override {
    note_(member + " is at " + path);
    co_return OkStatus();
  }

 private:
  EventLoop& loop_;
  std::function<void(const std::string&)> note_;
  const bool hangs_;
  MemoryDevice spare_{"/spare", 4096};
};

class Serving : public testing::Test {
 protected:
  void SetUp() override {
    EPLOG_NEEDS_FUSE();
    ::chmod(directory_.path().c_str(), 0700);
    ASSERT_EQ(::mkdir((directory_ / "mount").c_str(), 0700), 0);
  }
  void Note(const std::string& what) const {
    std::ofstream(journal_, std::ios::app) << what << "\n";
  }
  // Serves in a process of its own and notes what happens.
  int Serve(bool hangs) {
    auto loop = IoUringLoop::Create();
    AskedArray array;
    array.status.uuid = uuid_;
    array.status.parity_chunks = 1;
    array.status.devices.resize(1);
    array.status.devices[0].name = "ssd0";
    array.status.devices[0].path = "/member";
    const auto note = [this](const std::string& what) { Note(what); };
    OneSpare spare(**loop, note, hangs);
    EventSink sink;
    ServeOptions options;
    options.fuse.mountpoint = directory_ / "mount";
    options.spares = &spare;
    CalledOwner owner;
    options.owner = &owner;
    owner.listen = [&](EventSink to) {
      note(to ? "somebody listens" : "nobody listens");
      sink = std::move(to);
    };
    owner.tell = [&](const ArrayEvent& event) { note(EventKindName(event.kind)); };
    owner.describe = [] { return Json{{"name", "it"}}; };
    owner.forget_scrub = [&] { note("forgotten"); };
    // Stands for whatever loses a device.
    owner.inject = [&](const std::string& path, const Injection& /*injection*/) {
      note("lost " + path);
      array.status.devices[0].state = DeviceState::kFailed;
      ArrayEvent event;
      event.kind = EventKind::kDeviceFailed;
      sink(event);
      return OkStatus();
    };
    owner.release = [&] { note("released after " + array.asked.back()); };
    const Status served = ServeArray(**loop, array, options, [&] { note("ready"); });
    note(served.ok() ? "well" : served.error().message);
    return served.ok() ? 0 : 1;
  }
  void Start(bool hangs) {
    child_ = ::fork();
    if (child_ == 0) {
      ::_exit(Serve(hangs));
    }
    EXPECT_TRUE(Until([&] { return Journal().find("ready\n") != std::string::npos; }));
  }
  void TearDown() override {
    if (child_ > 0) {
      ::kill(child_, SIGKILL);
      AwaitExit(child_);
    }
    std::filesystem::remove(ControlSocketPath(uuid_));
    RemoveServerMark(ControlSocketPath(uuid_));
  }
  [[nodiscard]] std::string Journal() const { return ReadText(journal_); }
  // By the socket that bears the array's name.
  [[nodiscard]] Result<Json> Ask(const Json& request) const {
    return ControlRequest(ControlSocketPath(uuid_), request);
  }

  TemporaryDirectory directory_;
  const std::string journal_ = directory_ / "journal";
  const std::string uuid_ = "test-" + std::to_string(::getpid());
  pid_t child_ = 0;
};

TEST_F(Serving, SparesAreLookedAtHearOfLossesAndStepIn) {
  const time_t before = ::time(nullptr);
  Start(false);
  EXPECT_EQ(Journal(), "somebody listens\nlooked at /spare\nready\n");
  const Result<Json> status = Ask({{"verb", "status"}});
  ASSERT_TRUE(status.ok()) << status.error().message;
  EXPECT_EQ((*status)["devices"].size(), 2U);
  std::tm parts{};
  const std::string since = (*status)["array"]["mounted_at"];
  ASSERT_NE(::strptime(since.c_str(), "%Y-%m-%dT%H:%M:%SZ", &parts), nullptr) << since;
  EXPECT_GE(::timegm(&parts), before);
  EXPECT_LE(::timegm(&parts), ::time(nullptr));
  EXPECT_EQ(Ask({{"verb", "serving"}})->value("name", ""), "it");
  EXPECT_TRUE(Ask({{"verb", "scrub"}, {"restart", true}}).ok());
  EXPECT_TRUE(Ask({{"verb", "inject"}}).ok());
  EXPECT_TRUE(Until([&] { return Journal().find("spare_joined") != std::string::npos; }));
  EXPECT_TRUE(Ask({{"verb", "umount"}}).ok());
  EXPECT_EQ(AwaitExit(child_), 0);
  EXPECT_EQ(Journal(),
            "somebody listens\nlooked at /spare\nready\nforgotten\nlost \nlooked at /spare\n"
            "ssd0 is at /spare\nspare_joined\nnobody listens\nreleased after close\nwell\n");
}

TEST_F(Serving, ASpareThatHangsKeepsNobodyWaitingForEver) {
  Start(true);
  EXPECT_EQ(Journal(), "somebody listens\nready\n");
  ::kill(child_, SIGKILL);
  EXPECT_EQ(AwaitExit(child_), 1000 + SIGKILL);
  ::umount2((directory_ / "mount").c_str(), MNT_DETACH);
}

// A signal that came while it stopped has had its wish.
TEST_F(Serving, SignalsAreItsOwnOnlyAsLongAsItServes) {
  child_ = ::fork();
  if (child_ == 0) {
    auto loop = IoUringLoop::Create();
    AskedArray array;
    ServeOptions options;
    options.fuse.mountpoint = directory_ / "mount";
    options.socket_path = directory_ / "socket";
    CalledOwner owner;
    options.owner = &owner;
    owner.release = [] { ::kill(::getpid(), SIGTERM); };
    const std::string before = StatusLine("SigBlk");
    const Status served = ServeArray(**loop, array, options, [&] {
      Note(StatusLine("SigBlk") == before ? "not taken" : "taken");
      ::kill(::getpid(), SIGINT);
      ::kill(::getpid(), SIGHUP);
    });
    Note(served.ok() && StatusLine("SigBlk") == before ? "given back" : "kept");
    ::_exit(0);
  }
  EXPECT_EQ(AwaitExit(child_), 0);
  EXPECT_EQ(Journal(), "taken\ngiven back\n");
}

}  // namespace
}  // namespace eplog
