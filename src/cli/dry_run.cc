#include "cli/dry_run.h"

#include <fmt/format.h>

#include <cstdint>
#include <utility>

#include "host/ask_or_open.h"
#include "host/plan_change.h"
#include "host/session.h"
#include "report/status_json.h"

namespace eplog::cli {
namespace {

uint64_t Number(const Json& standing, const char* key) {
  return standing.value(key, uint64_t{0});
}

std::string Counted(uint64_t count, const char* what) {
  const char* plural = std::string_view(what).ends_with('s') ? "es" : "s";
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : plural);
}

std::string Survives(const Json& standing) {
  const uint64_t ssds = Number(standing, "further_ssd_losses_survived");
  const uint64_t logs = Number(standing, "further_log_losses_survived");
  if (ssds == 0 && logs == 0) {
    return "no further loss";
  }
  return ssds == logs ? fmt::format("any {}", Counted(ssds, "further loss"))
                      : fmt::format("{} or {}", Counted(ssds, "SSD"), Counted(logs, "log device"));
}

std::string Space(const Json& standing) {
  return fmt::format("{} allocated, {} free", HumanBytes(Number(standing, "allocated_bytes")),
                     HumanBytes(Number(standing, "free_bytes")));
}

std::string Pending(uint64_t before, uint64_t after) {
  const char* what = "that parity does not cover";
  return before == after ? fmt::format("{} {}, as now", Counted(before, "chunk"), what)
                         : fmt::format("{} -> {} {}", before, Counted(after, "chunk"), what);
}

std::string Change(const std::string& before, const std::string& after) {
  return before == after ? before + ", as now" : fmt::format("{} -> {}", before, after);
}

}  // namespace

void AddDryRun(Parser verb, bool& dry_run, bool& json) {
  Option option = verb.AddFlag("--dry-run", dry_run,
                               "check everything and print what would happen; change nothing");
  verb.AddFlag("--json", json, "with --dry-run: print one JSON document").Needs(option);
}

Result<Json> PlanChange(std::string_view verb, const ArrayFile& file, Json request) {
  request["verb"] = "plan";
  return AskOrLook(verb, file, request, [&request](Session& session) {
    return session.Run(PlanWithDevices(session, session.array(), request));
  });
}

std::string ChangePlanText(const std::string& headline, const Json& plan,
                           const std::vector<PlanNote>& notes) {
  const Json& before = plan.at("before");
  const Json& after = plan.at("after");
  std::vector<PlanNote> lines = {
      {"state", Change(before.value("state", ""), after.value("state", ""))},
      {"survives", Change(Survives(before), Survives(after))},
      {"pending", Pending(Number(before, "pending_chunks"), Number(after, "pending_chunks"))},
      {"space", Change(Space(before), Space(after))}};
  lines.insert(lines.end(), notes.begin(), notes.end());
  std::string text = headline + ", changing nothing now:";
  for (const PlanNote& line : lines) {
    text += fmt::format("\n  {:<10} {}", line.label, line.text);
  }
  return text;
}

}  // namespace eplog::cli
