// The serving process over the real engine, on devices that cease to answer: at work, while they
// join, at the end. Whoever reads, writes or unmounts gets an answer, and what was durable is there
// at the next opening.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "base/random.h"
#include "control/control.h"
#include "device/deadline_device.h"
#include "device/memory_device.h"
#include "device/wrappers.h"
#include "eplog/array.h"
#include "frontend/daemon.h"
#include "frontend/spare_keeper.h"
#include "runtime/io_uring_loop.h"
#include "runtime/run_task.h"
#include "tests/frontend/served_mount.h"
#include "tests/support/called_owner.h"

namespace eplog {
namespace {

constexpr uint32_t kSsds = 4;
constexpr uint32_t kParity = 2;
constexpr uint32_t kMembers = kSsds + kParity;
constexpr uint32_t kFresh = kMembers;  // the first of those that may join
constexpr uint32_t kDevices = kMembers + 2;
constexpr uint64_t kDeviceBytes = uint64_t{16} << 20;
constexpr uint64_t kChunk = 4096;
constexpr uint64_t kChunks = 512;
// Long for a busy machine.
constexpr uint64_t kDeadlineUs = 3'000'000;

// What both processes see.
struct Shared {
  std::array<std::atomic<RequestMask>, kDevices> hangs{};  // what these do not answer
  std::array<std::atomic<uint64_t>, kDevices> hung{};      // how many requests waited so
  std::atomic<bool> checked{false};                        // the content, after the end
  // What was acknowledged as durable; 0: not known.
  std::array<std::atomic<uint64_t>, kChunks> seeds{};
};

void FillChunk(uint64_t seed, std::byte* chunk) {
  Random random(seed);
  for (uint64_t i = 0; i < kChunk; i += sizeof(uint64_t)) {
    const uint64_t word = random.Next();
    std::memcpy(chunk + i, &word, sizeof(word));
  }
}

class HangingDevice final : public ForwardingDevice {
 public:
  HangingDevice(EventLoop& loop, Device& below, Shared& shared, uint32_t index)
      : ForwardingDevice(below), loop_(loop), shared_(shared), index_(index) {}

  // Who asked has given up by then, and its memory is gone: what is held works on its own.
  Task<Status> Read(uint64_t offset_bytes, std::span<const iovec> into) override {
    if (!Hangs(RequestKind::kRead)) {
      co_return co_await below().Read(offset_bytes, into);
    }
    Task<void> holding = Hold(RequestKind::kRead);
    co_await holding;
    co_return Fail(ErrorCode::kIo, "too late");
  }
  Task<Status> Write(uint64_t offset_bytes, std::span<const iovec> from) override {
    if (!Hangs(RequestKind::kWrite)) {
      co_return co_await below().Write(offset_bytes, from);
    }
    const AlignedBytes copy(TotalBytes(from), 0);
    std::byte* to = copy.data();
    for (const iovec& part : from) {
      std::memcpy(to, part.iov_base, part.iov_len);
      to += part.iov_len;
    }
    Task<void> holding = Hold(RequestKind::kWrite);
    co_await holding;
    const iovec part = {copy.data(), copy.size()};
    co_return co_await below().Write(offset_bytes, std::span(&part, 1));
  }
  Task<Status> Flush() override {
    Task<void> holding = Hold(RequestKind::kFlush);
    co_await holding;
    co_return co_await below().Flush();
  }

 private:
  [[nodiscard]] bool Hangs(RequestKind kind) const {
    return (shared_.hangs[index_] & MaskOf(kind)) != 0;
  }
  Task<void> Hold(RequestKind kind) {
    shared_.hung[index_] += Hangs(kind) ? 1 : 0;
    while (Hangs(kind)) {
      co_await loop_.Sleep(1000);
    }
  }

