// The requests of one life of an array, and what is asked of their answers. Every answer goes to
// the oracle.
//
// A violation is recorded once and ends the life; nothing here throws. Coroutines of a Workload
// live on its loop: abort the loop before the Workload or its array goes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/random.h"
#include "eplog/array.h"
#include "eplog/event_loop.h"
#include "tests/torture/coverage.h"
#include "tests/torture/oracle.h"
#include "tests/torture/plan.h"

namespace eplog::torture {

// What lives longer than one life of the array.
struct Scene {
  const SeedPlan& plan;
  Oracle& oracle;
  Random& random;
  BufferPool& pool;
  Coverage& coverage;
  std::string violation;  // the first; empty: none
  uint64_t last_write = 0;
  uint64_t lies = 0;                              // counts devices that begin to, while running
  uint64_t hash = 0;                              // of every answer
  std::function<void(const std::string&)> trace;  // may be empty
  // May something on this device be wrong? Reliable ones never lie.
  std::function<bool(size_t device, uint64_t since_us)> suspect = nullptr;
  // Everything on all devices was found right, or put right, and written down.
  std::function<void()> whole = nullptr;
  // When the latest that had to wait, and was answered with success, began.
  uint64_t flush_begun_us = 0;

  void Violate(const std::string& what) {
    if (violation.empty()) {
      violation = what;
    }
  }
  void Mix(uint64_t value) { hash = (hash ^ value) * 0x9E3779B97F4A7C15ULL + 1; }
};

class Workload {
 public:
  // `tolerant`: any request may fail, because faults are injected.
  Workload(Scene& scene, Array& array, EventLoop& loop, bool tolerant);

  void set_tolerant() { tolerant_ = true; }

  // ---- random work
  void set_operations(uint64_t operations) { operations_left_ = operations; }
  void Spawn(uint32_t workers);
  [[nodiscard]] bool idle() const { return workers_ == 0; }
  [[nodiscard]] uint64_t operations_left() const { return operations_left_; }
  // Simulated time of the last answer.
  [[nodiscard]] const uint64_t& progress_us() const { return progress_us_; }
  // Somebody wants to look at a copy of the machine between two steps.
  [[nodiscard]] bool TakeProbe() { return std::exchange(probe_wanted_, false); }

  // ---- single requests
  Task<void> Write(VolumeKey key, uint64_t offset_bytes, uint64_t length_bytes, uint64_t write_id);
  Task<void> Trim(VolumeKey key, uint64_t offset_bytes, uint64_t length_bytes, TrimMode mode);
  Task<void> Read(VolumeKey key, uint64_t offset_bytes, uint64_t length_bytes);
  Task<void> Flush(VolumeKey key, uint64_t offset_bytes, uint64_t length_bytes);
  Task<void> FlushAll();
  Task<void> Commit();
  Task<void> Scrub();
  Task<void> Checkpoint(CheckpointKind kind);
  Task<void> CreateVolume(std::string name, uint64_t size_bytes);
  Task<void> ResizeVolume(VolumeKey key, uint64_t size_bytes);
  Task<void> RenameVolume(VolumeKey key, std::string name, VolumeKey victim);
  Task<void> DeleteVolume(VolumeKey key, bool under_users);
  // Ends the life. The array may be destroyed once `closed()`.
  Task<void> Close();
  [[nodiscard]] bool closed() const { return closed_; }
  [[nodiscard]] bool close_ok() const { return close_ok_; }

  [[nodiscard]] uint64_t FreshWrite() { return ++scene_.last_write; }

 private:
  struct Range {
    VolumeKey key = 0;
    uint64_t offset_bytes = 0;
    uint64_t length_bytes = 0;
  };

  Task<void> Worker();
  Task<void> RunOp(Op op);
  Task<void> RandomWrite(Op op);
  Task<void> RandomTrim();
  Task<void> RandomVolumeChange(Op op);
  Op PickOp();
  void NoteFlushed(uint64_t begun_us);
  VolumeKey PickVolume(bool unused);
  Range PickRange(Op op);
  Range Inside(const VolumeModel& volume, uint64_t offset_bytes, uint64_t length_bytes) const;
  std::string FreeName();
  uint64_t RandomSize();
  [[nodiscard]] uint64_t Promised() const;
  [[nodiscard]] bool Overcommitted() const;
  // Count an answer, and say so if that error was not called for.
  void Answer(const char* what, const Status& status, bool excused);
  [[nodiscard]] bool Stopped() const;
  void ExpectRefused(const char* what, bool stopped, const Status& status);
  void ExpectInTime(const char* what, uint64_t begun_us);
  void EndUse(VolumeKey key);
  void Trace(const std::string& text);

  Scene& scene_;
  Oracle& oracle_;
  Array& array_;
  EventLoop& loop_;
  bool tolerant_;
  uint64_t freeing_ = 0;  // requests so far that may give space back
  uint64_t operations_left_ = 0;
  uint32_t workers_ = 0;
  uint64_t progress_us_;
  bool change_running_ = false;
  bool probe_wanted_ = false;
  bool closing_ = false;
  bool closed_ = false;
  bool close_ok_ = false;
  Range last_written_;
};

}  // namespace eplog::torture
