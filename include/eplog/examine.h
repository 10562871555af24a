// Looking before opening: whose member each of a heap of devices is, and what would become of it if
// the array were opened from them. The same judgement as that of Array::Open, which refuses where
// this explains. Reads superblocks, changes nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "eplog/device.h"
#include "eplog/options.h"
#include "eplog/task.h"

namespace eplog {

enum class MemberVerdict : uint8_t {
  kPart,        // belongs to its array as that stands
  kSpare,       // of an array: no member yet
  kStale,       // missed what the others did since, or another has its place
  kDoubled,     // not alone in saying that it is this member
  kTruncated,   // smaller than its array needs
  kDamaged,     // nothing to be trusted is left of its superblock
  kUnreadable,  // does not answer
  kNewer,       // of a newer format
  kNoMember,    // of no array
};

// As scripts read them.
constexpr const char* MemberVerdictName(MemberVerdict verdict) {
  switch (verdict) {
    case MemberVerdict::kPart:
      return "part";
    case MemberVerdict::kSpare:
      return "spare";
    case MemberVerdict::kStale:
      return "stale";
    case MemberVerdict::kDoubled:
      return "doubled";
    case MemberVerdict::kTruncated:
      return "truncated";
    case MemberVerdict::kDamaged:
      return "damaged";
    case MemberVerdict::kUnreadable:
      return "unreadable";
    case MemberVerdict::kNewer:
      return "newer";
    case MemberVerdict::kNoMember:
      return "no_member";
  }
  return "unknown";
}

inline constexpr size_t kNoArray = SIZE_MAX;

struct ExaminedDevice {
  Device* device = nullptr;
  MemberVerdict verdict = MemberVerdict::kNoMember;
  size_t array = kNoArray;    // in Examination::arrays
  std::string member;         // ssd0 ..., log0 ..., spare: what it says it is; empty: nothing
  uint64_t epoch = 0;         // the last one that it took part in
  uint32_t whole_copies = 0;  // of the two of its superblock
  std::string why;            // the rest of the sentence; empty where the verdict says it all
};

struct ExaminedArray {
  std::string uuid;
  std::string name;
  uint32_t data_chunks = 0;
  uint32_t parity_chunks = 0;
  uint32_t chunk_bytes = 0;
  JournalMode journal = JournalMode::kFull;
  uint64_t capacity_bytes = 0;
  uint64_t epoch = 0;                // that counts; 0 if none does
  std::vector<std::string> missing;  // members for which there is nobody
  std::vector<std::string> joining;  // there, and not everything is on them yet
  std::string why_not;               // not empty: it cannot be opened, and why
  uint32_t further_losses_survived = 0;

  [[nodiscard]] bool opens() const { return why_not.empty(); }
  [[nodiscard]] bool whole() const { return opens() && missing.empty() && joining.empty(); }
};

struct Examination {
  std::vector<ExaminedDevice> devices;  // as given
  std::vector<ExaminedArray> arrays;    // in the order in which they were met
};

// Borrowed, each given once.
Task<Examination> ExamineDevices(std::vector<Device*> devices);

}  // namespace eplog
