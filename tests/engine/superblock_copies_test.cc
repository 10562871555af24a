// The two copies of a superblock, as they are written: in turn, each durable before the next, and a
// copy that was damaged is made into nothing before another one takes its place (I8, I11).
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "device/forwarding_device.h"
#include "format/superblock.h"
#include "tests/engine/array_fixture.h"

namespace eplog {
namespace {

constexpr size_t kSector = 512;
constexpr uint32_t kSsdCount = 4;
constexpr uint32_t kDevices = kSsdCount + 1;

using Bytes = std::vector<std::byte>;

// What comes to a device: writes of superblocks with their bytes, other writes, flushes.
class Recorder final : public ForwardingDevice {
 public:
  struct Request {
    enum class Kind : uint8_t { kCopy, kOther, kFlush } kind = Kind::kOther;
    size_t copy = 0;
    Bytes bytes;
  };
  using ForwardingDevice::ForwardingDevice;

  Task<Status> Write(uint64_t offset_bytes, std::span<const iovec> from) override {
    Request request;
    for (size_t copy = 0; copy < 2; ++copy) {
      if (offset_bytes == kSuperblockCopyOffset[copy]) {
        request.kind = Request::Kind::kCopy;
        request.copy = copy;
        for (const iovec& part : from) {
          const auto* begin = static_cast<const std::byte*>(part.iov_base);
          request.bytes.insert(request.bytes.end(), begin, begin + part.iov_len);
        }
      }
    }
    requests.push_back(std::move(request));
    return below().Write(offset_bytes, from);
  }
  Task<Status> Flush() override {
    requests.push_back({Request::Kind::kFlush, 0, {}});
    return below().Flush();
  }
  std::vector<Request> requests;
};

class SuperblockCopies : public ::testing::Test {
 protected:
  void SetUp() override {
    ArrayShape shape;
    shape.n = kSsdCount;
    shape.m = 1;
    shape.ssd_bytes = uint64_t{8} << 20;
    shape.log_bytes = uint64_t{4} << 20;
    test_ = std::make_unique<TestArray>(shape);
    static_cast<void>(test_->CreateVolume("v", 1 << 20));
    test_->Kill();
  }
  std::span<std::byte> Copy(uint32_t device, size_t which) {
    return test_->memory(device).bytes().subspan(kSuperblockCopyOffset[which],
                                                 kSuperblockCopyBytes);
  }
  size_t Newer(uint32_t device) {
    const auto a = DecodeSuperblock(Copy(device, 0));
    const auto b = DecodeSuperblock(Copy(device, 1));
    EXPECT_TRUE(a.ok() && b.ok());
    return a->generation > b->generation ? 0 : 1;
  }
  // An opening and a closing with a recorder before each device.
  void OpenRecorded() {
    recorders_.clear();
    std::vector<Device*> devices;
    for (Device* device : test_->Devices()) {
      recorders_.push_back(std::make_unique<Recorder>(*device));
      devices.push_back(recorders_.back().get());
    }
    OpenOptions options;
    options.entropy = 77;
    auto opened = RunTask(test_->loop, Array::Open(test_->loop, devices, options));
    ASSERT_TRUE(opened.ok()) << opened.error().ToString();
    const ArrayStatus status = (*opened)->GetStatus();
    const Traffic& traffic = status.traffic;
    uint64_t on_ssds = 0;
    uint64_t on_logs = 0;
    for (const DeviceStatus& device : status.devices) {
      (device.role == DeviceRole::kSsd ? on_ssds : on_logs) += device.bytes_written;
    }
    EXPECT_EQ(traffic.ssd_data_bytes + traffic.ssd_parity_bytes + traffic.ssd_metadata_bytes +
                  traffic.ssd_repair_bytes,
              on_ssds);
    EXPECT_EQ(traffic.log_chunk_bytes + traffic.log_header_bytes, on_logs);
    EXPECT_TRUE(RunTask(test_->loop, (*opened)->Close()).ok());
  }

