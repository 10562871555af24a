// Parity commit of PlArray: what the log says becomes parity on the SSDs.
#include <algorithm>
#include <map>
#include <utility>

#include "base/check.h"
#include "baseline/pages.h"
#include "baseline/pl_array.h"
#include "runtime/task_group.h"

namespace eplog {
namespace {

constexpr size_t kReadAtOnce = 256;   // places of the log
constexpr size_t kLinesAtOnce = 256;  // committed side by side

}  // namespace

// What is merged in RAM at a time. Its lines keep their differences in the log until their parity
// is written.
struct PlArray::Window {
  std::vector<ParityLog::Difference> differences;  // by place
  std::map<uint64_t, Merged> lines;
  Buffer memory;  // m pages of each line

  [[nodiscard]] std::byte* page(const Merged& merged, uint32_t m, uint32_t j) const {
    return memory.data() + (merged.at * m + j) * kPageBytes;
  }
};

Task<Status> PlArray::CommitAll() {
  const auto all = log_.All();
  if (all.empty()) {
    co_return OkStatus();
  }
  ++traffic_.commits;
  const uint64_t line_bytes = uint64_t{placement_.m()} * kPageBytes;
  const size_t most = std::max<uint64_t>(1, options_.commit_memory_bytes / line_bytes);
  for (size_t next = 0; next < all.size();) {
    Window window;
    for (; next < all.size() && window.lines.size() < most; ++next) {
      const auto [place, line] = all[next];
      if (log_.Holds(line, place)) {  // not void since
        Merged& merged =
            window.lines.try_emplace(line, Merged{{}, window.lines.size()}).first->second;
        merged.places.push_back(place);
        window.differences.push_back(all[next]);
      }
    }
    EPLOG_CO_AWAIT(CommitWindow(window));
  }
  co_return OkStatus();
}

Task<Status> PlArray::CommitWindow(Window& window) {
  if (!log_failed_) {
    window.memory = pool_.GetZeroed(window.lines.size() * placement_.m() * kPageBytes);
    EPLOG_CO_AWAIT(MergeLog(window));
  }
  TaskGroup group(loop_);
  for (const auto& [line, merged] : window.lines) {
    Task<void> below = group.WaitBelow(kLinesAtOnce);
    co_await below;
    group.Start(CommitLine(window, line, merged));
  }
  Task<Status> all = group.Wait();
  co_return co_await all;
}

Task<Status> PlArray::MergeLog(Window& window) {
  for (std::span<const ParityLog::Difference> rest(window.differences); !rest.empty();) {
    const auto some = rest.first(std::min(rest.size(), kReadAtOnce));
    rest = rest.subspan(some.size());
    EPLOG_CO_AWAIT(MergeSome(window, some));
  }
  co_return OkStatus();
}

// A line may be overwritten as a whole meanwhile, and its places taken by others. What is read then
// is garbage, and nobody looks at it: CommitLine sees that the line does not hold them any more.
Task<Status> PlArray::MergeSome(Window& window,
                                std::span<const ParityLog::Difference> differences) {
  const uint32_t m = placement_.m();
  const Buffer read = pool_.Get(differences.size() * m * kPageBytes);
  const auto wanted = [this](uint64_t line, uint32_t j) {
    return live(placement_.SsdOf(line, placement_.k() + j));
  };
  PartGroup group(loop_, plug_);
  for (size_t i = 0; i < differences.size(); ++i) {
    for (uint32_t j = 0; j < m; ++j) {
      if (wanted(differences[i].line, j)) {
        group.Add({.device = LogOf(j),
                   .io_class = IoClass::kCommitRead,
                   .offset_bytes = log_.offset_bytes(differences[i].place),
                   .memory = read.data() + (i * m + j) * kPageBytes,
                   .length_bytes = kPageBytes});
      }
    }
  }
  EPLOG_CO_AWAIT(group.Wait());
  for (size_t i = 0; i < differences.size(); ++i) {
    const Merged& merged = window.lines.at(differences[i].line);
    for (uint32_t j = 0; j < m; ++j) {
      if (wanted(differences[i].line, j)) {
        XorPage(window.page(merged, m, j), read.data() + (i * m + j) * kPageBytes);
      }
    }
  }
  co_return OkStatus();
}

Task<Status> PlArray::CommitLine(const Window& window, uint64_t line, const Merged& merged) {
  Task<LineLocks::Guard> locking = locks_.Lock(line);
  const LineLocks::Guard lock = co_await locking;
  if (!log_.Holds(line, merged.places[0])) {
    co_return OkStatus();  // written as a whole meanwhile
  }
  const Buffer pages = pool_.Get(size_t{kPageBytes} * placement_.n());
  EPLOG_CO_AWAIT(log_failed_ ? EncodedParity(line, pages)
                             : MergedParity(window, line, merged, pages));
  PartGroup group(loop_, plug_);
  AddPages(group, line, LivePositions(line) & ~LowBits(placement_.k()), pages,
           IoClass::kParityWrite);
  EPLOG_CO_AWAIT(group.Wait());
  ++traffic_.lines_committed;
  // Anew from all data, it covers what was logged since the window was made, too.
  log_.Forget(line, log_failed_ ? log_.PlacesOf(line).size() : merged.places.size());
  co_return OkStatus();
}

Task<Status> PlArray::MergedParity(const Window& window, uint64_t line, const Merged& merged,
                                   const Buffer& pages) {
  const uint64_t parity = LivePositions(line) & ~LowBits(placement_.k());
  PartGroup group(loop_, plug_);
  AddPages(group, line, parity, pages, IoClass::kCommitRead);
  EPLOG_CO_AWAIT(group.Wait());
  ForEachBit(parity, [&](uint32_t position) {
    XorPage(pages.data() + size_t{kPageBytes} * position,
            window.page(merged, placement_.m(), position - placement_.k()));
  });
  co_return OkStatus();
}

// Where a log device has failed, its differences are gone: parity anew, from all data.
Task<Status> PlArray::EncodedParity(uint64_t line, const Buffer& pages) {
  EPLOG_CO_AWAIT(Load(line, LowBits(placement_.k()), pages, IoClass::kCommitRead));
  Encode(pages);
  co_return OkStatus();
}

}  // namespace eplog
