// MetadataScrubber: every copy of what describes the data, as far as an opening may still need it:
// superblocks, pages of the newest checkpoint, headers in the log and in the journal rings since
// then. Works beside everything else: what is replaced meanwhile is not judged.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/checkpoint/checkpointer.h"
#include "engine/checkpoint/superblocks.h"
#include "engine/core/core.h"
#include "engine/core/findings.h"
#include "engine/log/flusher.h"

namespace eplog {

class MetadataScrubber {
 public:
  struct Parts {
    Flusher& flusher;
    Superblocks& superblocks;
    Checkpointer& checkpointer;
  };
  MetadataScrubber(Core& core, const Parts& parts, Findings& findings)
      : core_(core), parts_(parts), findings_(findings) {}

  // With `heal`, damaged superblocks are written again, and after anything else a full checkpoint
  // is: then nothing of the older one, and no journal before it, is needed any more.
  struct Options {
    bool heal = false;
    bool superblocks =
        true;  // after a crash a torn copy is nothing, and the next opening renews it
    const bool* closing = nullptr;
  };
  // Fails if it could not come to its end: the array closes, or has stopped.
  Task<Status> Run(Options options);
  // No checkpoint and no change of devices came between, again and again.
  [[nodiscard]] bool read_all() const { return read_all_; }

 private:
  // False if the checkpoint or the devices changed meanwhile.
  Task<bool> CheckOnce();
  Task<void> CheckSuperblocks();
  Task<void> CheckCheckpoint();
  Task<void> CheckLog();
  Task<void> CheckRing(DeviceIndex ssd);
  Task<Status> Heal();
  void Found(DeviceIndex device, std::string what, std::vector<size_t>& list);
  [[nodiscard]] bool Stop() const { return !core_.ScrubMayGoOn(closing_).ok(); }
  // The checkpoint and the devices are still those that were looked at.
  [[nodiscard]] bool Same() const;

  Core& core_;
  const Parts parts_;
  Findings& findings_;
  const bool* closing_ = nullptr;
  CheckpointPointer pointer_;
  CheckpointRoot root_;
  StatesNumber states_ = 0;
  bool read_all_ = false;
  std::vector<size_t> in_superblocks_;
  std::vector<size_t> elsewhere_;
};

}  // namespace eplog
