// A world: one seed from the creation of its array through several lives, crashes and recoveries to
// its end.
//
// Opening may be struck again and again. After a crash, and now and then while running, copies of
// the machine are crashed in other ways, with other devices lost, recovered in RAM (read-only
// opening) and judged: a what-if crash changes nothing. The devices that a world may lose are
// chosen at its beginning, at most m, so that a refusal to open is never right; a device that
// missed an opening for writing is passed in now and then and must be ignored.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "base/random.h"
#include "tests/torture/coverage.h"
#include "tests/torture/device_fate.h"
#include "tests/torture/inspect.h"
#include "tests/torture/machine.h"
#include "tests/torture/oracle.h"
#include "tests/torture/plan.h"
#include "tests/torture/workload.h"

namespace eplog::torture {

struct WorldOptions {
  uint64_t seed = 0;
  Canary canary = Canary::kNone;
  bool verbose = false;
};

class World {
 public:
  World(ArrayFactory& factory, const WorldOptions& options);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  // Empty: no promise was broken. Otherwise what, in one line.
  std::string Run();

  [[nodiscard]] const Coverage& coverage() const { return coverage_; }
  // Of everything submitted and every answer.
  [[nodiscard]] uint64_t hash() const;
  [[nodiscard]] const SeedPlan& plan() const { return plan_; }

 private:
  enum class Ending : uint8_t { kCrash, kClose };

  void Create();
  bool CreateOnce(bool force);
  void OpenAgain();
  bool TryOpen(bool may_be_struck);
  void Live();
  void EndByCrash();
  void EndByClose();
  void Crash(bool recovering);
  void Finish();
  void ProbeCorruption();
  void ProbeDamage();
  void ProbeBeyond();
  void ProbeBack();
  void ProbeStopped();
  void ProbeAbsence();
  void ProbeStruckOpenings();
  bool StrikeOpening(Machine& copy, const DeviceSet& absent, const DeviceSet& knowing);
  DeviceSet SomeOfThoseThere();
  bool LookAt(Machine& copy, Inspection& inspection, const std::string& what);
  void ExpectRefusal(Machine& copy, const DeviceSet& lost);
  void OpenByForce(Machine& copy, const DeviceSet& lost);
  void ArmStop(const DeviceSet& well, bool opening);
  [[nodiscard]] DeviceSet Well() const;
  void MeetStop(const Doom& doom);
  void ArmNoSpace();
  void MeetNoSpace(const Doom& doom);
  void ExpectStopped();
  void LearnWhoIsAway(const ArrayStatus& status);
  using EntryMark = std::array<std::byte, 72>;  // what the header of an entry begins with
  struct Damaged {
    std::string what;
    DeviceSet lost;
    uint64_t most_harmed = 0;  // chunks
    // What of metadata was hit.
    DeviceSet superblocks;
    DeviceSet pages;
    DeviceSet headers;                              // log devices
    std::set<std::pair<uint8_t, uint64_t>> places;  // of headers and ring blocks: byte offsets
    std::vector<EntryMark> log_entries;             // that these told of
    std::vector<EntryMark> ring_entries;
    bool beyond_metadata = false;  // all copies of a header may be gone, or all superblocks
    bool may_refuse = false;       // all copies of a page, or too many that count as lost
    bool weak = false;             // as in journal mode log without the logs
  };
  void Damage(Machine& copy, DeviceSet& hit, Damaged& damaged);
  void DamageOne(Machine& copy, uint8_t device, bool metadata, bool newest, Damaged& damaged,
                 DeviceSet& hit);
  bool DamageSuperblocks(Machine& copy, uint8_t device);
  void JudgeDamage(const Machine& copy, Damaged& damaged) const;
  [[nodiscard]] bool IsOn(const Machine& copy, uint8_t device, const EntryMark& entry,
                          const Damaged& damaged) const;
  bool OpenDamaged(Machine& copy, const Damaged& damaged, bool read_only, uint64_t& told);
  void Probe(bool with_losses);
  // True: it opened. `may_refuse`: since more than m may be missing.
  bool RunProbe(Machine& copy, const DeviceSet& lost, bool full_check, const std::string& what,
                bool may_refuse = false);

  void Reconcile(const ArrayStatus& status, const DeviceSet& withheld);
  Strike RandomStrike(bool recovering);
  void ArmDooms(bool opening);
  void MeetDoom(const Doom& doom);
  [[nodiscard]] DeviceSet AllBut(const DeviceSet& devices) const;
  void CountPairs(bool recovering);
  Task<void> RepairMan();
  Task<void> TakeOut();
  void Convalesce();
  Task<void> Replace(uint8_t device);
  void NoteRepaired();
  [[nodiscard]] bool SomeLogJoins(const ArrayStatus& status) const;
  void NoteLostLogs(const ArrayStatus& status);
  void ChooseUnreliable();
  void GoBack();
  DeviceSet ChooseWithheld();
  [[nodiscard]] bool MayBeTrusted(uint8_t device) const;
  [[nodiscard]] DeviceSet Forgetful() const;
  [[nodiscard]] bool TrustsAStaleDevice() const;
  void CheckFailedFlushes();
  void LoseForgotten(bool power);
  DeviceSet ChooseLost(bool ssds = false);
  [[nodiscard]] bool AllLogsIn(const DeviceSet& devices) const;
  [[nodiscard]] bool HasTheOnlyHeaders(uint8_t device) const;
  OpenOptions Options(EngineHooks& hooks);
  [[nodiscard]] bool failed() const { return !scene_.violation.empty(); }
  void Violate(const std::string& what);
  void Stalled(const std::string& what);
  void Say(const std::string& text);
  void DropArray();

  ArrayFactory& factory_;
  WorldOptions options_;
  SeedPlan plan_;
  Random random_;
  EngineHooks hooks_;
  BufferPool pool_;  // outlives every frame
  Coverage coverage_;
  Oracle oracle_;
  Scene scene_;
  std::unique_ptr<Machine> machine_;
  std::unique_ptr<Array> array_;
  std::unique_ptr<Workload> work_;
  Inspection* inspecting_ = nullptr;  // the opening for writing that is under way
  DeviceSet unreliable_;              // may be withheld from openings: at most m; chosen, no fate
  DeviceFates fates_;
  std::array<bool, kFailures> failures_{};  // by style: since the last opening was complete
  bool unknown_ = false;        // since some were unplugged no opening has told who is still a part
  DeviceSet away_;              // what may be missing in this life: withheld now, or stale
  bool look_soon_ = false;      // a device is ok again
  bool convalescing_ = false;   // nothing strikes
  bool alone_ = false;          // the unreliable ones know of a struck opening that no other does
  bool opening_ = false;        // an opening has begun and not ended
  bool logs_degraded_ = false;  // flushes wait for the rings, since some log device is lost
  bool logs_joining_ = false;   // some log device is, or that it is ok may be written down
  std::optional<uint64_t> log_lost_us_;    // while running: since when that was seen
  bool log_seen_joining_ = false;          // when that was looked at last
  std::optional<uint64_t> log_joined_us_;  // until when one may have been
  uint64_t crashes_ = 0;
};

}  // namespace eplog::torture