  EventLoop& loop_;
  Shared& shared_;
  uint32_t index_;
};

// The serving process's side.
class Server {
 public:
  Server(IoUringLoop& loop, Shared& shared) : loop_(loop), shared_(shared) {
    for (uint32_t i = 0; i < kDevices; ++i) {
      memory_.push_back(std::make_unique<MemoryDevice>("device" + std::to_string(i), kDeviceBytes));
      hanging_.push_back(std::make_unique<HangingDevice>(loop, *memory_.back(), shared, i));
      bounded_.push_back(std::make_unique<DeadlineDevice>(loop, *hanging_.back(), kDeadlineUs));
    }
  }

  Status Make() {
    CreateOptions options;
    options.parity = kParity;
    options.entropy = 1;
    std::vector<Device*> all = Members(memory_);
    EPLOG_TRY(RunTask(loop_, Array::Create(loop_, {all.begin(), all.begin() + kSsds},
                                           {all.begin() + kSsds, all.end()}, options)));
    auto opened = RunTask(loop_, Array::Open(loop_, Members(bounded_), Options()));
    if (!opened.ok()) {
      return Fail(opened.error());
    }
    array_ = std::move(*opened);
    const auto volume = RunTask(loop_, array_->CreateVolume("v", kChunks * kChunk));
    return volume.ok() ? OkStatus() : Status(Fail(volume.error()));
  }
  Array& array() { return *array_; }
  void Listen(EventSink sink) { sink_ = std::move(sink); }
  Device& fresh(uint32_t number) { return *bounded_[kFresh + number]; }

  // The devices answer again, and are opened anew: nothing that was durable is missing.
  std::string CheckContent() {
    array_.reset();
    for (auto& hangs : shared_.hangs) {
      hangs = 0;
    }
    const bool idle = loop_.RunUntil([this] {
      return std::ranges::all_of(bounded_, [](const auto& device) { return device->idle(); });
    });
    std::vector<Device*> devices = Members(memory_);
    for (uint32_t i = kFresh; i < kDevices; ++i) {
      const auto start = memory_[i]->bytes().first(kChunk);
      if (std::ranges::any_of(start, [](std::byte b) { return b != std::byte{0}; })) {
        devices.push_back(memory_[i].get());
      }
    }
    auto opened = RunTask(loop_, Array::Open(loop_, devices, Options()));
    if (!idle || !opened.ok()) {
      return idle ? "it cannot be opened again: " + opened.error().ToString() : "never idle";
    }
    array_ = std::move(*opened);
    std::string wrong = Compare();
    const Status closed = RunTask(loop_, array_->Close());
    array_.reset();
    return !wrong.empty() || closed.ok() ? wrong : "closing: " + closed.error().ToString();
  }

 private:
  template <typename Devices>
  static std::vector<Device*> Members(const Devices& devices) {
    std::vector<Device*> members;
    for (uint32_t i = 0; i < kMembers; ++i) {
      members.push_back(devices[i].get());
    }
    return members;
  }
  OpenOptions Options() {
    OpenOptions options;
    options.entropy = 100 + ++lives_;  // not that of the creation: identities are drawn from it
    options.on_event = [this](const ArrayEvent& event) {
      if (sink_) {
        sink_(event);
      }
    };
    return options;
  }
  std::string Compare() {
    const auto volume = array_->FindVolume("v");
    if (!volume) {
      return "the volume is gone";
    }
    BufferPool pool;
    Buffer read = pool.Get(kChunk);
    Buffer wanted = pool.Get(kChunk);
    for (uint64_t i = 0; i < kChunks; ++i) {
      if (shared_.seeds[i] == 0) {
        continue;
      }
      FillChunk(shared_.seeds[i], wanted.data());
      const Status status = RunTask(loop_, array_->Read(volume->id, i * kChunk, read.span()));
      if (!status.ok() || std::memcmp(read.data(), wanted.data(), kChunk) != 0) {
        return "chunk " + std::to_string(i) + " is not what was durable: " +
               (status.ok() ? "another content" : status.error().ToString());
      }
    }
    return "";
  }

