// Where the pages of a checkpoint lie, and what belongs there. For those who read checkpoints.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "engine/core/core.h"
#include "format/checkpoint.h"

namespace eplog {

inline constexpr uint64_t kBatchBlocks = 256;  // pages read or written at once

// Consecutive pages of a root or run, in the metadata areas of some SSDs, alike on all.
struct Pages {
  PageHeader first;
  uint64_t blocks = 0;
  uint64_t ssd_mask = 0;
};

[[nodiscard]] Pages PagesOf(const CheckpointPointer& root);
[[nodiscard]] Pages PagesOf(const RunDescriptor& run);
[[nodiscard]] bool InArea(const Geometry& g, const Pages& pages);
[[nodiscard]] PageHeader HeaderOf(const Geometry& g, const Pages& pages, uint64_t index);

// The payload of a page, if it is the one that belongs here.
std::optional<std::span<const std::byte>> Payload(const Core& core, std::span<const std::byte> page,
                                                  PageHeader expected);

// Reads the copy of one SSD and calls wrong(block) for each page that is not there as it should be.
// Unreadable stretches are read again page by page. Ends early once `stop` says so; how many were
// looked at.
Task<uint64_t> CheckPages(Core& core, DeviceIndex ssd, Pages pages,
                          const std::function<bool()>& stop,
                          const std::function<void(uint64_t block)>& wrong);

}  // namespace eplog
