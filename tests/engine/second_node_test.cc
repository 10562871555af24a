// Two nodes of one storage, which have two identities: a second path of a disk, a loop device over a
// member's file. Who is there is told by what is written there.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "device/forwarding_device.h"
#include "engine/checkpoint/superblock_copies.h"
#include "tests/engine/small_array.h"

namespace eplog {
namespace {

constexpr uint64_t kChunk = 4096;
constexpr uint32_t kSsdCount = 4;
constexpr uint32_t kParity = 2;

class SecondNode final : public ForwardingDevice {
 public:
  SecondNode(std::string name, Device& storage)
      : ForwardingDevice(storage), name_(std::move(name)) {}
  [[nodiscard]] DeviceIdentity identity() const override { return Device::identity(); }
  [[nodiscard]] const std::string& name() const override { return name_; }

 private:
  std::string name_;
};

class SecondNodes : public ::testing::Test {
 protected:
  void SetUp() override {
    content_ = RandomBytes(random_, 60 * kChunk);
    ASSERT_TRUE(test_.Write(volume_, 0, content_).ok());
    ASSERT_TRUE(test_.Flush().ok());
  }
  std::vector<std::byte> BytesOf(uint32_t device) {
    const auto bytes = test_.memory(device).bytes();
    return {bytes.begin(), bytes.end()};
  }
  std::unique_ptr<MemoryDevice> CopyOf(uint32_t device) {
    const auto bytes = test_.memory(device).bytes();
    auto copy = std::make_unique<MemoryDevice>("copy", bytes.size());
    std::ranges::copy(bytes, copy->bytes().begin());
    return copy;
  }
  void ExpectAllReads() { EXPECT_EQ(test_.Read(volume_, 0, content_.size()), content_); }

  SmallArray test_{SmallShape(kSsdCount, kParity)};
  VolumeId volume_ = test_.CreateVolume("v", 100 * kChunk);
  Random random_{3};
  std::vector<std::byte> content_;
};

TEST_F(SecondNodes, OfADeviceInUseReplaceNothing) {
  for (const uint32_t used : {0U, kSsdCount}) {
    const uint32_t lost = used == 0 ? 1 : kSsdCount + 1;
    ASSERT_TRUE(test_.Fail(lost).ok());
    const std::vector<std::byte> before = BytesOf(used);
    SecondNode node("/dev/second", *test_.Devices()[used]);
    const Status refused = test_.Replace(lost, node);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kExists);
    EXPECT_EQ(refused.error().message,
              "/dev/second is " + std::string(used == 0 ? "ssd0" : "log0") +
                  " by another path, and in use; if it is a copy of it, wipe that first. Nothing "
                  "was written to it");
    EXPECT_EQ(BytesOf(used), before);
    EXPECT_EQ(test_.State(lost), DeviceState::kFailed);
    // For a spare it would be wiped, too.
    EXPECT_FALSE(RunTask(test_.loop, test_.array->CheckNotInUse(node)).ok());
  }
  ExpectAllReads();
  ASSERT_TRUE(test_.ReplaceByItselfBlank(1).ok());
  ExpectAllReads();
}

// What is just written down through the other node.
class TornNode final : public ForwardingDevice {
 public:
  TornNode(Device& storage, int torn) : ForwardingDevice(storage), torn_(torn) {}
  [[nodiscard]] DeviceIdentity identity() const override { return Device::identity(); }
  Task<Status> Read(uint64_t offset_bytes, std::span<const iovec> parts) override {
    Task<Status> reading = ForwardingDevice::Read(offset_bytes, parts);
    Status status = co_await reading;
    if (torn_ > 0) {
      --torn_;
      static_cast<std::byte*>(parts.front().iov_base)[100] ^= std::byte{1};
    }
    co_return status;
  }

 private:
  int torn_;
};

TEST_F(SecondNodes, AreKnownWhileTheirSuperblocksAreWritten) {
  TornNode node(*test_.Devices()[0], 2);  // both copies, one after the other
  const Status refused = RunTask(test_.loop, test_.array->CheckNotInUse(node));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kExists);
  // What is damaged for good is nobody's.
  TornNode damaged(*test_.Devices()[0], 1000);
  EXPECT_TRUE(RunTask(test_.loop, test_.array->CheckNotInUse(damaged)).ok());
}

