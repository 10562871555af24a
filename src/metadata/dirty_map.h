// DirtyMap: a set of indexes, 64 to a group, for which nothing is kept until one of the
// neighbourhood is set. Emptying it is moving it away.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

namespace eplog {

class DirtyMap {
 public:
  void Set(uint32_t index) {
    const uint32_t group = index / 64;
    const size_t page = group / kPage;
    if (page >= pages_.size()) {
      pages_.resize(page + 1);
    }
    if (!pages_[page]) {
      pages_[page] = std::make_unique<Page>();
    }
    uint64_t& mask = (*pages_[page])[group % kPage];
    const uint64_t bit = uint64_t{1} << (index % 64);
    count_ += (mask & bit) == 0 ? 1 : 0;
    mask |= bit;
  }
  // Which of the indexes 64 * group ... are in it.
  [[nodiscard]] uint64_t Group(uint32_t group) const {
    const size_t page = group / kPage;
    return page < pages_.size() && pages_[page] ? (*pages_[page])[group % kPage] : 0;
  }
  // The first group from `from` on with anything in it; `end` if there is none before.
  [[nodiscard]] uint32_t NextGroup(uint32_t from, uint32_t end) const {
    for (uint32_t group = from; group < end;) {
      const size_t page = group / kPage;
      if (page >= pages_.size()) {
        return end;
      }
      if (!pages_[page]) {
        group = static_cast<uint32_t>(page + 1) * kPage;
        continue;
      }
      if ((*pages_[page])[group % kPage] != 0) {
        return group;
      }
      ++group;
    }
    return end;
  }
  [[nodiscard]] uint64_t count() const { return count_; }

 private:
  static constexpr uint32_t kPage = 512;
  using Page = std::array<uint64_t, kPage>;
  std::vector<std::unique_ptr<Page>> pages_;
  uint64_t count_ = 0;
};

}  // namespace eplog
