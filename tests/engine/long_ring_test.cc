// Journal rings that are longer than what is read at once.
#include <gtest/gtest.h>

#include <vector>

#include "format/entry.h"
#include "format/superblock.h"
#include "tests/engine/array_fixture.h"

namespace eplog {
namespace {

constexpr uint64_t kChunk = 4096;
constexpr uint64_t kAtOnce = 256;  // blocks

Superblock NewestSuperblock(TestArray& test) {
  Superblock newest;
  for (const uint64_t offset : kSuperblockCopyOffset) {
    const auto found =
        DecodeSuperblock(test.memory(0).bytes().subspan(offset, kSuperblockCopyBytes));
    newest = found.ok() && found->generation > newest.generation ? *found : newest;
  }
  return newest;
}

// With the log device gone all that was flushed is on the rings, wherever there.
TEST(LongRing, IsReadToItsEnd) {
  ArrayShape shape;
  shape.n = 2;
  shape.m = 1;
  shape.ring_bytes = uint64_t{8} << 20;  // so that no checkpoint comes
  shape.headers_a_ring_block = 1;
  shape.auto_commit = false;
  TestArray test(shape);
  constexpr uint64_t kChunks = 1100;
  const VolumeId volume = test.CreateVolume("v", kChunks * kChunk);
  Random random(3);
  const std::vector<std::byte> content = RandomBytes(random, kChunks * kChunk);
  for (uint64_t i = 0; i < kChunks; ++i) {
    ASSERT_TRUE(
        test.Write(volume, i * kChunk, std::span(content).subspan(i * kChunk, kChunk)).ok());
    ASSERT_TRUE(RunTask(test.loop, test.array->FlushAll()).ok());
  }
  ASSERT_EQ(test.array->GetStatus().traffic.checkpoints, 0U);
  test.Kill();
  const Superblock superblock = NewestSuperblock(test);
  const Geometry& g = superblock.geometry;
  ASSERT_GT(g.ring_blocks, 2 * kAtOnce);
  for (uint8_t ssd = 0; ssd < 2; ++ssd) {
    const uint64_t block = 2 * kAtOnce + 3;
    ASSERT_TRUE(DecodeRingBlock(test.memory(ssd).bytes().subspan(g.RingOffset(block), kBlockBytes),
                                superblock.array_uuid, g, DeviceIndex(ssd))
                    .ok())
        << "it reaches into the last piece";
  }
  std::vector<Device*> devices = test.Devices();
  devices.pop_back();
  OpenOptions options;
  options.entropy = 99;
  auto opened = RunTask(test.loop, Array::Open(test.loop, devices, options));
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  test.array = std::move(*opened);
  EXPECT_GE(test.array->GetStatus().recovery_entries_replayed, kChunks);
  EXPECT_TRUE(test.Read(volume, 0, content.size()) == content);
}

}  // namespace
}  // namespace eplog
