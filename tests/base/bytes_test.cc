#include "base/bytes.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "base/random.h"

namespace eplog {
namespace {

using Bytes = std::vector<std::byte>;

Bytes Of(std::initializer_list<int> values) {
  Bytes bytes;
  for (const int value : values) {
    bytes.push_back(static_cast<std::byte>(value));
  }
  return bytes;
}

Bytes Varint(uint64_t value) {
  Bytes bytes(10);
  ByteWriter writer(bytes);
  writer.Varint(value);
  bytes.resize(writer.size());
  return bytes;
}

TEST(Bytes, NumbersAreLittleEndian) {
  Bytes bytes(15, std::byte{0xFF});
  ByteWriter writer(bytes);
  writer.U8(0x01);
  writer.U16(0x0203);
  writer.U32(0x04050607);
  writer.U64(0x08090A0B0C0D0E0F);
  EXPECT_TRUE(writer.ok());
  EXPECT_EQ(writer.size(), 15U);
  EXPECT_EQ(bytes, Of({1, 3, 2, 7, 6, 5, 4, 0xF, 0xE, 0xD, 0xC, 0xB, 0xA, 9, 8}));
  ByteReader reader(bytes);
  EXPECT_EQ(reader.U8(), 0x01);
  EXPECT_EQ(reader.U16(), 0x0203);
  EXPECT_EQ(reader.U32(), 0x04050607U);
  EXPECT_EQ(reader.U64(), 0x08090A0B0C0D0E0FU);
  EXPECT_TRUE(reader.ok());
  EXPECT_EQ(reader.remaining(), 0U);
}

TEST(Bytes, BytesAndZeros) {
  Bytes bytes(6, std::byte{0xFF});
  ByteWriter writer(bytes);
  writer.Bytes(Of({1, 2}));
  writer.Zeros(3);
  writer.Bytes({});
  writer.Zeros(0);
  EXPECT_TRUE(writer.ok());
  EXPECT_EQ(Bytes(writer.written().begin(), writer.written().end()), Of({1, 2, 0, 0, 0}));
  EXPECT_EQ(bytes.back(), std::byte{0xFF});
  ByteReader reader(bytes);
  const auto view = reader.Bytes(2);
  EXPECT_EQ(view.data(), bytes.data()) << "a view, not a copy";
  EXPECT_EQ(view.size(), 2U);
  EXPECT_EQ(reader.position(), 2U);
  EXPECT_EQ(reader.remaining(), 4U);
  EXPECT_TRUE(reader.Bytes(0).empty());
  EXPECT_TRUE(reader.ok());
}

TEST(ByteWriter, AnOverrunIsStickyAndWritesNothing) {
  Bytes bytes(4, std::byte{0xFF});
  ByteWriter writer{std::span(bytes).first(3)};
  writer.U16(0);
  writer.U32(0);  // does not fit
  EXPECT_FALSE(writer.ok());
  writer.U8(0);  // would fit
  writer.Bytes(Of({0}));
  writer.Zeros(1);
  EXPECT_FALSE(writer.ok());
  EXPECT_EQ(writer.size(), 2U);
  EXPECT_EQ(bytes, Of({0, 0, 0xFF, 0xFF}));
}

TEST(ByteWriter, HugeCountsDoNotWrapAround) {
  Bytes bytes(8);
  ByteWriter writer(bytes);
  writer.U8(1);
  writer.Zeros(std::numeric_limits<size_t>::max());
  EXPECT_FALSE(writer.ok());
  EXPECT_EQ(writer.size(), 1U);
}

TEST(ByteWriter, AnEmptySpanHoldsNothingButNothing) {
  ByteWriter writer({});
  writer.Bytes({});
  writer.Zeros(0);
  EXPECT_TRUE(writer.ok());
  writer.U8(0);
  EXPECT_FALSE(writer.ok());
}

TEST(ByteReader, AnOverrunIsStickyAndReadsZero) {
  const Bytes bytes = Of({1, 2, 3});
  ByteReader reader(bytes);
  EXPECT_EQ(reader.U16(), 0x0201);
  EXPECT_EQ(reader.U32(), 0U);
  EXPECT_FALSE(reader.ok());
  EXPECT_EQ(reader.U8(), 0);
  EXPECT_EQ(reader.Varint(), 0U);
  EXPECT_TRUE(reader.Bytes(1).empty());
  EXPECT_EQ(reader.remaining(), 0U);
  EXPECT_EQ(reader.position(), 2U);
  EXPECT_FALSE(reader.ok());
}

TEST(ByteReader, HugeCountsDoNotWrapAround) {
  const Bytes bytes = Of({1, 2, 3});
  ByteReader reader(bytes);
  EXPECT_EQ(reader.U8(), 1);
  EXPECT_TRUE(reader.Bytes(std::numeric_limits<size_t>::max()).empty());
  EXPECT_FALSE(reader.ok());
}

TEST(ByteReader, TheCallerMayDeclareAFailure) {
  const Bytes bytes = Of({1, 2, 3});
  ByteReader reader(bytes);
  reader.Fail();
  EXPECT_FALSE(reader.ok());
  EXPECT_EQ(reader.U8(), 0);
}

TEST(Varint, KnownBytes) {
  EXPECT_EQ(Varint(0), Of({0}));
  EXPECT_EQ(Varint(127), Of({0x7F}));
  EXPECT_EQ(Varint(128), Of({0x80, 0x01}));
  EXPECT_EQ(Varint(300), Of({0xAC, 0x02}));
  EXPECT_EQ(Varint(UINT64_MAX), Of({0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01}));
}

TEST(Varint, EveryWidthComesBack) {
  Random random(1);
  for (unsigned bits = 0; bits <= 64; ++bits) {
    for (int i = 0; i < 50; ++i) {
      const uint64_t any = random.Next();
      const uint64_t value = bits == 0 ? 0 : any >> (64 - bits);
      const Bytes bytes = Varint(value);
      ByteReader reader(bytes);
      ASSERT_EQ(reader.Varint(), value);
      ASSERT_TRUE(reader.ok());
      ASSERT_EQ(reader.remaining(), 0U);
    }
  }
}

TEST(Varint, CutShortItFailsAsZero) {
  const Bytes bytes = Varint(UINT64_MAX);
  for (size_t length = 0; length < bytes.size(); ++length) {
    ByteReader reader{std::span(bytes).first(length)};
    EXPECT_EQ(reader.Varint(), 0U) << length;
    EXPECT_FALSE(reader.ok()) << length;
  }
}

TEST(Varint, MoreThan64BitsFail) {
  Bytes bytes(10, std::byte{0xFF});
  for (const int last : {0x02, 0x7F, 0x80, 0x81, 0xFF}) {
    bytes.back() = static_cast<std::byte>(last);
    ByteReader reader(bytes);
    EXPECT_EQ(reader.Varint(), 0U) << last;
    EXPECT_FALSE(reader.ok()) << last;
  }
  bytes.assign(11, std::byte{0x80});
  bytes.back() = std::byte{0};
  ByteReader endless(bytes);
  endless.Varint();
  EXPECT_FALSE(endless.ok());
}

TEST(Varint, AWriterWithoutRoomFails) {
  for (size_t room = 0; room < 10; ++room) {
    Bytes bytes(10, std::byte{0x55});
    ByteWriter writer{std::span(bytes).first(room)};
    writer.Varint(UINT64_MAX);
    EXPECT_FALSE(writer.ok());
    for (size_t at = room; at < bytes.size(); ++at) {
      EXPECT_EQ(bytes[at], std::byte{0x55});
    }
  }
}

}  // namespace
}  // namespace eplog
