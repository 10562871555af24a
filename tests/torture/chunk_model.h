// What one chunk of a volume may hold: the oracle of P1 to P3 for a single chunk.
//
// `states` are the contents that the chunk may have at this moment: one, unless writes are in
// flight or ended without a known order. Each knows which of the writes in flight it contains.
// `versions` are all contents that it may have had, each with the moment until when: what a crash
// may bring back is every version that was still possible when the last successful flush of the
// chunk was called, or later. A version is a whole chunk; nothing else is ever right.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace eplog::torture {

using Content = std::shared_ptr<const std::vector<std::byte>>;  // one chunk; null is zeros

// Content equals `got` from byte `begin` of the chunk on.
bool SameBytes(const Content& content, size_t begin, std::span<const std::byte> got);

class ChunkModel {
 public:
  static constexpr size_t kMaxPending = 3;  // the number of states grows with its factorial
  static constexpr size_t kMaxStates =
      32;  // each write that failed may double it; a read settles it

  [[nodiscard]] bool CanWrite() const {
    return pending_.size() < kMaxPending && states_.size() <= kMaxStates;
  }
  // Bytes from `begin` on are being written. The answer names the write for EndWrite.
  uint32_t BeginWrite(uint64_t now, size_t chunk_bytes, size_t begin,
                      std::span<const std::byte> data);
  // Not acknowledged: it may or may not have happened, and happens no more.
  void EndWrite(uint64_t now, uint32_t write, bool acknowledged);

  // May a read that ran since `since` have got this? If nothing was written meanwhile, what it got
  // is the truth.
  bool Read(uint64_t now, uint64_t since, size_t begin, std::span<const std::byte> got);

  // May this be found after a crash? `weak`: back to the last stable state instead of the last
  // flush, or the moment `since`.
  [[nodiscard]] bool MayBeFound(std::span<const std::byte> got, bool weak, uint64_t since) const;
  // After recovery: this is the content, and durable.
  void Found(uint64_t now, Content content);

  // A flush called at `called` succeeded; `oldest_reader` is the start of the oldest read in
  // flight.
  void Flushed(uint64_t called, bool stable_too, uint64_t oldest_reader);
  // The same for some of its bytes: what is found later has them as they were then, or newer.
  void PartFlushed(uint64_t called, size_t begin, size_t end);
  // Everything from byte `begin` on is zero in every version: the volume was cut there.
  void Truncate(uint64_t now, size_t begin, size_t chunk_bytes);

  // Whatever becomes of the writes in flight, it is not all zeros.
  [[nodiscard]] bool HoldsSomething() const;
  // What was written last was flushed.
  [[nodiscard]] bool IsDurable() const;
  [[nodiscard]] bool settled() const { return pending_.empty() && states_.size() == 1; }
  // The versions that a crash may leave, for people.
  [[nodiscard]] std::string Allowed(bool weak) const;

 private:
  static constexpr uint64_t kStill = std::numeric_limits<uint64_t>::max();
  struct State {
    Content content;
    uint32_t applied = 0;  // mask of the writes in flight that it contains
  };
  struct Version {
    Content content;
    uint64_t until = kStill;
  };
  struct Pending {
    uint32_t bit = 0;
    size_t begin = 0;
    Content data;
    bool whole = false;  // it covers the chunk
  };

  struct Part {
    uint64_t called = 0;
    size_t begin = 0;
    size_t end = 0;
  };

  void AddState(State state);
  void Close(size_t chunk_bytes);
  void Note(uint64_t now);

  std::vector<State> states_{State{}};
  std::vector<Version> versions_{Version{}};
  std::vector<Pending> pending_;
  uint64_t floor_ = 0;        // versions that ended before are lost for good (P2)
  uint64_t stable_ = 0;       // the same for the weak rule
  std::vector<Part> parts_;   // flushed since `floor_`; not for the weak rule
  uint64_t last_change_ = 0;  // of the set of states
};

}  // namespace eplog::torture
