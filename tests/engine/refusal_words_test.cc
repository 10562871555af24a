// In which words an opening refuses: each names who is to blame, and what helps. People act on
// these, so they are judged to the letter.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "format/superblock.h"
#include "tests/engine/array_fixture.h"

namespace eplog {
namespace {

constexpr const char* kByForce = ", or mount with --read-only --force to read what is left";

class Refusal : public ::testing::Test {
 protected:
  void Make(uint32_t n, uint32_t m) {
    shape_.n = n;
    shape_.m = m;
    shape_.ssd_bytes = uint64_t{8} << 20;
    shape_.log_bytes = uint64_t{4} << 20;
    test_ = std::make_unique<TestArray>(shape_);
    ASSERT_TRUE(test_->Close().ok());
    devices_ = test_->Devices();
  }
  std::span<std::byte> Copy(uint32_t device, size_t copy) {
    return test_->memory(device).bytes().subspan(kSuperblockCopyOffset[copy], kSuperblockCopyBytes);
  }
  Superblock Newest(uint32_t device) {
    const auto a = DecodeSuperblock(Copy(device, 0));
    const auto b = DecodeSuperblock(Copy(device, 1));
    EXPECT_TRUE(a.ok() && b.ok());
    return a->generation > b->generation ? *a : *b;
  }
  void Change(uint32_t device, const std::function<void(Superblock&)>& edit) {
    for (size_t copy = 0; copy < 2; ++copy) {
      auto superblock = DecodeSuperblock(Copy(device, copy));
      ASSERT_TRUE(superblock.ok());
      edit(*superblock);
      EncodeSuperblock(*superblock, Copy(device, copy));
      ASSERT_TRUE(DecodeSuperblock(Copy(device, copy)).ok());
    }
  }
  void ChangeAll(const std::function<void(Superblock&)>& edit) {
    for (uint32_t i = 0; i < shape_.n + shape_.m; ++i) {
      Change(i, edit);
    }
  }
  Device* Add(const std::string& name, uint64_t bytes) {
    added_.push_back(std::make_unique<MemoryDevice>(name, bytes));
    return added_.back().get();
  }
  void Without(const std::vector<uint32_t>& missing) {
    devices_.clear();
    for (uint32_t i = 0; i < shape_.n + shape_.m; ++i) {
      if (std::find(missing.begin(), missing.end(), i) == missing.end()) {
        devices_.push_back(test_->Devices()[i]);
      }
    }
  }
  Result<std::unique_ptr<Array>> Open(bool force = false) {
    OpenOptions options;
    options.entropy = 77;
    options.read_only = force;
    options.force = force;
    return RunTask(test_->loop, Array::Open(test_->loop, devices_, options));
  }
  void ExpectRefused(ErrorCode code, const std::string& words, bool force = false) {
    const auto opened = Open(force);
    ASSERT_FALSE(opened.ok()) << words;
    EXPECT_EQ(opened.error().code, code) << opened.error().message;
    EXPECT_EQ(opened.error().message, words);
  }

