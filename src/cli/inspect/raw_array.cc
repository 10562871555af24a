#include "cli/inspect/raw_array.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <system_error>
#include <utility>

#include "base/crc32c.h"
#include "host/array_file.h"
#include "host/bounded_call.h"
#include "host/device_content.h"
#include "host/spares.h"

namespace eplog::cli {
namespace {

RawMember OpenMember(std::string name, std::filesystem::path path) {
  RawMember member;
  member.name = std::move(name);
  member.path = std::move(path);
  const auto probed = ProbeDevice(member.path);
  if (!probed.ok()) {
    member.error = probed.error().ToString();
    return member;
  }
  auto fd = OpenProbed(member.path, *probed);
  if (!fd.ok()) {
    member.error = fd.error().ToString();
    return member;
  }
  member.fd = std::make_shared<const FileDescriptor>(std::move(*fd));
  for (size_t copy = 0; copy < 2; ++copy) {
    auto bytes = ReadBytes(member, kSuperblockCopyOffset[copy], kSuperblockCopyBytes);
    if (bytes.ok()) {
      member.copies[copy] = DecodeSuperblock(*bytes);
    } else {
      member.copies[copy] = Fail(std::move(bytes).error());
    }
  }
  if (const Superblock* superblock = member.superblock()) {
    member.name = superblock->DeviceName();
  }
  return member;
}

Result<std::vector<std::byte>> ReadAll(int fd, const std::filesystem::path& path, uint64_t offset,
                                       uint64_t length) {
  auto bytes = ReadRange(fd, offset, length, path);
  if (bytes.ok() && bytes->size() < length) {
    Error error;
    error.message = path.string() + " ends before";
    error.offset_bytes = static_cast<int64_t>(offset + bytes->size());
    return Fail(std::move(error));
  }
  return bytes;
}

// What an ARRAY argument names; nothing if that is no array, but a device.
Result<std::optional<ArrayFile>> LoadArray(const std::string& argument) {
  return Bounded<std::optional<ArrayFile>>(
      argument, [argument]() -> Result<std::optional<ArrayFile>> {
        std::error_code ignored;
        if (!std::filesystem::is_directory(argument, ignored) &&
            std::filesystem::path(argument).extension() != ".toml") {
          return std::nullopt;
        }
        auto file = LoadArrayFile(argument);
        EPLOG_TRY(file);
        return std::optional(std::move(*file));
      });
}

// The payloads of `blocks` pages that belong together, from one SSD.
Result<std::vector<std::byte>> ReadPages(const RawMember& ssd, const Superblock& identity,
                                         const PageHeader& first, uint64_t blocks) {
  std::vector<std::byte> stream;
  const uint64_t area = identity.geometry.metadata_blocks;
  const uint64_t before_end = std::min(blocks, area - first.block);
  auto bytes =
      ReadBytes(ssd, identity.geometry.MetadataOffset(first.block), before_end * kBlockBytes);
  if (bytes.ok() && before_end < blocks) {  // the area is a ring
    const auto rest =
        ReadBytes(ssd, identity.geometry.MetadataOffset(0), (blocks - before_end) * kBlockBytes);
    EPLOG_TRY(rest);
    bytes->insert(bytes->end(), rest->begin(), rest->end());
  }
  if (!bytes.ok()) {
    return Fail(std::move(bytes).error());
  }
  for (uint64_t i = 0; i < blocks; ++i) {
    const auto page = std::span(*bytes).subspan(i * kBlockBytes, kBlockBytes);
    const auto header = DecodePage(page, identity.array_uuid);
    PageHeader expected = first;
    expected.block = (first.block + i) % area;
    expected.index = static_cast<uint32_t>(i);
    expected.payload_bytes = header.ok() ? header->payload_bytes : 0;
    if (!header.ok() || *header != expected) {
      return Fail(
          ErrorCode::kCorrupt,
          fmt::format("{}: block {} of the metadata area is not the checkpoint page that "
                      "belongs there{}",
                      ssd.name, expected.block, header.ok() ? "" : ": " + header.error().message));
    }
    const auto payload = page.subspan(kPageHeaderBytes, header->payload_bytes);
    stream.insert(stream.end(), payload.begin(), payload.end());
  }
  return stream;
}

struct PagesPlace {
  PageHeader first;
  uint64_t blocks = 0;
  uint64_t ssd_mask = 0;
  uint32_t crc = 0;
};

// From the first SSD that has all of them right.
Result<std::vector<std::byte>> ReadPagesFromAny(const RawArray& array, const Superblock& identity,
                                                const PagesPlace& place) {
  const Geometry& g = identity.geometry;
  Error error;
  error.code = ErrorCode::kNotFound;
  error.message = fmt::format("the checkpoint's pages are on {}, none of which was given",
                              SsdNames(place.ssd_mask));
  if (place.first.block >= g.metadata_blocks || place.blocks > g.metadata_blocks) {
    return Fail(ErrorCode::kCorrupt, "the checkpoint is said to lie outside of the metadata area");
  }
  for (uint32_t i = 0; i < g.n; ++i) {
    const RawMember* ssd = (place.ssd_mask >> i & 1) == 0
                               ? nullptr
                               : array.ByIndex(DeviceIndex(static_cast<uint8_t>(i)));
    if (ssd == nullptr) {
      continue;
    }
    auto stream = ReadPages(*ssd, identity, place.first, place.blocks);
    if (stream.ok() && Crc32c(*stream) == place.crc) {
      return stream;
    }
    error = stream.ok() ? Error{ErrorCode::kCorrupt,
                                fmt::format("{}: the checkpoint's CRC is wrong", ssd->name)}
                        : stream.error();
  }
  return Fail(std::move(error));
}

}  // namespace

const Superblock* RawMember::superblock() const {
  const Superblock* newest = nullptr;
  for (const auto& copy : copies) {
    if (copy.ok() && (newest == nullptr || copy->generation > newest->generation)) {
      newest = &*copy;
    }
  }
  return newest;
}

Result<RawArray> RawArray::Open(const std::string& argument) {
  RawArray array;
  const auto file = LoadArray(argument);
  EPLOG_TRY(file);
  if (!*file) {
    array.one_device_ = true;
    array.members_.push_back(OpenMember(argument, argument));
    if (const std::string& error = array.members_.front().error; !error.empty()) {
      return Fail(ErrorCode::kNotFound, error);
    }
    return array;
  }
  const ArrayFile settled = WithJoinedSpares(**file);
  for (const MemberPath& member : settled.members) {
    array.members_.push_back(OpenMember(member.name, settled.Locate(member)));
  }
  return array;
}

Result<const Superblock*> RawArray::Identity() const {
  const Superblock* best = nullptr;
  for (const RawMember& member : members_) {
    const Superblock* superblock = member.superblock();
    if (superblock != nullptr && (best == nullptr || superblock->epoch > best->epoch)) {
      best = superblock;
    }
  }
  if (best != nullptr) {
    return best;
  }
  if (one_device_) {
    for (const auto& copy : members_.front().copies) {
      if (copy.error().code == ErrorCode::kDeviceFailed) {
        return Fail(copy.error());
      }
      if (copy.error().code == ErrorCode::kCorrupt ||
          copy.error().code == ErrorCode::kUnsupported) {
        return Fail(copy.error().code,
                    fmt::format("{}: {}", members_.front().path.string(), copy.error().message));
      }
    }
    return Fail(ErrorCode::kNotFound,
                fmt::format("{} has no EPLOG superblock", members_.front().path.string()));
  }
  return Fail(ErrorCode::kNotFound,
              "no member has a superblock that can be read; see inspect ARRAY superblock");
}

const RawMember* RawArray::ByIndex(DeviceIndex index) const {
  const auto identity = Identity();
  for (const RawMember& member : members_) {
    const Superblock* superblock = member.superblock();
    if (identity.ok() && superblock != nullptr &&
        superblock->array_uuid == (*identity)->array_uuid && superblock->index == index) {
      return &member;
    }
  }
  return nullptr;
}

Result<std::vector<std::byte>> ReadBytes(const RawMember& member, uint64_t offset,
                                         uint64_t length) {
  if (member.hangs) {
    return DoesNotAnswer(member.path);
  }
  auto bytes = Bounded<std::vector<std::byte>>(
      member.path, [fd = member.fd, path = member.path, offset, length] {
        return ReadAll(fd->get(), path, offset, length);
      });
  member.hangs = !bytes.ok() && bytes.error().code == ErrorCode::kDeviceFailed;
  return bytes;
}

Result<RawCheckpoint> LoadRawCheckpoint(const RawArray& array) {
  const auto identity = array.Identity();
  EPLOG_TRY(identity);
  RawCheckpoint checkpoint;
  for (const RawMember& member : array.members()) {
    const Superblock* superblock = member.superblock();
    if (superblock != nullptr && superblock->array_uuid == (*identity)->array_uuid &&
        superblock->checkpoint.generation > checkpoint.pointer.generation) {
      checkpoint.pointer = superblock->checkpoint;
    }
  }
  const CheckpointPointer& pointer = checkpoint.pointer;
  if (pointer.generation == 0) {
    return Fail(ErrorCode::kNotFound, "the array has no checkpoint yet");
  }
  PagesPlace place;
  place.first = {PageKind::kRoot, pointer.generation, pointer.random, pointer.root_block, 0, 0};
  place.blocks = pointer.root_blocks;
  place.ssd_mask = pointer.ssd_mask;
  place.crc = pointer.root_crc;
  auto root_bytes = ReadPagesFromAny(array, **identity, place);
  if (!root_bytes.ok()) {
    return Fail(std::move(root_bytes).error());
  }
  auto root = DecodeRoot(*root_bytes);
  if (!root.ok()) {
    return Fail(std::move(root).error());
  }
  checkpoint.root = std::move(*root);
  for (const RunDescriptor& run : checkpoint.root.runs) {
    place.first = {PageKind::kRun, run.generation, run.random, run.first_block, 0, 0};
    place.blocks = run.blocks;
    place.ssd_mask = run.ssd_mask;
    place.crc = run.stream_crc;
    auto stream = ReadPagesFromAny(array, **identity, place);
    if (!stream.ok()) {
      return Fail(std::move(stream).error());
    }
    checkpoint.streams.push_back(std::move(*stream));
  }
  return checkpoint;
}

std::string SsdNames(uint64_t mask) {
  std::string out;
  for (uint32_t i = 0; i < kMaxSsds; ++i) {
    if ((mask >> i & 1) != 0) {
      out += fmt::format("{}ssd{}", out.empty() ? "" : ", ", i);
    }
  }
  return out;
}

}  // namespace eplog::cli
