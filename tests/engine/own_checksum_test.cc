// Blocks that carry a checksum of their own, as those of databases and file systems do: all of them
// have one CRC32C, whatever they hold. Nothing may take one version for another because of that.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/crc32c.h"
#include "tests/engine/small_array.h"

namespace eplog {
namespace {

constexpr uint64_t kChunk = 4096;

// A block as a database writes it: content, then the CRC32C of that.
std::vector<std::byte> OwnCrcBlock(Random& random) {
  std::vector<std::byte> block = RandomBytes(random, kChunk);
  constexpr size_t kEnd = kChunk - sizeof(uint32_t);
  StoreLe(block.data() + kEnd, Crc32c(std::span(block).first(kEnd)));
  return block;
}

class OwnChecksum : public ::testing::Test {
 protected:
  void Make(uint32_t n, uint32_t m) {
    ArrayShape shape = SmallShape(n, m);
    shape.auto_commit = false;
    test_ = std::make_unique<SmallArray>(shape);
    volume_ = test_->CreateVolume("v", uint64_t{1} << 20);
  }
  std::vector<std::byte> Write(uint64_t chunk) {
    std::vector<std::byte> block = OwnCrcBlock(random_);
    EXPECT_TRUE(test_->Write(volume_, chunk * kChunk, block).ok());
    return block;
  }
  void Flush() { ASSERT_TRUE(test_->Flush().ok()); }
  void Commit() { ASSERT_TRUE(test_->Commit().ok()); }
  void Replace(uint32_t device) {
    fresh_.push_back(std::make_unique<MemoryDevice>("new", test_->memory(device).size_bytes()));
    const Status joined = RunTask(test_->loop, test_->array->ReplaceDevice(device, *fresh_.back()));
    ASSERT_TRUE(joined.ok()) << joined.error().ToString();
    for (int i = 0; i < 100 && State(device) != DeviceState::kOk; ++i) {
      test_->Sleep(200'000);
    }
    EXPECT_EQ(State(device), DeviceState::kOk);
  }
  DeviceState State(uint32_t device) { return test_->State(device); }

  Random random_{3};
  std::unique_ptr<SmallArray> test_;
  VolumeId volume_;
  std::vector<std::unique_ptr<MemoryDevice>> fresh_;
};

TEST_F(OwnChecksum, AllBlocksHaveOneCrc) {
  EXPECT_EQ(Crc32c(OwnCrcBlock(random_)), Crc32c(OwnCrcBlock(random_)));
}

// Where its SSD is lost or replaced, a chunk's version in the row and the pending one are both
// `absent`, with one CRC: the commit that follows must still know which of them it takes.
class AbsentVersions : public OwnChecksum, public ::testing::WithParamInterface<uint32_t> {
 protected:
  static constexpr uint64_t kBlocks = 12;
  void WriteAll() {
    model_.clear();
    for (uint64_t i = 0; i < kBlocks; ++i) {
      model_.push_back(Write(i));
    }
    Flush();
  }
  void ExpectContent(const std::string& when) {
    for (uint64_t i = 0; i < kBlocks; ++i) {
      EXPECT_TRUE(test_->Read(volume_, i * kChunk, kChunk) == model_[i])
          << "block " << i << " " << when;
    }
  }
  std::vector<std::vector<std::byte>> model_;
};

TEST_P(AbsentVersions, ARebuildBringsTheNewOne) {
  const uint32_t m = GetParam();
  for (uint32_t ssd = 0; ssd < m + 2; ++ssd) {
    SCOPED_TRACE("ssd" + std::to_string(ssd));
    Make(m + 2, m);
    WriteAll();
    Commit();
    WriteAll();
    ASSERT_TRUE(test_->Fail(ssd).ok());
    Replace(ssd);
    ExpectContent("after the rebuild");
    ASSERT_TRUE(test_->Close().ok());
    test_.reset();
    fresh_.clear();
  }
}

TEST_P(AbsentVersions, ACommitWithoutTheSsdTakesTheNewOne) {
  const uint32_t m = GetParam();
  for (uint32_t ssd = 0; ssd < m + 2; ++ssd) {
    SCOPED_TRACE("ssd" + std::to_string(ssd));
    Make(m + 2, m);
    ASSERT_TRUE(test_->Fail(ssd).ok());
    WriteAll();
    Commit();
    WriteAll();
    Commit();
    ExpectContent("after the commit");
    Replace(ssd);
    ExpectContent("after the rebuild");
    ASSERT_TRUE(test_->Close().ok());
    test_.reset();
    fresh_.clear();
  }
}

INSTANTIATE_TEST_SUITE_P(Parity, AbsentVersions, ::testing::Values(1U, 2U));

}  // namespace
}  // namespace eplog
