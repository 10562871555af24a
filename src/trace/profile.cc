// Reading profiles.
#include "trace/profile.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <toml++/toml.h>
#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <sstream>

#include "trace/text.h"
#include "trace/zipf.h"

namespace eplog {
namespace {

constexpr size_t kMaxFileBytes = size_t{1} << 20;
constexpr size_t kMaxStreams = 64;
constexpr size_t kMaxSizes = 256;
constexpr uint64_t kMaxCount = 1'000'000'000'000;
constexpr uint64_t kMaxWeight = 1'000'000'000;
constexpr uint64_t kMaxWorkingSetBytes = uint64_t{1} << 50;
constexpr uint64_t kMaxRuns = 4096;
constexpr uint64_t kMaxIntervalUs = 3'600'000'000;

class Reader {
 public:
  explicit Reader(std::string file) : file_(std::move(file)) {}

  tl::unexpected<Error> Complain(const toml::node& where, const std::string& what) const {
    return Complain(where.source(), what);
  }
  tl::unexpected<Error> Complain(const toml::source_region& where, const std::string& what) const {
    return Fail(ErrorCode::kInvalidArgument,
                where.begin.line == 0 ? fmt::format("{}: {}", file_, what)
                                      : fmt::format("{}:{}: {}", file_, where.begin.line, what));
  }

  template <size_t kCount>
  Status Keys(const toml::table& table, const std::array<std::string_view, kCount>& known) const {
    for (const auto& [key, value] : table) {
      if (std::find(known.begin(), known.end(), key.str()) == known.end()) {
        return Complain(key.source(), fmt::format("unknown key '{}'; known here: {}",
                                                  Shown(key.str()), fmt::join(known, ", ")));
      }
    }
    return OkStatus();
  }

  // A whole number within bounds; stays as it is where the key is missing.
  Status Number(const toml::table& table, std::string_view key, uint64_t low, uint64_t high,
                uint64_t& value) const {
    const toml::node* node = table.get(key);
    if (node == nullptr) {
      return OkStatus();
    }
    const auto* number = node->as_integer();
    if (number == nullptr || number->get() < 0 || static_cast<uint64_t>(number->get()) < low ||
        static_cast<uint64_t>(number->get()) > high) {
      return Complain(*node,
                      fmt::format("'{}' must be a whole number from {} to {}", key, low, high));
    }
    value = static_cast<uint64_t>(number->get());
    return OkStatus();
  }

  Status Text(const toml::table& table, std::string_view key, std::string& value) const {
    const toml::node* node = table.get(key);
    if (node == nullptr) {
      return OkStatus();
    }
    const auto* text = node->as_string();
    if (text == nullptr) {
      return Complain(*node, fmt::format("'{}' must be a string in quotes", key));
    }
    value = text->get();
    return OkStatus();
  }

  Status Flag(const toml::table& table, std::string_view key, bool& value) const {
    const toml::node* node = table.get(key);
    if (node != nullptr && node->as_boolean() == nullptr) {
      return Complain(*node, fmt::format("'{}' must be true or false", key));
    }
    value = node == nullptr ? value : node->as_boolean()->get();
    return OkStatus();
  }

