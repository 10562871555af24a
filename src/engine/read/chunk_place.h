// Where a chunk is for its user: a volume and an offset in it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/core/volume_names.h"
#include "eplog/events.h"
#include "metadata/state.h"

namespace eplog {

struct ChunkPlace {
  std::string volume;  // what people call it (LabelOf)
  uint64_t offset_bytes = 0;
};

// Nothing if its stripe belongs to no volume.
inline std::optional<ChunkPlace> PlaceOf(const State& state, ChunkIndex chunk) {
  const Geometry& g = state.geometry();
  const StripeIndex stripe = g.StripeOf(chunk);
  const auto owner = state.volumes.OwnerOf(ExtentIndex(stripe.value / g.extent_stripes));
  const Volume* volume = state.volumes.Find(owner.volume);
  if (volume == nullptr) {
    return std::nullopt;
  }
  const uint64_t in_extent =
      (uint64_t{stripe.value % g.extent_stripes} * g.k() + g.IndexInStripe(chunk)) * g.chunk_bytes;
  return ChunkPlace{LabelOf(*volume), uint64_t{owner.logical} * g.extent_data_bytes() + in_extent};
}

// What became of one position of a stripe, in words that name its volume.
inline ArrayEvent EventOf(const State& state, EventKind kind, StripeIndex stripe, uint32_t index,
                          const std::string& fate) {
  const Geometry& g = state.geometry();
  ArrayEvent event;
  event.kind = kind;
  event.device = g.DeviceName(g.SsdOf(stripe, index));
  std::string what = "parity of stripe " + std::to_string(stripe.value);
  if (const auto place = index < g.k() ? PlaceOf(state, g.Chunk(stripe, index)) : std::nullopt) {
    event.volume = place->volume;
    event.offset_bytes = place->offset_bytes;
    what = "volume '" + place->volume + "' offset " + std::to_string(place->offset_bytes);
  }
  event.text = event.device + ": " + what + " " + fate;
  return event;
}

}  // namespace eplog
