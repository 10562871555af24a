// The statistics of a trace as a document and as a table: the same facts.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

#include "cli/trace/trace.h"
#include "report/status_json.h"
#include "terminal/console.h"
#include "text/units.h"

namespace eplog::cli {
namespace {

constexpr size_t kMaxVolumesShown = 6;

double Share(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

std::string LayoutName(const StripeLayout& layout) {
  return fmt::format("{}+{}", layout.data_chunks, layout.parity_chunks);
}

Json OpToJson(const OpSummary& op, TraceOp kind, uint64_t chunk_bytes) {
  Json json = {{"requests", op.requests}, {"bytes", op.bytes}};
  if (kind == TraceOp::kWrite) {
    json["fua"] = op.fua;
  }
  if (kind == TraceOp::kRead || kind == TraceOp::kWrite) {
    json["random_share"] = Share(op.random, op.requests);
    json["footprint_bytes"] = op.footprint_chunks * chunk_bytes;
    json["size_bytes"] = {{"min", op.min_bytes},      {"mean", op.mean_bytes()},
                          {"p50", op.Quantile(0.5)},  {"p90", op.Quantile(0.9)},
                          {"p99", op.Quantile(0.99)}, {"max", op.max_bytes}};
  }
  return json;
}

Json LayoutToJson(const LayoutSummary& layout) {
  Json windows = Json::array();
  for (const WindowStripes& window : layout.windows) {
    windows.push_back({{"write_requests", window.window},
                       {"windows", window.complete},
                       {"min", window.min},
                       {"mean", window.mean()},
                       {"max", window.max},
                       {"sum", window.sum},
                       {"partial_window", window.partial}});
  }
  return {{"layout", LayoutName(layout.layout)},
          {"md_ssd_bytes", layout.md_ssd_bytes},
          {"stripe_touches", layout.stripe_touches},
          {"distinct_stripes", std::move(windows)}};
}

Json ReuseToJson(const TraceSummary& summary) {
  Json met = Json::array();
  double sum = 0;
  size_t buckets = 0;
  for (size_t i = 0; i < ReuseDistances::kBuckets; ++i) {
    buckets = summary.reuse.repeated[i] > 0 ? i + 1 : buckets;
  }
  for (size_t i = 0; i < buckets; ++i) {
    sum += summary.reuse.repeated[i];
    met.push_back({{"below_bytes", (uint64_t{1} << i) * summary.chunk_bytes}, {"share", sum}});
  }
  return {{"exact", summary.reuse.exact},
          {"watched_share", summary.reuse.watched_share},
          {"first_touch_share", summary.reuse.first},
          {"repeated", std::move(met)}};
}

void Row(std::string& out, std::string_view name, const std::string& value) {
  fmt::format_to(std::back_inserter(out), "{:<22}{}\n", name, value);
}

std::string VolumesOf(const TraceSource& source) {
  const auto& names = source.volumes();
  std::vector<std::string> shown(
      names.begin(),
      names.begin() + static_cast<std::ptrdiff_t>(std::min(names.size(), kMaxVolumesShown)));
  return fmt::format("{} ({}{})", names.size(), fmt::join(shown, ", "),
                     names.size() > kMaxVolumesShown ? ", ..." : "");
}

void OpRows(const TraceSummary& summary, std::string& out) {
  fmt::format_to(
      std::back_inserter(out), "\n{}\n",
      Paint(Colour::kBold,
            fmt::format("{:<8}{:>12}{:>13}{:>11}{:>9}{:>9}{:>9}{:>10}{:>9}", "", "requests",
                        "bytes", "mean", "p50", "p90", "p99", "max", "random")));
  for (int i = 0; i < kTraceOps; ++i) {
    const auto kind = static_cast<TraceOp>(i);
    const OpSummary& op = summary.ops[static_cast<size_t>(i)];
    if (op.requests == 0) {
      continue;
    }
    const bool data = kind == TraceOp::kRead || kind == TraceOp::kWrite;
    fmt::format_to(std::back_inserter(out), "{:<8}{:>12}{:>13}", TraceOpName(kind), op.requests,
                   kind == TraceOp::kFlush ? "" : HumanBytes(op.bytes));
    if (data) {
      fmt::format_to(std::back_inserter(out), "{:>11.0f}{:>9}{:>9}{:>9}{:>10}{:>8.1f}%",
                     op.mean_bytes(), TypedSize(op.Quantile(0.5)), TypedSize(op.Quantile(0.9)),
                     TypedSize(op.Quantile(0.99)), TypedSize(op.max_bytes),
                     Share(op.random, op.requests) * 100);
    }
    out += '\n';
  }
}

void LayoutRows(const TraceSummary& summary, std::string& out) {
  fmt::format_to(
      std::back_inserter(out), "\n{}\n",
      Paint(Colour::kBold, fmt::format("{:<8}{:>16}{:>29}{:>29}", "layout", "RAID in place",
                                       "stripes a 1,000 writes", "stripes a 10,000 writes")));
  for (const LayoutSummary& layout : summary.layouts) {
    fmt::format_to(std::back_inserter(out), "{:<8}{:>16}", LayoutName(layout.layout),
                   HumanBytes(layout.md_ssd_bytes));
    for (const WindowStripes& window : layout.windows) {
      const std::string text =
          window.complete == 0
              ? fmt::format("{} in less", window.partial)
              : fmt::format("{:.0f} ({} to {})", window.mean(), window.min, window.max);
      fmt::format_to(std::back_inserter(out), "{:>29}", text);
    }
    out += '\n';
  }
}

// What buffers of a few sizes would meet.
std::string ReuseRow(const TraceSummary& summary) {
  std::string out;
  double sum = 0;
  double last = -1;
  for (size_t i = 0; i < ReuseDistances::kBuckets; ++i) {
    sum += summary.reuse.repeated[i];
    const bool shown = i == 0 || (i % 3 == 0 && i < 37);
    if (shown && sum > last + 0.0005) {
      fmt::format_to(std::back_inserter(out), "{}{} {:.1f}%", out.empty() ? "" : ", ",
                     TypedSize((uint64_t{1} << i) * summary.chunk_bytes), sum * 100);
      last = sum;
    }
  }
  return out + (summary.reuse.exact ? "" : " (sampled)");
}

}  // namespace

Json SummaryToJson(const TraceSummary& summary, const TraceSource& source,
                   const std::string& name) {
  Json ops;
  for (int i = 0; i < kTraceOps; ++i) {
    const auto kind = static_cast<TraceOp>(i);
    ops[TraceOpName(kind)] =
        OpToJson(summary.ops[static_cast<size_t>(i)], kind, summary.chunk_bytes);
  }
  Json layouts = Json::array();
  for (const LayoutSummary& layout : summary.layouts) {
    layouts.push_back(LayoutToJson(layout));
  }
  const TraceReport& report = source.report();
  return {
      {"trace", name},
      {"format", source.format()},
      {"requests", summary.requests},
      {"volumes", source.volumes()},
      {"duration_seconds",
       source.has_times() ? Json(static_cast<double>(summary.duration_us) / 1e6) : Json(nullptr)},
      {"operations", std::move(ops)},
      {"chunk_bytes", summary.chunk_bytes},
      {"footprint_bytes", summary.footprint_chunks * summary.chunk_bytes},
      {"begin_bytes", summary.begin_bytes},
      {"end_bytes", summary.end_bytes},
      {"chunk_writes", summary.chunk_writes},
      {"chunk_updates", summary.chunk_updates},
      {"update_share", Share(summary.chunk_updates, summary.chunk_writes)},
      {"layouts", std::move(layouts)},
      {"reuse", ReuseToJson(summary)},
      {"records", {{"bad", report.bad}, {"other", report.other}, {"unordered", report.unordered}}}};
}

std::string SummaryTable(const TraceSummary& summary, const TraceSource& source,
                         const std::string& name) {
  std::string out;
  const double seconds = static_cast<double>(summary.duration_us) / 1e6;
  Row(out, "trace", fmt::format("{} ({})", name, source.format()));
  Row(out, "requests", fmt::format("{}", summary.requests));
  Row(out, "volumes", VolumesOf(source));
  if (!source.has_times()) {
    Row(out, "duration", "unknown: the format has no times");
  } else {
    Row(out, "duration",
        seconds > 0 ? fmt::format("{}, {:.1f} requests a second", HumanSeconds(seconds),
                                  static_cast<double>(summary.requests) / seconds)
                    : "0s");
  }
  const uint64_t fua = summary.ops[static_cast<size_t>(TraceOp::kWrite)].fua;
  if (fua != 0) {
    Row(out, "durable writes (FUA)", fmt::format("{}", fua));
  }
  const auto bytes = [&](uint64_t chunks) { return HumanBytes(chunks * summary.chunk_bytes); };
  Row(out, "footprint",
      fmt::format("{}; read {}, written {}; between {} and {}", bytes(summary.footprint_chunks),
                  bytes(summary.ops[static_cast<size_t>(TraceOp::kRead)].footprint_chunks),
                  bytes(summary.ops[static_cast<size_t>(TraceOp::kWrite)].footprint_chunks),
                  HumanBytes(summary.begin_bytes), HumanBytes(summary.end_bytes)));
  Row(out, "updates",
      fmt::format("{:.1f}% of {} chunk writes ({} chunks)",
                  Share(summary.chunk_updates, summary.chunk_writes) * 100, summary.chunk_writes,
                  TypedSize(summary.chunk_bytes)));
  Row(out, "a buffer would meet", ReuseRow(summary));
  OpRows(summary, out);
  LayoutRows(summary, out);
  out.pop_back();
  return out;
}

}  // namespace eplog::cli
