#include "tests/frontend/served_mount.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/check.h"
#include "base/random.h"

namespace eplog {

std::string WhyNoFuse() {
  const int fd = ::open("/dev/fuse", O_RDWR | O_CLOEXEC);
  if (fd < 0) {
    return std::string("/dev/fuse: ") + std::strerror(errno);
  }
  ::close(fd);
  return IoUringLoop::Create().ok() ? "" : "no io_uring";
}

namespace {

// This process is both ends of its mount. Should it die with a request in flight, the kernel would
// wait for an answer from the very process that it is taking apart, for ever. So on the way out the
// connection is ended by force.
constexpr size_t kMaxMounts = 8;
std::array<std::array<char, 64>, kMaxMounts> mounted_directories;
std::array<std::atomic<bool>, kMaxMounts> mounted;

void EndMountsAndDie(int signal) {
  for (size_t i = 0; i < kMaxMounts; ++i) {
    if (mounted[i]) {
      ::umount2(mounted_directories[i].data(), MNT_FORCE | MNT_DETACH);
    }
  }
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

size_t RememberMount(const std::string& directory) {
  static const bool installed = [] {
    for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGTERM, SIGINT, SIGALRM}) {
      ::signal(signal, &EndMountsAndDie);
    }
    return true;
  }();
  static_cast<void>(installed);
  ::alarm(240);  // before the test runner kills
  for (size_t i = 0; i < kMaxMounts; ++i) {
    if (!mounted[i]) {
      EPLOG_CHECK(directory.size() < mounted_directories[i].size(), "a short path");
      std::memcpy(mounted_directories[i].data(), directory.c_str(), directory.size() + 1);
      mounted[i] = true;
      return i;
    }
  }
  return 0;
}

}  // namespace

ServedMount::ServedMount(MountSetup setup) {
  if (setup.directory.empty()) {
    own_directory_ = std::make_unique<TemporaryDirectory>();
    setup.directory = own_directory_->path();
  }
  directory_ = setup.directory;
  mount_slot_ = RememberMount(directory_);
  command_fd_ = ::eventfd(0, EFD_CLOEXEC);
  served_ = served_promise_.get_future().share();
  std::promise<Status> started;
  std::future<Status> result = started.get_future();
  thread_ = std::thread([this, setup, &started] { Thread(setup, &started); });
  const Status status = result.get();
  EPLOG_CHECK(status.ok(), "the test mount failed");
}

ServedMount::~ServedMount() {
  if (!Served()) {
    Await([](FakeArray&, FuseServer& server) { return server.UnmountForced(); });
    WaitUntilServed();
  }
  Do([this](FakeArray&) { finished_ = true; });
  thread_.join();
  ::close(command_fd_);
  mounted[mount_slot_] = false;
}

void ServedMount::Thread(const MountSetup& setup, std::promise<Status>* started) {
  Result<std::unique_ptr<IoUringLoop>> loop = IoUringLoop::Create();
  EPLOG_CHECK(loop.ok(), "io_uring");
  loop_ = loop->get();
  {
    FakeArray array(*loop_, setup.capacity_bytes);
    array_ = &array;
    if (setup.prepare) {
      setup.prepare(array);
    }
    FuseOptions options;
    options.mountpoint = directory_;
    options.read_only = setup.read_only;
    options.buffers = setup.buffers;
    Result<std::unique_ptr<FuseServer>> server = FuseServer::Mount(*loop_, array, options);
    if (!server.ok()) {
      std::fprintf(stderr, "%s\n", server.error().ToString().c_str());
      started->set_value(Fail(server.error()));
      return;
    }
    server_ = std::move(*server);
    loop_->Spawn(Main());
    loop_->Spawn(Commands());
    started->set_value(OkStatus());
    EPLOG_CHECK(loop_->RunUntil([this] { return commands_ended_ && main_ended_; }), "stuck");
    server_.reset();
  }
}

Task<void> ServedMount::Main() {
  Task<void> serving = server_->Serve();
  co_await serving;
  Task<void> draining = server_->Drain();
  co_await draining;
  served_promise_.set_value();
  main_ended_ = true;
}

Task<void> ServedMount::Commands() {
  while (!finished_) {
    uint64_t count = 0;
    const int read = co_await loop_->Read(command_fd_, &count, sizeof(count));
    EPLOG_CHECK(read == sizeof(count), "eventfd");
    std::vector<std::function<void()>> commands;
    {
      const std::lock_guard lock(mutex_);
      commands.swap(commands_);
    }
    for (const auto& command : commands) {
      command();
    }
  }
  commands_ended_ = true;
}

void ServedMount::Do(const std::function<void(FakeArray&)>& action) {
  std::promise<void> done;
  {
    const std::lock_guard lock(mutex_);
    commands_.emplace_back([&] {
      action(*array_);
      done.set_value();
    });
  }
  const uint64_t one = 1;
  EPLOG_CHECK(::write(command_fd_, &one, sizeof(one)) == sizeof(one), "eventfd");
  done.get_future().wait();
}

namespace {

Task<void> RunAndTell(Task<void> task, std::promise<void>* done) {
  co_await task;
  done->set_value();
}

Task<void> UnmountInto(FuseServer* server, Status* result) {
  Task<Status> task = server->Unmount();
  *result = co_await task;
}

}  // namespace

void ServedMount::Await(const std::function<Task<void>(FakeArray&, FuseServer&)>& action) {
  std::promise<void> done;
  Do([&](FakeArray& array) { loop_->Spawn(RunAndTell(action(array, *server_), &done)); });
  done.get_future().wait();
}

Status ServedMount::Unmount() {
  Status result = OkStatus();
  Await([&](FakeArray&, FuseServer& server) { return UnmountInto(&server, &result); });
  return result;
}

void ServedMount::WaitUntilServed() {
  EPLOG_CHECK(served_.wait_for(std::chrono::minutes(10)) == std::future_status::ready,
              "serving did not end");
}

std::vector<std::byte> ServedMount::Content(const std::string& name) {
  std::vector<std::byte> content;
  Do([&](FakeArray& array) { content = array.Content(name); });
  return content;
}

std::vector<FakeArray::Call> ServedMount::TakeCalls() {
  std::vector<FakeArray::Call> calls;
  Do([&](FakeArray& array) { calls.swap(array.calls); });
  return calls;
}

}  // namespace eplog
