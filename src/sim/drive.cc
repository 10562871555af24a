#include "sim/drive.h"

#include <array>
#include <fstream>
#include <utility>

#include "base/types.h"
#include "sim/sim_hdd.h"
#include "sim/sim_ssd.h"
#include "sim/toml_reader.h"

namespace eplog::sim {
namespace {

constexpr size_t kMaxFileBytes = size_t{1} << 20;
constexpr double kUs = 1e3;  // in nanoseconds
constexpr double kMs = 1e6;
constexpr double kMegabyte = 1e6;
constexpr double kMillion = 1e6;
constexpr double kMaxUs = 1e7;
constexpr double kMaxMs = 1e4;
constexpr double kMaxRate = 1e6;  // MB/s
constexpr int64_t kMaxBytes = int64_t{1} << 50;
constexpr int64_t kMaxBufferBytes = int64_t{1} << 36;
constexpr uint64_t kMinUnitsInBuffer = 8;
constexpr uint64_t kMinCacheBytes = uint64_t{4} << 20;

Status ReadLink(const TomlReader& reader, const toml::table& root, LinkParameters& link) {
  constexpr std::array<std::string_view, 7> kKeys = {
      "read_mb_s",  "write_mb_s",      "full_duplex",     "queue_depth",
      "request_us", "read_latency_us", "write_latency_us"};
  const auto found = reader.Table(root, "interface");
  EPLOG_TRY(found);
  const toml::table& table = **found;
  EPLOG_TRY(reader.Keys(table, kKeys));
  EPLOG_TRY(reader.Number(table, "read_mb_s", 1, kMaxRate, kMegabyte, link.read_bytes_per_s));
  EPLOG_TRY(reader.Number(table, "write_mb_s", 1, kMaxRate, kMegabyte, link.write_bytes_per_s));
  EPLOG_TRY(reader.Flag(table, "full_duplex", link.full_duplex));
  EPLOG_TRY(reader.Count(table, "queue_depth", 1, 65536, link.queue_depth));
  EPLOG_TRY(reader.Number(table, "request_us", 0, kMaxUs, kUs, link.request_ns));
  EPLOG_TRY(reader.Number(table, "read_latency_us", 0, kMaxUs, kUs, link.read_latency_ns));
  return reader.Number(table, "write_latency_us", 0, kMaxUs, kUs, link.write_latency_ns);
}

Status ReadCollection(const TomlReader& reader, const toml::table& table, FlashParameters& flash) {
  std::string word;
  EPLOG_TRY(reader.Text(table, "collection", word));
  if (word != "greedy" && word != "cost-benefit") {
    return reader.Complain(*table.get("collection"),
                           "'collection' must be \"greedy\" or \"cost-benefit\"");
  }
  flash.collection = word == "greedy" ? Collection::kGreedy : Collection::kCostBenefit;
  return OkStatus();
}

// The file counts in pages of the NAND; the model in pages that are mapped.
Status ReadPages(const TomlReader& reader, const toml::table& table, FlashParameters& flash) {
  uint32_t nand_page_bytes = 0;
  uint32_t planes = 0;
  uint32_t block_pages = 0;
  EPLOG_TRY(reader.Count(table, "mapped_bytes", 512, 1 << 20, flash.page_bytes));
  EPLOG_TRY(reader.Count(table, "page_bytes", 512, 1 << 20, nand_page_bytes));
  EPLOG_TRY(reader.Count(table, "planes", 1, 64, planes));
  EPLOG_TRY(reader.Count(table, "pages_per_block", 1, 1 << 16, block_pages));
  if (flash.page_bytes % kSectorBytes != 0 || nand_page_bytes % flash.page_bytes != 0) {
    return reader.Complain(
        *table.get("mapped_bytes"),
        "'mapped_bytes' must be a multiple of 512 and 'page_bytes' a multiple of "
        "'mapped_bytes'");
  }
  flash.read_pages = nand_page_bytes / flash.page_bytes;
  flash.program_pages = flash.read_pages * planes;
  const uint64_t block = uint64_t{flash.program_pages} * block_pages;
  if (block > (uint64_t{1} << 20)) {
    return reader.Complain(*table.get("pages_per_block"),
                           "a block of all planes must have at most 2^20 mapped pages: take fewer "
                           "'pages_per_block' or 'planes'");
  }
  flash.pages_per_block = static_cast<uint32_t>(block);
  return OkStatus();
}

Status ReadFlashTable(const TomlReader& reader, const toml::table& root, FlashParameters& flash) {
  constexpr std::array<std::string_view, 14> kKeys = {
      "channels",         "ways",       "mapped_bytes", "page_bytes", "planes",
      "pages_per_block",  "read_us",    "program_us",   "erase_us",   "channel_mb_s",
      "overprovisioning", "collection", "free_blocks",  "reads_first"};
  const auto found = reader.Table(root, "flash");
  EPLOG_TRY(found);
  const toml::table& table = **found;
  EPLOG_TRY(reader.Keys(table, kKeys));
  EPLOG_TRY(reader.Count(table, "channels", 1, 256, flash.channels));
  EPLOG_TRY(reader.Count(table, "ways", 1, 128, flash.ways));
  EPLOG_TRY(ReadPages(reader, table, flash));
  EPLOG_TRY(reader.Number(table, "read_us", 0, kMaxUs, kUs, flash.read_ns));
  EPLOG_TRY(reader.Number(table, "program_us", 0, kMaxUs, kUs, flash.program_ns));
  EPLOG_TRY(reader.Number(table, "erase_us", 0, kMaxUs, kUs, flash.erase_ns));
  EPLOG_TRY(
      reader.Number(table, "channel_mb_s", 1, kMaxRate, kMegabyte, flash.channel_bytes_per_s));
  EPLOG_TRY(
      reader.Number(table, "overprovisioning", 0.001, 10, kMillion, flash.overprovisioning_ppm));
  EPLOG_TRY(ReadCollection(reader, table, flash));
  EPLOG_TRY(reader.Count(table, "free_blocks", 2, 1024, flash.free_blocks));
  return reader.Flag(table, "reads_first", flash.reads_first);
}

Status ReadSsd(const TomlReader& reader, const toml::table& root, SsdParameters& ssd) {
  constexpr std::array<std::string_view, 7> kRoot = {
      "name", "about", "kind", "capacity_bytes", "interface", "buffer", "flash"};
  constexpr std::array<std::string_view, 2> kBuffer = {"bytes", "capacitor"};
  EPLOG_TRY(reader.Keys(root, kRoot));
  EPLOG_TRY(ReadLink(reader, root, ssd.link));
  EPLOG_TRY(ReadFlashTable(reader, root, ssd.flash));
  const auto found = reader.Table(root, "buffer");
  EPLOG_TRY(found);
  const toml::table& table = **found;
  EPLOG_TRY(reader.Keys(table, kBuffer));
  EPLOG_TRY(reader.Count(table, "bytes", 1, kMaxBufferBytes, ssd.buffer_bytes));
  EPLOG_TRY(reader.Flag(table, "capacitor", ssd.capacitor));
  const uint64_t unit = uint64_t{ssd.flash.program_pages} * ssd.flash.page_bytes;
  if (ssd.buffer_bytes < kMinUnitsInBuffer * unit) {
    return reader.Complain(*table.get("bytes"),
                           fmt::format("'bytes' must be {} or more: eight times what one program "
                                       "writes",
                                       kMinUnitsInBuffer * unit));
  }
  return OkStatus();
}

// The curve must rise everywhere, and bend downwards.
Status CheckSeek(const TomlReader& reader, const toml::table& table, const HddParameters& hdd) {
  if (hdd.seek_average_ns < hdd.seek_track_ns || hdd.seek_full_ns < hdd.seek_average_ns) {
    return reader.Complain(table, "'seek_track_ms', 'seek_average_ms', 'seek_full_ms' must rise");
  }
  const uint64_t average = hdd.seek_average_ns - hdd.seek_track_ns;
  const uint64_t full = hdd.seek_full_ns - hdd.seek_track_ns;
  const uint64_t least = DivideUp(full, 3);
  const uint64_t most = full * 8 / 15;
  if (average < least || average > most) {
    return reader.Complain(
        *table.get("seek_average_ms"),
        fmt::format("no seek curve goes through these: 'seek_average_ms' must be from {:.2f} to "
                    "{:.2f} with this 'seek_track_ms' and 'seek_full_ms'",
                    static_cast<double>(hdd.seek_track_ns + least) / kMs,
                    static_cast<double>(hdd.seek_track_ns + most) / kMs));
  }
  return OkStatus();
}

Status ReadMechanics(const TomlReader& reader, const toml::table& root, HddParameters& hdd) {
  constexpr std::array<std::string_view, 9> kKeys = {
      "rpm",       "seek_track_ms", "seek_average_ms", "seek_full_ms", "write_settle_ms",
      "switch_ms", "outer_mb_s",    "inner_mb_s",      "zones"};
  const auto found = reader.Table(root, "mechanics");
  EPLOG_TRY(found);
  const toml::table& table = **found;
  EPLOG_TRY(reader.Keys(table, kKeys));
  uint64_t rpm = 0;
  EPLOG_TRY(reader.Count(table, "rpm", 1000, 100000, rpm));
  hdd.revolution_ns = (60'000'000'000 + rpm / 2) / rpm;
  EPLOG_TRY(reader.Number(table, "seek_track_ms", 0, kMaxMs, kMs, hdd.seek_track_ns));
  EPLOG_TRY(reader.Number(table, "seek_average_ms", 0, kMaxMs, kMs, hdd.seek_average_ns));
  EPLOG_TRY(reader.Number(table, "seek_full_ms", 0, kMaxMs, kMs, hdd.seek_full_ns));
  EPLOG_TRY(CheckSeek(reader, table, hdd));
  EPLOG_TRY(reader.Number(table, "write_settle_ms", 0, kMaxMs, kMs, hdd.write_settle_ns));
  EPLOG_TRY(reader.Number(table, "switch_ms", 0, kMaxMs, kMs, hdd.track_switch_ns));
  EPLOG_TRY(reader.Number(table, "outer_mb_s", 1, kMaxRate, kMegabyte, hdd.outer_bytes_per_s));
  EPLOG_TRY(reader.Number(table, "inner_mb_s", 1, kMaxRate, kMegabyte, hdd.inner_bytes_per_s));
  EPLOG_TRY(reader.Count(table, "zones", 1, 1024, hdd.zones));
  if (hdd.inner_bytes_per_s > hdd.outer_bytes_per_s) {
    return reader.Complain(*table.get("inner_mb_s"), "'inner_mb_s' must not exceed 'outer_mb_s'");
  }
  return OkStatus();
}

Status ReadHdd(const TomlReader& reader, const toml::table& root, HddParameters& hdd) {
  constexpr std::array<std::string_view, 7> kRoot = {
      "name", "about", "kind", "capacity_bytes", "interface", "mechanics", "cache"};
  constexpr std::array<std::string_view, 3> kCache = {"bytes", "write_back", "read_ahead_bytes"};
  EPLOG_TRY(reader.Keys(root, kRoot));
  EPLOG_TRY(ReadLink(reader, root, hdd.link));
  EPLOG_TRY(ReadMechanics(reader, root, hdd));
  const auto found = reader.Table(root, "cache");
  EPLOG_TRY(found);
  const toml::table& table = **found;
  EPLOG_TRY(reader.Keys(table, kCache));
  EPLOG_TRY(reader.Count(table, "bytes", 0, kMaxBufferBytes, hdd.cache_bytes));
  EPLOG_TRY(reader.Flag(table, "write_back", hdd.write_back));
  EPLOG_TRY(reader.Count(table, "read_ahead_bytes", 0, kMaxBufferBytes, hdd.read_ahead_bytes));
  if (hdd.write_back && hdd.cache_bytes < kMinCacheBytes) {
    return reader.Complain(
        *table.get("bytes"),
        fmt::format("'bytes' must be {} or more with 'write_back'", kMinCacheBytes));
  }
  return OkStatus();
}

Result<Drive> ReadDrive(const TomlReader& reader, const toml::table& root) {
  Drive drive;
  std::string kind;
  EPLOG_TRY(reader.Text(root, "kind", kind));
  if (kind == "ssd") {
    EPLOG_TRY(ReadSsd(reader, root, drive.ssd.emplace()));
  } else if (kind == "hdd") {
    EPLOG_TRY(ReadHdd(reader, root, drive.hdd.emplace()));
  } else {
    return reader.Complain(*root.get("kind"), "'kind' must be \"ssd\" or \"hdd\"");
  }
  EPLOG_TRY(reader.Text(root, "name", drive.name));
  EPLOG_TRY(reader.Text(root, "about", drive.about));
  EPLOG_TRY(reader.Count(root, "capacity_bytes", 1 << 20, kMaxBytes, drive.capacity_bytes));
  if (drive.name.empty() || drive.name.find_first_of(" \t\r\n,") != std::string::npos) {
    return reader.Complain(*root.get("name"), "'name' must be one word");
  }
  drive.capacity_bytes = RoundDown(drive.capacity_bytes, kSectorBytes);
  return drive;
}

}  // namespace

Result<Drive> ParseDrive(std::string_view text, const std::string& file) {
  try {
    const toml::table root = toml::parse(text, file);
    return ReadDrive(TomlReader(file), root);
  } catch (const toml::parse_error& error) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{}:{}: {}", file, error.source().begin.line,
                            TomlReader::Printable(error.description(), 200)));
  }
}

