#include "engine/repair/scrubber.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <utility>

#include "engine/read/chunk_place.h"
#include "engine/repair/beside_others.h"
#include "rings/log_ring.h"
#include "runtime/task_group.h"

namespace eplog {
namespace {

constexpr size_t kScrubsAtOnce = 4;
constexpr uint64_t kMarkUs = 10'000'000;
constexpr size_t kLogStripesAtOnce = 16;

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

bool Scrubber::IsReadFromTables(ChunkIndex chunk) const {
  const auto owner = core_.state->volumes.OwnerOf(
      ExtentIndex(core_.geometry.StripeOf(chunk).value / core_.geometry.extent_stripes));
  const Volume* volume = core_.state->volumes.Find(owner.volume);
  if (volume == nullptr || volume->deleting) {
    return false;
  }
  return PlaceOf(*core_.state, chunk)->offset_bytes < volume->size_bytes &&
         !reader_.ReadsInstead(chunk) && buffered_.Latest(chunk) == nullptr;
}

// Nobody has it, so nobody is to blame.
void Scrubber::AddLost(ChunkIndex chunk, Wrong& wrong) {
  const Geometry& g = core_.geometry;
  Finding finding =
      Describe(g.StripeOf(chunk), g.IndexInStripe(chunk), "is on no device that is there");
  finding.device.clear();
  wrong.findings.push_back(findings_.Add(std::move(finding)));
  wrong.lost.push_back(wrong.findings.back());
}

void Scrubber::SetOutcomes(const Wrong& wrong, bool healed) {
  for (const size_t at : healed ? wrong.findings : wrong.lost) {
    findings_.SetOutcome(at, healed ? Finding::Outcome::kHealed : Finding::Outcome::kLost);
  }
  report_.lost += healed ? 0 : wrong.lost.size();
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
  EPLOG_CO_AWAIT(group.Wait());
  EPLOG_CO_AWAIT(ScrubRows());
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
      EPLOG_CO_AWAIT(group.Wait());
      Status status = MayGoOn();  // then some of these were not read
      EPLOG_CO_TRY(status);
      options_.mark(s, report_.problems_found - left_in_log_, report_.lost - lost_in_log_);
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
    Task<void> below = group.WaitBelow(Busy() ? 1 : kScrubsAtOnce);
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
  std::vector<WrongRow> rows;
  Task<void> checking = CheckBatch(std::move(stripes), rows);
  co_await checking;
  // With nothing pinned: who heals waits his turn for room, and slots that others wait for may be
  // the ones that were being read.
  for (const WrongRow& row : rows) {
    bool healed = false;
    if (options_.heal && row.wrong.there && MayGoOn().ok()) {
      EPLOG_CO_AWAIT(HealStripe(row.stripe, healed));
    }
    SetOutcomes(row.wrong, healed);
    left_in_rows_ += healed ? 0 : row.wrong.findings.size();
  }
  co_return OkStatus();
}

// The words of one instant, pinned: no lock is needed to compare what they name.
Task<void> Scrubber::CheckBatch(std::vector<StripeIndex> stripes, std::vector<WrongRow>& wrong) {
  const StatesNumber states = core_.devices().number();
  RowBatch batch(core_, reader_, stripes.size());
  for (const StripeIndex stripe : stripes) {
    batch.Add(stripe);
  }
  Task<void> reading = batch.ReadAll();
  co_await reading;
  if (states != core_.devices().number()) {
    // What was read may be of another device than the one that was meant: again.
    Task<void> again = CheckBatch(std::move(stripes), wrong);
    co_await again;
    co_return;
  }
  for (size_t at = 0; at < batch.size(); ++at) {
    WrongRow row{batch.row(at).stripe, {}};
    CheckRow(batch, at, row.wrong);
    if (!row.wrong.findings.empty()) {
      wrong.push_back(std::move(row));
    }
  }
}

void Scrubber::CheckRow(RowBatch& batch, size_t at, Wrong& wrong) {
  const RowBatch::Row& row = batch.row(at);
  const uint64_t wrong_parity = batch.WrongParity(at);
  batch.CountWrong(at, wrong_parity);
  ++report_.rows_checked;
  report_.chunks_checked += static_cast<uint64_t>(std::popcount(row.valid | row.bad));
  report_.parity_checked += static_cast<uint64_t>(std::popcount(row.valid >> core_.geometry.k()));
  const uint64_t lost = LostInRow(batch, at);
  for (uint64_t mask = row.bad | wrong_parity; mask != 0; mask &= mask - 1) {
    const auto index = static_cast<uint32_t>(std::countr_zero(mask));
    const bool is_lost = (lost >> index & 1) != 0;
    if (IsBeingVerified(core_.geometry.SsdOf(row.stripe, index)) && !is_lost) {
      continue;
    }
    const bool parity = (wrong_parity >> index & 1) != 0;
    wrong.there = true;
    wrong.findings.push_back(findings_.Add(
        Describe(row.stripe, index,
                 parity ? "does not match the data" : "is unreadable, or its checksum is wrong")));
    if (is_lost) {
      wrong.lost.push_back(wrong.findings.back());
    }
  }
  for (uint64_t mask = lost & ~row.bad; mask != 0; mask &= mask - 1) {
    AddLost(core_.geometry.Chunk(row.stripe, static_cast<uint32_t>(std::countr_zero(mask))), wrong);
  }
}

// What is neither there nor can be decoded, and is what a read would need: no newer version is
// pending or has come.
uint64_t Scrubber::LostInRow(RowBatch& batch, size_t at) const {
  const Geometry& g = core_.geometry;
  const RowBatch::Row& row = batch.row(at);
  uint64_t lost = ((uint64_t{1} << g.k()) - 1) & ~row.valid;
  if (lost == 0 || batch.Decode(at, lost).ok()) {
    return 0;
  }
  for (uint64_t mask = lost; mask != 0; mask &= mask - 1) {
    const auto index = static_cast<uint32_t>(std::countr_zero(mask));
    const ChunkIndex chunk = g.Chunk(row.stripe, index);
    if (core_.state->rows.Get(row.stripe, index).word != row.words[index].word ||
        core_.state->pending.Find(chunk) || !IsReadFromTables(chunk)) {
      lost &= ~(uint64_t{1} << index);
    }
  }
  return lost;
}

Task<Status> Scrubber::HealStripe(StripeIndex stripe, bool& healed) {
  Task<Result<Healer::Outcome>> healing = healer_->Heal(stripe);
  const Result<Healer::Outcome> outcome = co_await healing;
  if (!outcome.ok()) {
    co_return MayGoOn();  // no room, or devices changed: it stays as found
  }
  report_.healed += outcome->healed;
  healed = outcome->lost_in_row == 0;
  left_in_rows_ += outcome->lost - outcome->lost_in_row;
  co_return OkStatus();
}

Task<Status> Scrubber::ScrubLogStripe(Span stripe) {
  Wrong wrong;
  Task<void> checking = CheckLogStripe(stripe, wrong);
  co_await checking;
  bool gone = false;
  if (wrong.there && options_.heal) {
    // With nothing pinned: making room for a commit may need the log.
    Task<Status> retiring = healer_->Retire(stripe.id, stripe.sequence);
    const Status retired = co_await retiring;
    gone = !core_.state->pending.IsLive(stripe.id, stripe.sequence);
  }
  (gone ? report_.healed : left_in_log_) += wrong.findings.size();
  lost_in_log_ += gone ? 0 : wrong.lost.size();
  SetOutcomes(wrong, gone);
  co_return MayGoOn();
}

// As it was read. Bit i of `valid`: member i, then the log chunks.
struct Scrubber::LogStripe {
  Span span;
  LogStripeView view;
  StatesNumber states = 0;                   // DeviceStates::number when it was looked up
  std::vector<Buffer> chunks;                // members, then log chunks
  std::vector<std::optional<size_t>> found;  // by member: its finding
  uint64_t valid = 0;
  // By log chunk that was judged: DeviceStates::number then.
  std::array<std::optional<uint64_t>, kMaxParity> judged;

