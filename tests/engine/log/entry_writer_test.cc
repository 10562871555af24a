// How an entry goes to the devices: neighbouring slots in one request, each log device its own log
// chunks behind the header, and counted is what was written.
#include "engine/log/entry_writer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include "tests/engine/parts_fixture.h"

namespace eplog {
namespace {

class Writing : public ::testing::Test {
 protected:
  Writing() {
    entry_.header.place = 10;
    entry_.header_block = Filled(kBlockBytes, std::byte{0xAA});
    parts_.core.members.set_before_io(
        [this](DeviceIndex device, IoKind kind) { kinds_.emplace_back(device, kind); });
    parts_.ResetCounters();
  }
  Buffer Filled(size_t bytes, std::byte fill) {
    Buffer buffer = parts_.core.pool.Get(bytes);
    std::ranges::fill(buffer.span(), fill);
    return buffer;
  }
  void AddSlot(uint8_t ssd, uint32_t slot, std::byte fill, bool parity = false) {
    contents_.push_back(Filled(parts_.g().chunk_bytes, fill));
    entry_.slot_writes.push_back(
        {DeviceIndex(ssd), SlotIndex(slot), contents_.back().data(), parity});
  }
  Status Write() { return parts_.Run(writer_.Write(entry_)); }
  [[nodiscard]] uint64_t WritesTo(uint8_t device) const {
    return parts_.counted(DeviceIndex(device)).writes;
  }
  // What all bytes of a slot are; 0xFF if they differ.
  std::byte InSlot(uint8_t ssd, uint32_t slot) {
    return Alike(parts_.SlotBytes(DeviceIndex(ssd), SlotWord::At(SlotIndex(slot))));
  }
  std::byte InLog(DeviceIndex log, uint64_t place) {
    return Alike(parts_.memory(log).bytes().subspan(parts_.g().LogOffset(place), kBlockBytes));
  }
  static std::byte Alike(std::span<const std::byte> bytes) {
    const bool alike =
        std::ranges::all_of(bytes, [&](std::byte byte) { return byte == bytes.front(); });
    return alike ? bytes.front() : std::byte{0xFF};
  }
  // Of requests to SSDs.
  [[nodiscard]] std::vector<IoKind> KindsOf(uint8_t ssd) const {
    std::vector<IoKind> kinds;
    for (const auto& [device, kind] : kinds_) {
      if (device.value == ssd) {
        kinds.push_back(kind);
      }
    }
    return kinds;
  }

