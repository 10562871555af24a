// Player: sends the requests of a feed to a target, and measures. One run of one policy.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <string>

#include "base/buffer.h"
#include "eplog/event_loop.h"
#include "eplog/result.h"
#include "replay/content.h"
#include "replay/feed.h"
#include "replay/result.h"
#include "replay/settings.h"
#include "replay/target.h"
#include "runtime/sync.h"

namespace eplog {

class Player {
 public:
  Player(EventLoop& loop, const ReplaySettings& settings, Feed& feed, Target& target, Rig& rig,
         PolicyResult& result)
      : loop_(loop),
        settings_(settings),
        feed_(feed),
        target_(target),
        rig_(rig),
        result_(result),
        content_(feed.span_bytes()),
        changed_(loop) {}

  // Everything that the trace touches, as whole stripes.
  Task<Status> Prefill();
  // All requests, then a flush. `progress` is called now and then with the number of requests.
  Task<Status> Play(std::function<void(uint64_t)> progress);
  // Everything is what was written there.
  Task<Status> Verify();

 private:
  struct InFlight {
    uint64_t begin = 0;
    uint64_t end = 0;
    bool writes = false;
  };
  using Place = std::list<InFlight>::iterator;

  Task<void> Worker();
  Task<void> OpenLoop();
  struct Taken {
    TraceRequest request;
    bool flush = false;   // after it
    bool commit = false;  // after that
    bool alone = false;   // with nothing else in flight
  };
  Task<std::optional<Taken>> Take();
  // `since_us`: when it should have been sent.
  Task<void> Send(Taken taken, uint64_t since_us);
  Task<Status> Run(TraceRequest request);
  Task<Status> Write(TraceRequest request);
  Task<Status> Read(TraceRequest request);
  Task<void> WaitForTurn(Place place);
  Task<Status> FlushAlone();
  Task<void> CommitAlone();
  void AddShare(Spread& spread, uint64_t bytes) const;
  void Sample();
  void Stop(Status status);
  [[nodiscard]] uint64_t WrittenToSsds() const;

  EventLoop& loop_;
  const ReplaySettings& settings_;
  Feed& feed_;
  Target& target_;
  Rig& rig_;
  PolicyResult& result_;
  Content content_;
  BufferPool pool_;
  std::function<void(uint64_t)> progress_;

  std::list<InFlight> in_flight_;  // in order of arrival
  Event changed_;
  uint64_t taken_ = 0;
  uint64_t taken_writes_ = 0;
  uint64_t running_ = 0;  // requests that are sent or wait for their turn
  uint64_t workers_ = 0;
  bool alone_ = false;  // a flush or commit is due: nothing new until it has ended
  bool ended_ = false;
  Status failure_;
  uint64_t begun_us_ = 0;
  uint64_t base_slot_bytes_ = 0;
  uint64_t sample_every_ = 1000;
};

}  // namespace eplog
