// Array::Check and Array::Scrub: the same reading, of an array at rest or at work.
#include "engine/array_impl.h"
#include "engine/repair/metadata_scrubber.h"
#include "engine/repair/scrubber.h"

namespace eplog {

Task<Result<CheckReport>> ArrayImpl::Check(Progress progress) {
  Status status = Readable();
  EPLOG_CO_TRY(status);
  const Request request(*this);
  Findings findings;
  Scrubber scrubber(core_, reader_, appender_, buffered_, nullptr, findings);
  scrubber.CheckReferences();
  Scrubber::Options options;
  options.yield = false;
  options.closing = &closing_;
  EPLOG_CO_AWAIT(scrubber.Run(std::move(options), progress));
  Task<Result<bool>> metadata = ScrubMetadata(findings, false);
  Result<bool> all_metadata = co_await metadata;
  EPLOG_CO_TRY(all_metadata);
  co_return std::move(findings.report);
}

Task<Result<CheckReport>> ArrayImpl::Scrub(bool heal, Progress progress) {
  Status status = heal ? Writable() : Readable();
  EPLOG_CO_TRY(status);
  const Request request(*this);
  if (scrubbing_) {
    co_return Fail(ErrorCode::kBusy, "the array is being scrubbed already");
  }
  scrubbing_ = true;
  Findings findings;
  Task<Status> running = ScrubAll(findings, heal, progress);
  status = co_await running;
  scrubbing_ = false;
  EPLOG_CO_TRY(status);
  const CheckReport& report = findings.report;
  const std::string before = report.problems_found_before == 0
                                 ? ""
                                 : " (" + std::to_string(report.problems_found_before) +
                                       " of them before it was cut short)";
  core_.Tell(EventKind::kScrubFinished, "",
             "everything was read: " + std::to_string(report.problems_found) + " problems" +
                 before + ", " + std::to_string(report.healed) + " copies written anew");
  co_return std::move(findings.report);
}

// Goes on where an earlier one of the same kind did not end.
Task<Status> ArrayImpl::ScrubAll(Findings& findings, bool heal, const Progress& progress) {
  const ScrubMarkKeeper& keeper = core_.options.scrub_mark;
  CheckReport& report = findings.report;
  if (const auto mark = keeper.load ? keeper.load() : std::nullopt;
      mark && mark->heal == heal && mark->next_stripe < core_.geometry.stripes) {
    report.first_stripe = mark->next_stripe;
    report.problems_found = report.problems_found_before = mark->problems_found;
    report.healed = mark->healed;
    report.lost = mark->lost;
  }
  Scrubber::Options options;
  options.heal = heal;
  options.closing = &closing_;
  options.first_stripe = static_cast<uint32_t>(report.first_stripe);
  if (keeper.save) {
    options.mark = [&](uint32_t next, uint64_t problems_before, uint64_t lost_before) {
      keeper.save(ScrubMark{heal, next, problems_before, report.healed, lost_before});
    };
  }
  bool left_something = options.first_stripe != 0;
  if (heal) {
    healer_.BeginScrub();
  }
  Task<Status> running = ScrubParts(findings, std::move(options), progress, left_something);
  Status status = co_await running;
  if (heal) {
    Task<void> ending = healer_.EndScrub(status.ok() && !left_something);
    co_await ending;
  }
  EPLOG_CO_TRY(status);
  if (keeper.save) {
    keeper.save(std::nullopt);
  }
  co_return OkStatus();
}

// The metadata comes last: until then what was met wrong of it is not healed.
Task<Status> ArrayImpl::ScrubParts(Findings& findings, Scrubber::Options options,
                                   const Progress& progress, bool& left_something) {
  const bool heal = options.heal;
  Scrubber scrubber(core_, reader_, appender_, buffered_, heal ? &healer_ : nullptr, findings);
  EPLOG_CO_AWAIT(scrubber.Run(std::move(options), progress));
  Task<Result<bool>> metadata = ScrubMetadata(findings, heal);
  Result<bool> all_metadata = co_await metadata;
  EPLOG_CO_TRY(all_metadata);
  left_something = left_something || scrubber.left_something() || !*all_metadata;
  co_return OkStatus();
}

Task<Result<bool>> ArrayImpl::ScrubMetadata(Findings& findings, bool heal) {
  MetadataScrubber scrubber(core_, {flusher_, superblocks_, checkpointer_}, findings);
  const Superblock& newest = superblocks_.current();
  const bool crashed =
      core_.options.read_only && (entries_replayed_ != 0 || newest.epoch != newest.base);
  EPLOG_CO_AWAIT(scrubber.Run({.heal = heal, .superblocks = !crashed, .closing = &closing_}));
  co_return scrubber.read_all();
}

}  // namespace eplog
