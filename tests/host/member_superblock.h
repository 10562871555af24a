// The superblock of a member, for tests of what is found on devices.
#pragma once

#include <cstddef>
#include <cstdint>

#include "format/superblock.h"

namespace eplog {

inline Uuid UuidOf(uint8_t number) {
  Uuid uuid{};
  uuid.fill(std::byte{number});
  return uuid;
}

// ssd1 of a 2+1 array.
inline Superblock MemberSuperblock() {
  GeometryRequest request;
  request.n = 3;
  request.m = 1;
  request.chunk_bytes = 4096;
  request.ssd_bytes = uint64_t{16} << 20;
  request.log_bytes = uint64_t{4} << 20;
  Superblock superblock;
  superblock.geometry = *PlanGeometry(request);
  superblock.array_uuid = UuidOf(0xA);
  superblock.device_uuid = UuidOf(1);
  superblock.index = DeviceIndex(1);
  superblock.name = "demo";
  superblock.epoch = {5, 1};
  superblock.members.resize(4);
  for (uint8_t i = 0; i < 4; ++i) {
    superblock.members[i].uuid = UuidOf(i);
  }
  return superblock;
}

}  // namespace eplog
