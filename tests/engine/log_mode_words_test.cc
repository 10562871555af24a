// Journal mode `log`: in which words an opening says that it needs the log devices, and which.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "format/superblock.h"
#include "tests/engine/array_fixture.h"

namespace eplog {
namespace {

constexpr uint32_t kSsdCount = 5;
constexpr uint32_t kParity = 2;
constexpr uint64_t kChunk = 4096;
constexpr const char* kByForce = ", or mount with --read-only --force to read what is left";

class LogModeWords : public ::testing::Test {
 protected:
  void SetUp() override {
    ArrayShape shape;
    shape.n = kSsdCount;
    shape.m = kParity;
    shape.ssd_bytes = uint64_t{8} << 20;
    shape.log_bytes = uint64_t{4} << 20;
    shape.journal = JournalMode::kLog;
    test_ = std::make_unique<TestArray>(shape);
    const VolumeId volume = test_->CreateVolume("v", 1 << 20);
    Random random(3);
    ASSERT_TRUE(test_->Write(volume, 7 * kChunk, RandomBytes(random, kChunk)).ok());
    ASSERT_TRUE(RunTask(test_->loop, test_->array->FlushAll()).ok());
  }
  // Of log0.
  void KillBesideASuccessor() {
    ASSERT_TRUE(RunTask(test_->loop, test_->array->FailDevice(kSsdCount, "told to")).ok());
    ASSERT_TRUE(
        RunTask(test_->loop, test_->array->ReplaceDevice(kSsdCount, *test_->Devices()[kSsdCount]))
            .ok());
    test_->Kill();
  }
  void ChangeSuperblocks(const std::function<void(Superblock&)>& change) {
    for (uint32_t i = 0; i < kSsdCount + kParity; ++i) {
      for (const uint64_t offset : kSuperblockCopyOffset) {
        const auto copy = test_->memory(i).bytes().subspan(offset, kSuperblockCopyBytes);
        auto superblock = DecodeSuperblock(copy);
        ASSERT_TRUE(superblock.ok());
        change(*superblock);
        EncodeSuperblock(*superblock, copy);
      }
    }
  }
  void MakeLogUnreadable(uint32_t j) {
    const auto superblock =
        DecodeSuperblock(test_->memory(kSsdCount + j).bytes().first(kSuperblockCopyBytes));
    ASSERT_TRUE(superblock.ok());
    test_->faulty(kSsdCount + j)
        .Add({.kinds = MaskOf(RequestKind::kRead),
              .from_then_on = true,
              .range_offset_bytes = superblock->geometry.log_offset_bytes});
  }
  Result<std::unique_ptr<Array>> Open(const std::vector<uint32_t>& without_logs,
                                      uint64_t given_up = 0, bool force = false) {
    std::vector<Device*> devices = test_->Devices();
    for (const uint32_t j : without_logs) {
      devices[kSsdCount + j] = nullptr;
    }
    std::erase(devices, nullptr);
    OpenOptions options;
    options.entropy = 77;
    options.without_logs = given_up;
    options.read_only = force;
    options.force = force;
    return RunTask(test_->loop, Array::Open(test_->loop, devices, options));
  }
  static void ExpectRefused(const Result<std::unique_ptr<Array>>& opened,
                            const std::string& words) {
    ASSERT_FALSE(opened.ok()) << words;
    EXPECT_EQ(opened.error().code, ErrorCode::kTooManyFailures);
    EXPECT_EQ(opened.error().message, words);
  }
  static std::string Needed(const std::string& names, const char* who = "none is there") {
    return std::string(
               "in journal mode 'log' what was flushed last may be only on the log devices, and ") +
           who + ": bring back " + names;
  }
  static std::string Unread(const std::string& name) {
    return name +
           " cannot be read where the log goes on or ends, and in journal mode 'log' what was "
           "flushed last may be only there: mend " +
           name + ", or give all of its log up by mounting --without " + name;
  }

  std::unique_ptr<TestArray> test_;
};

TEST_F(LogModeWords, NameThoseThatAreMissing) {
  test_->Kill();
  const std::string how = ", or give that up by mounting --without each of them";
  ExpectRefused(Open({0, 1}), Needed("log0, log1") + how + kByForce);
  ExpectRefused(Open({0, 1}, 0b01), Needed("log0, log1") + how + kByForce);
  ExpectRefused(Open({0, 1}, 0b10), Needed("log0, log1") + how + kByForce);
  const auto forced = Open({0, 1}, 0, /*force=*/true);
  ASSERT_TRUE(forced.ok()) << forced.error().message;
  EXPECT_EQ((*forced)->GetStatus().state, ArrayState::kFailed);
  EXPECT_NE((*forced)->GetStatus().stopped_because.find(Needed("log0, log1")), std::string::npos)
      << (*forced)->GetStatus().stopped_because;
  auto opened = Open({0, 1}, 0b11);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_TRUE(RunTask(test_->loop, (*opened)->Close()).ok());
}

// Which is which does not matter: one that can be read has all that there is.
TEST_F(LogModeWords, NameThoseThatCannotBeRead) {
  test_->Kill();
  MakeLogUnreadable(1);
  {
    const auto one = Open({}, 0, /*force=*/true);
    ASSERT_TRUE(one.ok());
    EXPECT_EQ((*one)->GetStatus().stopped_because, "");
  }
  ExpectRefused(Open({0}), Unread("log1") + kByForce);
  MakeLogUnreadable(0);
  ExpectRefused(Open({}), Unread("log0") + kByForce);
  ExpectRefused(Open({}, 0b01), Unread("log1") + kByForce);
  ExpectRefused(Open({}, 0b10), Unread("log0") + kByForce);
  const auto forced = Open({}, 0, /*force=*/true);
  ASSERT_TRUE(forced.ok()) << forced.error().message;
  const auto report = RunTask(test_->loop, (*forced)->FindLost());
  ASSERT_TRUE(report.ok());
  EXPECT_NE(report->log_damage.find(Unread("log0")), std::string::npos) << report->log_damage;
}

// It has none of what was flushed before it joined, unless the rings had that.
TEST_F(LogModeWords, NameThoseForWhichASuccessorDoesNotStand) {
  KillBesideASuccessor();
  {
    const auto opened = Open({1}, 0, /*force=*/true);
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    EXPECT_EQ((*opened)->GetStatus().stopped_because, "");
  }
  ChangeSuperblocks([](Superblock& superblock) {
    superblock.members[kSsdCount].state = MemberState::kJoining;
    superblock.base_on_rings = false;
  });
  const std::string had = "those that had it are not there";
  ExpectRefused(Open({1}), Needed("log1", had.c_str()) +
                               ", or give that up by mounting --without each of them" + kByForce);
  EXPECT_TRUE(Open({1}, 0b10).ok());
}

// As when it has nothing to say where the log ends: it was not there yet.
TEST_F(LogModeWords, NameAnUnreadableOneForWhichASuccessorDoesNotStand) {
  KillBesideASuccessor();
  ChangeSuperblocks([](Superblock& superblock) {
    superblock.base_on_rings = false;
    // No entry of its epoch has come.
    superblock.members[kSsdCount].joined = superblock.epoch.number + 1;
  });
  MakeLogUnreadable(1);
  ExpectRefused(Open({}), Unread("log1") + kByForce);
}

}  // namespace
}  // namespace eplog
