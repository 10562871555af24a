#include "engine/write/buffered_chunks.h"

#include <algorithm>

#include "base/check.h"

namespace eplog {

BufferedPtr BufferedChunks::Absorbing(ChunkIndex chunk) const {
  const auto found = absorbing_.find(chunk.value);
  return found == absorbing_.end() ? nullptr : found->second;
}

const std::byte* BufferedChunks::Latest(ChunkIndex chunk) const {
  if (empty()) {
    return nullptr;
  }
  const auto absorbing = absorbing_.find(chunk.value);
  if (absorbing != absorbing_.end() && absorbing->second->ready) {
    return absorbing->second->data.data();
  }
  const auto leaving = leaving_.find(chunk.value);
  return leaving == leaving_.end() ? nullptr : leaving->second->data.data();
}

bool BufferedChunks::AnyIn(ChunkIndex first, uint64_t count) const {
  const auto any = [&](const auto& chunks) {
    if (chunks.size() < count) {
      return std::any_of(chunks.begin(), chunks.end(), [&](const auto& entry) {
        return entry.first >= first.value && entry.first - first.value < count;
      });
    }
    for (uint64_t chunk = first.value; chunk < first.value + count; ++chunk) {
      if (chunks.contains(chunk)) {
        return true;
      }
    }
    return false;
  };
  return any(absorbing_) || any(leaving_);
}

Task<void> BufferedChunks::WaitLeft(ChunkIndex first, uint64_t count) {
  const auto any = [&] {
    return std::any_of(leaving_.begin(), leaving_.end(), [&](const auto& entry) {
      return entry.first >= first.value && entry.first - first.value < count;
    });
  };
  while (any() && !core_.stop_error) {
    co_await core_.buffers_changed.Wait();
  }
}

BufferedPtr BufferedChunks::Prepare(ChunkIndex chunk) {
  auto prepared = std::make_shared<BufferedChunk>();
  prepared->chunk = chunk;
  absorbing_[chunk.value] = prepared;
  return prepared;
}

void BufferedChunks::TakeRam(BufferedChunk& chunk) {
  chunk.data = core_.pool.Get(core_.geometry.chunk_bytes);
  ++held_;
}

void BufferedChunks::GiveBack(BufferedChunk& chunk) {
  held_ -= chunk.data ? 1 : 0;
  chunk.data = Buffer();
  chunk.grant.reset();
}

void BufferedChunks::GiveUp(const BufferedPtr& chunk) {
  GiveBack(*chunk);
  absorbing_.erase(chunk->chunk.value);
  core_.buffers_changed.NotifyAll();
}

void BufferedChunks::Ready(const BufferedPtr& chunk) {
  const StripeIndex stripe = core_.geometry.StripeOf(chunk->chunk);
  StripeNote& note = stripes_[stripe.value];
  chunk->ready = true;
  chunk->order = ++next_order_;
  chunk->since_us = core_.loop.NowUs();
  ++note.ready;
  if (!chunk->fresh) {
    queues_[core_.geometry.SsdOf(chunk->chunk).value].emplace(chunk->order, chunk);
  } else if (++note.fresh == 1) {
    note.order = chunk->order;
    fresh_order_.emplace(chunk->order, stripe);
  }
  core_.buffers_changed.NotifyAll();
}

void BufferedChunks::Dequeue(BufferedChunk& chunk) {
  if (chunk.draining) {
    return;
  }
  chunk.draining = true;
  if (!chunk.fresh) {
    queues_[core_.geometry.SsdOf(chunk.chunk).value].erase(chunk.order);
    return;
  }
  StripeNote& note = stripes_[core_.geometry.StripeOf(chunk.chunk).value];
  if (--note.fresh == 0) {
    fresh_order_.erase(note.order);
  }
}

void BufferedChunks::Forget(BufferedChunk& chunk) {
  Dequeue(chunk);
  const uint32_t stripe = core_.geometry.StripeOf(chunk.chunk).value;
  if (--stripes_[stripe].ready == 0) {
    stripes_.erase(stripe);
  }
  absorbing_.erase(chunk.chunk.value);
}

bool BufferedChunks::Leave(const BufferedPtr& chunk) {
  if (chunk->done || Absorbing(chunk->chunk) != chunk) {
    return false;
  }
  EPLOG_CHECK(!leaving_.contains(chunk->chunk.value), "one version of a chunk leaves at a time");
  Forget(*chunk);
  leaving_[chunk->chunk.value] = chunk;
  return true;
}

void BufferedChunks::Done(BufferedChunk& chunk) {
  chunk.done = true;
  GiveBack(chunk);
  leaving_.erase(chunk.chunk.value);
  core_.buffers_changed.NotifyAll();
}

void BufferedChunks::Supersede(ChunkIndex first, uint64_t count, Leaving& leaving) {
  if (absorbing_.empty() || core_.stop_error) {
    return;  // nothing will be submitted, and reads go on finding what was acknowledged
  }
  std::vector<BufferedPtr> hit;
  for (const auto& [value, chunk] : absorbing_) {
    if (value >= first.value && value - first.value < count && chunk->ready) {
      hit.push_back(chunk);
    }
  }
  for (const BufferedPtr& chunk : hit) {
    const bool left = Leave(chunk);
    EPLOG_CHECK(left, "a ready chunk is absorbing");
    leaving.taken_.push_back(chunk);
  }
}

std::vector<BufferedPtr> BufferedChunks::Select(
    const std::function<bool(ChunkIndex)>& wanted) const {
  std::vector<BufferedPtr> selected;
  for (const auto* chunks : {&absorbing_, &leaving_}) {
    for (const auto& [value, chunk] : *chunks) {
      if (chunk->ready && wanted(ChunkIndex(value))) {
        selected.push_back(chunk);
      }
    }
  }
  // In an order that does not depend on the tables.
  std::sort(selected.begin(), selected.end(),
            [](const BufferedPtr& a, const BufferedPtr& b) { return a->order < b->order; });
  return selected;
}

std::vector<BufferedPtr> BufferedChunks::ReadyOf(StripeIndex stripe) const {
  std::vector<BufferedPtr> ready;
  for (uint32_t i = 0; i < core_.geometry.k(); ++i) {
    BufferedPtr chunk = Absorbing(core_.geometry.Chunk(stripe, i));
    if (chunk && chunk->ready) {
      ready.push_back(std::move(chunk));
    }
  }
  return ready;
}

uint32_t BufferedChunks::CountReady(StripeIndex stripe) const {
  const auto found = stripes_.find(stripe.value);
  return found == stripes_.end() ? 0 : found->second.ready;
}

}  // namespace eplog