// Closing waits for it, as for any request: what it asks of the array is gone after that.
TEST_F(SecondNodes, AreLookedAtToTheEndBeforeTheArrayIsGone) {
  DelayDevice slow(test_.loop, *test_.Devices()[0], {.read_us = 1'000'000});
  std::optional<Status> looked;
  test_.loop.Spawn([](Task<Status> looking, std::optional<Status>* out) -> Task<void> {
    *out = co_await looking;
  }(test_.array->CheckNotInUse(slow), &looked));
  test_.Sleep(1'000);
  ASSERT_FALSE(looked);
  ASSERT_TRUE(test_.Close().ok());
  ASSERT_TRUE(looked);
}

// Nothing tells it from the device itself.
TEST_F(SecondNodes, ACopyOfADeviceInUseAsItIsNowIsNotTaken) {
  ASSERT_TRUE(test_.Fail(1).ok());
  const auto copy = CopyOf(0);
  const Status refused = test_.Replace(1, *copy);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("copy is ssd0 by another path"), std::string::npos);
}

TEST_F(SecondNodes, AnOlderCopyOfOneIsTaken) {
  const auto copy = CopyOf(0);
  ASSERT_TRUE(test_.Close().ok());
  test_.Open();  // under another epoch, which all bear
  ASSERT_TRUE(test_.Fail(1).ok());
  EXPECT_TRUE(test_.Replace(1, *copy).ok());
  ExpectAllReads();
  ASSERT_TRUE(test_.Close().ok());
}

TEST_F(SecondNodes, OfADeviceThatIsLostAreTaken) {
  ASSERT_TRUE(test_.Fail(1).ok());
  ASSERT_TRUE(test_.Fail(2).ok());
  SecondNode node("/dev/second", *test_.Devices()[2]);
  EXPECT_TRUE(RunTask(test_.loop, test_.array->CheckNotInUse(node)).ok());
  EXPECT_TRUE(test_.Replace(1, node).ok());
  ExpectAllReads();
  ASSERT_TRUE(test_.Close().ok());
}

using Memory = std::vector<std::unique_ptr<MemoryDevice>>;

Memory MakeMemory(const std::vector<std::string>& names) {
  Memory memory;
  for (const std::string& name : names) {
    memory.push_back(std::make_unique<MemoryDevice>(name, uint64_t{8} << 20));
  }
  return memory;
}

Status Create(EventLoop& loop, std::vector<Device*> ssds, Device& log) {
  CreateOptions options;
  options.parity = 1;
  options.entropy = 99;
  return RunTask(loop, Array::Create(loop, std::move(ssds), {&log}, options));
}

TEST_F(SecondNodes, BlankOnesAndThoseOfOtherArraysAreNobodys) {
  const Memory memory = MakeMemory({"a", "b", "log"});
  const auto check = [&] { return RunTask(test_.loop, test_.array->CheckNotInUse(*memory[0])); };
  EXPECT_TRUE(check().ok());
  ASSERT_TRUE(Create(test_.loop, {memory[0].get(), memory[1].get()}, *memory[2]).ok());
  EXPECT_TRUE(check().ok());
}

TEST(SecondNodesOfNobody, AreNotMadeTwoMembers) {
  VirtualLoop loop;
  const Memory memory = MakeMemory({"a", "b", "log"});
  SecondNode second("second", *memory[1]);
  const Status created = Create(loop, {memory[0].get(), memory[1].get(), &second}, *memory[2]);
  ASSERT_FALSE(created.ok());
  EXPECT_EQ(created.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(created.error().message,
            "b does not keep what is written to it: what second was given is there, so that the "
            "two are one device");
  for (const auto& device : memory) {
    const auto superblock = RunTask(loop, ReadSuperblock(*device));
    ASSERT_FALSE(superblock.ok()) << "half an array is left on " << device->name();
    EXPECT_EQ(superblock.error().code, ErrorCode::kNotFound);
  }
}

TEST(SecondNodesOfNobody, NorIsWhatKeepsNothingAMember) {
  VirtualLoop loop;
  const Memory memory = MakeMemory({"a", "b", "log"});
  FaultDevice liar(*memory[1]);
  liar.Add(
      {.kinds = MaskOf(RequestKind::kWrite), .from_then_on = true, .action = Fault::Action::kDrop});
  EXPECT_FALSE(Create(loop, {memory[0].get(), &liar}, *memory[2]).ok());
}

}  // namespace
}  // namespace eplog