 private:
  std::string file_;
};

// skew = 0.9: kept in thousandths.
Status ReadSkew(const Reader& reader, const toml::table& table, ProfileStream& stream) {
  const toml::node* node = table.get("skew");
  if (node == nullptr) {
    return OkStatus();
  }
  const auto value = node->value<double>();
  if (!value || !(*value >= 0) || *value > 4) {
    return reader.Complain(*node, "'skew' must be a number from 0 to 4");
  }
  stream.skew_milli = static_cast<uint64_t>(std::llround(*value * 1000));
  return OkStatus();
}

// sizes = [[4096, 3], [8192, 1]]: bytes and weight.
Status ReadSizes(const Reader& reader, const toml::table& table, ProfileStream& stream) {
  const toml::node* node = table.get("sizes");
  const toml::array* list = node == nullptr ? nullptr : node->as_array();
  if (list == nullptr || list->empty() || list->size() > kMaxSizes) {
    return reader.Complain(table, "'sizes' must be a list of [bytes, weight] pairs");
  }
  for (const toml::node& item : *list) {
    const toml::array* pair = item.as_array();
    const auto part = [&](size_t i) {
      return pair == nullptr || pair->size() != 2 ? -1 : pair->get(i)->value_or(int64_t{-1});
    };
    if (part(0) < 1 || static_cast<uint64_t>(part(0)) > kMaxTraceRequestBytes || part(1) < 1 ||
        static_cast<uint64_t>(part(1)) > kMaxWeight) {
      return reader.Complain(item,
                             "a size must be [bytes, weight], both whole and 1 or more, at "
                             "most 1 GiB");
    }
    stream.sizes.push_back({static_cast<uint64_t>(part(0)), static_cast<uint64_t>(part(1))});
  }
  return OkStatus();
}

Status ReadWords(const Reader& reader, const toml::table& table, ProfileStream& stream) {
  std::string kind;
  std::string op = "write";
  EPLOG_TRY(reader.Text(table, "kind", kind));
  EPLOG_TRY(reader.Text(table, "op", op));
  if (kind == "uniform") {
    stream.kind = ProfileStream::Kind::kUniform;
  } else if (kind == "zipf") {
    stream.kind = ProfileStream::Kind::kZipf;
  } else if (kind == "sequential") {
    stream.kind = ProfileStream::Kind::kSequential;
  } else {
    return reader.Complain(table, "'kind' must be \"uniform\", \"zipf\" or \"sequential\"");
  }
  for (const TraceOp known : {TraceOp::kRead, TraceOp::kWrite, TraceOp::kTrim}) {
    if (op == TraceOpName(known)) {
      stream.op = known;
      return OkStatus();
    }
  }
  return reader.Complain(*table.get("op"), "'op' must be \"read\", \"write\" or \"trim\"");
}

// What the numbers of a stream must be to each other.
Status CheckStream(const Reader& reader, const toml::table& table, const ProfileStream& stream) {
  const auto largest =
      std::max_element(stream.sizes.begin(), stream.sizes.end(),
                       [](const auto& a, const auto& b) { return a.bytes < b.bytes; });
  if (stream.begin_bytes >= stream.end_bytes ||
      stream.end_bytes - stream.begin_bytes < largest->bytes) {
    return reader.Complain(
        table, fmt::format("its range, from {} to {}, does not hold its largest request, {} bytes",
                           stream.begin_bytes, stream.end_bytes, largest->bytes));
  }
  const uint64_t range = stream.end_bytes - stream.begin_bytes;
  if (stream.kind == ProfileStream::Kind::kZipf &&
      (stream.objects == 0 || stream.object_bytes == 0 ||
       stream.objects > range / stream.object_bytes)) {
    return reader.Complain(table,
                           "'objects' times 'object_bytes' must be more than 0 and fit the "
                           "stream's range");
  }
  if (stream.kind == ProfileStream::Kind::kSequential &&
      (stream.run_bytes == 0 || stream.run_bytes > range)) {
    return reader.Complain(table, "'run_bytes' must be more than 0 and fit the stream's range");
  }
  return OkStatus();
}

Status ReadStream(const Reader& reader, const toml::node& node, Profile& profile) {
  constexpr std::array<std::string_view, 14> kKeys = {
      "kind", "op",      "weight",       "sizes", "align",       "from", "to",
      "fua",  "objects", "object_bytes", "skew",  "drift_every", "runs", "run_bytes"};
  constexpr std::array<std::string_view, 2> kMore = {"scattered", "read_percent"};
  const toml::table* table = node.as_table();
  if (table == nullptr) {
    return reader.Complain(node, "'stream' must be a table: [[stream]]");
  }
  std::array<std::string_view, kKeys.size() + kMore.size()> keys{};
  std::copy(kMore.begin(), kMore.end(), std::copy(kKeys.begin(), kKeys.end(), keys.begin()));
  EPLOG_TRY(reader.Keys(*table, keys));
  ProfileStream stream;
  stream.end_bytes = profile.working_set_bytes;
  EPLOG_TRY(ReadWords(reader, *table, stream));
  EPLOG_TRY(ReadSizes(reader, *table, stream));
  EPLOG_TRY(ReadSkew(reader, *table, stream));
  const uint64_t all = profile.working_set_bytes;
  stream.weight = 1;
  EPLOG_TRY(reader.Number(*table, "weight", 1, kMaxWeight, stream.weight));
  EPLOG_TRY(reader.Number(*table, "read_percent", 0, 100, stream.read_percent));
  EPLOG_TRY(reader.Number(*table, "align", 1, kMaxTraceRequestBytes, stream.align_bytes));
  EPLOG_TRY(reader.Number(*table, "from", 0, all, stream.begin_bytes));
  EPLOG_TRY(reader.Number(*table, "to", 0, all, stream.end_bytes));
  EPLOG_TRY(reader.Number(*table, "objects", 1, ZipfTable::kMaxRanks, stream.objects));
  EPLOG_TRY(reader.Number(*table, "object_bytes", 1, all, stream.object_bytes));
  EPLOG_TRY(reader.Number(*table, "drift_every", 0, kMaxCount, stream.drift_every));
  EPLOG_TRY(reader.Number(*table, "runs", 1, kMaxRuns, stream.runs));
  EPLOG_TRY(reader.Number(*table, "run_bytes", 1, all, stream.run_bytes));
  EPLOG_TRY(reader.Flag(*table, "scattered", stream.scattered));
  EPLOG_TRY(reader.Flag(*table, "fua", stream.fua));
  EPLOG_TRY(CheckStream(reader, *table, stream));
  profile.streams.push_back(std::move(stream));
  return OkStatus();
}

Result<Profile> ReadProfile(const Reader& reader, const toml::table& root) {
  constexpr std::array<std::string_view, 9> kKeys = {
      "name",        "about", "seed", "requests", "writes", "working_set", "mean_interval_us",
      "flush_every", "stream"};
  Profile profile;
  EPLOG_TRY(reader.Keys(root, kKeys));
  EPLOG_TRY(reader.Text(root, "name", profile.name));
  EPLOG_TRY(reader.Text(root, "about", profile.about));
  EPLOG_TRY(reader.Number(root, "seed", 0, INT64_MAX, profile.seed));
  EPLOG_TRY(reader.Number(root, "requests", 1, kMaxCount, profile.requests));
  EPLOG_TRY(reader.Number(root, "writes", 1, kMaxCount, profile.writes));
  EPLOG_TRY(reader.Number(root, "working_set", 1, kMaxWorkingSetBytes, profile.working_set_bytes));
  EPLOG_TRY(reader.Number(root, "mean_interval_us", 0, kMaxIntervalUs, profile.mean_interval_us));
  EPLOG_TRY(reader.Number(root, "flush_every", 0, kMaxCount, profile.flush_every));
  if (profile.name.empty() || profile.name.find_first_of(" \t\r\n,") != std::string::npos) {
    return reader.Complain(root, "'name' must be one word");
  }
  if (profile.working_set_bytes == 0 || (profile.requests == 0) == (profile.writes == 0)) {
    return reader.Complain(root, "'working_set' and either 'requests' or 'writes' are needed");
  }
  const toml::node* streams = root.get("stream");
  const toml::array* list = streams == nullptr ? nullptr : streams->as_array();
  if (list == nullptr || list->empty() || list->size() > kMaxStreams) {
    return reader.Complain(root, fmt::format("1 to {} [[stream]] are needed", kMaxStreams));
  }
  for (const toml::node& node : *list) {
    EPLOG_TRY(ReadStream(reader, node, profile));
  }
  const bool writing =
      std::any_of(profile.streams.begin(), profile.streams.end(),
                  [](const auto& s) { return s.op == TraceOp::kWrite && s.read_percent < 100; });
  if (profile.writes != 0 && !writing) {
    return reader.Complain(root, "'writes' ends the trace, but no stream writes: say 'requests'");
  }
  return profile;
}

}  // namespace

Result<Profile> ParseProfile(std::string_view text, const std::string& file) {
  try {
    const toml::table root = toml::parse(text, file);
    return ReadProfile(Reader(file), root);
  } catch (const toml::parse_error& error) {
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format("{}:{}: {}", file, error.source().begin.line, Shown(error.description(), 200)));
  }
}

Result<Profile> LoadProfile(const std::string& name) {
  const std::string* const known = BuiltInProfile(name);
  if (known != nullptr) {
    return ParseProfile(*known, name + ".toml");
  }
  std::ifstream in(name, std::ios::binary);
  if (!in || !name.ends_with(".toml")) {
    return Fail(ErrorCode::kNotFound,
                fmt::format("there is no profile '{}'; there are: {}; or name a file of your own, "
                            "NAME.toml",
                            Shown(name), fmt::join(BuiltInProfiles(), ", ")));
  }
  std::string text(kMaxFileBytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(in.gcount()));
  if (in.bad() || text.size() > kMaxFileBytes) {
    return Fail(ErrorCode::kIo,
                fmt::format("{}: it cannot be read, or is larger than 1 MiB", name));
  }
  return ParseProfile(text, name);
}

}  // namespace eplog
