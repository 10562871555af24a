#include "tests/fuzz/trace_targets.h"

#include <stdlib.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "base/check.h"
#include "base/random.h"
#include "trace/byte_source.h"
#include "trace/compact.h"
#include "trace/open.h"
#include "trace/profile.h"
#include "trace/writer.h"

namespace eplog::fuzz {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::array<TraceFormat, 10> kFormats = {
    TraceFormat::kDetect, TraceFormat::kMsr,      TraceFormat::kSpc,    TraceFormat::kFio2,
    TraceFormat::kFio3,   TraceFormat::kBlkparse, TraceFormat::kVscsi1, TraceFormat::kVscsi2,
    TraceFormat::kNbd,    TraceFormat::kColumns};

std::string_view TextOf(std::span<const std::byte> in) {
  return {reinterpret_cast<const char*>(in.data()), in.size()};
}

Bytes BytesOf(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

Outcome OutcomeOf(const Error& error) {
  EPLOG_CHECK(!error.message.empty() && error.message.size() < 2000 &&
                  error.message.find('\n') == std::string::npos,
              "a refusal is one line");
  EPLOG_CHECK(error.code == ErrorCode::kCorrupt || error.code == ErrorCode::kUnsupported ||
                  error.code == ErrorCode::kInvalidArgument,
              "a refusal names what is wrong with the input");
  return error.code == ErrorCode::kUnsupported ? Outcome::kUnsupported : Outcome::kCorrupt;
}

// What request.h promises of every request.
void CheckRequest(const TraceRequest& request, const TraceRequest* before,
                  const TraceSource& source, const TraceOptions& options) {
  EPLOG_CHECK(request.volume < source.volumes().size(), "a volume has a name");
  EPLOG_CHECK(before == nullptr || before->time_us <= request.time_us, "time never falls");
  if (request.op == TraceOp::kFlush) {
    EPLOG_CHECK(request.offset_bytes == 0 && request.length_bytes == 0, "a flush has no place");
    return;
  }
  EPLOG_CHECK(request.length_bytes >= 1, "a request has bytes");
  EPLOG_CHECK(request.op == TraceOp::kTrim || request.length_bytes <= kMaxTraceRequestBytes,
              "a request is no larger than 1 GiB");
  EPLOG_CHECK(request.offset_bytes <= options.end_bytes &&
                  request.length_bytes <= options.end_bytes - request.offset_bytes,
              "a request ends in its volume");
  EPLOG_CHECK(!request.fua || request.op == TraceOp::kWrite, "only writes are FUA");
}

// Requests written as a fio iolog come back.
void CheckComesBack(const std::vector<TraceRequest>& requests,
                    const std::vector<std::string>& volumes) {
  const auto writer = MakeTraceWriter(TraceFormat::kFio3, ColumnLayout{});
  std::string text;
  for (const TraceRequest& request : requests) {
    EPLOG_CHECK(writer->Add(request, volumes, text).ok(), "a request can be written");
  }
  writer->End(text);
  auto again = OpenTraceBytes(text, TraceOptions{});
  EPLOG_CHECK(again.ok(), "what was written can be opened");
  std::vector<TraceRequest> batch(requests.size() + 1);
  size_t size = 0;
  for (;;) {
    const auto count = (*again)->Read(std::span(batch).subspan(size));
    EPLOG_CHECK(count.ok(), "what was written can be read");
    if (*count == 0) {
      break;
    }
    size += *count;
  }
  EPLOG_CHECK(size == requests.size(), "all of what was written can be read");
  for (size_t i = 0; i < size; ++i) {
    EPLOG_CHECK(batch[i].op == requests[i].op &&
                    batch[i].offset_bytes == requests[i].offset_bytes &&
                    batch[i].length_bytes == requests[i].length_bytes &&
                    batch[i].time_us == requests[i].time_us - requests[0].time_us,
                "what was written is read as it was");
  }
}

// Compaction moves nothing out of its span.
void CheckCompacts(const std::vector<TraceRequest>& requests) {
  Compactor compactor(true);
  for (const TraceRequest& request : requests) {
    EPLOG_CHECK(compactor.Note(request).ok(), "a small trace can be compacted");
  }
  compactor.Seal();
  for (const TraceRequest& request : requests) {
    const auto moved = compactor.Map(request);
    EPLOG_CHECK(
        moved ? moved->end_bytes() <= compactor.span_bytes(0) : request.op == TraceOp::kTrim,
        "a request stays in the compacted span");
  }
}

Outcome ReadTrace(std::string_view text, const TraceOptions& options) {
  auto source = OpenTraceBytes(text, options);
  if (!source.ok()) {
    return OutcomeOf(source.error());
  }
  std::vector<TraceRequest> requests;
  std::vector<TraceRequest> batch(16);
  for (;;) {
    const auto count = (*source)->Read(batch);
    if (!count.ok()) {
      return OutcomeOf(count.error());
    }
    if (*count == 0) {
      break;
    }
    EPLOG_CHECK(*count <= batch.size(), "no more than there is room for");
    for (size_t i = 0; i < *count; ++i) {
      CheckRequest(batch[i], requests.empty() ? nullptr : &requests.back(), **source, options);
      requests.push_back(batch[i]);
    }
  }
  const TraceReport& report = (*source)->report();
  EPLOG_CHECK(report.requests == requests.size() && report.requests + report.bad == report.records,
              "every record is accounted for");
  EPLOG_CHECK(report.first_bad.size() == std::min<uint64_t>(report.bad, kMaxBadKept),
              "the first bad records are kept");
  if (!requests.empty()) {
    CheckComesBack(requests, (*source)->volumes());
    CheckCompacts(requests);
  }
  return Outcome::kAccepted;
}

// Any trace of a few requests that `format` can say.
std::string AnyTrace(TraceFormat format, const ColumnLayout& layout, uint64_t seed) {
  Random random(seed);
  const auto writer = MakeTraceWriter(format, layout);
  std::string text;
  TraceRequest request;
  for (int i = 0; i < 12; ++i) {
    request.time_us += random.Below(2'000'000);
    request.op = static_cast<TraceOp>(random.Below(kTraceOps));
    const bool flush = request.op == TraceOp::kFlush;
    request.offset_bytes = flush ? 0 : random.Below(1 << 20) * 512;
    request.length_bytes = flush ? 0 : random.Between(1, 64) * 512;
    EPLOG_CHECK(writer->Add(request, {"disk.0"}, text).ok(), "a sample can be written");
  }
  writer->End(text);
  return text;
}

constexpr const char* kLayouts[] = {"time_ms,disk,lba512,pages4k,op:0=w",
                                    "time_s,op,offset,size",
                                    "filetime,disk,op:W=w;R=r;F=f;T=t,offset,size",
                                    "lba512,sectors512",
                                    "skip,time_ns,offset,size,op",
                                    "time_us,disk,offset,size,op",
                                    "op,lba4k,pages4k,-,time_ms",
                                    "size,offset,disk,time_us,op:1=r"};

constexpr char kProfile[] =
    "name = \"p\"\nseed = 3\nwrites = 50\nworking_set = 1_048_576\nmean_interval_us = 100\n"
    "flush_every = 10\n\n[[stream]]\nkind = \"zipf\"\nweight = 3\nsizes = [[4096, 3], [8192, 1]]\n"
    "objects = 16\nobject_bytes = 16384\nskew = 0.8\ndrift_every = 5\nread_percent = 20\n\n"
    "[[stream]]\nkind = \"sequential\"\nop = \"write\"\nsizes = [[512, 1]]\nalign = 512\nruns = 2\n"
    "run_bytes = 65536\nscattered = true\nfrom = 524288\nto = 1048576\nfua = true\n";

}  // namespace

Outcome RunTrace(std::span<const std::byte> in) {
  const unsigned control = in.empty() ? 0 : static_cast<unsigned>(in[0]);
  TraceOptions options;
  options.format = kFormats[(control & 15) % kFormats.size()];
  options.columns = *ParseColumnLayout(kLayouts[0]);
  options.unordered = (control & 16) != 0;
  options.max_bad_per_million = (control & 32) != 0 ? 1'000'000 : 10'000;
  options.end_bytes = (control & 64) != 0 ? uint64_t{1} << 30 : kMaxTraceOffsetBytes;
  return ReadTrace(TextOf(in.empty() ? in : in.subspan(1)), options);
}

Bytes SeedTrace(uint64_t seed) {
  const TraceFormat format = kFormats[1 + seed % (kFormats.size() - 2)];
  // Half of them find out the format by themselves.
  const auto control = static_cast<char>(seed % 2 == 0 ? 32 : 1 + seed % (kFormats.size() - 2));
  return BytesOf(control + AnyTrace(format, ColumnLayout{}, seed));
}

Outcome RunColumns(std::span<const std::byte> in) {
  const std::string_view text = TextOf(in);
  const size_t end = std::min(text.find('\n'), text.size());
  const auto layout = ParseColumnLayout(text.substr(0, end));
  if (!layout.ok()) {
    return OutcomeOf(layout.error());
  }
  TraceOptions options;
  options.format = TraceFormat::kColumns;
  options.columns = *layout;
  options.max_bad_per_million = 200'000;
  return ReadTrace(text.substr(std::min(end + 1, text.size())), options);
}

Bytes SeedColumns(uint64_t seed) {
  const std::string layout = kLayouts[seed % std::size(kLayouts)];
  return BytesOf(layout + "\n" + AnyTrace(TraceFormat::kColumns, *ParseColumnLayout(layout), seed));
}

Outcome RunPackedTrace(std::span<const std::byte> in) {
  return ReadTrace(TextOf(in), TraceOptions{});
}

Bytes SeedPackedTrace(uint64_t seed) {
  constexpr std::array<const char*, 3> kEndings = {".gz", ".xz", ".zst"};
  std::string name = (std::filesystem::temp_directory_path() / "eplog-seed-XXXXXX").string();
  EPLOG_CHECK(::mkdtemp(name.data()) != nullptr, "there is room for a seed");
  const std::string path = name + "/trace" + kEndings[seed % kEndings.size()];
  auto sink = OpenByteSink(path, false);
  EPLOG_CHECK(sink.ok() &&
                  (*sink)->Write(AnyTrace(TraceFormat::kFio3, ColumnLayout{}, seed)).ok() &&
                  (*sink)->Close().ok(),
              "a seed can be packed");
  std::ifstream packed(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(packed), std::istreambuf_iterator<char>()};
  std::filesystem::remove_all(name);
  return BytesOf(text);
}

Outcome RunProfile(std::span<const std::byte> in) {
  auto profile = ParseProfile(TextOf(in), "profile");
  if (!profile.ok()) {
    return OutcomeOf(profile.error());
  }
  // Large tables are sane, but not for a fuzzer.
  for (const ProfileStream& stream : profile->streams) {
    if (stream.objects > 10'000) {
      return Outcome::kAccepted;
    }
  }
  TraceOptions options;
  options.end_bytes = profile->working_set_bytes;
  const auto source = MakeGenerator(*profile);
  std::vector<TraceRequest> batch(100);
  const auto count = source->Read(batch);
  EPLOG_CHECK(count.ok() && *count != 0, "a profile makes requests");
  for (size_t i = 0; i < *count; ++i) {
    CheckRequest(batch[i], i == 0 ? nullptr : &batch[i - 1], *source, options);
  }
  return Outcome::kAccepted;
}

Bytes SeedProfile(uint64_t seed) {
  const auto names = BuiltInProfiles();
  return BytesOf(seed < names.size() && seed % 2 == 1 ? *BuiltInProfile(names[seed]) : kProfile);
}

}  // namespace eplog::fuzz
