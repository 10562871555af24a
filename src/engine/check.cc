// Array::Check and Array::Scrub: the same reading, of an array at rest or at work.
#include "engine/array_impl.h"
#include "engine/metadata_scrubber.h"
#include "engine/scrubber.h"

namespace eplog {

Task<Result<CheckReport>> ArrayImpl::Check(Progress progress) {
  Status status = Readable();
  EPLOG_CO_TRY(status);
  const Request request(*this);
  Findings findings;
  Scrubber scrubber(core_, reader_, appender_, nullptr, findings);
  scrubber.CheckReferences();
  Task<Status> running =
      scrubber.Run({.heal = false, .yield = false, .closing = &closing_}, progress);
  status = co_await running;
  EPLOG_CO_TRY(status);
  Task<Status> metadata = ScrubMetadata(findings, false);
  status = co_await metadata;
  EPLOG_CO_TRY(status);
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
  Scrubber scrubber(core_, reader_, appender_, heal ? &healer_ : nullptr, findings);
  Task<Status> running =
      scrubber.Run({.heal = heal, .yield = true, .closing = &closing_}, progress);
  status = co_await running;
  if (status.ok()) {
    Task<Status> metadata = ScrubMetadata(findings, heal);
    status = co_await metadata;
  }
  scrubbing_ = false;
  EPLOG_CO_TRY(status);
  core_.Tell(EventKind::kScrubFinished, "",
             "everything was read: " + std::to_string(findings.report.problems_found) +
                 " problems, " + std::to_string(findings.report.healed) + " copies written anew");
  co_return std::move(findings.report);
}

Task<Status> ArrayImpl::ScrubMetadata(Findings& findings, bool heal) {
  MetadataScrubber scrubber(core_, {flusher_, superblocks_, checkpointer_}, findings);
  const bool crashed = core_.options.read_only && entries_replayed_ != 0;
  Task<Status> running =
      scrubber.Run({.heal = heal, .superblocks = !crashed, .closing = &closing_});
  co_return co_await running;
}

}  // namespace eplog
