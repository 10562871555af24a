// The serving process as a whole: a real child, driven by its control socket, signals and umount.
#include "frontend/daemon.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <future>
#include <sstream>
#include <string>
#include <thread>

#include "control/control.h"
#include "device/memory_device.h"
#include "report/status_json.h"
#include "runtime/io_uring_loop.h"
#include "tests/frontend/served_mount.h"
#include "tests/support/called_owner.h"

namespace eplog {
namespace {

std::string ReadText(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void WriteText(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::app) << text << "\n";
}

// Whether this process may do what root usually may but containers often take away.
bool MayRaiseLimits() {
  std::istringstream status(ReadText("/proc/self/status"));
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("CapEff:", 0) == 0) {
      return ((std::stoull(line.substr(7), nullptr, 16) >> 24) & 1) != 0;  // CAP_SYS_RESOURCE
    }
  }
  return false;
}

class DaemonTest : public testing::Test {
 protected:
  void SetUp() override {
    EPLOG_NEEDS_FUSE();
    ::chmod(directory_.path().c_str(), 0700);
    mount_ = directory_ / "mount";
    socket_ = directory_ / "socket";
    journal_ = directory_ / "journal";
    ASSERT_EQ(::mkdir(mount_.c_str(), 0700), 0);
  }
  void TearDown() override {
    if (child_ > 0) {
      ::kill(child_, SIGKILL);
      Wait();
    }
    ::umount2(mount_.c_str(), MNT_DETACH);
  }

  // The process's life; what happened, in order, goes to journal_.
  int Body(const ReadyFn& ready, const std::function<void(FakeArray&)>& prepare) {
    Result<std::unique_ptr<IoUringLoop>> loop = IoUringLoop::Create();
    FakeArray array(**loop);
    if (prepare) {
      prepare(array);
    }
    ServeOptions options;
    options.fuse.mountpoint = mount_;
    options.socket_path = socket_;
    CalledOwner owner;
    options.owner = &owner;
    owner.release = [&] {
      WriteText(journal_, array.closed ? "released after close" : "released before close");
    };
    MemoryDevice device("late", 4096);
    if (opens_late_) {
      OpenLate(**loop, array, device, owner);
    }
    const Status served = ServeArray(**loop, array, options, ready);
    WriteText(journal_, served.ok() ? "ended well" : "ended: " + served.error().ToString());
    if (!served.ok()) {
      std::fprintf(stderr, "eplog: %s\n", served.error().ToString().c_str());
    }
    return served.ok() ? 0 : 1;
  }

  // A replacement comes open when the array is closed and gone.
  void OpenLate(EventLoop& loop, FakeArray& array, Device& device, CalledOwner& owner) {
    owner.open = [&, this](std::string /*path*/, DeviceIdentity /*looked_at*/) {
      return ComeOpenLate(loop, array, device);
    };
    owner.close = [this](Device& /*device*/) { WriteText(journal_, "let go"); };
    array.on_replace = [this](uint32_t /*device*/, Device& /*replacement*/) -> Task<Status> {
      WriteText(journal_, "replaced");
      co_return OkStatus();
    };
  }
  Task<Result<Device*>> ComeOpenLate(EventLoop& loop, FakeArray& array, Device& device) {
    WriteText(journal_, "opening");
    while (!array.closed) {
      co_await loop.Sleep(1000);
    }
    co_return &device;
  }

