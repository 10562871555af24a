// Thousands of damaged arrays: one bit, or one block that is another of the array. Each must open
// with every volume's content right, and be mended by a scrub: parity reaches that far. A refusal is
// told in its own words, and fails.
//
//   damage [--cases N] [--seed S] [--only CASE] [--jobs J] [--canary]
//
// EPLOG_DAMAGE_SEED in the environment is another seed. The same seed gives the same bases and
// cases. Processes work beside each other, so that one that dies names its case.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/random.h"
#include "tests/damage/damage.h"
#include "tests/damage/judge.h"

namespace eplog::damage {
namespace {

constexpr BaseShape kShapes[] = {
    {"4+2 closed", 6, 2, End::kClosed},
    {"2+1 closed", 3, 1, End::kClosed},
    {"4+2 killed", 6, 2, End::kKilled},
    {"2+1 killed", 3, 1, End::kKilled},
    {"4+2 power cut", 6, 2, End::kPowerCut},
    {"2+1 power cut", 3, 1, End::kPowerCut},
    {"4+2 one lost, closed", 6, 2, End::kClosed, Past::kLost},
    {"4+2 one lost, power cut", 6, 2, End::kPowerCut, Past::kLost},
    {"4+2 one replaced, closed", 6, 2, End::kClosed, Past::kReplaced},
    {"2+1 one replaced, power cut", 3, 1, End::kPowerCut, Past::kReplaced},
    {"4+2 log mode, power cut", 6, 2, End::kPowerCut, Past::kWhole, JournalMode::kLog},
};
constexpr unsigned kAllAreas = (1U << kAreas) - 1;
constexpr unsigned kJournal = AreaBit(Area::kRing) | AreaBit(Area::kLog);
constexpr unsigned kSecondsForOne = 60;
constexpr uint64_t kEnoughCases = 1000;  // to meet everything

struct Options {
  uint64_t cases = 10'000;
  uint64_t seed = 1;
  std::optional<uint64_t> only;
  uint32_t jobs = 2;
  bool canary = false;
};

// A base, with devices to damage.
struct Bench {
  explicit Bench(Base made) : base(std::move(made)), picker(base) {}
  Bench(const Bench&) = delete;
  Base base;
  Picker picker;
  std::vector<ImageDevice> devices;
};

struct Case {
  size_t bench = 0;
  std::vector<Damage> damages;
  JudgeOptions judge;
};

std::vector<std::unique_ptr<Bench>> MakeBenches(const Options& options) {
  std::vector<std::unique_ptr<Bench>> benches;
  for (const BaseShape& shape : kShapes) {
    const uint64_t seed = options.seed * 1000 + benches.size();
    benches.push_back(std::make_unique<Bench>(MakeBase(shape, seed)));
    Bench& bench = *benches.back();
    for (size_t i = 0; i < bench.base.devices.size(); ++i) {
      bench.devices.emplace_back(bench.base.names[i], bench.base.devices[i]);
    }
  }
  return benches;
}

// One damage; or, where parity can replace two, sometimes a second one on another device: a copy of
// the journal after a crash, anything otherwise.
Case MakeCase(const std::vector<std::unique_ptr<Bench>>& benches, const Options& options,
              uint64_t number) {
  Random random(options.seed << 32 | number);
  Case made;
  made.bench = number % benches.size();
  made.judge = {.entropy = random.Next(),
                .look = random.OneIn(4),
                .lose = random.OneIn(4),
                .canary = options.canary ? Canary::kRunsOutOfOrder : Canary::kNone};
  const Bench& bench = *benches[made.bench];
  if (number < benches.size()) {
    return made;  // as it is
  }
  const auto add = [&](unsigned areas, uint64_t spared) {
    if (const auto damage = bench.picker.Pick(random, areas, spared)) {
      made.damages.push_back(*damage);
    }
  };
  add(kAllAreas, 0);
  const BaseShape& shape = bench.base.shape;
  // In journal mode `log` nobody promises what is flushed to log devices that both are damaged.
  const bool two = shape.m > 1 && shape.past != Past::kLost && shape.journal == JournalMode::kFull;
  if (two && random.OneIn(3)) {
    add(shape.end == End::kClosed ? kAllAreas : kJournal,
        uint64_t{1} << made.damages.front().device);
  }
  return made;
}

std::string Describe(const Bench& bench, const Case& one) {
  std::string text = bench.base.shape.name;
  for (const Damage& damage : one.damages) {
    text += "; " + bench.picker.Describe(damage);
  }
  return text;
}

Verdict RunCase(Bench& bench, const Case& one) {
  for (ImageDevice& device : bench.devices) {
    device.Restore();
  }
  for (const Damage& damage : one.damages) {
    bench.picker.Apply(damage, bench.devices);
  }
  return Judge(bench.base, bench.devices, one.judge);
}

// ---- what the processes tell: a line each, fields by tabs
// "W", "R", "O" or "?" (wrong, refused, opened, begun), number of the case, and the rest
struct Report {
  char kind = 'O';
  uint64_t number = 0;
  std::string column;
  Verdict verdict;
  std::string text;
};

std::string ColumnOf(const Case& one) {
  if (one.damages.empty()) {
    return "none";
  }
  if (one.damages.size() > 1) {
    return "two";
  }
  return std::string(AreaName(one.damages[0].area)) + ", " + KindName(one.damages[0].kind);
}

void Tell(int to, const Report& report) {
  const Verdict& v = report.verdict;
  std::ostringstream out;
  out << report.kind << '\t' << report.number << '\t' << report.column << '\t' << v.problems << '\t'
      << v.degraded << '\t' << v.decoded_chunks << '\t' << v.recovery_repairs << '\t'
      << v.recovery_cuts << '\t' << v.refusal << '\t' << report.text;
  std::string line = out.str();
  std::replace(line.begin(), line.end(), '\n', ' ');
  line += "\n";
  EPLOG_CHECK(::write(to, line.data(), line.size()) == static_cast<ssize_t>(line.size()),
              "a report can be written");
}

// Nothing if it was not written to its end.
std::optional<Report> Parse(const std::string& line) {
  std::istringstream in(line);
  Report report;
  Verdict& v = report.verdict;
  in >> report.kind >> report.number;
  in.get();
  std::getline(in, report.column, '\t');
  in >> v.problems >> v.degraded >> v.decoded_chunks >> v.recovery_repairs >> v.recovery_cuts;
  const bool whole = in.get() == '\t' && std::getline(in, v.refusal, '\t');
  std::getline(in, report.text);
  return whole ? std::optional(std::move(report)) : std::nullopt;
}

Report RunNumber(const std::vector<std::unique_ptr<Bench>>& benches, const Options& options,
                 uint64_t number) {
  const Case one = MakeCase(benches, options, number);
  Bench& bench = *benches[one.bench];
  Report report{'O', number, ColumnOf(one), RunCase(bench, one), ""};
  const Verdict& verdict = report.verdict;
  if (!verdict.wrong.empty()) {
    report.kind = 'W';
    report.text = Describe(bench, one) + ": " + verdict.wrong;
  } else if (!verdict.refusal.empty()) {
    report.kind = 'R';
    report.text = Describe(bench, one);
  }
  return report;
}

class Runner {
 public:
  Runner(const std::vector<std::unique_ptr<Bench>>& benches, const Options& options)
      : benches_(benches), options_(options) {
    void* shared = ::mmap(nullptr, sizeof(std::atomic<uint64_t>), PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EPLOG_CHECK(shared != MAP_FAILED, "processes share a counter");
    next_ = new (shared) std::atomic<uint64_t>(0);
  }

  std::vector<Report> Run() {
    while (next_->load() < options_.cases) {
      RunProcesses();
    }
    std::sort(reports_.begin(), reports_.end(),
              [](const Report& a, const Report& b) { return a.number < b.number; });
    return std::move(reports_);
  }

 private:
  struct Process {
    pid_t pid = 0;
    std::string file;
  };

  void RunProcesses() {
    std::vector<Process> processes;
    for (uint32_t job = 0; job < options_.jobs; ++job) {
      char name[] = "/tmp/eplog-damage-XXXXXX";
      const int to = ::mkstemp(name);
      EPLOG_CHECK(to >= 0, "there is room for reports");
      std::fflush(nullptr);
      const pid_t pid = ::fork();
      EPLOG_CHECK(pid >= 0, "a process can be started");
      if (pid == 0) {
        Work(to);
      }
      ::close(to);
      processes.push_back({pid, name});
    }
    for (const Process& process : processes) {
      int status = 0;
      ::waitpid(process.pid, &status, 0);
      Collect(process.file, status);
      ::unlink(process.file.c_str());
    }
  }

  [[noreturn]] void Work(int to) {
    for (uint64_t number = (*next_)++; number < options_.cases; number = (*next_)++) {
      ::alarm(kSecondsForOne);
      Tell(to, {'?', number, "begun", {}, ""});
      Tell(to, RunNumber(benches_, options_, number));
    }
    ::_exit(0);
  }

  void Collect(const std::string& file, int status) {
    std::ifstream in(file);
    std::string line;
    std::optional<Report> begun;
    while (std::getline(in, line)) {
      std::optional<Report> report = Parse(line);
      EPLOG_CHECK(report.has_value(), "a report is whole");
      if (report->kind == '?') {
        begun = std::move(report);
      } else {
        begun.reset();
        reports_.push_back(std::move(*report));
      }
    }
    if (status != 0 && begun) {
      const Case one = MakeCase(benches_, options_, begun->number);
      begun->kind = 'W';
      begun->column = ColumnOf(one);
      begun->text =
          Describe(*benches_[one.bench], one) + (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM
                                                     ? ": does not end"
                                                     : ": the program dies, see above");
      reports_.push_back(std::move(*begun));
    }
  }

  const std::vector<std::unique_ptr<Bench>>& benches_;
  const Options& options_;
  std::atomic<uint64_t>* next_ = nullptr;
  std::vector<Report> reports_;
};

// ---- the table

// Cases of one kind of damage.
struct Row {
  uint64_t opened = 0;
  uint64_t decoded = 0;   // of them: a read needed redundancy
  uint64_t repaired = 0;  // recovery wrote something back
  uint64_t cut = 0;       // recovery ended the log before its end
  uint64_t scrubbed = 0;  // the scrub found something
  uint64_t degraded = 0;  // without a device that was there
  uint64_t refused = 0;
  uint64_t wrong = 0;

