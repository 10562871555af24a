#include "tests/torture/chunk_model.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "tests/torture/content.h"

namespace eplog::torture {
namespace {

bool AllZero(std::span<const std::byte> bytes) {
  return bytes.empty() || (bytes.front() == std::byte{0} &&
                           std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0);
}

bool Equal(const Content& a, const Content& b) {
  if (a == b) {
    return true;
  }
  return a != nullptr ? SameBytes(b, 0, *a) : AllZero(*b);
}

}  // namespace

bool SameBytes(const Content& content, size_t begin, std::span<const std::byte> got) {
  if (content == nullptr) {
    return AllZero(got);
  }
  EPLOG_CHECK(begin + got.size() <= content->size(), "the oracle compares within a chunk");
  return std::memcmp(content->data() + begin, got.data(), got.size()) == 0;
}

void ChunkModel::AddState(State state) {
  const bool known = std::any_of(states_.begin(), states_.end(), [&](const State& s) {
    return s.applied == state.applied && Equal(s.content, state.content);
  });
  if (!known) {
    states_.push_back(std::move(state));
  }
}

// Every order in which the writes in flight may have happened so far.
void ChunkModel::Close(size_t chunk_bytes) {
  for (size_t i = 0; i < states_.size(); ++i) {
    for (const Pending& write : pending_) {
      if ((states_[i].applied & write.bit) != 0) {
        continue;
      }
      const uint32_t applied = states_[i].applied | write.bit;
      if (write.whole) {
        AddState({write.data, applied});
        continue;
      }
      auto merged = states_[i].content == nullptr
                        ? std::make_shared<std::vector<std::byte>>(chunk_bytes)
                        : std::make_shared<std::vector<std::byte>>(*states_[i].content);
      std::memcpy(merged->data() + write.begin, write.data->data(), write.data->size());
      AddState({std::move(merged), applied});
    }
  }
}

// Bring `versions_` in line with `states_`.
void ChunkModel::Note(uint64_t now) {
  last_change_ = now;
  for (Version& version : versions_) {
    const bool possible = std::any_of(states_.begin(), states_.end(), [&](const State& s) {
      return Equal(s.content, version.content);
    });
    if (possible) {
      version.until = kStill;
    } else if (version.until == kStill) {
      version.until = now;
    }
  }
  for (const State& state : states_) {
    const bool known = std::any_of(versions_.begin(), versions_.end(), [&](const Version& v) {
      return Equal(v.content, state.content);
    });
    if (!known) {
      versions_.push_back({state.content, kStill});
    }
  }
}

uint32_t ChunkModel::BeginWrite(uint64_t now, size_t chunk_bytes, size_t begin,
                                std::span<const std::byte> data) {
  uint32_t used = 0;
  for (const Pending& write : pending_) {
    used |= write.bit;
  }
  const uint32_t bit = ~used & (used + 1);
  const bool whole = data.size() == chunk_bytes;
  pending_.push_back({bit, begin,
                      whole && AllZero(data)
                          ? nullptr
                          : std::make_shared<std::vector<std::byte>>(data.begin(), data.end()),
                      whole});
  Close(chunk_bytes);
  Note(now);
  return bit;
}

void ChunkModel::EndWrite(uint64_t now, uint32_t write, bool acknowledged) {
  std::vector<State> old;
  old.swap(states_);
  for (State& state : old) {
    if ((state.applied & write) != 0 || !acknowledged) {
      state.applied &= ~write;
      AddState(std::move(state));
    }
  }
  std::erase_if(pending_, [&](const Pending& p) { return p.bit == write; });
  Note(now);
}

bool ChunkModel::Read(uint64_t now, uint64_t since, size_t begin, std::span<const std::byte> got) {
  const bool allowed = std::any_of(versions_.begin(), versions_.end(), [&](const Version& v) {
    return v.until >= since && SameBytes(v.content, begin, got);
  });
  if (allowed && pending_.empty() && last_change_ < since && states_.size() > 1) {
    std::erase_if(states_, [&](const State& s) { return !SameBytes(s.content, begin, got); });
    Note(now);
  }
  return allowed;
}

bool ChunkModel::MayBeFound(std::span<const std::byte> got, bool weak, uint64_t since) const {
  const auto is_one_since = [&](uint64_t floor, size_t begin, std::span<const std::byte> bytes) {
    return std::any_of(versions_.rbegin(), versions_.rend(), [&](const Version& v) {
      return v.until >= floor && SameBytes(v.content, begin, bytes);
    });
  };
  return is_one_since(weak ? stable_ : std::max(floor_, since), 0, got) &&
         std::ranges::all_of(parts_, [&](const Part& part) {
           const size_t end = std::min(part.end, got.size());
           return weak || part.begin >= end ||
                  is_one_since(part.called, part.begin, got.subspan(part.begin, end - part.begin));
         });
}

bool ChunkModel::HoldsSomething() const {
  return std::ranges::none_of(states_, [](const State& s) { return Equal(s.content, nullptr); });
}

// Nothing was written since the flush, the same bytes neither.
bool ChunkModel::IsDurable() const {
  return pending_.empty() && last_change_ <= floor_;
}

void ChunkModel::Found(uint64_t now, Content content) {
  pending_.clear();
  states_.assign(1, State{content, 0});
  versions_.assign(1, Version{std::move(content), kStill});
  parts_.clear();
  floor_ = stable_ = last_change_ = now;
}

void ChunkModel::Flushed(uint64_t called, bool stable_too, uint64_t oldest_reader) {
  floor_ = std::max(floor_, called);
  if (stable_too) {
    stable_ = std::max(stable_, called);
  }
  std::erase_if(parts_, [&](const Part& part) { return part.called <= floor_; });
  const uint64_t needed = std::min({floor_, stable_, oldest_reader});
  std::erase_if(versions_, [&](const Version& v) { return v.until < needed; });
}

void ChunkModel::PartFlushed(uint64_t called, size_t begin, size_t end) {
  std::erase_if(parts_, [&](const Part& part) {
    return part.called <= called && part.begin >= begin && part.end <= end;
  });
  if (called > floor_) {
    parts_.push_back({called, begin, end});
  }
}

void ChunkModel::Truncate(uint64_t now, size_t begin, size_t chunk_bytes) {
  const auto cut = [&](Content& content) {
    if (content == nullptr) {
      return;
    }
    auto changed = std::make_shared<std::vector<std::byte>>(*content);
    std::fill(changed->begin() + static_cast<ptrdiff_t>(begin),
              changed->begin() + static_cast<ptrdiff_t>(chunk_bytes), std::byte{0});
    content = std::move(changed);
  };
  for (State& state : states_) {
    cut(state.content);
  }
  for (Version& version : versions_) {
    cut(version.content);
  }
  last_change_ = now;
}

std::string ChunkModel::Allowed(bool weak) const {
  const uint64_t floor = weak ? stable_ : floor_;
  std::string text;
  for (const Version& version : versions_) {
    if (version.until >= floor) {
      text += text.empty() ? "{" : " | {";
      text += version.content == nullptr ? "zero" : Describe(*version.content);
      text += version.until == kStill ? "}" : "} until " + std::to_string(version.until);
    }
  }
  return text;
}

}  // namespace eplog::torture
