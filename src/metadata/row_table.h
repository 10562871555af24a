// RowTable: the committed places of every data stripe, n words each (8 bytes a word). Rows live in
// groups of kRowGroupStripes that are allocated when first written, so an empty array costs one
// pointer a group.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/types.h"
#include "layout/geometry.h"
#include "layout/slot_word.h"

namespace eplog {

static_assert(sizeof(RowWord) == 8, "the memory budget is 12 bytes a slot, rows and allocation");

class RowTable {
 public:
  explicit RowTable(const Geometry& geometry)
      : n_(geometry.n), stripes_(geometry.stripes), groups_(geometry.row_groups()) {}

  [[nodiscard]] RowWord Get(StripeIndex stripe, uint32_t index) const {
    const auto& group = groups_[stripe.value / kRowGroupStripes];
    return group ? group[Offset(stripe, index)] : RowWord{};
  }
  void Set(StripeIndex stripe, uint32_t index, RowWord word) {
    auto& group = groups_[stripe.value / kRowGroupStripes];
    if (!group) {
      if (word == RowWord{}) {
        return;
      }
      group = std::make_unique<RowWord[]>(size_t{kRowGroupStripes} * n_);
      ++allocated_groups_;
    }
    group[Offset(stripe, index)] = word;
  }

  // The words of a group, stripe by stripe; empty if the whole group is `zero`.
  [[nodiscard]] std::span<const RowWord> Group(uint32_t group) const {
    return groups_[group]
               ? std::span<const RowWord>(groups_[group].get(), size_t{StripesIn(group)} * n_)
               : std::span<const RowWord>();
  }
  void SetGroup(uint32_t group, std::span<const RowWord> words);
  // To be changed in place.
  [[nodiscard]] std::span<RowWord> MutableGroup(uint32_t group) {
    return groups_[group] ? std::span<RowWord>(groups_[group].get(), size_t{StripesIn(group)} * n_)
                          : std::span<RowWord>();
  }

  [[nodiscard]] uint32_t groups() const { return static_cast<uint32_t>(groups_.size()); }
  [[nodiscard]] uint32_t StripesIn(uint32_t group) const {
    return std::min(kRowGroupStripes, stripes_ - group * kRowGroupStripes);
  }
  [[nodiscard]] size_t memory_bytes() const {
    return groups_.size() * sizeof(groups_[0]) +
           size_t{allocated_groups_} * kRowGroupStripes * n_ * sizeof(RowWord);
  }

 private:
  [[nodiscard]] size_t Offset(StripeIndex stripe, uint32_t index) const {
    return size_t{stripe.value % kRowGroupStripes} * n_ + index;
  }

  uint32_t n_;
  uint32_t stripes_;
  uint32_t allocated_groups_ = 0;
  std::vector<std::unique_ptr<RowWord[]>> groups_;
};

}  // namespace eplog
