#include "baseline/pl_array.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "baseline/chunk_reads.h"
#include "baseline/in_flight.h"
#include "baseline/pages.h"
#include "runtime/task_group.h"

namespace eplog {
namespace {

uint64_t SmallestBytes(const std::vector<Device*>& devices) {
  uint64_t bytes = UINT64_MAX;
  for (const Device* const device : devices) {
    bytes = device != nullptr ? std::min(bytes, device->size_bytes()) : bytes;
  }
  return bytes;
}

size_t OfOneLine(std::span<const PagePiece> pieces) {
  size_t count = 1;
  while (count < pieces.size() && pieces[count].line == pieces[0].line) {
    ++count;
  }
  return count;
}

uint64_t PositionsOf(std::span<const PagePiece> pieces) {
  uint64_t positions = 0;
  for (const PagePiece& piece : pieces) {
    positions |= BitOf(piece.position);
  }
  return positions;
}

bool IsWhole(const Placement& placement, std::span<const PagePiece> pieces) {
  const bool whole_pages = std::all_of(pieces.begin(), pieces.end(), [](const PagePiece& piece) {
    return piece.length_bytes == kPageBytes;
  });
  return whole_pages && pieces.size() == placement.k();
}

}  // namespace

Result<std::unique_ptr<PlArray>> PlArray::Make(EventLoop& loop, std::vector<Device*> ssds,
                                               std::vector<Device*> logs,
                                               const PlOptions& options) {
  const auto failed =
      std::count(ssds.begin(), ssds.end(), nullptr) + std::count(logs.begin(), logs.end(), nullptr);
  if (static_cast<size_t>(failed) > logs.size()) {
    return Fail(ErrorCode::kTooManyFailures, "more devices have failed than there is parity");
  }
  PlacementShape shape;
  shape.n = static_cast<uint32_t>(ssds.size());
  shape.m = static_cast<uint32_t>(logs.size());
  shape.chunk_bytes = options.chunk_bytes;
  shape.ssd_bytes = SmallestBytes(ssds);
  const auto placement = Placement::Make(shape);
  EPLOG_TRY(placement);
  const uint64_t places = SmallestBytes(logs) / kPageBytes;
  if (places == 0) {
    return Fail(ErrorCode::kNoSpace, "a log device has no room for a page");
  }
  std::vector<Device*> all = std::move(ssds);
  all.insert(all.end(), logs.begin(), logs.end());
  return std::unique_ptr<PlArray>(new PlArray(loop, std::move(all), *placement, places, options));
}

PlArray::PlArray(EventLoop& loop, std::vector<Device*> devices, const Placement& placement,
                 uint64_t places, const PlOptions& options)
    : loop_(loop),
      devices_(std::move(devices)),
      placement_(placement),
      options_(options),
      code_(placement.k(), placement.m()),
      traffic_(placement.n(), placement.m()),
      plug_(loop, devices_, options.plug, traffic_),
      log_(loop, places),
      locks_(loop),
      committing_(loop),
      requests_(loop) {
  const auto first_log = devices_.begin() + placement.n();
  ssd_failed_ = std::find(devices_.begin(), first_log, nullptr) != first_log;
  log_failed_ = std::find(first_log, devices_.end(), nullptr) != devices_.end();
}

Status PlArray::CheckRequest(uint64_t offset_bytes, uint64_t length_bytes) const {
  if (closed_) {
    return Fail(ErrorCode::kShutdown, "the array is closed");
  }
  return placement_.Check(offset_bytes, length_bytes);
}

Task<Status> PlArray::Read(uint64_t offset_bytes, std::span<std::byte> into) {
  const Status checked = CheckRequest(offset_bytes, into.size());
  EPLOG_CO_TRY(checked);
  const InFlight in_flight(requests_);
  ++traffic_.user_reads;
  traffic_.user_bytes_read += into.size();
  if (ssd_failed_) {
    Task<Status> read = ReadDegraded(offset_bytes, into);
    co_return co_await read;
  }
  PartGroup group(loop_, plug_);
  AddChunkReads(group, placement_, offset_bytes, into);
  Task<Status> all = group.Wait();
  co_return co_await all;
}

Task<Status> PlArray::ReadDegraded(uint64_t offset_bytes, std::span<std::byte> into) {
  const auto cut = placement_.CutPages(offset_bytes, into.size());
  PartGroup direct(loop_, plug_);
  TaskGroup decoded(loop_);
  for (std::span<const PagePiece> pieces(cut); !pieces.empty();) {
    const auto here = pieces.first(OfOneLine(pieces));
    pieces = pieces.subspan(here.size());
    if ((PositionsOf(here) & ~LivePositions(here[0].line)) != 0) {
      decoded.Start(ReadLine(here, into.data()));
      continue;
    }
    for (const PagePiece& piece : here) {
      direct.Add({.device = placement_.SsdOf(piece.line, piece.position),
                  .io_class = IoClass::kUserRead,
                  .offset_bytes = Placement::SsdOffset(piece.line) + piece.begin_bytes,
                  .memory = into.data() + piece.at_bytes,
                  .length_bytes = piece.length_bytes});
    }
  }
  Task<Status> first = direct.Wait();
  const Status read = co_await first;
  Task<Status> second = decoded.Wait();
  Status status = co_await second;
  EPLOG_CO_TRY(read);
  co_return status;
}

Task<Status> PlArray::ReadLine(std::span<const PagePiece> pieces, std::byte* into) {
  const uint64_t line = pieces[0].line;
  Task<LineLocks::Guard> locking = locks_.Lock(line);
  const LineLocks::Guard lock = co_await locking;
  const Buffer pages = pool_.Get(size_t{kPageBytes} * placement_.n());
  EPLOG_CO_AWAIT(Load(line, PositionsOf(pieces), pages, IoClass::kUserRead));
  for (const PagePiece& piece : pieces) {
    std::memcpy(into + piece.at_bytes,
                pages.data() + size_t{kPageBytes} * piece.position + piece.begin_bytes,
                piece.length_bytes);
  }
  co_return OkStatus();
}

Task<Status> PlArray::Write(uint64_t offset_bytes, std::span<const std::byte> from) {
  const Status checked = CheckRequest(offset_bytes, from.size());
  EPLOG_CO_TRY(checked);
  const InFlight in_flight(requests_);
  ++traffic_.user_writes;
  traffic_.user_bytes_written += from.size();
  const auto cut = placement_.CutPages(offset_bytes, from.size());
  TaskGroup group(loop_);
  for (std::span<const PagePiece> pieces(cut); !pieces.empty();) {
    const auto here = pieces.first(OfOneLine(pieces));
    pieces = pieces.subspan(here.size());
    group.Start(WriteLine(here, from.data()));
  }
  Task<Status> all = group.Wait();
  co_return co_await all;
}

// Room in the log is promised before the line is locked: a commit, which makes room, locks lines.
Task<Status> PlArray::WriteLine(std::span<const PagePiece> pieces, const std::byte* from) {
  const uint64_t line = pieces[0].line;
  const bool whole = IsWhole(placement_, pieces);
  if (!whole) {
    EPLOG_CO_AWAIT(Reserve());
  }
  Task<LineLocks::Guard> locking = locks_.Lock(line);
  const LineLocks::Guard lock = co_await locking;
  Task<Status> write = whole ? WriteWhole(line, pieces, from) : WritePart(line, pieces, from);
  co_return co_await write;
}

Task<Status> PlArray::WriteWhole(uint64_t line, std::span<const PagePiece> pieces,
                                 const std::byte* from) {
  const Buffer pages = pool_.Get(size_t{kPageBytes} * placement_.n());
  for (const PagePiece& piece : pieces) {
    std::memcpy(pages.data() + size_t{kPageBytes} * piece.position, from + piece.at_bytes,
                kPageBytes);
  }
  Encode(pages);
  ++traffic_.lines_full;
  const uint64_t live_positions = LivePositions(line);
  const uint64_t data = LowBits(placement_.k());
  PartGroup group(loop_, plug_);
  AddPages(group, line, live_positions & data, pages, IoClass::kDataWrite);
  AddPages(group, line, live_positions & ~data, pages, IoClass::kParityWrite);
  EPLOG_CO_AWAIT(group.Wait());
  log_.ForgetAll(line);
  co_return OkStatus();
}

Task<Status> PlArray::WritePart(uint64_t line, std::span<const PagePiece> pieces,
                                const std::byte* from) {
  const Buffer pages = pool_.Get(size_t{kPageBytes} * placement_.n());
  const uint64_t written = PositionsOf(pieces);
  Task<Status> load = Load(line, written, pages, IoClass::kModifyRead);
  const Status loaded = co_await load;
  if (!loaded.ok()) {
    log_.Unreserve();
    co_return loaded;
  }
  const Buffer differences = pool_.GetZeroed(size_t{kPageBytes} * placement_.m());
  TakePieces(pieces, from, pages, differences);
  const uint64_t live_positions = LivePositions(line);
  PartGroup group(loop_, plug_);
  AddPages(group, line, live_positions & written, pages, IoClass::kDataWrite);
  if ((live_positions & ~LowBits(placement_.k())) == 0) {
    log_.Unreserve();  // no parity of it is left that would have to be changed
    Task<Status> all = group.Wait();
    co_return co_await all;
  }
  ++traffic_.lines_logged;
  const uint64_t place = log_.Take();
  AddDifferences(group, line, place, differences);
  Task<Status> all = group.Wait();
  const Status status = co_await all;
  if (!status.ok()) {
    log_.Free(place);
    co_return status;
  }
  log_.Record(line, place);
  co_return OkStatus();
}

Task<Status> PlArray::Trim(uint64_t offset_bytes, uint64_t length_bytes) {
  Status checked = CheckRequest(offset_bytes, length_bytes);
  traffic_.user_trims += checked.ok() ? 1 : 0;
  co_return checked;
}

Task<Status> PlArray::Flush() {
  const Status checked = CheckRequest(0, 0);
  EPLOG_CO_TRY(checked);
  const InFlight in_flight(requests_);
  ++traffic_.user_flushes;
  Task<Status> flush = plug_.FlushDevices();
  co_return co_await flush;
}

Task<Status> PlArray::Commit() {
  const Status checked = CheckRequest(0, 0);
  EPLOG_CO_TRY(checked);
  const InFlight in_flight(requests_);
  Task<AsyncMutex::Guard> locking = committing_.Lock();
  const AsyncMutex::Guard lock = co_await locking;
  Task<Status> commit = CommitAll();
  co_return co_await commit;
}

Task<Status> PlArray::Close() {
  closed_ = true;
  Task<void> requests = requests_.Wait();
  co_await requests;
  Task<Status> commit = CommitAll();
  Status status = co_await commit;
  Task<void> idle = plug_.Idle();
  co_await idle;
  co_return status;
}

}  // namespace eplog