  void Add(const Report& report) {
    const Verdict& v = report.verdict;
    const uint64_t open = report.kind == 'O' ? 1 : 0;
    opened += open;
    decoded += v.decoded_chunks != 0 ? open : 0;
    repaired += v.recovery_repairs != 0 ? open : 0;
    cut += v.recovery_cuts != 0 ? open : 0;
    scrubbed += v.problems != 0 ? open : 0;
    degraded += v.degraded ? open : 0;
    refused += report.kind == 'R' ? 1 : 0;
    wrong += report.kind == 'W' ? 1 : 0;
  }
};

// Refusals that differ only in numbers are one.
std::string Alike(const std::string& refusal) {
  std::string alike;
  for (const char c : refusal) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit || alike.empty() || alike.back() != '#') {
      alike += digit ? '#' : c;
    }
  }
  return alike;
}

void PrintTable(const std::map<std::string, Row>& rows) {
  std::printf("%-26s %8s %8s %8s %8s %8s %8s %8s %8s\n", "damage", "opened", "decoded", "repaired",
              "cut", "scrubbed", "degraded", "refused", "WRONG");
  for (const auto& [name, row] : rows) {
    std::printf("%-26s", name.c_str());
    for (const uint64_t count : {row.opened, row.decoded, row.repaired, row.cut, row.scrubbed,
                                 row.degraded, row.refused, row.wrong}) {
      std::printf(" %8llu", static_cast<unsigned long long>(count));
    }
    std::printf("\n");
  }
}

void PrintRefusals(const std::vector<Report>& reports) {
  std::map<std::string, std::pair<uint64_t, const Report*>> refusals;
  for (const Report& report : reports) {
    if (report.kind == 'R') {
      auto& [count, example] = refusals[Alike(report.verdict.refusal)];
      ++count;
      example = example == nullptr ? &report : example;
    }
  }
  for (const auto& [shape, refusal] : refusals) {
    std::printf(
        "refused %llu times: %s (first in case %llu: %s)\n",
        static_cast<unsigned long long>(refusal.first), refusal.second->verdict.refusal.c_str(),
        static_cast<unsigned long long>(refusal.second->number), refusal.second->text.c_str());
  }
}

void PrintWrong(const std::vector<Report>& reports, const Options& options) {
  constexpr uint64_t kMostShown = 20;
  uint64_t shown = 0;
  for (const Report& report : reports) {
    if (report.kind == 'W' && shown++ < kMostShown) {
      std::printf("WRONG: %s\n  repeat with: damage --seed %llu --only %llu\n", report.text.c_str(),
                  static_cast<unsigned long long>(options.seed),
                  static_cast<unsigned long long>(report.number));
    }
  }
}

// Damage that nobody meets proves nothing.
bool MetEnough(const Row& all) {
  const bool enough = all.decoded != 0 && all.repaired != 0 && all.cut != 0 && all.scrubbed != 0;
  if (!enough) {
    std::printf("the damage does not reach what it is meant for\n");
  }
  return enough;
}

int RunOnly(const std::vector<std::unique_ptr<Bench>>& benches, const Options& options) {
  const Case one = MakeCase(benches, options, *options.only);
  std::printf("%s%s\n", Describe(*benches[one.bench], one).c_str(),
              one.judge.look ? "; read-only first" : "");
  std::fflush(stdout);
  const Report report = RunNumber(benches, options, *options.only);
  std::printf("%s %s %s\n",
              report.kind == 'W'   ? "WRONG"
              : report.kind == 'R' ? "refused"
                                   : "opened",
              report.text.c_str(), report.verdict.refusal.c_str());
  return report.kind == 'W' ? 1 : 0;
}

int Main(const Options& options) {
  const auto benches = MakeBenches(options);
  if (options.only) {
    return RunOnly(benches, options);
  }
  const std::vector<Report> reports = Runner(benches, options).Run();
  std::map<std::string, Row> rows;
  Row all;
  for (const Report& report : reports) {
    rows[report.column].Add(report);
    all.Add(report);
  }
  rows["~ all"] = all;
  PrintTable(rows);
  if (options.canary) {
    // The runs of a checkpoint are taken in the wrong order: what that makes of volumes must be
    // seen.
    return all.wrong != 0 ? 0 : 1;
  }
  PrintRefusals(reports);
  PrintWrong(reports, options);
  const bool met = options.cases < kEnoughCases || MetEnough(all);
  const bool sound = all.wrong == 0 && all.refused == 0;
  return met && sound && reports.size() == options.cases ? 0 : 1;
}

}  // namespace
}  // namespace eplog::damage

int main(int argc, char** argv) {
  CLI::App app("Damaged arrays against the engine");
  eplog::damage::Options options;
  app.add_option("--cases", options.cases, "how many");
  app.add_option("--seed", options.seed, "of bases and cases")->envname("EPLOG_DAMAGE_SEED");
  app.add_option("--only", options.only, "one case");
  app.add_option("--jobs", options.jobs, "processes");
  app.add_flag("--canary", options.canary, "an engine that breaks a rule: must be caught");
  CLI11_PARSE(app, argc, argv);
  return eplog::damage::Main(options);
}
