// What goes into one entry: as many records as fit for certain, a log stripe beside them where
// chunks wait; what a record still says when a device has gone; and which SSDs an entry depends on.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "engine/log/entry_maker.h"
#include "tests/engine/log/waiting.h"

namespace eplog {
namespace {

constexpr uint64_t kSequence = 1000;  // of the entry before

class EntryRecords : public test::WaitingPieces {
 protected:
  void SetUp() override { maker_.Open(kEpoch, {kEpoch, kSequence, 0}); }

  [[nodiscard]] const Geometry& g() const { return core_.geometry; }
  [[nodiscard]] uint64_t Bit(uint32_t stripe, uint32_t index) const {
    return uint64_t{1} << g().SsdOf(StripeIndex(stripe), index).value;
  }
  RecordWrite& SubmitThis(RecordWrite record, bool urgent) {
    records_.push_back(std::move(record));
    queue_.Promise(urgent ? 0 : 1);
    queue_.Submit(records_.back(), urgent);
    return records_.back();
  }
  static RowChange Change(uint32_t index, uint32_t slot, uint64_t version) {
    return {static_cast<uint8_t>(index), SlotWord::At(SlotIndex(slot)), 0xABCD1234, version};
  }
  // All of a stripe, as it is written.
  [[nodiscard]] RecordWrite FullStripe(uint32_t stripe) const {
    RecordWrite record;
    record.own_version = true;
    record.row.emplace();
    record.row->stripe = StripeIndex(stripe);
    for (uint32_t i = 0; i < g().n; ++i) {
      record.row->changes.push_back(Change(i, stripe, 0));
    }
    return record;
  }
  // As a commit installs it: data that was pending, and parity.
  [[nodiscard]] RecordWrite Install(uint32_t stripe, uint32_t data) const {
    RecordWrite record;
    record.row.emplace();
    record.row->stripe = StripeIndex(stripe);
    record.row->changes.push_back(Change(data, stripe, 5));
    for (uint32_t i = g().k(); i < g().n; ++i) {
      record.row->changes.push_back(Change(i, stripe, 0));
    }
    return record;
  }
  static void ExpectFits(const LogEntry& entry) {
    EXPECT_LE(entry.used_bytes, entry.bytes) << "it is an upper bound";
    EXPECT_LE(entry.bytes, kMaxEntryHeaderBytes);
  }

