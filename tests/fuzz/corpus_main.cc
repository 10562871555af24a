// Runs every fuzz target over its corpus and over random mutations of it, under any compiler:
//
//   fuzz_corpus CORPUS_DIR MUTATIONS               of each target, shared by its files
//   fuzz_corpus CORPUS_DIR LAST TARGET FILE FIRST  of one file, by their numbers
//   fuzz_corpus --write-seeds CORPUS_DIR           writes seed files (corpus/TARGET/seed-N)
//
// Other files of the corpus were found by libFuzzer and kept for what they reach.
//
// Mutations follow from target, file name and number alone: a failure repeats with the printed
// command. It also fails if mutated inputs were never accepted or never refused: then it does not
// reach the parsers.
#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/crc32c.h"
#include "base/random.h"
#include "base/types.h"
#include "tests/fuzz/targets.h"

namespace eplog::fuzz {
namespace {

using Bytes = std::vector<std::byte>;

struct Input {
  std::string name;
  Bytes bytes;
};

// What runs now, for the message if it dies.
struct Now {
  const char* corpus = "";
  const char* target = "";
  const char* file = "";
  unsigned long mutation = 0;
};
Now now;

void OnDeath(int number) {
  std::fprintf(stderr, "repeat with: fuzz_corpus %s %lu %s %s %lu\n", now.corpus, now.mutation + 1,
               now.target, now.file, now.mutation);
  std::signal(number, SIG_DFL);
  std::raise(number);
}

std::vector<Input> ReadCorpus(const std::filesystem::path& directory) {
  std::vector<Input> inputs;
  if (!std::filesystem::is_directory(directory)) {
    return inputs;
  }
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    std::ifstream in(entry.path(), std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    const auto bytes = std::as_bytes(std::span(text));
    inputs.push_back({entry.path().filename().string(), {bytes.begin(), bytes.end()}});
  }
  std::sort(inputs.begin(), inputs.end(),
            [](const Input& a, const Input& b) { return a.name < b.name; });
  return inputs;
}

void Overwrite(Bytes& bytes, size_t at, uint64_t value, size_t width) {
  for (size_t i = 0; i < width && at + i < bytes.size(); ++i) {
    bytes[at + i] = static_cast<std::byte>(value >> (8 * i));
  }
}

// One change of a kind that finds bugs in decoders.
void MutateOnce(Bytes& bytes, const std::vector<Input>& others, Random& random) {
  constexpr uint64_t kNumbers[] = {0,
                                   1,
                                   2,
                                   0x7F,
                                   0x80,
                                   0xFF,
                                   0x7FFF,
                                   0xFFFF,
                                   0x7FFFFFFF,
                                   0xFFFFFFFF,
                                   0x7FFFFFFFFFFFFFFF,
                                   0xFFFFFFFFFFFFFFFF};
  if (bytes.empty()) {
    bytes.resize(random.Between(1, 64));
  }
  const size_t at =
      random.Below(random.OneIn(2) ? bytes.size() : std::min<size_t>(bytes.size(), 128));
  const auto there = bytes.begin() + static_cast<std::ptrdiff_t>(at);
  const size_t few = std::min<size_t>(random.Between(1, 16), bytes.size() - at);
  switch (random.Below(7)) {
    case 0:
      bytes[at] ^= static_cast<std::byte>(1U << random.Below(8));
      break;
    case 1:
      bytes[at] = static_cast<std::byte>(random.Next());
      break;
    case 2: {
      const size_t width = size_t{1} << random.Below(4);
      Overwrite(bytes, at, kNumbers[random.Below(std::size(kNumbers))], width);
      break;
    }
    case 3:  // a number a little off
      Overwrite(bytes, at, static_cast<uint64_t>(bytes[at]) + random.Below(5) - 2, 1);
      break;
    case 4:
      bytes.erase(there, there + static_cast<std::ptrdiff_t>(few));
      break;
    case 5: {
      const Bytes piece(there, there + static_cast<std::ptrdiff_t>(few));
      bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(random.Below(bytes.size() + 1)),
                   piece.begin(), piece.end());
      break;
    }
    default: {  // the tail of another
      const Bytes& other = others[random.Below(others.size())].bytes;
      if (at < other.size()) {
        bytes.resize(at);
        bytes.insert(bytes.end(), other.begin() + static_cast<std::ptrdiff_t>(at), other.end());
      }
    }
  }
}

using Counts = std::array<uint64_t, kOutcomes>;

void RunFile(const Target& target, const Input& input, const std::vector<Input>& all,
             unsigned long first, unsigned long end, Counts& counts) {
  now.target = target.name;
  now.file = input.name.c_str();
  now.mutation = 0;
  static_cast<void>(target.run(input.bytes));
  const uint64_t base = Crc32c(std::as_bytes(std::span(input.name)));
  for (unsigned long i = first; i < end; ++i) {
    now.mutation = i;
    Random random(base << 32 | i);
    Bytes bytes = input.bytes;
    for (uint64_t changes = random.Between(1, random.OneIn(4) ? 16 : 3); changes != 0; --changes) {
      MutateOnce(bytes, all, random);
    }
    ++counts[static_cast<size_t>(target.run(bytes))];
  }
}

bool RunTarget(const Target& target, const std::filesystem::path& corpus, unsigned long mutations) {
  const auto inputs = ReadCorpus(corpus / target.corpus);
  Counts counts{};
  for (const Input& input : inputs) {
    RunFile(target, input, inputs, 0, DivideUp(mutations, inputs.size()), counts);
  }
  const auto of = [&](Outcome outcome) {
    return static_cast<unsigned long long>(counts[static_cast<size_t>(outcome)]);
  };
  std::printf(
      "%-10s %3zu files; mutated: %8llu accepted %8llu corrupt %8llu unsupported %8llu none\n",
      target.name, inputs.size(), of(Outcome::kAccepted), of(Outcome::kCorrupt),
      of(Outcome::kUnsupported), of(Outcome::kNotFound));
  if (inputs.empty() ||
      (mutations >= 1000 && (of(Outcome::kAccepted) == 0 || of(Outcome::kCorrupt) == 0))) {
    std::fprintf(stderr, "%s: no corpus, or it does not reach the parser\n", target.name);
    return false;
  }
  return true;
}

int WriteSeeds(const std::filesystem::path& corpus) {
  constexpr uint64_t kSeeds = 8;
  for (const Target& target : Targets()) {
    std::filesystem::create_directories(corpus / target.corpus);
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      const Bytes bytes = target.make_seed(seed);
      std::ofstream out(corpus / target.corpus / ("seed-" + std::to_string(seed)),
                        std::ios::binary);
      out.write(reinterpret_cast<const char*>(bytes.data()),
                static_cast<std::streamsize>(bytes.size()));
    }
  }
  return 0;
}

