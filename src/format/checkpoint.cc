// Checkpoint pages and roots: frames, not the state inside. It may not know which checkpoint
// counts.
#include "format/checkpoint.h"

#include <algorithm>
#include <string>

#include "base/check.h"
#include "format/wire.h"

namespace eplog {
namespace {

static_assert(kPageHeaderBytes == sizeof(wire::PageBytes));

tl::unexpected<Error> WrongPage(const char* what) {
  return Fail(ErrorCode::kCorrupt, std::string("checkpoint page: ") + what);
}

tl::unexpected<Error> WrongRoot(const char* what) {
  return Fail(ErrorCode::kCorrupt, std::string("checkpoint root: ") + what);
}

void StoreRun(const RunDescriptor& run, ByteWriter& out) {
  wire::RunBytes to{};
  to.ssd_mask = run.ssd_mask;
  to.first_block = run.first_block;
  to.blocks = run.blocks;
  to.stream_bytes = run.stream_bytes;
  to.generation = run.generation;
  to.random = run.random;
  to.stream_crc = run.stream_crc;
  to.flags = run.full ? wire::kFullRun : uint8_t{0};
  out.Bytes(std::as_bytes(std::span(&to, 1)));
}

Result<RunDescriptor> LoadRun(std::span<const std::byte> in) {
  const auto from = wire::Load<wire::RunBytes>(in);
  if ((from.flags & ~wire::kFullRun) != 0) {
    return Fail(ErrorCode::kUnsupported,
                "checkpoint root: a run of a kind unknown to this version");
  }
  if (from.ssd_mask == 0 || from.ssd_mask >> kMaxSsds != 0) {
    return WrongRoot("a run on no SSD, or on one that cannot be");
  }
  if (from.stream_bytes == 0 || (from.stream_bytes - 1) / kPagePayloadBytes >= from.blocks ||
      from.first_block > UINT64_MAX - from.blocks) {
    return WrongRoot("a run that does not fit its blocks");
  }
  RunDescriptor run;
  run.full = (from.flags & wire::kFullRun) != 0;
  run.ssd_mask = from.ssd_mask;
  run.first_block = from.first_block;
  run.blocks = from.blocks;
  run.stream_bytes = from.stream_bytes;
  run.stream_crc = from.stream_crc;
  run.generation = from.generation;
  run.random = from.random;
  return run;
}

}  // namespace

void FinishPage(const PageHeader& header, const Uuid& array, std::span<std::byte> page) {
  EPLOG_CHECK(page.size() == kBlockBytes, "a page has a fixed size");
  EPLOG_CHECK(header.payload_bytes <= kPagePayloadBytes, "a page's payload fits it");
  wire::PageBytes head{};
  head.magic = wire::kPageMagic;
  head.array_uuid = array;
  head.generation = header.generation;
  head.random = header.random;
  head.block = header.block;
  head.index = header.index;
  head.payload_bytes = static_cast<uint16_t>(header.payload_bytes);
  head.kind = static_cast<uint8_t>(header.kind);
  wire::Store(head, page);
  const auto rest = page.subspan(kPageHeaderBytes + header.payload_bytes);
  if (!rest.empty()) {
    std::memset(rest.data(), 0, rest.size());
  }
  StoreLe(page.data() + offsetof(wire::PageBytes, crc), Crc32c(page));
}

Result<PageHeader> DecodePage(std::span<const std::byte> page, const Uuid& array) {
  if (page.size() < kBlockBytes) {
    return Fail(ErrorCode::kNotFound, "no checkpoint page");
  }
  page = page.first(kBlockBytes);
  const auto head = wire::Load<wire::PageBytes>(page);
  if (head.magic != wire::kPageMagic || head.array_uuid != array) {
    return Fail(ErrorCode::kNotFound, "no checkpoint page");
  }
  if (wire::CrcAround(page, offsetof(wire::PageBytes, crc)) != head.crc) {
    return WrongPage("wrong CRC");
  }
  if (head.kind < static_cast<uint8_t>(PageKind::kRoot) ||
      head.kind > static_cast<uint8_t>(PageKind::kRun)) {
    return Fail(ErrorCode::kUnsupported, "checkpoint page of a kind unknown to this version");
  }
  if (head.payload_bytes > kPagePayloadBytes) {
    return WrongPage("impossible length");
  }
  PageHeader header;
  header.kind = static_cast<PageKind>(head.kind);
  header.generation = head.generation;
  header.random = head.random;
  header.block = head.block;
  header.index = head.index;
  header.payload_bytes = head.payload_bytes;
  return header;
}

std::vector<std::byte> EncodeRoot(const CheckpointRoot& root) {
  EPLOG_CHECK(root.runs.size() <= UINT16_MAX && root.lifetime_counters.size() <= UINT16_MAX,
              "a root's counts fit their fields");
  std::vector<std::byte> bytes(sizeof(wire::RootBytes) + root.runs.size() * sizeof(wire::RunBytes) +
                               root.lifetime_counters.size() * sizeof(uint64_t));
  wire::RootBytes head{};
  head.epoch = root.epoch;
  head.sequence = root.sequence;
  head.place = root.place;
  head.next_volume_id = root.next_volume_id;
  head.run_count = static_cast<uint16_t>(root.runs.size());
  head.counter_count = static_cast<uint16_t>(root.lifetime_counters.size());
  ByteWriter out(bytes);
  out.Bytes(std::as_bytes(std::span(&head, 1)));
  for (const RunDescriptor& run : root.runs) {
    StoreRun(run, out);
  }
  for (const uint64_t counter : root.lifetime_counters) {
    out.U64(counter);
  }
  EPLOG_CHECK(out.ok() && out.size() == bytes.size(), "a root's size follows from its counts");
  return bytes;
}

Result<CheckpointRoot> DecodeRoot(std::span<const std::byte> in) {
  if (in.size() < sizeof(wire::RootBytes)) {
    return WrongRoot("too few bytes");
  }
  const auto head = wire::Load<wire::RootBytes>(in);
  in = in.subspan(sizeof(head));
  if (in.size() !=
      head.run_count * sizeof(wire::RunBytes) + head.counter_count * sizeof(uint64_t)) {
    return WrongRoot("its size does not follow from its counts");
  }
  CheckpointRoot root;
  root.epoch = head.epoch;
  root.sequence = head.sequence;
  root.place = head.place;
  root.next_volume_id = head.next_volume_id;
  root.runs.reserve(head.run_count);
  for (size_t i = 0; i < head.run_count; ++i) {
    auto run = LoadRun(in);
    EPLOG_TRY(run);
    root.runs.push_back(*run);
    in = in.subspan(sizeof(wire::RunBytes));
  }
  if (std::max({root.sequence, root.place, root.epoch.number}) >= wire::kMostNumber) {
    return WrongRoot("a number that none is counted up to");
  }
  // Without a full run at the end there is nothing that the newer ones could change.
  if (root.runs.empty() || !root.runs.back().full || root.next_volume_id == 0) {
    return WrongRoot("no full run, or no volume number left");
  }
  root.lifetime_counters.resize(head.counter_count);
  ByteReader counters(in);
  for (uint64_t& counter : root.lifetime_counters) {
    counter = counters.U64();
  }
  return root;
}

}  // namespace eplog