  ArrayShape shape_;
  std::unique_ptr<TestArray> test_;
  std::vector<Device*> devices_;
  std::vector<std::unique_ptr<MemoryDevice>> added_;
};

TEST_F(Refusal, OfWhatIsNoMember) {
  Make(3, 1);
  const std::string uuid = UuidToString(Newest(0).array_uuid);
  devices_.push_back(Add("tiny", kSuperblockAreaBytes - 512));
  ExpectRefused(ErrorCode::kInvalidArgument,
                "tiny is too small to be a member of an array; leave it out");
  devices_.back() = Add("blank", kSuperblockAreaBytes);
  ExpectRefused(ErrorCode::kNotFound,
                "blank is not a member of an array (any more): it bears no valid superblock; leave "
                "it out to open the array without it");
  auto* spare = Add("spare", 8 << 20);
  EncodeSuperblock(SpareSuperblock(Newest(0), Uuid{std::byte{5}}),
                   added_.back()->bytes().first(kSuperblockCopyBytes));
  devices_.back() = spare;
  ExpectRefused(ErrorCode::kInvalidArgument,
                "spare is a spare of the array " + uuid + " and no member; leave it out");
  devices_.clear();
  ExpectRefused(ErrorCode::kTooManyFailures, "no member of the array is there");
}

TEST_F(Refusal, OfOneOfAnotherArrayWherever) {
  for (uint32_t foreign = 0; foreign < 4; ++foreign) {
    Make(3, 1);
    const std::string uuid = UuidToString(Newest(0).array_uuid);
    Change(foreign, [](Superblock& superblock) { superblock.array_uuid[0] ^= std::byte{0xFF}; });
    const std::string other = UuidToString(Newest(foreign).array_uuid);
    const Device* first = devices_[foreign == 0 ? 1 : 0];
    ExpectRefused(ErrorCode::kInvalidArgument,
                  devices_[foreign]->name() + " belongs to another array (" + other + ", while " +
                      first->name() + " is of " + uuid + ")");
  }
}

TEST_F(Refusal, OfOneThatDisagreesOrIsTooSmallOrTwice) {
  Make(3, 1);
  Change(2, [](Superblock& superblock) { superblock.version = 1; });
  ExpectRefused(ErrorCode::kCorrupt, "ssd2 and ssd0 disagree on the geometry or format");
  Change(2, [](Superblock& superblock) { superblock.version = kFormatVersion; });
  Change(1, [](Superblock& superblock) { --superblock.geometry.log_blocks; });
  ExpectRefused(ErrorCode::kCorrupt, "ssd1 and ssd0 disagree on the geometry or format");
  Change(1, [](Superblock& superblock) { ++superblock.geometry.log_blocks; });

  const Geometry g = Newest(0).geometry;
  for (const uint32_t i : {1U, 3U}) {
    const uint64_t need = i == 3 ? g.log_bytes() : g.ssd_bytes();
    const auto bytes = test_->memory(i).bytes();
    devices_[i] = Add("short", need - 512);
    std::memcpy(added_.back()->bytes().data(), bytes.data(), need - 512);
    ExpectRefused(ErrorCode::kCorrupt,
                  std::string("short (") + (i == 3 ? "log0" : "ssd1") + ") is truncated: it has " +
                      std::to_string(need - 512) + " bytes and needs " + std::to_string(need) +
                      "; restore its size, or leave it out to open the array degraded");
    devices_[i] = Add("exact", need);  // and not a byte more
    std::memcpy(added_.back()->bytes().data(), bytes.data(), need);
    auto opened = Open();
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    ASSERT_TRUE(RunTask(test_->loop, (*opened)->Close()).ok());
    std::memcpy(bytes.data(), added_.back()->bytes().data(), need);
    devices_[i] = test_->Devices()[i];
  }

  devices_.push_back(devices_[3]);
  ExpectRefused(ErrorCode::kInvalidArgument,
                "log0 and log0 are both log0 of this array; give one of them, or mount with "
                "--without and the path of the other");
}

// One copy of a newer format is enough: it is the newer copy, and not to be overwritten.
TEST_F(Refusal, OfANewerFormatInEitherCopy) {
  for (const size_t copy : {0U, 1U}) {
    Make(3, 1);
    constexpr size_t kVersionAt = 8;  // docs/format.md, section 3
    Copy(2, copy)[kVersionAt] = std::byte{kFormatVersion + 1};
    Copy(2, copy)[200] ^= std::byte{1};  // or the version alone would be wrong
    const auto opened = Open();
    ASSERT_FALSE(opened.ok());
    EXPECT_EQ(opened.error().code, ErrorCode::kUnsupported);
    EXPECT_EQ(opened.error().message.find("ssd2: written by a newer version of eplog"), 0U)
        << opened.error().message;
    EXPECT_FALSE(Open(/*force=*/true).ok());
  }
}

// Whatever is left of the other one: a copy that is whole is enough.
TEST_F(Refusal, OfNobodyWhoHasACopyOfHisSuperblock) {
  for (uint32_t device = 0; device < 4; ++device) {
    for (const size_t copy : {0U, 1U}) {
      for (const bool blank : {true, false}) {
        SCOPED_TRACE(std::to_string(device) + " " + std::to_string(copy));
        Make(3, 1);
        std::ranges::fill(Copy(device, copy).subspan(blank ? 0 : 100), std::byte{0});
        auto opened = Open();
        ASSERT_TRUE(opened.ok()) << opened.error().message;
        for (const DeviceStatus& status : (*opened)->GetStatus().devices) {
          EXPECT_EQ(status.state, DeviceState::kOk) << status.name;
        }
        ASSERT_TRUE(RunTask(test_->loop, (*opened)->Close()).ok());
        EXPECT_GT(Newest(device).generation, 2U) << "and both are whole again";
      }
    }
  }
}

TEST_F(Refusal, NamesAllThatAreMissingAndHowManyAreNeeded) {
  Make(4, 2);
  Without({0, 2, 5});
  ExpectRefused(ErrorCode::kTooManyFailures,
                std::string("more than 2 members are missing: ssd0, ssd2, log1; bring back at "
                            "least 1") +
                    kByForce);
  Without({0, 1, 2, 4});
  ExpectRefused(ErrorCode::kTooManyFailures,
                std::string("more than 2 members are missing: ssd0, ssd1, ssd2, log0; bring back "
                            "at least 2") +
                    kByForce);
}

// What was failed is stale, though it is there.
TEST_F(Refusal, NamesTheStaleAmongThoseThatAreMissing) {
  Make(3, 1);
  test_->Open();
  const uint64_t before = Newest(1).epoch.number;
  ASSERT_TRUE(RunTask(test_->loop, test_->array->FailDevice(1, "by hand")).ok());
  ASSERT_TRUE(test_->Close().ok());
  const uint64_t now = Newest(0).epoch.number;
  ASSERT_GT(now, before);
  Without({3});
  ExpectRefused(ErrorCode::kTooManyFailures,
                "more than 1 members are missing: ssd1 (stale: ssd1: it failed or was away while "
                "the others went on: it is of epoch " +
                    std::to_string(before) + ", they are at " + std::to_string(now) +
                    "), log0; bring back at least 1" + kByForce);
}

// Those that are there and not rebuilt count too; but only those that are missing can be brought
// back, and no more of them than it takes.
TEST_F(Refusal, CountsThoseThatAreNotRebuilt) {
  Make(4, 2);
  ChangeAll([](Superblock& superblock) {
    superblock.members[1].state = MemberState::kJoining;
    superblock.members[1].joined = superblock.epoch.number;
  });
  Without({0, 5});
  ExpectRefused(ErrorCode::kTooManyFailures,
                std::string("more than 2 members are missing or not rebuilt: ssd0, ssd1 (there, "
                            "and not rebuilt yet), log1; bring back at least 1 of those that are "
                            "missing") +
                    kByForce);
  ChangeAll([](Superblock& superblock) {
    superblock.members[4].state = MemberState::kJoining;
    superblock.members[4].joined = superblock.epoch.number;
  });
  Without({0, 5});
  ExpectRefused(ErrorCode::kTooManyFailures,
                std::string("more than 2 members are missing or not rebuilt: ssd0, ssd1 (there, "
                            "and not rebuilt yet), log0 (there, and not rebuilt yet), log1; bring "
                            "back at least 2 of those that are missing") +
                    kByForce);
  Without({5});
  ExpectRefused(ErrorCode::kTooManyFailures,
                std::string("more than 2 members are missing or not rebuilt: ssd1 (there, and not "
                            "rebuilt yet), log0 (there, and not rebuilt yet), log1; bring back at "
                            "least 1 of those that are missing") +
                    kByForce);
  Without({});
  devices_[0] = nullptr;
  std::erase(devices_, nullptr);
  EXPECT_FALSE(Open().ok());
  ChangeAll([](Superblock& superblock) { superblock.members[4].state = MemberState::kOk; });
  Without({0});
  auto opened = Open();
  EXPECT_TRUE(opened.ok()) << "one that is missing and one that is not rebuilt are two";
  if (opened.ok()) {
    EXPECT_TRUE(RunTask(test_->loop, (*opened)->Close()).ok());
  }
}

// All but the log device were put back from older copies. What to leave out to go back is said, and
// doing so opens what they are.
TEST_F(Refusal, SaysHowToGoBackInTime) {
  Make(3, 1);
  std::vector<std::vector<std::byte>> old;
  for (uint32_t i = 0; i < 3; ++i) {
    const auto bytes = test_->memory(i).bytes();
    old.emplace_back(bytes.begin(), bytes.end());
  }
  const uint64_t then = Newest(0).epoch.number;
  test_->Open();
  const VolumeId volume = test_->CreateVolume("new", 1 << 20);
  ASSERT_NE(volume.value, 0U);
  ASSERT_TRUE(test_->Close().ok());
  const uint64_t now = Newest(3).epoch.number;
  std::string missing;
  for (uint32_t i = 0; i < 3; ++i) {
    std::copy(old[i].begin(), old[i].end(), test_->memory(i).bytes().begin());
    const std::string name = "ssd" + std::to_string(i);
    missing += (i == 0 ? "" : ", ") + name + " (stale: " + name +
               ": it is an older copy of itself: of epoch " + std::to_string(then) +
               ", while the array has opened " + std::to_string(now) + ")";
  }
  ExpectRefused(ErrorCode::kTooManyFailures,
                "more than 1 members are missing: " + missing +
                    "; bring back at least 2, or leave out log0 (--without) to go back to epoch " +
                    std::to_string(then) + ", which the others agree on" + kByForce);
  Without({3});
  auto opened = Open();
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_TRUE((*opened)->Volumes().empty());
  EXPECT_TRUE(RunTask(test_->loop, (*opened)->Close()).ok());
}

}  // namespace
}  // namespace eplog
