// Looking at a heap of devices: whose members they are, as the assembly judges, in words.
#include "eplog/examine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "format/superblock.h"
#include "tests/engine/array_fixture.h"

namespace eplog {
namespace {

constexpr uint32_t kSsdCount = 4;
constexpr uint32_t kParity = 2;
constexpr uint32_t kDevices = kSsdCount + kParity;

ArrayShape Shape() {
  ArrayShape shape;
  shape.n = kSsdCount;
  shape.m = kParity;
  shape.ssd_bytes = uint64_t{8} << 20;
  shape.log_bytes = uint64_t{4} << 20;
  return shape;
}

class Examine : public ::testing::Test {
 protected:
  void SetUp() override {
    test_ = std::make_unique<TestArray>(Shape());
    ASSERT_TRUE(test_->Close().ok());
    devices_ = test_->Devices();
  }
  Examination Look() { return RunTask(test_->loop, ExamineDevices(devices_)); }
  // The devices as given, or how Array::Open refuses them.
  Result<std::unique_ptr<Array>> TryOpen() {
    OpenOptions options;
    options.read_only = true;
    return RunTask(test_->loop, Array::Open(test_->loop, devices_, options));
  }
  std::string Refusal() {
    const auto opened = TryOpen();
    return opened.ok() ? "" : opened.error().message;
  }
  void Fail(uint32_t device) {
    test_->Open();
    ASSERT_TRUE(RunTask(test_->loop, test_->array->FailDevice(device, "by hand")).ok());
    ASSERT_TRUE(test_->Close().ok());
  }
  void Damage(uint32_t device, size_t copy, bool magic_too) {
    std::span<std::byte> bytes = test_->memory(device).bytes();
    for (size_t i = magic_too ? 0 : 100; i < 200; ++i) {
      bytes[kSuperblockCopyOffset[copy] + i] ^= std::byte{0x5A};
    }
  }
  // The same content under another name.
  Device* CopyOf(uint32_t device, uint64_t bytes) {
    copies_.push_back(std::make_unique<MemoryDevice>("copy" + std::to_string(device), bytes));
    std::memcpy(copies_.back()->bytes().data(), test_->memory(device).bytes().data(), bytes);
    return copies_.back().get();
  }

