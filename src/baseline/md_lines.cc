// What happens to one line: the half of MdArray that runs between requests and devices.
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "baseline/md_array.h"
#include "baseline/pages.h"

namespace eplog {
namespace {

void EndPieces(std::vector<LinePiece>& pieces, const Status& status) {
  for (const LinePiece& piece : pieces) {
    if (!status.ok() && piece.request->status.ok()) {
      piece.request->status = status;
    }
    piece.request->pieces.Done();
  }
  pieces.clear();
}

}  // namespace

// Lines are handled in a later turn of the loop, in the order in which they were given work, so
// that what several requests, or the devices, bring in one turn is seen together.
void MdArray::Enqueue(Line& line) {
  if (line.queued || line.parts_in_flight != 0) {
    return;  // the end of what is in flight brings it here again
  }
  line.queued = true;
  queue_.push_back(&line);
  if (!handling_) {
    handling_ = true;
    loop_.Spawn(HandleQueue());
  }
}

Task<void> MdArray::HandleQueue() {
  while (!queue_.empty()) {
    Line& line = *queue_.front();
    queue_.pop_front();
    line.queued = false;
    Handle(line);
  }
  handling_ = false;
  co_return;
}

void MdArray::Handle(Line& line) {
  EndFlight(line);
  while (true) {
    ServeReads(line);
    const LinePlan plan = PlanLine(ViewOf(line), options_.choice);
    switch (plan.step) {
      case LineStep::kNothing:
        cache_.Release(line);
        return;
      case LineStep::kRead:
        StartReads(line, plan);
        return;
      case LineStep::kDecode:
        Decode(line, plan.decode);
        break;
      case LineStep::kModify:
      case LineStep::kReconstruct:
        StartWrites(line, plan.step);
        return;
    }
  }
}

void MdArray::EndFlight(Line& line) {
  const auto flight = std::exchange(line.flight, Line::Flight::kNone);
  const Status status = std::exchange(line.flight_status, OkStatus());
  if (flight == Line::Flight::kWriting) {
    EndPieces(line.writing, status);
    line.uptodate = status.ok() ? line.uptodate : 0;
  } else if (!status.ok()) {
    EndPieces(line.reads, status);
    EndPieces(line.writes, status);
    line.covered = {};
    drained_.NotifyAll();
  }
}

void MdArray::ServeReads(Line& line) {
  std::erase_if(line.reads, [&line](const LinePiece& piece) {
    if ((line.uptodate & BitOf(piece.page.position)) == 0) {
      return false;
    }
    std::memcpy(piece.memory, line.page(piece.page.position) + piece.page.begin_bytes,
                piece.page.length_bytes);
    piece.request->pieces.Done();
    return true;
  });
}

uint64_t MdArray::FailedPositions(uint64_t line) const {
  uint64_t failed = 0;
  for (uint32_t i = 0; degraded_ && i < placement_.n(); ++i) {
    failed |= ssds_[placement_.SsdOf(line, i).value] == nullptr ? BitOf(i) : 0;
  }
  return failed;
}

LineView MdArray::ViewOf(const Line& line) const {
  LineView view;
  view.k = placement_.k();
  view.m = placement_.m();
  view.uptodate = line.uptodate;
  view.failed = FailedPositions(line.number);
  for (const LinePiece& piece : line.reads) {
    view.wanted |= BitOf(piece.page.position);
  }
  for (uint32_t i = 0; i < view.k; ++i) {
    view.written |= line.covered[i] != 0 ? BitOf(i) : 0;
    view.overwritten |= line.covered[i] == UINT8_MAX ? BitOf(i) : 0;
  }
  return view;
}

void MdArray::AddParts(Line& line, uint64_t positions, IoClass io_class) {
  line.parts_in_flight += static_cast<uint32_t>(std::popcount(positions));
  ForEachBit(positions, [&](uint32_t position) {
    plug_.Add({.device = placement_.SsdOf(line.number, position),
               .io_class = io_class,
               .offset_bytes = Placement::SsdOffset(line.number),
               .memory = line.page(position),
               .length_bytes = kPageBytes,
               .waiter = &line,
               .tag = position});
  });
}

void MdArray::StartReads(Line& line, const LinePlan& plan) {
  const LineView view = ViewOf(line);
  line.flight = Line::Flight::kReading;
  AddParts(line, plan.fill & view.wanted, IoClass::kUserRead);
  AddParts(line, plan.fill & ~view.wanted, IoClass::kFillRead);
  AddParts(line, plan.modify, IoClass::kModifyRead);
  AddParts(line, plan.reconstruct, IoClass::kReconstructRead);
  AddParts(line, plan.decode, IoClass::kDecodeRead);
}

void MdArray::Decode(Line& line, uint64_t wanted) {
  std::array<std::byte*, kMaxSsds> pages{};
  for (uint32_t i = 0; i < placement_.n(); ++i) {
    pages[i] = line.page(i);
  }
  const Status decoded = code_.Decode(placement_.k(), std::span(pages).first(placement_.n()),
                                      line.uptodate, wanted, kPageBytes);
  EPLOG_CHECK(decoded.ok(), "k pages are up to date");
  line.uptodate |= wanted;
}

void MdArray::StartWrites(Line& line, LineStep step) {
  const LineView view = ViewOf(line);
  const uint64_t data = LowBits(view.k);
  const uint64_t parity = LowBits(view.k + view.m) & ~data;
  if (view.overwritten == data) {
    ++traffic_.lines_full;
  } else {
    ++(step == LineStep::kModify ? traffic_.lines_modified : traffic_.lines_reconstructed);
  }
  if (step == LineStep::kModify) {
    ModifyParity(line, view.written);
  } else {
    TakeWrites(line);
    EncodeParity(line);
  }
  line.uptodate |= view.written;
  line.flight = Line::Flight::kWriting;
  line.writing = std::exchange(line.writes, {});
  line.covered = {};
  drained_.NotifyAll();
  AddParts(line, view.written & ~view.failed, IoClass::kDataWrite);
  AddParts(line, parity & ~view.failed, IoClass::kParityWrite);
}

void MdArray::TakeWrites(Line& line) {
  for (const LinePiece& piece : line.writes) {
    std::memcpy(line.page(piece.page.position) + piece.page.begin_bytes, piece.memory,
                piece.page.length_bytes);
  }
}

// Each page's difference is put into the parity; where a parity's SSD has failed and its content is
// not known, into nothing.
void MdArray::ModifyParity(Line& line, uint64_t written) {
  const uint32_t k = placement_.k();
  const uint64_t live = ~FailedPositions(line.number);
  const uint64_t all_parity = LowBits(placement_.n()) & ~LowBits(k);
  if ((all_parity & live) == 0) {
    TakeWrites(line);
    line.uptodate &= ~all_parity;
    return;
  }
  std::array<std::byte*, kMaxParity> parity{};
  for (uint32_t j = 0; j < placement_.m(); ++j) {
    const bool known = (line.uptodate & BitOf(k + j)) != 0;
    parity[j] = known ? line.page(k + j) : scratch_.data() + size_t{kPageBytes} * (1 + j);
  }
  std::byte* const difference = scratch_.data();
  ForEachBit(written, [&](uint32_t position) {
    std::memcpy(difference, line.page(position), kPageBytes);
    for (const LinePiece& piece : line.writes) {
      if (piece.page.position == position) {
        std::memcpy(line.page(position) + piece.page.begin_bytes, piece.memory,
                    piece.page.length_bytes);
      }
    }
    XorPage(difference, line.page(position));
    code_.Update(position, {difference, kPageBytes}, std::span(parity).first(placement_.m()));
  });
}

void MdArray::EncodeParity(Line& line) {
  const uint32_t k = placement_.k();
  std::array<const std::byte*, kMaxSsds> data{};
  std::array<std::byte*, kMaxParity> parity{};
  for (uint32_t i = 0; i < k; ++i) {
    data[i] = line.page(i);
  }
  for (uint32_t j = 0; j < placement_.m(); ++j) {
    parity[j] = line.page(k + j);
    line.uptodate |= BitOf(k + j);
  }
  code_.Encode(std::span(data).first(k), std::span(parity).first(placement_.m()), kPageBytes);
}

}  // namespace eplog
