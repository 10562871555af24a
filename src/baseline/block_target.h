// BlockTarget: a linear volume that requests can be replayed against, whatever is behind it: Linux
// MD as it would do it (md_array.h), classic parity logging (pl_array.h), or an adapter of EPLOG.
//
// Requests may be in flight in any number, from coroutines of one loop. Those that overlap have no
// order, but each page of 4 KiB ends up as if they had come one after the other. A read that
// overlaps a write in flight gets, page by page, what was before or after it. Ranges are whole
// sectors of 512 bytes inside the volume (kInvalidArgument otherwise); memory is aligned to what
// the devices ask for, belongs to the target until the request completes, and does not change
// meanwhile.
//
// What an acknowledgement means differs: data and parity are on the devices (md), or data and its
// log are (pl). Durable after Flush, as far as that may be said of programs that keep no journal:
// they are measured, not trusted with data. An error of a device is returned to the requests that
// needed it; the parity of the lines they touched is then undefined.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "eplog/result.h"
#include "eplog/task.h"

namespace eplog {

// What bytes are moved for. Every byte that reaches or leaves a device is of one class.
enum class IoClass : uint8_t {
  kUserRead,         // a read asked for it
  kFillRead,         // the rest of a page that is written in part
  kModifyRead,       // old data and old parity, to change parity by the difference
  kReconstructRead,  // data that is not written, to compute parity anew
  kDecodeRead,       // to decode what a failed device held; from log devices too
  kCommitRead,       // at parity commit: log, old parity, data
  kDataWrite,
  kParityWrite,
  kLogWrite,
};
inline constexpr size_t kIoClasses = 9;
[[nodiscard]] const char* IoClassName(IoClass io_class);
[[nodiscard]] constexpr bool IsWrite(IoClass io_class) {
  return io_class >= IoClass::kDataWrite;
}

struct DeviceTraffic {
  uint64_t reads = 0;  // requests, after merging
  uint64_t writes = 0;
  uint64_t flushes = 0;
  uint64_t bytes_read = 0;
  uint64_t bytes_written = 0;
};

// Exact: the classes add up to what the devices counted, to the byte.
struct TargetTraffic {
  TargetTraffic(size_t ssd_count, size_t log_count) : ssds(ssd_count), logs(log_count) {}

  uint64_t user_reads = 0;
  uint64_t user_writes = 0;
  uint64_t user_flushes = 0;
  uint64_t user_trims = 0;
  uint64_t user_bytes_read = 0;
  uint64_t user_bytes_written = 0;
  // How the parity of a line came about, each time it was written or logged.
  uint64_t lines_full = 0;           // all data was written: nothing to read
  uint64_t lines_modified = 0;       // from differences
  uint64_t lines_reconstructed = 0;  // from all data, some of it not written
  uint64_t lines_logged = 0;         // differences went to the log
  uint64_t commits = 0;
  uint64_t lines_committed = 0;
  std::array<uint64_t, kIoClasses> class_bytes{};
  std::vector<DeviceTraffic> ssds;
  std::vector<DeviceTraffic> logs;

  [[nodiscard]] uint64_t bytes(IoClass io_class) const {
    return class_bytes[static_cast<size_t>(io_class)];
  }
  [[nodiscard]] DeviceTraffic SsdTotal() const;
  [[nodiscard]] DeviceTraffic LogTotal() const;
};

class BlockTarget {
 public:
  virtual ~BlockTarget() = default;

  virtual Task<Status> Read(uint64_t offset_bytes, std::span<std::byte> into) = 0;
  virtual Task<Status> Write(uint64_t offset_bytes, std::span<const std::byte> from) = 0;
  // The content of the range may be anything afterwards.
  virtual Task<Status> Trim(uint64_t offset_bytes, uint64_t length_bytes) = 0;
  // What was acknowledged is durable on return.
  virtual Task<Status> Flush() = 0;
  // Parity covers everything acknowledged before the call. Nothing to do where it always does.
  virtual Task<Status> Commit() = 0;
  // Waits for requests in flight, then commits. Later requests get kShutdown. To be destroyed only
  // afterwards, or after EventLoop::Abort.
  virtual Task<Status> Close() = 0;

  [[nodiscard]] virtual uint64_t size_bytes() const = 0;
  [[nodiscard]] virtual const TargetTraffic& traffic() const = 0;
  // Lines whose parity on the SSDs is old.
  [[nodiscard]] virtual size_t pending_lines() const { return 0; }
  // "md", "pl": for tables.
  [[nodiscard]] virtual std::string name() const = 0;
};

}  // namespace eplog
