#include "baseline/md_array.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "baseline/chunk_reads.h"
#include "baseline/in_flight.h"

namespace eplog {
namespace {

// The sectors that a piece covers in its page.
uint8_t SectorsOf(const PagePiece& page) {
  const uint32_t first = page.begin_bytes / kSectorBytes;
  const uint32_t count = page.length_bytes / kSectorBytes;
  return static_cast<uint8_t>(((1U << count) - 1) << first);
}

bool Overlaps(const Line& line, std::span<const LinePiece> pieces) {
  return std::any_of(pieces.begin(), pieces.end(), [&line](const LinePiece& piece) {
    return (line.covered[piece.page.position] & SectorsOf(piece.page)) != 0;
  });
}

// How many pieces from the front belong to one line.
size_t OfOneLine(std::span<const LinePiece> pieces) {
  size_t count = 1;
  while (count < pieces.size() && pieces[count].page.line == pieces[0].page.line) {
    ++count;
  }
  return count;
}

}  // namespace

Result<std::unique_ptr<MdArray>> MdArray::Make(EventLoop& loop, std::vector<Device*> ssds,
                                               const MdOptions& options) {
  PlacementShape shape;
  shape.n = static_cast<uint32_t>(ssds.size());
  shape.m = options.parity;
  shape.chunk_bytes = options.chunk_bytes;
  shape.ssd_bytes = UINT64_MAX;
  uint32_t failed = 0;
  for (const Device* const ssd : ssds) {
    shape.ssd_bytes =
        ssd != nullptr ? std::min(shape.ssd_bytes, ssd->size_bytes()) : shape.ssd_bytes;
    failed += ssd == nullptr ? 1 : 0;
  }
  if (failed > options.parity) {
    return Fail(ErrorCode::kTooManyFailures, "more SSDs have failed than there is parity");
  }
  const auto placement = Placement::Make(shape);
  EPLOG_TRY(placement);
  return std::unique_ptr<MdArray>(new MdArray(loop, std::move(ssds), *placement, options));
}

MdArray::MdArray(EventLoop& loop, std::vector<Device*> ssds, const Placement& placement,
                 const MdOptions& options)
    : loop_(loop),
      ssds_(std::move(ssds)),
      placement_(placement),
      options_(options),
      code_(placement.k(), placement.m()),
      traffic_(placement.n(), 0),
      scratch_(pool_.Get(size_t{kPageBytes} * (1 + placement.m()))),
      plug_(loop, ssds_, options.plug, traffic_),
      cache_(loop, pool_, *this, options.cached_lines, placement.n()),
      submitter_(loop),
      drained_(loop),
      requests_(loop),
      degraded_(std::count(ssds_.begin(), ssds_.end(), nullptr) != 0) {}

Status MdArray::CheckRequest(uint64_t offset_bytes, uint64_t length_bytes) const {
  if (closed_) {
    return Fail(ErrorCode::kShutdown, "the array is closed");
  }
  return placement_.Check(offset_bytes, length_bytes);
}

Task<Status> MdArray::Read(uint64_t offset_bytes, std::span<std::byte> into) {
  const Status checked = CheckRequest(offset_bytes, into.size());
  EPLOG_CO_TRY(checked);
  const InFlight in_flight(requests_);
  ++traffic_.user_reads;
  traffic_.user_bytes_read += into.size();
  Task<Status> read = degraded_ ? ReadLines(offset_bytes, into) : ReadChunks(offset_bytes, into);
  co_return co_await read;
}

Task<Submitter::Turn> MdArray::Submit() {
  if (!options_.one_submitter) {
    co_return Submitter::Turn();
  }
  Task<Submitter::Turn> waiting = submitter_.Wait();
  co_return co_await waiting;
}

Task<Status> MdArray::ReadChunks(uint64_t offset_bytes, std::span<std::byte> into) {
  PartGroup group(loop_, plug_);
  Task<Submitter::Turn> submitting = Submit();
  Submitter::Turn turn = co_await submitting;
  AddChunkReads(group, placement_, offset_bytes, into);
  turn.End();
  Task<Status> all = group.Wait();
  co_return co_await all;
}

std::vector<LinePiece> MdArray::CutPieces(uint64_t offset_bytes, std::byte* memory,
                                          uint64_t length_bytes, LineRequest& request) const {
  std::vector<LinePiece> pieces;
  for (const PagePiece& page : placement_.CutPages(offset_bytes, length_bytes)) {
    pieces.push_back({page, &request, memory + page.at_bytes});
  }
  return pieces;
}

Task<Status> MdArray::ReadLines(uint64_t offset_bytes, std::span<std::byte> into) {
  LineRequest request(loop_);
  const auto pieces = CutPieces(offset_bytes, into.data(), into.size(), request);
  Task<Submitter::Turn> submitting = Submit();
  Submitter::Turn turn = co_await submitting;
  Task<void> adding = AddReads(pieces);
  co_await adding;
  turn.End();
  Task<void> all = request.pieces.Wait();
  co_await all;
  co_return std::move(request.status);
}

Task<void> MdArray::AddReads(std::span<const LinePiece> pieces) {
  while (!pieces.empty()) {
    const auto here = pieces.first(OfOneLine(pieces));
    pieces = pieces.subspan(here.size());
    Task<Line*> getting = cache_.Get(here[0].page.line);
    Line* const got = co_await getting;
    Line& line = *got;
    line.reads.insert(line.reads.end(), here.begin(), here.end());
    here[0].request->pieces.Add(here.size());
    Enqueue(line);
  }
}

Task<Status> MdArray::Write(uint64_t offset_bytes, std::span<const std::byte> from) {
  const Status checked = CheckRequest(offset_bytes, from.size());
  EPLOG_CO_TRY(checked);
  const InFlight in_flight(requests_);
  ++traffic_.user_writes;
  traffic_.user_bytes_written += from.size();
  LineRequest request(loop_);
  auto* const memory = const_cast<std::byte*>(from.data());  // of a write: only read
  const auto pieces = CutPieces(offset_bytes, memory, from.size(), request);
  Task<Submitter::Turn> submitting = Submit();
  Submitter::Turn turn = co_await submitting;
  Task<void> adding = AddWrites(pieces);
  co_await adding;
  turn.End();
  Task<void> all = request.pieces.Wait();
  co_await all;
  co_return std::move(request.status);
}

// All pieces of a line at once, so that a whole line is seen as one. Where an earlier write to the
// same sectors has not been taken yet, the later one waits: that makes them follow each other.
Task<void> MdArray::AddWrites(std::span<const LinePiece> pieces) {
  while (!pieces.empty()) {
    const auto here = pieces.first(OfOneLine(pieces));
    Task<Line*> getting = cache_.Get(here[0].page.line);
    Line* const got = co_await getting;
    Line& line = *got;
    if (Overlaps(line, here)) {
      co_await drained_.Wait();
      continue;
    }
    pieces = pieces.subspan(here.size());
    line.writes.insert(line.writes.end(), here.begin(), here.end());
    for (const LinePiece& piece : here) {
      line.covered[piece.page.position] |= SectorsOf(piece.page);
    }
    here[0].request->pieces.Add(here.size());
    Enqueue(line);
  }
}

Task<Status> MdArray::Trim(uint64_t offset_bytes, uint64_t length_bytes) {
  Status checked = CheckRequest(offset_bytes, length_bytes);
  traffic_.user_trims += checked.ok() ? 1 : 0;
  co_return checked;
}

// What was acknowledged has been written to the devices.
Task<Status> MdArray::Flush() {
  const Status checked = CheckRequest(0, 0);
  EPLOG_CO_TRY(checked);
  const InFlight in_flight(requests_);
  ++traffic_.user_flushes;
  Task<Status> flush = plug_.FlushDevices();
  co_return co_await flush;
}

Task<Status> MdArray::Commit() {
  co_return CheckRequest(0, 0);
}

Task<Status> MdArray::Close() {
  closed_ = true;
  Task<void> requests = requests_.Wait();
  co_await requests;
  Task<void> idle = plug_.Idle();
  co_await idle;
  EPLOG_CHECK(cache_.active() == 0, "no line waits without a request");
  co_return OkStatus();
}

}  // namespace eplog
