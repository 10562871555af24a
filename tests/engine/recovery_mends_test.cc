// What a crash left half of, and can be decoded, goes back to where it belongs (P5, I8): afterwards
// the devices have the very bytes that were written. A read-only opening shows the same and changes
// nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "format/entry.h"
#include "format/superblock.h"
#include "tests/engine/array_fixture.h"

namespace eplog {
namespace {

using Bytes = std::vector<std::byte>;

struct Place {
  uint32_t device = 0;
  uint64_t offset = 0;
  uint64_t length = 0;
  std::string what;
};

struct Layout {
  uint32_t n = 0;
  uint32_t m = 0;
  uint32_t chunk_bytes = 0;
};

class Mends : public ::testing::TestWithParam<Layout> {
 protected:
  void SetUp() override {
    ArrayShape shape;
    shape.n = GetParam().n;
    shape.m = GetParam().m;
    shape.chunk_bytes = GetParam().chunk_bytes;
    shape.ssd_bytes = uint64_t{4} << 20;
    shape.log_bytes = uint64_t{1} << 20;
    // So that a kill comes before the mark that follows a flush is written.
    shape.ssd_delays = kSsdDelays;
    shape.log_delays = kLogDelays;
    test_ = std::make_unique<TestArray>(shape);
    chunk_ = shape.chunk_bytes;
    k_ = shape.n - shape.m;
    size_ = 40 * k_ * chunk_;
    volume_ = test_->CreateVolume("v", size_);
    model_.assign(size_, std::byte{0});
    Write(0, 20 * k_);
    ASSERT_TRUE(RunTask(test_->loop, test_->array->Checkpoint(CheckpointKind::kFull)).ok());
    // Beyond the mark: log stripes of one and several members, whole stripes.
    Write(3, 1);
    Write(k_ + 1, 1);
    Write(25 * k_, k_);
    for (uint64_t i = 0; i < 3; ++i) {
      Write((6 + 5 * i) * k_, std::min<uint64_t>(k_ - 1, 3));
    }
    Write(30 * k_, 2 * k_);
    WriteTogether();
    test_->Kill();
    for (uint32_t i = 0; i < Devices(); ++i) {
      const auto bytes = test_->memory(i).bytes();
      kept_.emplace_back(bytes.begin(), bytes.end());
    }
    FindTail();
  }
  [[nodiscard]] static uint32_t Devices() { return GetParam().n + GetParam().m; }
  void Write(uint64_t first, uint64_t count) {
    const Bytes data = RandomBytes(random_, count * chunk_);
    ASSERT_TRUE(test_->Write(volume_, first * chunk_, data).ok());
    std::copy(data.begin(), data.end(),
              model_.begin() + static_cast<std::ptrdiff_t>(first * chunk_));
  }
  // So that they share entries.
  void WriteTogether() {
    uint64_t running = 0;
    for (uint64_t i = 0; i < 40; ++i) {
      ++running;
      const uint64_t at = ((5 + i / 2) * k_ + i % 2) * chunk_;
      const Bytes data = RandomBytes(random_, chunk_);
      std::copy(data.begin(), data.end(), model_.begin() + static_cast<std::ptrdiff_t>(at));
      test_->loop.Spawn([](TestArray& test, VolumeId volume, uint64_t offset, Bytes bytes,
                           uint64_t& left) -> Task<void> {
        Task<Status> writing = test.array->Write(volume, offset, bytes);
        EXPECT_TRUE((co_await writing).ok());
        --left;
      }(*test_, volume_, at, data, running));
    }
    ASSERT_TRUE(test_->loop.RunUntil([&] { return running == 0; }));
  }
  void PutBack() {
    for (uint32_t i = 0; i < Devices(); ++i) {
      std::copy(kept_[i].begin(), kept_[i].end(), test_->memory(i).bytes().begin());
    }
  }
  // All that the entries beyond the newest mark describe, and themselves. Each list is what one
  // record says: of it m may be wrong.
  void FindTail() {
    Superblock newest;
    for (const uint64_t offset : kSuperblockCopyOffset) {
      const auto found =
          DecodeSuperblock(test_->memory(0).bytes().subspan(offset, kSuperblockCopyBytes));
      newest = found.ok() && found->generation > newest.generation ? *found : newest;
    }
    const Geometry& g = newest.geometry;
    std::vector<EntryHeader> entries;
    uint64_t mark = 0;
    for (uint64_t place = 0; place < g.log_blocks; ++place) {
      const auto entry =
          DecodeEntryHeader(test_->memory(g.n).bytes().subspan(g.LogOffset(place), kBlockBytes),
                            newest.array_uuid, g);
      if (entry.ok() && entry->place == place && entry->epoch == newest.epoch) {
        entries.push_back(*entry);
        mark = std::max(mark, entry->mark);
      }
    }
    for (const EntryHeader& entry : entries) {
      if (entry.sequence <= mark) {
        continue;
      }
      const std::string name = "entry " + std::to_string(entry.sequence);
      std::vector<Place> headers;
      for (uint32_t j = 0; j < g.m; ++j) {
        headers.push_back({g.n + j, g.LogOffset(entry.place), 64, name + " header"});  // at least
      }
      if (g.m > 1) {
        headers.resize(1);  // one copy of it is left
        records_.push_back(headers);
      }
      for (const RowRecord& row : entry.rows) {
        records_.emplace_back();
        for (const RowChange& change : row.changes) {
          records_.back().push_back({g.SsdOf(row.stripe, change.index).value,
                                     g.SlotOffset(change.word.slot()), g.chunk_bytes,
                                     name + " row"});
        }
      }
      most_log_stripes_ = std::max(most_log_stripes_, entry.log_stripes.size());
      for (size_t i = 0; i < entry.log_stripes.size(); ++i) {
        records_.emplace_back();
        for (const LogStripeMember& member : entry.log_stripes[i].members) {
          records_.back().push_back({g.SsdOf(member.chunk).value, g.SlotOffset(member.word.slot()),
                                     g.chunk_bytes, name + " member"});
        }
        for (uint32_t j = 0; j < g.m; ++j) {
          records_.back().push_back({g.n + j, g.LogOffset(entry.place + 1 + i * g.chunk_blocks()),
                                     g.chunk_bytes, name + " log chunk"});
        }
      }
    }
  }
  // Somewhere in it: the first, the last or a middle byte.
  void Spoil(const Place& place) {
    const uint64_t at = random_.Below(3) * (place.length / 2);
    test_->memory(place.device).bytes()[place.offset + std::min(at, place.length - 1)] ^=
        std::byte{4};
  }
  [[nodiscard]] bool IsAsItWas(const Place& place) {
    const auto now = test_->memory(place.device).bytes().subspan(place.offset, place.length);
    return std::equal(now.begin(), now.end(),
                      kept_[place.device].begin() + static_cast<std::ptrdiff_t>(place.offset));
  }
  // All that an opening has written is counted.
  void ExpectClassesAddUp() {
    const ArrayStatus status = test_->array->GetStatus();
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
  }
  void ExpectAllThere(const std::string& what) {
    EXPECT_TRUE(test_->Read(volume_, 0, size_) == model_) << what;
    const auto report = RunTask(test_->loop, test_->array->Check(Progress()));
    ASSERT_TRUE(report.ok());
    EXPECT_EQ(report->problems_found, 0U) << what << ": " << report->findings.front().Text();
  }

