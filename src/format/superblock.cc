// Superblock bytes. It may know the layout and what makes a superblock sane by itself, not which of
// several superblocks is to be trusted.
#include "format/superblock.h"

#include <algorithm>
#include <array>
#include <string>

#include "base/check.h"
#include "format/wire.h"

namespace eplog {
namespace {

using wire::SuperblockBytes;

constexpr uint8_t kMaxJournalMode = 2;

void StoreGeometry(const Geometry& g, SuperblockBytes& to) {
  to.n = static_cast<uint8_t>(g.n);
  to.m = static_cast<uint8_t>(g.m);
  to.chunk_bytes = g.chunk_bytes;
  to.stripes = g.stripes;
  to.slots = g.slots;
  to.extent_stripes = g.extent_stripes;
  to.metadata_offset_bytes = g.metadata_offset_bytes;
  to.metadata_blocks = g.metadata_blocks;
  to.ring_offset_bytes = g.ring_offset_bytes;
  to.ring_blocks = g.ring_blocks;
  to.slots_offset_bytes = g.slots_offset_bytes;
  to.log_offset_bytes = g.log_offset_bytes;
  to.log_blocks = g.log_blocks;
}

Geometry LoadGeometry(const SuperblockBytes& from) {
  Geometry g;
  g.n = from.n;
  g.m = from.m;
  g.chunk_bytes = from.chunk_bytes;
  g.stripes = from.stripes;
  g.slots = from.slots;
  g.extent_stripes = from.extent_stripes;
  g.metadata_offset_bytes = from.metadata_offset_bytes;
  g.metadata_blocks = from.metadata_blocks;
  g.ring_offset_bytes = from.ring_offset_bytes;
  g.ring_blocks = from.ring_blocks;
  g.slots_offset_bytes = from.slots_offset_bytes;
  g.log_offset_bytes = from.log_offset_bytes;
  g.log_blocks = from.log_blocks;
  return g;
}

CheckpointPointer LoadPointer(const SuperblockBytes& from) {
  CheckpointPointer p;
  p.generation = from.checkpoint_generation;
  p.random = from.checkpoint_random;
  p.root_block = from.root_block;
  p.root_blocks = from.root_blocks;
  p.root_crc = from.root_crc;
  p.ssd_mask = from.root_ssd_mask;
  return p;
}

void StorePointer(const CheckpointPointer& p, SuperblockBytes& to) {
  to.checkpoint_generation = p.generation;
  to.checkpoint_random = p.random;
  to.root_block = p.root_block;
  to.root_blocks = p.root_blocks;
  to.root_crc = p.root_crc;
  to.root_ssd_mask = p.ssd_mask;
}

tl::unexpected<Error> WrongSuperblock(const char* what) {
  return Fail(ErrorCode::kCorrupt, std::string("superblock: ") + what);
}

Status CheckPointer(const CheckpointPointer& p, const Geometry& g) {
  const uint64_t ssds = (uint64_t{1} << g.n) - 1;
  if ((p.ssd_mask & ~ssds) != 0) {
    return WrongSuperblock("the checkpoint lies on an SSD that the array has not");
  }
  if (p.generation == 0) {
    return OkStatus();
  }
  if (p.ssd_mask == 0 || p.root_blocks == 0 || p.root_blocks > g.metadata_blocks ||
      p.root_block > g.metadata_blocks - p.root_blocks) {
    return WrongSuperblock("the checkpoint lies outside the metadata area");
  }
  return OkStatus();
}

Status LoadMembers(const SuperblockBytes& from, Superblock& to) {
  if (from.member_count != to.geometry.devices() || from.index >= from.member_count) {
    return WrongSuperblock("the number of members does not fit the geometry");
  }
  to.members.resize(from.member_count);
  for (size_t i = 0; i < to.members.size(); ++i) {
    const wire::MemberBytes& member = from.members[i];
    if (member.state < static_cast<uint8_t>(MemberState::kOk) ||
        member.state > static_cast<uint8_t>(MemberState::kReturning)) {
      return WrongSuperblock("a member has an unknown state");
    }
    to.members[i] = {member.uuid, static_cast<MemberState>(member.state), member.joined};
  }
  return OkStatus();
}

// A spare knows nothing of what happens in the array, so nothing of it can be old.
Status CheckSpare(const SuperblockBytes& from) {
  const bool states = from.member_count != 0 || from.epoch != Epoch{} || from.base != Epoch{} ||
                      from.checkpoint_generation != 0;
  return states ? Status(WrongSuperblock("a spare has no states of members")) : OkStatus();
}

Status LoadName(const SuperblockBytes& from, Superblock& to) {
  const auto* const end = std::find(from.name.begin(), from.name.end(), '\0');
  if (end == from.name.end() ||
      std::any_of(end, from.name.end(), [](char c) { return c != '\0'; })) {
    return WrongSuperblock("the name is not ended by zeros");
  }
  to.name.assign(from.name.begin(), end);
  return OkStatus();
}

// Everything else is as a version that is known writes it: no newer one has been here.
bool OnlyVersionIsWrong(std::span<const std::byte> in, uint32_t crc) {
  std::array<std::byte, kSuperblockCopyBytes> bytes{};
  std::copy(in.begin(), in.end(), bytes.begin());
  for (uint32_t version = 1; version <= kFormatVersion; ++version) {
    StoreLe(bytes.data() + offsetof(SuperblockBytes, version), version);
    if (wire::CrcAround(bytes, offsetof(SuperblockBytes, crc)) == crc) {
      return true;
    }
  }
  return false;
}

}  // namespace

void EncodeSuperblock(const Superblock& superblock, std::span<std::byte> out) {
  EPLOG_CHECK(out.size() == kSuperblockCopyBytes, "a superblock copy has a fixed size");
  EPLOG_CHECK(
      superblock.geometry.n <= kMaxSsds && superblock.geometry.m <= kMaxParity &&
          superblock.members.size() == (superblock.is_spare() ? 0 : superblock.geometry.devices()),
      "one member for each device of the geometry, none in a spare");
  EPLOG_CHECK(superblock.name.size() <= kMaxArrayNameBytes &&
                  superblock.name.find('\0') == std::string::npos,
              "an array's name fits its field and ends where its zeros begin");
  SuperblockBytes to{};
  to.magic = wire::kSuperblockMagic;
  to.version = superblock.version;
  to.array_uuid = superblock.array_uuid;
  to.device_uuid = superblock.device_uuid;
  to.index = superblock.index.value;
  to.journal_mode = superblock.journal_mode;
  StoreGeometry(superblock.geometry, to);
  to.generation = superblock.generation;
  to.epoch = superblock.epoch;
  to.base = superblock.base;
  to.base_on_rings = superblock.base_on_rings ? 1 : 0;
  StorePointer(superblock.checkpoint, to);
  std::copy(superblock.name.begin(), superblock.name.end(), to.name.begin());
  to.member_count = static_cast<uint8_t>(superblock.members.size());
  for (size_t i = 0; i < superblock.members.size(); ++i) {
    const MemberEntry& member = superblock.members[i];
    to.members[i] = {member.uuid, member.joined, static_cast<uint8_t>(member.state), {}};
  }
  wire::Store(to, out);
  StoreLe(out.data() + offsetof(SuperblockBytes, crc), Crc32c(out));
}

Result<Superblock> DecodeSuperblock(std::span<const std::byte> in) {
  if (in.size() < kSuperblockCopyBytes) {
    return Fail(ErrorCode::kNotFound, "no superblock: too few bytes");
  }
  in = in.first(kSuperblockCopyBytes);
  const auto from = wire::Load<SuperblockBytes>(in);
  if (from.magic != wire::kSuperblockMagic) {
    return Fail(ErrorCode::kNotFound, "no superblock");
  }
  // Before the CRC: a newer format may protect itself otherwise.
  if (from.version > kFormatVersion) {
    if (OnlyVersionIsWrong(in, from.crc)) {
      return WrongSuperblock("its version is damaged");
    }
    return Fail(ErrorCode::kUnsupported, "written by a newer version of eplog (format " +
                                             std::to_string(from.version) + ", this one knows " +
                                             std::to_string(kFormatVersion) + ")");
  }
  if (wire::CrcAround(in, offsetof(SuperblockBytes, crc)) != from.crc) {
    return WrongSuperblock("wrong CRC");
  }
  if (from.version == 0) {
    return WrongSuperblock("format 0 does not exist");
  }
  Superblock to;
  to.version = from.version;
  to.array_uuid = from.array_uuid;
  to.device_uuid = from.device_uuid;
  to.index = DeviceIndex(from.index);
  to.geometry = LoadGeometry(from);
  EPLOG_TRY(to.geometry.Validate());
  to.journal_mode = from.journal_mode;
  if (to.journal_mode < 1 || to.journal_mode > kMaxJournalMode) {
    return WrongSuperblock("unknown journal mode");
  }
  to.generation = from.generation;
  to.epoch = from.epoch;
  to.base = from.base;
  to.base_on_rings = from.base_on_rings == 1;
  if (std::max({to.generation, to.epoch.number, from.checkpoint_generation}) >= wire::kMostNumber) {
    return WrongSuperblock("a number that none is counted up to");
  }
  if (to.base.number > to.epoch.number) {
    return WrongSuperblock("its epoch is older than the one that opened");
  }
  to.checkpoint = LoadPointer(from);
  EPLOG_TRY(CheckPointer(to.checkpoint, to.geometry));
  EPLOG_TRY(to.is_spare() ? CheckSpare(from) : LoadMembers(from, to));
  EPLOG_TRY(LoadName(from, to));
  return to;
}

Superblock SpareSuperblock(const Superblock& member, const Uuid& device_uuid) {
  Superblock spare;
  spare.version = member.version;
  spare.array_uuid = member.array_uuid;
  spare.device_uuid = device_uuid;
  spare.index = kSpareIndex;
  spare.geometry = member.geometry;
  spare.journal_mode = member.journal_mode;
  spare.name = member.name;
  return spare;
}

}  // namespace eplog
