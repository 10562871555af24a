// A simple array that keeps every promise by brute force, to prove the harness: all SSDs are
// mirrors of each other, a record log with checksums and a snapshot when it is full. Broken
// variants prove that the harness sees.
//
// Who missed an opening is kept outside of the devices (ToyMembers), which spares the toy the hard
// part of EPLOG.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/torture/machine.h"

namespace eplog::torture {

enum class ToyBug : uint8_t {
  kNone,
  kNoFlush,           // a flush is not sent
  kFlushOne,          // a flush is sent to one mirror only
  kTornAccepted,      // records are replayed without their checksum
  kStaleRead,         // a read may return what was before the last write
  kLostWrite,         // now and then a write is acknowledged and forgotten
  kVolumeNotDurable,  // volume changes return before they are flushed
  kDirtyVolume,       // a new volume shows what a deleted one held
  kTailKept,          // what a shrink cut off comes back
  kHang,              // now and then a flush never answers
  kUnserialised,      // writes of parts of one chunk overwrite each other
  kUnstableOpen,      // recovery makes nothing durable
  kTrustsStale,       // a mirror that missed openings is believed
  kWritesReadOnly,    // a read-only opening writes
  kTardy,             // now and then a write is answered long after the others
  kErrorAcked,  // a write that failed on one mirror is acknowledged, and not sent to the others
  kErrorHangs,  // a failed write never answers
};
inline constexpr int kToyBugs = 17;
inline constexpr int kToyFaultBugs = 2;  // the last ones show only under injected faults
const char* ToyBugName(ToyBug bug);

struct ToyMembers {
  std::set<std::string> dropped;
  ToyBug bug = ToyBug::kNone;
};

class ToyFactory final : public ArrayFactory {
 public:
  explicit ToyFactory(ToyBug bug) { members_.bug = bug; }
  Task<Status> Create(EventLoop& loop, std::vector<Device*> ssds, std::vector<Device*> logs,
                      CreateOptions options) override;
  Task<Result<std::unique_ptr<Array>>> Open(EventLoop& loop, std::vector<Device*> devices,
                                            OpenOptions options, EngineHooks* hooks) override;
  [[nodiscard]] uint64_t min_ssd_bytes() const override;
  void Reset() override { members_.dropped.clear(); }

 private:
  ToyMembers members_;
};

}  // namespace eplog::torture