  // Run it as a foreground process and wait until it is ready.
  void Start(const std::function<void(FakeArray&)>& prepare = {}) {
    child_ = ::fork();
    if (child_ == 0) {
      ::_exit(RunDaemonised(true, "", [&](const ReadyFn& ready) { return Body(ready, prepare); }));
    }
    for (int i = 0; i < 24000; ++i) {
      if (ControlRequest(socket_, {{"verb", "status"}}).ok()) {
        return;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    FAIL() << "the serving process did not become ready";
  }
  int Wait() { return AwaitExit(child_); }
  [[nodiscard]] bool Mounted() const {
    struct stat here {};
    struct stat above {};
    return ::stat(mount_.c_str(), &here) == 0 && ::stat(directory_.path().c_str(), &above) == 0 &&
           here.st_dev != above.st_dev;
  }

  TemporaryDirectory directory_;
  std::string mount_;
  std::string socket_;
  std::string journal_;
  bool opens_late_ = false;
  pid_t child_ = 0;
};

constexpr char kGoodEnd[] = "released after close\nended well\n";

TEST_F(DaemonTest, VerbsWork) {
  Start();
  const Result<Json> status = ControlRequest(socket_, {{"verb", "status"}});
  ASSERT_TRUE(status.ok());
  EXPECT_EQ((*status)["array"]["name"], "fake");
  EXPECT_EQ((*status)["array"]["pid"], child_);
  EXPECT_EQ((*status)["array"]["mounted_at"].get<std::string>().size(), 20U);

  const Result<Json> created =
      ControlRequest(socket_, {{"verb", "volume-create"}, {"name", "v"}, {"size_bytes", 1 << 20}});
  ASSERT_TRUE(created.ok()) << created.error().message;
  struct stat info {};
  ASSERT_EQ(::stat((mount_ + "/v").c_str(), &info), 0);
  EXPECT_EQ(info.st_size, 1 << 20);
  ASSERT_TRUE(
      ControlRequest(socket_, {{"verb", "volume-resize"}, {"name", "v"}, {"size_bytes", 5000}})
          .ok());
  ASSERT_EQ(::stat((mount_ + "/v").c_str(), &info), 0);
  EXPECT_EQ(info.st_size, 5000);
  const Result<Json> list = ControlRequest(socket_, {{"verb", "volume-list"}});
  ASSERT_TRUE(list.ok());
  EXPECT_EQ(list->dump(), R"([{"name":"v","id":1,"size_bytes":5000,"allocated_bytes":0}])");
  {
    const File open(mount_ + "/v", O_RDWR);
    for (const Json& request :
         {Json{{"verb", "volume-delete"}, {"name", "v"}},
          Json{{"verb", "plan"}, {"change", "volume-delete"}, {"name", "v"}}}) {
      const Result<Json> busy = ControlRequest(socket_, request);
      ASSERT_FALSE(busy.ok());
      EXPECT_EQ(busy.error().code, ErrorCode::kBusy);
    }
  }
  bool deleted = false;  // the close is told to the daemon on its own time
  for (int i = 0; i < 12000 && !deleted; ++i) {
    deleted = ControlRequest(socket_, {{"verb", "volume-delete"}, {"name", "v"}}).ok();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(deleted);
  EXPECT_NE(::access((mount_ + "/v").c_str(), F_OK), 0);

  uint64_t last = 0;
  EXPECT_TRUE(ControlRequest(socket_, {{"verb", "commit"}}, [&](uint64_t done, uint64_t) {
                last = done;
              }).ok());
  EXPECT_EQ(last, 4U);
  EXPECT_TRUE(ControlRequest(socket_, {{"verb", "checkpoint"}}).ok());

  for (const Json& bad : {Json{{"verb", "none"}}, Json{{"verb", "volume-create"}},
                          Json{{"verb", "volume-create"}, {"name", "w"}, {"size_bytes", -1}},
                          Json{{"verb", "volume-create"}, {"name", 7}, {"size_bytes", 1}},
                          Json{{"verb", "volume-resize"}, {"name", "none"}, {"size_bytes", 1}},
                          Json{{"verb", "volume-delete"}, {"name", "none"}}}) {
    const Result<Json> refused = ControlRequest(socket_, bad);
    ASSERT_FALSE(refused.ok()) << bad.dump();
    EXPECT_FALSE(refused.error().message.empty());
  }
}

TEST_F(DaemonTest, PlansAreToldAndNothingIsDone) {
  Start();
  ASSERT_TRUE(
      ControlRequest(socket_, {{"verb", "volume-create"}, {"name", "v"}, {"size_bytes", 5000}})
          .ok());
  const Result<Json> plan =
      ControlRequest(socket_, {{"verb", "plan"}, {"change", "volume-delete"}, {"name", "v"}});
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_EQ((*plan)["dry_run"], true);
  EXPECT_EQ((*plan)["volume"]["size_bytes"], 5000);
  EXPECT_EQ((*plan)["freed_bytes"], 1) << "the id of the volume, by the fake array";
  EXPECT_TRUE(plan->contains("before") && plan->contains("after"));
  EXPECT_EQ(::access((mount_ + "/v").c_str(), F_OK), 0);
  EXPECT_TRUE(ControlRequest(socket_, {{"verb", "plan"}, {"change", "scrub"}}).ok());
  for (const Json& bad :
       {Json{{"verb", "plan"}}, Json{{"verb", "plan"}, {"change", 7}},
        Json{{"verb", "plan"}, {"change", "none"}}, Json{{"verb", "plan"}, {"change", "fail"}},
        Json{{"verb", "plan"}, {"change", "fail"}, {"device", 99}},
        Json{{"verb", "plan"}, {"change", "replace"}, {"device", 0}, {"path", 7}},
        Json{{"verb", "plan"}, {"change", "volume-delete"}, {"name", "none"}}}) {
    const Result<Json> refused = ControlRequest(socket_, bad);
    ASSERT_FALSE(refused.ok()) << bad.dump();
    EXPECT_FALSE(refused.error().message.empty());
  }
}

TEST_F(DaemonTest, UmountVerbAnswersWhenEverythingIsClosed) {
  Start();
  const Result<Json> done = ControlRequest(socket_, {{"verb", "umount"}});
  EXPECT_EQ(ReadText(journal_).substr(0, 20), "released after close");
  EXPECT_TRUE(done.ok());
  EXPECT_FALSE(Mounted());
  EXPECT_EQ(Wait(), 0);
  EXPECT_EQ(ReadText(journal_), kGoodEnd);
  EXPECT_NE(::access(socket_.c_str(), F_OK), 0);
}

// There is no array for it any more.
TEST_F(DaemonTest, ReplacementThatComesOpenAfterTheEndIsLetGo) {
  opens_late_ = true;
  Start();
  auto replacing = std::async(std::launch::async, [this] {
    return ControlRequest(socket_, {{"verb", "replace"},
                                    {"device", 0},
                                    {"path", "/late"},
                                    {"identity", {{"block", false}, {"device", 1}, {"inode", 2}}}});
  });
  while (ReadText(journal_) != "opening\n") {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_TRUE(ControlRequest(socket_, {{"verb", "umount"}}).ok());
  const Result<Json> replaced = replacing.get();
  ASSERT_FALSE(replaced.ok());
  EXPECT_EQ(replaced.error().code, ErrorCode::kShutdown);
  EXPECT_EQ(Wait(), 0);
  const std::string journal = ReadText(journal_);
  EXPECT_EQ(journal.find("replaced"), std::string::npos) << journal;
  EXPECT_NE(journal.find("let go"), std::string::npos) << journal;
}

TEST_F(DaemonTest, UmountWhileOpenIsRefusedAndNothingStops) {
  Start();
  {
    const File file(mount_ + "/v", O_CREAT | O_RDWR);
    const Result<Json> busy = ControlRequest(socket_, {{"verb", "umount"}});
    ASSERT_FALSE(busy.ok());
    EXPECT_EQ(busy.error().code, ErrorCode::kBusy);
    EXPECT_NE(busy.error().message.find(mount_), std::string::npos);
    EXPECT_EQ(::pwrite(file.fd(), "abc", 3, 0), 3);
  }
  EXPECT_TRUE(ControlRequest(socket_, {{"verb", "umount"}}).ok());
  EXPECT_EQ(Wait(), 0);
}

TEST_F(DaemonTest, UmountTellsWhenClosingFailed) {
  Start([](FakeArray& array) {
    array.before = [](const FakeArray::Call& call) -> Status {
      return call.op == FakeArray::Op::kClose ? Status(Fail(ErrorCode::kDeviceFailed, "ssd1 died"))
                                              : OkStatus();
    };
  });
  const Result<Json> failed = ControlRequest(socket_, {{"verb", "umount"}});
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, ErrorCode::kDeviceFailed);
  EXPECT_EQ(failed.error().message, "ssd1 died");
  EXPECT_EQ(Wait(), 1);
}

TEST_F(DaemonTest, SignalsEndItInOrderEvenUnderOpenFiles) {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
    Start();
    const File file(mount_ + "/v", O_CREAT | O_RDWR);
    ASSERT_EQ(::pwrite(file.fd(), "abc", 3, 0), 3);
    ::unlink(journal_.c_str());
    ASSERT_EQ(::kill(child_, signal), 0);
    EXPECT_EQ(Wait(), 0);
    EXPECT_EQ(ReadText(journal_), kGoodEnd);
    EXPECT_FALSE(Mounted());
  }
}

TEST_F(DaemonTest, UnmountByHandClosesCleanly) {
  Start();
  ASSERT_EQ(std::system(("umount " + mount_).c_str()), 0);
  EXPECT_EQ(Wait(), 0);
  EXPECT_EQ(ReadText(journal_), kGoodEnd);
}

TEST_F(DaemonTest, FailingToMountClosesTheArray) {
  ASSERT_EQ(::rmdir(mount_.c_str()), 0);
  testing::internal::CaptureStderr();
  EXPECT_EQ(Body([] { FAIL() << "not ready"; }, {}), 1);
  const std::string line = testing::internal::GetCapturedStderr();
  EXPECT_EQ(line.rfind("eplog: mount point " + mount_, 0), 0U) << line;
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1) << line;
  EXPECT_EQ(ReadText(journal_).substr(0, 20), "released after close");
  ASSERT_EQ(::mkdir(mount_.c_str(), 0700), 0);
}

TEST_F(DaemonTest, OccupiedSocketTakesTheMountAwayAgain) {
  Start();
  const TemporaryDirectory other;
  const std::string first_mount = std::exchange(mount_, other.path());
  testing::internal::CaptureStderr();
  EXPECT_EQ(Body([] { FAIL() << "not ready"; }, {}), 1);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("another process serves"),
            std::string::npos);
  EXPECT_FALSE(Mounted());
  mount_ = first_mount;
  EXPECT_TRUE(ControlRequest(socket_, {{"verb", "umount"}}).ok());
  EXPECT_EQ(Wait(), 0);
}