Result<Drive> LoadDrive(const std::string& name) {
  const std::string* const known = BuiltInDrive(name);
  if (known != nullptr) {
    return ParseDrive(*known, name + ".toml");
  }
  std::ifstream in(name, std::ios::binary);
  if (!in || !name.ends_with(".toml")) {
    return Fail(ErrorCode::kNotFound,
                fmt::format("there is no drive '{}'; there are: {}; or name a file of your own, "
                            "NAME.toml",
                            TomlReader::Printable(name), fmt::join(ListDrives(), ", ")));
  }
  std::string text(kMaxFileBytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(in.gcount()));
  if (in.bad() || text.size() > kMaxFileBytes) {
    return Fail(ErrorCode::kIo,
                fmt::format("{}: it cannot be read, or is larger than 1 MiB", name));
  }
  return ParseDrive(text, name);
}

std::unique_ptr<SimDevice> MakeDevice(EventLoop& loop, std::string name, const Drive& drive,
                                      uint64_t size_bytes) {
  const uint64_t size = size_bytes == 0 ? drive.capacity_bytes : size_bytes;
  if (drive.ssd) {
    return std::make_unique<SimSsd>(loop, std::move(name), *drive.ssd, size);
  }
  return std::make_unique<SimHdd>(loop, std::move(name), *drive.hdd, size);
}

}  // namespace eplog::sim
