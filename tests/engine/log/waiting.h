// Chunks that wait for the log of an array of memory, which nobody writes to.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "device/memory_device.h"
#include "engine/core/core.h"
#include "engine/log/append_queue.h"
#include "format/superblock.h"
#include "layout/geometry.h"
#include "runtime/virtual_loop.h"

namespace eplog::test {

class WaitingPieces : public ::testing::Test {
 protected:
  static constexpr uint32_t kSsdCount = 4;

  static Superblock Identity() {
    GeometryRequest request;
    request.n = kSsdCount;
    request.m = 1;
    request.chunk_bytes = 4096;
    request.ssd_bytes = uint64_t{4} << 20;
    request.log_bytes = uint64_t{2} << 20;
    request.extent_stripes = 64;
    Superblock identity;
    identity.geometry = *PlanGeometry(request);
    return identity;
  }
  std::vector<Device*> Devices() {
    std::vector<Device*> devices;
    for (uint32_t i = 0; i <= kSsdCount; ++i) {
      memory_.push_back(std::make_unique<MemoryDevice>(std::to_string(i), uint64_t{4} << 20));
      devices.push_back(memory_.back().get());
    }
    return devices;
  }

  // A chunk of this SSD, one the further on the larger `which` is.
  ChunkIndex ChunkOn(uint8_t ssd, uint64_t which) const {
    ChunkIndex chunk(0);
    while (core_.geometry.SsdOf(chunk) != DeviceIndex(ssd) || which-- != 0) {
      ++chunk.value;
    }
    return chunk;
  }
  // Filled with one byte; waits from now on, as somebody who was promised log room for it.
  ChunkWrite& Submit(uint8_t ssd, uint64_t which = 0, std::byte fill = std::byte{0}) {
    contents_.push_back(core_.pool.Get(core_.geometry.chunk_bytes));
    const auto content = contents_.back().span();
    std::fill(content.begin(), content.end(), fill);
    ChunkWrite& write = chunks_.emplace_back();
    write.chunk = ChunkOn(ssd, which);
    write.word = SlotWord::At(SlotIndex(static_cast<uint32_t>(which)));
    write.data = content.data();
    queue_.Promise(queue_.BlocksForChunk());
    queue_.Submit(write);
    return write;
  }
  RecordWrite& SubmitRecord(bool urgent, uint64_t promised = 1) {
    RecordWrite& record = records_.emplace_back();
    record.promised = promised;
    queue_.Promise(urgent ? 0 : promised);
    queue_.Submit(record, urgent);
    return record;
  }

  VirtualLoop loop_;
  std::vector<std::unique_ptr<MemoryDevice>> memory_;
  Core core_{loop_, Devices(), Identity(), OpenOptions()};
  AppendQueue queue_{core_};
  std::deque<Buffer> contents_;
  std::deque<ChunkWrite> chunks_;
  std::deque<RecordWrite> records_;
};

}  // namespace eplog::test