  EngineParts parts_;
  EntryWriter writer_{parts_.core};
  LogEntry entry_;
  std::deque<Buffer> contents_;
  std::vector<std::pair<DeviceIndex, IoKind>> kinds_;
};

TEST_F(Writing, NeighbouringSlotsOfAnSsdGoInOneRequest) {
  AddSlot(0, 5, std::byte{5});
  AddSlot(1, 9, std::byte{6});  // the next number, on another SSD
  AddSlot(0, 3, std::byte{3});
  AddSlot(0, 8, std::byte{8});
  AddSlot(0, 4, std::byte{4});
  AddSlot(2, 5, std::byte{7});
  AddSlot(2, 4, std::byte{9});
  ASSERT_TRUE(Write().ok());
  EXPECT_EQ(WritesTo(0), 2U);
  EXPECT_EQ(WritesTo(1), 1U);
  EXPECT_EQ(WritesTo(2), 1U);
  for (const uint32_t slot : {3U, 4U, 5U, 8U}) {
    EXPECT_EQ(InSlot(0, slot), static_cast<std::byte>(slot));
  }
  EXPECT_EQ(InSlot(0, 6), std::byte{0});
  EXPECT_EQ(InSlot(0, 7), std::byte{0});
  EXPECT_EQ(InSlot(1, 9), std::byte{6});
  EXPECT_EQ(InSlot(0, 9), std::byte{0});
  EXPECT_EQ(InSlot(2, 4), std::byte{9});
  EXPECT_EQ(InSlot(2, 5), std::byte{7});
}

// Larger ones would keep others waiting.
TEST_F(Writing, NoRequestForSlotsIsLargerThanAMebibyte) {
  const uint32_t most = (1U << 20) / parts_.g().chunk_bytes;
  ASSERT_GT(parts_.g().slots, most + 1);
  const Buffer content = Filled(parts_.g().chunk_bytes, std::byte{1});
  for (uint32_t slot = 0; slot < most + 1; ++slot) {
    entry_.slot_writes.push_back({DeviceIndex(0), SlotIndex(slot), content.data(), false});
  }
  ASSERT_TRUE(Write().ok());
  EXPECT_EQ(WritesTo(0), 2U);
  EXPECT_EQ(parts_.counted(DeviceIndex(0)).writes_by_size[20], 1U);
  EXPECT_EQ(parts_.core.traffic.ssd_data_bytes, (most + 1) * parts_.g().chunk_bytes);
}

// A request of both is told as one of data, and each chunk is counted as what it is.
TEST_F(Writing, DataAndParityAreToldApart) {
  AddSlot(0, 1, std::byte{1}, true);
  AddSlot(0, 2, std::byte{2}, true);
  AddSlot(1, 1, std::byte{1}, true);
  AddSlot(1, 2, std::byte{2}, false);
  AddSlot(1, 3, std::byte{3}, false);
  AddSlot(2, 1, std::byte{1}, false);
  ASSERT_TRUE(Write().ok());
  EXPECT_EQ(KindsOf(0), std::vector{IoKind::kParity});
  EXPECT_EQ(KindsOf(1), std::vector{IoKind::kData});
  EXPECT_EQ(KindsOf(2), std::vector{IoKind::kData});
  EXPECT_EQ(parts_.core.traffic.ssd_parity_bytes, 3 * parts_.g().chunk_bytes);
  EXPECT_EQ(parts_.core.traffic.ssd_data_bytes, 3 * parts_.g().chunk_bytes);
}

TEST_F(Writing, EachLogDeviceGetsTheHeaderAndItsOwnChunkOfEachLogStripe) {
  ASSERT_EQ(parts_.g().m, 2U);
  ASSERT_EQ(parts_.g().chunk_bytes, kBlockBytes);
  for (const int fill : {0x10, 0x11, 0x20, 0x21}) {
    entry_.log_chunks.push_back(Filled(kBlockBytes, static_cast<std::byte>(fill)));
  }
  ASSERT_TRUE(Write().ok());
  for (uint32_t j = 0; j < 2; ++j) {
    const DeviceIndex log = parts_.g().LogDevice(j);
    EXPECT_EQ(parts_.counted(log).writes, 1U);
    EXPECT_EQ(KindsOf(log.value), std::vector{IoKind::kEntry});
    EXPECT_EQ(InLog(log, 9), std::byte{0});
    EXPECT_EQ(InLog(log, 10), std::byte{0xAA});
    EXPECT_EQ(InLog(log, 11), static_cast<std::byte>(0x10 + j));
    EXPECT_EQ(InLog(log, 12), static_cast<std::byte>(0x20 + j));
    EXPECT_EQ(InLog(log, 13), std::byte{0});
  }
  EXPECT_EQ(parts_.core.log_bytes.headers, 2 * kBlockBytes);
  EXPECT_EQ(parts_.core.log_bytes.chunks, 4 * kBlockBytes);
}

TEST_F(Writing, ALostLogDeviceGetsNothingAndTheOtherOneAll) {
  parts_.Lose(parts_.g().LogDevice(0));
  entry_.log_chunks.push_back(Filled(kBlockBytes, std::byte{0x10}));
  entry_.log_chunks.push_back(Filled(kBlockBytes, std::byte{0x11}));
  ASSERT_TRUE(Write().ok());
  EXPECT_TRUE(KindsOf(parts_.g().LogDevice(0).value).empty());
  EXPECT_EQ(InLog(parts_.g().LogDevice(1), 10), std::byte{0xAA});
  EXPECT_EQ(InLog(parts_.g().LogDevice(1), 11), std::byte{0x11});
}

// I7, I11: who does not write is lost or stops the array; either way it wrote nothing.
TEST_F(Writing, WhatFailsIsNotCounted) {
  AddSlot(0, 1, std::byte{1});
  AddSlot(1, 1, std::byte{1}, true);
  AddSlot(2, 1, std::byte{1});
  parts_.faulty(DeviceIndex(0)).Add({.kinds = MaskOf(RequestKind::kWrite)});
  parts_.faulty(DeviceIndex(1)).Add({.kinds = MaskOf(RequestKind::kWrite)});
  EXPECT_TRUE(Write().ok()) << "a loss is no error";
  EXPECT_FALSE(parts_.core.members.live(DeviceIndex(0)));
  EXPECT_EQ(parts_.core.traffic.ssd_data_bytes, parts_.g().chunk_bytes);
  EXPECT_EQ(parts_.core.traffic.ssd_parity_bytes, 0U);
}

TEST_F(Writing, LackOfSpaceBelowIsAnErrorOfSsdsAndOfLogDevices) {
  for (const DeviceIndex device : {DeviceIndex(0), parts_.g().LogDevice(1)}) {
    entry_.slot_writes.clear();
    AddSlot(0, 1, std::byte{1});
    parts_.faulty(device).Add({.kinds = MaskOf(RequestKind::kWrite), .code = ErrorCode::kNoSpace});
    const Status full = Write();
    ASSERT_FALSE(full.ok()) << int{device.value};
    EXPECT_EQ(full.error().code, ErrorCode::kNoSpace);
    parts_.faulty(device).Clear();
  }
  EXPECT_EQ(parts_.core.traffic.ssd_data_bytes, parts_.g().chunk_bytes) << "of the second one";
}

}  // namespace
}  // namespace eplog
