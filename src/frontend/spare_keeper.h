// SpareKeeper: the spares of a served array, and when one steps in. Whenever the array lacks a
// device, the smallest spare that fits is put in its place, as by hand with `replace`; the engine
// rebuilds it. What a spare is on disk and where it is written down is for the SpareShelf to know.
//
// The order, so that a kill at any point leaves an array that goes on:
//   1. The engine wipes the spare and takes it in: from the moment that its superblocks say so it
//   is
//      a member, whatever array.toml says.
//   2. The shelf writes down that the member is there now, and the spare no more.
// Killed in 1., the device is blank, or says that it was joining an array that goes on without it:
// the shelf makes it a spare again. Killed between 1. and 2., it is found to be a member at the
// next opening, and 2. is done then.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "eplog/array.h"
#include "eplog/device.h"
#include "eplog/event_loop.h"
#include "eplog/events.h"
#include "eplog/result.h"
#include "eplog/task.h"
#include "host/spare_shelf.h"
#include "runtime/sync.h"

namespace eplog {

class SpareKeeper {
 public:
  // `tell` takes what happens to spares; may be empty.
  SpareKeeper(EventLoop& loop, Array& array, SpareShelf& shelf, EventSink tell)
      : loop_(loop),
        array_(array),
        shelf_(shelf),
        tell_(std::move(tell)),
        wake_(loop),
        turn_(loop),
        openings_(loop) {}

  // Until Stop.
  Task<void> Run();
  // Until every listed spare has been looked at, at the latest until `deadline_us`.
  Task<void> Looked(uint64_t deadline_us);
  // Returns when Run has ended, whether or not it had begun: nothing steps in any more.
  Task<void> Stop();
  // What happens to the array. In the middle of its work: only wakes Run.
  void Notice(const ArrayEvent& event);

  // Steps in at once if the array lacks what it fits. kExists: it is a spare already.
  Task<Status> Add(std::string path, DeviceIdentity looked_at);
  // kNotFound: it is no spare, or stepped in meanwhile.
  Task<Status> Remove(std::string path);
  // Under which path this device is a spare that can be used; empty: it is none.
  [[nodiscard]] std::string PathOf(const Device& device) const;
  // This one for this device, chosen by hand: a spare or not. Nothing else happens to spares
  // meanwhile: should it fail at once, whatever steps in for it is written down after it. The
  // result: why it could not be written down, though it has joined; empty if it was.
  Task<Result<std::string>> Replace(uint32_t device, Device& replacement);

  // As `status` shows them: spare0, spare1, ...
  [[nodiscard]] std::vector<DeviceStatus> List() const;

 private:
  struct Spare {
    std::string path;
    SpareDevice open;     // no device: missing
    bool failed = false;  // when it was to step in; not tried again
    std::string why;      // missing or failed
  };
  enum class Outcome : uint8_t { kSteppedIn, kTryAnother, kLater };

  Task<void> LookAround();
  Task<void> Settle();
  void OpenMissing();
  Task<void> Open(std::string path);
  Task<AsyncMutex::Guard> TurnOf(std::string path);
  Task<void> Fill(uint32_t device);
  // `why`: what went wrong; also when it has stepped in, and that could not be written down.
  Task<Outcome> StepIn(uint32_t device, std::string path, const Device* only, Error& why);
  Task<Result<std::string>> TakeIn(uint32_t device, Device& replacement);
  Task<Status> LookAgain(std::string path, const Device* only);
  Task<Status> Accept(std::string path, Result<SpareDevice> opened);
  void GiveUp(const std::string& path, const Error& why);
  [[nodiscard]] Status CheckNoMember(const std::string& path) const;
  [[nodiscard]] bool MayFill(uint32_t device) const;
  [[nodiscard]] std::string PickFor(DeviceRole role) const;
  [[nodiscard]] Spare* Find(const std::string& path);
  void Tell(EventKind kind, const std::string& device, const std::string& text) const;
  void Wake();

  EventLoop& loop_;
  Array& array_;
  SpareShelf& shelf_;
  EventSink tell_;
  Event wake_;
  AsyncMutex turn_;  // one change of the spares at a time; nobody who has it waits for an opening_
  std::vector<Spare> spares_;
  std::set<std::string> opening_;  // paths that are just being looked at, beside all else
  WaitGroup openings_;
  bool had_any_ = false;            // in this life
  std::set<std::string> unfilled_;  // members for which none was left, as told
  bool looked_ = false;
  bool look_again_ = true;  // at what is missing: something has happened since
  bool woken_ = false;
  bool running_ = false;
  bool stopping_ = false;
};

}  // namespace eplog