  IoUringLoop& loop_;
  Shared& shared_;
  std::vector<std::unique_ptr<MemoryDevice>> memory_;
  std::vector<std::unique_ptr<HangingDevice>> hanging_;
  std::vector<std::unique_ptr<DeadlineDevice>> bounded_;
  std::unique_ptr<Array> array_;
  EventSink sink_;
  uint64_t lives_ = 0;
};

// Fresh devices as spares.
class Shelf final : public SpareShelf {
 public:
  explicit Shelf(Server& server) : server_(server) {}
  [[nodiscard]] std::vector<std::string> Listed() const override { return listed_; }
  Task<Result<SpareDevice>> Open(std::string path) override {
    co_return SpareDevice{&server_.fresh(path == listed_.front() ? 0 : 1), true, true, false};
  }
  Task<Result<SpareDevice>> Add(std::string path, DeviceIdentity /*looked_at*/) override {
    return Open(std::move(path));
  }
  void Close(const std::string& /*path*/) override {}
  Task<Status> PutBack(std::string /*path*/) override { co_return OkStatus(); }
  Task<Status> Remove(std::string /*path*/) override { co_return OkStatus(); }
  Task<Status> Joined(std::string /*member*/, std::string path) override {
    std::erase(listed_, path);
    co_return OkStatus();
  }

 private:
  Server& server_;
  std::vector<std::string> listed_ = {"/fresh/0", "/fresh/1"};
};

class HangingMembers : public testing::Test {
 protected:
  void SetUp() override {
    EPLOG_NEEDS_FUSE();
    void* memory =
        ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    shared_ = new (memory) Shared();
  }
  void TearDown() override {
    if (child_ > 0) {
      ::kill(child_, SIGKILL);
      static_cast<void>(Wait());
    }
    if (directory_) {
      ::umount2(mount_.c_str(), MNT_DETACH);
    }
    if (shared_ != nullptr) {
      ::munmap(shared_, sizeof(Shared));
    }
  }

  int Body(const ReadyFn& ready) const {
    auto loop = IoUringLoop::Create();
    Server server(**loop, *shared_);
    const Status made = server.Make();
    if (!made.ok()) {
      std::fprintf(stderr, "%s\n", made.error().ToString().c_str());
      return 2;
    }
    ServeOptions options;
    options.fuse.mountpoint = mount_;
    options.socket_path = socket_;
    CalledOwner owner;
    options.owner = &owner;
    owner.open = [&server](std::string path,
                           DeviceIdentity /*looked_at*/) -> Task<Result<Device*>> {
      co_return &server.fresh(path == "/fresh/0" ? 0 : 1);
    };
    Shelf shelf(server);
    options.spares = has_spares_ ? &shelf : nullptr;
    owner.listen = [&server](EventSink sink) { server.Listen(std::move(sink)); };
    const Status served = ServeArray(**loop, server.array(), options, ready);
    const std::string wrong = server.CheckContent();
    if (!wrong.empty()) {
      std::fprintf(stderr, "%s\n", wrong.c_str());
      return 3;
    }
    shared_->checked = true;
    return served.ok() ? 0 : 1;
  }
  void Start() {
    directory_ = std::make_unique<TemporaryDirectory>();
    ::chmod(directory_->path().c_str(), 0700);
    mount_ = *directory_ / "mount";
    socket_ = *directory_ / "socket";
    ASSERT_EQ(::mkdir(mount_.c_str(), 0700), 0);
    for (uint32_t i = 0; i < kDevices; ++i) {
      shared_->hangs[i] = 0;
      shared_->hung[i] = 0;
    }
    for (auto& seed : shared_->seeds) {
      seed = 0;
    }
    shared_->checked = false;
    child_ = ::fork();
    if (child_ == 0) {
      ::_exit(RunDaemonised(true, "", [&](const ReadyFn& ready) { return Body(ready); }));
    }
    ASSERT_TRUE(Until([&] { return Ask({{"verb", "status"}}).ok(); }));
    for (uint64_t chunk = 0; chunk < kChunks; chunk += 8) {
      ASSERT_TRUE(Write(chunk, 8));
    }
  }
  int Wait() { return AwaitExit(child_); }
  // Unmounted, and what was durable is there.
  void End(int exit_status = 0) {
    const Result<Json> done = Ask({{"verb", "umount"}});
    EXPECT_EQ(done.ok(), exit_status == 0) << (done.ok() ? "" : done.error().message);
    EXPECT_EQ(Wait(), exit_status);
    EXPECT_TRUE(shared_->checked);
  }

