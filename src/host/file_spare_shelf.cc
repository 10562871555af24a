#include "host/file_spare_shelf.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/buffer.h"
#include "base/bytes.h"
#include "host/change_turn.h"
#include "layout/geometry.h"
#include "report/status_json.h"

namespace eplog {
namespace {

// At the beginning and at the end: what says what is on a device lies there, wherever FindContent
// looks for it.
constexpr uint64_t kWipeBytes = uint64_t{4} << 20;

Uuid NewUuid() {
  Uuid uuid{};
  StoreLe(uuid.data(), Entropy());
  StoreLe(uuid.data() + 8, Entropy());
  uuid[6] = (uuid[6] & std::byte{0x0F}) | std::byte{0x40};  // version 4, variant 1
  uuid[8] = (uuid[8] & std::byte{0x3F}) | std::byte{0x80};
  return uuid;
}

Task<Status> WriteAt(Device& device, uint64_t offset, std::span<std::byte> bytes) {
  const iovec part{bytes.data(), bytes.size()};
  Task<Status> write = device.Write(offset, std::span(&part, 1));
  co_return co_await write;
}

// So that a device which is wiped on its way into the array is blank, and nothing takes it for what
// it was before.
Task<Status> WipeEnds(Device& device) {
  BufferPool pool;
  Buffer zeros = pool.GetZeroed(kWipeBytes);
  const uint64_t size = device.size_bytes() / kBlockBytes * kBlockBytes;
  const uint64_t length = std::min(kWipeBytes, size);
  for (const uint64_t offset : {uint64_t{0}, size - length}) {
    EPLOG_CO_AWAIT(WriteAt(device, offset, zeros.span().first(length)));
  }
  Task<Status> flush = device.Flush();
  co_return co_await flush;
}

Task<Status> WipeSuperblocks(Device& device) {
  BufferPool pool;
  Buffer zeros = pool.GetZeroed(kSuperblockCopyBytes);
  for (const uint64_t offset : kSuperblockCopyOffset) {
    EPLOG_CO_AWAIT(WriteAt(device, offset, zeros.span()));
  }
  Task<Status> flush = device.Flush();
  co_return co_await flush;
}

}  // namespace

FileSpareShelf::FileSpareShelf(Session& session, ArrayFile file, Superblock member)
    : session_(session),
      file_(std::move(file)),
      member_(std::move(member)),
      left_out_(session.left_out_as_told()),
      helper_(session.loop(), kMostOpenings) {}

std::vector<std::string> FileSpareShelf::Listed() const {
  ArrayFile usable = file_;
  for (const std::filesystem::path& path : left_out_) {
    usable.DropSpare(path);
  }
  std::vector<std::string> paths;
  for (const std::string& spare : usable.spares) {
    paths.push_back(file_.LocatePath(spare).string());
  }
  return paths;
}

Task<SpareFound> FileSpareShelf::Identify(std::string path) {
  SpareFound found;
  Task<Status> looking =
      helper_.Run([&found, path, uuid = file_.uuid] { found = IdentifySpare(uuid, path); });
  const Status looked = co_await looking;
  if (!looked.ok()) {
    found.what = looked.error().ToString();
  }
  co_return found;
}

Task<Status> FileSpareShelf::Change(std::function<void(ArrayFile&)> change) {
  Result<ArrayFile> changed = ArrayFile();
  // Where it is gone it is made of what the session knows: also of what could not be written.
  Task<Status> writing = helper_.Run([&, before = session_.file(), turn = session_.change_turn()] {
    changed = ChangeInTime(before, change, turn);
  });
  Status ran = co_await writing;
  EPLOG_CO_TRY(ran);
  EPLOG_CO_TRY(changed);
  file_ = std::move(*changed);
  session_.Relist(change);
  co_return OkStatus();
}

Task<Result<Device*>> FileSpareShelf::Take(std::string path, DeviceIdentity looked_at) {
  Task<Result<Device*>> opening = session_.OpenDevice(path, looked_at);
  Result<Device*> opened = co_await opening;
  Drop(path);  // the same device has been opened once more
  if (opened.ok()) {
    open_[path] = *opened;
  }
  co_return opened;
}

void FileSpareShelf::Drop(const std::string& path) {
  const auto open = open_.find(path);
  if (open != open_.end()) {
    session_.CloseDevice(*open->second);
    open_.erase(open);
  }
}

Result<SpareDevice> FileSpareShelf::Describe(Device& device) const {
  const Geometry& g = member_.geometry;
  const SpareRoles roles = RolesFor(g, device.size_bytes());
  if (!roles.any()) {
    return Fail(ErrorCode::kInvalidArgument, TooSmall(g, device.name(), device.size_bytes()));
  }
  return SpareDevice{.device = &device, .fits_ssd = roles.ssd, .fits_log = roles.log};
}

// Copy A and B, as generations 0 and 1. What was looked at by the path may be old, or of another
// node: what the device itself says now counts.
Task<Status> FileSpareShelf::Mark(Device& device) {
  EPLOG_CO_AWAIT(session_.array().CheckNotInUse(device));
  EPLOG_CO_AWAIT(WipeEnds(device));
  BufferPool pool;
  Buffer buffer = pool.Get(kSuperblockCopyBytes);
  Superblock spare = SpareSuperblock(member_, NewUuid());
  for (spare.generation = 0; spare.generation < 2; ++spare.generation) {
    EncodeSuperblock(spare, buffer.span());
    EPLOG_CO_AWAIT(WriteAt(device, kSuperblockCopyOffset[spare.generation], buffer.span()));
  }
  Task<Status> flush = device.Flush();
  co_return co_await flush;
}

Task<Result<SpareDevice>> FileSpareShelf::Open(std::string path) {
  Task<SpareFound> identifying = Identify(path);
  const SpareFound found = co_await identifying;
  if (found.kind == SpareKind::kOther) {
    Drop(path);
    co_return Fail(ErrorCode::kNotFound, found.what);
  }
  Task<Result<Device*>> taking = Take(path, found.identity);
  Result<Device*> device = co_await taking;
  EPLOG_CO_TRY(device);
  Result<SpareDevice> described = Describe(**device);
  if (described.ok()) {
    described->wiped = found.kind != SpareKind::kSpare;
  } else {
    Drop(path);
  }
  co_return described;
}

Task<Result<SpareDevice>> FileSpareShelf::Add(std::string path, DeviceIdentity looked_at) {
  Status free = CheckNotListed(file_, path);
  EPLOG_CO_TRY(free);
  Task<Result<Device*>> taking = Take(path, looked_at);
  Result<Device*> device = co_await taking;
  EPLOG_CO_TRY(device);
  Task<Result<SpareDevice>> making = MakeSpare(path, **device);
  Result<SpareDevice> made = co_await making;
  if (made.ok()) {  // whoever left it out has asked for it since
    std::erase_if(left_out_, [&](const auto& left_out) { return left_out.string() == path; });
  } else {
    Drop(path);
  }
  co_return made;
}

Task<Result<SpareDevice>> FileSpareShelf::MakeSpare(std::string path, Device& device) {
  Result<SpareDevice> described = Describe(device);
  EPLOG_CO_TRY(described);
  // First the superblocks: a device that bears them and is not listed does no harm.
  EPLOG_CO_AWAIT(Mark(device));
  Task<Status> listing = Change([path](ArrayFile& file) { file.AddSpare(path); });
  Status status = co_await listing;
  EPLOG_CO_TRY(status);
  co_return described;
}

Task<Status> FileSpareShelf::PutBack(std::string path) {
  // The one that was wiped, wherever the path leads by now.
  const auto open = open_.find(path);
  if (open == open_.end()) {
    co_return Fail(ErrorCode::kNotFound, path + " is not open");
  }
  Task<Status> marking = Mark(*open->second);
  co_return co_await marking;
}

Task<Status> FileSpareShelf::Remove(std::string path) {
  Task<SpareFound> identifying = Identify(path);
  const SpareFound found = co_await identifying;
  if (!file_.ListsSpare(path) && found.kind != SpareKind::kSpare) {
    Drop(path);
    co_return Fail(ErrorCode::kNotFound, path + " is no spare of '" + file_.name + "'");
  }
  // First the line: blank and listed it would become a spare again.
  Task<Status> unlisting = Change([path](ArrayFile& file) { file.DropSpare(path); });
  Status status = co_await unlisting;
  EPLOG_CO_TRY(status);
  if (found.kind == SpareKind::kSpare) {
    Task<Result<Device*>> taking = Take(path, found.identity);
    Result<Device*> device = co_await taking;
    EPLOG_CO_TRY(device);
    Task<Status> checking = session_.array().CheckNotInUse(**device);
    status = co_await checking;
    if (status.ok()) {
      Task<Status> wiping = WipeSuperblocks(**device);
      status = co_await wiping;
    }
  }
  Drop(path);
  co_return status;
}

Task<Status> FileSpareShelf::Joined(std::string member, std::string path) {
  const auto move = [member, path](ArrayFile& file) { file.MoveMember(member, path); };
  Task<Status> writing = Change(move);
  Status written = co_await writing;
  session_.Relist(move);  // it has moved, whether or not that could be written
  Drop(path);             // it is the array's now
  co_return written;
}

}  // namespace eplog
