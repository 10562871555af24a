#include "replay/player.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/task_group.h"

namespace eplog {
namespace {

constexpr uint64_t kPrefillBytes = uint64_t{1} << 20;  // at once, about
constexpr size_t kPrefillAtOnce = 8;
constexpr uint64_t kVerifyBytes = uint64_t{1} << 20;
constexpr size_t kMostSamples = 2048;
constexpr uint64_t kOverheadEvery = 1000;  // write requests
constexpr uint64_t kMostWaiting = 4096;

// What a read leaves alone is not what was there by chance.
void Poison(std::span<std::byte> bytes) {
  std::memset(bytes.data(), 0xA5, bytes.size());
}

}  // namespace

Task<Status> Player::Prefill() {
  const uint64_t stripe = target_.stripe_bytes();
  const uint64_t step = std::max<uint64_t>(1, kPrefillBytes / stripe) * stripe;
  TaskGroup group(loop_);
  const auto write = [](Player& player, uint64_t offset, uint64_t length) -> Task<Status> {
    Buffer buffer = player.pool_.Get(length);
    player.content_.Write(offset, buffer.span());
    Task<Status> task = player.target_.Write(offset, buffer.span());
    co_return co_await task;
  };
  for (uint64_t at = 0; at < content_.size_bytes() && !group.failed(); at += step) {
    group.Start(write(*this, at, std::min(step, content_.size_bytes() - at)));
    Task<void> below = group.WaitBelow(kPrefillAtOnce);
    co_await below;
  }
  EPLOG_CO_AWAIT(group.Wait());
  Task<Status> settle = target_.Settle();
  co_return co_await settle;
}

Task<Status> Player::Play(std::function<void(uint64_t)> progress) {
  progress_ = std::move(progress);
  begun_us_ = loop_.NowUs();
  base_slot_bytes_ = target_.state().used_slot_bytes;
  result_.metadata_bytes_before = target_.state().metadata_bytes;
  if (settings_.speed > 0) {
    ++workers_;
    loop_.Spawn(OpenLoop());
  }
  for (uint32_t i = 0; settings_.speed == 0 && i < settings_.queue_depth; ++i) {
    ++workers_;
    loop_.Spawn(Worker());
  }
  while (workers_ != 0 || running_ != 0) {
    co_await changed_.Wait();
  }
  EPLOG_CO_TRY(failure_);
  if (settings_.commit_at_end) {
    EPLOG_CO_AWAIT(target_.Commit());
  }
  Task<Status> flush = target_.FlushAll();
  Status status = co_await flush;
  result_.duration_us = loop_.NowUs() - begun_us_;
  if (result_.share_samples != 0) {
    result_.space_overhead.mean /= static_cast<double>(result_.share_samples);
    result_.pending_share.mean /= static_cast<double>(result_.share_samples);
  }
  co_return status;
}

// The next request, not while a flush or commit has everything for itself. Who completes a period
// is the last before it: which requests it covers depends on no times.
Task<std::optional<Player::Taken>> Player::Take() {
  while (alone_ && failure_.ok()) {
    co_await changed_.Wait();
  }
  if (!failure_.ok() || ended_) {
    co_return std::nullopt;
  }
  auto next = feed_.Next();
  if (!next.ok() || !*next) {
    ended_ = true;
    Stop(next.ok() ? OkStatus() : Status(Fail(std::move(next).error())));
    co_return std::nullopt;
  }
  Taken taken{**next};
  const uint64_t every = settings_.commit_every.value_or(0);
  if (taken.request.op == TraceOp::kWrite && every != 0 && ++taken_writes_ % every == 0) {
    taken.commit = true;
  }
  if (settings_.flush_every != 0 && ++taken_ % settings_.flush_every == 0) {
    taken.flush = true;
  }
  taken.alone = taken.commit || (taken.flush && settings_.speed == 0);
  alone_ = taken.alone;
  ++running_;
  co_return taken;
}

// Closed loop: the next request comes when one has ended.
Task<void> Player::Worker() {
  while (true) {
    Task<std::optional<Taken>> taking = Take();
    const std::optional<Taken> taken = co_await taking;
    if (!taken) {
      break;
    }
    Task<void> send = Send(*taken, loop_.NowUs());
    co_await send;
  }
  --workers_;
  changed_.NotifyAll();
}

// Open loop: requests come at their times, whatever became of those before.
Task<void> Player::OpenLoop() {
  while (true) {
    Task<std::optional<Taken>> taking = Take();
    const std::optional<Taken> taken = co_await taking;
    if (!taken) {
      break;
    }
    const double us = static_cast<double>(taken->request.time_us) / settings_.speed;
    const uint64_t due = begun_us_ + static_cast<uint64_t>(us);
    if (due > loop_.NowUs()) {
      co_await loop_.Sleep(due - loop_.NowUs());
    }
    if (running_ > kMostWaiting) {
      Stop(Fail(ErrorCode::kBusy,
                "more than " + std::to_string(kMostWaiting) + " requests wait " +
                    std::to_string(taken->request.time_us / 1'000'000) +
                    " s after the trace's beginning: it comes faster than these devices can serve "
                    "it; give a lower --speed, or max"));
      --running_;
      break;
    }
    loop_.Spawn(Send(*taken, due));
  }
  --workers_;
  changed_.NotifyAll();
}

Task<void> Player::Send(Taken taken, uint64_t since_us) {
  const TraceRequest& request = taken.request;
  const bool write = request.op == TraceOp::kWrite;
  Task<Status> run = Run(request);
  Status status = co_await run;
  const uint64_t us = loop_.NowUs() - since_us;
  if (request.op == TraceOp::kRead || write) {
    (write ? result_.write_latency_us : result_.read_latency_us).Add(us);
    result_.latency_us.Add(us);
  }
  if (status.ok() && taken.flush) {
    Task<Status> flush = FlushAlone();
    status = co_await flush;
  }
  Stop(std::move(status));
  ++result_.requests;
  result_.write_requests += write ? 1 : 0;
  if (write) {
    Sample();
  }
  if (taken.commit) {
    Task<void> commit = CommitAlone();
    co_await commit;
  }
  alone_ = alone_ && !taken.alone;
  --running_;
  changed_.NotifyAll();
  if (progress_ && result_.requests % 1000 == 0) {
    progress_(result_.requests);
  }
}

Task<Status> Player::Run(TraceRequest request) {
  if (request.op == TraceOp::kFlush) {
    return target_.FlushAll();
  }
  return request.op == TraceOp::kRead ? Read(request) : Write(request);
}

// Earlier requests that overlap, one of both a write, end first.
Task<void> Player::WaitForTurn(Place place) {
  const auto blocked = [&] {
    return std::any_of(in_flight_.begin(), place, [&](const InFlight& other) {
      return (other.writes || place->writes) && other.begin < place->end &&
             place->begin < other.end;
    });
  };
  while (blocked()) {
    co_await changed_.Wait();
  }
}

Task<Status> Player::Write(TraceRequest request) {
  const Place place =
      in_flight_.insert(in_flight_.end(), {request.offset_bytes, request.end_bytes(), true});
  Task<void> turn = WaitForTurn(place);
  co_await turn;
  Status status;
  if (request.op == TraceOp::kTrim) {
    content_.Forget(request.offset_bytes, request.length_bytes);
    Task<Status> trim = target_.Trim(request.offset_bytes, request.length_bytes);
    status = co_await trim;
  } else {
    const Buffer buffer = pool_.Get(request.length_bytes);
    content_.Write(request.offset_bytes, buffer.span());
    Task<Status> write = target_.Write(request.offset_bytes, buffer.span());
    status = co_await write;
  }
  in_flight_.erase(place);
  changed_.NotifyAll();
  EPLOG_CO_TRY(status);
  if (request.fua) {
    Task<Status> flush = target_.Flush(request.offset_bytes, request.length_bytes);
    status = co_await flush;
  }
  co_return status;
}

Task<Status> Player::Read(TraceRequest request) {
  const Place place =
      in_flight_.insert(in_flight_.end(), {request.offset_bytes, request.end_bytes(), false});
  Task<void> turn = WaitForTurn(place);
  co_await turn;
  const Buffer buffer = pool_.Get(request.length_bytes);
  Poison(buffer.span());
  Task<Status> read = target_.Read(request.offset_bytes, buffer.span());
  Status status = co_await read;
  const std::string wrong = status.ok() ? content_.Check(request.offset_bytes, buffer.span()) : "";
  in_flight_.erase(place);
  changed_.NotifyAll();
  EPLOG_CO_TRY(status);
  co_return wrong.empty() ? OkStatus() : Status(Fail(ErrorCode::kCorrupt, wrong));
}

// As a program that calls fsync now and then, and waits for it. At recorded times requests come all
// the same.
Task<Status> Player::FlushAlone() {
  while (settings_.speed == 0 && running_ != 1) {
    co_await changed_.Wait();
  }
  Task<Status> flush = target_.FlushAll();
  co_return co_await flush;
}

// When all that were taken before have ended.
Task<void> Player::CommitAlone() {
  while (running_ != 1) {
    co_await changed_.Wait();
  }
  if (failure_.ok()) {
    Task<Status> commit = target_.Commit();
    Stop(co_await commit);
  }
}

uint64_t Player::WrittenToSsds() const {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < settings_.ssds; ++i) {
    sum += rig_.ssd_counters(i).bytes_written;
  }
  return sum;
}

