// StateLoader: from the runs of a checkpoint to a state.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "eplog/result.h"
#include "format/checkpoint.h"
#include "metadata/state.h"

namespace eplog {

// Fills a fresh state. Runs are decoded into it from the oldest on, each after BeginRun. What
// contradicts itself is remembered, since a checkpoint comes from a disk, and said by Finish.
class StateLoader final : public RunVisitor {
 public:
  explicit StateLoader(State& state);
  // `newest`: what older ones say is pending is void.
  void BeginRun(bool newest) { newest_ = newest; }
  // `sequence` and `place`: those at which the root says that the log goes on.
  Status Finish(uint64_t sequence = UINT64_MAX, uint64_t place = UINT64_MAX);

  void RowGroup(uint32_t group, std::span<const RowWord> words) override;
  void Row(StripeIndex stripe, std::span<const RowWord> words) override;
  void LogStripe(const LogStripeItem& item) override;
  void Zeros(const ZerosItem& item) override;
  void Volume(const VolumeItem& item) override;
  void Extent(const ExtentItem& item) override;
  void ExtentFreed(ExtentIndex extent) override;
  void AllVolumes() override { volumes_.clear(); }

 private:
  struct Pending {
    uint64_t sequence = 0;
    uint64_t place = 0;
    std::vector<LogStripeMember> members;
    std::vector<bool> superseded;
    std::vector<uint32_t> log_crcs;
  };
  bool AddPending(const Pending& item);
  bool AddVolumes();
  bool AddExtents();

  State& state_;
  bool newest_ = true;
  bool consistent_ = true;
  std::vector<Pending> pendings_;
  std::map<uint32_t, VolumeItem> volumes_;
  std::vector<VolumeTable::Owner> owners_;
};

}  // namespace eplog
