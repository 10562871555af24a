#include "engine/scrubber.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "engine/chunk_place.h"
#include "runtime/task_group.h"

namespace eplog {
namespace {

constexpr uint64_t kBytesAtOnce = uint64_t{1} << 20;  // of each SSD
constexpr uint64_t kBytesBesideOthers = uint64_t{32} << 10;
constexpr size_t kBatchesAtOnce = 4;
constexpr uint64_t kMarkUs = 10'000'000;
constexpr size_t kLogStripesAtOnce = 16;
constexpr uint64_t kRecentUs = 100'000;  // a request so long ago counts as work of others

}  // namespace

Finding Scrubber::Describe(StripeIndex stripe, uint32_t index, std::string what) const {
  const Geometry& g = core_.geometry;
  Finding finding;
  finding.device = g.DeviceName(g.SsdOf(stripe, index));
  const auto place = index < g.k() ? PlaceOf(*core_.state, g.Chunk(stripe, index)) : std::nullopt;
  if (place) {
    finding.volume = place->volume;
    finding.offset_bytes = place->offset_bytes;
    finding.what = std::move(what);
  } else {
    finding.what = (index < g.k() ? "data of stripe " : "parity of stripe ") +
                   std::to_string(stripe.value) + ": " + what;
  }
  return finding;
}

void Scrubber::CheckReferences() {
  const Geometry& g = core_.geometry;
  const auto problem = [this](std::string what) {
    Finding finding;
    finding.what = std::move(what);
    findings_.Add(std::move(finding));
  };
  std::vector<std::vector<bool>> seen(g.n, std::vector<bool>(g.slots, false));
  core_.state->ForEachSlot([&](DeviceIndex ssd, SlotIndex slot) {
    const std::string name = g.DeviceName(ssd) + " slot " + std::to_string(slot.value);
    if (slot.value >= g.slots || seen[ssd.value][slot.value]) {
      problem(name + " is referenced twice or does not exist");
      return;
    }
    seen[ssd.value][slot.value] = true;
    if (!core_.space.IsUsed(ssd, slot)) {
      problem(name + " is referenced and free");
    }
  });
  for (uint32_t s = 0; s < g.stripes; ++s) {
    const bool owned =
        core_.state->volumes.OwnerOf(ExtentIndex(s / g.extent_stripes)).volume.value != 0;
    if (!owned && !core_.state->RowIsZero(StripeIndex(s))) {
      problem("stripe " + std::to_string(s) + " has content and belongs to no volume");
    }
  }
}

bool Scrubber::Busy() const {
  return options_.yield && core_.last_request_us + kRecentUs > core_.loop.NowUs();
}

Task<void> Scrubber::Breathe(uint64_t since_us) {
  const uint64_t now = core_.loop.NowUs();
  if (Busy()) {
    co_await core_.loop.Sleep(now - since_us);
  } else {
    co_await core_.loop.Yield();
  }
}

void Scrubber::Tell(uint64_t done) const {
  if (*progress_) {
    (*progress_)(done, total_);
  }
}

Task<Status> Scrubber::Run(Options options, const Progress& progress) {
  options_ = std::move(options);
  progress_ = &progress;
  Status status = MayGoOn();
  EPLOG_CO_TRY(status);
  std::vector<Span> live;
  core_.state->pending.ForEachLive([&](LogStripeId id) {
    live.push_back({id, core_.state->pending.SequenceOf(id)});
    return true;
  });
  log_stripes_ = live.size();
  total_ = core_.geometry.stripes + log_stripes_;
  TaskGroup group(core_.loop);
  for (size_t i = 0; i < live.size() && !group.failed() && MayGoOn().ok(); ++i) {
    Task<void> below = group.WaitBelow(Busy() ? 1 : kLogStripesAtOnce);
    co_await below;
    group.Start(ScrubLogStripe(live[i]));
    if (i % 1024 == 0) {
      Tell(i);
      co_await core_.loop.Yield();
    }
  }
  Task<Status> all = group.Wait();
  status = co_await all;
  EPLOG_CO_TRY(status);
  Task<Status> rows = ScrubRows();
  status = co_await rows;
  EPLOG_CO_TRY(status);
  status = MayGoOn();
  EPLOG_CO_TRY(status);
  Tell(total_);
  co_return OkStatus();
}

Task<Status> Scrubber::ScrubRows() {
  const Geometry& g = core_.geometry;
  TaskGroup group(core_.loop);
  std::vector<StripeIndex> batch;
  uint64_t since = core_.loop.NowUs();
  uint64_t marked_us = since;
  for (uint32_t s = options_.first_stripe; s < g.stripes && !group.failed() && MayGoOn().ok();
       ++s) {
    if (batch.empty() && options_.mark && core_.loop.NowUs() >= marked_us + kMarkUs) {
      Task<Status> before = group.Wait();
      Status status = co_await before;
      EPLOG_CO_TRY(status);
      status = MayGoOn();  // then some of these were not read
      EPLOG_CO_TRY(status);
      options_.mark(s, report_.problems_found - left_in_log_);
      marked_us = core_.loop.NowUs();
    }
    if (!core_.state->RowIsZero(StripeIndex(s))) {
      batch.push_back(StripeIndex(s));
    }
    const uint64_t bytes = Busy() ? kBytesBesideOthers : kBytesAtOnce;
    if (batch.size() < std::max<uint64_t>(1, bytes / g.chunk_bytes)) {
      continue;
    }
    group.Start(ScrubBatch(std::exchange(batch, {})));
    Task<void> below = group.WaitBelow(Busy() ? 1 : kBatchesAtOnce);
    co_await below;
    Task<void> breathe = Breathe(since);
    co_await breathe;
    since = core_.loop.NowUs();
    Tell(log_stripes_ + s);
  }
  if (!batch.empty()) {
    group.Start(ScrubBatch(std::move(batch)));
  }
  Task<Status> all = group.Wait();
  co_return co_await all;
}

Task<Status> Scrubber::ScrubBatch(std::vector<StripeIndex> stripes) {
  std::vector<Wrong> wrong;
  Task<void> checking = CheckBatch(std::move(stripes), wrong);
  co_await checking;
  // With nothing pinned: who heals waits his turn for room, and slots that others wait for may be
  // the ones that were being read.
  for (Wrong& row : wrong) {
    if (options_.heal && MayGoOn().ok()) {
      Task<Status> healing = HealStripe(row.stripe, std::move(row.findings));
      Status status = co_await healing;
      EPLOG_CO_TRY(status);
    }
  }
  co_return OkStatus();
}

// The words of one instant, pinned: no lock is needed to compare what they name.
Task<void> Scrubber::CheckBatch(std::vector<StripeIndex> stripes, std::vector<Wrong>& wrong) {
  const uint64_t states = core_.states;
  RowBatch batch(core_, reader_, stripes.size());
  for (const StripeIndex stripe : stripes) {
    batch.Add(stripe);
  }
  Task<void> reading = batch.ReadAll();
  co_await reading;
  if (states != core_.states) {
    // What was read may be of another device than the one that was meant: again.
    Task<void> again = CheckBatch(std::move(stripes), wrong);
    co_await again;
    co_return;
  }
  for (size_t at = 0; at < batch.size(); ++at) {
    Wrong row{batch.row(at).stripe, {}};
    CheckRow(batch, at, row.findings);
    if (!row.findings.empty()) {
      wrong.push_back(std::move(row));
    }
  }
}

void Scrubber::CheckRow(RowBatch& batch, size_t at, std::vector<size_t>& findings) {
  const RowBatch::Row& row = batch.row(at);
  const uint64_t wrong_parity = batch.WrongParity(at);
  batch.CountWrong(at, wrong_parity);
  ++report_.rows_checked;
  report_.chunks_checked += static_cast<uint64_t>(std::popcount(row.valid | row.bad));
  report_.parity_checked += static_cast<uint64_t>(std::popcount(row.valid >> core_.geometry.k()));
  for (uint64_t mask = row.bad | wrong_parity; mask != 0; mask &= mask - 1) {
    const auto index = static_cast<uint32_t>(std::countr_zero(mask));
    if (IsBeingVerified(core_.geometry.SsdOf(row.stripe, index))) {
      continue;
    }
    const bool parity = (wrong_parity >> index & 1) != 0;
    findings.push_back(findings_.Add(
        Describe(row.stripe, index,
                 parity ? "does not match the data" : "is unreadable, or its checksum is wrong")));
  }
}

Task<Status> Scrubber::HealStripe(StripeIndex stripe, std::vector<size_t> findings) {
  Task<Result<Healer::Outcome>> healing = healer_->Heal(stripe);
  const Result<Healer::Outcome> outcome = co_await healing;
  if (!outcome.ok()) {
    const Error& error = outcome.error();
    Status running = MayGoOn();
    EPLOG_CO_TRY(running);
    static_cast<void>(error);  // no room, or devices changed: it stays as found
    left_in_rows_ += findings.size();
    co_return OkStatus();
  }
  report_.healed += outcome->healed;
  report_.lost += outcome->lost;
  left_in_rows_ += outcome->lost;
  for (const size_t at : findings) {
    findings_.SetOutcome(at,
                         outcome->lost == 0 ? Finding::Outcome::kHealed : Finding::Outcome::kLost);
  }
  co_return OkStatus();
}

Task<Status> Scrubber::ScrubLogStripe(Span stripe) {
  std::vector<size_t> findings;
  Task<void> checking = CheckLogStripe(stripe, findings);
  co_await checking;
  bool gone = false;
  if (!findings.empty() && options_.heal) {
    // With nothing pinned: making room for a commit may need the log.
    Task<Status> retiring = healer_->Retire(stripe.id, stripe.sequence);
    const Status retired = co_await retiring;
    gone = !core_.state->pending.IsLive(stripe.id, stripe.sequence);
  }
  (gone ? report_.healed : left_in_log_) += findings.size();
  for (const size_t at : findings) {
    if (gone) {
      findings_.SetOutcome(at, Finding::Outcome::kHealed);
    }
  }
  co_return MayGoOn();
}

Task<void> Scrubber::CheckLogStripe(Span stripe, std::vector<size_t>& findings) {
  const Geometry& g = core_.geometry;
  if (!core_.state->pending.IsLive(stripe.id, stripe.sequence)) {
    co_return;  // the array is at work, and this one has died since
  }
  const LogStripeView view = core_.state->pending.View(stripe.id);
  if (view.zeros) {
    co_return;  // trimmed chunks: nothing on any device
  }
  ++report_.log_stripes_checked;
  // Whatever happens to it meanwhile, what it is made of stays where it is.
  Pins pins(core_);
  for (const LogStripeMember& member : view.members) {
    pins.Add(g.SsdOf(member.chunk), member.word);
  }
  const Appender::LogPin log_pin(appender_, view.place);
  std::vector<Buffer> buffers;
  std::array<const std::byte*, kMaxSsds> content{};
  bool all = true;
  for (size_t i = 0; i < view.members.size(); ++i) {
    const LogStripeMember& member = view.members[i];
    const DeviceIndex ssd = g.SsdOf(member.chunk);
    buffers.push_back(core_.pool.Get(g.chunk_bytes));
    content[i] = buffers[i].data();
    Task<Status> read = reader_.ReadSlot(ssd, member.word, member.crc, buffers[i].span());
    const Status status = co_await read;
    const bool there = !member.word.is_absent() && core_.members.live(ssd) && !IsBeingVerified(ssd);
    report_.chunks_checked += there ? 1 : 0;
    all = all && status.ok();
    if (!status.ok() && there) {
      findings.push_back(
          findings_.Add(Describe(g.StripeOf(member.chunk), g.IndexInStripe(member.chunk),
                                 "its newest version: " + status.error().ToString())));
    }
  }
  std::array<std::byte*, kMaxParity> parity{};
  const Buffer computed = core_.pool.Get(size_t{g.m} * g.chunk_bytes);
  for (uint32_t j = 0; j < g.m; ++j) {
    parity[j] = computed.data() + size_t{j} * g.chunk_bytes;
  }
  core_.code.Encode(std::span(content).first(view.members.size()), std::span(parity).first(g.m),
                    g.chunk_bytes);
  const Buffer stored = core_.pool.Get(g.chunk_bytes);
  for (uint32_t j = 0; j < g.m; ++j) {
    // One that joined lacks what was logged before, until that is committed.
    const bool joining = (core_.joining >> g.LogDevice(j).value & 1) != 0;
    if (!core_.members.live(g.LogDevice(j)) || joining) {
      continue;
    }
    ++report_.parity_checked;
    Task<Status> reading = reader_.ReadLogChunk(j, view.place, view.log_crcs[j], stored.span());
    const Status status = co_await reading;
    const bool differs =
        status.ok() && all && std::memcmp(stored.data(), parity[j], g.chunk_bytes) != 0;
    if ((!status.ok() && core_.members.live(g.LogDevice(j))) || differs) {
      if (differs) {
        core_.members.CountCorrupt(
            g.LogDevice(j));  // its checksum is right, and nobody else says so
      }
      Finding finding;
      finding.device = g.DeviceName(g.LogDevice(j));
      finding.what = "log chunk at place " + std::to_string(view.place) + ": " +
                     (differs ? "does not match its members" : status.error().ToString());
      findings.push_back(findings_.Add(std::move(finding)));
    }
  }
}

}  // namespace eplog
