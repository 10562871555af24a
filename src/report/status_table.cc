// StatusTable: the facts of a status document for a person. Reads the document leniently, since it
// may come from a serving process of another version: what is missing shows as 0 or "-".
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "report/status_json.h"
#include "text/units.h"
#include "text/words.h"

namespace eplog {
namespace {

using Out = std::back_insert_iterator<std::string>;

const Json& Part(const Json& json, std::string_view key) {
  static const Json empty = Json::object();
  const auto found = json.is_object() ? json.find(key) : json.end();
  return found == json.end() ? empty : *found;
}

uint64_t Number(const Json& json, std::string_view key) {
  const Json& value = Part(json, key);
  return value.is_number_integer() ? value.get<uint64_t>() : 0;
}

// What is missing stays 0.
template <typename T, size_t kCount>
T ReadCounters(const std::array<NamedCounter<T>, kCount>& table, const Json& json) {
  T counters;
  for (const NamedCounter<T>& each : table) {
    counters.*each.counter = Number(json, each.name);
  }
  return counters;
}

double Real(const Json& json, std::string_view key) {
  const Json& value = Part(json, key);
  return value.is_number() ? value.get<double>() : 0.0;
}

std::string Text(const Json& json, std::string_view key) {
  const Json& value = Part(json, key);
  return value.is_string() && !value.get_ref<const std::string&>().empty()
             ? value.get<std::string>()
             : "-";
}

std::string Bytes(const Json& json, std::string_view key) {
  return HumanBytes(Number(json, key));
}

std::string RoundSeconds(double seconds) {
  if (seconds < 120) {
    return fmt::format("{:.1f} s", seconds);
  }
  return seconds < 7200 ? fmt::format("{:.0f} min", seconds / 60)
                        : fmt::format("{:.1f} h", seconds / 3600);
}

const char* Plural(uint64_t count) {
  return count == 1 ? "" : "s";
}

void ArrayLines(Out out, const Json& array) {
  fmt::format_to(out, "array {} ({})\n", Text(array, "name"), Text(array, "uuid"));
  fmt::format_to(out, "  state      {}{}\n", Text(array, "state"),
                 Part(array, "read_only") == true ? ", read-only" : "");
  if (array.contains("stopped_because")) {
    fmt::format_to(out, "  STOPPED    acknowledges nothing: {}\n", Text(array, "stopped_because"));
  }
  const uint64_t parity = Number(array, "parity_chunks");
  fmt::format_to(out, "  layout     {}: {} data + {} parity, chunk {}, journal {}\n",
                 LevelName(static_cast<uint32_t>(parity)), Number(array, "data_chunks"), parity,
                 Bytes(array, "chunk_bytes"), Text(array, "journal"));
  fmt::format_to(out, "  capacity   {}, {} allocated, {} free\n", Bytes(array, "capacity_bytes"),
                 Bytes(array, "allocated_bytes"), Bytes(array, "free_bytes"));
  if (Part(array, "mounted_at").is_string()) {
    fmt::format_to(out, "  mounted    since {} by process {}\n", Text(array, "mounted_at"),
                   Number(array, "pid"));
  } else {
    fmt::format_to(out, "  mounted    no\n");
  }
}

std::string DeviceNotes(const Json& device, const DeviceStatus& counted) {
  std::string notes;
  const auto add = [&](uint64_t count, const char* what) {
    if (count != 0) {
      notes += fmt::format("{}{} {}{}", notes.empty() ? "" : ", ", count, what, Plural(count));
    }
  };
  add(counted.read_errors, "read error");
  add(counted.write_errors, "write error");
  add(counted.corrupt_chunks, "corrupt chunk");
  if (Part(device, "failed_because").is_string()) {
    notes += fmt::format("{}{}", notes.empty() ? "" : ", ", Text(device, "failed_because"));
  }
  if (Part(device, "file_removed") == true) {
    notes += notes.empty() ? "" : ", ";
    notes += "its file was removed: replace it while mounted";
  }
  if (Part(device, "direct") == false) {
    notes += notes.empty() ? "not direct" : ", not direct";
  }
  return notes;
}

// The first, second, third and last read from the left.
std::string Table(const std::vector<std::vector<std::string>>& rows) {
  constexpr size_t kLeft = 3;
  const size_t last = rows.front().size() - 1;
  return Columns(rows, [last](size_t i) { return i < kLeft || i == last; });
}

std::string DeviceLines(const Json& devices) {
  std::vector<std::vector<std::string>> rows = {{"device", "state", "path", "size", "reads",
                                                 "writes", "flushes", "read", "written", "p99",
                                                 ""}};
  for (const Json& device : devices) {
    const DeviceStatus counted = ReadCounters(kDeviceCounters, device);
    rows.push_back({Text(device, "name"), Text(device, "state"), Text(device, "path"),
                    HumanBytes(counted.size_bytes), std::to_string(counted.reads),
                    std::to_string(counted.writes), std::to_string(counted.flushes),
                    HumanBytes(counted.bytes_read), HumanBytes(counted.bytes_written),
                    fmt::format("{} us", counted.latency_us_p99), DeviceNotes(device, counted)});
  }
  return "devices\n" + Table(rows);
}

std::string LossSentence(const char* kind, uint64_t survived) {
  if (survived == 0) {
    return fmt::format("losing one more {} now would lose data or stop the array", kind);
  }
  return fmt::format("{} more {}{} may be lost now without losing anything", survived, kind,
                     Plural(survived));
}

void ExposureLines(Out out, const Json& exposure) {
  const uint64_t pending = Number(exposure, "pending_chunks");
  fmt::format_to(out, "exposure\n");
  if (pending == 0) {
    fmt::format_to(out, "  parity on the SSDs covers every chunk\n");
  } else {
    const uint64_t stripes = Number(exposure, "log_stripes");
    fmt::format_to(out,
                   "  {} chunk{} ({}) await parity commit, the oldest since {}; {} log stripe{} "
                   "cover{} them\n",
                   pending, Plural(pending), Bytes(exposure, "pending_bytes"),
                   RoundSeconds(Real(exposure, "oldest_pending_seconds")), stripes, Plural(stripes),
                   stripes == 1 ? "s" : "");
  }
  fmt::format_to(out, "  {} acknowledged and not yet flushed\n", Bytes(exposure, "unstable_bytes"));
  fmt::format_to(out, "  {}\n",
                 LossSentence("SSD", Number(exposure, "further_ssd_losses_survived")));
  fmt::format_to(out, "  {}\n",
                 LossSentence("log device", Number(exposure, "further_log_losses_survived")));
}

// They count as there above, and are until the process that has them open ends.
void RemovedLines(Out out, const Json& devices) {
  const auto removed = std::count_if(devices.begin(), devices.end(), [](const Json& device) {
    return Part(device, "file_removed") == true;
  });
  if (removed != 0) {
    fmt::format_to(out, "  when the array is unmounted, {} removed file{} {} lost as well\n",
                   removed, Plural(static_cast<uint64_t>(removed)), removed == 1 ? "is" : "are");
  }
}

void SpaceLines(Out out, const Json& space, const Json& memory) {
  const uint64_t size = Number(space, "log_size_bytes");
  const uint64_t used = Number(space, "log_used_bytes");
  const double percent =
      size == 0 ? 0 : 100.0 * static_cast<double>(used) / static_cast<double>(size);
  fmt::format_to(out, "space\n");
  fmt::format_to(out, "  log        {} of {} used ({:.1f} %)\n", HumanBytes(used), HumanBytes(size),
                 percent);
  fmt::format_to(out, "  slots      {} free on the fullest SSD, {} reserved for new versions\n",
                 Number(space, "slots_free_min"), Number(space, "slots_reserved"));
  fmt::format_to(out, "  memory     {} of metadata for {} slots and {} pending\n",
                 Bytes(memory, "metadata_bytes"), Number(memory, "slots"),
                 Number(memory, "pending"));
}

void TrafficLines(Out out, const char* title, const Json& told) {
  const Traffic t = ReadCounters(kTrafficCounters, told);
  const uint64_t ssd =
      t.ssd_data_bytes + t.ssd_parity_bytes + t.ssd_metadata_bytes + t.ssd_repair_bytes;
  const uint64_t md = t.md_equivalent_ssd_bytes;
  fmt::format_to(out, "{}\n", title);
  fmt::format_to(out, "  user       {} writes ({}), {} reads ({}), {} flushes, {} buffer hits\n",
                 t.user_writes, HumanBytes(t.user_bytes_written), t.user_reads,
                 HumanBytes(t.user_bytes_read), t.user_flushes, t.buffer_hits);
  fmt::format_to(out, "  to SSDs    {}: data {}, parity {}, metadata {}, repair {}\n",
                 HumanBytes(ssd), HumanBytes(t.ssd_data_bytes), HumanBytes(t.ssd_parity_bytes),
                 HumanBytes(t.ssd_metadata_bytes), HumanBytes(t.ssd_repair_bytes));
  fmt::format_to(out, "  to logs    chunks {}, headers {}, in {} appends\n",
                 HumanBytes(t.log_chunk_bytes), HumanBytes(t.log_header_bytes), t.log_appends);
  fmt::format_to(
      out, "  stripes    {} written whole; {} log stripes of {} chunks, {} dead without commit\n",
      t.full_stripe_writes, t.log_stripes, t.log_stripe_members, t.log_stripes_dead_early);
  fmt::format_to(out, "  commits    {} of {} stripes, {} read for them; {} checkpoints\n",
                 t.commits, t.committed_stripes, HumanBytes(t.commit_read_bytes), t.checkpoints);
  fmt::format_to(out, "  RAID       by read-modify-write would have written {} to the SSDs{}\n",
                 HumanBytes(md),
                 md == 0 ? ""
                         : fmt::format(" (we wrote {:.1f} % of that)",
                                       100.0 * static_cast<double>(ssd) / static_cast<double>(md)));
}

}  // namespace

std::string HumanBytes(uint64_t bytes) {
  static constexpr std::array<const char*, 6> kUnits = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) {
    return fmt::format("{} B", bytes);
  }
  double value = static_cast<double>(bytes) / 1024.0;
  size_t unit = 0;
  // 1023.95 would be shown as 1024.0.
  while (value >= 1023.95 && unit + 1 < kUnits.size()) {
    value /= 1024.0;
    ++unit;
  }
  return fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string StatusTable(const Json& status) {
  std::string text;
  const Out out(text);
  ArrayLines(out, Part(status, "array"));
  text += DeviceLines(Part(status, "devices"));
  ExposureLines(out, Part(status, "exposure"));
  RemovedLines(out, Part(status, "devices"));
  SpaceLines(out, Part(status, "space"), Part(status, "memory"));
  TrafficLines(out, "traffic since the array was opened", Part(status, "traffic"));
  TrafficLines(out, "traffic since create", Part(status, "lifetime"));
  const Json& recovery = Part(status, "recovery");
  fmt::format_to(out, "recovery took {:.3f} s and replayed {} entries\n", Real(recovery, "seconds"),
                 Number(recovery, "entries_replayed"));
  const Json& rebuild = Part(status, "rebuild");
  if (rebuild.is_object() && !rebuild.empty()) {
    if (Part(rebuild, "eta_seconds").is_null()) {
      fmt::format_to(out, "rebuild {:.1f} %, {} to go, at no pace so far\n",
                     Real(rebuild, "percent"), Bytes(rebuild, "left_bytes"));
    } else {
      fmt::format_to(out, "rebuild {:.1f} %, {} to go at {}/s\n", Real(rebuild, "percent"),
                     RoundSeconds(Real(rebuild, "eta_seconds")),
                     Bytes(rebuild, "bytes_per_second"));
    }
    if (rebuild.contains("lost_bytes")) {
      fmt::format_to(out,
                     "  {} of it cannot be rebuilt: more of their stripes is wrong or missing "
                     "than parity replaces; eplog events names them\n",
                     Bytes(rebuild, "lost_bytes"));
    }
  }
  return text;
}

}  // namespace eplog