int RunOne(int argc, char** argv) {
  const Target* target = FindTarget(argv[3]);
  const auto inputs = target == nullptr
                          ? std::vector<Input>()
                          : ReadCorpus(std::filesystem::path(argv[1]) / target->corpus);
  Counts counts{};
  for (const Input& input : inputs) {
    if (input.name == argv[4]) {
      const unsigned long first = argc > 5 ? std::strtoul(argv[5], nullptr, 10) : 0;
      RunFile(*target, input, inputs, first, std::strtoul(argv[2], nullptr, 10), counts);
      return 0;
    }
  }
  std::fprintf(stderr, "no such target or file\n");
  return 2;
}

int Main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "--write-seeds") == 0) {
    return WriteSeeds(argv[2]);
  }
  if (argc < 3) {
    std::fprintf(stderr,
                 "usage: fuzz_corpus CORPUS_DIR MUTATIONS | CORPUS_DIR LAST TARGET FILE [FIRST]\n");
    return 2;
  }
  now.corpus = argv[1];
  std::signal(SIGABRT, OnDeath);
  std::signal(SIGSEGV, OnDeath);
  if (argc > 4) {
    return RunOne(argc, argv);
  }
  bool good = true;
  for (const Target& target : Targets()) {
    good = RunTarget(target, argv[1], std::strtoul(argv[2], nullptr, 10)) && good;
  }
  return good ? 0 : 1;
}

}  // namespace
}  // namespace eplog::fuzz

int main(int argc, char** argv) {
  return eplog::fuzz::Main(argc, argv);
}
