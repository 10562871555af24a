// A superblock that power tore, and another one that is torn in its place: together they must not
// make the first one whole, which the array has left behind meanwhile.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "device/forwarding_device.h"
#include "format/superblock.h"
#include "tests/engine/array_fixture.h"

namespace eplog {
namespace {

constexpr size_t kSector = 512;
constexpr uint32_t kSsd = 1;

using Bytes = std::vector<std::byte>;

// Keeps what is written to one copy of the superblock.
class Recorder final : public ForwardingDevice {
 public:
  Recorder(Device& device, uint64_t offset_bytes)
      : ForwardingDevice(device), offset_(offset_bytes) {}
  Task<Status> Write(uint64_t offset_bytes, std::span<const iovec> from) override {
    if (offset_bytes == offset_) {
      Bytes bytes;
      for (const iovec& part : from) {
        const auto* begin = static_cast<const std::byte*>(part.iov_base);
        bytes.insert(bytes.end(), begin, begin + part.iov_len);
      }
      writes.push_back(std::move(bytes));
    }
    return below().Write(offset_bytes, from);
  }
  std::vector<Bytes> writes;

 private:
  uint64_t offset_;
};

TEST(TornSuperblock, IsNotCompletedByTheNextOne) {
  ArrayShape shape;
  shape.n = 4;
  shape.m = 1;
  TestArray test(shape);
  static_cast<void>(test.CreateVolume("v", 1 << 20));
  test.Kill();
  const auto copy = [&](size_t which) {
    return test.memory(kSsd).bytes().subspan(kSuperblockCopyOffset[which], kSuperblockCopyBytes);
  };
  const auto a = DecodeSuperblock(copy(0));
  const auto b = DecodeSuperblock(copy(1));
  ASSERT_TRUE(a.ok() && b.ok());
  const size_t newest = a->generation > b->generation ? 0 : 1;
  // A sector of zeros is garbage: the power went there.
  constexpr size_t kTorn = kSuperblockCopyBytes - kSector;
  std::ranges::fill(copy(newest).subspan(kTorn, kSector), std::byte{0x5A});
  const Bytes torn(copy(newest).begin(), copy(newest).end());
  ASSERT_FALSE(DecodeSuperblock(torn).ok());

  Recorder recorder(*test.Devices()[kSsd], kSuperblockCopyOffset[newest]);
  std::vector<Device*> devices = test.Devices();
  devices[kSsd] = &recorder;
  OpenOptions options;
  options.entropy = 77;
  auto opened = RunTask(test.loop, Array::Open(test.loop, devices, options));
  ASSERT_TRUE(opened.ok()) << opened.error().ToString();
  EXPECT_TRUE(RunTask(test.loop, (*opened)->Close()).ok());

  ASSERT_GE(recorder.writes.size(), 2U);
  Bytes before = torn;
  for (const Bytes& write : recorder.writes) {
    // All but one sector of it, or just one, have landed.
    for (size_t at = 0; at < write.size(); at += kSector) {
      Bytes most = write;
      Bytes one = before;
      std::copy_n(before.begin() + static_cast<std::ptrdiff_t>(at), kSector,
                  most.begin() + static_cast<std::ptrdiff_t>(at));
      std::copy_n(write.begin() + static_cast<std::ptrdiff_t>(at), kSector,
                  one.begin() + static_cast<std::ptrdiff_t>(at));
      EXPECT_TRUE(!DecodeSuperblock(one).ok() || one == write || one == before) << at;
      EXPECT_TRUE(!DecodeSuperblock(most).ok() || most == write || most == before) << at;
    }
    before = write;
    if (DecodeSuperblock(write).ok()) {
      break;  // the next one comes after the other copy
    }
  }
  EXPECT_TRUE(DecodeSuperblock(before).ok());
}

}  // namespace
}  // namespace eplog
