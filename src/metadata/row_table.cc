#include "metadata/row_table.h"

#include <algorithm>

namespace eplog {

void RowTable::SetGroup(uint32_t group, std::span<const RowWord> words) {
  auto& stored = groups_[group];
  if (!stored) {
    stored = std::make_unique<RowWord[]>(size_t{kRowGroupStripes} * n_);
    ++allocated_groups_;
  }
  std::copy(words.begin(), words.end(), stored.get());
}

}  // namespace eplog