// Until the end the mean holds the sum, which Play divides.
void Player::AddShare(Spread& spread, uint64_t bytes) const {
  const double share = static_cast<double>(bytes) / static_cast<double>(content_.size_bytes());
  spread.least = result_.share_samples == 0 ? share : std::min(spread.least, share);
  spread.most = std::max(spread.most, share);
  spread.mean += share;
}

void Player::Sample() {
  if (result_.write_requests % kOverheadEvery == 0) {
    const TargetState state = target_.state();
    result_.metadata_bytes_max = std::max(result_.metadata_bytes_max, state.metadata_bytes);
    if (settings_.prefill && base_slot_bytes_ != 0) {
      const uint64_t beyond =
          state.used_slot_bytes - std::min(state.used_slot_bytes, base_slot_bytes_);
      AddShare(result_.space_overhead, beyond);
      AddShare(result_.pending_share, state.pending_bytes);
      ++result_.share_samples;
    }
  }
  if (result_.write_requests % sample_every_ != 0) {
    return;
  }
  result_.samples.push_back({loop_.NowUs() - begun_us_, result_.requests, WrittenToSsds(),
                             target_.state().pending_bytes});
  if (result_.samples.size() == kMostSamples) {
    // Every second one goes, and from now on they come half as often.
    for (size_t i = 0; i < kMostSamples / 2; ++i) {
      result_.samples[i] = result_.samples[2 * i + 1];
    }
    result_.samples.resize(kMostSamples / 2);
    sample_every_ *= 2;
  }
}

void Player::Stop(Status status) {
  if (!status.ok() && failure_.ok()) {
    failure_ = std::move(status);
  }
}

Task<Status> Player::Verify() {
  for (uint64_t at = 0; at < content_.size_bytes(); at += kVerifyBytes) {
    const Buffer buffer = pool_.Get(std::min(kVerifyBytes, content_.size_bytes() - at));
    Poison(buffer.span());
    EPLOG_CO_AWAIT(target_.Read(at, buffer.span()));
    const std::string wrong = content_.Check(at, buffer.span());
    if (!wrong.empty()) {
      co_return Fail(ErrorCode::kCorrupt, wrong);
    }
  }
  co_return OkStatus();
}

}  // namespace eplog
