#include "tests/torture/runner.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <vector>

#include "tests/torture/world.h"

namespace eplog::torture {
namespace {

// Wall clock seconds that one seed may take before it counts as hung: it needs far less than one.
constexpr unsigned kSeedSeconds = 120;

struct SeedResult {
  Coverage coverage;
  uint64_t hash = 0;
  std::string violation;  // empty: none
  bool died = false;      // by a signal: a broken invariant, or no end
};

SeedResult RunHere(ArrayFactory& factory, const WorldOptions& options) {
  SeedResult result;
  World world(factory, options);
  result.violation = world.Run();
  result.coverage = world.coverage();
  result.hash = world.hash();
  return result;
}

void WriteAll(int fd, const void* data, size_t size) {
  const char* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written = write(fd, at, size);
    if (written <= 0) {
      return;
    }
    at += written;
    size -= static_cast<size_t>(written);
  }
}

// A seed in a child: results come through one pipe, what it says on stderr through the same, before
// them.
class Child {
 public:
  Child(ArrayFactory& factory, const WorldOptions& options) {
    int results[2];
    int errors[2];
    if (pipe(results) != 0 || pipe(errors) != 0) {
      std::perror("pipe");
      std::exit(2);
    }
    std::fflush(stdout);
    pid_ = fork();
    if (pid_ == 0) {
      dup2(errors[1], STDERR_FILENO);
      alarm(kSeedSeconds);
      const SeedResult result = RunHere(factory, options);
      WriteAll(results[1], &result.coverage, sizeof(result.coverage));
      WriteAll(results[1], &result.hash, sizeof(result.hash));
      WriteAll(results[1], result.violation.data(), result.violation.size());
      std::fflush(stdout);
      _exit(0);
    }
    close(results[1]);
    close(errors[1]);
    results_ = results[0];
    errors_ = errors[0];
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    close(results_);
    close(errors_);
  }

  [[nodiscard]] int fd() const { return results_; }

  // Take what there is. True: the child has ended.
  bool Pump() {
    char buffer[65536];
    const ssize_t got = read(results_, buffer, sizeof(buffer));
    if (got > 0) {
      bytes_.append(buffer, static_cast<size_t>(got));
      return false;
    }
    return true;
  }

  SeedResult Reap() {
    std::string said;
    char buffer[4096];
    for (ssize_t got = 0; (got = read(errors_, buffer, sizeof(buffer))) > 0;) {
      said.append(buffer, static_cast<size_t>(got));
    }
    int status = 0;
    waitpid(pid_, &status, 0);
    SeedResult result;
    constexpr size_t kHead = sizeof(Coverage) + sizeof(uint64_t);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0 && bytes_.size() >= kHead) {
      std::memcpy(static_cast<void*>(&result.coverage), bytes_.data(), sizeof(Coverage));
      std::memcpy(&result.hash, bytes_.data() + sizeof(Coverage), sizeof(uint64_t));
      result.violation = bytes_.substr(kHead);
      return result;
    }
    result.died = true;
    result.violation = WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM
                           ? "no end after " + std::to_string(kSeedSeconds) + " s"
                           : "died (status " + std::to_string(status) + "): ";
    result.violation += said.substr(0, 2000);
    return result;
  }

 private:
  pid_t pid_ = -1;
  int results_ = -1;
  int errors_ = -1;
  std::string bytes_;
};

// Keeps `jobs` children busy. next() gives the options of the next seed until it returns false;
// done() gets each result and returns false to stop.
void Schedule(ArrayFactory& factory, unsigned jobs, const std::function<bool(WorldOptions&)>& next,
              const std::function<bool(const WorldOptions&, SeedResult)>& done) {
  std::vector<std::pair<WorldOptions, std::unique_ptr<Child>>> running;
  bool more = true;
  while (true) {
    WorldOptions options;
    while (more && running.size() < std::max(1U, jobs)) {
      more = next(options);
      if (more) {
        running.emplace_back(options, std::make_unique<Child>(factory, options));
      }
    }
    if (running.empty()) {
      break;
    }
    std::vector<pollfd> fds;
    for (const auto& [seed, child] : running) {
      fds.push_back({child->fd(), POLLIN, 0});
    }
    if (poll(fds.data(), fds.size(), -1) < 0) {
      continue;
    }
    for (size_t i = running.size(); i-- > 0;) {
      if (fds[i].revents == 0 || !running[i].second->Pump()) {
        continue;
      }
      SeedResult result = running[i].second->Reap();
      const WorldOptions seed = running[i].first;
      running.erase(running.begin() + static_cast<ptrdiff_t>(i));
      more = done(seed, std::move(result)) && more;
    }
  }
}

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

struct Totals {
  Coverage coverage;
  uint64_t failed = 0;
  std::map<uint64_t, uint64_t> hashes;
};

