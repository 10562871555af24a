// Array::Check and Array::Scrub: the same reading, of an array at rest or at work.
#include "engine/array_impl.h"
#include "engine/scrubber.h"

namespace eplog {

Task<Result<CheckReport>> ArrayImpl::Check(Progress progress) {
  Status status = Readable();
  EPLOG_CO_TRY(status);
  const Request request(*this);
  Scrubber scrubber(core_, reader_, appender_, nullptr);
  scrubber.CheckReferences();
  Task<Status> running =
      scrubber.Run({.heal = false, .yield = false, .closing = &closing_}, progress);
  status = co_await running;
  EPLOG_CO_TRY(status);
  co_return std::move(scrubber.report);
}

Task<Result<CheckReport>> ArrayImpl::Scrub(bool heal, Progress progress) {
  Status status = heal ? Writable() : Readable();
  EPLOG_CO_TRY(status);
  const Request request(*this);
  if (scrubbing_) {
    co_return Fail(ErrorCode::kBusy, "the array is being scrubbed already");
  }
  scrubbing_ = true;
  Scrubber scrubber(core_, reader_, appender_, heal ? &healer_ : nullptr);
  Task<Status> running =
      scrubber.Run({.heal = heal, .yield = true, .closing = &closing_}, progress);
  status = co_await running;
  scrubbing_ = false;
  EPLOG_CO_TRY(status);
  core_.Tell(EventKind::kScrubFinished, "",
             "everything was read: " + std::to_string(scrubber.report.problems_found) +
                 " problems, " + std::to_string(scrubber.report.healed) + " chunks written anew");
  co_return std::move(scrubber.report);
}

}  // namespace eplog
