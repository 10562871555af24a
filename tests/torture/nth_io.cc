#include "tests/torture/nth_io.h"

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <utility>

#include "tests/torture/inspect.h"
#include "tests/torture/workload.h"

namespace eplog::torture {
namespace {

char current_run[160] = "";

// A broken invariant ends the process: say where.
void SayWhere(int /*signal*/) {
  static_cast<void>(!write(STDERR_FILENO, current_run, std::strlen(current_run)));
  std::signal(SIGABRT, SIG_DFL);
}

struct Fault {
  FaultPlan plan;
  bool power = false;  // the machine then loses its power, not only the process
};

// One run of the scenario under one fault.
class Run {
 public:
  Run(ArrayFactory& factory, const SeedPlan& plan, const Fault& fault)
      : factory_(factory),
        plan_(plan),
        fault_(fault),
        random_(plan.seed),
        oracle_(plan.create.chunk_bytes, false),
        scene_{plan_, oracle_, random_, pool_, coverage_, "", 0, 0, 0, nullptr, nullptr, nullptr},
        machine_(plan, 11) {
    factory_.Reset();
    hooks_.before_io = [this](DeviceIndex device, IoKind kind) {
      machine_.bus().Expect(device.value, kind);
    };
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;
  ~Run() { Drop(); }

  // A sentence if something is wrong. `fired`: the fault was met.
  std::string Go(bool& fired);

 private:
  Task<void> Scenario();
  Task<void> FirstLife();
  Task<void> SecondLife();
  Task<void> OpenForWriting();
  Task<void> Volumes();
  VolumeKey Key(const char* name);
  Task<void> Write(const char* name, uint64_t offset, uint64_t length);
  Task<void> Flush(const char* name, uint64_t offset, uint64_t length);
  Task<void> ReadAll(const char* name);
  // A device that fails, once or for good, fails no request: there is redundancy for it. No space
  // below may, and more devices than that.
  [[nodiscard]] bool MayFail() const {
    return fault_.plan.style == FaultStyle::kNoSpace || fault_.plan.style == FaultStyle::kHangs ||
           !factory_.survives_failures();
  }
  Task<Status> Create(bool force);
  std::string CreateByForce();
  std::string Reopen();
  void Drop();

  ArrayFactory& factory_;
  const SeedPlan& plan_;
  Fault fault_;
  Random random_;
  EngineHooks hooks_;
  BufferPool pool_;
  Coverage coverage_;
  Oracle oracle_;
  Scene scene_;
  Machine machine_;
  std::unique_ptr<Array> array_;
  std::unique_ptr<Workload> work_;
  bool created_ = false;
  bool met_in_creation_ = false;
  bool ended_ = false;
};

void Run::Drop() {
  machine_.loop().Abort();
  work_.reset();
  array_.reset();
}

VolumeKey Run::Key(const char* name) {
  for (const auto& [key, volume] : oracle_.volumes()) {
    if (volume->name == name && volume->id && !volume->changing) {
      return key;
    }
  }
  return 0;
}

Task<void> Run::Write(const char* name, uint64_t offset, uint64_t length) {
  const VolumeKey key = Key(name);
  if (key != 0) {
    Task<void> task = work_->Write(key, offset, length, work_->FreshWrite());
    co_await task;
  }
}

Task<void> Run::Flush(const char* name, uint64_t offset, uint64_t length) {
  const VolumeKey key = Key(name);
  if (key != 0) {
    Task<void> task = work_->Flush(key, offset, length);
    co_await task;
  }
}

Task<void> Run::ReadAll(const char* name) {
  const VolumeKey key = Key(name);
  if (key != 0) {
    Task<void> task = work_->Read(key, 0, oracle_.Find(key)->size_bytes);
    co_await task;
  }
}

Task<void> Run::OpenForWriting() {
  OpenOptions options;
  options.without_logs = ~uint64_t{0};
  options.entropy = random_.Next();
  Task<Result<std::unique_ptr<Array>>> task =
      factory_.Open(machine_.loop(), machine_.Except({}), options, &hooks_);
  Result<std::unique_ptr<Array>> result = co_await task;
  if (result.ok()) {
    array_ = std::move(*result);
    work_ = std::make_unique<Workload>(scene_, *array_, machine_.loop(), MayFail());
  } else if (!MayFail()) {
    scene_.Violate("refused to open: " + result.error().ToString());
  }
}

// Changes of volumes in every kind.
Task<void> Run::Volumes() {
  const uint64_t stripe = plan_.geometry.stripe_data_bytes();
  Task<void> second = work_->CreateVolume("b", 3 * stripe + 100);
  co_await second;
  Task<void> written = Write("b", stripe / 2, stripe);
  co_await written;
  if (const VolumeKey key = Key("b"); key != 0) {
    Task<void> task = work_->ResizeVolume(key, stripe + 1000);
    co_await task;
  }
  if (const VolumeKey key = Key("b"); key != 0) {
    Task<void> task = work_->ResizeVolume(key, 4 * stripe);
    co_await task;
  }
  Task<void> read = ReadAll("b");
  co_await read;
  Task<void> third = work_->CreateVolume("c", stripe);
  co_await third;
  Task<void> into = Write("c", 0, stripe);
  co_await into;
  const VolumeKey from = Key("c");
  const VolumeKey victim = Key("b");
  if (from != 0 && victim != 0) {
    Task<void> task = work_->RenameVolume(from, "b", victim);
    co_await task;
  }
  if (const VolumeKey key = Key("b"); key != 0) {
    Task<void> task = work_->DeleteVolume(key, false);
    co_await task;
  }
}

Task<void> Run::FirstLife() {
  const uint64_t chunk = plan_.create.chunk_bytes;
  const uint64_t stripe = plan_.geometry.stripe_data_bytes();
  Task<void> create = work_->CreateVolume("a", 10 * stripe);
  co_await create;
  struct Step {
    uint64_t offset;
    uint64_t length;
    bool flush;
  };
  const Step steps[] = {{0, chunk, false},
                        {stripe, 2 * stripe, false},
                        {0, chunk, true},
                        {4 * chunk + 700, 1000, false},
                        {3 * stripe - chunk, 3 * chunk, true},
                        {5 * stripe + 1, 2 * stripe, false},
                        {stripe, chunk, false}};
  for (const Step& step : steps) {
    Task<void> write = Write("a", step.offset, step.length);
    co_await write;
    if (step.flush) {
      Task<void> flush = Flush("a", step.offset, step.length);
      co_await flush;
    }
  }
  Task<void> all = work_->FlushAll();
  co_await all;
  Task<void> commit = work_->Commit();
  co_await commit;
  Task<void> again = Write("a", stripe, chunk);
  co_await again;
  Task<void> checkpoint = work_->Checkpoint(CheckpointKind::kIncremental);
  co_await checkpoint;
  Task<void> volumes = Volumes();
  co_await volumes;
  // Enough to come round the log.
  for (uint64_t i = 0; i < 40; ++i) {
    Task<void> write = Write("a", i * 3 % 10 * stripe + chunk * (i % 2), chunk);
    co_await write;
    if (i % 8 == 7) {
      Task<void> flush = Flush("a", 0, 10 * stripe);
      co_await flush;
    }
  }
  Task<void> read = ReadAll("a");
  co_await read;
  Task<void> close = work_->Close();
  co_await close;
}

// An opening is judged as after a crash: where the first life stopped for a failure, a write that
// was answered with an error may have happened all the same.
Task<void> Run::SecondLife() {
  Inspection inspection;
  inspection.devices = machine_.Except({});
  inspection.options.entropy = random_.Next();
  inspection.hooks = &hooks_;
  inspection.adopt = true;
  inspection.tolerant = MayFail();
  Task<void> judged = Inspect(factory_, machine_.loop(), oracle_, pool_, inspection);
  co_await judged;
  array_ = std::move(inspection.array);
  if (!inspection.wrong.empty()) {
    scene_.Violate("the second life: " + inspection.wrong);
  }
  if (inspection.failed || !inspection.wrong.empty()) {
    co_return;
  }
  work_ = std::make_unique<Workload>(scene_, *array_, machine_.loop(), MayFail());
  Task<void> write = Write("a", 100, 9000);
  co_await write;
  Task<void> flush = Flush("a", 0, 5 * plan_.create.chunk_bytes);
  co_await flush;
  Task<void> last = Write("a", 2 * plan_.geometry.stripe_data_bytes(), 5000);
  co_await last;
  // No close: the crash meets an open array.
}

Task<Status> Run::Create(bool force) {
  std::vector<Device*> ssds = machine_.Except({});
  const std::vector<Device*> logs(ssds.begin() + plan_.n, ssds.end());
  ssds.resize(plan_.n);
  CreateOptions options = plan_.create;
  options.force = force;
  return factory_.Create(machine_.loop(), std::move(ssds), logs, std::move(options));
}

// A creation that failed may be repeated by force: by another process, on devices that owe nothing
// to the first any more.
std::string Run::CreateByForce() {
  Status status = Fail(ErrorCode::kIo, "stalls");
  bool done = false;
  machine_.loop().Spawn([](Run& run, Status& result, bool& ended) -> Task<void> {
    Task<Status> create = run.Create(true);
    result = co_await create;
    ended = true;
  }(*this, status, done));
  machine_.Drive([&] { return done; });
  machine_.loop().Abort();
  machine_.Crash(random_, fault_.power);  // durable on return
  return status.ok() ? "" : "creation by force failed: " + status.error().ToString();
}

Task<void> Run::Scenario() {
  Task<Status> create = Create(false);
  const Status status = co_await create;
  created_ = status.ok();
  if (!created_) {
    met_in_creation_ = true;
    ended_ = true;
    co_return;
  }
  Task<void> open = OpenForWriting();
  co_await open;
  if (array_ != nullptr) {
    Task<void> first = FirstLife();
    co_await first;
    work_.reset();
    array_.reset();
    Task<void> second = SecondLife();
    co_await second;
  }
  ended_ = true;
}

// The machine is back without the fault: what was promised is there.
std::string Run::Reopen() {
  Inspection inspection;
  inspection.devices = machine_.Except({});
  inspection.options.entropy = random_.Next();
  inspection.hooks = &hooks_;
  inspection.adopt = inspection.full_check = inspection.close = true;
  // No space below is no failure of a device.
  inspection.whole = fault_.plan.style == FaultStyle::kNoSpace;
  machine_.loop().Spawn(Inspect(factory_, machine_.loop(), oracle_, pool_, inspection));
  const Driven driven = machine_.Drive([&] { return inspection.done; });
  machine_.loop().Abort();
  inspection.array.reset();
  if (driven != Driven::kDone) {
    return "the next opening stalls";
  }
  return inspection.wrong.empty() ? "" : "afterwards: " + inspection.wrong;
}

std::string Run::Go(bool& fired) {
  machine_.bus().Inject(fault_.plan);
  machine_.loop().Spawn(Scenario());
  const Driven driven = machine_.Drive([&] { return ended_; });
  fired = machine_.bus().fault_fired() || met_in_creation_;
  if (driven != Driven::kDone) {
    return "a request never answers" +
           (array_ != nullptr ? "; " + StatusText(array_->GetStatus()) : std::string());
  }
  Drop();
  oracle_.Crashed();
  machine_.Crash(random_, fault_.power);
  machine_.bus().Inject({});
  std::string wrong = scene_.violation;
  if (wrong.empty() && !created_) {
    wrong = CreateByForce();
  }
  if (wrong.empty()) {
    wrong = Reopen();
  }
  if (wrong.empty()) {
    wrong = machine_.bus().complaint();
  }
  return wrong;
}

struct Shape {
  uint32_t n;
  uint32_t m;
  uint32_t chunk_bytes;
  JournalMode journal;
};

}  // namespace

uint64_t RunNthIo(ArrayFactory& factory, const NthIoOptions& options) {
  static constexpr Shape kShapes[] = {{4, 1, 4096, JournalMode::kFull},
                                      {5, 2, 4096, JournalMode::kFull},
                                      {4, 2, 4096, JournalMode::kLog},
                                      {4, 1, 16384, JournalMode::kFull}};
  static constexpr const char* kStyles[] = {"fails once", "dies", "has no space", "hangs"};
  std::signal(SIGABRT, SayWhere);
  uint64_t runs = 0;
  uint64_t failed = 0;
  for (const Shape& shape : kShapes) {
    const SeedPlan plan =
        FixedPlan(shape.n, shape.m, shape.chunk_bytes, shape.journal, factory.min_ssd_bytes());
    for (int variant = 0; variant < 8; ++variant) {
      Fault fault;
      fault.plan.style = static_cast<FaultStyle>(variant / 2);
      fault.plan.hanging = shape.m + 1;  // and the array stops
      fault.plan.devices = shape.n + shape.m;
      fault.power = variant % 2 == 1;
      bool fired = true;
      for (uint64_t n = 1; fired && failed < options.stop_after; n += options.step) {
        fault.plan.nth = n;
        std::snprintf(current_run, sizeof(current_run),
                      "nth_io: %u+%u, chunks of %u, mode %s, request %llu %s, then a %s\n",
                      shape.n - shape.m, shape.m, shape.chunk_bytes,
                      shape.journal == JournalMode::kFull ? "full" : "log",
                      static_cast<unsigned long long>(n), kStyles[variant / 2],
                      fault.power ? "power cut" : "kill");
        Run run(factory, plan, fault);
        const std::string wrong = run.Go(fired);
        ++runs;
        if (!wrong.empty()) {
          ++failed;
          if (!options.quiet) {
            std::printf("VIOLATION %s  %s\n", current_run, wrong.c_str());
          }
        }
      }
    }
  }
  std::signal(SIGABRT, SIG_DFL);
  if (!options.quiet) {
    std::printf("fail the Nth I/O: %llu runs, %llu failed\n", static_cast<unsigned long long>(runs),
                static_cast<unsigned long long>(failed));
  }
  return failed;
}

}  // namespace eplog::torture