  static constexpr Epoch kEpoch{2, 22};
  EntryMaker maker_{core_, queue_};
};

// Whatever they are, of many that wait an entry takes as many as fit, and all that it takes do.
TEST_F(EntryRecords, OfEachKindAsManyAsFit) {
  const uint32_t many = std::min(300U, g().stripes);
  struct Kind {
    std::string name;
    bool urgent;
    std::function<RecordWrite(uint32_t)> make;
  };
  const auto volume = [](VolumeRecord what) {
    RecordWrite record;
    record.volumes.push_back(std::move(what));
    return record;
  };
  const auto trim = [](TrimRecord what) {
    RecordWrite record;
    record.trim = what;
    return record;
  };
  const std::vector<Kind> kinds = {
      {"full stripe", false, [this](uint32_t i) { return FullStripe(i); }},
      {"install", true, [this](uint32_t i) { return Install(i, i % g().k()); }},
      {"volume", false,
       [&](uint32_t i) {
         return volume(VolumeCreated{VolumeId(i + 1), UINT32_MAX, std::string(200, 'x')});
       }},
      {"name", false,
       [&](uint32_t i) {
         return volume(VolumeRenamed{VolumeId(i + 1), std::string(31, 'y')});
       }},
      {"extent", false,
       [&](uint32_t i) {
         return volume(ExtentAssigned{VolumeId(1), i << 20, ExtentIndex(i % g().extents())});
       }},
      {"stripes", false,
       [&](uint32_t i) {
         return trim(StripesTrimmed{StripeIndex(i), 1});
       }},
      {"chunks", false, [&](uint32_t i) {
         return trim(ChunksTrimmed{g().Chunk(StripeIndex(i), 0), 2});
       }}};
  for (const Kind& kind : kinds) {
    SCOPED_TRACE(kind.name);
    for (uint32_t i = 0; i < many; ++i) {
      SubmitThis(kind.make(i), kind.urgent);
    }
    size_t taken = 0;
    while (!queue_.empty()) {
      const auto entry = maker_.Make(7);
      ExpectFits(*entry);
      taken += entry->records.size();
      const RecordWrite* next = queue_.NextRecord(kind.urgent);
      EXPECT_TRUE(next == nullptr || entry->bytes + next->max_bytes > kMaxEntryHeaderBytes);
    }
    EXPECT_EQ(taken, many);
  }
}

// Else whoever updates a chunk would wait while others write whole stripes.
TEST_F(EntryRecords, WhereChunksWaitThereIsRoomForALogStripe) {
  constexpr uint32_t kStripes = 12;
  for (uint32_t i = 0; i < kStripes; ++i) {
    Submit(1, i);
  }
  for (uint32_t i = 0; i < 220 * kStripes; ++i) {
    RecordWrite record;
    record.volumes.emplace_back(VolumeResized{VolumeId(i + 1), i});
    SubmitThis(std::move(record), false);
  }
  for (uint32_t i = 0; i < kStripes; ++i) {
    const auto entry = maker_.Make(7);
    ExpectFits(*entry);
    EXPECT_EQ(entry->header.log_stripes.size(), 1U) << i;
    EXPECT_EQ(entry->header.length_blocks, 1 + g().chunk_blocks());
    EXPECT_FALSE(entry->records.empty() && queue_.NextRecord(false) != nullptr) << i;
  }
  EXPECT_FALSE(queue_.has_chunks());
}

// Of chunks that wait on every SSD, too.
TEST_F(EntryRecords, NoMoreLogStripesThanFit) {
  constexpr uint32_t kStripes = 100;
  for (uint32_t i = 0; i < kStripes; ++i) {
    for (uint8_t ssd = 0; ssd < kSsdCount; ++ssd) {
      Submit(ssd, i);
    }
  }
  const size_t bytes = MaxLogStripeRecordBytes(g().n, g().m);
  size_t taken = 0;
  while (queue_.has_chunks()) {
    const auto entry = maker_.Make(7);
    ExpectFits(*entry);
    const size_t stripes = entry->header.log_stripes.size();
    EXPECT_EQ(entry->header.length_blocks, 1 + stripes * g().chunk_blocks());
    EXPECT_EQ(entry->log_chunks.size(), stripes * g().m);
    EXPECT_TRUE(!queue_.has_chunks() || entry->bytes + bytes > kMaxEntryHeaderBytes);
    taken += stripes;
  }
  EXPECT_EQ(taken, kStripes);
}

// ---- devices that go while it waits

// What was chosen on a device that is gone is not described, and not written there. Of what a
// commit installs it knows by itself whether that still holds.
TEST_F(EntryRecords, AStripeNamesNoSlotOfAnSsdThatIsGone) {
  RecordWrite written = FullStripe(3);
  const Buffer content = core_.pool.GetZeroed(g().chunk_bytes);
  for (uint32_t i = 0; i < g().n; ++i) {
    written.writes.push_back(
        {g().SsdOf(StripeIndex(3), i), SlotIndex(3), content.data(), i >= g().k()});
  }
  RecordWrite& record = SubmitThis(std::move(written), false);
  const RecordWrite& install = SubmitThis(Install(3, 1), true);
  const DeviceIndex gone = g().SsdOf(StripeIndex(3), 1);
  core_.members.Lose(gone, Error());
  EXPECT_EQ(&queue_.TakeRecord(true), &install);
  EXPECT_TRUE(install.row->changes[0].word.has_slot());
  EXPECT_EQ(&queue_.TakeRecord(false), &record);
  for (const RowChange& change : record.row->changes) {
    EXPECT_EQ(change.word.is_absent(), change.index == 1) << int{change.index};
  }
  EXPECT_EQ(record.writes.size(), g().n - 1);
  for (const SlotWrite& write : record.writes) {
    EXPECT_NE(write.ssd, gone);
  }
}

// ---- what an entry depends on (I4)

// Of a commit its parity: what the row names besides was durable before.
TEST_F(EntryRecords, AnInstallDependsOnTheSsdsOfItsParity) {
  for (const uint32_t stripe : {0U, 2U, 5U}) {
    SubmitThis(Install(stripe, 2), true);
    const auto entry = maker_.Make(7);
    EXPECT_EQ(entry->ssd_mask, Bit(stripe, g().k())) << stripe;
    EXPECT_EQ(entry->header.rows[0].changes[0].version, 5U);
  }
}

// Records with a row and without one, several in one entry: each row's words bear its number, and
// what names a slot must be durable with it.
TEST_F(EntryRecords, RowsOfTheEntryItselfBearItsNumber) {
  const auto one_word = [this](uint32_t stripe, uint32_t index, bool absent) {
    RecordWrite record = FullStripe(stripe);
    RowChange change = record.row->changes[index];
    change.word = absent ? SlotWord::Absent() : change.word;
    record.row->changes = {change};
    return record;
  };
  RecordWrite deleted;
  deleted.volumes.emplace_back(VolumeDeleted{VolumeId(1)});
  SubmitThis(std::move(deleted), false);
  SubmitThis(one_word(4, 0, false), false);
  SubmitThis(one_word(6, 1, true), false);
  SubmitThis(one_word(9, g().k(), false), false);
  const auto entry = maker_.Make(7);
  ASSERT_EQ(entry->header.rows.size(), 3U);
  EXPECT_EQ(entry->ssd_mask, Bit(4, 0) | Bit(9, g().k()));
  EXPECT_EQ(entry->header.sequence, kSequence + 1);
  EXPECT_EQ(entry->header.rows[0].changes[0].version, kSequence + 1);
  EXPECT_EQ(entry->header.rows[1].changes[0].version, kSequence + 1) << "wherever it is";
  EXPECT_EQ(entry->header.rows[2].changes[0].version, 0U) << "parity has none";
}

}  // namespace
}  // namespace eplog
