// Open an array, look at everything in it, and close it again: how every recovery is judged.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "engine/core/hooks.h"
#include "eplog/array.h"
#include "tests/torture/machine.h"
#include "tests/torture/oracle.h"

namespace eplog::torture {

// More may be damaged than parity can replace: then something reads wrong or not at all. What, is
// judged by how much.
struct Harm {
  uint64_t unreadable = 0;  // chunks
  uint64_t old = 0;         // chunks that hold what a flush had superseded
  std::string first;        // of them, for people
  struct Unreadable {
    std::string why;
    bool durable = false;  // it was flushed
  };
  std::map<std::pair<std::string, uint64_t>, Unreadable> unreadable_at;  // volume, offset in bytes
  std::string unnamed;  // what FindLost does not say of these, or says though it is not so
};

struct Inspection {
  // in
  std::vector<Device*> devices;
  OpenOptions options;
  EngineHooks* hooks = nullptr;
  bool weak = false;        // judge by the weaker rule of journal mode log
  bool adopt = false;       // what is found becomes the truth
  bool full_check = false;  // Array::Check must find nothing
  bool whole = false;       // every device must be ok
  bool rewrites = false;    // before that, some chunks are written as they are, flushed, committed
  bool close = false;       // at the end
  bool may_refuse = false;  // for want of devices
  bool tolerant =
      false;  // faults are injected: an error ends the inspection, which then says so by `failed`
  Harm* harm = nullptr;    // if set, what reads wrong is noted there
  bool find_lost = false;  // with `harm`: FindLost must name just what cannot be read
  // out
  std::string wrong;  // empty: all is well
  std::unique_ptr<Array> array;
  bool opened = false;
  bool log_damaged = false;  // says FindLost
  bool failed = false;
  bool done = false;
};

// Drive this on the loop of the devices; `inspection` and all else outlive it.
Task<void> Inspect(ArrayFactory& factory, EventLoop& loop, Oracle& oracle, BufferPool& pool,
                   Inspection& inspection);

// What cannot be read of an array that nobody works with, against what FindLost names.
struct LossComparison {
  std::string wrong;
  uint64_t lost_chunks = 0;
  bool compared = false;  // not if another device was lost meanwhile
  bool done = false;
};
Task<void> CompareLosses(Array& array, BufferPool& pool, uint64_t chunk_bytes,
                         LossComparison& comparison);

// For messages: what an array says of itself.
std::string StatusText(const ArrayStatus& status);

}  // namespace eplog::torture
