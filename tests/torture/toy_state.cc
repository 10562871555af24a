#include "tests/torture/toy_state.h"

#include <algorithm>
#include <cstring>

#include "base/bytes.h"
#include "base/types.h"

namespace eplog::torture {
namespace {

enum Type : uint8_t { kWrite = 1, kCreate, kResize, kRename, kDelete };

std::vector<std::byte> Record(Type type, VolumeId volume, uint64_t number, bool flag,
                              std::span<const std::byte> tail) {
  std::vector<std::byte> record(14 + tail.size());
  ByteWriter out(record);
  out.U8(type);
  out.U32(volume.value);
  out.U64(number);
  out.U8(flag ? 1 : 0);
  out.Bytes(tail);
  return record;
}

std::span<const std::byte> Bytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::string Text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

bool AllZero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

}  // namespace

std::vector<std::byte> ToyState::WriteRecord(VolumeId volume, uint64_t offset_bytes,
                                             std::span<const std::byte> data) {
  return Record(kWrite, volume, offset_bytes, false, data);
}
std::vector<std::byte> ToyState::CreateRecord(VolumeId volume, const std::string& name,
                                              uint64_t size_bytes) {
  return Record(kCreate, volume, size_bytes, false, Bytes(name));
}
std::vector<std::byte> ToyState::ResizeRecord(VolumeId volume, uint64_t size_bytes) {
  return Record(kResize, volume, size_bytes, false, {});
}
std::vector<std::byte> ToyState::RenameRecord(VolumeId volume, const std::string& name,
                                              bool replace) {
  return Record(kRename, volume, 0, replace, Bytes(name));
}
std::vector<std::byte> ToyState::DeleteRecord(VolumeId volume) {
  return Record(kDelete, volume, 0, false, {});
}

void ToyState::Apply(std::span<const std::byte> record, bool dirty, bool keep_tail) {
  ByteReader in(record);
  const uint8_t type = in.U8();
  const uint32_t id = in.U32();
  const uint64_t number = in.U64();
  const bool flag = in.U8() != 0;
  const auto tail = in.Bytes(in.remaining());
  next_id_ = std::max(next_id_, id + 1);
  if (type == kCreate) {
    Volume& volume = volumes_[id];
    volume.name = Text(tail);
    volume.bytes = dirty ? grave_ : std::vector<std::byte>();
    volume.bytes.resize(number);
    return;
  }
  const auto found = volumes_.find(id);
  if (found == volumes_.end()) {
    return;  // written while it was being deleted
  }
  Volume& volume = found->second;
  if (type == kWrite && number + tail.size() <= volume.bytes.size()) {
    std::copy(tail.begin(), tail.end(), volume.bytes.begin() + static_cast<ptrdiff_t>(number));
  } else if (type == kResize) {
    if (number < volume.bytes.size() && keep_tail) {
      volume.tail.assign(volume.bytes.begin() + static_cast<ptrdiff_t>(number), volume.bytes.end());
    }
    const size_t old = volume.bytes.size();
    volume.bytes.resize(number);
    if (number > old && keep_tail) {
      const size_t back = std::min<size_t>(volume.tail.size(), number - old);
      std::copy_n(volume.tail.begin(), back, volume.bytes.begin() + static_cast<ptrdiff_t>(old));
    }
  } else if (type == kRename) {
    const std::string name = Text(tail);
    std::erase_if(volumes_, [&](const auto& entry) {
      return flag && entry.first != id && entry.second.name == name;
    });
    volume.name = name;
  } else if (type == kDelete) {
    grave_ = volume.bytes;
    volumes_.erase(found);
  }
}

bool ToyState::Holds(VolumeId volume, uint64_t offset_bytes, uint64_t length_bytes) const {
  const auto found = volumes_.find(volume.value);
  return found != volumes_.end() && offset_bytes + length_bytes <= found->second.bytes.size();
}

bool ToyState::Read(VolumeId volume, uint64_t offset_bytes, std::span<std::byte> into) const {
  if (!Holds(volume, offset_bytes, into.size())) {
    return false;
  }
  std::memcpy(into.data(), volumes_.at(volume.value).bytes.data() + offset_bytes, into.size());
  return true;
}

std::vector<VolumeInfo> ToyState::Infos() const {
  std::vector<VolumeInfo> infos;
  for (const auto& [id, volume] : volumes_) {
    infos.push_back({VolumeId(id), volume.name, volume.bytes.size(), volume.bytes.size()});
  }
  std::sort(infos.begin(), infos.end(),
            [](const VolumeInfo& a, const VolumeInfo& b) { return a.name < b.name; });
  return infos;
}

// Zero blocks are left out.
std::vector<std::byte> ToyState::Encode() const {
  size_t most = 64;
  for (const auto& [id, volume] : volumes_) {
    most += 64 + volume.name.size() + volume.bytes.size() + volume.bytes.size() / 256;
  }
  std::vector<std::byte> bytes(most);
  ByteWriter out(bytes);
  out.U32(next_id_);
  out.U32(static_cast<uint32_t>(volumes_.size()));
  for (const auto& [id, volume] : volumes_) {
    out.U32(id);
    out.U32(static_cast<uint32_t>(volume.name.size()));
    out.Bytes(Bytes(volume.name));
    out.U64(volume.bytes.size());
    for (size_t at = 0; at < volume.bytes.size(); at += kBlockBytes) {
      const auto block = std::span<const std::byte>(volume.bytes)
                             .subspan(at, std::min<size_t>(kBlockBytes, volume.bytes.size() - at));
      const bool zero = AllZero(block);
      out.U8(zero ? 0 : 1);
      if (!zero) {
        out.Bytes(block);
      }
    }
  }
  bytes.resize(out.size());
  return bytes;
}

void ToyState::Decode(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  volumes_.clear();
  next_id_ = in.U32();
  for (uint32_t left = in.U32(); left > 0 && in.ok(); --left) {
    Volume& volume = volumes_[in.U32()];
    volume.name = Text(in.Bytes(in.U32()));
    volume.bytes.resize(in.U64());
    for (size_t at = 0; at < volume.bytes.size() && in.ok(); at += kBlockBytes) {
      if (in.U8() != 0) {
        const auto block = in.Bytes(std::min<size_t>(kBlockBytes, volume.bytes.size() - at));
        std::copy(block.begin(), block.end(), volume.bytes.begin() + static_cast<ptrdiff_t>(at));
      }
    }
  }
}

}  // namespace eplog::torture