  [[nodiscard]] uint64_t members() const { return (uint64_t{1} << view.members.size()) - 1; }
  [[nodiscard]] uint64_t missing() const { return members() & ~valid; }
};

Task<void> Scrubber::CheckLogStripe(Span span, Wrong& wrong) {
  const Geometry& g = core_.geometry;
  if (!core_.state->pending.IsLive(span.id, span.sequence)) {
    co_return;  // the array is at work, and this one has died since
  }
  LogStripe stripe{span, core_.state->pending.View(span.id), core_.devices().number(), {}, {}, 0,
                   {}};
  if (stripe.view.zeros) {
    co_return;  // trimmed chunks: nothing on any device
  }
  ++report_.log_stripes_checked;
  // Whatever happens to it meanwhile, what it is made of stays where it is.
  Pins pins(core_);
  for (const LogStripeMember& member : stripe.view.members) {
    pins.Add(g.SsdOf(member.chunk), member.word);
  }
  const Appender::LogPin log_pin(appender_, stripe.view.place);
  for (size_t i = 0; i < stripe.view.members.size() + g.m; ++i) {
    stripe.chunks.push_back(core_.pool.Get(g.chunk_bytes));
  }
  Task<void> members = CheckMembers(stripe, wrong);
  co_await members;
  StatesNumber states = 0;
  do {
    states = core_.devices().number();
    ForgetLostSsds(stripe);
    Task<void> logs = CheckLogChunks(stripe, wrong);
    co_await logs;
  } while (states != core_.devices().number());
  NameLostMembers(stripe, wrong);
}

Task<void> Scrubber::CheckMembers(LogStripe& stripe, Wrong& wrong) {
  const Geometry& g = core_.geometry;
  for (size_t i = 0; i < stripe.view.members.size(); ++i) {
    const LogStripeMember& member = stripe.view.members[i];
    const DeviceIndex ssd = g.SsdOf(member.chunk);
    Task<Status> read =
        reader_.ReadSlot(ssd, member.word, member.crc, stripe.states, stripe.chunks[i].span());
    const Status status = co_await read;
    const bool there = !member.word.is_absent() && core_.devices().IsCurrent(ssd, stripe.states) &&
                       !IsBeingVerified(ssd);
    report_.chunks_checked += there ? 1 : 0;
    stripe.valid |= status.ok() ? uint64_t{1} << i : 0;
    stripe.found.emplace_back();
    if (!status.ok() && there) {
      const char* const which = stripe.view.superseded[i] ? "an older" : "its newest";
      stripe.found.back() =
          findings_.Add(Describe(g.StripeOf(member.chunk), g.IndexInStripe(member.chunk),
                                 std::string(which) + " version: " + status.error().ToString()));
      wrong.findings.push_back(*stripe.found.back());
      wrong.there = true;
    }
  }
}

// Who was away by itself and is back may hold what it had: what was judged of another device does
// not count, and what could not be had may be there now.
Task<void> Scrubber::CheckLogChunks(LogStripe& stripe, Wrong& wrong) {
  const Geometry& g = core_.geometry;
  const size_t members = stripe.view.members.size();
  const bool all = stripe.missing() == 0;
  const Buffer computed = core_.pool.Get(size_t{g.m} * g.chunk_bytes);
  Encode(stripe, computed);
  for (uint32_t j = 0; j < g.m; ++j) {
    const DeviceIndex log = g.LogDevice(j);
    const std::span<std::byte> stored = stripe.chunks[members + j].span();
    if (stripe.judged[j] && core_.devices().IsCurrent(log, *stripe.judged[j])) {
      continue;
    }
    stripe.valid &= ~(uint64_t{1} << (members + j));
    if (!core_.members.live(log)) {
      continue;
    }
    const StatesNumber states = core_.devices().number();
    if (core_.devices().IsJoining(log) || stripe.view.place < core_.devices().has_log_from(log)) {
      // One that joined lacks what was logged before, until that is committed: nothing is wrong.
      if (!all) {
        Task<bool> looking = IsOnJoined(stripe, j);
        const bool there = co_await looking;
        stripe.valid |= there ? uint64_t{1} << (members + j) : 0;
      }
      continue;
    }
    ++report_.parity_checked;
    stripe.judged[j] = states;
    Task<Status> reading =
        reader_.ReadLogChunk(j, stripe.view.place, stripe.view.log_crcs[j], stored);
    const Status status = co_await reading;
    stripe.valid |= status.ok() ? uint64_t{1} << (members + j) : 0;
    const bool differs =
        status.ok() && all &&
        std::memcmp(stored.data(), computed.data() + size_t{j} * g.chunk_bytes, g.chunk_bytes) != 0;
    const bool there = core_.devices().IsCurrent(log, states);
    if (!there || (status.ok() && !differs)) {
      continue;
    }
    if (differs) {
      core_.members.CountCorrupt(log);  // its checksum is right, and nobody else says so
    }
    Finding finding;
    finding.device = g.DeviceName(log);
    finding.what = "log chunk at place " + std::to_string(stripe.view.place) + ": " +
                   (differs ? "does not match its members" : status.error().ToString());
    wrong.findings.push_back(findings_.Add(std::move(finding)));
    wrong.there = true;
  }
}

void Scrubber::Encode(const LogStripe& stripe, const Buffer& into) const {
  const Geometry& g = core_.geometry;
  const size_t members = stripe.view.members.size();
  std::array<const std::byte*, kMaxSsds> content{};
  for (size_t i = 0; i < members; ++i) {
    content[i] = stripe.chunks[i].data();
  }
  std::array<std::byte*, kMaxParity> parity{};
  for (uint32_t j = 0; j < g.m; ++j) {
    parity[j] = into.data() + size_t{j} * g.chunk_bytes;
  }
  core_.code.Encode(std::span(content).first(members), std::span(parity).first(g.m), g.chunk_bytes);
}

Task<bool> Scrubber::IsOnJoined(const LogStripe& stripe, uint32_t j) {
  const std::span<std::byte> into = stripe.chunks[stripe.view.members.size() + j].span();
  Task<Status> reading =
      ReadLog(core_.members, core_.geometry, core_.geometry.LogDevice(j), stripe.view.place, into);
  const Status read = co_await reading;
  co_return read.ok() && core_.checksum(into) == stripe.view.log_crcs[j];
}

// What was read may have been lost since; a word is of the SSD that was there when it was looked
// up.
void Scrubber::ForgetLostSsds(LogStripe& stripe) const {
  const std::vector<LogStripeMember>& members = stripe.view.members;
  for (size_t i = 0; i < members.size(); ++i) {
    const DeviceIndex ssd = core_.geometry.SsdOf(members[i].chunk);
    if (!members[i].word.is_zero() && !core_.devices().IsCurrent(ssd, stripe.states)) {
      stripe.valid &= ~(uint64_t{1} << i);
    }
  }
}

bool Scrubber::CanBeDecoded(const LogStripe& stripe) const {
  const Geometry& g = core_.geometry;
  const std::vector<LogStripeMember>& members = stripe.view.members;
  const auto d = static_cast<uint32_t>(members.size());
  std::array<std::byte*, kMaxDevices> chunks{};
  for (uint32_t i = 0; i < d + g.m; ++i) {
    chunks[i] = stripe.chunks[i].data();
  }
  const uint64_t missing = stripe.missing();
  const Status decoded =
      core_.code.Decode(d, std::span(chunks).first(d + g.m), stripe.valid, missing, g.chunk_bytes);
  if (!decoded.ok()) {
    return false;
  }
  for (uint64_t mask = missing; mask != 0; mask &= mask - 1) {
    const auto i = static_cast<uint32_t>(std::countr_zero(mask));
    if (core_.checksum(stripe.chunks[i].span()) != members[i].crc) {
      return false;
    }
  }
  return true;
}

// Those that a read would need: no newer version has come.
void Scrubber::NameLostMembers(const LogStripe& stripe, Wrong& wrong) {
  if (stripe.missing() == 0 || CanBeDecoded(stripe) ||
      !core_.state->pending.IsLive(stripe.span.id, stripe.span.sequence)) {
    return;
  }
  for (uint64_t mask = stripe.missing(); mask != 0; mask &= mask - 1) {
    const auto i = static_cast<size_t>(std::countr_zero(mask));
    const ChunkIndex chunk = stripe.view.members[i].chunk;
    const auto newest = core_.state->pending.Find(chunk);
    if (!newest || newest->log_stripe != stripe.span.id || !IsReadFromTables(chunk)) {
      continue;
    }
    if (stripe.found[i]) {
      wrong.lost.push_back(*stripe.found[i]);
    } else {
      AddLost(chunk, wrong);
    }
  }
}

}  // namespace eplog