// False: enough has failed.
bool Account(const RunnerOptions& options, uint64_t seed, const SeedResult& result,
             Totals& totals) {
  totals.coverage.Add(result.coverage);
  std::string wrong = result.violation;
  const auto [known, first] = totals.hashes.try_emplace(seed, result.hash);
  if (wrong.empty() && !first && known->second != result.hash) {
    wrong = "seed " + std::to_string(seed) + ": two runs differ";
  }
  if (!options.twice || !first) {
    totals.hashes.erase(seed);
  }
  if (options.hash) {
    std::printf("seed %llu hash %016llx\n", static_cast<unsigned long long>(seed),
                static_cast<unsigned long long>(result.hash));
  }
  if (wrong.empty()) {
    return true;
  }
  ++totals.failed;
  std::printf("VIOLATION seed %llu: %s\n  repeat: %s%llu\n", static_cast<unsigned long long>(seed),
              wrong.c_str(), options.repeat.c_str(), static_cast<unsigned long long>(seed));
  std::fflush(stdout);
  return totals.failed < options.stop_after;
}

// 200 of each in 5,000 seeds, and with that rate in more; in fewer chance has its part.
uint64_t LeastOf(uint64_t seeds) {
  return seeds >= 5000 ? seeds / 25 : seeds >= 1000 ? seeds / 100 : seeds / 250;
}

int Conclude(const RunnerOptions& options, const Totals& totals, double seconds) {
  std::printf("%s%llu seeds from %llu in %.1f s, %llu failed\n", totals.coverage.ToString().c_str(),
              static_cast<unsigned long long>(totals.coverage.seeds),
              static_cast<unsigned long long>(options.first), seconds,
              static_cast<unsigned long long>(totals.failed));
  const uint64_t least = options.least != 0 ? options.least : LeastOf(totals.coverage.seeds);
  const std::string missing = totals.coverage.Missing(least);
  if (!missing.empty()) {
    std::printf("met less than %llu times: %s\n", static_cast<unsigned long long>(least),
                missing.c_str());
  }
  return totals.failed == 0 && missing.empty() ? 0 : 1;
}

}  // namespace

int RunSeeds(ArrayFactory& factory, const RunnerOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  const uint64_t runs = options.seeds * (options.twice ? 2 : 1);
  uint64_t started = 0;
  Totals totals;
  const auto next = [&](WorldOptions& world) {
    const bool late = options.minutes > 0 && SecondsSince(start) > options.minutes * 60;
    if (late || (options.minutes <= 0 && started == runs)) {
      return false;
    }
    world.seed = options.first + started++ / (options.twice ? 2 : 1);
    world.verbose = options.verbose;
    return true;
  };
  const auto done = [&](const WorldOptions& world, const SeedResult& result) {
    return Account(options, world.seed, result, totals);
  };
  if (options.in_process) {
    WorldOptions world;
    while (next(world) && done(world, RunHere(factory, world))) {
    }
  } else {
    Schedule(factory, options.jobs, next, done);
  }
  return Conclude(options, totals, SecondsSince(start));
}

namespace {

// A seed that fails with all rules in force says nothing about a broken one.
bool FailsAnyway(ArrayFactory& factory, WorldOptions world) {
  world.canary = Canary::kNone;
  Child child(factory, world);
  while (!child.Pump()) {
  }
  return !child.Reap().violation.empty();
}

}  // namespace

bool RunCanary(ArrayFactory& factory, const RunnerOptions& options, Canary canary,
               const std::string& name) {
  const auto start = std::chrono::steady_clock::now();
  uint64_t started = 0;
  uint64_t run = 0;
  bool caught = false;
  const auto next = [&](WorldOptions& world) {
    if (caught || started == options.seeds) {
      return false;
    }
    world.seed = options.first + started++;
    world.canary = canary;
    world.verbose = options.verbose;
    return true;
  };
  const auto done = [&](const WorldOptions& world, const SeedResult& result) {
    ++run;
    if (result.violation.empty() || caught) {
      return !caught;
    }
    if (canary != Canary::kNone && FailsAnyway(factory, world)) {
      return true;
    }
    caught = true;
    std::printf("%-22s caught by seed %llu (%.1f s), %s: %.600s\n", name.c_str(),
                static_cast<unsigned long long>(world.seed), SecondsSince(start),
                result.died ? "by a broken invariant" : "by the oracle", result.violation.c_str());
    return false;
  };
  Schedule(factory, options.jobs, next, done);
  if (!caught) {
    std::printf("%-22s NOT CAUGHT in %llu seeds (%.1f s)\n", name.c_str(),
                static_cast<unsigned long long>(run), SecondsSince(start));
  }
  std::fflush(stdout);
  return caught;
}

}  // namespace eplog::torture