// ---- going to the background

// Runs RunDaemonised in a process of its own, as main would; its exit status.
// `at_end` is called in the background process before it ends.
int RunAsMain(
    const std::string& stderr_path, const std::string& log_path,
    const std::function<int(const ReadyFn&)>& body, const std::function<void()>& at_end = [] {}) {
  const pid_t main = ::fork();
  if (main == 0) {
    const int fd = ::open(stderr_path.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600);
    ::dup2(fd, STDERR_FILENO);
    const pid_t in_front = ::getpid();
    const int status = RunDaemonised(false, log_path, body);
    if (::getpid() != in_front) {
      at_end();
    }
    ::_exit(status);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(main, &status, 0), main);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_F(DaemonTest, BackgroundReturnsOnceUsable) {
  const std::string log = directory_ / "log";
  EXPECT_EQ(RunAsMain(directory_ / "stderr", log,
                      [&](const ReadyFn& ready) {
                        std::this_thread::sleep_for(std::chrono::milliseconds(100));
                        return Body(
                            [&] {
                              ready();
                              std::fprintf(stderr, "to the log\n");
                            },
                            {});
                      }),
            0);
  EXPECT_TRUE(Mounted());
  const Result<Json> status = ControlRequest(socket_, {{"verb", "status"}});
  ASSERT_TRUE(status.ok());
  const int daemon = (*status)["array"]["pid"];
  EXPECT_NE(::getsid(daemon), ::getsid(0));
  if (MayRaiseLimits()) {
    EXPECT_EQ(ReadText("/proc/" + std::to_string(daemon) + "/oom_score_adj"), "-1000\n");
  }
  std::array<char, 100> cwd{};
  EXPECT_GT(::readlink(("/proc/" + std::to_string(daemon) + "/cwd").c_str(), cwd.data(), 99), 0);
  EXPECT_STREQ(cwd.data(), "/");
  EXPECT_EQ(ReadText(log), "to the log\n");
  EXPECT_TRUE(ControlRequest(socket_, {{"verb", "umount"}}).ok());
  EXPECT_EQ(ReadText(directory_ / "stderr"), "");
}

TEST_F(DaemonTest, BackgroundFailureIsSeenInFront) {
  const std::string complaint = directory_ / "stderr";
  EXPECT_EQ(RunAsMain(complaint, "",
                      [](const ReadyFn&) {
                        std::fprintf(stderr, "eplog: no such array\n");
                        return 2;
                      }),
            2);
  EXPECT_EQ(ReadText(complaint), "eplog: no such array\n");
  EXPECT_EQ(RunAsMain(complaint, "", [](const ReadyFn&) -> int { ::abort(); }), 1);
  EXPECT_NE(ReadText(complaint).find("died of signal 6"), std::string::npos);
}

// As one that the kernel does not let go, since a device hangs. Nor does it keep what it said open,
// or who reads that would wait.
TEST_F(DaemonTest, BackgroundFailureThatCannotEndIsLeftBehind) {
  std::array<int, 2> ends{};
  std::array<int, 2> told{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  ASSERT_EQ(::pipe2(told.data(), O_CLOEXEC), 0);
  const auto hang = [&] {
    ::close(ends[1]);
    std::array<char, 100> where{};
    const ssize_t length = ::readlink("/proc/self/fd/2", where.data(), where.size());
    const bool let_go =
        std::string_view(where.data(), length < 0 ? 0U : static_cast<size_t>(length)) ==
        "/dev/null";
    EXPECT_EQ(::write(told[1], let_go ? "y" : "n", 1), 1);
    char byte = 0;
    EXPECT_EQ(::read(ends[0], &byte, 1), 0);  // until the test ends
  };
  EXPECT_EQ(RunAsMain(
                directory_ / "stderr", "",
                [](const ReadyFn&) {
                  std::fprintf(stderr, "eplog: it hangs\n");
                  return 2;
                },
                hang),
            2);
  EXPECT_EQ(ReadText(directory_ / "stderr"), "eplog: it hangs\n");
  char lets_go = 0;
  EXPECT_EQ(::read(told[0], &lets_go, 1), 1);
  EXPECT_EQ(lets_go, 'y');
  for (const int fd : {ends[0], ends[1], told[0], told[1]}) {
    ::close(fd);
  }
}

TEST(ServingProcess, MayStillReserveMuchMemory) {
  const pid_t child = ::fork();
  if (child == 0) {
    PrepareServingProcess();
    // Locked memory must cost nothing until it is touched, whatever the privileges.
    void* memory = ::mmap(nullptr, size_t{8} << 30, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ::_exit(memory == MAP_FAILED ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(ServingProcess, IsSparedUnderMemoryPressure) {
  if (!MayRaiseLimits()) {
    GTEST_SKIP() << "needs CAP_SYS_RESOURCE";
  }
  const pid_t child = ::fork();
  if (child == 0) {
    PrepareServingProcess();
    const bool flusher = ::prctl(PR_GET_IO_FLUSHER, 0, 0, 0, 0) == 1;
    const bool spared = ReadText("/proc/self/oom_score_adj") == "-1000\n";
    ::_exit(flusher && spared ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace eplog