  std::unique_ptr<TestArray> test_;
  std::vector<std::unique_ptr<Recorder>> recorders_;
};

TEST_F(SuperblockCopies, AreWrittenInTurnEachDurableBeforeTheNext) {
  std::vector<size_t> newer;
  std::vector<uint64_t> generations;
  for (uint32_t i = 0; i < kDevices; ++i) {
    newer.push_back(Newer(i));
    generations.push_back(DecodeSuperblock(Copy(i, newer[i]))->generation);
  }
  ASSERT_NO_FATAL_FAILURE(OpenRecorded());
  for (uint32_t i = 0; i < kDevices; ++i) {
    size_t next = 1 - newer[i];
    uint64_t generation = generations[i];
    bool first = true;
    bool flushed = true;
    for (const Recorder::Request& request : recorders_[i]->requests) {
      if (request.kind == Recorder::Request::Kind::kFlush) {
        flushed = true;
        continue;
      }
      EXPECT_TRUE(!first || request.kind == Recorder::Request::Kind::kCopy)
          << "the epoch comes before anything else";
      if (request.kind == Recorder::Request::Kind::kCopy) {
        EXPECT_TRUE(flushed);
        flushed = false;
        first = false;
        EXPECT_EQ(request.copy, next);
        next = 1 - next;
        const auto superblock = DecodeSuperblock(request.bytes);
        ASSERT_TRUE(superblock.ok());
        EXPECT_EQ(superblock->generation, ++generation);
        EXPECT_EQ(superblock->index.value, i);
        EXPECT_EQ(superblock->device_uuid, superblock->members[i].uuid);
      }
    }
    EXPECT_GE(generation, generations[i] + 3) << "the epoch, its base, the checkpoint of closing";
    EXPECT_TRUE(flushed);
  }
}

// A sector that is the same before or after would complete what was torn.
TEST_F(SuperblockCopies, NothingIsLeftOfADamagedOne) {
  for (const uint32_t device : {1U, kSsdCount}) {
    SetUp();
    const size_t damaged = Newer(device);
    constexpr size_t kTorn = kSuperblockCopyBytes - kSector;
    std::ranges::fill(Copy(device, damaged).subspan(kTorn, kSector), std::byte{0x5A});
    const Bytes torn(Copy(device, damaged).begin(), Copy(device, damaged).end());
    ASSERT_NO_FATAL_FAILURE(OpenRecorded());
    std::vector<Bytes> writes;
    bool durable = false;
    for (const Recorder::Request& request : recorders_[device]->requests) {
      const bool here = request.kind == Recorder::Request::Kind::kCopy && request.copy == damaged;
      durable = durable || (writes.size() == 1 && request.kind == Recorder::Request::Kind::kFlush);
      if (here) {
        EXPECT_TRUE(writes.size() != 1 || durable) << "before what comes in its place";
        writes.push_back(request.bytes);
      }
    }
    ASSERT_GE(writes.size(), 2U);
    const auto filler = DecodeSuperblock(writes[0]);
    ASSERT_FALSE(filler.ok());
    EXPECT_EQ(filler.error().code, ErrorCode::kCorrupt) << "it is told that there was one";
    for (size_t at = 0; at < kSuperblockCopyBytes; at += kSector) {
      const auto sector = [at](const Bytes& bytes) {
        return std::span(bytes).subspan(at, kSector);
      };
      EXPECT_FALSE(std::ranges::equal(sector(writes[0]), sector(torn))) << at;
      EXPECT_FALSE(std::ranges::equal(sector(writes[0]), sector(writes[1]))) << at;
    }
    for (size_t i = 1; i < writes.size(); ++i) {
      EXPECT_TRUE(DecodeSuperblock(writes[i]).ok()) << "once is enough";
    }
  }
}

}  // namespace
}  // namespace eplog