  [[nodiscard]] Result<Json> Ask(const Json& request) const {
    return ControlRequest(socket_, request);
  }
  [[nodiscard]] Result<Json> Replace(uint32_t device, const std::string& path) const {
    return Ask({{"verb", "replace"},
                {"device", device},
                {"path", path},
                {"identity", {{"block", false}, {"device", 1}, {"inode", 2}}}});
  }
  [[nodiscard]] std::string StateOf(uint32_t device) const {
    const Result<Json> status = Ask({{"verb", "status"}});
    return status.ok() ? (*status)["devices"][device]["state"].get<std::string>()
                       : status.error().message;
  }
  // Some minutes at most: the machine may be busy, and what hangs hangs for ever.
  static bool Until(const std::function<bool()>& holds) {
    for (int i = 0; i < 24000; ++i) {
      if (holds()) {
        return true;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }

  // Durably. What failed may be there or not; all does once the mount has ended.
  bool Write(uint64_t chunk, uint64_t count) {
    const int opened = ::open((mount_ + "/v").c_str(), O_RDWR | O_DIRECT | O_CLOEXEC);
    if (opened < 0) {
      return false;
    }
    const File file(opened);
    const AlignedBytes bytes(count * kChunk, 0);
    std::vector<uint64_t> seeds;
    for (uint64_t i = 0; i < count; ++i) {
      seeds.push_back(++last_seed_);
      shared_->seeds[chunk + i] = 0;
      FillChunk(seeds.back(), bytes.data() + i * kChunk);
    }
    const auto length = static_cast<ssize_t>(bytes.size());
    if (::pwrite(file.fd(), bytes.data(), bytes.size(), static_cast<off_t>(chunk * kChunk)) !=
            length ||
        ::fdatasync(file.fd()) != 0) {
      return false;
    }
    for (uint64_t i = 0; i < count; ++i) {
      shared_->seeds[chunk + i] = seeds[i];
    }
    return true;
  }
  bool Read(uint64_t chunk) {
    const File file(mount_ + "/v", O_RDONLY | O_DIRECT);
    const AlignedBytes bytes(kChunk, 0);
    const AlignedBytes wanted(kChunk, 0);
    FillChunk(shared_->seeds[chunk], wanted.data());
    return ::pread(file.fd(), bytes.data(), kChunk, static_cast<off_t>(chunk * kChunk)) ==
               static_cast<ssize_t>(kChunk) &&
           (shared_->seeds[chunk] == 0 || std::memcmp(bytes.data(), wanted.data(), kChunk) == 0);
  }
  // One round of everything that a member is asked for.
  void Work(uint64_t round) {
    EXPECT_TRUE(Write(round * 37 % kChunks, 1)) << "round " << round;
    EXPECT_TRUE(Write(round * 52 % (kChunks - 8), 8)) << "round " << round;
    EXPECT_TRUE(Read(round * 41 % kChunks)) << "round " << round;
  }
  void Hang(uint32_t device, RequestMask kinds) { shared_->hangs[device] = kinds; }

  Shared* shared_ = nullptr;
  std::unique_ptr<TemporaryDirectory> directory_;
  std::string mount_;
  std::string socket_;
  bool has_spares_ = false;
  uint64_t last_seed_ = 0;
  pid_t child_ = 0;
};

TEST_F(HangingMembers, AreLostAndWhoUsesTheMountHardlyNotices) {
  for (const uint32_t device : {1U, kSsds}) {
    for (const RequestMask kinds : {MaskOf(RequestKind::kRead), MaskOf(RequestKind::kWrite),
                                    MaskOf(RequestKind::kFlush), kAnyRequest}) {
      SCOPED_TRACE("device " + std::to_string(device) + ", requests " + std::to_string(kinds));
      Start();
      Hang(device, kinds);
      const auto scrub = std::async(std::launch::async, [this] {
        return Ask({{"verb", "scrub"}}).ok();
      });
      uint64_t round = 0;
      EXPECT_TRUE(Until([&] {
        Work(++round);
        return StateOf(device) == "failed";
      }));
      EXPECT_GT(shared_->hung[device], 0U);
      for (uint64_t more = 0; more < 20; ++more) {
        Work(++round);
      }
      scrub.wait();
      End();
    }
  }
}

TEST_F(HangingMembers, AsManyAsParityAtOnceUnderASignal) {
  Start();
  std::atomic<bool> stop{false};
  const auto writing = std::async(std::launch::async, [&] {
    for (uint64_t i = 0; !stop && Write(i * 29 % kChunks, 1); ++i) {
    }
  });
  Hang(2, kAnyRequest);
  Hang(kSsds + 1, kAnyRequest);
  EXPECT_TRUE(Until([&] { return shared_->hung[2] != 0 && shared_->hung[kSsds + 1] != 0; }));
  ASSERT_EQ(::kill(child_, SIGTERM), 0);
  EXPECT_EQ(Wait(), 0);
  EXPECT_TRUE(shared_->checked);
  stop = true;
}

TEST_F(HangingMembers, MoreThanParityStopTheArrayAndItCanBeUnmounted) {
  Start();
  for (const uint32_t device : {0U, 3U, kSsds}) {
    Hang(device, kAnyRequest);
  }
  uint64_t chunk = 0;
  EXPECT_TRUE(Until([&] { return !Write(++chunk % kChunks, 1); }));
  EXPECT_FALSE(Write(1, 1)) << "nothing is acknowledged any more";
  const Result<Json> status = Ask({{"verb", "status"}});
  ASSERT_TRUE(status.ok());
  EXPECT_EQ((*status)["array"]["state"], "failed");
  End(1);
}

TEST_F(HangingMembers, AtTheEndKeepNobody) {
  for (const RequestMask kinds : {MaskOf(RequestKind::kWrite), MaskOf(RequestKind::kFlush)}) {
    Start();
    Hang(1, kinds);
    Hang(kSsds, kinds);
    End();
    EXPECT_GT(shared_->hung[1] + shared_->hung[kSsds], 0U);
  }
}

TEST_F(HangingMembers, AReplacementThatHangsIsReplacedInTurn) {
  for (const RequestMask kinds : {MaskOf(RequestKind::kRead), MaskOf(RequestKind::kWrite),
                                  MaskOf(RequestKind::kFlush), kAnyRequest}) {
    for (const bool when_joined : {false, true}) {
      if (kinds == MaskOf(RequestKind::kRead) && when_joined) {
        continue;  // what is being rebuilt need not be read
      }
      SCOPED_TRACE("requests " + std::to_string(kinds) + (when_joined ? ", when joined" : ""));
      Start();
      ASSERT_TRUE(Ask({{"verb", "fail"}, {"device", 1}, {"reason", "by hand"}}).ok());
      Hang(kFresh, when_joined ? RequestMask{0} : kinds);
      const bool joined = Replace(1, "/fresh/0").ok();
      Hang(kFresh, kinds);
      uint64_t round = 0;
      EXPECT_TRUE(!joined || Until([&] {
        Work(++round);
        return StateOf(1) == "failed" || StateOf(1) == "ok";
      }));
      if (StateOf(1) != "ok") {  // it was quicker than the hang
        EXPECT_GT(shared_->hung[kFresh], 0U);
        const auto second = Replace(1, "/fresh/1");
        EXPECT_TRUE(second.ok()) << second.error().message;
      }
      EXPECT_TRUE(Until([&] {
        Work(++round);
        return StateOf(1) == "ok";
      }));
      End();
    }
  }
}

TEST_F(HangingMembers, ASpareThatHangsIsFollowedByTheNext) {
  has_spares_ = true;
  Start();
  Hang(kFresh, kAnyRequest);
  Hang(1, kAnyRequest);
  uint64_t round = 0;
  EXPECT_TRUE(Until([&] {
    Work(++round);
    return shared_->hung[kFresh] != 0 && StateOf(1) == "ok";
  }));
  End();
}

}  // namespace
}  // namespace eplog
