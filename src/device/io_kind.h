// What a request to a member is for: the classes in which traffic is counted and tests strike.
#pragma once

#include <cstdint>

namespace eplog {

enum class IoKind : uint8_t {
  kRead,
  kData,    // data chunks to slots (a merged write may carry parity chunks too)
  kParity,  // parity chunks to slots
  kEntry,   // header and log chunks to log devices
  kRing,    // journal block to an SSD ring
  kCheckpointPage,
  kCheckpointRoot,
  kSuperblock,
  kRepair,  // recovery puts back a chunk, header or log chunk
  kFlush,
  kDiscard,
};
inline constexpr int kIoKinds = 11;

}  // namespace eplog