  Random random_{17};
  std::unique_ptr<TestArray> test_;
  VolumeId volume_;
  uint64_t chunk_ = 0;
  uint64_t k_ = 0;
  uint64_t size_ = 0;
  Bytes model_;
  std::vector<Bytes> kept_;
  std::vector<std::vector<Place>> records_;
  size_t most_log_stripes_ = 0;  // in one entry
};

TEST_P(Mends, GoBackToTheirPlaces) {
  ASSERT_GT(records_.size(), 6U);
  ASSERT_GT(most_log_stripes_, 1U);
  uint64_t mended = 0;
  for (const std::vector<Place>& record : records_) {
    for (size_t i = 0; i < record.size(); ++i) {
      // It, and with more parity another one too.
      std::vector<Place> spoilt = {record[i]};
      if (GetParam().m > 1 && record.size() > 1) {
        spoilt.push_back(record[(i + 1) % record.size()]);
      }
      PutBack();
      for (const Place& place : spoilt) {
        Spoil(place);
      }
      const uint64_t repairs = test_->hooks().recovery_repairs;
      test_->Open();
      ASSERT_NE(test_->array, nullptr);
      EXPECT_EQ(test_->hooks().recovery_repairs - repairs, spoilt.size()) << record[i].what;
      for (const Place& place : spoilt) {
        EXPECT_TRUE(IsAsItWas(place)) << place.what << " on device " << place.device;
        ++mended;
      }
      const Traffic traffic = test_->array->GetStatus().traffic;
      uint64_t on_ssds = 0;
      uint64_t log_chunks = 0;
      for (const Place& place : spoilt) {
        on_ssds += place.device < GetParam().n ? place.length : 0;
        log_chunks += place.what.ends_with("log chunk") ? place.length : 0;
      }
      EXPECT_EQ(traffic.ssd_repair_bytes, on_ssds) << record[i].what;
      EXPECT_EQ(traffic.log_chunk_bytes, log_chunks) << record[i].what;
      ExpectClassesAddUp();
      ExpectAllThere(record[i].what);
      test_->Kill();
    }
  }
  EXPECT_GT(mended, 20U);
}

TEST_P(Mends, AreOnlyShownByAReadOnlyOpening) {
  for (const std::vector<Place>& record : records_) {
    for (const Place& place : record) {
      Spoil(place);
      const auto bytes = test_->memory(place.device).bytes();
      const Bytes before(bytes.begin(), bytes.end());
      test_->Open(/*read_only=*/true);
      ASSERT_NE(test_->array, nullptr);
      ExpectAllThere(place.what);
      ASSERT_TRUE(test_->Close().ok());
      EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), before.begin())) << place.what;
      const auto old = kept_[place.device].begin() + static_cast<std::ptrdiff_t>(place.offset);
      std::copy_n(old, place.length, bytes.begin() + static_cast<std::ptrdiff_t>(place.offset));
    }
  }
  for (uint32_t d = 0; d < Devices(); ++d) {
    const auto bytes = test_->memory(d).bytes();
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), kept_[d].begin())) << d;
  }
  PutBack();
  test_->Open();
}

INSTANTIATE_TEST_SUITE_P(Layouts, Mends,
                         ::testing::Values(Layout{4, 1, 4096}, Layout{5, 2, 4096},
                                           Layout{4, 1, 16384}, Layout{5, 2, 16384}));

}  // namespace
}  // namespace eplog
