#include "engine/checkpoint/checkpoint_pages.h"

#include <algorithm>

namespace eplog {
Pages PagesOf(const CheckpointPointer& root) {
  Pages pages;
  pages.first = {PageKind::kRoot, root.generation, root.random, root.root_block, 0, 0};
  pages.blocks = root.root_blocks;
  pages.ssd_mask = root.ssd_mask;
  return pages;
}

Pages PagesOf(const RunDescriptor& run) {
  Pages pages;
  pages.first = {PageKind::kRun, run.generation, run.random, run.first_block, 0, 0};
  pages.blocks = run.blocks;
  pages.ssd_mask = run.ssd_mask;
  return pages;
}

bool InArea(const Geometry& g, const Pages& pages) {
  return pages.blocks != 0 && pages.first.block < g.metadata_blocks &&
         pages.blocks <= g.metadata_blocks;
}

PageHeader HeaderOf(const Geometry& g, const Pages& pages, uint64_t index) {
  PageHeader header = pages.first;
  header.block = (pages.first.block + index) % g.metadata_blocks;
  header.index = static_cast<uint32_t>(index);
  return header;
}

std::optional<std::span<const std::byte>> Payload(const Core& core, std::span<const std::byte> page,
                                                  PageHeader expected) {
  const Result<PageHeader> header = DecodePage(page, core.identity.array_uuid);
  if (!header.ok()) {
    return std::nullopt;
  }
  expected.payload_bytes = header->payload_bytes;
  if (*header != expected) {
    return std::nullopt;
  }
  return page.subspan(kPageHeaderBytes, header->payload_bytes);
}

Task<uint64_t> CheckPages(Core& core, DeviceIndex ssd, Pages pages,
                          const std::function<bool()>& stop,
                          const std::function<void(uint64_t block)>& wrong) {
  const Geometry& g = core.geometry;
  uint64_t checked = 0;
  uint64_t at_once = kBatchBlocks;
  for (uint64_t at = 0; at < pages.blocks && !stop();) {
    const uint64_t block = HeaderOf(g, pages, at).block;
    const uint64_t count = std::min({at_once, pages.blocks - at, g.metadata_blocks - block});
    const Buffer batch = core.pool.Get(count * kBlockBytes);
    Task<Status> reading = core.members.ReadBytes(ssd, g.MetadataOffset(block), batch.span());
    const Status read = co_await reading;
    if (stop()) {
      break;  // what was read may be of a later checkpoint
    }
    if (!read.ok() && count > 1) {
      at_once = 1;  // which of them
      continue;
    }
    for (uint64_t i = 0; i < count; ++i) {
      const auto page = batch.span().subspan(i * kBlockBytes, kBlockBytes);
      if (!read.ok() || !Payload(core, page, HeaderOf(g, pages, at + i))) {
        wrong(HeaderOf(g, pages, at + i).block);
      }
    }
    checked += count;
    at += count;
    at_once = at % kBatchBlocks == 0 ? kBatchBlocks : at_once;
  }
  co_return checked;
}

}  // namespace eplog