  std::unique_ptr<TestArray> test_;
  std::vector<Device*> devices_;
  std::vector<std::unique_ptr<MemoryDevice>> copies_;
};

TEST_F(Examine, WholeInAnyOrder) {
  std::reverse(devices_.begin(), devices_.end());
  const Examination found = Look();
  ASSERT_EQ(found.arrays.size(), 1U);
  const ExaminedArray& array = found.arrays.front();
  EXPECT_TRUE(array.whole());
  EXPECT_EQ(array.further_losses_survived, kParity);
  EXPECT_EQ(array.data_chunks, kSsdCount - kParity);
  EXPECT_EQ(array.parity_chunks, kParity);
  ASSERT_EQ(found.devices.size(), kDevices);
  for (uint32_t i = 0; i < kDevices; ++i) {
    EXPECT_EQ(found.devices[i].verdict, MemberVerdict::kPart);
    EXPECT_EQ(found.devices[i].whole_copies, 2U);
    EXPECT_EQ(found.devices[i].why, "");
    EXPECT_EQ(found.devices[i].epoch, array.epoch);
  }
  EXPECT_EQ(found.devices[0].member, "log1");
  EXPECT_EQ(found.devices[kDevices - 1].member, "ssd0");
}

TEST_F(Examine, AsManyMissingAsParityIsDegradedAndOneMoreIsTheEnd) {
  for (uint32_t missing = 1; missing <= 3; ++missing) {
    devices_.erase(devices_.begin());
    const Examination found = Look();
    const ExaminedArray& array = found.arrays.front();
    EXPECT_FALSE(array.whole());
    EXPECT_EQ(array.opens(), missing <= kParity);
    EXPECT_EQ(array.missing.size(), missing);
    EXPECT_EQ(array.missing.front(), "ssd0");
    EXPECT_EQ(array.further_losses_survived, missing <= kParity ? kParity - missing : 0);
    EXPECT_EQ(Refusal().find(array.why_not), 0U) << "the words of the assembly itself";
  }
}

TEST_F(Examine, StaleSinceOthersWentOn) {
  Fail(1);
  const Examination found = Look();
  const ExaminedArray& array = found.arrays.front();
  EXPECT_EQ(array.missing, std::vector<std::string>{"ssd1"});
  EXPECT_EQ(found.devices[1].verdict, MemberVerdict::kStale);
  EXPECT_LT(found.devices[1].epoch, array.epoch);
  EXPECT_NE(found.devices[1].why.find("of epoch " + std::to_string(found.devices[1].epoch)),
            std::string::npos)
      << found.devices[1].why;
  EXPECT_EQ(found.devices[0].verdict, MemberVerdict::kPart);
  auto opened = TryOpen();
  ASSERT_TRUE(opened.ok());
  EXPECT_NE((*opened)->GetStatus().devices[1].failed_because.find("ssd1: it failed or was away"),
            std::string::npos);
}

TEST_F(Examine, RefusalForTooManyNamesTheStaleOneAndWhereItIs) {
  Fail(1);
  devices_.erase(devices_.begin() + 4, devices_.end());
  EXPECT_NE(Refusal().find("ssd1 (stale: ssd1: it failed or was away"), std::string::npos)
      << Refusal();
}

TEST_F(Examine, ReplacedDeviceThatComesBack) {
  test_->Open();
  ASSERT_TRUE(RunTask(test_->loop, test_->array->FailDevice(2, "by hand")).ok());
  MemoryDevice fresh("fresh", test_->memory(2).size_bytes());
  ASSERT_TRUE(RunTask(test_->loop, test_->array->ReplaceDevice(2, fresh)).ok());
  for (int i = 0; i < 100 && test_->array->GetStatus().state == ArrayState::kRebuilding; ++i) {
    test_->Sleep(200'000);
  }
  ASSERT_TRUE(test_->Close().ok());
  devices_.push_back(&fresh);
  Examination found = Look();
  EXPECT_EQ(found.devices[2].verdict, MemberVerdict::kStale);
  EXPECT_NE(found.devices[2].why.find("another device has had its place"), std::string::npos);
  EXPECT_EQ(found.devices.back().verdict, MemberVerdict::kPart);
  EXPECT_TRUE(found.arrays.front().whole());
  const auto opened = TryOpen();
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_EQ((*opened)->GetStatus().devices[2].state, DeviceState::kOk);
  EXPECT_EQ((*opened)->GetStatus().devices[2].failed_because, "");
  devices_.pop_back();
  devices_[2] = &fresh;
  EXPECT_TRUE(Look().arrays.front().whole());
}

TEST_F(Examine, JoiningDeviceIsThereAndCountsAsOneLossAlready) {
  const VolumeId volume = [this] {
    test_->Open();
    return test_->CreateVolume("v", uint64_t{4} << 20);
  }();
  Random random(3);
  ASSERT_TRUE(test_->Write(volume, 0, RandomBytes(random, uint64_t{4} << 20)).ok());
  ASSERT_TRUE(RunTask(test_->loop, test_->array->FailDevice(2, "by hand")).ok());
  MemoryDevice fresh("fresh", test_->memory(2).size_bytes());
  ASSERT_TRUE(RunTask(test_->loop, test_->array->ReplaceDevice(2, fresh)).ok());
  test_->Kill();
  devices_[2] = &fresh;
  const Examination found = Look();
  const ExaminedArray& array = found.arrays.front();
  EXPECT_EQ(array.joining, std::vector<std::string>{"ssd2"});
  EXPECT_TRUE(array.opens());
  EXPECT_EQ(array.further_losses_survived, kParity - 1);
  // A read-only opening says the same.
  auto opened = TryOpen();
  ASSERT_TRUE(opened.ok());
  const ArrayStatus status = (*opened)->GetStatus();
  EXPECT_EQ(status.state, ArrayState::kRebuilding);
  EXPECT_EQ(status.further_ssd_losses_survived, kParity - 1);
}

TEST_F(Examine, ForeignAmongOthersIsTheOneToBlame) {
  TestArray other(Shape());
  ASSERT_TRUE(other.Close().ok());
  // A UUID comes from the entropy: this one is of another array.
  std::span<std::byte> bytes = other.memory(0).bytes();
  for (const uint64_t offset : kSuperblockCopyOffset) {
    auto superblock = DecodeSuperblock(bytes.subspan(offset, kSuperblockCopyBytes));
    ASSERT_TRUE(superblock.ok());
    superblock->array_uuid[0] ^= std::byte{0xFF};
    EncodeSuperblock(*superblock, bytes.subspan(offset, kSuperblockCopyBytes));
  }
  MemoryDevice foreign("foreign", bytes.size());
  std::memcpy(foreign.bytes().data(), bytes.data(), bytes.size());
  devices_[0] = &foreign;
  const Examination found = Look();
  ASSERT_EQ(found.arrays.size(), 2U);
  EXPECT_EQ(found.devices[0].array, 0U);
  EXPECT_FALSE(found.arrays[0].opens());
  EXPECT_TRUE(found.arrays[1].opens());
  EXPECT_EQ(Refusal().find("foreign belongs to another array"), 0U) << Refusal();
}

TEST_F(Examine, TheSameDeviceTwiceIsRefused) {
  devices_.push_back(devices_[1]);
  EXPECT_NE(Refusal().find("are both ssd1 of this array"), std::string::npos) << Refusal();
  EXPECT_EQ(Look().devices.back().verdict, MemberVerdict::kDoubled);
}

TEST_F(Examine, CopyOfAMemberIsDoubled) {
  devices_.push_back(CopyOf(3, test_->memory(3).size_bytes()));
  const Examination found = Look();
  EXPECT_EQ(found.devices[3].verdict, MemberVerdict::kDoubled);
  EXPECT_EQ(found.devices.back().verdict, MemberVerdict::kDoubled);
  EXPECT_EQ(found.devices[3].why,
            "copy3 says that too, with a superblock of the same age; give one of them, or mount "
            "with --without and the path of the other");
  EXPECT_EQ(found.arrays.front().missing, std::vector<std::string>{"ssd3"});
  EXPECT_NE(Refusal().find("ssd3 and copy3 are both ssd3"), std::string::npos) << Refusal();
}

TEST_F(Examine, TruncatedIsNotPartAndLeavesItsPlaceToAWholeOne) {
  const uint64_t bytes = uint64_t{4} << 20;
  devices_.push_back(CopyOf(3, bytes));
  const Examination found = Look();
  EXPECT_EQ(found.devices.back().verdict, MemberVerdict::kTruncated);
  EXPECT_NE(found.devices.back().why.find("it has " + std::to_string(bytes) + " bytes and needs "),
            std::string::npos);
  EXPECT_TRUE(found.arrays.front().whole());
}

TEST_F(Examine, DamagedSuperblocks) {
  Damage(0, 0, false);
  Damage(1, 0, false);
  Damage(1, 1, false);
  Damage(4, 0, true);
  Damage(4, 1, true);
  const Examination found = Look();
  EXPECT_EQ(found.devices[0].verdict, MemberVerdict::kPart);
  EXPECT_EQ(found.devices[0].whole_copies, 1U);
  EXPECT_NE(found.devices[0].why.find("one of the two copies"), std::string::npos);
  EXPECT_EQ(found.devices[1].verdict, MemberVerdict::kDamaged);
  EXPECT_EQ(found.devices[1].whole_copies, 0U);
  EXPECT_EQ(found.devices[4].verdict, MemberVerdict::kNoMember);
  EXPECT_EQ(found.arrays.front().missing, (std::vector<std::string>{"ssd1", "log0"}));
  EXPECT_TRUE(found.arrays.front().opens());
}

TEST_F(Examine, NothingThereAtAll) {
  MemoryDevice empty("empty", uint64_t{1} << 20);
  MemoryDevice tiny("tiny", 4096);
  devices_ = {&empty, &tiny};
  const Examination found = Look();
  EXPECT_TRUE(found.arrays.empty());
  EXPECT_EQ(found.devices[0].verdict, MemberVerdict::kNoMember);
  EXPECT_EQ(found.devices[1].verdict, MemberVerdict::kNoMember);
}

}  // namespace
}  // namespace eplog
